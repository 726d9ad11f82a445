"""CUDA text -> syntax trees, one for the file and one for the body of every `#define`."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import tree_sitter_cuda
from jaxtyping import Int64
from numpy import ndarray as Array
from tree_sitter import Language, Node, Parser, Query, QueryCursor, Tree

from curate.syntax.bounded import parse_bounded
from curate.syntax.normalise import Blank, join_pasted, normalise

__all__ = ["Parsed", "SyntaxTree", "language", "parse_cuda"]


@dataclass(frozen=True, eq=False)
class SyntaxTree:
    """The tree of `source`. Byte b of its nodes is byte b + `shift` of the file, and only bytes [start, end) of the
    file are its own.
    """

    source: bytes
    root: Node
    shift: int
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class Parsed:
    """A code text with its trees.

    `data`: the UTF-8 bytes that were parsed; blanked in places, as long as the original's. `blanks`: those places.
    `given_up`: the text takes more than linear time to parse, and all of it is blanked.
    `main`: the tree of the whole file. `macros`: the body of every `#define` that holds code, parsed once more
    inside a function, since the grammar leaves it a single token. `leads` (n,): the byte at which character i of the
    text begins; None when every character is one byte.
    """

    text: str
    data: bytes
    given_up: bool
    blanks: tuple[Blank, ...]
    main: SyntaxTree
    macros: tuple[SyntaxTree, ...]
    leads: Int64[Array, "n"] | None

    @property
    def trees(self) -> tuple[SyntaxTree, ...]:
        return (self.main, *self.macros)

    def char(self, byte: int) -> int:
        """The character that byte `byte` belongs to; len(text) for the end."""
        return (
            byte
            if self.leads is None
            else int(np.searchsorted(self.leads, byte, side="right")) - (byte < len(self.data))
        )


@cache
def language() -> Language:
    """The CUDA grammar; loaded once a process."""
    return Language(tree_sitter_cuda.language())


@cache
def _parser() -> Parser:
    """One parser for all texts: it keeps its memory from one to the next."""
    return Parser(language())


@cache
def _define_query() -> Query:
    return Query(language(), "(preproc_def value: (_) @body) (preproc_function_def value: (_) @body)")


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_DEFINE = re.compile(rb"#[ \t]*define")
_LEAD_IN = b"void f(){"
_LEAD_OUT = b";}"
_DEFINES_FUNCTION = re.compile(
    rb"\s*(?:template\s*<[^;{]*>\s*)?(?:(?:static|inline|extern)\s+)*(?:\"C\"\s*)?__(?:global|device|host|forceinline)__"
)
_LINE_END = re.compile(rb"(?<!\\)(?<!\\\r)\n|\Z")
_HOLDS_CODE = re.compile(rb"[({\[.=]|__\w|\bdim3\b|\bhalf2?\b|\b\w+[1-4]\b")


def parse_cuda(code: str) -> Parsed:
    """Parses a text; never raises, whatever the text. Time and memory are linear in its length."""
    data = _utf8(code)
    ascii_only = len(data) == len(code)
    leads = None if ascii_only else np.flatnonzero((np.frombuffer(data, np.uint8) & 0xC0) != 0x80)
    data, blanks = normalise(data)
    parser = _parser()
    tree = _tree(parser, data)
    given_up = tree is None
    if tree is None:
        data, blanks = b" " * len(data), ()
        tree = parser.parse(data)
    main = SyntaxTree(data, tree.root_node, 0, 0, len(data))
    macros = tuple(_macros(parser, data, main.root))
    return Parsed(code, data, given_up, blanks, main, macros, leads)


def _tree(parser: Parser, data: bytes) -> Tree | None:
    """The tree of a text, None where it is given up; taken over, since queries ask every other node for its text."""
    tree = parse_bounded(parser, data)
    return tree and parser.parse(data, tree)


def _utf8(code: str) -> bytes:
    try:
        return code.encode()
    except UnicodeEncodeError:
        return _LONE_SURROGATE.sub("\ufffd", code).encode()


def _macros(parser: Parser, data: bytes, root: Node) -> Iterator[SyntaxTree]:
    if b"define" not in data:
        return
    # of the nodes below the root only those are searched in which a `#define` stands
    children = root.children
    ends = [child.end_byte for child in children]
    holding = sorted({bisect_right(ends, found.start()) for found in _DEFINE.finditer(data)} - {len(ends)})
    bodies = [body for n in holding for body in QueryCursor(_define_query()).captures(children[n]).get("body", ())]
    done = 0
    for start in sorted(body.start_byte for body in bodies):
        if start < done:
            continue
        # the grammar ends a body at its first comment, the preprocessor at the end of the line
        ending = _LINE_END.search(data, start)
        end = done = ending.start() if ending else len(data)
        body = data[start:end]
        if _HOLDS_CODE.search(body):
            body = join_pasted(body)
            lead = b"" if _DEFINES_FUNCTION.match(body) else _LEAD_IN
            body = lead + body + _LEAD_OUT if lead else body
            if tree := _tree(parser, body):
                yield SyntaxTree(body, tree.root_node, start - len(lead), start, end)
