"""Does the CUDA of an answer compile? Device code only; nothing is linked, loaded or run."""

from curate.compiling.archs import check_archs
from curate.compiling.cache import compilers
from curate.compiling.check import check_all, compile_code
from curate.compiling.texts import compilable_texts
from curate.compiling.types import NO_COMPILER, SEVERITY, STATUSES, CompileResult, CompileSettings, KernelUse, Status

__all__ = [
    "NO_COMPILER",
    "SEVERITY",
    "STATUSES",
    "CompileResult",
    "CompileSettings",
    "KernelUse",
    "Status",
    "check_all",
    "check_archs",
    "compilable_texts",
    "compile_code",
    "compilers",
]
