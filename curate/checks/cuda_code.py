"""The functions of the CUDA code of an answer, with what each calls and names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from tree_sitter import Node, Query, QueryCursor

from curate.syntax import CodeLabels, Parsed
from curate.syntax.functions import function_name
from curate.syntax.parse import language
from curate.syntax.queries import MAX_OPEN_MATCHES, MAX_TREE_DEPTH

__all__ = ["Call", "CudaCode", "Function", "bare_name", "read_cuda", "text_of"]

Kind = Literal["kernel", "device", "host"]

_NAMES = frozenset(
    (
        "identifier",
        "field_identifier",
        "type_identifier",
        "namespace_identifier",
        "string_content",
        "raw_string_content",
    )
)
_KERNEL_LAUNCHERS = frozenset(
    ("cudaLaunchKernel", "cudaLaunchKernelEx", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel")
)
_BINDERS = ("PYBIND11_MODULE", "TORCH_LIBRARY", "TORCH_LIBRARY_IMPL", "TORCH_LIBRARY_FRAGMENT")


@dataclass(frozen=True, eq=False)
class Call:
    """A call in a function: the last part of its callee's name, what stands before it (`at`, `torch::nn::functional`,
    `.` for a member, empty for a plain name), and whether it is a launch by `<<<>>>` or a launching API call.
    """

    name: str
    scope: str
    node: Node
    launch: bool


@dataclass(eq=False)
class Function:
    """A definition with a body. `names`: the identifiers and strings in it; `calls`: in order."""

    name: str
    kind: Kind
    node: Node
    calls: list[Call] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    tries: list[Node] = field(default_factory=list)

    @property
    def binds(self) -> bool:
        """It is no function but a table of those that another language calls."""
        return self.name in _BINDERS

    def line(self, node: Node) -> int:
        """Line of the code block, from 1; of a macro's tree, of the macro."""
        return node.start_point[0] + 1


@dataclass(eq=False)
class CudaCode:
    """`functions` of all blocks in order; `names`: identifiers and strings outside of every function, prototypes of
    kernels aside; `macro_names`: those in the bodies of macros; `pastes`: a macro makes names of pieces (`##`).
    """

    functions: list[Function] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    macro_names: set[str] = field(default_factory=set)
    pastes: bool = False

    def of_kind(self, kind: Kind) -> list[Function]:
        return [f for f in self.functions if f.kind == kind]


def text_of(node: Node | None) -> str:
    return "" if node is None else (node.text or b"").decode("utf-8", "replace")


def bare_name(name: str) -> str:
    """A function's name without namespaces and template arguments."""
    return name.partition("<")[0].rpartition("::")[2].strip()


@cache
def _query() -> Query:
    """Patterns of a node or two: their cost is linear, and few matches stay open."""
    kinds = (*_NAMES, "call_expression", "try_statement", "function_definition")
    prototypes = (f'({kind} "__global__") @prototype' for kind in ("declaration", "template_instantiation"))
    return Query(language(), " ".join([*(f"({kind}) @{kind}" for kind in kinds), *prototypes]))


def read_cuda(parsed: Sequence[Parsed], labels: Sequence[CodeLabels]) -> CudaCode:
    """One query over each tree; linear in the number of nodes, up to a sort."""
    code = CudaCode()
    for part, found in zip(parsed, labels, strict=True):
        kernels, device = set(found.kernels), set(found.device_functions)
        _read_tree(part.main.root, kernels, device, code, code.names)
        for tree in part.macros:
            code.pastes = code.pastes or b"##" in part.data[tree.start : tree.end]
            inside: set[str] = set()
            before = len(code.functions)
            _read_tree(tree.root, kernels, device, code, inside)
            for function in code.functions[before:]:
                inside |= function.names if function.kind == "host" else set()
            # the function that the body was wrapped in is none of the answer's
            code.functions[before:] = [
                f for f in code.functions[before:] if f.kind != "host" or f.node.start_byte + tree.shift >= tree.start
            ]
            code.macro_names |= inside
    return code


def _read_tree(root: Node, kernels: set[str], device: set[str], code: CudaCode, outside: set[str]) -> None:
    open_functions: list[tuple[int, Function]] = []
    skipped_until = -1
    cursor = QueryCursor(_query(), match_limit=MAX_OPEN_MATCHES)
    cursor.set_max_start_depth(MAX_TREE_DEPTH)
    found = [node for nodes in cursor.captures(root).values() for node in nodes]
    for node in sorted(found, key=lambda n: (n.start_byte, -n.end_byte)):
        start = node.start_byte
        if start < skipped_until:
            continue
        while open_functions and open_functions[-1][0] <= start:
            open_functions.pop()
        kind = node.type
        if kind in _NAMES:
            (open_functions[-1][1].names if open_functions else outside).add(text_of(node))
        elif kind == "call_expression":
            if open_functions:
                open_functions[-1][1].calls.append(_call(node))
        elif kind == "try_statement":
            if open_functions:
                open_functions[-1][1].tries.append(node)
        elif kind == "function_definition":
            name = function_name(node)
            function = Function(bare_name(name), _kind(node, name, kernels, device), node)
            code.functions.append(function)
            open_functions.append((node.end_byte, function))
        else:  # a prototype or an instantiation names a kernel without starting it
            skipped_until = node.end_byte


def _kind(node: Node, name: str, kernels: set[str], device: set[str]) -> Kind:
    for child in node.children:
        if child.type == "__global__":
            return "kernel"
        if child.type == "__device__":
            return "device"
        if child.type == "function_declarator":
            break
    return "kernel" if name and name in kernels else "device" if name and name in device else "host"


def _call(node: Node) -> Call:
    callee = node.child_by_field_name("function")
    launch = any(child.type == "kernel_call_syntax" for child in node.children)
    scopes: list[str] = []
    for _ in range(16):
        if callee is None:
            break
        if callee.type == "qualified_identifier":
            scopes.append(text_of(callee.child_by_field_name("scope")))
            callee = callee.child_by_field_name("name")
        elif callee.type in ("template_function", "template_method", "dependent_name"):
            callee = callee.child_by_field_name("name") or next(iter(callee.named_children), None)
        elif callee.type == "field_expression":
            scopes = ["."]
            callee = callee.child_by_field_name("field")
        else:
            break
    name = text_of(callee) if callee is not None and callee.type.endswith("identifier") else ""
    launch = launch or name in _KERNEL_LAUNCHERS or name.startswith(("cuLaunchKernel", "cuLaunchCooperativeKernel"))
    return Call(name, "::".join(scopes), node, launch)
