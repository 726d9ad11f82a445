"""Do the kernels of an answer do anything, and with their inputs?

Three reasons, told apart by what reaches the memory that a kernel stores to. An input is a pointer parameter to const,
or a pointer parameter that the kernel names nowhere while it stores through another. A kernel without inputs (a fill,
an index generator, a random generator, a `hello world`) has nothing to ignore and is never at fault. A kernel that
holds a syntax error is not judged, and one kernel that uses its inputs clears the answer.
"""

from __future__ import annotations

from typing import Literal

from tree_sitter import Node

from curate.checks.cuda_code import Function, text_of
from curate.checks.dataflow import COUNTED, EFFECT, MEMORY, STORED, parameters, read_body
from curate.checks.types import Answer

__all__ = ["constant_kernel", "copies_only", "empty_kernel", "ignores_inputs"]

Verdict = Literal["empty", "constant", "ignores", "no inputs", "works", "unknown"]

_ASKED_EMPTY = ("empty kernel", "null kernel", "no-op", "noop", "nop kernel", "does nothing", "do nothing", 
                "dummy kernel", "launch overhead", "launch latency", "empty body")  # fmt: skip


def empty_kernel(answer: Answer) -> str | None:
    """No kernel has any effect: bodies of comments, returns and local variables alone.

    Not where the prompt asks for it, as in a measurement of launch overhead.
    """
    verdicts = _verdicts(answer)
    if not verdicts or any(v != "empty" for v in verdicts):
        return None
    prompt = answer.prompt.lower()
    return None if any(words in prompt for words in _ASKED_EMPTY) else _detail(answer)


def constant_kernel(answer: Answer) -> str | None:
    """Every kernel that has inputs stores nothing but literals, and its inputs reach nothing that it does.

    A threshold (`out[i] = in[i] > 0 ? 1 : 0`) or a histogram (`atomicAdd(&h[in[i]], 1)`) stores literals too, but its
    inputs reach the condition or the index.
    """
    verdicts = _verdicts(answer)
    judged = [v for v in verdicts if v not in ("no inputs", "empty")]
    return _detail(answer) if judged and all(v == "constant" for v in judged) else None


def ignores_inputs(answer: Answer) -> str | None:
    """Every kernel that has inputs stores values that no input reaches, and at least one of them is no literal."""
    verdicts = _verdicts(answer)
    judged = [v for v in verdicts if v not in ("no inputs", "empty")]
    if not judged or any(v not in ("constant", "ignores") for v in judged) or "ignores" not in judged:
        return None
    return _detail(answer)


def _detail(answer: Answer) -> str:
    kernels = answer.cuda.of_kind("kernel")
    names = ", ".join(k.name for k in kernels[:3])
    return f"kernels {len(kernels)} ({names}), first at line {kernels[0].line(kernels[0].node)} of its code"


def _verdicts(answer: Answer) -> list[Verdict]:
    """One a kernel; empty where some kernel of the answer has no definition that the tree holds."""
    cached = answer.__dict__.get("_verdicts")
    if cached is None:
        kernels = answer.cuda.of_kind("kernel")
        complete = len(kernels) == answer.kernel_count
        cached = [_judge(k, answer.cuda.macro_names) for k in kernels] if complete else []
        answer.__dict__["_verdicts"] = cached
    return cached


def _judge(kernel: Function, macro_names: set[str]) -> Verdict:
    body, found = kernel.node.child_by_field_name("body"), parameters(kernel.node)
    if body is None or found is None or kernel.node.has_error:
        return "unknown"
    flow = read_body(body)
    if not flow.acts:
        return "empty"
    if not flow.targets:
        return "works"  # it calls something: what that does is not known here
    inputs = {p.name for p in found if p.pointer and (p.constant or p.name not in flow.mentioned)} - flow.targets
    if not inputs:
        return "no inputs"
    if inputs & macro_names:
        return "works"
    known = {p.name for p in found}
    sources = {p.name for p in found if not p.scalar}
    sources |= {name for name, _ in flow.flows if name.startswith(MEMORY) and name[1:] not in known}
    if flow.reached(sources) & {EFFECT, STORED}:
        return "works"
    varying = known | {COUNTED, "threadIdx", "blockIdx", "blockDim", "gridDim"}
    return "ignores" if STORED in flow.reached(varying) else "constant"


def copies_only(kernel: Function) -> bool:
    """The kernel has no effect, or stores elements unchanged at the place that they come from: `out[i] = in[i]`."""
    body = kernel.node.child_by_field_name("body")
    if body is None or kernel.node.has_error:
        return False
    flow = read_body(body)
    if not flow.acts:
        return True
    return bool(flow.stored) and all(_is_copy(left, right) for left, right in flow.stored)


def _is_copy(left: Node, right: Node) -> bool:
    if left.type != "subscript_expression" or right.type != "subscript_expression":
        return False
    return text_of(left.child_by_field_name("indices")) == text_of(right.child_by_field_name("indices"))
