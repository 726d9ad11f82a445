"""Runs a build: splits the rows into shards, journals, writes.

The only place that touches disk, progress and processes. Four passes: parse (measures each row, in a pool of
processes, into OUT/.cuset/parsed-KEY), judge (filters and duplicates, over the measured columns), annotate (tokenise,
score, label, weigh, into the parts of the dataset), and regions (below the mean of the whole build, so made anew each
time). A part is written under a temporary name and renamed, and a shard whose parts stand is not done again, so that a
killed build goes on where it was and ends with the same bytes: what a shard holds and how its batches form depends on
the shard alone.
"""

from __future__ import annotations

import json
import platform
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from curate.config import BuildConfig
from curate.errors import CusetError, OptionError, SourceError
from curate.filters import FILTERS
from curate.folder import OutFolder
from curate.frames import FAILED, frame_of, refuse
from curate.keys import plan_of, stage_keys
from curate.manifest import write_manifest
from curate.pool import cores, in_order
from curate.previous import PreviousScores
from curate.progress import Reporter
from curate.regions import NEEDS, NeutralMean, find_regions, region_rows
from curate.schema import REGIONS, SHARD_TABLES, table_columns
from curate.sources import BUNDLED, Row, Source, open_sources, parse_spec
from curate.stages import (
    JUDGED_EARLY,
    MODEL_STAGES,
    PARSE_STAGES,
    Context,
    run_filters,
    run_stages,
)
from curate.store import is_whole, part_files, read_part, replace_file, write_frame, write_part

if TYPE_CHECKING:
    from curate.score import Scorer

__all__ = ["build_dataset", "default_out"]

Refusals = dict[int, tuple[str, str, str]]
"""row -> (stage, reason, detail)"""


def default_out(config: BuildConfig) -> Path:
    """data/build/NAME, after the first source."""
    first = parse_spec((config.source or (BUNDLED,))[0])
    return Path("data") / "build" / (first.stem or "source")


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
        self.context = Context(config, scorer, lambda rows, tokens: self.reporter.advance(rows, tokens))
        self.reporter = Reporter("", None)

    def run(self) -> dict[str, Any]:
        """All that may be refused is refused before the folder is touched: sources, tokenizer, model, options."""
        self._keep_apart()
        sources = open_sources(self.config.source, self.config.map, self.config.license)
        inputs: dict[str, Any] = {
            "sources": [s.fingerprint() for s in sources],
            "model": self.context.files.identity(),
            "tokenizer": self.context.encoder.identity(),
        }
        if not self.config.skip_scoring:
            inputs["scorer"] = self.context.scorer_identity()
        if self.context.reference is not None:
            inputs["reference"] = self.context.reference.identity()
        keys = stage_keys(self.config, inputs)
        plan = plan_of(self.config, inputs, keys)
        if self.folder.plan is None and not self.config.skip_scoring:
            _ = self.context.scorer  # a model that cannot be loaded is told before the first row is read
        with self.folder.locked():
            self.folder.open(plan, overwrite=self.config.overwrite)
            self.parsed = self.folder.journal / f"parsed-{keys['parse']}-{self.config.shard_rows}"
            read = self._parse(sources)
            if [s.fingerprint() for s in sources] != inputs["sources"]:
                shutil.rmtree(self.parsed)  # rows of two states of the file, under the key of one
                raise SourceError("a source has changed while it was read: run the build again with --overwrite")
            self._annotate(self._judge())
            counts = self._counts(read)
            regions = self._find_regions()
            self._write_log()  # before the manifest: with that the dataset is finished, and nothing may fail any more
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
        rows: Iterator[Row] = (row for source in sources for row in source.rows())
        rows = islice(rows, self.config.limit)
        first = 0
        for number in range(10**9):
            chunk = list(islice(rows, self.config.shard_rows))
            if not chunk and number:  # an empty corpus still makes one, empty, part
                return
            yield number, frame_of(chunk, first)
            first += len(chunk)

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
            jobs = self.config.jobs or cores()
            for number, frame in in_order(partial(_measure, self.config), missing(), jobs):
                write_frame(frame, self.parsed / f"{number:06d}.parquet")
                self.reporter.advance(rows=len(frame))
        self.seconds["parse"] = time.monotonic() - began
        return read

    # -- pass 2: filters and duplicates, over all rows --------------------------------------------------------------

    def _judge(self) -> Refusals:
        """The rows that the early filters refuse, and those whose messages an earlier accepted row has."""
        began = time.monotonic()
        needs = {name for f in FILTERS if f.after in JUDGED_EARLY for name in f.needs}
        columns = ["row", "sample_id", "stage", "reason", "detail", *sorted(needs)]
        kept: dict[str, int] = {}
        refusals: Refusals = {}
        for path in part_files(self.parsed):
            frame = read_part(path, columns=columns)
            before = frame["reason"]
            frame = run_filters(JUDGED_EARLY, frame, self.config)
            new = frame.filter(before.is_null() & frame["reason"].is_not_null())
            for row, stage, reason, detail in new.select("row", "stage", "reason", "detail").iter_rows():
                refusals[row] = (stage, reason, detail)
            for row, identity in frame.filter(frame["reason"].is_null()).select("row", "sample_id").iter_rows():
                if kept.setdefault(identity, row) != row:
                    refusals[row] = ("duplicates", "exact_duplicate", f"of {identity}, row {kept[identity]}")
        self.to_annotate = len(kept)
        self.seconds["judge"] = time.monotonic() - began
        return refusals

    # -- pass 3: tokenise, score, label, weigh ----------------------------------------------------------------------

    def _annotate(self, refusals: Refusals) -> None:
        began, finished = time.monotonic(), 0
        self.context.previous = PreviousScores(self.folder.previous, self.config.extra_scores)
        with Reporter("annotate" if self.config.skip_scoring else "score", self.to_annotate) as self.reporter:
            for number, path in enumerate(part_files(self.parsed)):
                parts = {table: self.out / table / f"part-{number:05d}.parquet" for table in SHARD_TABLES}
                marks = read_part(path, columns=["row", "reason"])
                here = {row: refusals[row] for row in marks["row"].to_list() if row in refusals}
                if not all(is_whole(part) for part in parts.values()):
                    frame = run_stages(MODEL_STAGES, refuse(read_part(path), here), self.context)
                    for table, rows in _tables(frame).items():
                        write_part(rows, table_columns(table, self.config.extra_scores), parts[table])
                finished += marks["reason"].null_count() - len(here)
                self.reporter.advance(rows=finished - self.reporter.rows)
        self.seconds["annotate"] = time.monotonic() - began

    # -- pass 4: regions, below the mean of the whole build ---------------------------------------------------------

    def _find_regions(self) -> dict[str, Any]:
        """Writes the parts of `regions`; returns the neutral mean, its tokens, and the number of regions."""
        began, samples, count, failed = time.monotonic(), 0, 0, 0
        neutral = NeutralMean()
        parts = part_files(self.out / "samples")
        for part in parts:
            scored = read_part(part, columns=["logprob", "category", "in_code"])
            neutral.add(scored)
            samples += len(scored)
        work = partial(find_regions, neutral_mean=neutral.value, gap=self.config.region_gap)
        jobs = (self.config.jobs or cores()) if neutral.tokens and len(parts) > 1 else 1
        with Reporter("regions", samples) as reporter:
            for number, frame in in_order(work, self._with_blocks(parts), jobs):
                rows = region_rows(frame)
                write_part(rows, REGIONS, self.out / "regions" / f"part-{number:05d}.parquet")
                count += len(rows)
                failed += frame["regions"].null_count()
                reporter.advance(rows=len(frame))
        self.seconds["regions"] = time.monotonic() - began
        return {"neutral_mean": neutral.value, "neutral_tokens": neutral.tokens, "found": count, "failed": failed}

    def _with_blocks(self, parts: list[Path]) -> Iterator[tuple[int, pl.DataFrame]]:
        """The samples of each part, and the code blocks that the parse pass found in them."""
        for number, (part, parsed) in enumerate(zip(parts, part_files(self.parsed), strict=True)):
            blocks = read_part(parsed, columns=["row", "sample_id", "blocks"]).unique("sample_id", keep="first")
            frame = read_part(part, columns=list(NEEDS)).join(blocks, on="sample_id", how="left", maintain_order="left")
            yield number, frame.with_columns(pl.lit(None, pl.String).alias(c) for c in ("stage", "reason", "detail"))

    # -- the end ----------------------------------------------------------------------------------------------------

    def _counts(self, read: int) -> dict[str, Any]:
        """The funnel, counted from the files that were written; raises CusetError unless it balances."""
        rejected = pl.concat(read_part(p, columns=["stage", "reason"]) for p in part_files(self.out / "rejected"))
        accepted = sum(read_part(p, columns=["sample_id"]).height for p in part_files(self.out / "samples"))
        by_reason = Counter(rejected.iter_rows())
        order = ["read", *(s.name for s in PARSE_STAGES), "duplicates", *(s.name for s in MODEL_STAGES)]
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

    def _write_log(self) -> None:
        """Timings up to the manifest, and the machine: the one file that may differ between two runs."""
        content = {
            "seconds": {**self.seconds, "total": time.monotonic() - self.began},
            "tokens_per_second": self.reporter.tokens / max(self.seconds["annotate"], 1e-9) or None,
            "processor": platform.processor() or platform.machine(),
            "cores": cores(),
            "platform": platform.platform(),
        }
        replace_file(self.out / "build.log.json", json.dumps(content, indent=2).encode())


def _measure(config: BuildConfig, frame: pl.DataFrame) -> pl.DataFrame:
    return run_stages(PARSE_STAGES, frame, Context(config))


def _tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The rows of a finished shard as the tables of the dataset."""
    out = frame.filter(pl.col("reason").is_not_null()).with_columns(pl.col("row").cast(pl.String).alias("id"))
    return {"samples": frame.filter(pl.col("reason").is_null()), "rejected": out, "refused": out}
