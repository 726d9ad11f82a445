"""Python string literals with their escapes undone, and for every character where it stands in the source."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int32
from numpy import ndarray as Array
from tree_sitter import Node

__all__ = ["CharIndex", "Undone", "undo"]

_SIMPLE = {"\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
           "\n": "", "\r": "", "\r\n": ""}  # fmt: skip
_NEWLINE = r"\r\n?"
_ESCAPE = (
    r"\\(?:\r\n|[\n\r\\'\"abfnrtv]|[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^{}\r\n]{1,100}\})"
)
_BRACES = r"\{\{|\}\}"
_SPECIAL = {
    (raw, formatted): re.compile("|".join([*([] if raw else [_ESCAPE]), *([_BRACES] if formatted else []), _NEWLINE]))
    for raw in (False, True)
    for formatted in (False, True)
}
_READABLE = frozenset({"identifier", "attribute", "integer", "float", "subscript", "unary_operator", "binary_operator",
                       "parenthesized_expression"})  # fmt: skip


class CharIndex:
    """Byte offsets of a text's UTF-8 form to character offsets."""

    def __init__(self, text: str) -> None:
        self._chars: Int32[Array, "bytes + 1"] | None = None
        if not text.isascii():
            source = np.frombuffer(text.encode("utf-8", "replace"), dtype=np.uint8)
            before = np.cumsum((source & 0xC0) != 0x80, dtype=np.int32) - 1
            self._chars = np.append(before, np.int32(len(text)))

    def __call__(self, byte: int) -> int:
        return byte if self._chars is None else int(self._chars[byte])


@dataclass(frozen=True, eq=False)
class Undone:
    """The value of a literal; character i of `text` stands at `source[starts[i]:ends[i]]`."""

    text: str
    starts: Int32[Array, "n"]
    ends: Int32[Array, "n"]


class _Pieces:
    """Collects runs of source characters and single replaced ones."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.text: list[str] = []
        self.starts: list[Int32[Array, "k"]] = []
        self.ends: list[Int32[Array, "k"]] = []

    def copy(self, start: int, end: int) -> None:
        if start < end:
            self.text.append(self.source[start:end])
            places = np.arange(start, end, dtype=np.int32)
            self.starts.append(places)
            self.ends.append(places + 1)

    def put(self, value: str, start: int, end: int) -> None:
        if value:
            self.text.append(value)
            self.starts.append(np.full(len(value), start, dtype=np.int32))
            self.ends.append(np.full(len(value), end, dtype=np.int32))


def undo(source: str, strings: Sequence[Node], index: CharIndex) -> Undone | None:
    """The value of the literals `strings` (tree-sitter-python `string` nodes of `source`, joined), None if it is
    empty or bytes.

    Plain literals give exactly what Python gives, but a lone surrogate becomes U+FFFD. In an f-string `{{` and `}}`
    become braces, and an interpolation becomes its expression's own text where C++ can read it too (a name, a number,
    arithmetic, a subscript), otherwise one underscore; format specifications and conversions are dropped."""
    pieces = _Pieces(source)
    for node in strings:
        children = node.children
        if not children or children[0].type != "string_start":
            continue
        opening = source[index(children[0].start_byte) : index(children[0].end_byte)]
        prefix = opening.rstrip("'\"").lower()
        if "b" in prefix:
            return None
        special = _SPECIAL["r" in prefix, "f" in prefix or "t" in prefix]
        for child in children[1:]:
            start, end = index(child.start_byte), index(child.end_byte)
            if child.type == "string_content":
                _content(pieces, source, start, end, special)
            elif child.type == "interpolation":
                _interpolation(pieces, child, start, end, index)
            elif child.type == "string_end":  # holds the content too where that is nothing but backslashes
                _content(pieces, source, start, end - (len(opening) - len(prefix)), special)
    text = "".join(pieces.text)
    if not text:
        return None
    return Undone(text, np.concatenate(pieces.starts), np.concatenate(pieces.ends))


def _content(pieces: _Pieces, source: str, start: int, end: int, special: re.Pattern[str]) -> None:
    at = start
    for found in special.finditer(source, start, end):
        value = _value(found[0])
        if value is not None:
            pieces.copy(at, found.start())
            pieces.put(value, found.start(), found.end())
            at = found.end()
    pieces.copy(at, end)


def _interpolation(pieces: _Pieces, node: Node, start: int, end: int, index: CharIndex) -> None:
    expression = next((child for child in node.named_children if child.type != "comment"), None)
    if expression is not None and expression.type in _READABLE:
        pieces.copy(index(expression.start_byte), index(expression.end_byte))
    else:
        pieces.put("_", start, end)


def _value(special: str) -> str | None:
    """The character that an escape, a doubled brace or a line end stands for; None where Python would keep it as it
    is.
    """
    if special[0] != "\\":
        return special[0] if special[0] in "{}" else "\n"
    body = special[1:]
    if body in _SIMPLE:
        return _SIMPLE[body]
    if body[0] == "N":
        try:
            return unicodedata.lookup(body[2:-1])
        except KeyError:
            return None
    code = int(body, 8) if body[0] in "01234567" else int(body[1:], 16)
    if code > 0x10FFFF:
        return None
    return "\ufffd" if 0xD800 <= code <= 0xDFFF else chr(code)
