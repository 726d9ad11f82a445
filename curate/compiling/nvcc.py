"""nvcc, where it is on the PATH: slower than NVRTC by a factor, but with a host compiler's headers."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from functools import cache
from pathlib import Path

from curate.compiling.unit import Unit
from curate.syntax.device_slice import PRELUDE

__all__ = ["compile_nvcc", "nvcc_version"]

_MAX_LOG = 1_000_000
# as torch's extension builder calls it, but without the macros that take operators of half away
_OPTIONS = ("-cubin", "-std=c++17", "--expt-relaxed-constexpr", "--expt-extended-lambda", "-Xptxas", "-v")
_RELOCATABLE = "requires separate compilation mode"


@cache
def nvcc_version() -> str:
    """As "13.0"; "" where nvcc is not on the PATH or does not answer."""
    path = shutil.which("nvcc")
    if path is None:
        return ""
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, timeout=60, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(rb"release (\d+\.\d+)", done.stdout)
    return found[1].decode() if found else ""


def compile_nvcc(unit: Unit, arch: str, folder: Path) -> tuple[bool, str]:
    """(it compiles, log with ptxas' figures), in `folder`, with the time and memory limits of this process.

    Kernels that launch kernels need relocatable code: what fails for the lack of it is compiled again with it.
    """
    ok, log = _compile(unit, arch, folder)
    return _compile(unit, arch, folder, "-rdc=true") if not ok and _RELOCATABLE in log else (ok, log)


def _compile(unit: Unit, arch: str, folder: Path, *more: str) -> tuple[bool, str]:
    source = folder / unit.name
    uses = "".join(f"(const void*)({name}), " for name in unit.instances)
    code = f'{PRELUDE}#line 1 "{unit.name}"\n{unit.code}'
    if uses:  # an address taken instantiates the template
        code += f'\n#line 1 "launches"\nconst void* cuset_launches[] = {{{uses}}};\n'
    source.write_text(code, encoding="utf-8", errors="replace")
    log_path = folder / "nvcc.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            ["nvcc", f"-arch={arch}", *_OPTIONS, source.name, "-o", "unit.cubin", *more],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            exit_code = process.wait()
        except BaseException:
            os.kill(process.pid, signal.SIGKILL)
            raise
    with log_path.open("rb") as written:
        text = written.read(_MAX_LOG).decode(errors="replace")
    return exit_code == 0, text if exit_code in (
        0,
        1,
        2,
    ) or text.strip() else f"nvcc: error: it ended with code {exit_code}\n{text}"
