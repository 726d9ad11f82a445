"""Low-confidence CUDA-sensitive regions: runs of sensitive tokens that the model is unsure of, and the syntax node
around each.

A token is low when its confidence is below the neutral mean: the mean confidence of all neutral code tokens of the
build, by category labels. So regions come last, after every sample is scored.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Bool, Float64, Int64, UInt8
from numpy import ndarray as Array

from curate.extract import CodeBlock
from curate.frames import each_row
from curate.measure import code_blocks
from curate.pool import cores, in_order
from curate.progress import Reporter
from curate.schema import REGIONS, SAMPLES
from curate.store import part_files, read_part, write_part
from curate.syntax import parse_cuda
from curate.syntax.enclosing import enclosing_nodes

__all__ = ["NEEDS", "NeutralMean", "find_regions", "region_id", "region_rows", "token_runs", "write_regions"]

NEEDS = ("sample_id", "response", "char_start", "char_end", "logprob", "category", "location", "in_code")
"""The columns of `samples` that regions are made of; beside them the `blocks` that extraction found."""


def write_regions(out: Path, measured: Sequence[Path], gap: int, jobs: int | None) -> dict[str, Any]:
    """Writes the parts of `regions` of the dataset in `out`; returns the neutral mean, its tokens, the regions' number.

    `measured` holds for each part of `samples` a file with the `blocks` of its rows, by `sample_id`.
    """
    samples, count, failed = 0, 0, 0
    neutral = NeutralMean()
    parts = part_files(out / "samples")
    for part in parts:
        scored = read_part(part, columns=["logprob", "category", "in_code"])
        neutral.add(scored)
        samples += len(scored)
    work = partial(find_regions, neutral_mean=neutral.value, gap=gap)
    jobs = (jobs or cores()) if neutral.tokens and len(parts) > 1 else 1
    with Reporter("regions", samples) as reporter:
        for number, frame in in_order(work, _with_blocks(parts, measured), jobs):
            rows = region_rows(frame)
            write_part(rows, REGIONS, out / "regions" / f"part-{number:05d}.parquet")
            count += len(rows)
            failed += frame["regions"].null_count()
            reporter.advance(rows=len(frame))
    return {"neutral_mean": neutral.value, "neutral_tokens": neutral.tokens, "found": count, "failed": failed}


def _with_blocks(parts: Sequence[Path], measured: Sequence[Path]) -> Iterator[tuple[int, pl.DataFrame]]:
    """The samples of each part, and the code blocks that were found in them."""
    for number, (part, found) in enumerate(zip(parts, measured, strict=True)):
        blocks = read_part(found, columns=["row", "sample_id", "blocks"]).unique("sample_id", keep="first")
        frame = read_part(part, columns=list(NEEDS)).join(blocks, on="sample_id", how="left", maintain_order="left")
        yield number, frame.with_columns(pl.lit(None, pl.String).alias(c) for c in ("stage", "reason", "detail"))


class NeutralMean:
    """The mean confidence of neutral code tokens, exact whatever the order of the rows and the size of the shards.

    Confidences are exp of float16 values, of which there are 65,536 at most: they are counted, and the sum is taken
    once over the counts, correctly rounded.
    """

    def __init__(self) -> None:
        self._counts: Int64[Array, "65536"] = np.zeros(2**16, np.int64)

    def add(self, samples: pl.DataFrame) -> None:
        """Counts the tokens of samples (`logprob`, `category`, `in_code`); samples without scores add nothing."""
        columns = ["logprob", "category", "in_code"]
        tokens = samples.select(columns).drop_nulls().explode(columns).drop_nulls()
        chosen = tokens.filter((pl.col("category") == 0) & pl.col("in_code"))["logprob"]
        patterns = chosen.to_numpy().astype(np.float16).view(np.uint16)
        self._counts += np.bincount(patterns, minlength=2**16)

    @property
    def tokens(self) -> int:
        return int(self._counts.sum())

    @property
    def value(self) -> float | None:
        """The mean; None where there is no token."""
        there = np.flatnonzero(self._counts)
        if not len(there):
            return None
        values = there.astype(np.uint16).view(np.float16).tolist()
        weighted = (n * math.exp(v) for n, v in zip(self._counts[there].tolist(), values, strict=True))
        return math.fsum(weighted) / self.tokens


def region_id(sample_id: str, first_token: int) -> str:
    """The identity of a region: SHA-256 of its sample and first token, 32 hexadecimal digits."""
    return hashlib.sha256(f"{sample_id}:{first_token}".encode()).hexdigest()[:32]


def token_runs(low: Bool[Array, "T"], group: Int64[Array, "T"], gap: int) -> list[tuple[int, int]]:
    """Maximal runs (first, last), inclusive, of tokens that are `low`, merged over gaps of at most `gap` other tokens.

    Tokens of different `group` (code blocks) never stand in one run.
    """
    at = np.flatnonzero(low)
    if not len(at):
        return []
    cut = np.flatnonzero((np.diff(at) > gap + 1) | (np.diff(group[at]) != 0))
    firsts, lasts = at[np.concatenate([[0], cut + 1])], at[np.append(cut, len(at) - 1)]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def find_regions(frame: pl.DataFrame, neutral_mean: float | None, gap: int) -> pl.DataFrame:
    """Adds the column `regions`, a list of structs, to rows of NEEDS and `blocks`; null on a row that failed."""

    def compute(row: dict[str, Any]) -> dict[str, Any]:
        scored = neutral_mean is not None and row["logprob"] is not None
        return {"regions": _regions(row, neutral_mean, gap) if scored and neutral_mean is not None else []}

    return each_row(frame, "regions", [*NEEDS, "blocks"], compute, {"regions": _STRUCTS})


def region_rows(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows of the table `regions`, in the order of samples and tokens."""
    column = frame.select("regions").filter(pl.col("regions").list.len() > 0).explode("regions")
    return column.unnest("regions") if len(column) else pl.DataFrame(schema=dict(_FIELDS))


_POLARS = {"string": pl.String(), "int32": pl.Int32(), "uint8": pl.UInt8(), "float": pl.Float32()}
_FIELDS: dict[str, pl.DataType] = {c.name: _POLARS[str(c.type)] for c in REGIONS}
_STRUCTS = pl.List(pl.Struct(_FIELDS))
assert set(NEEDS) <= {c.name for c in SAMPLES}


def _regions(row: Mapping[str, Any], neutral_mean: float, gap: int) -> list[dict[str, Any]]:
    confidence = np.exp(np.asarray(row["logprob"], np.float16).astype(np.float64))
    category, location = np.asarray(row["category"], np.uint8), np.asarray(row["location"], np.uint8)
    starts, ends = np.asarray(row["char_start"], np.int64), np.asarray(row["char_end"], np.int64)
    blocks = code_blocks(row)
    # the first block that ends behind the token's first character: blocks are in order and do not overlap
    block_of = np.searchsorted(np.array([b.end for b in blocks], np.int64), starts, side="right")
    low = np.asarray(row["in_code"], bool) & (category > 0) & (confidence < neutral_mean) & (block_of < len(blocks))
    found = []
    for first, last in token_runs(low, block_of, gap):
        inside = slice(first, last + 1)
        covered = starts[inside] >= 0
        found.append((int(block_of[first]), {
            "region_id": region_id(row["sample_id"], first), "sample_id": row["sample_id"],
            "first_token": first, "last_token": last,
            "char_start": int(starts[inside][covered].min()), "char_end": int(ends[inside][covered].max()),
            "category": _most(category[inside][category[inside] > 0]), "location": _most(location[inside]),
            **_confidences(confidence[inside]), "tokens": last + 1 - first,
        }))  # fmt: skip
    for number, members in groupby(found, key=lambda pair: pair[0]):
        _snap(blocks[number], [region for _, region in members])
    for _, region in found:
        region["text"] = row["response"][region["char_start"] : region["char_end"]]
    return [region for _, region in found]


def _most(values: UInt8[Array, "k"]) -> int:
    """The most frequent value, the smallest of several."""
    return int(np.bincount(values).argmax())


def _confidences(values: Float64[Array, "k"]) -> dict[str, float]:
    return {"mean_confidence": math.fsum(values) / len(values), "min_confidence": float(values.min())}


def _snap(block: CodeBlock, regions: Iterable[dict[str, Any]]) -> None:
    """Sets the node around each of a block's regions: white space at their ends counts for nothing."""
    regions = list(regions)
    starts, ends = block.char_ranges()
    spans = []
    for region in regions:
        a = int(np.searchsorted(ends, region["char_start"], side="right"))
        b = max(int(np.searchsorted(starts, region["char_end"], side="left")), a + 1)
        text = block.text[a:b]
        solid = text.strip()
        a += len(text) - len(text.lstrip()) if solid else 0
        spans.append((a, a + len(solid or text)))
    for region, node in zip(regions, enclosing_nodes(parse_cuda(block.text), spans), strict=True):
        region["node_type"] = node.type
        region["node_start"], region["node_end"] = int(starts[node.start]), int(ends[max(node.start, node.end - 1)])
