"""Parsing that gives up: to repair the errors of hostile text, tree-sitter may take the square of its length."""

from __future__ import annotations

import sys

from tree_sitter import Parser, Tree

__all__ = ["parse_bounded"]

_STEPS, _BYTES_A_STEP = 1000, 8
"""Steps that a text may take, and one more for so many bytes. Real answers take one for 30 bytes or more, whether they
are of the grammar's language or prose.
"""
_CHUNK = 1 << 12


def parse_bounded(parser: Parser, data: bytes) -> Tree | None:
    """The tree of a text; None where it takes more than linear time. Counted and not timed, so that a text gives the
    same everywhere.

    Its nodes take fifteen times as long to give their text as those of `parser.parse(data, tree)`, which takes the tree
    over: in no time where it has no error, but with a single one in the time of the first parse.
    """
    left = _STEPS + len(data) // _BYTES_A_STEP

    def read(at: int, _: object) -> bytes:
        """A step: to look for the end of a comment that has none takes one for each chunk up to the end."""
        nonlocal left
        left -= 1
        return data[at : at + _CHUNK] if left >= 0 else b""

    def exhausted(offset: int, has_error: bool) -> bool:
        """A step: the parser asks after a hundred of its operations."""
        nonlocal left
        left -= 1
        return left < 0

    try:
        tree = parser.parse(read, progress_callback=exhausted)
    except ValueError:  # what a parser that was stopped raises
        parser.reset()
        return None
    if left < 0:
        return None
    left = sys.maxsize  # nodes ask `read` for their text from now on
    return tree
