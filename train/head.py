"""The head: weighted cross-entropy of the response tokens, in chunks, so that the logits of a sample never exist at once.

    loss = sum_n weight_n * (-log p_n) + sum_n kl_n * KL(reference, model)_n

The gradient is formed in the forward pass, chunk by chunk: d loss / d logits = weight * (p - onehot) + kl * (p - q).
Weights that depend on the whole sequence cost one pass over the vocabulary more, which collects the statistics first.
Cost: 2 products of N x H x V, 3 where the output embedding is trained, one more for whole-sequence weights and one for
a reference. Memory: two or three chunks of float32 logits, and the gradients themselves.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor, nn

from curate.errors import ModelError, OptionError
from curate.statistics import TOP, entropy_of_top
from train.objectives import Objective, TokenStatistics

__all__ = ["HeadOutput", "attach_head", "check_head", "weighted_cross_entropy"]

_CHUNK_VALUES = {"cpu": 1 << 24, "cuda": 1 << 26}
"""Float32 logits in memory at once, by kind of device: 64 MiB, 256 MiB."""

Weights = Float32[Tensor, "N"] | Callable[[TokenStatistics, slice], Tensor]


@dataclass(frozen=True)
class HeadOutput:
    """The un-normalised loss, and of the N tokens, detached: statistics, weights, and KL where there is a reference."""

    loss: Float32[Tensor, ""]
    statistics: TokenStatistics
    weights: Float32[Tensor, "N"]
    kl: Float32[Tensor, "N"] | None


@dataclass(frozen=True, eq=False)
class _Vocabulary:
    """From hidden states to log-probabilities: the output embedding in the type of the products, and what the model does
    to its logits: z = softcap * tanh(scale * (W h + b) / softcap)."""

    weight: Float[Tensor, "V H"]
    bias: Float[Tensor, "V"] | None
    scale: float
    softcap: float | None
    rows: int
    """Tokens in a chunk."""

    def chunks(self, hidden: Float[Tensor, "N H"]) -> Iterator[tuple[slice, Tensor]]:
        """(which tokens, their logits (P, V) in float32), which the next chunk overwrites."""
        count, size = len(hidden), self.weight.shape[0]
        rows = min(self.rows, count)
        logits = torch.empty(rows, size, dtype=torch.float32, device=hidden.device)
        direct = self.weight.dtype == torch.float32
        product = logits if direct else torch.empty(rows, size, dtype=self.weight.dtype, device=hidden.device)
        for first in range(0, count, self.rows):
            part = slice(first, min(first + self.rows, count))
            z = logits[: part.stop - first]
            if self.bias is None:
                torch.mm(hidden[part], self.weight.T, out=product[: len(z)])
            else:
                torch.addmm(self.bias, hidden[part], self.weight.T, out=product[: len(z)])
            if not direct:
                z.copy_(product[: len(z)])
            if self.scale != 1:
                z.mul_(self.scale)
            if self.softcap:
                z.div_(self.softcap).tanh_().mul_(self.softcap)
            yield part, z
