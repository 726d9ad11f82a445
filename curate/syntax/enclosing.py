"""The smallest syntax node around a span of a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tree_sitter import Node

from curate.syntax.parse import Parsed, SyntaxTree

__all__ = ["Enclosing", "enclosing_nodes"]


@dataclass(frozen=True)
class Enclosing:
    """A node: its type in tree-sitter-cuda, and the characters [start, end) of the text that it covers."""

    type: str
    start: int
    end: int


class _Finder:
    """Walks a tree forward only, so that all spans of a text together cost no more than one walk."""

    def __init__(self, tree: SyntaxTree) -> None:
        self.tree = tree
        self.cursor = tree.root.walk()
        self.path = [tree.root]
        """The cursor's node and what stands above it."""

    def find(self, start: int, end: int) -> Node:
        """The node around bytes [start, end) of the file; the root where no other is. `start` never goes back."""
        start, end = start - self.tree.shift, end - self.tree.shift
        path = self.path
        while len(path) > 1 and not _covers(path[-2], start, end):
            self.cursor.goto_parent()
            path.pop()
        depth = len(path) - 1
        while True:
            while path[-1].end_byte <= start and self.cursor.goto_next_sibling():
                path[-1] = self._here()
            if not _covers(path[-1], start, end):
                depth = len(path) - 2
                break
            depth = len(path) - 1
            if not self.cursor.goto_first_child():
                break
            path.append(self._here())
        depth = max(depth, 0)
        while depth and _is_punctuation(path[depth]):
            depth -= 1
        return path[depth]

    def _here(self) -> Node:
        node = self.cursor.node
        assert node is not None
        return node


def _covers(node: Node, start: int, end: int) -> bool:
    return node.start_byte <= start and end <= node.end_byte


def _is_punctuation(node: Node) -> bool:
    """A bracket or an operator; a keyword (`__global__`, `if`) is a node in its own right."""
    return not node.is_named and not (node.type[:1].isalpha() or node.type.startswith("_"))


def enclosing_nodes(parsed: Parsed, spans: Iterable[tuple[int, int]]) -> Iterator[Enclosing]:
    """The smallest node around each span of characters [start, end); the spans in order of their starts.

    Brackets and operators give way to the node that they belong to. A span in the body of a `#define` is looked up in
    the tree of that body. What no node covers has the whole text. Linear in the text, however many spans.
    """
    main = _Finder(parsed.main)
    macros = [_Finder(tree) for tree in parsed.macros]
    current = 0
    for start, end in spans:
        first, last = _byte(parsed, start), _byte(parsed, end)
        while current < len(macros) and macros[current].tree.end <= first:
            current += 1
        if current < len(macros) and macros[current].tree.start <= first and last <= macros[current].tree.end:
            tree = macros[current].tree
            node = macros[current].find(first, last)
            at = node.start_byte + tree.shift, node.end_byte + tree.shift
            if tree.start <= at[0] and at[1] <= tree.end and _covers(node, first - tree.shift, last - tree.shift):
                yield Enclosing(node.type, *_characters(parsed, *at))
                continue
        node = main.find(first, last)
        at = (0, len(parsed.data)) if node is main.path[0] else (node.start_byte, node.end_byte)
        yield Enclosing(node.type, *_characters(parsed, *at))


def _byte(parsed: Parsed, char: int) -> int:
    if parsed.leads is None:
        return char
    return int(parsed.leads[char]) if char < len(parsed.leads) else len(parsed.data)


def _characters(parsed: Parsed, start: int, end: int) -> tuple[int, int]:
    return parsed.char(start), parsed.char(end)
