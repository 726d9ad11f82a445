"""Peak memory and rate of whole builds of generated rows, each in a process of its own; scores drawn at random.

One job, so that the process is the whole of the build. About three minutes on idle cores.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.score import StubScorer
from tests.benchmarks.figures import Figure, timed
from tests.benchmarks.generated import write_pairs

__all__ = ["measure"]

_ROOT = Path(__file__).parents[2]
_FEW, _MANY = 1_000, 20_000


def measure() -> list[Figure]:
    """Peak resident memory, the libraries (torch among them) included."""
    few, many = _built(_FEW), _built(_MANY)
    seconds = many["seconds"]
    passes = ", ".join(f"{name} {s:.0f} s" for name, s in many["passes"].items() if name != "total")
    return [
        Figure(f"peak at {_FEW} rows", few["peak"], "MB", f"{few['before']:.0f} MB of it libraries"),
        Figure(f"peak at {_MANY} rows", many["peak"], "MB", f"{many['megabytes']:.0f} MB of source"),
        Figure("peak, many over few", many["peak"] / few["peak"], "x", f"{_MANY // _FEW} times the rows"),
        Figure("time", seconds, "s", passes),
        Figure("rate", _MANY / seconds, "rows/s", f"{_FEW / few['seconds']:.1f} rows/s at {_FEW} rows"),
    ]


def _built(rows: int) -> dict[str, float | dict[str, float]]:
    command = [sys.executable, "-m", "tests.benchmarks.scale", str(rows)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=_ROOT)
    return json.loads(done.stdout)


def _peak() -> float:
    """Highest resident memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e6 / 1024)


def _build(rows: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as temporary:
        source, out = Path(temporary) / "pairs.jsonl", Path(temporary) / "out"
        size = write_pairs(rows, source)
        before = _peak()
        # without compilers, which work in processes of their own and would take a quarter of an hour
        config = BuildConfig(source=(str(source),), license="CC0-1.0", out=out, jobs=1, compile=False)
        seconds, manifest = timed(lambda: build_dataset(config, StubScorer()))
        assert manifest["counts"]["accepted"] > 0.9 * rows, manifest["counts"]  # some are copies by chance
        passes = json.loads((out / "build.log.json").read_text())["seconds"]
        return {"peak": _peak(), "before": before, "megabytes": size / 1e6, "seconds": seconds, "passes": passes}


if __name__ == "__main__":
    print(json.dumps(_build(int(sys.argv[1]))))
