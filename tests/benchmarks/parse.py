"""The parse pass (reading, extraction, parsing, writing what was measured) with one process and with two."""

from __future__ import annotations

import resource
import tempfile
from pathlib import Path

from curate.config import BuildConfig
from curate.driver import _Build
from curate.folder import OutFolder
from curate.score import StubScorer
from curate.sources import open_sources
from tests.benchmarks.figures import Figure, timed
from tests.benchmarks.generated import write_pairs

__all__ = ["measure"]

_ROWS = 6_000


def measure() -> list[Figure]:
    """One job works in this process. What a pool costs before its first row is measured with two rows, and taken off.

    The parent's processor time in the run of two jobs (reading, identities, pickling, writing) is what the others
    have to share two cores with.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        few, many = folder / "few.jsonl", folder / "many.jsonl"
        write_pairs(2, few)
        size = write_pairs(_ROWS, many)
        _pass(few, folder / "warm", 1)  # compiles the queries
        start = _pass(few, folder / "start", 2)
        one = _pass(many, folder / "one", 1)
        before = _processor()
        two = _pass(many, folder / "two", 2)
        parent = _processor() - before
    return [
        Figure("one job", one, "s", f"{_ROWS} rows, {size / one / 1e6:.2f} MB/s"),
        Figure("two jobs", two, "s", f"parent's processor time {parent:.1f} s"),
        Figure("start of a pool of two", start, "s", "once a build"),
        Figure("one over two", one / two, "x"),
        Figure("one over two, start taken off", one / (two - start), "x", "2: all of it in parallel"),
    ]


def _pass(source: Path, out: Path, jobs: int) -> float:
    config = BuildConfig(source=(str(source),), license="CC0-1.0", out=out, jobs=jobs)
    build = _Build(config, OutFolder(out), StubScorer())
    build.parsed = out / "parsed"
    sources = open_sources(config.source, config.map, config.license)
    seconds, read = timed(lambda: build._parse(sources))
    assert read == len(source.read_text().splitlines())
    return seconds


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
