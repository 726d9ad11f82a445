"""Builds under `--engine ray` against the local engine, on the same two processors; scores drawn at random.

Start-up (Ray's own, and libraries that each of its processes imports) does not grow with the rows: what a row costs is
the difference between two numbers of rows. About three minutes on two idle cores. One build by hand:

    python -m tests.benchmarks.ray local 512
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.score import StubScorer
from tests.benchmarks.figures import Figure, timed
from tests.benchmarks.generated import write_pairs

__all__ = ["measure"]

_ROOT = Path(__file__).parents[2]
_FEW, _MANY, _ROUNDS = 512, 4096, 2


def measure() -> list[Figure]:
    """The smallest of some rounds each; the engines take turns, so that a disturbance meets both."""
    if find_spec("ray") is None:
        return [Figure("ray", float("nan"), "", "not installed: pip install -e .[ray]")]
    seconds: dict[tuple[str, int], float] = {}
    for _ in range(_ROUNDS):
        for rows in (_FEW, _MANY):
            for engine in ("local", "ray"):
                key = engine, rows
                seconds[key] = min(_built(engine, rows), seconds.get(key, float("inf")))
    row = {engine: (seconds[engine, _MANY] - seconds[engine, _FEW]) / (_MANY - _FEW) for engine in ("local", "ray")}
    start = {engine: seconds[engine, _FEW] - _FEW * row[engine] for engine in ("local", "ray")}
    return [
        Figure("local", 1e3 * row["local"], "ms/row", f"and {start['local']:.1f} s to start; {_FEW} and {_MANY} rows"),
        Figure("ray", 1e3 * row["ray"], "ms/row", f"and {start['ray']:.1f} s to start"),
        Figure("ray over local", row["ray"] / row["local"], "x", "beyond start-up"),
    ]


def _built(engine: str, rows: int) -> float:
    command = [sys.executable, "-m", "tests.benchmarks.ray", engine, str(rows)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True, cwd=_ROOT)
    return float(json.loads(done.stdout)["seconds"])


def _build(engine: str, rows: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as temporary:
        source, out = Path(temporary) / "pairs.jsonl", Path(temporary) / "out"
        write_pairs(rows, source)
        options = {"license": "CC0-1.0", "out": out, "jobs": 2, "compile": False, "engine": engine}
        config = BuildConfig(source=(str(source),), **options)  # type: ignore[arg-type]
        seconds, manifest = timed(lambda: build_dataset(config, StubScorer()))
        assert manifest["counts"]["accepted"] > 0.9 * rows, manifest["counts"]  # some are copies by chance
        return {"seconds": seconds, "passes": json.loads((out / "build.log.json").read_text())["seconds"]}


if __name__ == "__main__":
    print(json.dumps(_build(sys.argv[1], int(sys.argv[2]))))
