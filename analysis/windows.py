"""Low-confidence windows of code tokens, counted by sample: the paper's second claim."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from analysis.controls import Batch, batches
from analysis.dataset import LABELS, Dataset
from curate.store import ANALYSIS_WINDOW

__all__ = ["WINDOW_COLUMNS", "windows_by_sample"]

WINDOW_COLUMNS = ("windows", "low", "touching", "low_touching", "above", "low_above")
"""Numbers of windows: all; with a mean below the threshold; with any sensitive token; low and so; with a greater share
of sensitive tokens than the code of their sample; low and so."""


def windows_by_sample(
    dataset: Dataset, thresholds: dict[str, float], length: int = ANALYSIS_WINDOW
) -> dict[str, NDArray[np.float64]]:
    """Label set -> (N, 6), the columns `WINDOW_COLUMNS` for every sample with scores.

    Windows are those of the macro `windows(length)`: full, of code tokens, by start token. `thresholds`: label set ->
    confidence under which a window is low, in the paper the mean of the neutral tokens. Windows that hold a token
    without a score are left out. One pass, linear in the tokens whatever the length.
    """
    parts: dict[str, list[NDArray[np.float64]]] = {labels: [np.empty((0, len(WINDOW_COLUMNS)))] for labels in LABELS}
    for batch in batches(dataset):
        for labels, found in _count(batch, thresholds, length).items():
            parts[labels].append(found)
    return {labels: np.concatenate(found) for labels, found in parts.items()}


def _count(batch: Batch, thresholds: dict[str, float], length: int) -> dict[str, NDArray[np.float64]]:
    code = np.flatnonzero(batch.in_code)
    sample = batch.sample[code] - batch.first_sample
    starts = np.arange(max(0, len(code) - length + 1))
    whole = sample[starts] == sample[starts + length - 1]
    scored = batch.scored[code]
    starts = starts[whole & (_sums(~scored, length) == 0)]
    mean = _sums(np.where(scored, batch.confidence[code], 0), length)[starts] / length
    tokens = np.bincount(sample, minlength=batch.samples)
    result = {}
    for labels, threshold in thresholds.items():
        sensitive = batch.labels[labels][code]
        inside = _sums(sensitive, length)[starts]
        own = np.bincount(sample, sensitive, batch.samples)
        low = mean < threshold
        touching, above = inside > 0, inside * tokens[sample[starts]] > own[sample[starts]] * length
        chosen = (np.ones(len(starts), bool), low, touching, low & touching, above, low & above)
        result[labels] = np.stack([np.bincount(sample[starts[c]], minlength=batch.samples) for c in chosen], axis=1)
    return {labels: found.astype(float) for labels, found in result.items()}


def _sums(values: NDArray[np.generic], length: int) -> NDArray[np.float64]:
    """(max(0, T - length + 1),): the sum of each `length` values in a row."""
    before = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    return np.asarray(before[length:] - before[:-length])
