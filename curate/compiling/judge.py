"""The blocks of one answer to one result: which compiler judges, and when its word counts.

NVRTC goes first. What it accepts compiles. What it refuses may be its own lack (no host functions, no C++ library, no
runtime API on the device): nvcc, where it is at hand, decides every such case; without nvcc an error stands only when
nothing in it points at such a lack, and the answer is skipped otherwise. Runs in a worker process: the source is
untrusted, and a compiler can be made to spin, to fill the memory, or to crash.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from curate.compiling.archs import nvcc_archs
from curate.compiling.hazards import hazard
from curate.compiling.messages import Message, clean_log, errors_of, kernel_uses
from curate.compiling.nvcc import compile_nvcc, nvcc_version
from curate.compiling.nvrtc import compile_nvrtc, nvrtc_archs, nvrtc_version
from curate.compiling.standard import uses_more
from curate.compiling.texts import FILLED_IN
from curate.compiling.types import NO_COMPILER, SEVERITY, CompileResult, CompileSettings, KernelUse, Status
from curate.compiling.unit import Unit, make_unit, merged

__all__ = ["compile_blocks"]

_UNANNOTATED = "A function without execution space annotations"
_BEYOND_NVRTC = re.compile(
    r"execution space annotations|not allowed in JIT mode|device-side kernel launch|cannot open source file"
    r'|namespace "(?:std|thrust|cub|cuda)\b|\bstd::|not supported when compiling with NVRTC|dynamic initialization'
    r'|identifier "(?:cu[A-Z]|cuda[A-Z]|cub|thrust|std|curand|FILE|stderr|stdout|malloc|free|mem|str)'
    r'|identifier "(?:f?printf|assert|__assert|dim3|clock)'
    r"|more than one instance of overloaded function|ambiguous|cuset_standard|nvrtc\b|NVRTC_ERROR"
)
_UNDEFINED = re.compile(
    r'identifier "([^"]+)" is undefined|namespace "([^"]+)" has no|name followed by "::" must be'
    r"|([\w:]+) is not a template|unknown type name|this declaration has no storage class|name must be a namespace name"
)
_MISSING_HEADER = re.compile(r'cannot open source file "([^"]+)"|([\w./+-]+): No such file or directory')
_TORCH_HEADER = re.compile(r'[<"](?:torch|ATen|c10|pybind11|THC|TH)\b')
_TORCH_NAME = re.compile(
    r"(?:at|c10|torch|caffe2|py|pybind11|THC\w*)(?:::.*)?\Z|(?:AT|C10|TORCH|CUDA|THC|TORCH_CUDA|GPU|PYBIND11)_\w+"
    r"|gpuAtomic\w+|scalar_t|\w*(?:TensorAccessor|IntArrayRef|TensorInfo|OptionalCUDAGuard)\w*|acc_type\w*|Tensor\Z"
)
_NEEDS_FEATURES = re.compile(r"not supported on \.target|requires? \.target|requires .*sm_\d+[af]\b", re.IGNORECASE)
_HAS_FEATURES = re.compile(r"sm_(?:9|1\d)\d\Z")


@dataclass(frozen=True)
class _Outcome:
    """What one unit on one architecture came to."""

    status: Status
    engine: str
    arch: str
    log: str
    kernels: tuple[KernelUse, ...] = ()


def compile_blocks(blocks: Sequence[str], settings: CompileSettings, folder: Path) -> CompileResult:
    """Every block with device code by itself; where one fails and there are several, all as one file as well.

    The blocks of an answer are one file cut in pieces as often as files of their own, and `load_inline` joins its
    sources: so the answer is ok when either reading compiles. Otherwise it has the worst status of its blocks, over all
    architectures. `folder`: private and empty; nothing else is written to.
    """
    units = [unit for n, text in enumerate(blocks, 1) if (unit := make_unit(text, f"block{n}.cu")) is not None]
    if not units:
        return CompileResult("skipped", log="no device code")
    for unit in units:
        if reason := hazard(unit.code):
            return CompileResult("refused", log=f"{unit.name}: {reason}")
    if not nvrtc_version() and not (settings.use_nvcc and nvcc_version()):
        return CompileResult("skipped", log=f"{NO_COMPILER}: neither NVRTC (the extra `compile`) nor nvcc is installed")
    found = [_judge(unit, arch, settings, folder) for unit in units for arch in settings.archs]
    alone = _combined(found, settings)
    if alone.status == "ok" or len(units) == 1:
        return alone
    joined = merged(units)
    if hazard(joined.code):
        return alone
    together = _combined([_judge(joined, arch, settings, folder) for arch in settings.archs], settings)
    return together if together.status == "ok" else alone


def _combined(found: Sequence[_Outcome], settings: CompileSettings) -> CompileResult:
    worst = max(found, key=lambda one: SEVERITY[one.status])  # the first of the worst
    engines = sorted({one.engine for one in found if one.engine != "none"}, reverse=True)
    if worst.status == "ok":
        archs = ",".join(dict.fromkeys(one.arch for one in found))
        first = settings.archs[0]
        uses = tuple(
            use for one in found if one.arch.removesuffix("a") == first.removesuffix("a") for use in one.kernels
        )
        return CompileResult("ok", ", ".join(engines) or "none", archs, "", uses)
    return CompileResult(worst.status, worst.engine, worst.arch, worst.log)


def _judge(unit: Unit, arch: str, settings: CompileSettings, folder: Path) -> _Outcome:
    found = _judge_on(unit, arch, settings, folder)
    if found.status == "error" and _HAS_FEATURES.match(arch) and _NEEDS_FEATURES.search(found.log):
        # wgmma and the like exist only in the variant with a suffix, which authors of such kernels name to nvcc
        return _judge_on(unit, f"{arch}a", settings, folder)
    return found


def _judge_on(unit: Unit, arch: str, settings: CompileSettings, folder: Path) -> _Outcome:
    first: _Outcome | None = None
    nvcc, nvrtc = nvcc_version() if settings.use_nvcc else "", nvrtc_version()
    if nvcc and nvrtc:  # of different ages: what one of them would refuse may be the architecture
        plain, its = arch.rstrip("af"), nvcc_archs() or nvrtc_archs()
        if plain in its and plain not in nvrtc_archs():
            nvrtc = ""
        elif plain in nvrtc_archs() and plain not in its:
            nvcc = ""
    if nvrtc:
        engine = f"nvrtc {nvrtc}"
        ok, log = compile_nvrtc(unit, arch)
        if not ok and _only_constexpr(unit, log):  # torch's builder lets device code call constexpr functions
            ok, log = compile_nvrtc(unit, arch, default_device=True)
        if ok:
            uses = kernel_uses(log)
            return _unused_templates(unit, _Outcome("ok", engine, arch, "", uses))
        first = _Outcome("error", engine, arch, log)
    if nvcc:
        ok, log = compile_nvcc(unit, arch, folder)
        if ok:
            return _Outcome("ok", f"nvcc {nvcc}", arch, "", kernel_uses(log))
        return _verdict(unit, _Outcome("error", f"nvcc {nvcc}", arch, log))
    assert first is not None
    errors = errors_of(first.log)
    beyond = next((error for error in errors if _BEYOND_NVRTC.search(error.what) or "cuset_" in error.where), None)
    verdict = _verdict(unit, first)
    if verdict.status == "error" and (beyond is not None or not errors or uses_more(unit.code)):
        what = beyond.what if beyond is not None else first.log
        return replace(verdict, status="skipped", log=f"needs nvcc to judge: {clean_log(what)}")
    return verdict


def _unused_templates(unit: Unit, outcome: _Outcome) -> _Outcome:
    """The outcome, unless a template kernel that nothing instantiated is wrong whatever its arguments.

    Compilers skip the body of a template that nothing uses. So each is tried with arguments that are likely: when one
    set compiles, it is fine. When none does, the guess may be at fault: a syntax error is the answer's, all else skips.
    """
    compiled = {use.name for use in outcome.kernels}
    for name, tries in unit.guesses:
        if name in compiled:
            continue
        log = ""
        for expression in tries:
            ok, log = compile_nvrtc(replace(unit, instances=(expression,)), outcome.arch, default_device=True)
            if ok:
                break
        else:
            syntax = any(error.what.startswith(("expected a", "unrecognized token")) for error in errors_of(log))
            if tries and syntax:
                return _verdict(unit, replace(outcome, status="error", log=log, kernels=()))
            reason = f"nothing instantiates the template kernel {name}"
            return replace(outcome, status="skipped", log=clean_log(reason), kernels=())
    return outcome


def _verdict(unit: Unit, outcome: _Outcome) -> _Outcome:
    """An error becomes skipped when what is missing may exist: in a header that is not here, or filled in by Python."""
    if FILLED_IN in outcome.log:
        return replace(outcome, status="skipped", log="Python fills in a part of the code")
    errors = errors_of(outcome.log)
    for error in errors:
        if missing := _MISSING_HEADER.search(error.what):
            return replace(outcome, status="skipped", log=clean_log(f"needs the header {missing[1] or missing[2]}"))
    if unit.lacks and (needed := _needed_header(unit, errors)):
        return replace(outcome, status="skipped", log=clean_log(f"needs the header {needed[0]}: {needed[1]}"))
    return replace(outcome, log=clean_log(outcome.log) or "the compiler gave no reason")


def _needed_header(unit: Unit, errors: Sequence[Message]) -> tuple[str, str] | None:
    """(header, message) when an undefined name can come from a header that was left out.

    Any name can come from a header that nobody has seen; torch's are known by their names.
    """
    others = [header for header in unit.lacks if not _TORCH_HEADER.match(header)]
    torch = [header for header in unit.lacks if _TORCH_HEADER.match(header)]
    for error in errors:
        match = _UNDEFINED.search(error.what)
        if match is None:
            continue
        if others:
            return others[0], error.what
        name = next((group for group in match.groups() if group), "")
        if torch and (_TORCH_NAME.match(name) or not name):
            return torch[0], error.what
    return None


def _only_constexpr(unit: Unit, log: str) -> bool:
    """Whether every complaint is of a function without execution space that is `constexpr`, in the unit itself."""
    errors = errors_of(log)
    lines = unit.code.split("\n")
    for error in errors:
        if _UNANNOTATED not in error.what:
            return False
        if error.where != unit.name or not 1 <= error.line <= len(lines):
            return False
        if "constexpr" not in " ".join(lines[max(0, error.line - 3) : error.line]):
            return False
    return bool(errors)
