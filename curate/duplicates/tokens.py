"""The tokens of a piece of CUDA, off the leaves of its syntax tree: comments and white space gone, own names marked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray as Array
from tree_sitter import Node, Query, QueryCursor

from curate.syntax import CodeLabels, Parsed
from curate.syntax.parse import language
from curate.taxonomy import Location

__all__ = ["Tokens", "code_tokens"]


@dataclass(frozen=True, eq=False)
class Tokens:
    """n tokens in the order of the text.

    `names`: what a token stands for where the text itself declares it, None for all others; a member has a dot in
    front, since it may be called as a variable is. `device`: inside a kernel or a device function.
    """

    texts: tuple[bytes, ...]
    names: tuple[bytes | None, ...]
    device: Bool[Array, "n"]


_DECLARED = """
(_ declarator: [(identifier) (type_identifier) (field_identifier)] @name)
(reference_declarator [(identifier) (field_identifier)] @name)
(structured_binding_declarator (identifier) @name)
(function_declarator declarator: (qualified_identifier name: (identifier) @name))
(class_specifier name: (type_identifier) @name body: (_))
(struct_specifier name: (type_identifier) @name body: (_))
(union_specifier name: (type_identifier) @name body: (_))
(enum_specifier name: (type_identifier) @name body: (_))
(enumerator name: (identifier) @name)
(alias_declaration name: (type_identifier) @name)
(namespace_definition name: (namespace_identifier) @name)
(type_parameter_declaration (type_identifier) @name)
(optional_type_parameter_declaration name: (type_identifier) @name)
(preproc_def name: (identifier) @name)
(preproc_function_def name: (identifier) @name)
(preproc_params (identifier) @name)
"""
_RESERVED = re.compile(
    rb"__|cuda|cu[A-Z]|atomic[A-Z]|make_|torch$|at$|std$"
    rb"|(?:threadIdx|blockIdx|blockDim|gridDim|warpSize|dim3|half2?|nv_bfloat162?)$"
    rb"|(?:u?char|u?short|u?int|u?long|u?longlong|float|double)[1-4]$"
)
"""Names of CUDA and its libraries stay, even where broken code or a shim seems to declare them: without them programs
that do different things would look alike.
"""
_COMPONENTS = frozenset((b"x", b"y", b"z", b"w"))
"""Members of `threadIdx` and `float4`, whatever a struct of the text calls its own."""
_NAMES = frozenset(("identifier", "type_identifier", "namespace_identifier"))
_VERBATIM = frozenset(("string_content", "raw_string_content", "character", "escape_sequence", "system_lib_string"))
_LEXED = re.compile(
    rb"(?P<comment>//(?:[^\\\n]|\\.)*|/\*.*?(?:\*/|\Z))"
    rb'|"(?:[^"\\\n]|\\.)*"?|[A-Za-z_]\w*|\d(?:\'?[\w.])*|[^\s\\]',
    re.DOTALL,
)
_MAX_DEPTH = 10_000


def code_tokens(blocks: Sequence[tuple[Parsed, CodeLabels]]) -> Tokens:
    """The tokens of an answer's parsed blocks with their labels. Never raises; linear in the length of the text.

    What the grammar leaves whole (the text of a directive, the body of a macro), and what was blanked for it
    (`__launch_bounds__(256)`), is cut into words, numbers and marks.
    """
    declared = frozenset(name for parsed, _ in blocks for name in _declared(parsed))
    texts: list[bytes] = []
    names: list[bytes | None] = []
    device = [np.zeros(0, bool)]
    for parsed, labels in blocks:
        starts: list[int] = []
        for start, text, name in _all(parsed):
            starts.append(start)
            texts.append(text)
            names.append(name if name in declared else None)
        device.append(_on_device(parsed, labels, np.array(starts, np.int64)))
    return Tokens(tuple(texts), tuple(names), np.concatenate(device))


def _on_device(parsed: Parsed, labels: CodeLabels, places: Int64[Array, "n"]) -> Bool[Array, "n"]:
    if not len(labels.location) or not len(places):
        return np.zeros(len(places), bool)
    if parsed.leads is not None:
        places = np.searchsorted(parsed.leads, places, side="right") - 1
    where = labels.location[np.clip(places, 0, len(labels.location) - 1)]
    return (where == Location.KERNEL) | (where == Location.DEVICE_FUNCTION)


@cache
def _declared_query() -> Query:
    return Query(language(), _DECLARED)


def _declared(parsed: Parsed) -> Iterator[bytes]:
    for tree in parsed.trees:
        cursor = QueryCursor(_declared_query())
        cursor.set_max_start_depth(_MAX_DEPTH)
        for node in cursor.captures(tree.root).get("name", ()):
            name = node.text or b""
            if node.type == "field_identifier":
                if name not in _COMPONENTS:
                    yield b"." + name
            elif not _RESERVED.match(name):
                yield name


def _all(parsed: Parsed) -> Iterator[tuple[int, bytes, bytes]]:
    """(byte, text, the name that it may be), by byte."""
    original = parsed.text.encode("utf-8", "surrogatepass")
    if original == parsed.data or len(original) != len(parsed.data):
        return _leaves(parsed.data, parsed.main.root)
    changed = np.frombuffer(original, np.uint8) != np.frombuffer(parsed.data, np.uint8)
    edges = np.flatnonzero(np.diff(changed.astype(np.int8), prepend=0, append=0)).tolist()
    runs: list[list[int]] = []
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        if runs and not original[runs[-1][1] : start].strip():  # a comment is one run, with the spaces in it
            runs[-1][1] = end
        else:
            runs.append([start, end])
    blanked = [token for start, end in runs for token in _lexed(original, start, end)]
    return iter(sorted([*_leaves(parsed.data, parsed.main.root), *blanked]))


def _leaves(data: bytes, root: Node) -> Iterator[tuple[int, bytes, bytes]]:
    cursor = root.walk()
    down, aside, up = cursor.goto_first_child, cursor.goto_next_sibling, cursor.goto_parent
    while True:
        if down():
            continue
        node = cursor.node
        if node is not None and (kind := node.type) != "comment":
            start, end = node.start_byte, node.end_byte
            text = data[start:end]
            if kind in _NAMES:
                if text:
                    yield start, text, text
            elif kind == "field_identifier":
                yield start, text, b"." + text
            elif kind in _VERBATIM or (len(text) < 3 and text.strip()) or text.isalnum():
                yield start, text, b""
            elif text:
                yield from _lexed(data, start, end)
        while not aside():
            if not up():
                return


def _lexed(data: bytes, start: int, end: int) -> Iterator[tuple[int, bytes, bytes]]:
    for match in _LEXED.finditer(data, start, end):
        if match["comment"] is None:
            yield match.start(), match[0], match[0]
