"""A build in a process that a test kills: forked from one that has the libraries loaded, since imports are most of a short build."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from curate import BuildConfig, build_dataset
from curate.score import StubScorer


class Slow(StubScorer):
    def score(self, samples: Any, done: Any) -> Iterator[Any]:
        time.sleep(0.03)
        return super().score(samples, done)


def build(source: Path, out: Path, model: Path) -> None:
    config = BuildConfig(source=(str(source),), out=out, model=str(model), jobs=1, shard_rows=2)
    build_dataset(config, Slow())


def start(source: Path, out: Path, model: Path) -> BaseProcess:
    """A build that is about to read its first row."""
    context = multiprocessing.get_context("forkserver")
    # not this module: the server has not our path
    context.set_forkserver_preload(["curate.driver", "curate.score", "transformers"])
    child = context.Process(target=build, args=(source, out, model))
    child.start()
    return child


def finish(child: BaseProcess) -> None:
    child.join(timeout=120)
    assert child.exitcode == 0
