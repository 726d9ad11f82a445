"""Python classes by what they do: their tokens without docstrings, comments, layout and class names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from tree_sitter import Node

from curate.extract.fences import fences
from curate.extract.language import parse_python, preorder

__all__ = ["LEAST_TOKENS", "class_hashes"]

LEAST_TOKENS = 24
"""A class with fewer says too little: an identity module is everybody's."""

_CLASS_LINE = re.compile(r"^[ \t]*class[ \t]+\w", re.MULTILINE)


def class_hashes(text: str) -> Iterator[tuple[bytes, str]]:
    """(hash, name) of every outermost Python class in a text: its fenced blocks, or all of it where it has none.

    Two classes have one hash where they are equal but for docstrings, comments, white space between tokens and the
    names of the classes that the text defines. Never raises; linear in the text.
    """
    if _CLASS_LINE.search(text) is None:
        return
    pieces = ["".join(text[start:end] for start, end in fence.lines) for fence in fences(text)]
    for piece in [p for p in pieces if _CLASS_LINE.search(p)] or [_from_first_class(text)]:
        yield from _of_module(piece)


def _from_first_class(text: str) -> str:
    """Prose before a class would take its head along into an error."""
    found = _CLASS_LINE.search(text)
    return text[found.start() :] if found else text


def _of_module(code: str) -> Iterator[tuple[bytes, str]]:
    root = parse_python(code).root_node
    classes = [node for node, _ in preorder(root, lambda node: node.type != "class_definition") if _is_class(node)]
    names = frozenset(_text(node.child_by_field_name("name")) for node in classes)
    for node in classes:
        tokens = _tokens(node, names)
        if len(tokens) >= LEAST_TOKENS:
            digest = hashlib.blake2b(b"\0".join(tokens), digest_size=16).digest()
            yield digest, _text(node.child_by_field_name("name")).decode("utf-8", "replace")


def _is_class(node: Node) -> bool:
    return node.type == "class_definition" and node.child_by_field_name("name") is not None


def _text(node: Node | None) -> bytes:
    return (node.text or b"") if node is not None else b""


def _tokens(root: Node, names: frozenset[bytes]) -> list[bytes]:
    """Leaves in order; a bracket opens and closes each block, since indentation is no leaf."""
    tokens: list[bytes] = []
    open_blocks: list[int] = []
    for node, depth in preorder(root, lambda node: not _is_skipped(node) and node.type != "string"):
        while open_blocks and depth <= open_blocks[-1]:
            open_blocks.pop()
            tokens.append(b"}")
        if _is_skipped(node):
            continue
        if node.type == "block":
            tokens.append(b"{")
            open_blocks.append(depth)
        elif node.type == "string" or not node.child_count:
            text = node.text or b""
            if node.type == "identifier" and text in names:
                text = b"class"
            if text.strip() and text != b";":
                tokens.append(text)
    return tokens + [b"}"] * len(open_blocks)


def _is_skipped(node: Node) -> bool:
    """A comment, or a string that stands alone: the docstring of a class or a function, wherever it is put."""
    return node.type == "comment" or (
        node.type == "expression_statement" and node.named_child_count == 1 and node.named_children[0].type == "string"
    )
