"""What makes the build refuse a row.

One list; a filter is a reason and a function that says why, or None.
"""

from __future__ import annotations

from curate.filters.code import KERNEL_SYNTAX_ERRORS, NO_CUDA, NO_KERNEL
from curate.filters.text import EMPTY_PROMPT, EMPTY_RESPONSE, TOO_LONG
from curate.filters.types import Filter

__all__ = ["FILTERS", "Filter"]

FILTERS: tuple[Filter, ...] = (EMPTY_PROMPT, EMPTY_RESPONSE, NO_CUDA, NO_KERNEL, KERNEL_SYNTAX_ERRORS, TOO_LONG)
"""In order; the first that applies gives the reason."""
