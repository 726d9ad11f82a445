"""Is the answer written in something else than CUDA?"""

from __future__ import annotations

from curate.checks.python_code import jits_and_imports
from curate.checks.types import Answer

__all__ = ["not_cuda"]

_JITS = (
    ("triton.", "Triton"),
    ("numba.", "Numba"),
    ("cupyx.jit", "CuPy JIT"),
    ("taichi.", "Taichi"),
    ("tilelang.", "TileLang"),
)


def not_cuda(answer: Answer) -> str | None:
    """No CUDA kernel is defined, and a Python module of the answer uses Triton, Numba or plain PyTorch instead.

    A module that loads its kernel from a file which the answer does not hold (`load(sources=[...])`) counts as
    plain PyTorch too: there is no CUDA in it.
    """
    if answer.kernel_count:
        return None
    imported: set[str] = set()
    for tree in answer.python_trees:
        decorators, modules = jits_and_imports(tree)
        for prefix, name in _JITS:
            if any(decorator.startswith(prefix) for decorator in decorators):
                return f"a {name} kernel and no CUDA one"
        imported |= modules
    return "PyTorch code and no CUDA kernel" if "torch" in imported else None
