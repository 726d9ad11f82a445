"""What is measured of one dataset: means and effect sizes by label set and control, categories, low windows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.bootstrap import DRAWS, Interval, bootstrap, divided, interval, paired, resampled
from analysis.controls import CONTROLS, Controlled
from analysis.dataset import LABELS
from analysis.statistics import auc, cliffs_delta, ks, means, medians
from curate.store import ANALYSIS_WINDOW
from curate.taxonomy import CATEGORIES

__all__ = [
    "RULES", "CategoryFinding", "OverlapFinding", "TokenFinding", "WindowFinding", "category_findings",
    "overlap_findings", "token_finding", "window_finding",
]  # fmt: skip

RULES = {"touching": "any of its tokens is sensitive", "above": "more of it is sensitive than of its sample's code"}
"""Rule -> when a window falls on a sensitive structure."""


@dataclass(frozen=True)
class TokenFinding:
    """Confidence of sensitive and neutral code tokens under a label set and a control. Fields that end in _low and
    _high: 95 % interval by samples of the field before. `*_samples`: those that have such tokens. `paired_*`:
    difference within samples, each counting once. `ks_p` takes tokens for independent. `wilcoxon_p` is of the same
    differences, `shift_p` of a permutation test of them that shifts labels within samples (`bootstrap.ShiftTest`)."""

    labels: str
    control: str
    sensitive_tokens: int
    neutral_tokens: int
    sensitive_samples: int
    neutral_samples: int
    sensitive_mean: float
    neutral_mean: float
    sensitive_median: float
    neutral_median: float
    gap: float
    gap_low: float
    gap_high: float
    ks_d: float
    ks_p: float
    cliffs_delta: float
    cliffs_delta_low: float
    cliffs_delta_high: float
    auc: float
    paired_samples: int
    paired: float
    paired_low: float
    paired_high: float
    paired_positive: float
    wilcoxon_p: float
    shift_p: float


@dataclass(frozen=True)
class CategoryFinding:
    """Mean confidence of a category, and how far it is above that of the neutral tokens (category labels)."""

    category: str
    tokens: int
    mean: float
    mean_low: float
    mean_high: float
    gap: float
    gap_low: float
    gap_high: float


@dataclass(frozen=True)
class OverlapFinding:
    """Tokens that are sensitive by the one, the other, both or neither label set, `share` of all code tokens, and their
    mean confidence."""

    sensitive_by: str
    tokens: int
    share: float
    mean: float
    mean_low: float
    mean_high: float


@dataclass(frozen=True)
class WindowFinding:
    """Windows of `length` code tokens under a label set and a rule for falling on a sensitive structure.

    `share`: of the low windows; `base`: of all windows; `lift`: share / base. `samples_share`: samples with a low
    window, of those long enough for one; Wilson interval. `threshold`: the neutral mean, taken as given.
    """

    labels: str
    rule: str
    length: int
    threshold: float
    windows: int
    low_windows: int
    samples: int
    samples_with_low: int
    samples_share: float
    samples_share_low: float
    samples_share_high: float
    share: float
    share_low: float
    share_high: float
    base: float
    base_low: float
    base_high: float
    lift: float
    lift_low: float
    lift_high: float


def token_finding(c: Controlled, labels: str, control: str, draws: int = DRAWS, seed: int = 0) -> TokenFinding:
    """All of one label set under one control."""
    i, j = tuple(LABELS).index(labels), tuple(CONTROLS).index(control)
    counts = c.counts(labels, control)
    numbers, sums = c.numbers[i, j], c.sums[i, j]
    there = int((numbers[0] > 0).sum()), int((numbers[1] > 0).sum())
    _, gap = bootstrap(np.concatenate([sums, numbers]).T, _gap, draws, seed)
    delta = cliffs_delta(counts)
    within = paired(np.subtract(*divided(sums, numbers)))
    mean, median, (distance, p) = means(counts), medians(counts), ks(counts)
    delta_low, delta_high = _delta_interval(c.histograms[i, j], delta, draws, seed)
    return TokenFinding(
        labels, control, *counts.tokens, *there, *mean, *median, mean[0] - mean[1], *gap,
        distance, p, delta, delta_low, delta_high, auc(counts), within.samples, within.mean, *within.t_interval,
        within.positive, within.wilcoxon_p, c.shift_p[labels, control],
    )  # fmt: skip


def _gap(totals: NDArray[Any]) -> NDArray[Any]:
    """(..., 4), sums of the classes, then their numbers -> difference of the means."""
    found = divided(totals[..., :2], totals[..., 2:])
    return np.asarray(found[..., 0] - found[..., 1])


def _mean(totals: NDArray[Any]) -> NDArray[Any]:
    """(..., 2), sums, then their numbers -> mean."""
    return divided(totals[..., 0], totals[..., 1])


def _delta_interval(histograms: NDArray[np.float32], exact: float, draws: int, seed: int) -> Interval:
    """Histograms (2, N, bins). The spread is that of the binned statistic, put around the exact value."""
    bins = histograms.shape[-1]
    drawn = resampled(np.concatenate(list(histograms), axis=1), draws, seed)
    binned = _binned_delta(histograms.sum(axis=1, dtype=np.float64).reshape(1, -1), bins)[0]
    low, high = interval(_binned_delta(drawn, bins))
    return low + exact - binned, high + exact - binned


def _binned_delta(totals: NDArray[Any], bins: int) -> NDArray[np.float64]:
    sensitive, neutral = totals[:, :bins].astype(float), totals[:, bins:].astype(float)
    below = np.cumsum(neutral, axis=1) - neutral / 2
    pairs = sensitive.sum(axis=1) * neutral.sum(axis=1)
    return 2 * divided((sensitive * below).sum(axis=1), pairs) - 1


def category_findings(c: Controlled, draws: int = DRAWS, seed: int = 0) -> Iterable[CategoryFinding]:
    """Of every category that has tokens, in the order of the taxonomy."""
    numbers, sums = c.categories
    for i, category in enumerate(CATEGORIES):
        if i and numbers[i].any():
            columns = np.stack([sums[i], sums[0], numbers[i], numbers[0]], axis=1)
            gap, (low, high) = bootstrap(columns, _gap, draws, seed)
            mean, mean_interval = bootstrap(np.stack([sums[i], numbers[i]], axis=1), _mean, draws, seed)
            yield CategoryFinding(category, int(numbers[i].sum()), mean, *mean_interval, gap, low, high)


def overlap_findings(c: Controlled, draws: int = DRAWS, seed: int = 0) -> Iterable[OverlapFinding]:
    """`statement` labels against `category` labels, where there are tokens."""
    numbers, sums = c.label_sets
    for i, name in enumerate(("neither", "category", "statement", "both")):
        if numbers[i].any():
            columns = np.stack([sums[i], numbers[i]], axis=1)
            mean, (low, high) = bootstrap(columns, _mean, draws, seed)
            tokens = int(numbers[i].sum())
            yield OverlapFinding(name, tokens, float(tokens / numbers.sum()), mean, low, high)


def window_finding(
    counted: NDArray[np.float64],
    labels: str,
    rule: str,
    threshold: float,
    length: int = ANALYSIS_WINDOW,
    draws: int = DRAWS,
    seed: int = 0,
) -> WindowFinding:
    """`counted`: what `windows_by_sample` gives for the label set, threshold and length. `rule`: one of `RULES`."""
    every, low, touching, low_touching, above, low_above = counted.T
    on, low_on = (touching, low_touching) if rule == "touching" else (above, low_above)
    columns = np.stack([low_on, low, on, every], axis=1)
    share, share_interval = bootstrap(columns, _mean, draws, seed)
    base, base_interval = bootstrap(columns, lambda t: divided(t[..., 2], t[..., 3]), draws, seed)
    lift, lift_interval = bootstrap(
        columns, lambda t: divided(divided(t[..., 0], t[..., 1]), divided(t[..., 2], t[..., 3])), draws, seed
    )
    samples, with_low = int((every > 0).sum()), int((low > 0).sum())
    of_samples = stats.binomtest(with_low, samples).proportion_ci(method="wilson") if samples else (math.nan, math.nan)
    return WindowFinding(
        labels, rule, length, threshold, int(every.sum()), int(low.sum()), samples, with_low,
        with_low / samples if samples else math.nan, float(of_samples[0]), float(of_samples[1]), share,
        *share_interval, base, *base_interval, lift, *lift_interval,
    )  # fmt: skip
