"""Does the answer fall back to the operator that it was to replace?"""

from __future__ import annotations

from bisect import bisect_left

from tree_sitter import Node

from curate.checks.branches import is_handler, leaves
from curate.checks.cuda_paths import is_side_path, operator_of, runners
from curate.checks.library import python_paths
from curate.checks.python_code import PythonFunction
from curate.checks.python_paths import PythonPaths
from curate.checks.types import Answer

__all__ = ["reference_fallback"]

MAX_TRIES = 20
"""Guarded pieces of a function that are looked at: each is compared with every call of the function."""


def reference_fallback(answer: Answer) -> str | None:
    """A handler of exceptions computes the result by a library operator, where the guarded code ran the kernel; or it
    swallows the exception, and the operator follows.

    Whether the kernel works then cannot be seen from outside. A branch is none: a CPU path behind `x.is_cuda`, or one
    for shapes that the kernel does not take, says openly when it is taken. Handlers in tests and references do not
    count.
    """
    if not answer.kernel_count:
        return None
    for paths in python_paths(answer):
        for function in paths.code.functions:
            if not is_side_path(function.name):
                kernels = [c.node.start_byte for c in function.calls if paths.runs_kernel(function, c)]
                for attempt in function.tries[:MAX_TRIES] if kernels else ():
                    if (name := _python_handler(paths, function, attempt, kernels)) is not None:
                        return f"operator {name}, handler of the try at line {attempt.start_point[0] + 1} of its module"
    reach = runners(answer.cuda)
    for host in answer.cuda.of_kind("host"):
        if not host.tries or is_side_path(host.name):
            continue
        kernels = [c.node.start_byte for c in host.calls if c.launch or reach.get(c.name)]
        for attempt in host.tries[:MAX_TRIES]:
            if not _any_in(kernels, attempt.child_by_field_name("body")):
                continue
            for handler in (child for child in attempt.named_children if is_handler(child)):
                for call in host.calls:
                    operator = operator_of(call)
                    if operator is not None and _any_in([call.node.start_byte], handler):
                        return f"operator {operator.name}, handler at line {host.line(handler)} of its code"
    return None


def _python_handler(paths: PythonPaths, function: PythonFunction, attempt: Node, kernels: list[int]) -> str | None:
    body = attempt.child_by_field_name("body")
    if body is None or not _any_in(kernels, body):
        return None
    for handler in attempt.named_children:
        if not is_handler(handler):
            continue
        for call in function.calls:
            if not _any_in([call.node.start_byte], handler):
                continue
            operator = paths.operator_of(call)
            if operator is not None:
                return operator.name
            for callee in paths.callees(function, call):
                if callee.node.id not in paths.runners:
                    for inner in callee.calls:
                        if (operator := paths.operator_of(inner)) is not None:
                            return operator.name
        if leaves(body) and not leaves(handler):  # `except: pass`, and the operator behind it
            for call in function.calls:
                if call.node.start_byte >= attempt.end_byte and (operator := paths.operator_of(call)) is not None:
                    return operator.name
    return None


def _any_in(starts: list[int], node: Node | None) -> bool:
    if node is None:
        return False
    at = bisect_left(starts, node.start_byte)
    return at < len(starts) and starts[at] < node.end_byte
