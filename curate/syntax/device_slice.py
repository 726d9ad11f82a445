"""The part of a file that runs on the device, cut out by its syntax tree so that nvcc or NVRTC takes it without torch.

Kept: kernels, device functions, types, macros, preprocessor conditions, `__constant__`, `__device__` and constant
globals, aliases, namespaces, explicit instantiations, and the includes that a CUDA toolkit and a C++ compiler bring.
Left out: host functions, host globals, other includes, and what is built on them. What is left out is overwritten with
spaces, and `#line` follows what is put before it, so a line number in a compiler's message is the original's.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from itertools import islice

from tree_sitter import Node

from curate.syntax.functions import Functions, find_functions
from curate.syntax.parse import Parsed
from curate.syntax.queries import capture

__all__ = ["PRELUDE", "SHIPPED_HEADERS", "device_slice"]

PRELUDE = "#include <cfloat>\n#include <climits>\n#include <cmath>\n#include <cstdint>\n#include <limits>\n"
"""What device code takes for granted where torch's headers, or its extension builder's, come first (`FLT_MAX`)."""

SHIPPED_HEADERS = re.compile(
    rb"""[<"](?:
      (?:cuda|cub|thrust|nv|cooperative_groups|crt)/[\w./-]+
    | cuda(?:_\w+)?(?:\.h|\.hpp|\.inl)? | device_\w+\.h | driver_types\.h | vector_(?:types|functions)\.h(?:pp)?
    | cooperative_groups\.h | mma\.h | math_constants\.h | math_functions\.h | sm_\d+_\w+\.h(?:pp)? | builtin_types\.h
    | host_defines\.h | texture_\w+\.h | surface_\w+\.h | curand\w*\.h | nvfunctional | library_types\.h
    | [a-z_]+
    | (?:assert|ctype|errno|fenv|float|inttypes|limits|locale|math|setjmp|signal|stdarg|stdbool|stddef|stdint|stdio
        |stdlib|string|time|wchar)\.h
    )[>"]""",
    re.VERBOSE,
)
"""Headers of the CUDA toolkit and of the C and C++ standard libraries."""

_FOREIGN = re.compile(
    rb"\b(?:torch|at|c10|pybind11|py|cutlass|cute)\s*::|\bnamespace\s+(?:torch|at|c10|pybind11|cutlass|cute)\b|\bnvinfer1\b"
)
_DEVICE = re.compile(rb"\b__(?:global|device|constant|managed|shared)__")
_CONSTANT = re.compile(rb"\b(?:const|constexpr)\b")
_LINE = re.compile(rb"[^\n\r]")
_WORD = re.compile(rb"\b[A-Za-z_]\w*")
_CONTAINERS = frozenset(
    [
        "translation_unit",
        "namespace_definition",
        "declaration_list",
        "preproc_if",
        "preproc_ifdef",
        "preproc_else",
        "preproc_elif",
        "preproc_elifdef",
    ]
)
_TYPES = frozenset(
    [
        "struct_specifier",
        "class_specifier",
        "union_specifier",
        "enum_specifier",
        "type_definition",
        "concept_definition",
        "alias_declaration",
        "using_declaration",
        "namespace_alias_definition",
        "static_assert_declaration",
    ]
)
_DIRECTIVES = frozenset(["preproc_def", "preproc_function_def", "preproc_call", "comment"])


def device_slice(parsed: Parsed, prelude: str = PRELUDE, functions: Functions | None = None) -> str:
    """Text of the device part, on the lines of the original; only comments and macros when there is no device code.

    `prelude` goes first; "" for a compiler that has no standard headers (NVRTC). `functions`: those of the text, where
    the caller has found them already, which takes as long as all the rest.
    """
    original = parsed.text.encode(errors="replace")
    if len(original) != len(parsed.data):  # a lone surrogate, which no source file holds
        original = parsed.data
    functions = functions or find_functions(parsed, capture(parsed))
    # a definition by its end: its start may be that of a template header, or of a qualifier that was blanked
    device_ends = {end for (_, end), _ in (*functions.kernels, *functions.device)}
    makers = _makers(parsed.main.root)
    out = bytearray(original)
    for node in _items(parsed.main.root):
        if not _is_kept(node, original, device_ends, makers):
            text = original[node.start_byte : node.end_byte]
            out[node.start_byte : node.end_byte] = _LINE.sub(b" ", text)
    return (f"{prelude}#line 1\n" if prelude else "") + out.decode(errors="replace")


def _items(root: Node) -> Iterator[Node]:
    """Top-level items, those in namespaces, `extern "C"` blocks and preprocessor conditions included."""
    stack = [root]
    while stack:
        node = stack.pop()
        head = (
            node.child_by_field_name("condition"),
            node.child_by_field_name("name"),
            node.child_by_field_name("value"),
        )
        for child in node.children:
            if child.type in _CONTAINERS or (child.type == "linkage_specification" and _body_is_block(child)):
                stack.append(child)
            elif child.is_named and (node is root or child not in head):
                yield child


def _body_is_block(node: Node) -> bool:
    body = node.child_by_field_name("body")
    return body is not None and body.type == "declaration_list"


def _macros(root: Node) -> Iterator[tuple[bytes, bytes]]:
    """(name, body) of the file's own `#define`s."""
    for node in _items(root):
        if node.type in ("preproc_def", "preproc_function_def"):
            name, body = node.child_by_field_name("name"), node.child_by_field_name("value")
            yield (name.text or b"") if name else b"", (body.text or b"") if body else b""


def _makers(root: Node) -> set[bytes]:
    """Macros that expand to device code, directly or through another one."""
    users: dict[bytes, list[bytes]] = {}
    pending = []
    for name, body in _macros(root):
        if _DEVICE.search(body):
            pending.append(name)
        for word in set(_WORD.findall(body)):
            users.setdefault(word, []).append(name)
    makers: set[bytes] = set()
    while pending:
        name = pending.pop()
        if name not in makers:
            makers.add(name)
            pending += users.get(name, ())
    return makers


def _is_kept(node: Node, data: bytes, device_ends: set[int], makers: set[bytes]) -> bool:
    """Whether a top-level item belongs to the device part; `makers`: macros that expand to device code."""
    if node.type in _DIRECTIVES or node.end_byte in device_ends:
        return True
    text = data[node.start_byte : node.end_byte]
    # a call with types in it, `INSTANTIATE(int, Sum);`, is no expression: it may be parsed as anything
    if (first := _WORD.match(text)) is not None and first[0] in makers:
        return True
    if node.type == "preproc_include":
        path = node.child_by_field_name("path")
        return path is not None and path.text is not None and SHIPPED_HEADERS.fullmatch(path.text) is not None
    inner = node
    while inner.type in ("template_declaration", "linkage_specification") and inner.named_child_count:
        inner = next((c for c in reversed(inner.named_children) if c.type != "comment"), inner.named_children[0])
    if inner.type in ("function_definition", "expression_statement"):
        if text.strip() == b";":
            return True
        body = inner.child_by_field_name("body") or inner
        # a constexpr function may size an array or fill a template argument
        return b"constexpr" in text[: body.start_byte - node.start_byte] and not _FOREIGN.search(text)
    if inner.type in _TYPES:
        return _FOREIGN.search(text) is None or _DEVICE.search(text) is not None
    if inner.type in ("declaration", "template_instantiation"):
        if _DEVICE.search(text):
            return True
        kinds = {child.type for child in _descendants(inner)}
        return (
            _CONSTANT.search(text) is not None
            and _FOREIGN.search(text) is None
            and "function_declarator" not in kinds
            and ("call_expression" not in kinds or b"constexpr" in text)  # a host function may have to compute it
        )
    # ERROR, and whatever else: the compiler shall judge device code that the parser gave up on
    return _DEVICE.search(text) is not None


def _descendants(node: Node) -> Iterator[Node]:
    """A node and its first descendants, breadth first."""
    queue = deque([node])
    for _ in range(64):
        if not queue:
            return
        current = queue.popleft()
        yield current
        queue.extend(islice(current.named_children, 8))
