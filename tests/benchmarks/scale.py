"""Peak memory and time of whole builds of generated rows, each in a process of its own; scores drawn at random.

One job, so that the process is the whole of the build, and its CPU time that of every pass: beside other work the clock
on the wall says little. About ten minutes on an idle core. By hand, for other numbers of rows, or for a build in parts
and their merge:

    python -m tests.benchmarks.scale 100000
    python -m tests.benchmarks.scale 20000 --shards 4
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import tyro

from curate.config import BuildConfig
from curate.console import main, parse_options
from curate.driver import build_dataset
from curate.merge import MergeConfig, merge
from curate.schema import TABLES
from curate.score import StubScorer
from curate.store import JOURNAL, part_files, read_part
from tests.benchmarks.figures import Figure, timed
from tests.benchmarks.generated import write_pairs

__all__ = ["measure"]

_ROOT = Path(__file__).parents[2]
_FEW, _MANY = 5_000, 50_000


@dataclass(frozen=True)
class ScaleConfig:
    """Builds generated rows, and prints time, memory and disk as JSON."""

    rows: tyro.conf.Positional[int]
    """How many."""
    shards: int | None = None
    """Build them in so many parts, one after the other, and merge these."""


def measure() -> list[Figure]:
    """Peak resident memory, the libraries (torch among them) included."""
    few, many = _built(_FEW), _built(_MANY)
    passes = ", ".join(f"{name} {1e6 * s / many['tokens']:.0f}" for name, s in many["passes"].items())
    return [
        Figure(f"peak at {_FEW} rows", few["peak"], "MB", f"{few['before']:.0f} MB of it libraries"),
        Figure(f"peak at {_MANY} rows", many["peak"], "MB", f"{many['source']:.0f} MB of source"),
        Figure("peak, many over few", many["peak"] / few["peak"], "x", f"{_MANY // _FEW} times the rows"),
        Figure("CPU time, many over few", many["cpu"] / few["cpu"], "x"),
        Figure("CPU time", 1e6 * many["cpu"] / many["tokens"], "µs/token", f"of which {passes}"),
        Figure("rate", _MANY / many["cpu"], "rows/CPU s", f"{_FEW / few['cpu']:.1f} rows/CPU s at {_FEW} rows"),
        Figure("wall", many["wall"], "s"),
        Figure(
            "size", 1e6 * sum(many["disk"].values()) / many["tokens"], "bytes/token", "intermediate results as well"
        ),
    ]


def _built(rows: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.benchmarks.scale", str(rows)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=_ROOT)
    return json.loads(done.stdout)


def _peak() -> float:
    """Highest resident memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e6 / 1024)


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def _build(rows: int, shards: int | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        source, out = Path(temporary) / "pairs.jsonl", Path(temporary) / "out"
        size = write_pairs(rows, source)
        before = _peak()

        def build(folder: Path, shard: int | None = None) -> dict[str, Any]:
            # without compilers, which work in processes of their own and would take a quarter of an hour
            config = BuildConfig(
                source=(str(source),), license="CC0-1.0", out=folder, jobs=1, compile=False, shards=shards, shard=shard
            )
            return build_dataset(config, StubScorer())

        cpu = time.process_time()
        with _cpu_clock():
            wall, manifest = timed(lambda: build(out) if shards is None else _in_parts(build, out, shards))
        cpu = time.process_time() - cpu
        assert manifest["counts"]["accepted"] > 0.9 * rows, manifest["counts"]  # some are copies by chance
        passes = json.loads((out / "build.log.json").read_text())["seconds"]
        passes["the rest"] = passes.pop("total") - sum(passes.values())
        return {
            "rows": rows, "accepted": manifest["counts"]["accepted"], "tokens": _tokens(out), "source": size / 1e6,
            "peak": _peak(), "before": before, "wall": wall, "cpu": cpu, "passes": passes,
            "disk": {name: _megabytes(out / name) for name in (*TABLES, JOURNAL)},
        }  # fmt: skip


def _in_parts(build: Any, out: Path, shards: int) -> dict[str, Any]:
    """The passes are then those of the merge."""
    parts = [out.with_name(f"part-{shard}") for shard in range(shards)]
    for shard, part in enumerate(parts):
        build(part, shard)
    return merge(MergeConfig(tuple(parts), out, jobs=1))


@contextmanager
def _cpu_clock() -> Iterator[None]:
    """Build and merge time their passes by this process's CPU."""
    clock = SimpleNamespace(monotonic=time.process_time)
    with mock.patch("curate.driver.time", clock), mock.patch("curate.merge.time", clock):
        yield


def _tokens(out: Path) -> int:
    parts = part_files(out / "samples")
    return sum(int(read_part(part, ["char_start"])["char_start"].list.len().sum()) for part in parts)


def run(arguments: Sequence[str]) -> int:
    config = parse_options(ScaleConfig, arguments, "tests.benchmarks.scale")
    print(json.dumps(_build(config.rows, config.shards), indent=1))
    return 0


if __name__ == "__main__":
    main(run)
