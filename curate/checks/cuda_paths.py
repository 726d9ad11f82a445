"""The main path of the C++ code of an answer: from the functions that Python or a user calls to the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from curate.checks.branches import MAX_OPERATORS, Path
from curate.checks.cuda_code import Call, CudaCode
from curate.checks.operators import HEAVY, HEAVY_METHODS, LIGHT, is_library_call

__all__ = ["Operator", "is_side_path", "library_operators", "operator_of", "runners"]

_SIDE_WORDS = ("reference", "verif", "check", "test", "bench", "baseline", "backward", "compare", "validate", "golden",
               "expected", "warmup", "profile", "cpu", "fallback", "grad")  # fmt: skip
_TORCH_SCOPES = ("at", "torch", "F", "nn")
_DEVICE_WIDE = frozenset(
    [
        "sort",
        "stable_sort",
        "sort_by_key",
        "stable_sort_by_key",
        "reduce",
        "reduce_by_key",
        "transform_reduce",
        "inner_product",
        "inclusive_scan",
        "exclusive_scan",
        "inclusive_scan_by_key",
        "exclusive_scan_by_key",
        "count_if",
        "unique",
        "min_element",
        "max_element",
        "minmax_element",
        "set_intersection",
        "set_union",
        "merge",
    ]
)


@dataclass(frozen=True, eq=False)
class Operator:
    """A library operator that computes: `name` as written, `heavy` as in `curate.checks.operators`."""

    name: str
    heavy: bool
    node: Node


def is_side_path(name: str) -> bool:
    """A function that by its name checks, measures, or serves as the reference: not what the answer offers."""
    lower = name.lower()
    return any(word in lower for word in _SIDE_WORDS) or lower.startswith("ref_") or lower.endswith("_ref")


def operator_of(call: Call) -> Operator | None:
    scopes = call.scope.split("::")
    if call.scope == ".":
        return Operator(call.name, True, call.node) if call.name in HEAVY_METHODS else None
    if scopes[0] in _TORCH_SCOPES and call.name in LIGHT:
        return Operator(f"{scopes[0]}::{call.name}", call.name in HEAVY, call.node)
    if scopes[0] == "thrust" and call.name in _DEVICE_WIDE:
        return Operator(f"thrust::{call.name}", False, call.node)
    if scopes[0] == "cub" and len(scopes) > 1 and scopes[1].startswith("Device"):
        return Operator(f"cub::{scopes[1].partition('<')[0]}::{call.name}", False, call.node)
    return Operator(call.name, True, call.node) if is_library_call(call.name) else None


def runners(code: CudaCode) -> dict[str, bool]:
    """Names of host functions and macros' users, True for those that launch a kernel, directly or through others."""
    hosts = code.of_kind("host")
    reach = {f.name: False for f in hosts}
    callers: dict[str, list[str]] = {}
    pending = []
    for function in hosts:
        if any(call.launch for call in function.calls):
            pending.append(function.name)
        for name in {call.name for call in function.calls} | function.names:
            if name in reach:
                callers.setdefault(name, []).append(function.name)
    while pending:
        name = pending.pop()
        if not reach[name]:
            reach[name] = True
            pending += callers.get(name, ())
    return reach


def library_operators(code: CudaCode) -> Iterator[Operator]:
    """Operators on the main path, that of a program with a `main` left out.

    A program with a `main` that launches a kernel checks it or compares it there; what it calls besides is none of
    its main path. Otherwise the path begins at the functions that a table of bindings names, or, without one, at
    those that no other host function calls; of these only the ones that reach a kernel, where any does.
    """
    hosts = [f for f in code.of_kind("host") if not f.binds]
    reach = runners(code)
    if any(f.name == "main" for f in hosts) and any(reach.values()):
        return
    by_name = {f.name: f for f in hosts}
    bound = {name for f in code.functions if f.binds for name in f.names if name in by_name}
    called = {call.name for f in hosts for call in f.calls if call.name != f.name}
    roots = [f for f in hosts if (f.name in bound if bound else f.name not in called) and not is_side_path(f.name)]
    running = [f for f in roots if reach[f.name]]
    pending, seen = list(running or roots), set[str]()
    while pending:
        function = pending.pop()
        if function.name in seen:
            continue
        seen.add(function.name)
        path = Path(function.node, [c.node for c in function.calls if c.launch or reach.get(c.name)])
        examined = 0
        for call in function.calls:
            operator = operator_of(call)
            following = by_name.get(call.name) if call.scope != "." else None
            if (operator is None and following is None) or examined >= MAX_OPERATORS:
                continue
            examined += 1
            if not path.includes(call.node):
                continue
            if following is not None and not is_side_path(call.name):
                pending.append(following)
            elif operator is not None and following is None:
                yield operator
