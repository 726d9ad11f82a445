"""What makes the build refuse or mark a row.

One list; a filter is a reason and a function that says why, or None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from curate.errors import OptionError
from curate.filters.code import KERNEL_SYNTAX_ERRORS, NO_CUDA, NO_KERNEL
from curate.filters.rights import LICENSE_NOT_ALLOWED, UNKNOWN_LICENSE
from curate.filters.text import EMPTY_PROMPT, EMPTY_RESPONSE, MARKED_INCORRECT, TOO_LONG
from curate.filters.types import Action, Filter

__all__ = ["DUPLICATES", "FILTERS", "Action", "Filter", "actions"]

FILTERS: tuple[Filter, ...] = (
    EMPTY_PROMPT,
    EMPTY_RESPONSE,
    MARKED_INCORRECT,
    NO_CUDA,
    NO_KERNEL,
    KERNEL_SYNTAX_ERRORS,
    LICENSE_NOT_ALLOWED,
    UNKNOWN_LICENSE,
    TOO_LONG,
)
"""In order; the first that applies and refuses gives the reason."""

DUPLICATES: dict[str, Action] = {}
"""Reasons that no row has by itself, and what happens by default."""


def actions(choices: Sequence[str]) -> dict[str, Action]:
    """What happens for every reason, after `REASON=refuse|mark|off` choices (`--filter`); raises OptionError."""
    chosen: dict[str, Action] = {f.reason: f.default for f in FILTERS} | DUPLICATES
    for choice in choices:
        reason, _, action = choice.partition("=")
        if reason not in chosen:
            raise OptionError(f"--filter {choice[:80]}: no such reason; the reasons are {', '.join(chosen)}")
        if action not in get_args(Action):
            raise OptionError(f"--filter {choice[:80]}: write {reason}=refuse, {reason}=mark or {reason}=off")
        chosen[reason] = action  # type: ignore[assignment]
    return chosen
