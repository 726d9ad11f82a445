"""A block of an answer as a compiler gets it: its device slice, what the slice lacks, and what to instantiate."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from curate.syntax import Parsed, device_slice, parse_cuda
from curate.syntax.device_slice import SHIPPED_HEADERS
from curate.syntax.functions import find_functions, function_name
from curate.syntax.queries import capture

__all__ = ["Unit", "make_unit", "merged"]

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"][^<>"\n]{1,200}[>"])', re.MULTILINE)
_ARGUMENT = re.compile(
    r"(?:const\s+)?(?:unsigned|signed|float|double|half|__half2?|half2|__nv_bfloat16|nv_bfloat16|bool|char|short|int|long|float[234]"
    r"|u?int(?:8|16|32|64)_t|scalar_t|\s)+\**|-?\d+[uUlL]*|0[xX][\dA-Fa-f]+|true|false"
)
_PASS_THROUGH = frozenset(
    ("translation_unit", "preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif", "linkage_specification")
)
_MAX_NAMES = 8
_MAX_CALLS = 2000


@dataclass(frozen=True)
class Unit:
    """`name`: the file's name in messages. `code`: the device slice without prelude. `lacks`: headers of the block that
    no CUDA toolkit ships, as written. `instances`: template kernels with the arguments of their launches.
    """

    name: str
    code: str
    lacks: tuple[str, ...]
    instances: tuple[str, ...]


def make_unit(text: str, name: str) -> Unit | None:
    """None for a block without a kernel or a device function. Never raises; linear in the length of the text.

    A template that is launched with builtin types and numbers is instantiated as its launches do, `scalar_t` (torch's
    name in its dispatch macros) as float, at most 8 of them; others are checked as far as a compiler checks a template
    that nothing uses.
    """
    parsed = parse_cuda(text)
    functions = find_functions(parsed, capture(parsed))
    if not functions.kernels and not functions.device and "__global__" not in text and "__device__" not in text:
        return None
    lacks = dict.fromkeys(
        found[1]
        for found in _INCLUDE.finditer(text)
        if not SHIPPED_HEADERS.fullmatch(found[1].encode(errors="replace"))
    )
    return Unit(name, device_slice(parsed, prelude=""), tuple(lacks)[:20], tuple(_instances(parsed)))


def merged(units: list[Unit]) -> Unit:
    """All blocks as one file, in order; messages keep the block and its line."""
    code = "\n".join(f'#line 1 "{unit.name}"\n{unit.code}' for unit in units)
    lacks = tuple(dict.fromkeys(header for unit in units for header in unit.lacks))
    instances = tuple(dict.fromkeys(i for unit in units for i in unit.instances))[:_MAX_NAMES]
    return Unit("blocks.cu", code, lacks, instances)


def _instances(parsed: Parsed) -> list[str]:
    names = {name for name in _template_kernels(parsed.main.root) if name}
    found: dict[str, None] = {}
    if not names:
        return []
    for call in _calls(parsed.main.root):
        function = call.child_by_field_name("function")
        if function is None or function.type != "template_function":
            continue
        name, arguments = function.child_by_field_name("name"), function.child_by_field_name("arguments")
        if name is None or arguments is None or (name.text or b"").decode(errors="replace") not in names:
            continue
        texts = [(child.text or b"").decode(errors="replace") for child in arguments.named_children]
        if all(len(text) < 40 and _ARGUMENT.fullmatch(text.strip()) for text in texts):
            texts = [re.sub(r"\bscalar_t\b", "float", text.strip()) for text in texts]
            found[f"{(name.text or b'').decode()}<{', '.join(texts)}>"] = None
    return list(found)[:_MAX_NAMES]


def _template_kernels(root: Node) -> Iterator[str]:
    """Names of template kernels that a name at global scope reaches."""
    stack = [root]
    while stack:
        node = stack.pop()
        for child in node.named_children:
            unnamed = child.type == "namespace_definition" and child.child_by_field_name("name") is None
            if child.type in _PASS_THROUGH or child.type == "declaration_list" or unnamed:
                stack.append(child)
            elif child.type == "template_declaration":
                for inner in child.named_children:
                    body = inner.child_by_field_name("body")
                    if inner.type == "function_definition" and body is not None:
                        head = (inner.text or b"")[: body.start_byte - inner.start_byte]
                        if b"__global__" in head:
                            yield function_name(inner)


def _calls(root: Node) -> Iterator[Node]:
    """Kernel launches in document order; a cursor, because depth is the corpus's choice."""
    cursor = root.walk()
    seen = 0
    while (node := cursor.node) is not None:
        if node.type == "kernel_call_syntax" and node.parent is not None:
            seen += 1
            yield node.parent
            if seen >= _MAX_CALLS:
                return
        if cursor.goto_first_child():
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return
