"""DuckDB over ten million generated tokens, through the views of `curate.store`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb
import numpy as np
import polars as pl

from curate.schema import REGIONS, REJECTED, SAMPLES, TOKEN_LISTS, Column, arrow_schema
from curate.store import attach_views, write_part
from curate.taxonomy import CATEGORIES
from tests.benchmarks.figures import Figure, timed

__all__ = ["measure"]

_PARTS, _ROWS, _TOKENS = 40, 250, 1000
_TEXT = "    out[i] = alpha * x[i];\n" * (3 * _TOKENS // 27 + 1)


def measure() -> list[Figure]:
    """Two threads; the files are in the page cache, since they have just been written."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        wrote, _ = timed(lambda: _generate(folder))
        size = sum(p.stat().st_size for p in folder.rglob("*.parquet"))
        connection = duckdb.connect()
        connection.execute("SET threads = 2")
        attach_views(connection, folder)
        mean = "select category, avg(confidence), count(*) from tokens group by 1"
        first, rows = timed(lambda: connection.execute(mean).fetchall())
        second, _ = timed(lambda: connection.execute(mean).fetchall())
        count = _PARTS * _ROWS * _TOKENS
        assert sum(n for *_, n in rows) == count
        one = "select pos, token, confidence, category from tokens where sample_id = ?"
        lookup, found = timed(lambda: connection.execute(one, [_name(7, 11)]).fetchall())
        assert len(found) == _TOKENS
        return [
            Figure("written", count / wrote / 1e6, "M tokens/s", f"{count / 1e6:.0f} M tokens, {size / 1e6:.0f} MB"),
            Figure("mean confidence by category", min(first, second), "s", "the better of two"),
            Figure("one sample by id", lookup * 1000, "ms"),
        ]


def _name(part: int, row: int) -> str:
    return f"{part:016x}{row:016x}"


def _generate(folder: Path) -> None:
    draw = np.random.default_rng(0)
    starts = np.tile(3 * np.arange(_TOKENS), _ROWS)
    for part in range(_PARTS):
        n = _ROWS * _TOKENS
        confidence = draw.beta(2.0, 0.6, n)
        logprob = np.log(np.maximum(confidence, 1e-9))
        category = np.where(draw.random(n) < 0.3, draw.integers(1, len(CATEGORIES), n), 0)
        lists = {
            "char_start": starts, "char_end": starts + 3, "logprob": logprob, "entropy": -2 * logprob,
            "rank": 1 + (confidence < 0.5), "category": category, "statement": category > 0,
            "index_distance": np.where(category > 0, 1, 255), "location": np.full(n, 1), "in_code": np.ones(n),
            "token_weight": 1.0 + (confidence > 0.1), "input_ids": draw.integers(0, 49152, n),
        }  # fmt: skip
        assert {*TOKEN_LISTS, "input_ids"} == set(lists)
        columns = {name: _lists(values, _leaf(name)) for name, values in lists.items()}
        frame = pl.DataFrame({
            "sample_id": [_name(part, row) for row in range(_ROWS)], "response": [_TEXT] * _ROWS, **columns,
        })  # fmt: skip
        frame = frame.with_columns(prompt_tokens=0, source=pl.lit("generated"), sample_weight=0.5)
        write_part(_completed(frame, SAMPLES), SAMPLES, folder / "samples" / f"part-{part:05d}.parquet")
    for name, columns in (("rejected", REJECTED), ("regions", REGIONS)):
        write_part(_completed(pl.DataFrame(), columns), columns, folder / name / "part-00000.parquet")


def _leaf(name: str) -> np.dtype:
    (column,) = (c for c in SAMPLES if c.name == name)
    return np.dtype(column.type.value_type.to_pandas_dtype())


def _lists(values: np.ndarray, dtype: np.dtype) -> pl.Series:
    return pl.Series(values.astype(dtype)).reshape((_ROWS, _TOKENS)).arr.to_list()


def _completed(frame: pl.DataFrame, columns: tuple[Column, ...]) -> pl.DataFrame:
    """The frame with nulls in the columns that it lacks."""
    empty = pl.from_arrow(arrow_schema(columns).empty_table())
    assert isinstance(empty, pl.DataFrame)
    return frame.with_columns(
        pl.lit(None, dtype).alias(name) for name, dtype in empty.schema.items() if name not in frame.columns
    )
