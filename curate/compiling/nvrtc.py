"""NVRTC in this process: device code to a cubin, without driver, GPU or CUDA toolkit (the extra `compile`)."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

from curate.compiling.standard import PREINCLUDED, headers_for
from curate.compiling.unit import Unit

__all__ = ["compile_nvrtc", "nvrtc_archs", "nvrtc_version"]


_MAX_LOG = 64 << 20


@cache
def _bindings() -> Any | None:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except Exception:  # not installed, or its library cannot be loaded: whatever that raises
        return None
    return nvrtc


@cache
def nvrtc_version() -> str:
    """As "13.5"; "" where NVRTC is not installed."""
    nvrtc = _bindings()
    if nvrtc is None:
        return ""
    status, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}" if int(status) == 0 else ""


@cache
def nvrtc_archs() -> frozenset[str]:
    """Real architectures that NVRTC compiles for, as `sm_90`; empty where it is not installed. Loads its library."""
    nvrtc = _bindings()
    if nvrtc is None:
        return frozenset()
    status, numbers = nvrtc.nvrtcGetSupportedArchs()
    return frozenset(f"sm_{number}" for number in numbers) if int(status) == 0 else frozenset()


@cache
def include_folders() -> tuple[str, ...]:
    """Where the CUDA headers of the nvidia-* wheels are."""
    spec = importlib.util.find_spec("nvidia")
    roots = sorted(spec.submodule_search_locations or ()) if spec is not None else []
    found = [folder for root in roots for folder in sorted(Path(root).glob("cu[0-9]*/include"))]
    return tuple(str(f) for folder in found for f in (folder, folder / "cccl") if f.is_dir())


def compile_nvrtc(unit: Unit, arch: str, default_device: bool = False) -> tuple[bool, str]:
    """(it compiles, log with ptxas' figures). `default_device`: functions without execution space run on the device."""
    nvrtc = _bindings()
    if nvrtc is None:
        return False, "nvrtc: error: not installed"
    options = [f"-arch={arch}", "--std=c++17", "--ptxas-options=-v", f"--pre-include={PREINCLUDED}"]
    options += [f"-I{folder}" for folder in include_folders()]
    if default_device:
        options.append("--device-as-default-execution-space")
    headers = headers_for(unit.code)
    status, program = nvrtc.nvrtcCreateProgram(
        unit.code.encode(errors="replace").replace(b"\0", b" "),
        unit.name.encode(),
        len(headers),
        [text.encode() for text in headers.values()],
        [name.encode() for name in headers],
    )
    if int(status) != 0:
        return False, f"nvrtc: error: {status.name}"
    try:
        for name in unit.instances:
            nvrtc.nvrtcAddNameExpression(program, name.encode())
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        log = _log(nvrtc, program)
        if int(status) not in (0, 6):  # 6: the source does not compile, and the log says why
            log = f"nvrtc: error: {status.name}\n{log}"
        return int(status) == 0, log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _log(nvrtc: Any, program: Any) -> str:
    status, size = nvrtc.nvrtcGetProgramLogSize(program)
    if int(status) != 0 or size <= 1:
        return ""
    if size > _MAX_LOG:
        return "nvrtc: error: its log is too long to be read"
    buffer = b" " * size  # the binding writes into it
    nvrtc.nvrtcGetProgramLog(program, buffer)
    return buffer.replace(b"\0", b"").decode(errors="replace")
