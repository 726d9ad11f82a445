"""From the characters of a code block to the characters of the response, and from those to tokens.

Labels are made on characters of code (`curate.syntax`), since the tree counts bytes, Python characters and the
tokenizer tokens: characters are the one unit that all three can be mapped to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int32, Int64, UInt8
from numpy import ndarray as Array

from curate.extract import CodeBlock
from curate.syntax import CodeLabels
from curate.taxonomy import NOT_DERIVED

__all__ = ["CharLabels", "TokenLabels", "paint", "token_labels"]


@dataclass(frozen=True, eq=False)
class CharLabels:
    """Labels of the n characters of a response; the fields are those of `curate.syntax.CodeLabels`, and what is
    code."""

    category: UInt8[Array, "n"]
    statement: Bool[Array, "n"]
    index_distance: UInt8[Array, "n"]
    location: UInt8[Array, "n"]
    in_code: Bool[Array, "n"]


@dataclass(frozen=True, eq=False)
class TokenLabels:
    """The same for the T response tokens."""

    category: UInt8[Array, "T"]
    statement: Bool[Array, "T"]
    index_distance: UInt8[Array, "T"]
    location: UInt8[Array, "T"]
    in_code: Bool[Array, "T"]


def paint(length: int, blocks: Iterable[tuple[CodeBlock, CodeLabels]]) -> CharLabels:
    """Lays the labels of code blocks over a response of `length` characters; what no block covers is neutral.

    A character of code that an escape spells with several characters of the response (`\\n`) labels all of them.
    """
    out = CharLabels(
        np.zeros(length, np.uint8), np.zeros(length, bool), np.full(length, NOT_DERIVED, np.uint8),
        np.zeros(length, np.uint8), np.zeros(length, bool),
    )  # fmt: skip
    for block, labels in blocks:
        source: slice | Int64[Array, "k"] = slice(None)
        target: slice | Int64[Array, "k"] = slice(block.start, block.end)
        if block.starts is not None:
            starts, ends = block.char_ranges()
            widths = ends - starts
            source = np.repeat(np.arange(len(starts)), widths)
            target = np.repeat(starts - np.concatenate([[0], np.cumsum(widths)[:-1]]), widths) + np.arange(len(source))
        for name in ("category", "statement", "index_distance", "location"):
            getattr(out, name)[target] = getattr(labels, name)[source]
        out.in_code[target] = True
    return out


_SPACES = np.array([chr(c).isspace() for c in range(0x3002)])
"""Whether a code point is white space; U+3000 is the last that is."""


def _solid(text: str) -> Bool[Array, "n"]:
    """Which characters are not white space, as `str.isspace` has it."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.dtype("<u4"))
    return ~_SPACES[np.minimum(points, len(_SPACES) - 1)]


def _majority(values: UInt8[Array, "n"], start: Int64[Array, "T"], end: Int64[Array, "T"]) -> UInt8[Array, "T"]:
    """The value that most of `values[start:end]` have, 0 of none; one above 0 wins a tie against 0, the smaller one
    among those above."""
    out = np.zeros(len(start), np.uint8)
    some = np.flatnonzero(end > start)
    out[some] = values[start[some]]
    changes = np.concatenate([[0, 0], np.cumsum(values[1:] != values[:-1])])  # before character i
    mixed = some[changes[end[some]] != changes[start[some] + 1]]
    first, last = start[mixed], end[mixed]
    best, most = np.zeros(len(mixed), np.uint8), np.zeros(len(mixed), np.int64)
    for value in np.unique(values)[::-1]:  # 0 comes last, and has to win
        places = np.flatnonzero(values == value)
        count = np.searchsorted(places, last) - np.searchsorted(places, first)
        wins = count > most if value == 0 else (count > 0) & (count >= most)
        best[wins], most[wins] = value, count[wins]
    out[mixed] = best
    return out


def _least(values: UInt8[Array, "n"], start: Int64[Array, "T"], end: Int64[Array, "T"]) -> UInt8[Array, "T"]:
    """The smallest of `values[start:end]`, NOT_DERIVED of none."""
    out = np.full(len(start), NOT_DERIVED, np.uint8)
    some = end > start
    edges = np.stack([start[some], end[some]], axis=1).ravel()
    if len(edges):  # every other segment lies between two tokens
        out[some] = np.minimum.reduceat(np.append(values, np.uint8(NOT_DERIVED)), edges)[::2]
    return out


def token_labels(
    response: str, labels: CharLabels, char_start: Int32[Array, "T"], char_end: Int32[Array, "T"]
) -> TokenLabels:
    """The label of a token is that of most of its characters, white space left out unless there is nothing else.

    A tie goes to the labelled side: `;` glued to `threadIdx.x` is sensitive. Tokens of the template (-1) are neutral.
    `index_distance` is the smallest of the token's characters. Linear in characters and tokens, up to a binary search
    for tokens of several labels.
    """
    start, end = char_start.astype(np.int64).clip(0), char_end.astype(np.int64).clip(0)
    solid = _solid(response)
    # A token counts among the solid characters, numbered by themselves, or where it holds none among all, which follow.
    chosen = np.concatenate([np.flatnonzero(solid), np.arange(len(response))])
    position = np.concatenate([[0], np.cumsum(solid)])
    blank = position[start] == position[end]
    first = np.where(blank, position[-1] + start, position[start])
    last = np.where(blank, position[-1] + end, position[end])
    return TokenLabels(
        category=_majority(labels.category[chosen], first, last),
        statement=_majority(labels.statement.view(np.uint8)[chosen], first, last).astype(bool),
        index_distance=_least(labels.index_distance, start, end),
        location=_majority(labels.location[chosen], first, last),
        in_code=_majority(labels.in_code.view(np.uint8)[chosen], first, last).astype(bool),
    )
