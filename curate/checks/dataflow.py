"""What a kernel stores and what reaches it: a small flow of names through one body.

Flow-insensitive and on the safe side: an expression that is not a plain definition of a local variable counts as
something the kernel does (a condition, an index, an argument of a call), and whatever reaches it is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tree_sitter import Node

from curate.checks.cuda_code import bare_name, text_of

__all__ = ["Body", "Parameter", "parameters", "read_body"]

EFFECT = ""
"""Sink of what reaches something that the kernel does."""
STORED = "="
"""Sink of the values that are stored in memory; an effect too."""
MEMORY = "*"
"""Source: memory that is reached through no parameter and no local variable."""
COUNTED = "++"
"""Source: a variable that is counted up."""

_BUILTINS = frozenset(("threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "clusterIdx", "clusterDim"))
_SCALARS = frozenset(("primitive_type", "sized_type_specifier"))
_CASTS = frozenset(("reinterpret_cast", "static_cast", "const_cast", "make_float4", "make_float2", "make_int4"))
_STATEMENTS = frozenset(("expression_statement", "for_statement", "comma_expression", "init_statement"))
_QUIET = frozenset(("__syncthreads", "__syncwarp", "__threadfence", "static_assert", "assert", "__builtin_assume"))
_WORK = frozenset(
    ("update_expression", "call_expression", "gnu_asm_expression", "delete_expression", "new_expression", "ERROR",
     "lambda_expression", "throw_statement", "preproc_call", "co_await_expression", "macro_type_specifier")
)  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """`pointer`: an array or pointer; `constant`: what it points to is const; `scalar`: an arithmetic type by name."""

    name: str
    pointer: bool
    constant: bool
    scalar: bool


@dataclass
class Body:
    """`flows`: (name, sink) of every use; `targets`: names whose memory is stored to; `stored`: the values;
    `acts`: it does something else than to define local variables; `locals`: names, True for pointers.
    """

    flows: set[tuple[str, str]] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    stored: list[tuple[Node, Node]] = field(default_factory=list)
    acts: bool = False
    locals: dict[str, bool] = field(default_factory=dict)
    mentioned: set[str] = field(default_factory=set)

    def reached(self, sources: set[str]) -> set[str]:
        """All sinks that any of the sources reaches through local variables."""
        onward: dict[str, list[str]] = {}
        for name, sink in self.flows:
            onward.setdefault(name, []).append(sink)
        pending, found = list(sources), set[str]()
        while pending:
            for sink in onward.get(pending.pop(), ()):
                if sink not in found:
                    found.add(sink)
                    if sink not in (EFFECT, STORED):
                        pending.append(sink)
        return found


def parameters(function: Node) -> list[Parameter] | None:
    """Parameters of a definition; None where they cannot be read."""
    declarator = function.child_by_field_name("declarator")
    for _ in range(8):
        if declarator is None or declarator.type == "function_declarator":
            break
        declarator = declarator.child_by_field_name("declarator")
    found = declarator.child_by_field_name("parameters") if declarator is not None else None
    if found is None:
        return None
    result = []
    for child in found.named_children:
        if child.type not in ("parameter_declaration", "optional_parameter_declaration"):
            continue
        pointer, node = False, child.child_by_field_name("declarator")
        for _ in range(8):
            if node is None or node.type == "identifier":
                break
            pointer = pointer or node.type in ("pointer_declarator", "array_declarator")
            node = node.child_by_field_name("declarator") or next(
                (c for c in node.named_children if c.type.endswith("declarator") or c.type == "identifier"), None
            )
        constant = any(c.type == "type_qualifier" and c.text == b"const" for c in child.children)
        kind = child.child_by_field_name("type")
        scalar = kind is not None and kind.type in _SCALARS and not pointer
        result.append(Parameter(text_of(node), pointer, constant, scalar))
    return result


def base_of(node: Node | None) -> tuple[str, list[Node], bool]:
    """(name, index expressions, whether it is memory behind the name) of what is assigned to: `p[i].x`, `*(p + i)`."""
    indices: list[Node] = []
    behind = False
    for _ in range(64):
        if node is None or node.type == "identifier":
            break
        following = node.child_by_field_name("argument")
        if node.type == "subscript_expression":
            behind = True
            listed = node.child_by_field_name("indices")
            indices += listed.named_children if listed is not None else []
        elif node.type == "pointer_expression":
            behind = behind or text_of(node.child_by_field_name("operator")) == "*"
        elif node.type == "field_expression":
            behind = behind or any(c.type == "->" for c in node.children)
        elif node.type == "parenthesized_expression":
            following = next(iter(node.named_children), None)
        elif node.type == "cast_expression":
            following = node.child_by_field_name("value")
        elif node.type == "binary_expression":
            following = node.child_by_field_name("left")
            if (right := node.child_by_field_name("right")) is not None:
                indices.append(right)
        elif node.type == "call_expression" and _callee(node) in _CASTS:
            arguments = node.child_by_field_name("arguments")
            following = next(iter(arguments.named_children), None) if arguments is not None else None
        else:
            return "", [node, *indices], True
        node = following
    return text_of(node), indices, behind


def _callee(node: Node) -> str:
    return bare_name(text_of(node.child_by_field_name("function")))


def read_body(body: Node) -> Body:
    """One walk over a kernel's body; linear in its nodes."""
    found = Body()
    stack: list[tuple[Node, str]] = [(body, EFFECT)]
    alone = set[int]()
    """Expressions whose value nobody takes, by the id of their node."""
    while stack:
        node, sink = stack.pop()
        kind = node.type
        if kind in _STATEMENTS:
            alone.update(child.id for child in node.named_children)
        if kind == "comment":
            continue
        if kind == "identifier":
            name = text_of(node)
            found.flows.add((name, sink))
            found.mentioned.add(name)
        elif kind in ("declaration", "for_range_loop"):
            stack += [(child, EFFECT) for child in reversed(_declared(found, node))]
        elif kind == "init_declarator":
            name, value = _declared_name(node.child_by_field_name("declarator")), node.child_by_field_name("value")
            if value is not None:
                stack.append((value, name))
        elif kind == "assignment_expression":
            stack += _assigned(found, node, None if node.id in alone else sink)
        elif kind == "update_expression":
            found.acts = True
            name, indices, behind = base_of(node.child_by_field_name("argument"))
            if behind or name not in found.locals:
                stack += [(child, EFFECT) for child in node.named_children]
            else:
                found.flows.add((COUNTED, name))
                found.flows.add((name, name if node.id in alone else sink))
                stack += [(child, name) for child in indices]
        elif kind == "call_expression":
            stack += _called(found, node, sink)
        else:
            found.acts = found.acts or (kind in _WORK)
            if kind in ("subscript_expression", "field_expression") or (
                kind == "pointer_expression" and text_of(node.child_by_field_name("operator")) == "*"
            ):
                name, _, _ = base_of(node)
                if name not in _BUILTINS and name not in found.locals:
                    found.flows.add((MEMORY + name, sink))
            stack += [(child, sink) for child in reversed(node.named_children)]  # in source order
    return found


def _declared_name(node: Node | None) -> str:
    for _ in range(16):
        if node is None or node.type == "identifier":
            break
        node = node.child_by_field_name("declarator") or next(
            (c for c in node.named_children if c.type.endswith("declarator") or c.type == "identifier"), None
        )
    return text_of(node)


def _declared(found: Body, node: Node) -> list[Node]:
    """Notes the names that a declaration brings; returns what has to be looked at further."""
    kind = node.child_by_field_name("type")
    pointer = kind is not None and kind.type == "placeholder_type_specifier"
    further: list[Node] = []
    for declarator in node.children_by_field_name("declarator"):
        inner = declarator.child_by_field_name("declarator") if declarator.type == "init_declarator" else declarator
        name = _declared_name(inner)
        shape = inner.type if inner is not None else ""
        found.locals[name] = pointer or shape in ("pointer_declarator", "reference_declarator")
        if declarator.type in ("init_declarator", "function_declarator"):
            further.append(declarator)
    if node.type == "for_range_loop":
        further += [c for f in ("right", "body") if (c := node.child_by_field_name(f)) is not None]
    return further


def _assigned(found: Body, node: Node, sink: str | None) -> list[tuple[Node, str]]:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if left is None or right is None:
        found.acts = True
        return [(child, EFFECT) for child in node.named_children]
    name, indices, behind = base_of(left)
    is_local = name in found.locals and not (behind and found.locals[name])
    plain = text_of(node.child_by_field_name("operator")) == "="
    if is_local:
        if sink is not None:
            found.flows.add((name, sink))
        if not plain:
            found.flows.add((COUNTED, name))
        return [(right, name), *((i, name) for i in indices)]
    found.acts = True
    found.targets.add(name)
    found.mentioned.add(name)
    found.stored.append((left, right))
    if not plain:
        found.flows.add((name, EFFECT))
    return [(right, STORED), *((i, EFFECT) for i in indices)]


def _called(found: Body, node: Node, sink: str) -> list[tuple[Node, str]]:
    callee = node.child_by_field_name("function")
    listed = node.child_by_field_name("arguments")
    arguments = listed.named_children if listed is not None else []
    name = _callee(node)
    if name in _CASTS or (callee is not None and callee.type == "primitive_type"):
        return [(a, sink) for a in arguments]
    if name in _QUIET:
        return []
    found.acts = True
    further: list[tuple[Node, str]] = []
    if callee is not None and callee.type not in ("identifier", "template_function", "qualified_identifier"):
        further.append((callee, EFFECT))
    if name.startswith("atomic") and arguments:
        target, indices, _ = base_of(arguments[0])
        if target and target not in found.locals:
            found.targets.add(target)
            found.mentioned.add(target)
            found.stored.append((arguments[0], node))
            further += [(i, EFFECT) for i in indices]
            further += [(a, STORED) for a in arguments[1:]]
            return further
    # what a call returns may vary even where its arguments do not
    found.flows.add((COUNTED, sink))
    return further + [(a, EFFECT) for a in arguments]
