"""An instruction for a bare CUDA source file, from its own documentation or its first kernel's signature."""

from __future__ import annotations

import re

from tree_sitter import Node

from curate.extract.language import parse_cuda, preorder
from curate.sources import templates

__all__ = ["instruction_for", "spdx_license"]

_LEGAL = re.compile(r"copyright|spdx-|licen[sc]e|all rights reserved|\(c\)\s+\d{4}", re.IGNORECASE)
_SPDX = re.compile(r"SPDX-License-Identifier:[ \t]*([A-Za-z0-9.+() -]{2,80}?)[ \t]*(?:\*/|\r|\n|\Z)")
_MARKS = re.compile(r"^[ \t]*(?:/\*[*!]*|//[/!]*|\*(?!/))?[ \t]?|[ \t]*\**\*/[ \t]*$|[ \t]+$", re.MULTILINE)
_MIN_WORDS = 4
_WRAPPERS = ("template_declaration", "linkage_specification", "declaration_list")


def instruction_for(text: str, name: str) -> str:
    """The prompt for a source file `name`: comment above the first kernel, else the file's head comment, else the
    signature.
    """
    root = parse_cuda(text).root_node
    kernel = next((node for node, _ in preorder(root, _outside_bodies) if _is_kernel(node)), None)
    comment = (_above(kernel) if kernel is not None else "") or _head(root)
    if comment:
        return templates.file_by_comment(comment)
    if kernel is not None:
        return templates.file_by_signature(_signature(kernel))
    return templates.file_by_name(name)


def spdx_license(text: str) -> str | None:
    """The licence that a file's SPDX header names; looked for in its first 4,096 characters."""
    found = _SPDX.search(text[:4096])
    return found[1].strip() if found else None


def _outside_bodies(node: Node) -> bool:
    return node.type != "compound_statement"


def _is_kernel(node: Node) -> bool:
    return (
        node.type == "function_definition"
        and node.child_by_field_name("body") is not None
        and any(child.type == "__global__" for child in node.children)
    )


def _above(kernel: Node) -> str:
    """The comment that ends on the line before the kernel (its template head and extern "C" included)."""
    top = kernel
    while (
        (parent := top.parent) is not None
        and parent.type in _WRAPPERS
        and parent.start_point.row >= top.start_point.row - 2
    ):
        if parent.type == "declaration_list" and _first_child(parent) != top:
            break
        top = parent
    comments: list[Node] = []
    below, node = top, top.prev_sibling
    while node is not None and node.type == "comment" and node.end_point.row >= below.start_point.row - 1:
        comments.append(node)
        below, node = node, node.prev_sibling
    return _clean(comments[::-1])


def _first_child(node: Node) -> Node | None:
    return next((child for child in node.named_children if child.type != "comment"), None)


def _head(root: Node) -> str:
    """The first group of adjoining comments before any code that documents something (a licence does not)."""
    group: list[Node] = []
    for node in root.children:
        if node.type != "comment":
            break
        if group and node.start_point.row > group[-1].end_point.row + 1:
            if text := _clean(group):
                return text
            group = []
        group.append(node)
    return _clean(group)


def _clean(comments: list[Node]) -> str:
    """The text of comments without their marks; empty for a licence, a line of dashes, or a word or two."""
    text = "\n".join((node.text or b"").decode("utf-8", "replace") for node in comments).replace("\r\n", "\n")
    if _LEGAL.search(text):
        return ""
    lines = [_MARKS.sub("", line).rstrip() for line in text.split("\n")]
    lines = [line for line in lines if not line or any(c.isalnum() for c in line)]
    words = " ".join(lines).split()
    return "\n".join(lines).strip() if len(words) >= _MIN_WORDS else ""


def _signature(kernel: Node) -> str:
    """The kernel's definition up to its body, on one line, with its template head."""
    top = kernel.parent if kernel.parent is not None and kernel.parent.type == "template_declaration" else kernel
    body = kernel.child_by_field_name("body")
    source = (top.text or b"")[: (body.start_byte - top.start_byte) if body is not None else None]
    return " ".join(source.decode("utf-8", "replace").split())
