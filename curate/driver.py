"""Runs a build: splits the rows into shards, journals, writes.

The only place that touches disk, progress and processes. Four passes: parse (measures each row, in a pool of
processes, into OUT/.cuset/parsed-KEY), judge (filters and duplicates, over the measured columns), annotate (tokenise,
score, label, weigh, into the parts of the dataset), and regions (below the mean of the whole build, so made anew each
time). A part is written under a temporary name and renamed, and a shard whose parts stand is not done again, so that a
killed build goes on where it was and ends with the same bytes: what a shard holds and how its batches form depends on
the shard alone.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from curate.annotators import Alone, Annotator, Fleet
from curate.compiling import check_archs, compilers
from curate.config import BuildConfig
from curate.contamination import load_references
from curate.errors import OptionError, SourceError
from curate.executing import check_command, command_identity
from curate.folder import OutFolder
from curate.frames import frame_of
from curate.judge import Judge
from curate.keys import plan_of, stage_keys
from curate.manifest import write_manifest
from curate.parts import Parts
from curate.pool import cores, in_order
from curate.progress import Reporter, write_log
from curate.regions import write_regions
from curate.sources import BUNDLED, Row, Source, open_sources, parse_spec
from curate.stages import Context, asked_of_model, measured
from curate.store import is_whole, part_files, read_part, write_frame
from curate.summary import count_rows

if TYPE_CHECKING:
    from curate.cluster import Cluster
    from curate.score import Scorer

__all__ = ["build_dataset", "default_out"]


def default_out(config: BuildConfig) -> Path:
    """data/build/NAME, after the first source, and which part of it is built."""
    first = parse_spec((config.source or (BUNDLED,))[0])
    part = "" if config.shards is None else f"-{config.shard}-of-{config.shards}"
    return Path("data") / "build" / f"{first.stem or 'source'}{part}"


def build_dataset(config: BuildConfig, scorer: Scorer | None = None) -> dict[str, Any]:
    """Builds the dataset at `config.out` and returns its manifest. `scorer` stands in for the model's, in tests.

    Raises CusetError. A build that does not balance (rows read = accepted + rejected + failed) raises too, and leaves
    no manifest.
    """
    config = config.resolved(default_out(config))
    assert config.out is not None
    return _Build(config, OutFolder(config.out), scorer).run()


class _Build:
    def __init__(self, config: BuildConfig, folder: OutFolder, scorer: Scorer | None) -> None:
        self.config, self.folder, self.out = config, folder, folder.path
        self.began = time.monotonic()
        self.seconds: dict[str, float] = {}
        self.scorer = scorer
        self.context = Context(config, scorer, self._advance)
        self.reporter = Reporter("", None)
        self.parts = Parts(self.out, config.extra_scores)
        self.cluster: Cluster | None = None
        self.ending = contextlib.ExitStack()

    def run(self) -> dict[str, Any]:
        with self.ending:
            return self._run()

    def _run(self) -> dict[str, Any]:
        """All that may be refused is refused before the folder is touched: sources, tokenizer, model, options."""
        self._keep_apart()
        if self.config.execute is not None:
            check_command(self.config.execute)
        if self.config.compile and self.config.arch:
            check_archs(self.config.arch)
        sources = open_sources(self.config.source, self.config.map, self.config.license)
        inputs: dict[str, Any] = {
            "sources": [s.fingerprint() for s in sources],
            "model": self.context.files.identity() | {"parameters": self._parameters()},
            "tokenizer": self.context.encoder.identity(),
        }
        if not self.config.skip_scoring:
            inputs["scorer"] = {} if self.config.engine == "ray" else self.context.scorer_identity()
        if self.context.reference is not None:
            inputs["reference"] = self.context.reference.identity()
        if self.config.compile:
            inputs["compilers"] = compilers()
        self.references = load_references(self.config.against) if self.config.against else None
        if self.references is not None:
            inputs["against"] = self.references.identity()
        if self.config.execute is not None:
            inputs["execute"] = command_identity(self.config.execute)
        if self.config.engine == "ray":
            inputs |= self._cluster(inputs)
        keys = stage_keys(self.config, inputs)
        plan = plan_of(self.config, inputs, keys)
        if self.cluster is None:
            self.annotator = self._annotator()
            self.ending.callback(self.annotator.stop)
            if self.folder.plan is None and not self.config.skip_scoring:
                self.annotator.start()  # a model that cannot be loaded is told before the first row is read
        return self._build(sources, inputs, keys, plan)

    def _cluster(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Starts the engine `ray`; returns who scores there. That is to be asked there: this machine may be another."""
        from curate.cluster import Cluster

        self.cluster = Cluster(self.config, self.scorer, self.folder)
        self.ending.callback(self.cluster.stop)
        self.cluster.start()
        return self.cluster.introduced(inputs, load=self.folder.plan is None and not self.config.skip_scoring)

    def _parameters(self) -> int | None:
        """The size of the model; None where it scores nothing."""
        return None if self.config.skip_scoring else self.context.files.parameters()

    def _annotator(self) -> Annotator:
        previous = self.folder.previous
        from curate.devices import find_devices  # torch: the processes that parse do without it

        devices = [str(d) for d in find_devices(self.config.device)]
        if len(devices) > 1 and not self.config.skip_scoring:
            return Fleet(self.config, devices, self.scorer, previous, self._advance)
        return Alone(self.context, previous)

    def _advance(self, rows: int, tokens: int) -> None:
        self.reporter.advance(rows, tokens)

    def _build(
        self, sources: list[Source], inputs: dict[str, Any], keys: dict[str, str], plan: dict[str, str]
    ) -> dict[str, Any]:
        with self.folder.locked():
            self.folder.open(plan, overwrite=self.config.overwrite)
            self.parsed = self.folder.journal / f"parsed-{keys['parse']}-{self.config.shard_rows}"
            with contextlib.nullcontext() if self.cluster is None else self.cluster.at_work(self.parsed):
                read = self._parse(sources)
                if [s.fingerprint() for s in sources] != inputs["sources"]:
                    shutil.rmtree(self.parsed)  # rows of two states of the file, under the key of one
                    raise SourceError("a source has changed while it was read: run the build again with --overwrite")
                self._annotate(self._judge())
            counts = count_rows(self.out, read)
            regions = self._find_regions()
            self.seconds["total"] = time.monotonic() - self.began
            rate = self.reporter.tokens / max(self.seconds["annotate"], 1e-9) or None
            write_log(self.out, self.seconds, rate)  # before the manifest: behind that nothing may fail any more
            manifest = write_manifest(self.out, self.config, inputs, keys, counts, regions)
            self.folder.close(self.parsed)
        return manifest

    def _keep_apart(self) -> None:
        """Refuses a source inside the output folder, which --overwrite would delete, and an output inside a source."""
        out = self.out.resolve()
        for spec in self.config.source:
            place = parse_spec(spec).place
            if place == BUNDLED or place.startswith("hf://"):
                continue
            path = Path(place).resolve()
            if path.is_relative_to(out) or (path.is_dir() and out.is_relative_to(path)):
                raise OptionError(f"--out {self.out} and --source {spec} lie inside each other; give another --out")

    # -- pass 1: read, extract, parse -------------------------------------------------------------------------------

    def _shards(self, sources: list[Source]) -> Iterator[tuple[int, pl.DataFrame]]:
        """The rows in runs of `shard_rows`; of several jobs (`--shards`) each takes every N-th run."""
        rows: Iterator[Row] = (row for source in sources for row in source.rows())
        rows = islice(rows, self.config.limit)
        jobs, own = self.config.shards or 1, self.config.shard or 0
        size = self.config.shard_rows
        for run in range(10**9):
            chunk = list(islice(rows, size))
            if run % jobs == own and (chunk or run == own):  # without a row there is still one, empty, part
                yield run // jobs, frame_of(chunk, run * size)
            if not chunk and run >= own:
                return

    def _parse(self, sources: list[Source]) -> int:
        """Measures every row that has not been measured yet; returns the number of rows read."""
        began, read = time.monotonic(), 0
        self.parsed.mkdir(parents=True, exist_ok=True)
        standing = {int(path.stem) for path in part_files(self.parsed) if is_whole(path)}

        def missing() -> Iterator[tuple[int, pl.DataFrame]]:
            nonlocal read
            for number, frame in self._shards(sources):
                read += len(frame)
                if number in standing:
                    self.reporter.advance(rows=len(frame))
                else:
                    yield number, frame

        with Reporter("parse", None) as self.reporter:
            finished = self._measured(missing()) if self.cluster is None else self.cluster.measured(missing())
            for rows in finished:
                self.reporter.advance(rows=rows)
        self.seconds["parse"] = time.monotonic() - began
        return read

    def _measured(self, shards: Iterator[tuple[int, pl.DataFrame]]) -> Iterator[int]:
        for number, frame in in_order(partial(measured, self.config), shards, self.config.jobs or cores()):
            write_frame(frame, self.parsed / f"{number:06d}.parquet")
            yield len(frame)

    # -- pass 2: filters and duplicates, over all rows --------------------------------------------------------------

    def _judge(self) -> Judge:
        began = time.monotonic()
        judge = Judge(self.config, self.references, self.context.encoder, self.parsed, self.folder.journal)
        with Reporter("judge", None) as self.reporter:
            judge.run(self.reporter)
        self.seconds["judge"] = time.monotonic() - began
        return judge

    # -- pass 3: tokenise, score, label, weigh ----------------------------------------------------------------------

    def _annotate(self, judge: Judge) -> None:
        began = time.monotonic()
        with Reporter("annotate" if self.config.skip_scoring else "score", judge.left) as self.reporter:
            self.finished = 0
            left = self._not_annotated(judge)
            finished = self._annotated(judge, left) if self.cluster is None else self.cluster.annotated(list(left))
            for rows, tokens in finished:
                self._finish(rows, tokens)
        self.seconds["annotate"] = time.monotonic() - began

    def _not_annotated(self, judge: Judge) -> Iterator[int]:
        """The shards whose parts do not stand yet."""
        for number in range(len(part_files(self.parsed))):
            if self.parts.stand(number):
                self._finish(judge.verdict(number)["reason"].null_count())
            else:
                yield number

    def _annotated(self, judge: Judge, numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
        paths = part_files(self.parsed)
        for number, frame in self.annotator.run((n, judge.apply(n, read_part(paths[n]))) for n in numbers):
            self.parts.write(number, frame)
            yield asked_of_model(frame), 0  # the tokens have been told, pass for pass

    def _finish(self, rows: int, tokens: int = 0) -> None:
        """Counts the rows of a finished shard, those included whose scores no model had to give, and the tokens of it
        that are not counted yet."""
        self.finished += rows
        self.reporter.advance(max(0, self.finished - self.reporter.rows), tokens)

    # -- pass 4: regions, below the mean of the whole build ---------------------------------------------------------

    def _find_regions(self) -> dict[str, Any]:
        began = time.monotonic()
        found = write_regions(self.out, part_files(self.parsed), self.config.region_gap, self.config.jobs)
        self.seconds["regions"] = time.monotonic() - began
        return found
