"""Figures of a token from the logits at its position: log-probability, entropy, rank, the most probable tokens."""

from __future__ import annotations

import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

__all__ = ["TOP", "entropy_of_top", "most_probable", "token_statistics"]

TOP = 20
"""Tokens behind `entropy_top20`."""


def token_statistics(logits: Float[Tensor, "P V"], target: Int[Tensor, "P"]) -> tuple[Tensor, Tensor, Tensor]:
    """(log p, entropy, rank) of the targets, each (P,), from float32 logits, which become log-probabilities in place.

    Entropy is logsumexp(z) - sum p z. The rank counts the logits strictly above the target's, plus one.
    """
    own = logits.gather(1, target[:, None])
    rank = (logits > own).sum(dim=1, dtype=torch.int32) + 1
    lse = torch.logsumexp(logits, dim=1, keepdim=True)
    centred = logits.sub_(lse)
    entropy = -(centred.exp() * centred).sum(dim=1)
    if not torch.isfinite(entropy).all():  # a logit of -inf makes 0 * -inf
        entropy = -torch.where(centred == -torch.inf, 0.0, centred.exp() * centred).sum(dim=1)
    return (own - lse)[:, 0], entropy, rank


def most_probable(logprobs: Float[Tensor, "P V"], k: int) -> tuple[Int[Tensor, "P k"], Float[Tensor, "P k"]]:
    """(ids, log-probabilities) of the k most probable tokens, falling; equal ones by rising id.

    Which of several equal ones at the k-th place is taken is up to torch.topk.
    """
    values, ids = torch.topk(logprobs, k, dim=1)
    ids, order = ids.sort(dim=1)
    values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return ids.gather(1, order), values


def entropy_of_top(top: Float[Tensor, "P k"]) -> Float32[Tensor, "P"]:
    """Entropy in nats of the k most probable tokens, their probabilities made to sum to 1; EAFT takes k = 20."""
    return torch.special.entr(top.softmax(dim=1)).sum(dim=1)
