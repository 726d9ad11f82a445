"""The parts of the joined dataset, each made of one part of one input, and the numbers that its rows get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from curate.config import BuildConfig
from curate.copies import COPY_REASONS, Copy, judge_copies
from curate.duplicates import FINGERPRINT
from curate.errors import DatasetError
from curate.filters import FILTERS, actions
from curate.frames import FLAGS
from curate.merging.inputs import Inputs
from curate.schema import REFUSED, REJECTED, Column, arrow_schema, table_columns
from curate.stages import MODEL_STAGES
from curate.store import part_files, read_part

__all__ = ["MergedPart", "plan_parts", "standing", "tables"]

_LATE = [f.reason for f in FILTERS if f.after in [stage.name for stage in MODEL_STAGES]]
"""Reasons that are judged behind copies, and so stand behind them among a row's flags."""


@dataclass(frozen=True)
class MergedPart:
    """A part of an input, and where its rows stand.

    `was`: number of its first row in the input; `first`: in the joined dataset. Rows are numbered in the order of
    reading; the numbers of accepted rows are those between that no refused row has.
    """

    samples: Path
    rejected: Path
    refused: Path | None
    rows: int
    was: int
    first: int
    renamed: Mapping[str, str]

    def refusals(self, path: Path) -> pl.DataFrame:
        """A table of refused rows with `row`, their number in the joined dataset; raises DatasetError for others."""
        frame = _read(path)
        row = frame["id"].cast(pl.Int64, strict=False) - self.was
        if row.null_count() or not row.is_between(0, self.rows - 1).all() or row.n_unique() != len(row):
            raise DatasetError(f"{path}: its ids are no numbers of the part's rows; build the dataset again")
        return self._told_apart(frame.with_columns((row + self.first).alias("row")))

    def accepted(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The accepted rows, with `row`."""
        frame = self._told_apart(_read(self.samples, columns))
        refused = set(self.refusals(self.rejected)["row"])
        numbers = [row for row in range(self.first, self.first + self.rows) if row not in refused]
        return frame.with_columns(pl.Series("row", numbers, pl.Int64))

    def _told_apart(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(pl.col("source").replace(dict(self.renamed))) if "source" in frame.columns else frame


def plan_parts(inputs: Inputs) -> list[MergedPart]:
    """The parts of the joined dataset, in order; raises DatasetError where an input's tables do not fit together."""
    found: list[tuple[int, int, MergedPart]] = []
    extra = inputs.config.extra_scores
    for number, dataset in enumerate(inputs.datasets):
        names = {t: [p.name for p in part_files(dataset.path / t)] for t in ("samples", "rejected", "refused")}
        if not names["samples"] or names["samples"] != names["rejected"]:
            raise DatasetError(f"{dataset.path}: samples/ and rejected/ hold other parts; build the dataset again")
        was = total = 0
        for place, name in enumerate(names["samples"]):
            samples, rejected = dataset.path / "samples" / name, dataset.path / "rejected" / name
            refused = dataset.path / "refused" / name if name in names["refused"] else None
            rows = _height(samples, table_columns("samples", extra)) + _height(rejected, REJECTED)
            if refused is not None:
                _height(refused, REFUSED)
            run = place * len(inputs.datasets) + number
            if inputs.interleaved:
                was = run * inputs.config.shard_rows
            part = MergedPart(samples, rejected, refused, rows, was, 0, inputs.renamed[number])
            found.append((run, 0, part) if inputs.interleaved else (number, place, part))
            was, total = was + rows, total + rows
        if total != dataset.manifest["counts"]["read"]:
            raise DatasetError(
                f"{dataset.path}: {total} rows, but its manifest says {dataset.manifest['counts']['read']};"
                " build the dataset again"
            )
    ordered = [part for *_, part in sorted(found, key=lambda entry: entry[:2])]
    ordered = [part for part in ordered if part.rows] or ordered[:1]  # a job that was left without rows
    first, parts = 0, []
    for part in ordered:
        parts.append(MergedPart(**{**vars(part), "first": first}))
        first += part.rows
    return parts


def _height(path: Path, columns: Sequence[Column]) -> int:
    """Rows of a part; raises DatasetError where it is damaged, or has other columns than it should."""
    try:
        with pq.ParquetFile(path) as file:
            rows, schema = int(file.metadata.num_rows), file.schema_arrow
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, error) from error
    if not schema.equals(arrow_schema(tuple(columns))):
        raise DatasetError(f"{path}: other columns than this version of cuset writes; build the dataset again")
    return rows


def _read(path: Path, columns: Sequence[str] | None = None) -> pl.DataFrame:
    try:
        return read_part(path, columns)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> DatasetError:
    return DatasetError(f"{path}: damaged ({str(error).splitlines()[0][:120]}); build the dataset again")


def standing(part: MergedPart, measured: Path) -> pl.DataFrame:
    """The accepted rows of a part as the search for copies takes them."""
    columns = ["sample_id", "compile_status", "error_share", "license", "code_chars"]
    prints = read_part(measured, columns=["row", *FINGERPRINT])
    frame = part.accepted(columns).rename({"code_chars": "code_bytes"})
    return frame.join(prints, on="row", how="left", maintain_order="left")


def tables(
    part: MergedPart, copies: Mapping[int, Copy], config: BuildConfig, seen: dict[str, int]
) -> dict[str, pl.DataFrame]:
    """The rows of a part as the tables of the joined dataset: copies go from the accepted to the refused.

    `samples` is left out where its file stays as it is.
    """
    nothing = [pl.lit(None, pl.String).alias(name) for name in ("stage", "reason", "detail")]
    before = part.accepted(["sample_id", "flags"]).with_columns(*nothing)
    frame, late = before, None
    if "mark" in [actions(config.filter)[reason] for reason in COPY_REASONS]:
        frame, late = _without_marks(frame)
    frame = judge_copies(frame, copies, config, seen)
    if late is not None:
        frame = frame.with_columns(pl.col("flags").list.concat(late))
    result, lost = {}, frame.head(0)
    if part.renamed or not frame.equals(before):
        verdicts = frame.drop("sample_id")
        whole = part.accepted().drop("flags").join(verdicts, on="row", how="left", maintain_order="left")
        result["samples"] = whole.filter(pl.col("reason").is_null())
        lost = whole.filter(pl.col("reason").is_not_null()).with_columns(
            pl.coalesce("execute_output", "compile_log").alias("evidence"), pl.lit("").alias("raw")
        )
    for table, path in (("rejected", part.rejected), ("refused", part.refused or part.rejected)):
        old = part.refusals(path)
        if table == "refused":  # a dataset that was fetched from elsewhere comes without the refused texts
            old = old.with_columns(pl.lit(None, pl.String).alias(c.name) for c in REFUSED if c.name not in old.columns)
        old = old.drop("id")
        new = pl.concat([old, lost.select(old.columns).cast(old.schema)]) if len(lost) else old
        result[table] = new.sort("row").with_columns(pl.col("row").cast(pl.String).alias("id"))
    return result


def _without_marks(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """(the rows without flags of copies and of what is judged behind them, the latter flags)."""
    reason = pl.element().struct.field("reason")
    late = frame.select(pl.col("flags").list.eval(pl.element().filter(reason.is_in(_LATE))).cast(FLAGS))["flags"]
    early = pl.col("flags").list.eval(pl.element().filter(~reason.is_in([*COPY_REASONS, *_LATE]))).cast(FLAGS)
    return frame.with_columns(early), late
