"""CUDA in the string literals of a Python module, found by syntax tree: `load_inline(cuda_sources=...)`, RawKernel
and the like.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from curate.extract.language import ENOUGH, has_cuda, parse_cuda, parse_python, understood
from curate.extract.literals import CharIndex, Undone, undo
from curate.extract.types import CodeBlock

__all__ = ["cuda_strings"]

SOURCE_ARGUMENTS = frozenset({"cuda_sources", "cuda_source", "cpp_sources", "cpp_source", "cuda_src", "cpp_src"})
"""Keyword arguments whose value is C++ by definition: host code is code too."""
_LOAD_INLINE = ("", "cpp_sources", "cuda_sources")  # the positional parameters of torch's load_inline
_SCOPES = frozenset({"block", "module", "lambda", "list_comprehension", "generator_expression"})


@dataclass(frozen=True)
class _Literal:
    """The string nodes of one literal (implicit concatenation and `+` joined), and the name that it is bound to."""

    nodes: tuple[Node, ...]
    name: str


@dataclass(frozen=True)
class _Context:
    """What a node inherits from above: the name its value is bound to, whether it stands alone, whether `+` was
    tried.
    """

    name: str = ""
    alone: bool = False
    in_sum: bool = False


def cuda_strings(text: str, start: int = 0, end: int | None = None) -> list[CodeBlock]:
    """The CUDA blocks in the string literals of the Python code `text[start:end]`, in order.

    A literal counts when it is CUDA by the C++ grammar, or C++ that reaches a `cuda_sources` / `cpp_sources` argument,
    directly or through variables. A string that stands alone as a statement (a docstring) never counts.
    """
    code = text[start:end]
    literals, feeds = _walk(parse_python(code).root_node)
    sources = _reach(feeds)
    index = CharIndex(code)
    blocks = []
    for literal in literals:
        undone = undo(code, literal.nodes, index)
        if undone is None or not undone.text.strip():
            continue
        fed = literal.name in sources and understood(parse_cuda(undone.text), "cuda") >= ENOUGH
        if fed or has_cuda(undone.text):
            blocks.append(_block(undone, literal.name, start, code))
    return sorted(blocks, key=lambda block: block.start)


def _block(undone: Undone, name: str, offset: int, code: str) -> CodeBlock:
    first, last = int(undone.starts[0]), int(undone.ends[-1])
    tag = name.lower()
    if undone.text == code[first:last]:
        return CodeBlock("python_string", tag, first + offset, last + offset, undone.text)
    starts, ends = undone.starts + offset, undone.ends + offset
    return CodeBlock("python_string", tag, first + offset, last + offset, undone.text, starts, ends)


def _walk(root: Node) -> tuple[list[_Literal], dict[str, set[str]]]:
    """Every literal, and which names feed which name (`feeds[b]` holds a where `b = ... a ...`)."""
    literals: list[_Literal] = []
    feeds: dict[str, set[str]] = {}
    stack: list[tuple[Node, _Context]] = [(root, _Context())]
    while stack:
        node, context = stack.pop()
        kind = node.type
        if kind in ("string", "concatenated_string", "binary_operator"):
            strings = _strings(node) if not (kind == "binary_operator" and context.in_sum) else None
            if strings is not None:
                if not context.alone:
                    literals.append(_Literal(strings, context.name))
                continue
        if kind == "identifier" and context.name:
            feeds.setdefault(context.name, set()).add(_text(node))
            continue
        stack.extend(reversed(list(_children(node, context))))
    return literals, feeds


def _children(node: Node, context: _Context) -> Iterator[tuple[Node, _Context]]:
    """The children worth a visit, each with its context."""
    kind = node.type
    if kind in (
        "assignment",
        "named_expression",
        "keyword_argument",
        "pair",
        "default_parameter",
        "typed_default_parameter",
    ):
        left = next((n for f in ("left", "name", "key") if (n := node.child_by_field_name(f)) is not None), None)
        right = node.child_by_field_name("right") or node.child_by_field_name("value")
        if right is not None:
            yield right, _Context(name=_bound_name(left))
    elif kind == "attribute":
        for child in (node.child_by_field_name("object"), node.child_by_field_name("attribute")):
            if child is not None:
                yield child, context
    elif kind == "call":
        function = node.child_by_field_name("function")
        arguments = node.child_by_field_name("arguments")
        if function is not None and function.type == "attribute":  # the string of "...".format(...)
            yield function, _Context(name=context.name)
        if arguments is not None and arguments.type == "argument_list":
            inline = _bound_name(function) == "load_inline"
            for position, child in enumerate(c for c in arguments.named_children if c.type != "comment"):
                name = context.name
                if inline and child.type != "keyword_argument" and position < len(_LOAD_INLINE):
                    name = _LOAD_INLINE[position]
                yield child, _Context(name=name)
    else:
        alone = kind == "expression_statement"
        name = "" if kind in _SCOPES else context.name
        in_sum = kind == "binary_operator"
        for child in node.named_children:
            yield child, _Context(name=name, alone=alone, in_sum=in_sum)


def _strings(node: Node) -> tuple[Node, ...] | None:
    """The string nodes of an expression made of nothing but string literals, in order; None for anything else."""
    found: list[Node] = []
    stack = [node]
    while stack:
        top = stack.pop()
        if top.type == "string":
            found.append(top)
        elif (
            top.type == "concatenated_string"
            or (
                top.type == "binary_operator"
                and (op := top.child_by_field_name("operator")) is not None
                and op.type == "+"
            )
            or top.type == "parenthesized_expression"
        ):
            stack.extend(reversed([c for c in top.named_children if c.type != "comment"]))
        else:
            return None
    return tuple(found)


def _reach(feeds: dict[str, set[str]]) -> set[str]:
    """Names whose value reaches a source argument."""
    reached: set[str] = set()
    stack = list(SOURCE_ARGUMENTS)
    while stack:
        name = stack.pop()
        if name not in reached:
            reached.add(name)
            stack.extend(feeds.get(name, ()))
    return reached


def _bound_name(left: Node | None) -> str:
    if left is None:
        return ""
    if left.type == "attribute":
        left = left.child_by_field_name("attribute") or left
    if left.type == "string":
        return _text(left).strip("\"'")
    return _text(left) if left.type == "identifier" else ""


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
