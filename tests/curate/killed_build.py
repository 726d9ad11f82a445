"""A build in a process that a test kills: forked from one that has the libraries loaded, since imports are most of a short build."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from curate import BuildConfig, build_dataset, console
from curate.build import run
from curate.score import StubScorer


class Slow(StubScorer):
    def score(self, samples: Any, done: Any) -> Iterator[Any]:
        time.sleep(0.03)
        return super().score(samples, done)


def build(source: Path, out: Path, model: Path) -> None:
    config = BuildConfig(source=(str(source),), out=out, model=str(model), jobs=1, shard_rows=2)
    build_dataset(config, Slow())


def command(arguments: Sequence[str]) -> None:
    """`python -m curate.build`."""
    import torch

    torch.set_num_threads(1)  # two wait for each other on a busy machine
    sys.argv[1:] = arguments
    console.main(run)


def start(work: Callable[..., None], *arguments: object) -> BaseProcess:
    """A process in which `build` or `command` is about to begin."""
    context = multiprocessing.get_context("forkserver")
    # not this module: the server has not our path. The last is what `transformers` loads for the first Llama, and takes longest
    context.set_forkserver_preload(["curate.driver", "curate.score", "transformers.models.llama.modeling_llama"])
    child = context.Process(target=work, args=arguments)
    child.start()
    return child


def finish(child: BaseProcess) -> None:
    child.join(timeout=120)
    assert child.exitcode == 0
