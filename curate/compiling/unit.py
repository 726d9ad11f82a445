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
_SCALAR = re.compile(r"\bscalar_t\b")
_PASS_THROUGH = frozenset(
    ("translation_unit", "preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif", "linkage_specification")
)
_MAX_NAMES = 8
_MAX_CALLS = 2000


@dataclass(frozen=True)
class Unit:
    """`name`: the file's name in messages. `code`: the device slice without prelude. `lacks`: headers of the block that
    no CUDA toolkit ships, as written. `instances`: template kernels with the arguments of their launches. `guesses`:
    (name, arguments to try) of the template kernels, since a compiler does not look into a template that nothing uses.
    """

    name: str
    code: str
    lacks: tuple[str, ...]
    instances: tuple[str, ...]
    guesses: tuple[tuple[str, tuple[str, ...]], ...] = ()


def make_unit(text: str, name: str) -> Unit | None:
    """None for a block without a kernel or a device function. Never raises; linear in the length of the text.

    A template that is launched with builtin types and numbers is instantiated as its launches do, `scalar_t` (torch's
    name in its dispatch macros) as float, at most 8 of them.
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
    instances, guesses = _instances(parsed)
    code = device_slice(parsed, "", functions)
    return Unit(name, code, tuple(lacks)[:20], tuple(instances), tuple(guesses))


def merged(units: list[Unit]) -> Unit:
    """All blocks as one file, in order; messages keep the block and its line."""
    code = "\n".join(f'#line 1 "{unit.name}"\n{unit.code}' for unit in units)
    lacks = tuple(dict.fromkeys(header for unit in units for header in unit.lacks))
    instances = tuple(dict.fromkeys(i for unit in units for i in unit.instances))[:_MAX_NAMES]
    return Unit("blocks.cu", code, lacks, instances, tuple(g for unit in units for g in unit.guesses))


def _instances(parsed: Parsed) -> tuple[list[str], list[tuple[str, tuple[str, ...]]]]:
    """(template kernels as launched with arguments that are sure, what to try for each template kernel)."""
    templates = dict(_template_kernels(parsed.main.root))
    sure: dict[str, None] = {}
    written: dict[str, dict[str, None]] = {}
    for call in _calls(parsed.main.root) if templates else ():
        function = call.child_by_field_name("function")
        if function is None or function.type != "template_function":
            continue
        name, arguments = function.child_by_field_name("name"), function.child_by_field_name("arguments")
        if name is None or arguments is None or (kernel := _text(name)) not in templates:
            continue
        texts = [_text(child).strip() for child in arguments.named_children if child.type != "comment"]
        if any(len(text) > 60 for text in texts):
            continue
        expression = f"{kernel}<{', '.join(_SCALAR.sub('float', text) for text in texts)}>"
        if all(_ARGUMENT.fullmatch(text) for text in texts):
            sure[expression] = None
        elif len(expression) < 200:
            written.setdefault(kernel, {})[expression] = None
    guesses = [
        (name, (*list(written.get(name, ()))[:1], *(f"{name}<{arguments}>" for arguments in plain)))
        for name, plain in templates.items()
    ]
    return list(sure)[:_MAX_NAMES], guesses[:_MAX_NAMES]


def _text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")


def _plain_arguments(parameters: Node) -> tuple[str, ...]:
    """Likely arguments, up to the first default: float for each type with 32 or 4 for each number, then a functor for
    the last type; nothing where parameters are packs or templates.
    """
    kinds = []
    for parameter in parameters.named_children:
        if parameter.type == "type_parameter_declaration":
            kinds.append("type")
        elif parameter.type == "parameter_declaration":
            kind = parameter.child_by_field_name("type")
            kinds.append("bool" if kind is not None and kind.text == b"bool" else "number")
        elif parameter.type.startswith("optional_"):
            break
        elif parameter.type != "comment":
            return ()
    last = max((n for n, kind in enumerate(kinds) if kind == "type"), default=-1)
    found: dict[str, None] = {}
    for number, functor in (("32", -1), ("4", -1), ("32", last), ("4", last)):
        values = {"type": "float", "bool": "true", "number": number}
        found[", ".join("cuset_functor" if n == functor else values[kind] for n, kind in enumerate(kinds))] = None
    return tuple(found)


def _template_kernels(root: Node) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(name, likely arguments) of the template kernels that a name at global scope reaches."""
    stack = [root]
    while stack:
        node = stack.pop()
        for child in node.named_children:
            unnamed = child.type == "namespace_definition" and child.child_by_field_name("name") is None
            if child.type in _PASS_THROUGH or child.type == "declaration_list" or unnamed:
                stack.append(child)
            elif child.type == "template_declaration":
                parameters = child.child_by_field_name("parameters")
                for inner in child.named_children if parameters is not None else ():
                    body = inner.child_by_field_name("body")
                    if inner.type == "function_definition" and body is not None:
                        head = (inner.text or b"")[: body.start_byte - inner.start_byte]
                        if parameters is not None and b"__global__" in head and (name := function_name(inner)):
                            yield name, _plain_arguments(parameters)


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
