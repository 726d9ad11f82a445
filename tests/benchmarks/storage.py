"""Bytes on disk of an annotated token, in our layout and as a row of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path

import polars as pl

from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.schema import TOKEN_LISTS
from curate.score import StubScorer
from curate.store import part_files, read_part
from tests.benchmarks.figures import Figure

__all__ = ["measure"]

_DEMO = Path("data/build/demo")


def measure() -> list[Figure]:
    """Of `make demo`'s dataset where it stands; else of the bundled corpus with scores drawn at random."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, whose = _DEMO, "make demo"
        if not (folder / "manifest.json").is_file():
            folder, whose = Path(temporary) / "out", "bundled corpus, random scores"
            build_dataset(BuildConfig(source=("bundled",), out=folder), StubScorer())
        parts = part_files(folder / "samples")
        frame = pl.concat(read_part(p) for p in parts)
        tokens = int(frame["char_start"].list.len().sum())
        ours = sum(p.stat().st_size for p in parts)
        rows = frame.select(
            "sample_id",
            pl.col("input_ids").list.slice(pl.col("prompt_tokens")).alias("token_id"),
            *TOKEN_LISTS,
        )
        rows = rows.explode("token_id", *TOKEN_LISTS)
        rows = rows.with_columns(pl.col("logprob", "entropy").cast(pl.Float32))
        lists = Path(temporary) / "lists.parquet"
        long = Path(temporary) / "long.parquet"
        rows.write_parquet(long, compression="zstd", compression_level=9)
        packed = _lists_alone(frame, lists)
        return [
            Figure("samples/, texts included", ours / tokens, "bytes/token", f"{whose}, {tokens} response tokens"),
            Figure("its token lists and ids alone", packed / tokens, "bytes/token"),
            Figure("the same, a row a token, float32", long.stat().st_size / tokens, "bytes/token", "zstd 9 as well"),
            Figure("a row a token over lists", long.stat().st_size / packed, "x"),
        ]


def _lists_alone(frame: pl.DataFrame, path: Path) -> int:
    from curate.schema import SAMPLES
    from curate.store import write_part

    wanted = {"sample_id", "input_ids", *TOKEN_LISTS}
    write_part(frame, [c for c in SAMPLES if c.name in wanted], path)
    return path.stat().st_size
