"""Annotated samples as training batches: truncation, packing, the shift by one, and the order of the samples.

A batch is one row without padding: its samples end to end, with positions that start again at 0. Without an attention
mask `transformers` makes the block-diagonal causal mask from these positions, so that no sample sees another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int32, Int64
from numpy import ndarray as Array

from train.inputs.dataset import Opened

__all__ = ["EpochSampler", "Sample", "SampleSet", "blank_batch", "collate", "pack"]


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

    def __getitems__(self, numbers: Sequence[int]) -> list[list[Sample]]:
        """Several rows, as a loader asks for them; len(self), by which `EpochSampler` fills up, stands for none."""
        return [self[number] for number in numbers if number < len(self)]

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


class EpochSampler(torch.utils.data.Sampler[int]):
    """The order of an epoch, made of the seed and the epoch's number alone, so that a resumed run goes on in it.

    The end is filled up to a multiple of `multiple` (ranks times batch size) with the index len(data), which stands for
    nothing: each rank gets as many batches as the others, and no sample counts twice.
    """

    def __init__(self, data: Sized, multiple: int, *, seed: int | None, epoch: Callable[[], int] = lambda: 0) -> None:
        """Without a seed: the order of the data."""
        self._samples, self._seed, self._epoch = len(data), seed, epoch
        self._filling = -len(data) % multiple

    def __len__(self) -> int:
        return self._samples + self._filling

    def __iter__(self) -> Iterator[int]:
        order: Sequence[int] = range(self._samples)
        if self._seed is not None:
            random = torch.Generator().manual_seed(self._seed * 1_000_003 + self._epoch())
            order = torch.randperm(self._samples, generator=random).tolist()
        yield from order
        yield from [self._samples] * self._filling


def blank_batch(batch: Mapping[str, Any]) -> dict[str, Any]:
    """A batch of the same kind that supervises nothing, for a rank that has no more data: it must still go through the
    model, or the other ranks wait for it. It has no sample ids, by which denominators and figures leave it out."""
    tokens = len(batch["targets"])
    keep = {"input_ids": batch["input_ids"][:, :2], "position_ids": batch["position_ids"][:, :2]}
    keep |= {"sample_weight": batch["sample_weight"][:1], "sample_ids": []}
    rest = {name: value for name, value in batch.items() if name not in keep}
    return keep | {name: value[:0] if len(value) == tokens else value for name, value in rest.items()}
