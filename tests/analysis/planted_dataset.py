"""Datasets of planted confidence and labels, written as a build writes them, without a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from analysis.dataset import Dataset
from curate.schema import FORMAT_VERSION, REGIONS, REJECTED, SAMPLES, arrow_schema
from curate.store import connect, read_manifest, write_part

FRAMES = {
    name: pl.from_arrow(arrow_schema(columns).empty_table()).schema
    for name, columns in (("samples", SAMPLES), ("rejected", REJECTED), ("regions", REGIONS))
}


@dataclass
class Planted:
    """One sample: its tokens with their confidence (None: not scored) and labels; all code unless said otherwise."""

    tokens: Sequence[str]
    confidence: Sequence[float] | None
    category: Sequence[int]
    statement: Sequence[bool] | None = None
    in_code: Sequence[bool] | None = None
    ids: Sequence[int] | None = None
    prompt_ids: Sequence[int] = field(default_factory=lambda: [0, 0])


def _row(number: int, p: Planted) -> dict[str, Any]:
    lengths = np.array([len(t) for t in p.tokens])
    ends = np.cumsum(lengths)
    size = len(p.tokens)
    logprob = None
    if p.confidence is not None:
        with np.errstate(divide="ignore"):
            logprob = np.log(np.array(p.confidence, dtype=float)).astype(np.float16).tolist()
    response = "".join(p.tokens)
    plain: dict[str, Any] = {c.name: None for c in SAMPLES}
    return plain | {
        "sample_id": f"{number:032x}", "source": "planted", "response": response, "prompt": "", "messages": [],
        "code_spans": [{"start": 0, "end": len(response)}], "prompt_tokens": len(p.prompt_ids),
        "input_ids": [*p.prompt_ids, *(p.ids if p.ids is not None else range(1, size + 1))],
        "char_start": (ends - lengths).tolist(), "char_end": ends.tolist(), "logprob": logprob,
        "entropy": logprob and [0.5] * size, "rank": logprob and [1] * size, "category": list(p.category),
        "statement": list(p.statement if p.statement is not None else [c > 0 for c in p.category]),
        "index_distance": [255] * size, "location": [0] * size,
        "in_code": list(p.in_code if p.in_code is not None else [True] * size), "token_weight": logprob and [1.0] * size,
        "sample_weight": 0.5, "min_window_confidence": 0.5, "min_window_start": 0,
    }  # fmt: skip


def plant(
    path: Path, samples: Sequence[Planted], name: str = "planted", skip_scoring: bool = False, part: int = 256
) -> Path:
    """Writes a finished dataset of these samples, `part` to a file."""
    rows = [_row(i, p) for i, p in enumerate(samples)]
    for i in range(0, max(1, len(rows)), part):
        frame = pl.DataFrame(rows[i : i + part], schema=FRAMES["samples"])
        write_part(frame, SAMPLES, path / "samples" / f"part-{i:06}.parquet")
    write_part(pl.DataFrame(schema=FRAMES["rejected"]), REJECTED, path / "rejected" / "part-0.parquet")
    write_part(pl.DataFrame(schema=FRAMES["regions"]), REGIONS, path / "regions" / "part-0.parquet")
    manifest = {
        "format_version": FORMAT_VERSION, "model": {"name": name}, "counts": {"read": len(rows), "accepted": len(rows), "rejected": 0, "failed": 0, "refused": {}},
        "config": {
            "skip_scoring": skip_scoring, "context": "chat", "tau": 0.1, "lambda": 1.0, "window": 256, "region_scope": "code",
            "launch_scope": "setup", "device_functions": True,
        },
    }  # fmt: skip
    (path / "manifest.json").write_text(json.dumps(manifest))
    return path


def unchecked(path: Path) -> Dataset:
    """A dataset opened without the look that `open_datasets` takes, which refuses scores that are no number."""
    manifest = read_manifest(path)
    return Dataset(manifest["model"]["name"], path, manifest, connect(path))
