"""Training data of 10,000 samples: the start of a process until the first row is there, a row, and packing."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.benchmarks.figures import Figure, timed
from tests.train.annotated import annotate, planted

__all__ = ["measure"]

_SAMPLES, _COPIES, _VOCABULARY = 1000, 10, 49_152
_COLUMNS = ("token_weight", "logprob", "category", "location", "in_code")
_START = (
    "import sys; from pathlib import Path; from train.data import collate;"
    " from train.inputs.portions import DataConfig, open_data;"
    f" data = open_data(DataConfig((Path(sys.argv[1]),)), {_COLUMNS}, embeddings={_VOCABULARY});"
    " collate([data.train[0]])"
)


def measure() -> list[Figure]:
    """Random ids, 50 to 150 tokens of prompt and 300 to 1,300 of response, five token lists."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = _dataset(Path(temporary) / "data")
        environment = os.environ | {"HF_DATASETS_CACHE": str(Path(temporary) / "cache")}
        start = [sys.executable, "-c", _START, str(folder)]
        bare, _ = timed(lambda: subprocess.run([*start[:2], "import torch, datasets"], check=True))
        first, _ = timed(lambda: subprocess.run(start, check=True, env=environment))
        later, _ = timed(lambda: subprocess.run(start, check=True, env=environment))
        per_row, tokens = _rows(folder, Path(temporary) / "cache")
    from train.data import pack

    lengths = np.random.default_rng(0).integers(10, 4096, 100_000)
    packing, bins = timed(lambda: pack(lengths, 4096))
    return [
        Figure("import of torch and datasets alone", bare, "s"),
        Figure("start to first row, 10,000 samples, first time", first, "s", "Parquet is copied into the cache"),
        Figure("... and again", later, "s", "mapped from the cache; all values checked both times"),
        Figure("a row and its batch", 1e3 * per_row, "ms", f"{tokens:.0f} tokens in the mean, in random order"),
        Figure(
            "packing of 100,000 samples", packing, "s", f"{lengths.sum() / 4096 / len(bins):.1%} of the bins filled"
        ),
    ]


def _dataset(folder: Path) -> Path:
    annotate(folder, planted(_SAMPLES, vocabulary=_VOCABULARY, prompt=(50, 150), response=(300, 1300)), part=_SAMPLES)
    for n in range(1, _COPIES):
        shutil.copy(folder / "samples" / "part-000000.parquet", folder / "samples" / f"part-{n:06}.parquet")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["counts"]["accepted"] = _SAMPLES * _COPIES
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def _rows(folder: Path, cache: Path) -> tuple[float, float]:
    """Seconds and tokens of a row of one sample."""
    import datasets

    from train.data import collate
    from train.inputs.portions import DataConfig, open_data

    datasets.config.HF_DATASETS_CACHE = cache
    data = open_data(DataConfig((folder,)), _COLUMNS).train
    chosen = random.Random(0).sample(range(len(data)), 2000)
    seconds, batches = timed(lambda: [collate([data[n]])["input_ids"].shape[1] for n in chosen])
    return seconds / len(chosen), sum(batches) / len(chosen)
