"""Intervals and tests that take samples, not tokens, for the independent observations.

The tokens of a sample hang together, so a test that counts each of them as an observation is far too sure. The
bootstrap here draws whole samples; every statistic is a function of sums over samples, so a draw is one product of a
row of multiplicities with the samples' sums. The test within samples shifts a sample's labels around its tokens in a
circle, which keeps the runs that labels form and the likeness of neighbours in confidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import fft, stats

__all__ = [
    "DRAWS", "SHIFTS", "Interval", "Paired", "ShiftTest", "bootstrap", "divided", "interval", "paired", "resampled",
    "shifted",
]  # fmt: skip

DRAWS = 10_000
"""Draws of samples behind each interval, in findings and figures alike."""

SHIFTS = 1000
"""Draws of the test that shifts labels: a p of 0.001 is its smallest."""

Interval = tuple[float, float]

_CELLS = 2**21
"""Multiplicities that are worked on at once."""

_ROWS = 32
"""Samples whose shifts are computed together."""

_KEPT = 2**27
"""Multiplicities, a byte each, that are kept for the next statistic of as many samples."""


def divided(total: NDArray[np.floating], number: NDArray[np.floating]) -> NDArray[np.float64]:
    """total / number, NaN where the number is 0."""
    return np.divide(total, number, out=np.full(np.broadcast(total, number).shape, np.nan), where=number > 0)


def resampled(sums: NDArray[np.floating], draws: int = DRAWS, seed: int = 0) -> NDArray[np.floating]:
    """(draws, K): the totals of the samples' sums (N, K) over N samples drawn with replacement.

    The same seed draws the same samples for every statistic of the same N.
    """
    parts = [sums[:0]]
    for times in _multiplicities(len(sums), draws, seed):
        parts.append(times.astype(sums.dtype) @ sums)
    return np.concatenate(parts)


@lru_cache(maxsize=2)
def _kept_multiplicities(samples: int, draws: int, seed: int) -> tuple[NDArray[np.uint8], ...]:
    return tuple(_drawn_multiplicities(samples, draws, seed))


def _multiplicities(samples: int, draws: int, seed: int) -> Iterable[NDArray[np.uint8]]:
    """(rows, samples): how often each draw holds each sample, a few draws at a time."""
    if samples * draws > _KEPT:
        return _drawn_multiplicities(samples, draws, seed)
    return _kept_multiplicities(samples, draws, seed)


def _drawn_multiplicities(samples: int, draws: int, seed: int) -> Iterator[NDArray[np.uint8]]:
    random = np.random.default_rng(seed)
    step = max(1, _CELLS // max(samples, 1))
    for done in range(0, draws if samples else 0, step):
        rows = min(step, draws - done)
        drawn = random.integers(0, samples, (rows, samples)) + np.arange(rows)[:, None] * samples
        times = np.bincount(drawn.ravel(), minlength=rows * samples)
        yield np.minimum(times, 255).astype(np.uint8).reshape(rows, samples)


def interval(drawn: NDArray[np.floating], level: float = 0.95) -> Interval:
    """The middle `level` of what was drawn (percentile bootstrap); NaN where a draw gave nothing in more than 1 - level
    of the cases."""
    there = drawn[np.isfinite(drawn)]
    if len(there) == 0 or len(there) < level * len(drawn):
        return float("nan"), float("nan")
    low, high = np.quantile(there, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def bootstrap(
    sums: NDArray[np.floating],
    statistic: Callable[[NDArray[np.floating]], NDArray[np.floating]],
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[float, Interval]:
    """A statistic of totals with its 95 % interval by samples. `sums` (N, K); `statistic`: (..., K) -> (...)."""
    value = float(statistic(sums.sum(axis=0, dtype=np.float64)[None])[0])
    return value, interval(statistic(resampled(sums, draws, seed)))


@dataclass(frozen=True)
class Paired:
    """The difference sensitive - neutral within each sample that has tokens of both, each sample counting once.

    `t_interval`: 95 %, Student; `wilcoxon_p`: signed rank. NaN for fewer than two samples, or without a spread.
    """

    samples: int
    mean: float
    t_interval: Interval
    wilcoxon_p: float
    positive: float
    """Share of samples in which sensitive tokens are surer."""


def paired(differences: NDArray[np.float64]) -> Paired:
    """`differences` (N,): NaN for samples without tokens of both classes."""
    found = differences[np.isfinite(differences)]
    nothing = float("nan")
    if len(found) < 2 or not np.ptp(found):
        mean = float(found.mean()) if len(found) else nothing
        positive = float((found > 0).mean()) if len(found) else nothing
        return Paired(len(found), mean, (nothing, nothing), nothing, positive)
    t_low, t_high = stats.ttest_1samp(found, 0).confidence_interval()
    return Paired(
        samples=len(found),
        mean=float(found.mean()),
        t_interval=(float(t_low), float(t_high)),
        wilcoxon_p=float(stats.wilcoxon(found).pvalue),
        positive=float((found > 0).mean()),
    )


def shifted(
    confidence: NDArray[np.float64], labels: NDArray[np.bool_], lengths: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """(R, longest) paired differences of R samples for each shift of a sample's labels around its tokens, the true one
    first, and the samples' (R,) lengths, after which a row holds nothing. Samples without a class are left out.

    `confidence`, `labels`: of the tokens of all samples; `lengths`: tokens of each.
    """
    starts = np.cumsum(lengths) - lengths
    before = np.concatenate([[0], np.cumsum(labels)])
    sensitive = before[starts + lengths] - before[starts]
    both = np.flatnonzero((sensitive > 0) & (sensitive < lengths))
    both = both[np.argsort(lengths[both], kind="stable")]  # samples of like length share a table
    for rows in (both[i : i + _ROWS] for i in range(0, len(both), _ROWS)):
        tokens, number = lengths[rows, None], sensitive[rows, None]
        place = np.arange(tokens.max())
        there = place < tokens
        where = np.where(there, starts[rows, None] + place, 0)
        values, marks = confidence[where] * there, (labels[where] & there).astype(float)
        size = fft.next_fast_len(2 * len(place), real=True)
        products = fft.irfft(np.conj(fft.rfft(marks, size)) * fft.rfft(values, size), size)
        # what a shift moves over the end comes back at the beginning: a product at a negative lag
        sums = products[:, : len(place)] + np.take_along_axis(products, (place - tokens) % size, axis=1)
        yield sums / number - (values.sum(axis=1, keepdims=True) - sums) / (tokens - number), lengths[rows]


class ShiftTest:
    """The mean paired difference against what it would be if each sample's labels were shifted at random."""

    def __init__(self, draws: int = SHIFTS, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)
        self._null = np.zeros(draws)
        self._true = 0.0
        self._samples = 0

    def add(self, confidence: NDArray[np.float64], labels: NDArray[np.bool_], lengths: NDArray[np.int64]) -> None:
        """Further samples, as for `shifted`."""
        for differences, tokens in shifted(confidence, labels, lengths):
            shifts = (self._random.random((len(tokens), len(self._null))) * tokens[:, None]).astype(np.int64)
            self._null += np.take_along_axis(differences, shifts, axis=1).sum(axis=0)
            self._true += differences[:, 0].sum()
            self._samples += len(tokens)

    @property
    def p(self) -> float:
        """Two-sided: the share of draws at least as far from 0, the true one counted among them; NaN without a
        sample."""
        if not self._samples:
            return float("nan")
        beyond = np.abs(self._null) >= abs(self._true) * (1 - 1e-9)
        return float((1 + beyond.sum()) / (1 + len(self._null)))
