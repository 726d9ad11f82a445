"""Copies among the rows that stand: which are refused or marked for the sake of which other row.

The last thing that a build judges, and what `curate.merge` judges again over the rows of several datasets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl

from curate.config import BuildConfig
from curate.duplicates import find_duplicates
from curate.filters import actions
from curate.frames import flag, refuse

__all__ = ["COPY_REASONS", "Copy", "find_copies", "judge_copies"]

Copy = tuple[int, str, str, float]
"""The row that one is a copy of: its number, its sample_id, the reason in a word, their similarity."""

_KINDS = {"exact_code": "same_code", "renamed": "renamed_code", "near": "near_duplicate"}
COPY_REASONS = tuple(_KINDS.values())


def find_copies(frames: Iterable[pl.DataFrame], database: Path, threshold: float | None) -> dict[int, Copy]:
    """The rows that are copies, by number; `frames` and `database` as for `find_duplicates`."""
    return {
        row: (kept_row, kept_id, _KINDS[kind], similarity)
        for part in find_duplicates(frames, database, threshold)
        for row, kept_row, kept_id, kind, similarity in part.iter_rows()
    }


def judge_copies(
    frame: pl.DataFrame, copies: Mapping[int, Copy], config: BuildConfig, seen: dict[str, int]
) -> pl.DataFrame:
    """Refuses or marks the copies among the rows that stand, and any second row of one sample_id.

    `frame` holds `row`, `sample_id`, `stage`, `reason`, `detail` and `flags`. `seen` is the first row of every
    sample_id in the frames before, and is added to: frames are given in the order of their rows.
    """
    chosen = actions(config.filter)
    refusals: dict[int, tuple[str, str, str]] = {}
    marks: dict[str, dict[int, str]] = {reason: {} for reason in COPY_REASONS}
    for row, identity in frame.filter(pl.col("reason").is_null()).select("row", "sample_id").iter_rows():
        kept_row, kept_id, reason, similarity = copies.get(row, (None, None, "", 0.0))
        if kept_id == identity:
            refusals[row] = ("duplicates", "exact_duplicate", f"of {identity}, row {kept_row}")
        elif kept_id is not None and chosen[reason] == "refuse":
            refusals[row] = ("duplicates", reason, f"of {kept_id}, similarity {similarity:.3f}")
        elif seen.setdefault(identity, row) != row:
            refusals[row] = ("duplicates", "exact_duplicate", f"of {identity}, row {seen[identity]}")
        elif kept_id is not None and chosen[reason] == "mark":
            marks[reason][row] = f"of {kept_id}, similarity {similarity:.3f}"
    for reason, details in marks.items():
        frame = flag(frame, reason, pl.Series([details.get(row) for row in frame["row"]], dtype=pl.String))
    return refuse(frame, refusals)
