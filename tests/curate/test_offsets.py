"""Offsets in the rendered text to characters of the response: the arrays against a loop over tokens."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from curate.offsets import Piece, to_response


@st.composite
def pieces(draw: st.DrawFn) -> list[Piece]:
    """Text of the template and of the response by turns; some characters of the response stand for several."""
    out, at = [], 0
    for from_template, length in draw(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=1, max_size=5)):
        if from_template:
            out.append(Piece("t" * length, True))
            continue
        widths = np.array(draw(st.lists(st.integers(-1, 3), min_size=length, max_size=length)), np.int64)
        ends = at + np.cumsum(widths.clip(0))
        starts = np.where(widths < 0, -1, ends - widths)
        out.append(Piece("r" * length, False, starts.astype(np.int32), np.where(widths < 0, -1, ends).astype(np.int32)))
        at = int(ends[-1]) if length else at
    return out


def plainly(parts: list[Piece], start: int, end: int) -> tuple[int, int]:
    none = [-1] * 10
    starts = [s for p in parts for s in (none[: len(p.text)] if p.starts is None else p.starts.tolist())]
    ends = [e for p in parts for e in (none[: len(p.text)] if p.ends is None else p.ends.tolist())]
    covered = [i for i in range(start, min(end, len(starts))) if starts[i] >= 0]
    return (starts[covered[0]], ends[covered[-1]]) if covered else (-1, -1)


@given(pieces(), st.lists(st.tuples(st.integers(0, 32), st.integers(0, 6)), max_size=12))
def test_tokens_stand_where_a_loop_over_them_puts_them(parts: list[Piece], tokens: list[tuple[int, int]]) -> None:
    starts = np.array([a for a, _ in tokens], np.int64)
    ends = np.array([a + length for a, length in tokens], np.int64)
    found = to_response(parts, starts, ends)
    assert [x.dtype for x in found] == [np.int32, np.int32]
    expected = [plainly(parts, a, a + length) for a, length in tokens]
    assert list(zip(*(x.tolist() for x in found), strict=True)) == expected


def test_a_token_over_template_and_response_covers_the_response_alone() -> None:
    parts = [Piece("<s>", True), Piece("abc", False, np.arange(3, dtype=np.int32), np.arange(1, 4, dtype=np.int32))]
    start, end = to_response(parts, np.array([0, 2, 5]), np.array([3, 5, 6]))
    assert (start.tolist(), end.tolist()) == ([-1, 0, 2], [-1, 2, 3])
