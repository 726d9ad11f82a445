"""`python -m curate.merge A B ... --out C`: several finished datasets as one, or the parts of one build (`--shards`).

Nothing is read from a source and nothing scored: accepted rows keep their annotations. Anew are what all rows decide
together: copies (of two the better one stays, as in a build), the neutral mean, regions, counts, findings and card.
Killed in the middle, it leaves no dataset; the same command goes on where it was, and ends with the same bytes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import tyro

from curate.config import BuildConfig
from curate.console import check_ranges, main, parse_options
from curate.copies import find_copies
from curate.duplicates import FINGERPRINT, fingerprint
from curate.errors import DatasetError
from curate.folder import OutFolder
from curate.frames import each_row
from curate.keys import plan_of, stage_keys
from curate.manifest import write_manifest
from curate.measure import code_blocks, extract_rows
from curate.merging import Inputs, MergedPart, plan_parts, read_inputs, standing, tables
from curate.pool import cores, in_order
from curate.progress import Reporter, write_log
from curate.regions import write_regions
from curate.schema import SHARD_TABLES, table_columns
from curate.stages import Context
from curate.store import is_whole, part_files, read_manifest, write_frame, write_part
from curate.summary import count_rows, print_build
from curate.syntax import label_parsed, parse_cuda

__all__ = ["MergeConfig", "merge"]

_VERDICT = ("stage", "reason", "detail")


@dataclass(frozen=True)
class MergeConfig:
    """Joins finished datasets of one model and the same options; copies across them are refused."""

    paths: tyro.conf.Positional[tuple[Path, ...]]
    """The datasets' folders; all parts of a build with --shards, or two and more datasets."""
    out: Path
    """The joined dataset's folder."""
    jobs: int | None = None
    """Processes that parse; without it: one for each core."""
    overwrite: bool = False
    """Replace another dataset that stands at --out."""

    def __post_init__(self) -> None:
        check_ranges(self, {"jobs": (1, 1024)})


def merge(config: MergeConfig) -> dict[str, Any]:
    """Writes the joined dataset and returns its manifest.

    Raises CusetError: datasets that do not fit together, or rows that do not balance, which leaves no manifest.
    """
    inputs = read_inputs(config.paths, config.out)
    parts = plan_parts(inputs)
    keys = stage_keys(inputs.config, inputs.origin)
    plan = plan_of(inputs.config, inputs.origin, keys)
    folder = OutFolder(config.out)
    with folder.locked():
        folder.open(plan, overwrite=config.overwrite)
        job = _Merge(config, inputs, parts, folder)
        if not job.finished():
            job.run(keys)
    return read_manifest(config.out)


class _Merge:
    def __init__(self, config: MergeConfig, inputs: Inputs, parts: Sequence[MergedPart], folder: OutFolder) -> None:
        self.config, self.inputs, self.parts, self.folder, self.out = config, inputs, parts, folder, folder.path
        self.measured = folder.journal / "parsed-merge"
        self.began = time.monotonic()
        self.seconds: dict[str, float] = {}

    def finished(self) -> bool:
        """Whether the dataset that is asked for stands already."""
        whole = all(
            is_whole(self._part(table, n)) for table in (*SHARD_TABLES, "regions") for n in range(len(self.parts))
        )
        return whole and (self.out / "manifest.json").is_file()

    def run(self, keys: dict[str, str]) -> None:
        self._measure()
        self._write_parts()
        counts = count_rows(self.out, self.inputs.read)
        began = time.monotonic()
        measured = part_files(self.measured)
        regions = write_regions(self.out, measured, self.inputs.config.region_gap, self.config.jobs)
        self.seconds["regions"] = time.monotonic() - began
        for dataset in self.inputs.datasets:
            if not dataset.unchanged():
                shutil.rmtree(self.measured)
                raise DatasetError(
                    f"{dataset.path}: has changed while it was read; run the merge again with --overwrite"
                )
        self.seconds["total"] = time.monotonic() - self.began
        write_log(self.out, self.seconds)
        write_manifest(self.out, self.inputs.config, self.inputs.origin, keys, counts, regions)
        self.folder.close(self.folder.journal)

    def _measure(self) -> None:
        """Finds the code of every accepted row and takes its fingerprint, as the parse pass of a build does."""
        began = time.monotonic()
        self.measured.mkdir(parents=True, exist_ok=True)

        def missing() -> Iterator[tuple[int, pl.DataFrame]]:
            for number, part in enumerate(self.parts):
                if is_whole(self._prints(number)):
                    reporter.advance(rows=part.rows)
                else:
                    texts = part.accepted(["sample_id", "response"])
                    yield number, texts.with_columns(pl.lit(None, pl.String).alias(c) for c in _VERDICT)

        with Reporter("parse", self.inputs.read) as reporter:
            for number, frame in in_order(_measure, missing(), self.config.jobs or cores()):
                write_frame(frame, self._prints(number))
                reporter.advance(rows=self.parts[number].rows)
        self.seconds["parse"] = time.monotonic() - began

    def _write_parts(self) -> None:
        began = time.monotonic()
        options = self.inputs.config
        rows = (standing(part, self._prints(number)) for number, part in enumerate(self.parts))
        copies = find_copies(rows, self.folder.journal / "bands.duckdb", options.near_duplicate)
        self.seconds["copies"] = time.monotonic() - began
        began = time.monotonic()
        seen: dict[str, int] = {}
        with Reporter("write", self.inputs.read) as reporter:
            for number, part in enumerate(self.parts):
                frames = tables(part, copies, options, seen)
                for table, frame in frames.items():
                    if not is_whole(self._part(table, number)):
                        write_part(frame, table_columns(table, options.extra_scores), self._part(table, number))
                if "samples" not in frames and not is_whole(self._part("samples", number)):
                    _copy(part.samples, self._part("samples", number))
                reporter.advance(rows=part.rows)
        for path in self.folder.journal.glob("bands.*"):
            path.unlink()
        self.seconds["write"] = time.monotonic() - began

    def _prints(self, number: int) -> Path:
        return self.measured / f"{number:06d}.parquet"

    def _part(self, table: str, number: int) -> Path:
        return self.out / table / f"part-{number:05d}.parquet"


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(target.name + ".tmp")
    shutil.copyfile(source, temporary)
    temporary.replace(target)


def _measure(frame: pl.DataFrame) -> pl.DataFrame:
    """`blocks` and the columns of a fingerprint for rows of `sample_id` and `response`."""

    def compute(row: dict[str, Any]) -> dict[str, Any]:
        parsed = [parse_cuda(block.text) for block in code_blocks(row)]
        prints = fingerprint([(p, label_parsed(p)) for p in parsed])
        return vars(prints) if prints else {}

    frame = each_row(extract_rows(frame, Context(BuildConfig())), "parse", ["blocks"], compute, FINGERPRINT)
    return frame.select("row", "sample_id", "blocks", *FINGERPRINT)


def run(arguments: Sequence[str]) -> int:
    """Merges, then prints what a build prints."""
    config = parse_options(MergeConfig, arguments, "curate.merge")
    manifest = merge(config)
    print_build(manifest, config.out)
    return 0


if __name__ == "__main__":
    main(run)
