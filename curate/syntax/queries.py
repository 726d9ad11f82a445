"""The queries in `curate/queries`, compiled together once a process, and run over the trees of a text."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Int64
from numpy import ndarray as Array
from tree_sitter import Node, Query, QueryCursor

from curate.syntax.parse import Parsed, SyntaxTree, language
from curate.taxonomy import CATEGORIES

__all__ = ["DEVICE_ONLY", "QUERY_FOLDER", "Captured", "capture", "query_files"]

QUERY_FOLDER = Path(__file__).parent.parent / "queries"
DEVICE_ONLY = ".device"
"""Suffix of a capture that counts only inside a kernel or a device function: `x.any()` is a vote there and a torch
call elsewhere.
"""

_ARITHMETIC = frozenset(["+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^"])
_FUNCTIONS = frozenset(["kernel", "device_function", "scope.function"])
MAX_TREE_DEPTH = 10_000
"""Nodes below this depth are not looked at. A sum of that many terms is as deep; the query engine counts depth in 16
bits.
"""
MAX_OPEN_MATCHES = 256
"""Begun and unfinished matches that are kept; the outermost is given up first. A chain of a thousand method calls holds
some for every link, and each node is compared with all of them.
"""

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


@cache
def _query() -> Query:
    return Query(language(), "\n".join(path.read_text(encoding="utf-8") for path in query_files().values()))


def capture(parsed: Parsed) -> list[Captured]:
    """Runs all queries over the main tree, and over all macro bodies together; the second is left out when there are
    none.
    """
    with _no_collection():
        parts = [_capture((parsed.main,))]
        if parsed.macros:
            parts.append(_capture(parsed.macros))
    if parsed.macros:
        own = np.array([(tree.start, tree.end) for tree in parsed.macros], np.int64)  # no name leaves its macro
        parts[1].spans["macro.body"] = own
        parts[1].spans["scope.function"] = np.concatenate([own, parts[1]["scope.function"]])
    return parts


@contextmanager
def _no_collection() -> Iterator[None]:
    """Matches are hundreds of thousands of small objects without a cycle; looking for cycles among them takes two
    thirds of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _capture(trees: tuple[SyntaxTree, ...]) -> Captured:
    spans: dict[str, list[tuple[int, int]]] = {}
    functions: dict[str, list[tuple[int, int, Node]]] = {}
    for tree in trees:
        shift, first, last = tree.shift, tree.start, tree.end
        cursor = QueryCursor(_query(), match_limit=MAX_OPEN_MATCHES)
        cursor.set_max_start_depth(MAX_TREE_DEPTH)
        # `matches`, not `captures`: the latter puts captures in source order, and what is inside a long function
        # would queue behind it
        for _, match in cursor.matches(tree.root):
            for name, nodes in match.items():
                if name[0] == "_":  # serves a predicate only
                    continue
                for node in nodes:
                    start, end = node.byte_range
                    start += shift
                    if start < first:
                        continue
                    end = min(end + shift, last)  # a macro's last statement ends at the semicolon that was lent to it
                    if name == "binary":
                        operator = node.child_by_field_name("operator")
                        name = "arithmetic" if operator is not None and operator.type in _ARITHMETIC else "carry"
                    if start < end or name == "missing":
                        spans.setdefault(name, []).append((start, end))
                    if name in _FUNCTIONS:
                        functions.setdefault(name, []).append((start, end, node))
    return Captured({name: np.array(found, np.int64).reshape(-1, 2) for name, found in spans.items()}, functions)
