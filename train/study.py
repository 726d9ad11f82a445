"""Held-out negative log-likelihood of several objectives, with intervals over seeds and samples.

Every run of a study is evaluated on the same held-out samples, so two objectives are compared pair by pair: same seed,
same sample. An interval answers for both kinds of chance at once: a draw takes seeds with replacement and, apart from
that, samples with replacement (a pigeonhole bootstrap, Owen 2007, doi 10.1214/07-AOAS122), and a statistic is a
ratio of sums over what was drawn. With one seed, the interval is one over samples alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

__all__ = ["Estimate", "Row", "study_rows"]

_LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval; NaN where there is nothing to compute it from."""

    value: float
    low: float
    high: float

    @property
    def undecided(self) -> bool:
        """The interval holds 0, or there is none."""
        return not (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class Row:
    """An objective on one class of held-out tokens. `nll`: mean in nats a token; `difference`: from the untuned model,
    and `against`: from the study's first objective, paired by seed and sample; None for those two themselves."""

    objective: str
    token_class: str
    tokens: int
    nll: Estimate
    difference: Estimate | None
    against: Estimate | None


def study_rows(
    runs: Mapping[str, Float[NDArray, "S N C"]],
    untuned: Float[NDArray, "N C"],
    tokens: Float[NDArray, "N C"],
    classes: Sequence[str],
    draws: int = 10_000,
    seed: int = 0,
) -> list[Row]:
    """`runs`: of each objective, for S seeds, N held-out samples and C classes, the sum of the nll in nats over the
    sample's tokens of the class; `untuned`: the same of the model before training; `tokens`: how many they are."""
    seeds = {len(sums) for sums in runs.values()}
    if len(seeds) != 1:
        raise ValueError(f"objectives with unlike numbers of seeds: {sorted(seeds)}")
    random = np.random.default_rng(seed)
    drawn = _Draws(_multiplicities(seeds.pop(), draws, random), _multiplicities(len(tokens), draws, random), tokens)
    base = untuned[None].repeat(drawn.seeds.shape[1], axis=0)
    first = next(iter(runs), None)
    rows = []
    for name, sums in [("untuned", base), *runs.items()]:
        level = drawn.estimates(sums)
        change = drawn.estimates(sums - base) if name != "untuned" else None
        gap = drawn.estimates(sums - runs[first]) if first is not None and name not in ("untuned", first) else None
        rows += [
            Row(name, c, int(tokens[:, i].sum()), level[i], change and change[i], gap and gap[i])
            for i, c in enumerate(classes)
        ]
    return rows


@dataclass(frozen=True)
class _Draws:
    """How often each draw holds each seed (D, S) and each sample (D, N); `tokens` (N, C)."""

    seeds: Float[NDArray, "D S"]
    samples: Float[NDArray, "D N"]
    tokens: Float[NDArray, "N C"]

    def estimates(self, sums: Float[NDArray, "S N C"]) -> list[Estimate]:
        """The mean a token over seeds and samples, of each class."""
        value = _ratio(sums.mean(axis=0).sum(axis=0), self.tokens.sum(axis=0))  # (C,)
        by_seed = np.einsum("dn,snc->dsc", self.samples, sums)
        drawn = _ratio(
            np.einsum("ds,dsc->dc", self.seeds, by_seed) / self.seeds.shape[1], self.samples @ self.tokens
        )  # (D, C)
        return [Estimate(float(v), *_middle(d)) for v, d in zip(value, drawn.T, strict=True)]


def _multiplicities(number: int, draws: int, random: np.random.Generator) -> Float[NDArray, "D K"]:
    """(draws, number): how often each of them is in a draw of as many, with replacement."""
    if not number:
        return np.zeros((draws, 0))
    return random.multinomial(number, np.full(number, 1 / number), size=draws).astype(np.float64)


def _ratio(total: Float[NDArray, "*K"], number: Float[NDArray, "*K"]) -> Float[NDArray, "*K"]:
    return np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0)


def _middle(drawn: Float[NDArray, "D"]) -> tuple[float, float]:
    """The middle 95 %; NaN where more than 5 % of the draws hold no token of the class."""
    there = drawn[np.isfinite(drawn)]
    if len(there) < max(1.0, _LEVEL * len(drawn)):
        return float("nan"), float("nan")
    low, high = np.quantile(there, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return float(low), float(high)
