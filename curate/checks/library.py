"""Is the work of the answer done by a library?"""

from __future__ import annotations

from collections.abc import Iterator

from curate.checks.cuda_paths import Operator, library_operators
from curate.checks.kernel_bodies import copies_only
from curate.checks.python_paths import PythonPaths
from curate.checks.types import Answer

__all__ = ["library_call", "python_paths"]

_LIBRARIES = ("cublas", "cudnn", "cusparse", "cufft", "cusolver", "thrust", "cub")


def library_call(answer: Answer) -> str | None:
    """An operator of torch or of a CUDA library does the work on the main path, and the kernel decorates it.

    A heavy operator (`curate.checks.operators`) on the main path is the work, whatever else the kernel does; a light
    one only where no kernel does more than copy, or where no `forward` runs one. The main path is what runs together
    with the kernel (`curate.checks.branches`), from `forward` of the module or the bound function on; tests,
    benchmarks, references, backward passes, `if __name__ == "__main__"`, and a program's own `main` are no part of it.
    A library that the prompt names in so many words was asked for. Answers without a kernel are left to other reasons.
    """
    if not answer.kernel_count:
        return None
    asked = answer.prompt.lower()
    found = [o for o in _operators(answer) if not _asked_for(o, asked)]
    heavy = [o for o in found if o.heavy]
    if not heavy and found and not any(paths.idle for paths in python_paths(answer)):
        kernels = answer.cuda.of_kind("kernel")
        if len(kernels) < answer.kernel_count or not all(copies_only(k) for k in kernels):
            return None
    told = heavy or found
    if not told:
        return None
    first = told[0]
    names = ", ".join(dict.fromkeys(o.name for o in told))
    return f"operators {len(told)} ({names[:200]}), first at line {first.node.start_point[0] + 1} of its code"


def _asked_for(operator: Operator, prompt: str) -> bool:
    lower = operator.name.lower()
    return any(lower.startswith(library) and library in prompt for library in _LIBRARIES)


def python_paths(answer: Answer) -> list[PythonPaths]:
    """One a Python module of the answer."""
    cached = answer.__dict__.get("_python_paths")
    if cached is None:
        hosts = {f.name for f in answer.cuda.of_kind("host")} | {
            name for f in answer.cuda.functions if f.binds for name in f.names if name.isidentifier()
        }
        cached = answer.__dict__["_python_paths"] = [PythonPaths(code, hosts) for code in answer.python]
    return cached


def _operators(answer: Answer) -> Iterator[Operator]:
    yield from library_operators(answer.cuda)
    for paths in python_paths(answer):
        yield from paths.library_operators()
