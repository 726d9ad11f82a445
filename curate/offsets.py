"""From offsets in the rendered text, as a tokenizer gives them, to characters of the response."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int32, Int64
from numpy import ndarray as Array

__all__ = ["Piece", "tiled", "to_response"]


@dataclass(frozen=True)
class Piece:
    """A stretch of the rendered text. `starts`, `ends`: characters of the response behind each of its characters, if
    any."""

    text: str
    from_template: bool
    starts: Int32[Array, "n"] | None = None
    ends: Int32[Array, "n"] | None = None


def tiled(offsets: Int64[Array, "N 2"]) -> tuple[Int64[Array, "N"], Int64[Array, "N"]]:
    """Offsets without gaps: white space that a tokenizer leaves out of them belongs to the token that follows."""
    starts, ends = offsets[:, 0].copy(), offsets[:, 1].copy()
    before = np.concatenate([[0], np.maximum.accumulate(ends)[:-1]])
    gap = (starts > before) & (ends > starts)
    starts[gap] = before[gap]
    return starts, ends


def to_response(
    pieces: Sequence[Piece], starts: Int64[Array, "T"], ends: Int64[Array, "T"]
) -> tuple[Int32[Array, "T"], Int32[Array, "T"]]:
    """Characters of the rendered text to characters of the response; -1 where a token covers none of them."""
    of_start = np.concatenate([np.full(len(p.text), -1, np.int32) if p.starts is None else p.starts for p in pieces])
    of_end = np.concatenate([np.full(len(p.text), -1, np.int32) if p.ends is None else p.ends for p in pieces])
    of_response = np.flatnonzero(of_start >= 0)
    first, behind = np.searchsorted(of_response, starts), np.searchsorted(of_response, ends)
    some = behind > first
    char_start, char_end = np.full(len(starts), -1, np.int32), np.full(len(starts), -1, np.int32)
    char_start[some] = of_start[of_response[first[some]]]
    char_end[some] = of_end[of_response[behind[some] - 1]]
    return char_start, char_end
