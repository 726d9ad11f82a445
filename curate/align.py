"""From the characters of a code block to the characters of the response, and from those to tokens.

Labels are made on characters of code (`curate.syntax`), since the tree counts bytes, Python characters and the
tokenizer tokens: characters are the one unit that all three can be mapped to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int32, Int64, UInt8, UInt32
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


def _packed(labels: CharLabels) -> UInt32[Array, "k"]:
    """All labels of a character as one number, so that one comparison tells whether any of them differs: four values
    below 16 (category, location, statement, in_code), and the index distance. Behind them those of no character."""
    pairs = np.zeros((len(labels.category) + 1, 4), np.uint8)
    pairs[:-1, 0] = labels.category | labels.location << 4
    pairs[:-1, 1] = labels.statement | labels.in_code.view(np.uint8) << 4
    pairs[:-1, 2] = labels.index_distance
    pairs[-1, 2] = NOT_DERIVED
    return pairs.view(np.dtype("<u4"))[:, 0]


_SHIFTS = np.array([[0], [4], [8], [12]], np.uint32)


def _unpacked(packed: UInt32[Array, "k"]) -> Int64[Array, "4 k"]:
    """The four values below 16."""
    return (packed >> _SHIFTS & 15).astype(np.int64)


def _majority(values: Int64[Array, "4 k"], token: Int64[Array, "k"], tokens: int) -> Int64[Array, "4 tokens"]:
    """The most frequent of the values of each token, field by field; one above 0 wins a tie against 0, the smaller one
    among those above.
    """
    fields = np.arange(len(values))[:, None]
    counts = np.bincount((((fields * tokens + token) << 4) + values).ravel(), minlength=len(values) * tokens << 4)
    counts = counts.reshape(len(values), tokens, 16)
    best = counts[:, :, 1:].argmax(axis=2) + 1  # the first of equals
    return np.where(counts[:, :, 1:].max(axis=2) >= counts[:, :, 0], best, 0)


def token_labels(
    response: str, labels: CharLabels, char_start: Int32[Array, "T"], char_end: Int32[Array, "T"]
) -> TokenLabels:
    """The label of a token is that of most of its characters, white space left out unless there is nothing else.

    A tie goes to the labelled side: `;` glued to `threadIdx.x` is sensitive. Tokens of the template (-1) are neutral.
    `index_distance` is the smallest of the token's characters. Linear in characters and tokens.
    """
    start, end = np.maximum(char_start, 0, dtype=np.int64), np.maximum(char_end, 0, dtype=np.int64)
    some = end > start
    packed = _packed(labels)
    first = packed[np.where(some, start, -1)]
    taken, distance = _unpacked(first), (first >> 16).astype(np.uint8)
    changes = np.zeros(len(packed), np.int64)  # between the first character and this one
    (packed[1:] != packed[:-1]).cumsum(out=changes[1:])
    mixed = np.flatnonzero(some & (changes[end - 1] > changes[start]))
    if len(mixed):
        # their characters, and which of these tokens each is of
        widths = (end - start)[mixed]
        before = np.cumsum(widths) - widths
        token = np.repeat(np.arange(len(mixed)), widths)
        char = np.arange(len(token)) + np.repeat(start[mixed] - before, widths)
        distance[mixed] = np.minimum.reduceat(labels.index_distance[char], before)
        solid = _solid(response)[char]
        counts = solid | (np.bincount(token[solid], minlength=len(mixed)) == 0)[token]
        taken[:, mixed] = _majority(_unpacked(packed[char[counts]]), token[counts], len(mixed))
    category, location, statement, in_code = taken.astype(np.uint8)
    return TokenLabels(
        category=category,
        statement=statement.astype(bool),
        index_distance=distance,
        location=location,
        in_code=in_code.astype(bool),
    )
