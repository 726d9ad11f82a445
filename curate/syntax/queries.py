"""The queries in `curate/queries`, compiled together once a process, and run over the trees of a text."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, chain
from pathlib import Path

import numpy as np
from jaxtyping import Int64
from numpy import ndarray as Array
from tree_sitter import Node, Query, QueryCursor

from curate.syntax.parse import Parsed, SyntaxTree, language
from curate.syntax.patterns import Shape, shapes
from curate.taxonomy import CATEGORIES

__all__ = ["DEVICE_ONLY", "QUERY_FOLDER", "Captured", "capture", "no_collection", "query_files"]

QUERY_FOLDER = Path(__file__).parent.parent / "queries"
DEVICE_ONLY = ".device"
"""Suffix of a capture that counts only inside a kernel or a device function: `x.any()` is a vote there and a torch
call elsewhere.
"""

_ARITHMETIC = frozenset(["+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^"])
_FUNCTIONS = frozenset(["kernel", "device_function", "scope.function"])
_BINARY = "binary"
"""Arithmetic or not, by the operator."""
MAX_TREE_DEPTH = 10_000
"""Nodes below this depth are not looked at. A sum of that many terms is as deep; the query engine counts depth in 16
bits.
"""
MAX_OPEN_MATCHES = 256
"""Begun and unfinished matches that are kept; the outermost is given up first. A chain of a thousand method calls holds
some for every link, and each node is compared with all of them.
"""

_PORTION = 1 << 15  # bytes
Span = tuple[int, int]

_EMPTY = np.empty((0, 2), np.int64)


@dataclass(frozen=True, eq=False)
class Captured:
    """What the queries captured: `spans` by capture name, (k, 2) bytes [start, end) of the file; `functions` by
    capture name, function and lambda nodes with their spans in the file."""

    spans: dict[str, Int64[Array, "k 2"]]
    functions: dict[str, list[tuple[int, int, Node]]]

    def __getitem__(self, name: str) -> Int64[Array, "k 2"]:
        return self.spans.get(name, _EMPTY)


def query_files() -> dict[str, Path]:
    """The query file of each category, by its name in `CATEGORIES` (neutral has none), then `structure`."""
    paths = {path.stem.lstrip("0123456789_"): path for path in sorted(QUERY_FOLDER.glob("*.scm"))}
    return {name: paths[name] for name in (*CATEGORIES[1:], "structure")}


@dataclass(frozen=True, eq=False)
class _Plan:
    """The shapes in two queries: those that ask for a single node, and the others."""

    nodes: list[Shape]
    node_query: Query
    others: list[Shape]
    query: Query
    plain: list[str | None]
    """The name of the only capture of a shape that always has it."""


@cache
def _plan() -> _Plan:
    found = shapes([path.read_text(encoding="utf-8") for path in query_files().values()])
    nodes, others = [s for s in found if s.is_node], [s for s in found if not s.is_node]
    single = [shape.text.removesuffix("c0") + str(number) for number, shape in enumerate(nodes)]
    return _Plan(
        nodes, Query(language(), "\n".join(single)),
        others, Query(language(), "\n".join(shape.text for shape in others)),
        [s.always[0][0] if s.captures == ("c0",) and len(s.always) == 1 and not s.rules else None for s in others],
    )  # fmt: skip


def capture(parsed: Parsed) -> list[Captured]:
    """Runs all queries over the main tree, and over all macro bodies together; the second is left out when there are
    none.
    """
    with no_collection():
        parts = [_capture((parsed.main,))]
        if parsed.macros:
            parts.append(_capture(parsed.macros))
    if parsed.macros:
        own = np.array([(tree.start, tree.end) for tree in parsed.macros], np.int64)  # no name leaves its macro
        parts[1].spans["macro.body"] = own
        parts[1].spans["scope.function"] = np.concatenate([own, parts[1]["scope.function"]])
    return parts


@contextmanager
def no_collection() -> Iterator[None]:
    """Nodes, matches and values are hundreds of thousands of small objects without a cycle; looking for cycles among
    them takes longer than all else.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _capture(trees: tuple[SyntaxTree, ...]) -> Captured:
    spans: defaultdict[str, list[Int64[Array, "k 2"]]] = defaultdict(list)
    functions: defaultdict[str, list[tuple[int, int, Node]]] = defaultdict(list)
    for tree in trees:
        ranges: defaultdict[str, list[Span]] = defaultdict(list)
        for portion in _portions(tree.root):
            for name, nodes in _nodes(tree, portion, ranges).items():
                ranges[name] += [node.byte_range for node in nodes]
                if name in _FUNCTIONS:
                    shifted = ((node.start_byte + tree.shift, node.end_byte + tree.shift, node) for node in nodes)
                    functions[name] += [(s, min(e, tree.end), node) for s, e, node in shifted if s >= tree.start]
        flat = chain.from_iterable(chain.from_iterable(ranges.values()))
        both = np.fromiter(flat, np.int64).reshape(-1, 2) + tree.shift
        # a macro's last statement ends at the semicolon that was lent to it
        np.minimum(both[:, 1], tree.end, out=both[:, 1])
        bounds = list(accumulate(map(len, ranges.values()), initial=0))
        own = (both[:, 0] >= tree.start) & (both[:, 0] < both[:, 1])
        if not own.all():
            for name, first, last in zip(ranges, bounds, bounds[1:], strict=False):
                if name == "missing":  # has no width
                    own[first:last] = both[first:last, 0] >= tree.start
            both, bounds = both[own], np.concatenate([[0], np.cumsum(own)])[bounds].tolist()
        for name, first, last in zip(ranges, bounds, bounds[1:], strict=False):
            spans[name].append(both[first:last])
    return Captured(
        {name: found[0] if len(found) == 1 else np.concatenate(found) for name, found in spans.items()}, dict(functions)
    )


def _portions(root: Node) -> Iterator[Span | None]:
    """Bytes of a large tree, its top-level nodes whole; None for all of a small one. What is captured of a portion is
    let go before the next, while it is still in the processor's cache. No pattern asks for the root, or for two of its
    children.
    """
    if root.end_byte - root.start_byte <= _PORTION or root.type != "translation_unit":
        yield None
        return
    begin = end = root.start_byte
    for start, following in (child.byte_range for child in root.children):
        # a missing token stands at the end of its node, without width: no other node may begin there
        if start > end and end - begin > _PORTION:
            yield begin, end + 1
            begin = start
        end = following
    yield begin, end + 1


def _nodes(tree: SyntaxTree, portion: Span | None, ranges: defaultdict[str, list[Span]]) -> dict[str, list[Node]]:
    """What the queries capture in a portion of a tree, by capture name. Of what is asked for as single nodes the bytes
    alone are put into `ranges`, but for functions and binary expressions.
    """
    found: defaultdict[str, list[Node]] = defaultdict(list)
    _single_nodes(tree, portion, found, ranges)
    _matches(tree.root, portion, found)
    for node in found.pop(_BINARY, ()):
        operator = node.child_by_field_name("operator")
        found["arithmetic" if operator is not None and operator.type in _ARITHMETIC else "carry"].append(node)
    return found


def _single_nodes(
    tree: SyntaxTree, portion: Span | None, found: defaultdict[str, list[Node]], ranges: defaultdict[str, list[Span]]
) -> None:
    plan = _plan()
    for number, nodes in _cursor(plan.node_query, portion).captures(tree.root).items():
        shape = plan.nodes[int(number)]
        spans = [node.byte_range for node in nodes]
        for (name,) in shape.always:
            if name == _BINARY or name in _FUNCTIONS:
                found[name] += nodes
            else:
                ranges[name] += spans
        if shape.rules:
            texts = [tree.source[start:end] for start, end in spans]
            held = {text: names for text in set(texts) if (names := shape.names_of(text))}
            for span, text in zip(spans, texts, strict=True) if held else ():
                for (name,) in held.get(text, ()):
                    ranges[name].append(span)


def _matches(root: Node, portion: Span | None, found: defaultdict[str, list[Node]]) -> None:
    """`matches`, not `captures`: the latter puts captures in source order, and what is inside a long function would
    queue behind it. A single node waits for nothing.
    """
    plan = _plan()
    for position, match in _cursor(plan.query, portion).matches(root):
        if plain := plan.plain[position]:
            found[plain] += match["c0"]
            continue
        shape = plan.others[position]
        held = shape.always
        if shape.rules:
            held = held + shape.names_of(*[match[capture][0].text or b"" for capture in shape.tested])
        for names in held:
            for name, capture in zip(names, shape.captures, strict=True):
                found[name] += match[capture]


def _cursor(query: Query, portion: Span | None) -> QueryCursor:
    cursor = QueryCursor(query, match_limit=MAX_OPEN_MATCHES)
    if portion is not None:
        cursor.set_byte_range(*portion)
    cursor.set_max_start_depth(MAX_TREE_DEPTH)
    return cursor
