"""Sums by sample as an array, which the bootstrap by samples takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.bootstrap import divided, interval, resampled
from analysis.dataset import Dataset

__all__ = ["mean_intervals", "sample_sums"]


def sample_sums(
    dataset: Dataset, frame: pl.DataFrame, group: str, groups: Sequence[object], values: Sequence[str]
) -> NDArray[np.float64]:
    """(N, groups, values) of the N samples that have scores, in the order in which the findings take them, so that the
    same seed draws the same samples for both: 0 where a sample has no row of a group. `frame`: at most one row a
    `sample_id` and `group`."""
    index = {value: i for i, value in enumerate(groups)}
    placed = frame.join(dataset.scored_ids, on="sample_id", how="left", validate="m:1", maintain_order="left")
    sample = placed["place"].cast(pl.Int64).to_numpy()
    where = np.array([index[value] for value in frame[group].to_list()], dtype=np.int64)
    result = np.zeros((len(dataset.scored_ids), len(groups), len(values)))
    result[sample, where] = frame.select(pl.col(values).cast(pl.Float64)).to_numpy()
    return result


def mean_intervals(
    sums: NDArray[np.float64], draws: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(mean, low, high), each (groups,), of sums (N, groups, 2) of values and of numbers: 95 %, by samples."""
    totals = sums.sum(axis=0)
    drawn = resampled(sums.reshape(len(sums), -1), draws, seed).reshape(-1, *totals.shape)
    bounds = np.array([interval(divided(d[:, 0], d[:, 1])) for d in drawn.swapaxes(0, 1)]).reshape(-1, 2)
    return divided(totals[:, 0], totals[:, 1]), bounds[:, 0], bounds[:, 1]
