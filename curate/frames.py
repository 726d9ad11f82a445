"""The frames that stages hand on, and the one way in which a stage works on their rows.

A row that is refused stays in the frame: `reason`, `stage` and `detail` are set, and later stages leave it alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from curate.sources import Row

__all__ = ["FAILED", "FLAGS", "ROWS", "Refused", "each_row", "flag", "frame_of", "refuse", "sample_id"]

FAILED = "failed"
"""The reason of a row on which a stage raised an error: a defect of ours, counted apart from what the row itself got
wrong."""

FLAGS = pl.List(pl.Struct({"reason": pl.String(), "detail": pl.String()}))
"""What filters have found that only mark."""

ROWS: dict[str, pl.DataType] = {
    "row": pl.Int64(),
    "sample_id": pl.String(),
    "source": pl.String(),
    "source_id": pl.String(),
    "source_revision": pl.String(),
    "license": pl.String(),
    "synthetic_prompt": pl.Boolean(),
    "correct": pl.Boolean(),
    "messages": pl.List(pl.Struct({"role": pl.String(), "content": pl.String()})),
    "prompt": pl.String(),
    "response": pl.String(),
    "stage": pl.String(),
    "reason": pl.String(),
    "detail": pl.String(),
    "evidence": pl.String(),
    "raw": pl.String(),
    "flags": FLAGS,
}
"""Columns of a frame fresh from `read`."""


class Refused(Exception):
    """Raised by a stage for a row that it cannot take: (reason, detail)."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def sample_id(messages: Iterable[tuple[str, str]]) -> str:
    """The identity of a sample: SHA-256 of its turns, 32 hexadecimal digits."""
    text = json.dumps([list(turn) for turn in messages], ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]


def frame_of(rows: Iterable[Row], first: int) -> pl.DataFrame:
    """Rows of a source as a frame; `first` is the number of its first row in the order of reading."""
    return pl.DataFrame(
        [
            {
                "row": first + n,
                "sample_id": None if row.reason else sample_id(row.messages),
                "source": row.source,
                "source_id": row.source_id,
                "source_revision": row.source_revision,
                "license": row.license,
                "synthetic_prompt": row.synthetic_prompt,
                "correct": row.correct,
                "messages": [{"role": role, "content": content} for role, content in row.messages],
                "prompt": row.prompt,
                "response": row.response,
                "stage": "read" if row.reason else None,
                "reason": row.reason,
                "detail": row.detail if row.reason else None,
                "evidence": None,
                "raw": row.raw,
                "flags": [],
            }
            for n, row in enumerate(rows)
        ],
        schema=ROWS,
    )


def refuse(frame: pl.DataFrame, refusals: Mapping[int, tuple[str, str, str]]) -> pl.DataFrame:
    """Marks rows, given by their `row` number, with (stage, reason, detail)."""
    if not refusals:
        return frame
    marks = pl.DataFrame(
        [(row, *mark) for row, mark in refusals.items()],
        schema={"row": pl.Int64, "new_stage": pl.String, "new_reason": pl.String, "new_detail": pl.String},
        orient="row",
    )
    columns = ("stage", "reason", "detail")
    return (
        frame.join(marks, on="row", how="left", maintain_order="left")
        .with_columns(pl.coalesce(name, f"new_{name}").alias(name) for name in columns)
        .drop(f"new_{name}" for name in columns)
    )


def flag(frame: pl.DataFrame, reason: str, details: pl.Series) -> pl.DataFrame:
    """Appends the reason to the flags of the rows that have a detail for it."""
    new = pl.concat_list(pl.struct(pl.lit(reason).alias("reason"), pl.lit(details).alias("detail")))
    return frame.with_columns(
        pl.when(pl.lit(details).is_not_null()).then(pl.col("flags").list.concat(new)).otherwise("flags").alias("flags")
    )


def each_row(
    frame: pl.DataFrame,
    stage: str,
    needs: Sequence[str],
    compute: Callable[[dict[str, Any]], Mapping[str, Any] | None],
    schema: Mapping[str, pl.DataType],
) -> pl.DataFrame:
    """Adds the columns of `schema`, computed row by row; null on rows that are refused already.

    `needs` are the columns that `compute` reads, beside `row`; other columns are never turned into Python values.
    `compute` returns the new values, or raises Refused; any other error is caught, so that one row never takes the
    others along: that row gets the reason `failed` with the error's kind.
    """
    refusals: dict[int, tuple[str, str, str]] = {}
    new: list[Mapping[str, Any]] = []
    for row in frame.select("row", "reason", *needs).iter_rows(named=True):
        values: Mapping[str, Any] | None = None
        if row["reason"] is None:
            try:
                values = compute(row)
            except Refused as refused:
                refusals[row["row"]] = (stage, refused.reason, refused.detail)
            except Exception as error:  # the row's fault or ours: kept, counted, and the build goes on
                refusals[row["row"]] = (stage, FAILED, type(error).__name__)
        new.append(values or {})
    columns = [pl.Series(name, [v.get(name) for v in new], dtype=dtype) for name, dtype in schema.items()]
    return refuse(frame.with_columns(columns), refusals)
