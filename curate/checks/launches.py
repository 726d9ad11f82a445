"""Is any kernel of the answer started?"""

from __future__ import annotations

import re

from curate.checks.cuda_code import Function, bare_name
from curate.checks.types import Answer

__all__ = ["not_launched"]

_WORD = re.compile(r"\w+")
"""Of a string such as `"scale<float>"`."""
_HOST_API = ("cuda", "cu")


def not_launched(answer: Answer) -> str | None:
    """Host code stands beside the kernels, and starts none of them.

    A kernel counts as started where anything but its own definition, its prototypes and kernels that are not started
    themselves names it: `k<<<...>>>`, `cudaLaunchKernel(k)`, a function pointer, a template argument, the argument of a
    macro, a string (`cuModuleGetFunction`, `RawKernel`), Python around it. One started kernel is enough: the others
    may be variants. Where a macro pastes names together, nothing is said. Host code is `main`, a table of bindings, or
    a function that calls the CUDA API or takes tensors; a helper that only computes, or a lone kernel, is none.
    """
    code = answer.cuda
    kernels = {bare_name(name) for found in answer.labels for name in found.kernels}
    if not kernels or "" in kernels or code.pastes:
        return None
    hosts = [f for f in code.functions if f.kind == "host" and _drives(f)]
    if not hosts:
        return None
    naming = set(code.names | code.macro_names)
    for function in code.functions:
        if function.kind != "kernel":
            naming |= function.names
    for module in answer.python:
        naming |= module.names | module.strings
    if naming & kernels or any(kernels & set(_WORD.findall(text)) for text in naming if not text.isidentifier()):
        return None
    names = ", ".join(sorted(kernels)[:3])
    launches = sum(found.launches for found in answer.labels)
    return f"kernels {len(kernels)} ({names}), host functions {len(hosts)}, launches of others {launches}"


def _drives(function: Function) -> bool:
    if function.name == "main" or function.binds:
        return True
    if any(call.launch for call in function.calls) or {"Tensor", "PackedTensorAccessor32"} & function.names:
        return True
    return any(_is_api(call.name) for call in function.calls if call.scope in ("", "::"))


def _is_api(name: str) -> bool:
    return any(name.startswith(prefix) and name[len(prefix) : len(prefix) + 1].isupper() for prefix in _HOST_API)
