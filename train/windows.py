"""The lowest mean over windows of each packed sample: clipped and centred (equation (5)), or full.

The same windows as in `curate.weights`, here on tensors of several samples laid end to end, so that they follow the
model that is being trained. Cost: one pass of prefix sums in float64, no loop over samples.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

__all__ = ["lowest_centred", "lowest_full"]


def lowest_centred(
    values: Float[Tensor, "N"],
    sample_index: Int64[Tensor, "N"],
    samples: int,
    window: int,
    *,
    inside: Bool[Tensor, "N"] | None = None,
    centres: Bool[Tensor, "N"] | None = None,
) -> Float64[Tensor, "B"]:
    """min C_t of each sample, equations (5) to (7), T being the tokens of the sample that stand `inside`.

    `sample_index` rises from 0; `samples` is B. `centres` keeps the windows around these tokens alone. A sample without
    a token inside, or without a centre, is taken as if all of its tokens were; one without a token has infinity.
    """
    if inside is not None:
        kept = _or_all(inside, sample_index, samples)
        values, sample_index = values[kept], sample_index[kept]
        centres = None if centres is None else centres[kept]
    length, first, t = _positions(sample_index, samples)
    short = length < window
    start = torch.where(short, 0, (t - window // 2).clamp(min=0))
    end = torch.where(short, length, torch.minimum(length, t + (window + 1) // 2))
    means = _means(values, first + start, first + end)
    if centres is not None:
        means = means.masked_fill(~_or_all(centres, sample_index, samples), torch.inf)
    return _lowest(means, sample_index, samples)


def lowest_full(
    values: Float[Tensor, "N"], sample_index: Int64[Tensor, "N"], samples: int, window: int
) -> Float64[Tensor, "B"]:
    """The lowest mean over full windows by start token; of a sample shorter than the window, over all of it."""
    length, first, t = _positions(sample_index, samples)
    full = t + length.clamp(max=window)
    means = _means(values, first + t, first + torch.minimum(full, length))
    return _lowest(means.masked_fill(full > length, torch.inf), sample_index, samples)


def _positions(sample_index: Int64[Tensor, "N"], samples: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of each token: the length of its sample, where that begins, and its own position in it from 0; each (N,)."""
    lengths = torch.bincount(sample_index, minlength=samples)
    first = (lengths.cumsum(0) - lengths)[sample_index]
    return lengths[sample_index], first, torch.arange(len(sample_index), device=sample_index.device) - first


def _means(values: Float[Tensor, "N"], start: Int64[Tensor, "N"], end: Int64[Tensor, "N"]) -> Float64[Tensor, "N"]:
    total = torch.nn.functional.pad(values.double().cumsum(0), (1, 0))
    return (total[end] - total[start]) / (end - start)


def _lowest(means: Float64[Tensor, "N"], sample_index: Int64[Tensor, "N"], samples: int) -> Float64[Tensor, "B"]:
    nothing = torch.full((samples,), torch.inf, dtype=torch.float64, device=means.device)
    return nothing.scatter_reduce(0, sample_index, means, "amin")


def _or_all(chosen: Bool[Tensor, "N"], sample_index: Int64[Tensor, "N"], samples: int) -> Bool[Tensor, "N"]:
    """`chosen`, but every token of the samples in which none is chosen."""
    return chosen | (torch.bincount(sample_index[chosen], minlength=samples) == 0)[sample_index]
