"""Parquet parts: every reader that the README names gives back the values that were written."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from curate.schema import EXTRA_SCORES, SAMPLES, arrow_schema
from curate.store import write_part

COLUMNS = SAMPLES + EXTRA_SCORES
TOKENS = 300


def sample(seed: int, scored: bool) -> dict[str, object]:
    """A row with a value in every column, float16 scores of all kinds among them; null scores where not scored."""
    random = np.random.default_rng(seed)
    starts = np.cumsum(random.integers(0, 6, TOKENS)).tolist()
    scores = np.float16([0.0, -0.0, -6e-8, -65504.0, *random.normal(-1, 2, TOKENS - 4)]).tolist()
    top = [[1, 70000, 3]] * TOKENS if scored else None
    numbers = random.integers(0, 13, TOKENS).tolist()
    lists: dict[str, object] = {
        "char_start": [-1, *starts[1:]], "char_end": [-1, *(s + 5 for s in starts[1:])],
        "rank": [1, 151_935, *numbers[2:]], "topk_ids": top, "token_weight": [1.25] * TOKENS,
        "topk_logprob": [[-0.5, -1.0, -2.0]] * TOKENS if scored else None, "code_spans": [{"start": 0, "end": 9}],
        "messages": [{"role": "user", "content": "größe 汉字"}], "input_ids": list(range(TOKENS)),
        "flags": [{"reason": "too_long", "detail": "9 tokens"}], "redactions": [{"kind": "email", "count": 2}],
        "attribution": ["Copyright 2020 Ada"], "kernel_names": ["k", "größe"],
        **{name: [32, None] for name in ("registers", "shared_bytes", "spill_bytes")},
        "statement": [n > 5 for n in numbers], "in_code": [n > 2 for n in numbers],
        **dict.fromkeys(("category", "index_distance", "location"), numbers),
        **dict.fromkeys(("logprob", "entropy", "entropy_top20", "ref_logprob"), scores if scored else None),
    }  # fmt: skip
    plain = {"string": f"text {seed}", "int32": seed, "float": 0.5, "bool": True}
    return {c.name: lists[c.name] if c.name in lists else plain[str(c.type)] for c in COLUMNS}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, object]]:
    return [sample(1, True), sample(2, True), sample(3, False)]


@pytest.fixture(scope="module")
def part(rows: list[dict[str, object]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "part.parquet"
    write_part(frame_of(rows), COLUMNS, path)
    return path


def frame_of(rows: list[dict[str, object]]) -> pl.DataFrame:
    schema = pl.from_arrow(arrow_schema(COLUMNS).empty_table()).schema
    return pl.DataFrame(rows, schema=schema)


def test_pyarrow_and_polars_read_what_was_written(part: Path, rows: list[dict[str, object]]) -> None:
    assert pq.read_schema(part).equals(arrow_schema(COLUMNS))
    assert pq.read_table(part).to_pylist() == rows
    assert pl.read_parquet(part).to_dicts() == rows


def test_duckdb_reads_what_was_written(part: Path, rows: list[dict[str, object]]) -> None:
    names = ", ".join(c.name for c in COLUMNS)
    found = duckdb.connect().execute(f"SELECT {names} FROM read_parquet(?)", [str(part)]).fetchall()
    assert [dict(zip((c.name for c in COLUMNS), row, strict=True)) for row in found] == rows


def test_datasets_reads_what_was_written(part: Path, rows: list[dict[str, object]], tmp_path: Path) -> None:
    from datasets import load_dataset

    found = load_dataset("parquet", data_files=str(part), split="train", cache_dir=str(tmp_path))
    assert found.to_list() == rows


def test_the_same_rows_give_the_same_bytes(part: Path, rows: list[dict[str, object]], tmp_path: Path) -> None:
    write_part(frame_of(rows), COLUMNS, tmp_path / "again.parquet")
    assert (tmp_path / "again.parquet").read_bytes() == part.read_bytes()


def test_texts_are_in_a_file_once(part: Path) -> None:
    """Statistics would repeat the smallest and the largest, in the footer and before the pages."""
    group = pq.ParquetFile(part).metadata.row_group(0)
    described = {
        group.column(i).path_in_schema for i in range(group.num_columns) if group.column(i).statistics is not None
    }
    assert {"sample_id", "source", "kernels", "sample_weight"} <= described
    assert not described & {"prompt", "response", "messages.list.element.content", "logprob.list.element"}


def test_random_scores_take_two_bytes_each(tmp_path: Path) -> None:
    """A dictionary of float16 values costs its entries and its indices."""
    sizes = {}
    for tokens in (1_000, 21_000):
        row = sample(4, True) | {"logprob": np.random.default_rng(0).normal(-1, 2, tokens).tolist()}
        write_part(frame_of([row]), COLUMNS, tmp_path / "part.parquet")
        sizes[tokens] = (tmp_path / "part.parquet").stat().st_size
    assert (sizes[21_000] - sizes[1_000]) / 20_000 < 2.0
