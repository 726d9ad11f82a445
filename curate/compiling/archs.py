"""Which architectures the compilers of this machine know: to any other one, no answer at all would compile."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from functools import cache

from curate.compiling.nvcc import nvcc_version
from curate.compiling.nvrtc import nvrtc_archs
from curate.errors import OptionError

__all__ = ["check_archs", "nvcc_archs"]

_ARCH = re.compile(r"sm_[1-9][0-9]{1,3}[af]?")


@cache
def nvcc_archs() -> frozenset[str]:
    """Real architectures of the nvcc on the PATH, as `sm_90`; empty without one, or where it does not say."""
    if not nvcc_version():
        return frozenset()
    try:
        done = subprocess.run(
            ["nvcc", "--list-gpu-code"], capture_output=True, timeout=60, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    return frozenset(done.stdout.decode(errors="replace").split()) if done.returncode == 0 else frozenset()


def check_archs(archs: Sequence[str]) -> None:
    """Raises OptionError for an architecture that neither NVRTC nor nvcc compiles for. Where no compiler is there to
    be asked, its spelling alone counts."""
    known = nvrtc_archs() | nvcc_archs()
    for arch in archs:
        spelled = _ARCH.fullmatch(arch) is not None
        if not spelled or (known and arch.rstrip("af") not in known):
            those = ", ".join(sorted(known, key=lambda name: (len(name), name))) or "sm_90, sm_80 and the like"
            raise OptionError(f"--arch {arch[:40]}: no architecture that the compilers here know; they know {those}")
