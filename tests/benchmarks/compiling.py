"""From the blocks of an answer to a verdict, against nvcc on the same device slices in the same run."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path

from curate.compiling import CompileSettings, check_all
from curate.compiling.nvcc import compile_nvcc, nvcc_version
from curate.compiling.nvrtc import nvrtc_version
from curate.compiling.pool import Worker
from curate.compiling.unit import make_unit
from curate.extract import extract_cuda
from tests.benchmarks.figures import Figure, bundled_rows, timed

__all__ = ["measure"]

_PLAIN = ("cooperative_groups", "<cuda/", "cuda_pipeline", "<cub/", "<nv/", "cuda_awbarrier")
"""Headers that read libcu++, which takes a second: kernels without them are plain."""
_NVCC_SLICES = 12


def measure() -> list[Figure]:
    """Empty where NVRTC is not installed; without nvcc its lines are left out."""
    if not nvrtc_version():
        return []
    answers = [[block.text for block in extract_cuda(row.response)] for row in bundled_rows()]
    plain = [texts for texts in answers if not any(header in text for text in texts for header in _PLAIN)]
    settings = CompileSettings()
    worker = Worker()
    try:
        worker.ask(plain[0], settings)
        alone = [timed(lambda texts=texts: worker.ask(texts, settings))[0] for texts in plain]  # type: ignore[misc]
    finally:
        worker.close()
    with tempfile.TemporaryDirectory() as folder:
        sources = list(enumerate(answers))
        first, results = timed(lambda: list(check_all(sources, settings, Path(folder), 2)))
        second, again = timed(lambda: list(check_all(sources, settings, Path(folder), 2)))
        assert results == again
    fine = sum(result.status == "ok" for _, result in results)
    median = statistics.median(alone) * 1e3
    figures = [
        Figure("a plain kernel, one process", median, "ms", f"median of {len(plain)} answers without libcu++"),
        Figure("bundled corpus, two processes", first, "s", f"{fine} of {len(answers)} compile, start included"),
        Figure("an answer, two processes", first / len(answers) * 1e3, "ms", "mean, libcu++ included"),
        Figure("the same from the cache", second, "s", "nothing is compiled"),
    ]
    return figures + (_nvcc(plain, alone) if nvcc_version() else [])


def _nvcc(plain: list[list[str]], alone: list[float]) -> list[Figure]:
    times, ours = [], []
    folder = Path(tempfile.mkdtemp())
    try:
        for texts, seconds in list(zip(plain, alone, strict=True))[:: max(1, len(plain) // _NVCC_SLICES)]:
            units = [unit for n, text in enumerate(texts) if (unit := make_unit(text, f"block{n}.cu")) is not None]
            began = time.perf_counter()
            for unit in units:
                compile_nvcc(unit, "sm_90", folder)
            times.append(time.perf_counter() - began)
            ours.append(seconds)
    finally:
        shutil.rmtree(folder)
    return [
        Figure("nvcc -cubin of the same slice", statistics.median(times) * 1e3, "ms", f"median of {len(times)}"),
        Figure(
            "nvcc's time over ours", statistics.median(times) / statistics.median(ours), "x", "same answers, same run"
        ),
    ]
