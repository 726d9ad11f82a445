"""What makes the build refuse or mark a row.

One list; a filter is a reason and a function that says why, or None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from curate.errors import OptionError
from curate.filters.checks import FLAWS
from curate.filters.code import KERNEL_SYNTAX_ERRORS, NO_CUDA, NO_KERNEL
from curate.filters.outcomes import COMPILING, EXECUTING
from curate.filters.quality import QUALITY
from curate.filters.rights import LICENSE_NOT_ALLOWED, UNKNOWN_LICENSE
from curate.filters.text import EMPTY_PROMPT, EMPTY_RESPONSE, MARKED_INCORRECT, TOO_LONG
from curate.filters.types import Action, Filter

__all__ = ["COMPARED", "FILTERS", "Action", "Filter", "actions"]

FILTERS: tuple[Filter, ...] = (
    EMPTY_PROMPT,
    EMPTY_RESPONSE,
    MARKED_INCORRECT,
    *(f for f in FLAWS if f.reason == "not_cuda"),  # says more than that there is no CUDA
    NO_CUDA,
    NO_KERNEL,
    KERNEL_SYNTAX_ERRORS,
    *(f for f in FLAWS if f.reason != "not_cuda"),
    *QUALITY,
    LICENSE_NOT_ALLOWED,
    UNKNOWN_LICENSE,
    *COMPILING,
    *EXECUTING,
    TOO_LONG,
)
"""In order; the first that applies and refuses gives the reason."""

COMPARED: dict[str, Action] = {
    "contaminated": "refuse",
    "same_code": "refuse",
    "renamed_code": "refuse",
    "near_duplicate": "refuse",
}
"""Reasons that no row has by itself (`curate.contamination`, `curate.duplicates`), and what happens by default."""


def actions(choices: Sequence[str]) -> dict[str, Action]:
    """What happens for every reason, after `REASON=refuse|mark|off` choices (`--filter`); raises OptionError."""
    chosen: dict[str, Action] = {f.reason: f.default for f in FILTERS} | COMPARED
    for choice in choices:
        reason, _, action = choice.partition("=")
        if reason not in chosen:
            raise OptionError(f"--filter {choice[:80]}: no such reason; the reasons are {', '.join(chosen)}")
        if action not in get_args(Action):
            raise OptionError(f"--filter {choice[:80]}: write {reason}=refuse, {reason}=mark or {reason}=off")
        chosen[reason] = action  # type: ignore[assignment]
    return chosen
