"""The text of a block as a compiler should see it: what Python fills in at run time is marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from curate.extract.types import CodeBlock

__all__ = ["FILLED_IN", "compilable_texts"]

FILLED_IN = "CUSET_FILLED_IN"
"""Stands for `{expression}` of an f-string: an error that names it says nothing about the answer."""


def compilable_texts(response: str, blocks: Sequence[CodeBlock]) -> list[str]:
    """The texts of the blocks, the expressions of f-strings replaced by `FILLED_IN`; lines stay where they are."""
    return [_marked(response, block) for block in blocks]


def _marked(response: str, block: CodeBlock) -> str:
    if block.kind != "python_string" or block.starts is None:
        return block.text
    parts = []
    at = 0
    for start, end in _holes(response, block):
        lines = block.text.count("\n", start, end)
        parts += [block.text[at:start], FILLED_IN + "\n" * lines]
        at = end
    return "".join(parts) + block.text[at:]


def _holes(response: str, block: CodeBlock) -> Iterator[tuple[int, int]]:
    """(start, end) in the block's text, in order.

    An expression that C++ can read is kept without its braces, so it stands between two gaps of the map, the first of
    which ends with a brace; any other is one underscore that spans its braces.
    """
    starts, ends = block.char_ranges()
    before = np.concatenate([[block.start], ends[:-1]])
    wide = (ends - starts > 1) & (np.frombuffer(block.text.encode("utf-32-le", "replace"), np.uint32) == ord("_"))
    opened = -1
    for k in np.flatnonzero((starts > before) | wide).tolist():
        if opened >= 0:
            yield opened, k
            opened = -1
        if wide[k] and response[starts[k]] == "{":
            yield k, k + 1
        elif response[max(0, int(before[k]) - (k == 0)) : int(starts[k])].rstrip().endswith("{"):
            opened = k
    if opened >= 0:
        yield opened, len(block.text)
