"""The whole report of a million and of ten million response tokens, and the peak memory of its process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.schema import SAMPLES
from curate.score import StubScorer
from curate.store import part_files, read_part, write_part
from tests.benchmarks.figures import Figure, timed

__all__ = ["measure"]

_ROOT = Path(__file__).parents[2]
_COPIES = 4  # of the corpus in a part


def measure() -> list[Figure]:
    """The bundled corpus again and again, with confidences drawn anew; a process of its own for each report."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        build_dataset(BuildConfig(source=("bundled",), out=folder / "one", compile=False), StubScorer())
        figures, seconds = [], {}
        for million in (1, 10):
            tokens = _multiply(folder / "one", folder / f"m{million}", million * 10**6)
            command = [sys.executable, "-m", "analysis.report", str(folder / f"m{million}")]
            seconds[million], peak = timed(lambda command=command: _peak(command))
            name = f"{tokens / 1e6:.1f} M tokens"
            figures += [Figure(name, seconds[million], "s"), Figure(f"peak memory, {name}", peak, "MB")]
        return [
            *figures,
            Figure("ten times the tokens", seconds[10] / seconds[1], "x", "start of Python and drawing included"),
        ]


def _peak(command: list[str]) -> float:
    """Runs a command; its own highest resident memory in MB."""
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command[2]} ended with {process.returncode}")
    return used.ru_maxrss / 1024


def _multiply(source: Path, out: Path, tokens: int) -> int:
    """Writes a dataset of at least so many response tokens; returns how many."""
    frame = pl.concat(read_part(part) for part in part_files(source / "samples"))
    lengths = frame["char_start"].list.len().to_numpy()
    copies = -(-tokens // int(lengths.sum()))
    draw = np.random.default_rng(0)
    for first in range(0, copies, _COPIES):
        parts = []
        for copy in range(first, min(first + _COPIES, copies)):
            drawn = np.log(np.maximum(draw.beta(2.0, 0.6, int(lengths.sum())), 1e-9)).astype(np.float16)
            lists = pl.Series("logprob", np.split(drawn, np.cumsum(lengths)[:-1]), dtype=pl.List(pl.Float16()))
            named = pl.concat_str(pl.col("sample_id").str.slice(0, 24), pl.lit(f"{copy:08x}")).alias("sample_id")
            parts.append(frame.with_columns(lists, named))
        write_part(pl.concat(parts), SAMPLES, out / "samples" / f"part-{first:05d}.parquet")
    for table in ("regions", "rejected"):
        (out / table).symlink_to(source / table)
    manifest = json.loads((source / "manifest.json").read_text())
    manifest["counts"]["accepted"] = copies * len(frame)
    (out / "manifest.json").write_text(json.dumps(manifest))
    return copies * int(lengths.sum())
