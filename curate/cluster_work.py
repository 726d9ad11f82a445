"""What the processes of a Ray cluster do: measure a shard, annotate a shard, say what they are.

They are given numbers, read the shard's file from the build's folder, write its results there and give back counts.
A process may be killed at any moment, and its shard is then given to another: results are written in a folder of the
attempt's own and renamed, and what stands is not done again. Errors are given back as values, since Ray would wrap
them into pages of its own words.
"""

from __future__ import annotations

import os
import pickle
import socket
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from curate.config import BuildConfig
from curate.errors import CusetError, ModelError
from curate.judge import judged
from curate.parts import Parts
from curate.pool import row_by_row
from curate.previous import PreviousScores
from curate.stages import MODEL_STAGES, Context, asked_of_model, measured, run_stages
from curate.store import is_whole, read_part, write_frame

if TYPE_CHECKING:
    from curate.score import Scorer

__all__ = ["Annotate", "Place", "as_error", "introduce", "look_around", "measure_shard", "rows_file"]

Batch = Mapping[str, np.ndarray]
_ATTEMPTS = 3
"""How often a shard is given to a process that dies of it before it is taken apart, or given up."""


@dataclass(frozen=True)
class Place:
    """Where a build lies, by paths that hold on every machine: `scratch` is the cluster's own folder in the journal."""

    parts: Parts
    parsed: Path
    verdicts: Path
    previous: Path
    scratch: Path

    def attempt(self, kind: str, number: int) -> int:
        """Counts the attempts at a shard, this one included."""
        file = self.scratch / f"{kind}-{number:06d}.attempts"
        with file.open("ab") as opened:
            opened.write(b".")
        return file.stat().st_size


def rows_file(scratch: Path, number: int) -> Path:
    """The rows of a shard that nobody has measured yet."""
    return scratch / f"rows-{number:06d}.parquet"


def _answer(batch: Batch, work: Callable[[int], tuple[int, int]]) -> dict[str, np.ndarray]:
    """The row that a task gives back for the one that it is given: (rows, tokens) of the shard, or an error."""
    number, error, rows, tokens = int(batch["number"][0]), b"", 0, 0
    try:
        rows, tokens = work(number)
    except Exception as raised:
        error = _pickled(raised)
    columns = {"number": number, "rows": rows, "tokens": tokens}
    return {**{name: np.array([n], np.int64) for name, n in columns.items()}, "error": np.array([error], object)}


def _pickled(error: Exception) -> bytes:
    try:
        content = pickle.dumps(error)
        pickle.loads(content)
        return content
    except Exception:  # an error of a library that does not travel
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))


def as_error(content: bytes) -> Exception:
    """The error that a process has given back."""
    error: Exception = pickle.loads(content)
    return error


def measure_shard(batch: Batch, config: BuildConfig, place: Place) -> dict[str, np.ndarray]:
    """Runs the stages of the parse pass over a shard.

    A shard whose process has died is tried again once; then row by row, so that the row that kills costs itself alone.
    """

    def work(number: int) -> tuple[int, int]:
        source, target = rows_file(place.scratch, number), place.parsed / f"{number:06d}.parquet"
        if is_whole(target):  # by an attempt that died before it could say so
            return read_part(target, columns=["row"]).height, 0
        frame = read_part(source)
        again = place.attempt("parse", number) >= _ATTEMPTS
        run = partial(measured, config)
        frame = row_by_row(run, frame) if again else run(frame)
        with _own_folder(place) as folder:
            write_frame(frame, folder / target.name)
            (folder / target.name).replace(target)
        source.unlink(missing_ok=True)
        return len(frame), 0

    return _answer(batch, work)


class _own_folder:
    """A folder of one attempt, below the cluster's: one that is thought dead cannot write into its successor's."""

    def __init__(self, place: Place) -> None:
        self.path = place.scratch / f"attempt-{uuid.uuid4().hex}"

    def __enter__(self) -> Path:
        self.path.mkdir()  # not its parents: without the cluster's folder the build has gone on without us
        return self.path

    def __exit__(self, *_: object) -> None:
        for file in self.path.iterdir():
            file.unlink()
        self.path.rmdir()


class Annotate:
    """An actor that holds the model, and annotates one shard after the other."""

    def __init__(self, config: BuildConfig, scorer: Scorer | None, place: Place, threads: int) -> None:
        self.place, self.config, self.tokens = place, config, 0
        self.error: Exception | None = None
        try:
            self.context = _loaded(config, scorer, threads, self._done)
            self.context.previous = PreviousScores(place.previous, config.extra_scores)
        except Exception as error:  # told in answer to the first shard
            self.error = error

    def _done(self, rows: int, tokens: int) -> None:
        self.tokens += tokens

    def __call__(self, batch: Batch) -> dict[str, np.ndarray]:
        """(rows that the model was asked for, response tokens that it scored) of a shard."""
        return _answer(batch, self._annotate)

    def _annotate(self, number: int) -> tuple[int, int]:
        if self.error is not None:
            raise self.error
        if self.place.parts.stand(number):
            return read_part(self.place.parts.path("samples", number), columns=["sample_id"]).height, 0
        if self.place.attempt("annotate", number) > _ATTEMPTS:
            raise ModelError(
                f"the process that scores has died {_ATTEMPTS} times over shard {number} (out of memory?):"
                " what is done is kept; give fewer --batch-tokens or a smaller --shard-rows, and run again to go on"
            )
        self.tokens = 0
        name = f"{number:06d}.parquet"
        frame = judged(read_part(self.place.parsed / name), read_part(self.place.verdicts / name))
        frame = run_stages(MODEL_STAGES, frame, self.context)
        with _own_folder(self.place) as folder:
            self.place.parts.write(number, frame, folder)
        return asked_of_model(frame), self.tokens


def _loaded(
    config: BuildConfig, scorer: Scorer | None, threads: int, done: Callable[[int, int], None] = lambda *_: None
) -> Context:
    context = Context(config, scorer, done)
    _ = context.encoder
    if not config.skip_scoring:
        import torch

        if config.device == "cpu":
            torch.set_num_threads(threads)
        _ = context.scorer
    return context


def introduce(config: BuildConfig, scorer: Scorer | None, threads: int, load: bool) -> dict[str, Any]:
    """What an actor of this configuration would score with; loads the model where `load` says so.

    An error is given back as `error`.
    """
    try:
        context = _loaded(config, scorer, threads) if load else Context(config, scorer)
        said: dict[str, Any] = {"model": context.files.identity(), "tokenizer": context.encoder.identity()}
        if not config.skip_scoring:
            said["scorer"] = context.scorer_identity()
        if context.reference is not None:
            said["reference"] = context.reference.identity()
        return said
    except CusetError as error:
        return {"error": _pickled(type(error)(f"on {socket.gethostname()}: {error}"))}
    except Exception as error:
        return {"error": _pickled(error)}


def look_around(scratch: Path, packages: tuple[str, ...]) -> tuple[str, bool, dict[str, str]]:
    """(name of the machine, whether it sees the build's folder and may write there, versions of its packages)."""
    sees = scratch.is_dir() and os.access(scratch, os.W_OK)
    return socket.gethostname(), sees, {name: version(name) for name in packages}
