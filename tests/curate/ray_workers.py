"""What the tests of the engine `ray` run in its processes; they import this module and no test."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from curate import cluster_work
from curate.cluster_work import Place
from curate.config import BuildConfig
from curate.errors import ModelError
from curate.score import StubScorer
from curate.stages import measured

DEADLY = "the deadly row"
"""In a prompt: parsing it kills the process, where `parse_deadly` parses."""


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def measure_deadly(config: BuildConfig, frame: pl.DataFrame) -> pl.DataFrame:
    """Dies of the deadly row; once only, where it is not for good."""
    rows = frame.filter(pl.col("reason").is_null() & (pl.col("prompt") == DEADLY))
    once = Path(os.environ.get("CUSET_TEST_ONCE", "/nowhere"))
    if len(rows):
        _kill()
    if once.exists():
        once.unlink()
        _kill()
    return measured(config, frame)


def parse_deadly(batch: Mapping[str, np.ndarray], config: BuildConfig, place: Place) -> dict[str, np.ndarray]:
    """`measure_shard` with the above; the file `once` beside the dataset's folder kills a process once."""
    os.environ["CUSET_TEST_ONCE"] = str(place.parts.out.parent / "once")
    cluster_work.measured = measure_deadly
    return cluster_work.measure_shard(batch, config, place)


class Mortal(StubScorer):
    """Its process dies while the file is there; of the first shard alone, where it is `once`."""

    def __init__(self, file: Path, once: bool) -> None:
        self.file, self.once = file, once

    def score(self, samples: Sequence[Any], done: Any) -> Any:
        if self.file.exists():
            if self.once:
                self.file.unlink()
            _kill()
        return super().score(samples, done)


class Halting(StubScorer):
    """Raises once it has scored some shards, while the file is there."""

    def __init__(self, file: Path, shards: int = 0) -> None:
        self.file, self.left = file, shards

    def score(self, samples: Sequence[Any], done: Any) -> Any:
        self.left -= 1
        if self.left < 0 and self.file.exists():
            raise ModelError("a sample of 9 tokens does not fit")
        return super().score(samples, done)


class Faulty(StubScorer):
    """A defect: it gives no figures for the shortest sample of a shard."""

    def score(self, samples: Sequence[Any], done: Any) -> Any:
        scores: list[Any] = super().score(samples, done)
        scores[min(range(len(samples)), key=lambda n: len(samples[n][0]))] = None
        return scores


class Slow(StubScorer):
    """Half a second a shard, so that a build can be stopped in the middle."""

    def score(self, samples: Sequence[Any], done: Any) -> Any:
        time.sleep(0.5)
        return super().score(samples, done)


def another_model(*_: object) -> dict[str, Any]:
    return {"model": {"name": "another"}, "tokenizer": {}, "scorer": {}}


def blind(*_: object) -> tuple[str, bool, dict[str, str]]:
    return "node7", False, {}


def outdated(*_: object) -> tuple[str, bool, dict[str, str]]:
    return "node7", True, {"polars": "0.1"}
