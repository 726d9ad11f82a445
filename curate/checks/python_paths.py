"""The main path of a Python module of an answer: from `forward` to the kernels that it calls."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tree_sitter import Node

from curate.checks.branches import MAX_OPERATORS, Path
from curate.checks.cuda_code import text_of
from curate.checks.cuda_paths import Operator, is_side_path
from curate.checks.operators import HEAVY, HEAVY_METHODS, HEAVY_MODULES, LIGHT
from curate.checks.python_code import PythonCall, PythonCode, PythonFunction, dotted
from curate.extract.language import preorder

__all__ = ["PythonPaths"]

_LOADERS = frozenset(("load_inline", "load", "RawKernel", "RawModule", "ElementwiseKernel", "SourceModule",
                      "get_function", "compile_cuda", "_compile_kernel", "compile_kernel", "Program"))  # fmt: skip
_ENTRIES = ("forward", "__call__")


class PythonPaths:
    """Which functions of a module run a kernel, and which library operators run with it.

    A kernel runs where something is called that is made by `load_inline`, `RawKernel` or the like, directly or through
    names and attributes, or that bears the name of a function of the answer's C++ code (`host_names`).
    """

    def __init__(self, code: PythonCode, host_names: set[str]) -> None:
        self.code = code
        self.host_names = host_names
        self.functions: dict[tuple[str, str], PythonFunction] = {(f.owner, f.name): f for f in code.functions}

    @cached_property
    def _extensions(self) -> set[str]:
        """Names, attributes and functions that hold a compiled kernel."""
        mentions: dict[str, set[str]] = {}
        for target, values in self.code.bound.items():
            mentions[target] = {name for value in values for name in _mentioned(value)}
        for function in self.code.functions:
            returned = mentions.setdefault(function.name, set())
            for call in function.calls:
                if call.path[-1] in _LOADERS:
                    returned.add(call.path[-1])
        holders: dict[str, list[str]] = {}
        for target, names in mentions.items():
            for name in names:
                holders.setdefault(name, []).append(target)
        pending, found = [*_LOADERS], set[str]()
        while pending:
            for target in holders.get(pending.pop(), ()):
                if target not in found and not self._is_entry(target):
                    found.add(target)
                    pending.append(target)
        return found

    def _is_entry(self, name: str) -> bool:
        return name in _ENTRIES or name in self.code.classes

    @cached_property
    def _modules(self) -> dict[str, str]:
        """Names and attributes that hold a heavy module of torch, with its class: `self.conv` = `nn.Conv2d(...)`."""
        found: dict[str, str] = {}
        for target, values in self.code.bound.items():
            for value in values:
                if (name := self._heavy_module(value)) is not None:
                    found[target] = name
        for target, values in self.code.bound.items():  # `for layer in self.layers:`
            for value in values:
                if value.type in ("attribute", "identifier") and (held := found.get(".".join(dotted(value)))):
                    found.setdefault(target, held)
        return found

    def _heavy_module(self, value: Node) -> str | None:
        for node, _ in preorder(value):
            if node.type == "call":
                path = self.code.resolve(dotted(node.child_by_field_name("function")))
                if path[0] == "torch" and path[-1] in HEAVY_MODULES:
                    return path[-1]
        return None

    def callees(self, function: PythonFunction, call: PythonCall) -> list[PythonFunction]:
        path = call.path
        if len(path) == 2 and path[0] in ("self", "cls", function.owner):
            own = self.functions.get((function.owner, path[1]))
            if own is not None:
                return [own]
        if len(path) == 1 and ("", path[0]) in self.functions:
            return [self.functions["", path[0]]]
        values = self.code.bound.get(".".join(path), ())
        names = [path[0]] if path[-1] == "apply" else []
        names += [name for value in values for name in _constructed(value)]
        found = [f for name in names for entry in _ENTRIES if (f := self.functions.get((name, entry))) is not None]
        for value in values:  # `self.run = self._run_on_gpu`
            if value.type == "attribute" and (own := self.functions.get((function.owner, dotted(value)[-1]))):
                found.append(own)
        if len(path) > 2:  # `self.helper.run(x)` where `self.helper = Helper()`
            for value in self.code.bound.get(".".join(path[:-1]), ()):
                found += [f for name in _constructed(value) if (f := self.functions.get((name, path[-1]))) is not None]
        return found

    def _calls_extension(self, call: PythonCall) -> bool:
        path = call.path
        if path == ("@",) or path[0] == "torch":
            return len(path) > 2 and path[:2] == ("torch", "ops")
        if path[-1] in self.host_names and len(path) > 1:
            return True
        prefixes = (".".join(path[:n]) for n in range(1, len(path) + 1))
        return any(p in self._extensions for p in prefixes if p not in ("self", ""))

    @cached_property
    def runners(self) -> set[int]:
        """Functions (by the id of their node) that run a kernel, directly or through others."""
        callers: dict[int, list[int]] = {}
        pending = []
        for function in self.code.functions:
            for call in function.calls:
                if self._calls_extension(call) and call.path[-1] not in _LOADERS:
                    pending.append(function.node.id)
                for callee in self.callees(function, call):
                    callers.setdefault(callee.node.id, []).append(function.node.id)
        found = set[int]()
        while pending:
            at = pending.pop()
            if at not in found:
                found.add(at)
                pending += callers.get(at, ())
        return found

    def runs_kernel(self, function: PythonFunction, call: PythonCall) -> bool:
        if call.path[-1] in _LOADERS:
            return False
        return self._calls_extension(call) or any(f.node.id in self.runners for f in self.callees(function, call))

    def operator_of(self, call: PythonCall) -> Operator | None:
        path = call.path
        if path == ("@",):
            return Operator("@", True, call.node)
        if path[0] == "torch" and path[1:2] != ("ops",):
            return Operator(".".join(path), path[-1] in HEAVY, call.node) if path[-1] in LIGHT else None
        held = self._modules.get(".".join(path))
        if held is not None:
            return Operator(f"nn.{held}", True, call.node)
        if len(path) > 1 and path[-1] in HEAVY_METHODS and not self._calls_extension(call):
            return Operator(path[-1], True, call.node)
        return None

    def entries(self) -> list[PythonFunction]:
        """`forward` of the modules; of those that run a kernel, where any does."""
        found = [
            f
            for f in self.code.functions
            if f.name == "forward" and any(base.endswith("Module") for base in self.code.classes.get(f.owner, ()))
        ]
        running = [f for f in found if f.node.id in self.runners]
        if running:
            return running
        if not found:
            found = [f for f in self.code.functions if not f.owner and f.node.id in self.runners]
        return [f for f in found if not is_side_path(f.owner + f.name)]

    @property
    def idle(self) -> bool:
        """There is a `forward`, no `forward` runs a kernel, and none calls anything that is not known here."""
        found = self.entries()
        return (
            bool(found)
            and all(f.name == "forward" and f.node.id not in self.runners for f in found)
            and all(self._is_known(f, call) for f in found for call in f.calls)
        )

    def _is_known(self, function: PythonFunction, call: PythonCall) -> bool:
        path = call.path
        values = self.code.bound.get(".".join(path), [])
        if path[0] in ("self", "cls", *self.code.classes) or (len(path) == 1 and values):
            if self.callees(function, call):
                return True
            made = [self.code.resolve(dotted(v.child_by_field_name("function"))) for v in values if v.type == "call"]
            return len(made) == len(values) > 0 and all(name[0] == "torch" for name in made)
        return True

    def library_operators(self) -> Iterator[Operator]:
        pending, seen = self.entries(), set[int]()
        while pending:
            function = pending.pop()
            if function.node.id in seen:
                continue
            seen.add(function.node.id)
            path = Path(function.node, [c.node for c in function.calls if self.runs_kernel(function, c)])
            examined = 0
            for call in function.calls:
                operator, callees = self.operator_of(call), self.callees(function, call)
                if (operator is None and not callees) or examined >= MAX_OPERATORS:
                    continue
                examined += 1
                if not path.includes(call.node):
                    continue
                running = [f for f in callees if f.node.id in self.runners]  # the others are alternatives to them
                pending += [f for f in running or callees if not is_side_path(f.name)]
                if operator is not None and not callees and not _dropped(call.node):
                    yield operator


def _dropped(node: Node) -> bool:
    """`_ = torch.matmul(a, b)`: a measurement, not a result."""
    above = node.parent
    return above is not None and above.type == "assignment" and text_of(above.child_by_field_name("left")) == "_"


def _mentioned(value: Node) -> Iterator[str]:
    for node, _ in preorder(value):
        if node.type == "attribute":
            yield ".".join(dotted(node))
            yield text_of(node.child_by_field_name("attribute"))
        elif node.type == "identifier":
            yield text_of(node)


def _constructed(value: Node) -> list[str]:
    if value.type == "call":
        return [dotted(value.child_by_field_name("function"))[-1]]
    if value.type == "attribute" and text_of(value.child_by_field_name("attribute")) == "apply":
        return [dotted(value)[0]]
    return []
