"""What training and evaluation report: negative log-likelihoods by class of token, as sums over each sample.

all             every response token
sensitive       tokens of a CUDA-sensitive category
neutral         tokens of code without a category (prose is in neither)
low_confidence  sensitive tokens of code whose stored confidence is below the dataset's neutral mean, the tokens that
                regions are made of; the stored confidence, so that the class stays the same while the model changes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float64
from numpy import ndarray as Array
from scipy import stats
from torch import Tensor

__all__ = ["CLASSES", "CLASS_COLUMNS", "HeldOut", "class_sums", "nll_name", "token_classes"]

CLASSES = ("all", "sensitive", "neutral", "low_confidence")
CLASS_COLUMNS = ("category", "in_code", "logprob")
"""Stored token lists that tell the classes."""

_DRAWS = 1000


def nll_name(token_class: str) -> str:
    """What logs and results call the nll of a class."""
    return "nll" if token_class == "all" else f"nll_{token_class}"


def token_classes(batch: Mapping[str, Any], neutral_mean: float | None) -> Bool[Tensor, "N 4"]:
    """Which of `CLASSES` each response token is in; no token is low without a neutral mean, or without scores."""
    sensitive, in_code = batch["category"] > 0, batch["in_code"].bool()
    low = torch.zeros_like(in_code)
    if neutral_mean is not None and "logprob" in batch:
        low = batch["logprob"].float().exp() < neutral_mean
    columns = (torch.ones_like(in_code), sensitive, in_code & ~sensitive, in_code & sensitive & low)
    return torch.stack(columns, dim=1)


def class_sums(nll: Tensor, batch: Mapping[str, Any], neutral_mean: float | None) -> Float64[Tensor, "2 B 4"]:
    """[0]: the sum of nll (nats), [1]: the number of tokens, of each sample of the batch and each class."""
    inside = token_classes(batch, neutral_mean).double()
    # where, not a product: a masked token whose nll is infinite must not make the sums of other classes NaN
    values = torch.stack([torch.where(inside > 0, nll.detach().double()[:, None], 0.0), inside])
    sums = values.new_zeros(2, len(batch["sample_weight"]), len(CLASSES))
    return sums.index_add_(1, batch["sample_index"], values)


@dataclass(frozen=True)
class HeldOut:
    """Sums over each held-out sample, in nats and tokens; columns as `CLASSES`."""

    sample_ids: tuple[str, ...]
    nll: Float64[Array, "S 4"]
    tokens: Float64[Array, "S 4"]

    @classmethod
    def of(cls, parts: Sequence[tuple[Sequence[str], Float64[Array, "2 B 4"]]]) -> HeldOut:
        """Puts the sums of batches together, ordered by sample id, whatever rank had which."""
        ids = [one for names, _ in parts for one in names]
        order = sorted(range(len(ids)), key=ids.__getitem__)
        sums = np.concatenate([part for _, part in parts], axis=1)[:, order]
        return cls(tuple(ids[n] for n in order), sums[0], sums[1])

    def means(self) -> dict[str, float]:
        """nll of a token of each class: sums over all samples, divided once; NaN for a class without tokens."""
        nll, tokens = self.nll.sum(axis=0), self.tokens.sum(axis=0)
        return {name: float(n / t) if t else float("nan") for name, n, t in zip(CLASSES, nll, tokens, strict=True)}

    def intervals(self, seed: int = 0) -> dict[str, tuple[float, float]]:
        """95 % percentile intervals of `means`, by drawing samples (not tokens) with replacement; NaN for a class that
        fewer than two samples hold."""
        found = {}
        for k, name in enumerate(CLASSES):
            held = self.tokens[:, k] > 0
            if held.sum() < 2:
                found[name] = (float("nan"), float("nan"))
                continue
            drawn = stats.bootstrap(
                (self.nll[held, k], self.tokens[held, k]),
                lambda nll, tokens, axis=-1: nll.sum(axis=axis) / tokens.sum(axis=axis),
                paired=True, vectorized=True, n_resamples=_DRAWS, method="percentile", rng=seed,
            )  # fmt: skip
            found[name] = (float(drawn.confidence_interval.low), float(drawn.confidence_interval.high))
        return found
