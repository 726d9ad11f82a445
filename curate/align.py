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
from curate.taxonomy import CATEGORIES, LOCATIONS, NOT_DERIVED

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
        starts, ends = block.char_ranges()
        widths = ends - starts
        source = np.repeat(np.arange(len(starts)), widths)
        target = np.repeat(starts - np.concatenate([[0], np.cumsum(widths)[:-1]]), widths) + np.arange(len(source))
        for name in ("category", "statement", "index_distance", "location"):
            getattr(out, name)[target] = getattr(labels, name)[source]
        out.in_code[target] = True
    return out


def _counts(
    values: UInt8[Array, "n"], kinds: int, start: Int64[Array, "T"], end: Int64[Array, "T"]
) -> Int32[Array, "kinds T"]:
    """How many characters of each kind every token covers."""
    one_hot = values[None, :] == np.arange(kinds, dtype=np.uint8)[:, None]
    total = np.zeros((kinds, len(values) + 1), np.int32)
    np.cumsum(one_hot, axis=1, dtype=np.int32, out=total[:, 1:])
    return total[:, end] - total[:, start]


def _majority(counts: Int32[Array, "kinds T"]) -> UInt8[Array, "T"]:
    """The kind that covers most characters of a token; a labelled kind wins a tie against 0, the smaller one among
    labelled."""
    labelled = counts[1:].argmax(axis=0)
    most = np.take_along_axis(counts[1:], labelled[None], axis=0)[0]
    return np.where((most > 0) & (most >= counts[0]), labelled + 1, 0).astype(np.uint8)


def token_labels(
    response: str, labels: CharLabels, char_start: Int32[Array, "T"], char_end: Int32[Array, "T"]
) -> TokenLabels:
    """The label of a token is that of most of its characters, white space left out unless there is nothing else.

    A tie goes to the labelled side: `;` glued to `threadIdx.x` is sensitive. Tokens of the template (-1) are neutral.
    `index_distance` is the smallest of the token's characters. Linear in characters and tokens.
    """
    start, end = char_start.astype(np.int64).clip(0), char_end.astype(np.int64).clip(0)
    solid = np.fromiter((not c.isspace() for c in response), bool, len(response))
    # Each character counts; where a token holds anything but white space, only that: number the solid characters and
    # count those.
    position = np.concatenate([[0], np.cumsum(solid)])
    solid_start, solid_end = position[start], position[end]
    blank = solid_start == solid_end

    def majority(values: UInt8[Array, "n"], kinds: int) -> UInt8[Array, "T"]:
        on_solid = _majority(_counts(values[solid], kinds, solid_start, solid_end))
        on_all = _majority(_counts(values, kinds, start, end))
        return np.where(blank, on_all, on_solid)

    distance = np.full(len(start), NOT_DERIVED, np.uint8)
    for i in np.flatnonzero(_counts((labels.index_distance != NOT_DERIVED).view(np.uint8), 2, start, end)[1]):
        distance[i] = labels.index_distance[start[i] : end[i]].min()
    return TokenLabels(
        category=majority(labels.category, len(CATEGORIES)),
        statement=majority(labels.statement.view(np.uint8), 2).astype(bool),
        index_distance=distance,
        location=majority(labels.location, len(LOCATIONS)),
        in_code=majority(labels.in_code.view(np.uint8), 2).astype(bool),
    )
