"""The parts of a dataset that one shard makes, a file a table: whether they stand, and how they are written.

Shared by the build that writes them itself and by the machines of a cluster, which write their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from curate.schema import SHARD_TABLES, table_columns
from curate.store import is_whole, write_part

__all__ = ["Parts"]


@dataclass(frozen=True)
class Parts:
    """The parts below `out`, with the columns of extra scores that the build asks for."""

    out: Path
    extra_scores: tuple[str, ...] = ()

    def path(self, table: str, number: int) -> Path:
        return self.out / table / f"part-{number:05d}.parquet"

    def stand(self, number: int) -> bool:
        """Whether all parts of a shard are there and whole."""
        return all(is_whole(self.path(table, number)) for table in SHARD_TABLES)

    def write(self, number: int, frame: pl.DataFrame, scratch: Path | None = None) -> None:
        """Writes the rows of a finished shard; by way of the folder `scratch`, where two processes may be at it."""
        for table, rows in _tables(frame).items():
            path = self.path(table, number)
            first = path if scratch is None else scratch / f"{table}-{path.name}"
            write_part(rows, table_columns(table, self.extra_scores), first)
            if first != path:
                path.parent.mkdir(parents=True, exist_ok=True)
                first.replace(path)


def _tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The rows of a finished shard as the tables of the dataset."""
    out = frame.filter(pl.col("reason").is_not_null()).with_columns(pl.col("row").cast(pl.String).alias("id"))
    return {"samples": frame.filter(pl.col("reason").is_null()), "rejected": out, "refused": out}
