"""From the blocks of an answer to a verdict, against nvcc on the same device slices in the same run."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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
    alone = _times(plain)
    with ThreadPoolExecutor(2) as threads:  # each with a process of its own
        both = [seconds for times in threads.map(_times, (plain[::2], plain[1::2])) for seconds in times]
    with tempfile.TemporaryDirectory() as folder:
        sources = list(enumerate(answers))
        first, results = timed(lambda: list(check_all(sources, settings, Path(folder), 2)))
        second, again = timed(lambda: list(check_all(sources, settings, Path(folder), 2)))
        assert results == again
    fine = sum(result.status == "ok" for _, result in results)
    figures = [
        Figure("a plain kernel", _ms(alone), "ms", f"median of {len(plain)} answers without libcu++, one process"),
        Figure("a plain kernel, two processes", _ms(both), "ms", "the same answers, two at a time"),
        Figure("bundled corpus, two processes", first, "s", f"{fine} of {len(answers)} compile, start included"),
        Figure("an answer, two processes", first / len(answers) * 1e3, "ms", "mean, libcu++ included"),
        Figure("the same from the cache", second, "s", "nothing is compiled"),
    ]
    return figures + (_nvcc(plain, alone) if nvcc_version() else [])


def _times(answers: list[list[str]]) -> list[float]:
    """Seconds of each answer in one worker, which was warm before."""
    settings = CompileSettings()
    worker = Worker()
    try:
        worker.ask(answers[0], settings)
        return [timed(partial(worker.ask, texts, settings))[0] for texts in answers]
    finally:
        worker.close()


def _ms(seconds: list[float]) -> float:
    return statistics.median(seconds) * 1e3


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
        Figure("nvcc -cubin of the same slice", _ms(times), "ms", f"median of {len(times)}"),
        Figure("nvcc's time over ours", _ms(times) / _ms(ours), "x", "same answers, same run"),
    ]
