"""Runs a build: splits the rows into shards, journals, writes.

The only place that touches disk, progress and processes. Three passes over the shards: parse (in a pool of processes,
into OUT/.build/parsed), duplicates (over the ids alone), and model (tokenise, score, label, weigh, into the parts of
the dataset). A part is written under a temporary name and renamed, and a shard whose parts stand is not done again, so
that a killed build goes on where it was and ends with the same bytes: what a shard holds and how its batches form
depends on the shard alone.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import shutil
import time
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from curate.config import BuildConfig
from curate.errors import CusetError, DatasetError
from curate.frames import FAILED, frame_of, refuse
from curate.manifest import write_manifest
from curate.progress import Reporter
from curate.schema import REFUSED, REJECTED, SAMPLES
from curate.sources import Row, Source, open_sources
from curate.stages import MODEL_STAGES, PARSE_STAGES, Context, run_stages, stage_keys
from curate.store import replace_file, write_part

if TYPE_CHECKING:
    from curate.score import Scorer

__all__ = ["build_dataset", "default_out"]

log = logging.getLogger(__name__)

_JOURNAL = ".build"
_TABLES = {"samples": SAMPLES, "rejected": REJECTED, "refused": REFUSED}


def default_out(config: BuildConfig) -> Path:
    """Data/build/NAME, after the first source."""
    first = (config.source or ("bundled",))[0]
    return Path("data") / "build" / (Path(first).resolve().stem if first != "bundled" else "bundled")


def build_dataset(config: BuildConfig, scorer: Scorer | None = None) -> dict[str, Any]:
    """Builds the dataset at `config.out` and returns its manifest. `scorer` stands in for the model's, in tests.

    Raises CusetError. A build that does not balance (rows read = accepted + rejected + failed) raises too, and leaves
    no manifest.
    """
    config = config.resolved(default_out(config))
    assert config.out is not None
    return _Build(config, config.out, scorer).run()


class _Build:
    def __init__(self, config: BuildConfig, out: Path, scorer: Scorer | None) -> None:
        self.config, self.out = config, out
        self.journal = out / _JOURNAL
        self.began = time.monotonic()
        self.seconds: dict[str, float] = {}
        self.context = Context(config, scorer, lambda rows, tokens: self.reporter.advance(rows, tokens))
        self.reporter = Reporter("", None)

    def run(self) -> dict[str, Any]:
        sources = open_sources(self.config.source, self.config.map, self.config.license)
        encoder = self.context.encoder
        identity: dict[str, Any] = {"model": self.context.files.identity(), "tokenizer": encoder.identity()}
        if not self.config.skip_scoring:
            identity["scorer"] = self.context.scorer.identity()
        inputs = {"sources": [s.fingerprint() for s in sources], **identity}
        keys = stage_keys(self.config, inputs)
        self._prepare_folder(keys["weigh"] + f"-{self.config.shard_rows}")
        read = self._parse(sources)
        duplicates = self._duplicates()
        self._annotate(duplicates)
        counts = self._counts(read)
        manifest = write_manifest(self.out, self.config, inputs, keys, counts)
        self._write_log(counts)
        shutil.rmtree(self.journal)
        return manifest

    # -- the folder -------------------------------------------------------------------------------------------------

    def _prepare_folder(self, key: str) -> None:
        """An empty folder, or one in which this very build was interrupted.

        Raises DatasetError for any other.
        """
        out, started = self.out, self.journal / "key"
        try:
            if out.is_dir() and any(out.iterdir()):
                ours = (out / "manifest.json").is_file() or started.is_file()
                if started.is_file() and started.read_text() == key:
                    log.info("going on with the build that was interrupted in %s", out)
                    return
                if not ours:
                    raise DatasetError(f"--out {out}: the folder holds other files; give an empty or a new one")
                if not self.config.overwrite:
                    state = (
                        "a dataset"
                        if (out / "manifest.json").is_file()
                        else "an unfinished build with other options or sources"
                    )
                    raise DatasetError(f"--out {out}: holds {state}; give another folder, or --overwrite to replace it")
                for name in ("manifest.json", "build.log.json", "README.md"):  # first what makes it a dataset
                    (out / name).unlink(missing_ok=True)
                for name in (*_TABLES, _JOURNAL):
                    shutil.rmtree(out / name, ignore_errors=True)
            self.journal.mkdir(parents=True, exist_ok=True)
            replace_file(started, key.encode())
        except OSError as error:
            raise DatasetError(f"--out {out}: cannot write there: {error.strerror or error}") from error

    # -- pass 1: read, extract, parse -------------------------------------------------------------------------------

    def _shards(self, sources: list[Source]) -> Iterator[tuple[int, pl.DataFrame]]:
        rows: Iterator[Row] = (row for source in sources for row in source.rows())
        rows = islice(rows, self.config.limit)
        first = 0
        for number in range(10**9):
            chunk = list(islice(rows, self.config.shard_rows))
            if not chunk and number:  # an empty corpus still makes one, empty, part
                return
            yield number, frame_of(chunk, first)
            first += len(chunk)

    def _parsed(self, number: int) -> Path:
        return self.journal / "parsed" / f"{number:05d}.parquet"

    def _parse(self, sources: list[Source]) -> int:
        """Rows read.

        Parses shards in a pool of processes, a few ahead of the slowest, and writes them in order.
        """
        began, read = time.monotonic(), 0
        jobs = self.config.jobs or multiprocessing.cpu_count()
        self._parsed(0).parent.mkdir(parents=True, exist_ok=True)
        waiting: deque[tuple[int, int, Future[pl.DataFrame] | pl.DataFrame]] = deque()
        pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) if jobs > 1 else None
        with Reporter("parse", None) as self.reporter:
            try:
                for number, frame in self._shards(sources):
                    read += len(frame)
                    if self._parsed(number).is_file():
                        self.reporter.advance(rows=len(frame))
                        continue
                    result = pool.submit(_parse_shard, frame, self.config) if pool else _parse_shard(frame, self.config)
                    waiting.append((number, len(frame), result))
                    while len(waiting) > 2 * jobs:
                        self._collect(*waiting.popleft())
                while waiting:
                    self._collect(*waiting.popleft())
            except BrokenProcessPool as error:
                raise CusetError(
                    "a parsing process died (out of memory?): run the same command again to go on, with --jobs 1"
                ) from error
            finally:
                if pool:
                    pool.shutdown(wait=False, cancel_futures=True)
        self.seconds["parse"] = time.monotonic() - began
        return read

    def _collect(self, number: int, rows: int, result: Future[pl.DataFrame] | pl.DataFrame) -> None:
        frame = result.result() if isinstance(result, Future) else result
        path = self._parsed(number)
        temporary = path.with_name(path.name + ".tmp")
        frame.write_parquet(temporary, compression="lz4")
        temporary.replace(path)
        self.reporter.advance(rows=rows)

    # -- pass 2: duplicates -----------------------------------------------------------------------------------------

    def _duplicates(self) -> dict[int, tuple[str, str, str]]:
        """Rows whose messages an earlier accepted row has, byte for byte: row -> (stage, reason, detail)."""
        kept: dict[str, int] = {}
        duplicates = {}
        for path in sorted(self._parsed(0).parent.glob("*.parquet")):
            frame = pl.read_parquet(path, columns=["row", "sample_id", "reason"])
            for row, identity, reason in frame.iter_rows():
                if reason is None and kept.setdefault(identity, row) != row:
                    duplicates[row] = ("duplicates", "exact_duplicate", f"of {identity}, row {kept[identity]}")
        return duplicates

    # -- pass 3: tokenise, score, label, weigh ----------------------------------------------------------------------

    def _part(self, table: str, number: int) -> Path:
        return self.out / table / f"part-{number:05d}.parquet"

    def _annotate(self, duplicates: dict[int, tuple[str, str, str]]) -> None:
        began = time.monotonic()
        shards = sorted(self._parsed(0).parent.glob("*.parquet"))
        total = sum(pl.read_parquet(p, columns=["reason"])["reason"].null_count() for p in shards) - len(duplicates)
        finished = 0
        with Reporter("annotate" if self.config.skip_scoring else "score", total) as self.reporter:
            for number, path in enumerate(shards):
                parts = {table: self._part(table, number) for table in _TABLES}
                if not all(part.is_file() for part in parts.values()):
                    frame = pl.read_parquet(path)
                    here = {row: mark for row in frame["row"].to_list() if (mark := duplicates.get(row))}
                    frame = run_stages(MODEL_STAGES, refuse(frame, here), self.context)
                    for table, rows in _tables(frame).items():
                        write_part(rows, _TABLES[table], parts[table])
                open_rows = pl.read_parquet(path, columns=["row", "reason"]).filter(pl.col("reason").is_null())
                finished += sum(row not in duplicates for row in open_rows["row"].to_list())
                self.reporter.advance(rows=finished - self.reporter.rows)
        self.seconds["annotate"] = time.monotonic() - began

    # -- the end ----------------------------------------------------------------------------------------------------

    def _counts(self, read: int) -> dict[str, Any]:
        """The funnel, counted from the files that were written; raises CusetError unless it balances."""
        rejected = pl.scan_parquet(self.out / "rejected" / "*.parquet", glob=True).select("stage", "reason").collect()
        accepted = int(pl.scan_parquet(self.out / "samples" / "*.parquet").select(pl.len()).collect().item())
        by_reason = Counter(rejected.iter_rows())
        order = ["read", "extract", "parse", "duplicates", *(s.name for s in MODEL_STAGES)]
        refused: dict[str, dict[str, int]] = {}
        for (stage, reason), rows in sorted(by_reason.items(), key=lambda x: (order.index(x[0][0]), -x[1], x[0][1])):
            refused.setdefault(stage, {})[reason] = rows
        failed = sum(rows for (_, reason), rows in by_reason.items() if reason == FAILED)
        counts = {
            "read": read,
            "accepted": accepted,
            "rejected": len(rejected) - failed,
            "failed": failed,
            "refused": refused,
        }
        if read != accepted + len(rejected):
            raise CusetError(
                f"the build does not balance: {read} rows read, {accepted} accepted, {len(rejected)} refused;"
                " this is a defect of cuset"
            )
        return counts

    def _write_log(self, counts: dict[str, Any]) -> None:
        """Timings and the machine: the one file that may differ between two runs."""
        import platform

        content = {
            "seconds": {**self.seconds, "total": time.monotonic() - self.began},
            "tokens_per_second": self.reporter.tokens / max(self.seconds["annotate"], 1e-9) or None,
            "processor": platform.processor() or platform.machine(),
            "cores": multiprocessing.cpu_count(),
            "platform": platform.platform(),
        }
        replace_file(self.out / "build.log.json", json.dumps(content, indent=2).encode())


def _parse_shard(frame: pl.DataFrame, config: BuildConfig) -> pl.DataFrame:
    return run_stages(PARSE_STAGES, frame, Context(config))


def _tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The rows of a finished shard as the three tables of the dataset."""
    out = frame.filter(pl.col("reason").is_not_null()).with_columns(pl.col("row").cast(pl.String).alias("id"))
    return {"samples": frame.filter(pl.col("reason").is_null()), "rejected": out, "refused": out}
