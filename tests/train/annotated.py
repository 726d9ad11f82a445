"""Small annotated datasets with planted token ids, scores and labels, written as a build writes them, without a model.

    path = annotate(tmp_path / "data", planted(20, seed=1), tokenizer=tokenizer)

Masks and weights follow from the planted scores by `curate.weights` with a build's own options, unless they are given.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from curate.config import BuildConfig
from curate.schema import EXTRA_SCORES, FORMAT_VERSION, REGIONS, REJECTED, arrow_schema, table_columns
from curate.store import write_part
from curate.weights import weigh

EXTRA = tuple(c.name for c in EXTRA_SCORES if c.name in ("entropy_top20", "ref_logprob"))
NO_TOKENIZER = hashlib.sha256(b"no tokenizer").hexdigest()


@dataclass
class Planted:
    """One sample of T = len(response) supervised tokens, the last of which is the end of the turn.

    What is not given: probability 0.5, neutral, outside of kernels, all code; `token_weight` and `sample_weight` follow
    from the scores. A value of another length, or NaN, is written as it is.
    """

    response: Sequence[int]
    prompt: Sequence[int] = (1, 2, 3)
    logprob: Sequence[float] | None = None
    category: Sequence[int] | None = None
    location: Sequence[int] | None = None
    in_code: Sequence[bool] | None = None
    token_weight: Sequence[float] | None = None
    sample_weight: float | None = None
    entropy_top20: Sequence[float] | None = None
    ref_logprob: Sequence[float] | None = None
    sample_id: str | None = None


def planted(
    number: int, *, seed: int = 0, vocabulary: int = 300, prompt: tuple[int, int] = (2, 6),
    response: tuple[int, int] = (4, 24),
) -> list[Planted]:  # fmt: skip
    """Samples of random ids, scores and labels; lengths lie in the ranges given, ends inclusive.

    Token ids start at 3, behind the special tokens of the tests' tokenizer; the last is 2, its end of turn. A third of
    the tokens has a confidence below tau = 0.1.
    """
    draw = np.random.default_rng(seed)
    samples = []
    for _ in range(number):
        size = int(draw.integers(response[0], response[1] + 1))
        low = draw.random(size) < 1 / 3
        confidence = np.where(low, draw.uniform(0.001, 0.09, size), draw.uniform(0.11, 1.0, size))
        location = np.sort(draw.integers(0, 5, size))
        samples.append(
            Planted(
                response=[*draw.integers(3, vocabulary, size - 1).tolist(), 2],
                prompt=draw.integers(3, vocabulary, draw.integers(prompt[0], prompt[1] + 1)).tolist(),
                logprob=np.log(confidence).tolist(),
                category=np.where(draw.random(size) < 0.5, draw.integers(1, 14, size), 0).tolist(),
                location=location.tolist(),
                in_code=((location > 0) | (draw.random(size) < 0.5)).tolist(),
                entropy_top20=draw.uniform(0, 3, size).tolist(),
                ref_logprob=np.log(draw.uniform(0.01, 1.0, size)).tolist(),
            )
        )
    return samples


def _half(values: Sequence[float]) -> np.ndarray:
    return np.array(values, dtype=np.float64).astype(np.float16)


def _row(number: int, sample: Planted, config: BuildConfig) -> dict[str, Any]:
    size = len(sample.response)
    logprob = _half(sample.logprob if sample.logprob is not None else [np.log(0.5)] * size)
    location = list(sample.location if sample.location is not None else [0] * size)
    in_code = list(sample.in_code if sample.in_code is not None else [True] * size)
    masks, weight = [0.0] * size, 0.5
    if len(logprob) == len(location) == len(in_code) == size > 0:
        found, w = weigh(logprob, np.array(location, np.uint8), np.array(in_code, bool), config)
        masks, weight = found.tolist(), w.weight
    row: dict[str, Any] = {c.name: None for c in table_columns("samples", EXTRA)} | {
        "sample_id": sample.sample_id or hashlib.sha256(f"planted {number}".encode()).hexdigest()[:32],
        "source": "planted", "source_id": str(number), "messages": [], "prompt": "", "response": "x" * size,
        "code_spans": [{"start": 0, "end": size}], "input_ids": [*sample.prompt, *sample.response],
        "prompt_tokens": len(sample.prompt), "char_start": list(range(size)), "char_end": list(range(1, size + 1)),
        "category": list(sample.category if sample.category is not None else [0] * size),
        "statement": [False] * size, "index_distance": [255] * size, "location": location, "in_code": in_code,
    }  # fmt: skip
    if config.skip_scoring:
        return row
    return row | {
        "logprob": logprob.tolist(), "entropy": [0.5] * size, "rank": [1] * size,
        "token_weight": [float(m) for m in (masks if sample.token_weight is None else sample.token_weight)],
        "sample_weight": sample.sample_weight if sample.sample_weight is not None else weight,
        "min_window_confidence": 1 - weight, "min_window_start": 0,
        "entropy_top20": _half(sample.entropy_top20 if sample.entropy_top20 is not None else [1.0] * size).tolist(),
        "ref_logprob": _half(sample.ref_logprob if sample.ref_logprob is not None else [-1.0] * size).tolist(),
    }  # fmt: skip


def annotate(
    path: Path, samples: Sequence[Planted], *, tokenizer: Any = None, config: BuildConfig | None = None,
    extra: Sequence[str] = EXTRA, part: int = 256,
) -> Path:  # fmt: skip
    """Writes a finished dataset of these samples, `part` to a file, scored as if by a model of that tokenizer.

    `config`: options of the build, for other masks or for skip_scoring; `extra`: which of entropy_top20 and ref_logprob
    are stored.
    """
    config = config or BuildConfig()
    columns = table_columns("samples", extra)
    schema = pl.from_arrow(arrow_schema(columns).empty_table()).schema
    names = list(schema)
    for start in range(0, max(1, len(samples)), part):
        rows = [_row(start + n, s, config) for n, s in enumerate(samples[start : start + part])]
        frame = pl.DataFrame([{n: row[n] for n in names} for row in rows], schema=schema)
        write_part(frame, columns, path / "samples" / f"part-{start // part:06}.parquet")
    for table, its in (("rejected", REJECTED), ("regions", REGIONS)):
        empty = pl.DataFrame(schema=pl.from_arrow(arrow_schema(its).empty_table()).schema)
        write_part(empty, its, path / table / "part-000000.parquet")
    options = {k.rstrip("_"): v for k, v in dataclasses.asdict(config).items() if k not in ("source", "out", "execute")}
    sha256 = (
        NO_TOKENIZER if tokenizer is None else hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()
    )
    manifest = {
        "format_version": FORMAT_VERSION, "config": options,
        "model": {"name": "planted", "revision": None, "sha256": None}, "tokenizer": {"sha256": sha256},
        "counts": {"read": len(samples), "accepted": len(samples), "rejected": 0, "failed": 0, "refused": {}},
        "extra_scores": [] if config.skip_scoring else list(extra),
    }  # fmt: skip
    (path / "manifest.json").write_text(json.dumps(manifest, default=str))
    return path
