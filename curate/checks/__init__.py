"""Is the answer a kernel that does the work? Judged by its syntax trees, never run.

Each check is a reason and a function of the answer; what exactly counts stands in the function's own docstring.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from curate.checks.equal import equals_reference
from curate.checks.fallback import reference_fallback
from curate.checks.kernel_bodies import constant_kernel, empty_kernel, ignores_inputs
from curate.checks.launches import not_launched
from curate.checks.library import library_call
from curate.checks.not_cuda import not_cuda
from curate.checks.types import Answer, Flaw
from curate.extract import CodeBlock
from curate.syntax import CodeLabels, Parsed

__all__ = ["CHECKS", "Answer", "Flaw", "find_flaws"]

CHECKS: tuple[tuple[str, Callable[[Answer], str | None]], ...] = tuple(
    (check.__name__, check)
    for check in (
        not_cuda,
        equals_reference,
        empty_kernel,
        constant_kernel,
        ignores_inputs,
        not_launched,
        library_call,
        reference_fallback,
    )
)
"""(reason, check) in a fixed order. A check gives the detail of a flaw, or None."""


def find_flaws(
    response: str, prompt: str, blocks: Sequence[CodeBlock], parsed: Sequence[Parsed], labels: Sequence[CodeLabels]
) -> list[Flaw]:
    """Every reason that applies to an answer, in the order of CHECKS; [] for an answer that passes.

    `parsed[i]` and `labels[i]` are those of `blocks[i]`. Never raises, whatever the text; linear in its length.
    """
    answer = Answer(response, prompt, blocks, parsed, labels)
    return [Flaw(reason, detail) for reason, check in CHECKS if (detail := check(answer)) is not None]
