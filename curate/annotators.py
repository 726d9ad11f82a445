"""Who runs the stages of the model: this process, or on several devices a process for each.

A shard's batches form inside it, so that its rows do not depend on which process it went to.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import multiprocessing.connection
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import polars as pl

from curate.config import BuildConfig
from curate.errors import CusetError, ModelError
from curate.pool import cores, follow_parent
from curate.previous import PreviousScores
from curate.stages import MODEL_STAGES, Context, run_stages

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from curate.score import Scorer

__all__ = ["Alone", "Annotator", "Fleet"]

Shards = Iterator[tuple[int, pl.DataFrame]]
Done = Callable[[int, int], None]


class Annotator(Protocol):
    """Runs the stages of the model over numbered shards."""

    def start(self) -> None:
        """Loads the model; raises ModelError or OptionError."""

    def run(self, shards: Shards) -> Shards:
        """The annotated shards, as they are finished."""

    def stop(self) -> None:
        """Ends what was started."""


class Alone:
    """The stages run in this process."""

    def __init__(self, context: Context, previous: Path) -> None:
        self.context, self.previous = context, previous

    def start(self) -> None:
        _ = self.context.scorer

    def run(self, shards: Shards) -> Shards:
        self.context.previous = PreviousScores(self.previous, self.context.config.extra_scores)
        for number, frame in shards:
            yield number, run_stages(MODEL_STAGES, frame, self.context)

    def stop(self) -> None:
        pass


class Fleet:
    """One process a device, each with the model in its memory and one shard at a time.

    `done` is told the rows and response tokens of each pass.
    """

    def __init__(
        self, config: BuildConfig, devices: Sequence[str], scorer: Scorer | None, previous: Path, done: Done
    ) -> None:
        self.config, self.devices, self.scorer, self.previous, self.done = config, devices, scorer, previous, done
        self._workers: dict[Connection, tuple[str, SpawnProcess]] = {}

    def start(self) -> None:
        if self._workers:
            return
        spawn = multiprocessing.get_context("spawn")
        for device in self.devices:
            here, there = spawn.Pipe()
            config = dataclasses.replace(self.config, device=device)
            arguments = (there, config, self.scorer, self.previous, max(1, cores() // len(self.devices)))
            process = spawn.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            there.close()  # so that the end of the process is seen as the end of the pipe
            self._workers[here] = (device, process)
        for connection in self._workers:
            self._receive(connection)

    def run(self, shards: Shards) -> Shards:
        first = next(shards, None)
        if first is None:
            return
        self.start()
        shards = chain([first], shards)
        busy: dict[Connection, int] = {}
        for connection in self._workers:
            self._give(connection, shards, busy)
        while busy:
            ready = set(multiprocessing.connection.wait(list(busy)))
            for connection in [c for c in busy if c in ready]:
                kind, content = self._receive(connection)
                if kind == "done":
                    self.done(*content)
                else:
                    yield busy.pop(connection), content
                    self._give(connection, shards, busy)

    def stop(self) -> None:
        for connection, (_, process) in self._workers.items():
            process.terminate()
            process.join()
            connection.close()
        self._workers = {}

    def _give(self, connection: Connection, shards: Shards, busy: dict[Connection, int]) -> None:
        shard = next(shards, None)
        if shard is None:
            return
        busy[connection], frame = shard
        try:
            connection.send(frame)
        except OSError:
            self._raise_death(connection)

    def _receive(self, connection: Connection) -> tuple[str, Any]:
        try:
            kind, content = connection.recv()
        except (EOFError, OSError):
            self._raise_death(connection)
        if kind == "error":
            raise content
        return kind, content

    def _raise_death(self, connection: Connection) -> NoReturn:
        device, process = self._workers[connection]
        process.join()
        raise ModelError(
            f"the process that scores on {device} has ended (exit code {process.exitcode}; out of memory?):"
            " what is done is kept; run the same command again to go on"
        )


def _serve(connection: Connection, config: BuildConfig, scorer: Scorer | None, previous: Path, threads: int) -> None:
    """The life of a process: loads the model, then takes frames and gives them back annotated."""
    import torch

    follow_parent()
    if config.device == "cpu":
        torch.set_num_threads(threads)
    try:
        context = Context(config, scorer, lambda rows, tokens: connection.send(("done", (rows, tokens))))
        _ = context.encoder, context.scorer
        connection.send(("ready", None))
        while True:
            try:
                frame = connection.recv()
            except EOFError:
                return
            if context.previous is None:  # not before: the parent sets the old scores aside once models are loaded
                context.previous = PreviousScores(previous, config.extra_scores)
            connection.send(("frame", run_stages(MODEL_STAGES, frame, context)))
    except CusetError as error:
        connection.send(("error", error))
