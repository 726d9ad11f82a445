"""Annotated samples as training batches: truncation, the held-out split, packing, and the shift by one.

A batch is one row without padding: its samples end to end, with positions that start again at 0. Without an attention
mask `transformers` makes the block-diagonal causal mask from these positions, so that no sample sees another.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int32, Int64
from numpy import ndarray as Array

from curate.errors import DatasetError, OptionError
from train.inputs.dataset import Opened, open_annotated

__all__ = ["DataConfig", "Sample", "SampleSet", "TrainingData", "collate", "hold_out", "open_data", "pack"]

log = logging.getLogger(__name__)

_NAMED = 5  # dropped samples named in the warning


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
class Sample:
    """One sample as far as it is kept: n token ids, the last n - prompt_tokens of which are supervised.

    `columns`: the token lists, one value a supervised token, as stored.
    """

    sample_id: str
    input_ids: Int32[Array, "n"]
    prompt_tokens: int
    weight: float
    columns: dict[str, Array]


class SampleSet(torch.utils.data.Dataset[list[Sample]]):
    """A map from number to a row of a batch: a list of one sample, or of those that share a bin.

    `rows` says where the samples stand among the opened ones, `lengths` and `prompts` how many tokens of them are kept,
    `bins` which samples (by their place in `rows`) share a row.
    """

    def __init__(
        self, opened: Opened, rows: Int64[Array, "S"], columns: Collection[str], max_length: int, *, packing: bool
    ) -> None:
        self.columns = tuple(columns)
        self.rows = rows
        self.lengths = np.minimum(opened.lengths[rows], max_length)
        self.prompts = opened.prompts[rows]
        self.bins = pack(self.lengths, max_length) if packing else [[n] for n in range(len(rows))]
        self._table = opened.samples.with_format("arrow")
        # where nothing was scored there is no w, and every sample weighs 1
        self._weights = opened.samples.data.column("sample_weight").fill_null(1.0).to_numpy()[rows]

    def __len__(self) -> int:
        return len(self.bins)

    def __getitem__(self, number: int) -> list[Sample]:
        return [self.sample(n) for n in self.bins[number]]

    def sample(self, number: int) -> Sample:
        """The sample of that place, its ids and token lists cut to the same token."""
        row = self._table[int(self.rows[number])]
        length, prompt = int(self.lengths[number]), int(self.prompts[number])

        def values(name: str) -> Array:
            return row.column(name).chunk(0).flatten().to_numpy(zero_copy_only=False)

        lists = {name: values(name)[: length - prompt] for name in self.columns}
        sample_id = row.column("sample_id")[0].as_py()
        return Sample(sample_id, values("input_ids")[:length], prompt, float(self._weights[number]), lists)

    @property
    def samples(self) -> int:
        return len(self.rows)

    @property
    def tokens(self) -> int:
        """Tokens that the model reads in an epoch."""
        return int(self.lengths.sum())

    @property
    def supervised_tokens(self) -> int:
        """Response tokens kept."""
        return int((self.lengths - self.prompts).sum())

    @property
    def mean_sample_weight(self) -> float:
        """The mean of w, equation (8), over the samples."""
        return float(self._weights.mean(dtype=np.float64))


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


def open_data(
    config: DataConfig, columns: Collection[str], *, tokenizer: Any = None, embeddings: int | None = None,
    need_scores: bool = True,
) -> TrainingData:  # fmt: skip
    """Opens, checks, splits, truncates and packs; arguments and errors as in `train.inputs.dataset.open_annotated`.

    Raises DatasetError, too, where the limit leaves no sample to train on or to evaluate on.
    """
    opened = open_annotated(
        config.data, columns, tokenizer=tokenizer, embeddings=embeddings, need_scores=need_scores
    )  # fmt: skip
    ids = opened.samples.data.column("sample_id").to_pylist()
    kept = opened.prompts < config.max_length
    dropped = tuple(ids[row] for row in np.flatnonzero(~kept))
    truncated = int((kept & (opened.lengths > config.max_length)).sum())
    if dropped:
        more = f" and {len(dropped) - _NAMED} more" if len(dropped) > _NAMED else ""
        log.warning(
            "dropped %d of %d samples, whose prompt alone fills --max-length %d: %s%s",
            len(dropped), len(ids), config.max_length, ", ".join(dropped[:_NAMED]), more,
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


def pack(lengths: Int64[Array, "S"], capacity: int) -> list[list[int]]:
    """First-fit decreasing: the longest sample first, each into the first bin that has room for it.

    Bins in the order of their opening, samples in a bin by number. O(S log S) by a tree over the room in the bins. No
    length may exceed the capacity.
    """
    width = 1 << max(0, len(lengths) - 1).bit_length()
    room = [capacity] * (2 * width)  # room[n]: the most room in any bin below node n; the bins are room[width:]
    bins: list[list[int]] = []
    for number in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[number])
        node = 1
        while node < width:
            node *= 2
            if room[node] < length:
                node += 1
        if node - width == len(bins):
            bins.append([])
        bins[node - width].append(number)
        room[node] -= length
        while node > 1:
            node //= 2
            room[node] = max(room[2 * node], room[2 * node + 1])
    return [sorted(chosen) for chosen in bins]


def collate(rows: Sequence[Sequence[Sample]]) -> dict[str, Any]:
    """One row without padding: L tokens of B samples, of which N are supervised.

        input_ids, position_ids   (1, L) int64; positions start at 0 in each sample
        logit_index, targets      (N,) int64; the hidden state at logit_index predicts the target
        sample_index              (N,) int64, 0 to B - 1, rising
        sample_weight             (B,) float32, w of equation (8)
        each token list           (N,) as stored, float16 widened to float32
        sample_ids                B strings

    The shift by one is here and nowhere else: the first response token is predicted at the last token of the prompt.
    """
    samples = [sample for row in rows for sample in row]
    lengths = np.array([len(s.input_ids) for s in samples])
    prompts = np.array([s.prompt_tokens for s in samples])
    starts, supervised = np.cumsum(lengths) - lengths, lengths - prompts
    input_ids = np.concatenate([s.input_ids for s in samples]).astype(np.int64)
    positions = np.arange(len(input_ids)) - np.repeat(starts, lengths)
    target_index = np.flatnonzero(positions >= np.repeat(prompts, lengths))
    batch: dict[str, Any] = {
        "input_ids": torch.from_numpy(input_ids)[None],
        "position_ids": torch.from_numpy(positions)[None],
        "logit_index": torch.from_numpy(target_index - 1),
        "targets": torch.from_numpy(input_ids[target_index]),
        "sample_index": torch.from_numpy(np.repeat(np.arange(len(samples)), supervised)),
        "sample_weight": torch.tensor([s.weight for s in samples], dtype=torch.float32),
    }
    for name in samples[0].columns:
        values = np.concatenate([s.columns[name] for s in samples])
        batch[name] = torch.from_numpy(values.astype(np.float32) if values.dtype == np.float16 else values)
    return {**batch, "sample_ids": [s.sample_id for s in samples]}
