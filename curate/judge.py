"""The second pass of a build: which of the measured rows go on, which are refused and which are marked, and why.

It sees all rows at once, but only the small columns that it asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from curate.config import BuildConfig
from curate.filters import FILTERS
from curate.frames import FLAGS, refuse
from curate.stages import JUDGED_EARLY, run_filters
from curate.store import read_part

__all__ = ["Judgement", "judge"]

Refusal = tuple[str, str, str]
"""(stage, reason, detail)"""


@dataclass
class Judgement:
    """By row: the refusals of the early filters and of the search for duplicates, and the flags of the others."""

    refusals: dict[int, Refusal] = field(default_factory=dict)
    flags: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    left: int = 0
    """Rows that go on."""

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The measured rows of a shard with their refusals and flags."""
        rows = frame["row"].to_list()
        flags = [[{"reason": r, "detail": d} for r, d in self.flags.get(row, ())] for row in rows]
        frame = frame.with_columns(pl.Series("flags", flags, dtype=FLAGS))
        return refuse(frame, {row: self.refusals[row] for row in rows if row in self.refusals})

    def count_left(self, frame: pl.DataFrame) -> int:
        """How many of a shard's measured rows (`row`, `reason`) go on."""
        return int((frame["reason"].is_null() & ~frame["row"].is_in(list(self.refusals))).sum())


def judge(parts: Sequence[Path], config: BuildConfig) -> Judgement:
    """Judges the rows of the parts of the parse pass."""
    needs = {name for f in FILTERS if f.after in JUDGED_EARLY for name in f.needs}
    columns = ["row", "sample_id", "stage", "reason", "detail", "flags", *sorted(needs)]
    found = Judgement()
    kept: dict[str, int] = {}
    for path in parts:
        frame = read_part(path, columns=columns)
        before = frame["reason"]
        frame = run_filters(JUDGED_EARLY, frame, config)
        new = frame.filter(before.is_null() & frame["reason"].is_not_null())
        for row, stage, reason, detail in new.select("row", "stage", "reason", "detail").iter_rows():
            found.refusals[row] = (stage, reason, detail)
        standing = frame.filter(frame["reason"].is_null())
        for row, identity, flags in standing.select("row", "sample_id", "flags").iter_rows():
            if flags:
                found.flags[row] = [(flag["reason"], flag["detail"]) for flag in flags]
            if kept.setdefault(identity, row) != row:
                found.refusals[row] = ("duplicates", "exact_duplicate", f"of {identity}, row {kept[identity]}")
    found.left = len(kept)
    return found
