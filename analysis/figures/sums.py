"""Sums by sample as an array, which the bootstrap by samples takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.bootstrap import divided, interval, resampled

__all__ = ["mean_intervals", "sample_sums"]


def sample_sums(
    frame: pl.DataFrame, group: str, groups: Sequence[object], values: Sequence[str]
) -> NDArray[np.float64]:
    """(N, groups, values): 0 where a sample has no row of a group. `frame`: at most one row a `sample_id` and
    `group`."""
    index = {value: i for i, value in enumerate(groups)}
    sample = frame["sample_id"].rank("dense").cast(pl.Int64).to_numpy() - 1
    where = np.array([index[value] for value in frame[group].to_list()], dtype=np.int64)
    result = np.zeros((int(sample.max()) + 1 if len(sample) else 0, len(groups), len(values)))
    result[sample, where] = frame.select(pl.col(values).cast(pl.Float64)).to_numpy()
    return result


def mean_intervals(sums: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(mean, low, high), each (groups,), of sums (N, groups, 2) of values and of numbers: 95 %, by samples."""
    totals = sums.sum(axis=0)
    drawn = resampled(sums.reshape(len(sums), -1)).reshape(-1, *totals.shape)
    bounds = np.array([interval(divided(d[:, 0], d[:, 1])) for d in drawn.swapaxes(0, 1)]).reshape(-1, 2)
    return divided(totals[:, 0], totals[:, 1]), bounds[:, 0], bounds[:, 1]
