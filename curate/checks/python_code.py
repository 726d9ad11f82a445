"""The Python modules of an answer, and what is defined, called and bound in each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

import tree_sitter_python
from tree_sitter import Language, Node, Query, QueryCursor, Tree

from curate.checks.cuda_code import text_of
from curate.extract import CodeBlock
from curate.extract.fences import fences
from curate.extract.language import ENOUGH, parse_python, understood
from curate.extract.thinking import blanked, thought_ranges

__all__ = ["PythonCall", "PythonCode", "PythonFunction", "dotted", "jits_and_imports", "python_trees", "read_python"]

_TAGS = frozenset(("python", "py", "python3", "pytorch", "torch", "triton", "numba", "cupy", "ipython"))
_UNKNOWN = frozenset(("", "code", "text", "txt", "plaintext", "plain", "source", "file"))
_LONGEST_NAME = 200
_MOST_VALUES = 8
"""Values of one name that are kept: each is looked at for every call of the name."""
_DEEPEST = 2_000
"""Nodes below this depth are not looked at."""


@dataclass(frozen=True, eq=False)
class PythonCall:
    """A call, or a product by `@` (path `("@",)`). `path`: the dotted callee (`("self", "conv")`), imports resolved
    (`F.relu` is `("torch", "nn", "functional", "relu")`); `("",  name)` for a member of an expression.
    """

    path: tuple[str, ...]
    node: Node


@dataclass(eq=False)
class PythonFunction:
    """A function; `owner`: the class around it or empty. `calls` and `tries` in order."""

    name: str
    owner: str
    node: Node
    calls: list[PythonCall] = field(default_factory=list)
    tries: list[Node] = field(default_factory=list)


@dataclass(eq=False)
class PythonCode:
    """One module. `classes`: bases by name; `bound`: what is assigned to a name or an attribute, by its dotted target;
    likewise the variables of `for`; `names`: all identifiers; `strings`: the short ones; `imports`: dotted module by
    alias; `decorators` of any function. What stands under `if __name__ == "__main__"` gives names alone.
    """

    root: Node
    functions: list[PythonFunction] = field(default_factory=list)
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    bound: dict[str, list[Node]] = field(default_factory=dict)
    imports: dict[str, tuple[str, ...]] = field(default_factory=dict)
    decorators: set[str] = field(default_factory=set)

    @cached_property
    def names(self) -> set[str]:
        return {text_of(node) for node in _captured(self.root, _names()).get("name", ())}

    @cached_property
    def strings(self) -> set[str]:
        found = _captured(self.root, _names()).get("string", ())
        return {text_of(node) for node in found if node.end_byte - node.start_byte <= _LONGEST_NAME}

    def resolve(self, path: tuple[str, ...]) -> tuple[str, ...]:
        head = self.imports.get(path[0]) if path else None
        return (*head, *path[1:]) if head else path


def python_trees(response: str, blocks: Sequence[CodeBlock]) -> Iterator[Tree]:
    """Syntax trees of the Python text of the answer: fences that hold it, or the whole. A fence without a telling tag
    is Python when it holds one of the blocks as a string, or when it holds no block and the grammar understands it.
    """
    if not any(word in response for word in ("import ", "def ", "class ")):
        return
    thoughts = thought_ranges(response)
    text = blanked(response, thoughts) if thoughts else response
    fenced = list(fences(text))
    outside = [b for b in blocks if not any(f.start <= b.start < f.end for f in fenced)]
    if not fenced or outside:
        if any(b.kind == "python_string" for b in outside):
            yield parse_python(text)
        elif not blocks and not fenced:
            yield from _if_python(text)
        return
    for fence in fenced:
        word = (fence.info.strip().strip("{}").lstrip(".").lower().split() or [""])[0]
        code = "".join(text[start:end] for start, end in fence.lines)
        if word in _TAGS or (word in _UNKNOWN and _holds_string(fence.start, fence.end, blocks)):
            yield parse_python(code)
        elif word in _UNKNOWN and "import " in code and not any(fence.start <= b.start < fence.end for b in blocks):
            yield from _if_python(code)


def _if_python(text: str) -> Iterator[Tree]:
    tree = parse_python(text)
    if understood(tree, "python") >= ENOUGH:
        yield tree


def _holds_string(start: int, end: int, blocks: Sequence[CodeBlock]) -> bool:
    return any(b.kind == "python_string" and start <= b.start < end for b in blocks)


def read_python(tree: Tree) -> PythonCode:
    """One pass over the nodes of a module that matter here, in source order; linear, up to the sort."""
    root = tree.root_node
    code = PythonCode(root)
    functions: list[tuple[int, PythonFunction]] = []
    classes: list[tuple[int, str]] = []
    script_end = -1
    found = [node for nodes in _captured(root, _structure()).values() for node in nodes]
    for node in sorted(found, key=lambda n: (n.start_byte, -n.end_byte)):
        start, kind = node.start_byte, node.type
        while functions and functions[-1][0] <= start:
            functions.pop()
        while classes and classes[-1][0] <= start:
            classes.pop()
        if start < script_end:
            continue
        if kind == "call":
            if functions:
                functions[-1][1].calls.append(
                    PythonCall(code.resolve(dotted(node.child_by_field_name("function"))), node)
                )
        elif kind == "binary_operator":
            if functions:
                functions[-1][1].calls.append(PythonCall(("@",), node))
        elif kind == "function_definition":
            owner = classes[-1][1] if classes else ""
            function = PythonFunction(text_of(node.child_by_field_name("name")), owner, node)
            code.functions.append(function)
            functions.append((node.end_byte, function))
        elif kind == "class_definition":
            name = text_of(node.child_by_field_name("name"))
            bases = node.child_by_field_name("superclasses")
            code.classes[name] = tuple(dotted(b)[-1] for b in bases.named_children) if bases is not None else ()
            classes.append((node.end_byte, name))
        elif kind in ("assignment", "named_expression", "for_statement"):
            _bind(code, node)
        elif kind == "try_statement":
            if functions:
                functions[-1][1].tries.append(node)
        elif kind in ("import_statement", "import_from_statement"):
            _import(code, node)
        elif kind == "if_statement" and not functions and _is_script(node):
            script_end = node.end_byte
    return code


def jits_and_imports(tree: Tree) -> tuple[set[str], set[str]]:
    """(dotted decorators, modules imported) of a module, without a walk over the rest."""
    code = PythonCode(tree.root_node)
    captured = _captured(tree.root_node, _heads())
    for node in captured.get("import", ()):
        _import(code, node)
    for node in captured.get("decorator", ()):
        _decorate(code, node)
    return code.decorators, {path[0] for path in code.imports.values()}


def _captured(root: Node, query: Query) -> dict[str, list[Node]]:
    """Nodes by capture; those below _DEEPEST are left out. Patterns of one node each, so the cost is linear."""
    cursor = QueryCursor(query)
    cursor.set_max_start_depth(_DEEPEST)
    return cursor.captures(root)


def _query(text: str) -> Query:
    return Query(Language(tree_sitter_python.language()), text)


@cache
def _heads() -> Query:
    return _query("(import_statement) @import (import_from_statement) @import (decorator) @decorator")


@cache
def _names() -> Query:
    return _query("(identifier) @name (string_content) @string")


@cache
def _structure() -> Query:
    kinds = (
        *("call", "function_definition", "class_definition", "assignment", "named_expression", "for_statement"),
        *("try_statement", "import_statement", "import_from_statement", "if_statement"),
    )
    return _query(" ".join(f"({kind}) @{kind}" for kind in kinds) + ' (binary_operator operator: "@") @product')


def _decorate(code: PythonCode, node: Node) -> None:
    for child in node.named_children[:1]:
        target = child.child_by_field_name("function") if child.type == "call" else child
        code.decorators.add(".".join(code.resolve(dotted(target))))


def dotted(node: Node | None) -> tuple[str, ...]:
    """`a.b.c` as its parts; an expression in front of the members is the empty string."""
    parts: list[str] = []
    for _ in range(32):
        if node is None or node.type != "attribute":
            break
        parts.append(text_of(node.child_by_field_name("attribute")))
        node = node.child_by_field_name("object")
    if node is not None and node.type == "identifier":
        parts.append(text_of(node))
    elif node is not None and node.type == "subscript" and not parts:
        return dotted(node.child_by_field_name("value"))
    else:
        parts.append("")
    return tuple(reversed(parts))


def _bind(code: PythonCode, node: Node) -> None:
    left = node.child_by_field_name("left") or node.child_by_field_name("name")
    right = node.child_by_field_name("right") or node.child_by_field_name("value")
    if left is None or right is None:
        return
    targets = left.named_children if left.type in ("pattern_list", "tuple_pattern") else [left]
    for target in targets[:16]:
        if target.type in ("identifier", "attribute"):
            values = code.bound.setdefault(".".join(dotted(target)), [])
            if len(values) < _MOST_VALUES:
                values.append(right)


def _import(code: PythonCode, node: Node) -> None:
    module = dotted_name(node.child_by_field_name("module_name"))
    for child in node.children_by_field_name("name"):
        alias = child.child_by_field_name("alias")
        name = dotted_name(child.child_by_field_name("name") if alias is not None else child)
        if alias is not None:
            code.imports[text_of(alias)] = (*module, *name)
        elif module and name:
            code.imports[name[-1]] = (*module, *name)
        elif name:
            code.imports.setdefault(name[0], (name[0],))


def dotted_name(node: Node | None) -> tuple[str, ...]:
    return tuple(text_of(node).split(".")) if node is not None else ()


def _is_script(node: Node) -> bool:
    condition = node.child_by_field_name("condition")
    return condition is not None and any(
        n.type == "identifier" and n.text == b"__name__" for n in condition.named_children[:2]
    )
