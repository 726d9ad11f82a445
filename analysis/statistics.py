"""How confident two classes of tokens are: exact statistics from how many tokens of each class have each confidence.

Log-probabilities are stored as float16, so there are at most some ten thousand different confidences however many
tokens a dataset has; DuckDB counts them, and everything here is a sum over the counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.dataset import LABELS, Dataset

__all__ = ["FINITE", "Counts", "auc", "cliffs_delta", "ks", "means", "medians", "token_counts"]

FINITE = "logprob < 1"
"""Condition on the view `tokens`: the token has a score. A probability of 0 (log -inf) is one; null, NaN (to DuckDB the
greatest number) and what no probability's logarithm is, rounding apart, are none."""


@dataclass(frozen=True, eq=False)
class Counts:
    """`values` (V,), float64: the different confidences, rising; `sensitive` and `neutral` (V,), int64: how many
    tokens of the class have each."""

    values: NDArray[np.float64]
    sensitive: NDArray[np.int64]
    neutral: NDArray[np.int64]

    @property
    def tokens(self) -> tuple[int, int]:
        """(sensitive, neutral)."""
        return int(self.sensitive.sum()), int(self.neutral.sum())


def token_counts(dataset: Dataset, labels: str = "statement", where: str = "in_code") -> Counts:
    """The counts of a scored dataset by a label set of `LABELS`. `where`: an SQL condition on the view `tokens`; tokens
    without a score are left out."""
    frame = dataset.query(f"""
        SELECT confidence, count(*) FILTER (WHERE {LABELS[labels]}) AS sensitive,
            count(*) FILTER (WHERE NOT {LABELS[labels]}) AS neutral
        FROM tokens WHERE ({where}) AND {FINITE} GROUP BY confidence ORDER BY confidence
    """)
    return Counts(
        frame["confidence"].cast(float).to_numpy(),
        frame["sensitive"].cast(int).to_numpy(),
        frame["neutral"].cast(int).to_numpy(),
    )


def means(counts: Counts) -> tuple[float, float]:
    """Mean confidence (sensitive, neutral); NaN for a class without tokens."""
    first, second = (_divided(float(counts.values @ c), int(c.sum())) for c in (counts.sensitive, counts.neutral))
    return first, second


def medians(counts: Counts) -> tuple[float, float]:
    """Median confidence (sensitive, neutral), the mean of the middle two of an even number; NaN without tokens."""
    return _median(counts.values, counts.sensitive), _median(counts.values, counts.neutral)


def ks(counts: Counts) -> tuple[float, float]:
    """Two-sample Kolmogorov-Smirnov: (D, two-sided p), NaN where a class has no token.

    D is exact; p is that of `scipy.stats.ks_2samp(method="asymp")`, the distribution at the effective size
    nm / (n + m). It takes tokens for independent, which they are not: read it beside an interval by samples. A p under
    1e-308 is 0.
    """
    sensitive, neutral = counts.tokens
    if not sensitive or not neutral:
        return float("nan"), float("nan")
    apart = np.cumsum(counts.sensitive) / sensitive - np.cumsum(counts.neutral) / neutral
    distance = float(np.abs(apart).max())
    effective = max(1, round(sensitive * neutral / (sensitive + neutral)))
    return distance, float(np.clip(stats.kstwo.sf(distance, effective), 0, 1))


def auc(counts: Counts) -> float:
    """Probability that a sensitive token is surer than a neutral one, equal ones counting half: the area under the
    ROC curve, U / nm of Mann and Whitney. NaN where a class has no token."""
    sensitive, neutral = counts.tokens
    below = np.cumsum(counts.neutral) - counts.neutral / 2  # neutral tokens below, and half of those that are equal
    return _divided(float((counts.sensitive / max(sensitive, 1)) @ below), neutral if sensitive else 0)


def cliffs_delta(counts: Counts) -> float:
    """P(sensitive surer) - P(neutral surer), in [-1, 1]; 2 AUC - 1."""
    return 2 * auc(counts) - 1


def _divided(total: float, number: int) -> float:
    return total / number if number else float("nan")


def _median(values: NDArray[np.float64], numbers: NDArray[np.int64]) -> float:
    total = int(numbers.sum())
    if not total:
        return float("nan")
    middle = np.searchsorted(np.cumsum(numbers), [(total - 1) // 2, total // 2], side="right")
    return float(values[middle].mean())
