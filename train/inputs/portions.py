"""Which samples a run trains on and which it is evaluated on."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool
from numpy import ndarray as Array

from curate.errors import DatasetError, OptionError
from curate.manifest import listed
from train.data import SampleSet
from train.inputs.dataset import open_annotated

__all__ = ["DataConfig", "TrainingData", "hold_out", "open_data"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DataConfig:
    """Which samples a run trains on, and in what portions."""

    data: tuple[Path, ...]
    """Folder of an annotated dataset (--out of curate.build), or several."""
    max_length: int = 4096
    """Tokens of a sample, prompt included, beyond which it is cut; of a bin with --packing."""
    held_out: float = 0.05
    """Share of the samples that is never trained on, but evaluated; 0: none."""
    split_seed: int = 0
    """Which samples are held out. Apart from --seed, so that runs of several seeds share them."""
    packing: bool = False
    """Fill each row of a batch with whole samples up to --max-length."""

    def __post_init__(self) -> None:
        """Raises OptionError for values that cannot work."""
        if not 2 <= self.max_length < 2**31:
            raise OptionError(
                f"--max-length {self.max_length}: must lie between 2, one token of prompt and one more, and {2**31 - 1}"
            )
        if not 0 <= self.held_out < 1:
            raise OptionError(f"--held-out {self.held_out}: must lie between 0 and 1, 1 excluded")


@dataclass(frozen=True, eq=False)
class TrainingData:
    """What a run trains on and is evaluated on, and what the length limit cost."""

    train: SampleSet
    held_out: SampleSet | None
    manifests: tuple[dict[str, Any], ...]
    dropped: tuple[str, ...]
    """Ids of the samples whose whole response lies beyond the limit."""
    truncated: int
    """Samples that lost a part of their response, and with it the end-of-turn token."""


def open_data(config: DataConfig, columns: Collection[str], **checks: Any) -> TrainingData:
    """Opens, checks, splits, truncates and packs; `checks` and errors as in `train.inputs.dataset.open_annotated`.

    Raises DatasetError, too, where the limit leaves no sample to train on or to evaluate on.
    """
    opened = open_annotated(config.data, columns, **checks)
    ids = opened.samples.data.column("sample_id").to_pylist()
    kept = opened.prompts < config.max_length
    dropped = tuple(ids[row] for row in np.flatnonzero(~kept))
    truncated = int((kept & (opened.lengths > config.max_length)).sum())
    if dropped:
        log.warning(
            "dropped %d of %d samples, whose prompt alone fills --max-length %d: %s",
            len(dropped), len(ids), config.max_length, listed(dropped),
        )  # fmt: skip
    if truncated:
        log.warning("cut %d of %d samples at --max-length %d", truncated, len(ids), config.max_length)
    held = hold_out(ids, config.held_out, config.split_seed)
    if held.all():
        raise DatasetError(
            f"--held-out {config.held_out}: leaves none of {len(ids)} samples to train on; give a smaller share, or 0"
        )
    sets = []
    for purpose, side, packing in (("train", ~held, config.packing), ("evaluate", held, False)):
        rows = np.flatnonzero(side & kept)
        if side.any() and len(rows) == 0:
            raise DatasetError(
                f"--max-length {config.max_length}: no sample is left to {purpose} on, since their prompts alone fill"
                f" it; give {opened.prompts[side].min() + 1} or more"
            )
        sets.append(SampleSet(opened, rows, columns, config.max_length, packing=packing))
    return TrainingData(sets[0], sets[1] if held.any() else None, opened.manifests, dropped, truncated)


def hold_out(sample_ids: Sequence[str], share: float, seed: int) -> Bool[Array, "S"]:
    """The samples held out: those whose hash of seed and id is lowest, at least one where share > 0.

    It depends on the ids alone, not on order or length limit; a sample that occurs twice is on one side.
    """
    unique = sorted(set(sample_ids), key=lambda i: hashlib.sha256(f"{seed}\0{i}".encode()).digest())
    chosen = frozenset(unique[: max(1, round(share * len(unique)))] if share > 0 else ())
    return np.array([i in chosen for i in sample_ids], dtype=bool)
