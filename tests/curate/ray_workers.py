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

from curate.cluster_work import Place, measure_shard
from curate.config import BuildConfig
from curate.errors import ModelError
from curate.score import StubScorer
from curate.stages import measured

DEADLY = "the deadly row"
"""In a prompt: parsing it kills the process."""


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def measure_deadly(config: BuildConfig, frame: pl.DataFrame) -> pl.DataFrame:
    """`measured`, which dies of the deadly row."""
    if frame.filter(pl.col("reason").is_null() & (pl.col("prompt") == DEADLY)).height:
        _kill()
    return measured(config, frame)


def parse_killed_once(batch: Mapping[str, np.ndarray], config: BuildConfig, place: Place) -> dict[str, np.ndarray]:
    """`measure_shard` in a process that is killed while the file `kill-worker` lies beside the dataset's folder."""
    trap = place.parts.out.parent / "kill-worker"
    if trap.exists():
        trap.unlink()
        _kill()
    return measure_shard(batch, config, place)


class Faulty(StubScorer):
    """A defect: no figures for the shortest sample of a shard. And its process is killed once, while the file is
    there."""

    def __init__(self, trap: Path) -> None:
        self.trap = trap

    def score(self, samples: Sequence[Any], done: Any) -> Any:
        if self.trap.exists():
            self.trap.unlink()
            _kill()
        scores: list[Any] = super().score(samples, done)
        scores[min(range(len(samples)), key=lambda n: len(samples[n][0]))] = None
        return scores


class Halting(StubScorer):
    """Raises once it has scored some shards, while the file is there."""

    def __init__(self, file: Path, shards: int = 0) -> None:
        self.file, self.left = file, shards

    def score(self, samples: Sequence[Any], done: Any) -> Any:
        self.left -= 1
        if self.left < 0 and self.file.exists():
            raise ModelError("a sample of 9 tokens does not fit")
        return super().score(samples, done)


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
