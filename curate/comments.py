"""Where a text is comment, string or code: found by syntax tree, and looked for only around given places."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence

from tree_sitter import Node

from curate.extract.fences import fences
from curate.extract.language import language_of, parse_cuda, parse_python, preorder
from curate.extract.literals import CharIndex

__all__ = ["comments_about", "nodes_at", "python_code", "python_parts"]

_PYTHON_TAGS = frozenset(("python", "py", "python3", "ipython", "pycon", "pytorch", "torch", "triton", "numba", "cupy"))
_UNKNOWN_TAGS = frozenset(("", "code", "text", "txt", "plaintext", "plain", "source", "src", "file", "output"))
_PYTHON_LINE = re.compile(r"^[ \t]*(?:import|from|def|class|async def)[ \t]+\w", re.MULTILINE)


def nodes_at(root: Node, bytes_: Sequence[int], kinds: Collection[str]) -> Iterator[Node]:
    """The outermost nodes of one of `kinds` that hold one of the sorted offsets `bytes_`, in order; subtrees that
    hold none are not entered."""

    def holds(node: Node) -> bool:
        next_one = bisect_left(bytes_, node.start_byte)
        return next_one < len(bytes_) and bytes_[next_one] < node.end_byte

    for node, _ in preorder(root, lambda node: node.type not in kinds and holds(node)):
        if node.type in kinds and holds(node):
            yield node


def comments_about(pattern: re.Pattern[bytes], cuda: Sequence[str], text: str) -> Iterator[str]:
    """Every comment that `pattern` finds something in: of the CUDA texts, then of the Python code in `text`."""
    for code in cuda:
        if places := _places(pattern, code):
            yield from _comments(parse_cuda(code).root_node, places)
    if not pattern.search(text.encode("utf-8", "replace")):
        return
    for start, end in python_parts(text):
        part = text[start:end]
        if places := _places(pattern, part):
            yield from _comments(parse_python(part).root_node, places)


def python_parts(text: str) -> list[tuple[int, int]]:
    """(start, end) of the Python code in a text: fenced, or the whole where it holds no fence; in order."""
    fenced = list(fences(text))
    if not fenced:
        return [(0, len(text))] if _is_python(text) else []
    parts = []
    for fence in fenced:
        tag = (fence.info.strip("{}. \t").lower().split() or [""])[0]
        if tag in _PYTHON_TAGS or (tag in _UNKNOWN_TAGS and _is_python(text[fence.start : fence.end])):
            parts.append((fence.start, fence.end))
    return parts


def python_code(text: str, places: Sequence[int]) -> set[int]:
    """Those of the sorted characters `places` that stand in Python code, outside its comments and strings."""
    found: set[int] = set()
    for start, end in python_parts(text):
        inside = places[bisect_left(places, start) : bisect_left(places, end)]
        if not inside:
            continue
        part = text[start:end]
        index = CharIndex(part)
        lead = [len(part[: at - start].encode("utf-8", "replace")) for at in inside] if not part.isascii() else None
        offsets = lead or [at - start for at in inside]
        quoted = [
            (index(node.start_byte), index(node.end_byte))
            for node in nodes_at(parse_python(part).root_node, offsets, ("comment", "string"))
        ]
        starts = [span[0] for span in quoted]
        for at in inside:
            before = bisect_left(starts, at - start + 1) - 1
            if before < 0 or quoted[before][1] <= at - start:
                found.add(at)
    return found


def _is_python(code: str) -> bool:
    return _PYTHON_LINE.search(code) is not None and language_of(code, "python") == "python"


def _places(pattern: re.Pattern[bytes], code: str) -> list[int]:
    return [found.start() for found in pattern.finditer(code.encode("utf-8", "replace"))]


def _comments(root: Node, places: Sequence[int]) -> Iterator[str]:
    for node in nodes_at(root, places, ("comment",)):
        yield (node.text or b"").decode("utf-8", "replace")
