"""In which order samples come, and what a rank gets that has no more of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import Any

import torch
from torch.utils.data import Sampler

__all__ = ["EpochSampler", "blank_batch"]


class EpochSampler(Sampler[int]):
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
