"""What a compilation is asked and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["NO_COMPILER", "SEVERITY", "STATUSES", "CompileResult", "CompileSettings", "KernelUse", "Status"]

Status = Literal["ok", "skipped", "timeout", "error", "refused"]
STATUSES: tuple[Status, ...] = ("ok", "skipped", "timeout", "error", "refused")
"""From best to worst; a row has the worst of its blocks and architectures.

ok: every block with device code compiles. skipped: nobody could judge (no device code, no compiler, a header that is
not here). timeout: the limits were reached first. error: the compiler refuses it. refused: never shown to a compiler,
because it reaches for files of this machine.
"""
NO_COMPILER = "no compiler"
"""How the log of an answer begins that was skipped for the lack of one."""
SEVERITY = {status: rank for rank, status in enumerate(STATUSES)}


@dataclass(frozen=True)
class CompileSettings:
    """What the result depends on, limits included."""

    archs: tuple[str, ...] = ("sm_90",)
    """Real architectures; each is compiled."""
    seconds: float = 30.0
    """Wall-clock time of one answer: all blocks, all architectures."""
    memory_mb: int = 6144
    """Address space of a worker process and of each compiler that it starts."""
    use_nvcc: bool = True
    """Whether nvcc, where it is on the PATH, may judge what NVRTC cannot; it also confirms each error of NVRTC."""


@dataclass(frozen=True)
class KernelUse:
    """What one compiled kernel takes, as ptxas reports it: registers a thread, static shared memory a block (bytes),
    bytes of registers that were spilled to local memory (stores).
    """

    name: str
    registers: int
    shared_bytes: int
    spill_bytes: int


@dataclass(frozen=True)
class CompileResult:
    """`engine`: "nvrtc 13.5", "nvcc 13.0", both with a comma, or "none". `arch`: the one that the log is of, or all of
    them when the status is ok. `log`: the first lines of what the compiler said, or the reason; never a path of this
    machine. `kernels`: of the first architecture that compiled; a template once for every instantiation.
    """

    status: Status
    engine: str = "none"
    arch: str = ""
    log: str = ""
    kernels: tuple[KernelUse, ...] = ()

    def parallel_to(self, names: Sequence[str]) -> dict[str, list[int | None]]:
        """`registers`, `shared_bytes` and `spill_bytes`, each a list parallel to the kernels named.

        The largest over instantiations and kernels of the same name; None for a kernel that was not compiled: a
        template that nothing instantiates, or any kernel when the status is not ok.
        """
        columns: dict[str, list[int | None]] = {}
        for column in ("registers", "shared_bytes", "spill_bytes"):
            most: dict[str, int] = {}
            for use in self.kernels:
                most[use.name] = max(most.get(use.name, 0), getattr(use, column))
            columns[column] = [most.get(name.rpartition("::")[2]) for name in names]
        return columns

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(value: dict[str, Any]) -> CompileResult:
        """The inverse of `to_json`; raises ValueError, KeyError or TypeError on anything else."""
        if value["status"] not in SEVERITY:
            raise ValueError("unknown status")
        kernels = tuple(
            KernelUse(str(k["name"]), int(k["registers"]), int(k["shared_bytes"]), int(k["spill_bytes"]))
            for k in value["kernels"]
        )
        return CompileResult(value["status"], str(value["engine"]), str(value["arch"]), str(value["log"]), kernels)
