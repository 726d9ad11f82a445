"""Confidence along a sample: does a model grow surer, and is the gap one of position?"""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.figure import Figure as Canvas

from analysis.dataset import LABELS, Dataset
from analysis.figures.base import Figure, run_figure
from analysis.figures.drawing import CLASS_COLOURS, by_dataset, by_value, grid
from analysis.figures.sums import mean_intervals, sample_sums
from analysis.statistics import FINITE

__all__ = ["FIGURE"]

BINS = 20

_CLASSES = "\n".join(
    f"SELECT '{labels}' AS labels, sample_id, bin, sum(s) FILTER ({column}) AS sensitive_total, sum(n) FILTER ({column})"
    f" AS sensitive_tokens, sum(s) FILTER (NOT {column}) AS neutral_total, sum(n) FILTER (NOT {column}) AS neutral_tokens"
    f" FROM counted GROUP BY ALL {'UNION ALL' if labels != list(LABELS)[-1] else ''}"
    for labels, column in LABELS.items()
)
SQL = f"""
    WITH counted AS (
        SELECT sample_id, (pos * {BINS} // length)::INT AS bin, {", ".join(LABELS.values())}, count(*) AS n,
            sum(confidence) AS s
        FROM tokens JOIN (SELECT sample_id, len(char_start) AS length FROM samples) USING (sample_id)
        WHERE in_code AND {FINITE} GROUP BY ALL
    )
    {_CLASSES} ORDER BY labels DESC, sample_id, bin
"""


def data(dataset: Dataset) -> pl.DataFrame:
    """A row a label set, class and twentieth of the response: the mean of its code tokens, 95 % interval by samples."""
    frames = []
    for labels, found in by_value(dataset.query(SQL), "labels"):
        for kind in CLASS_COLOURS:
            values = [f"{kind}_total", f"{kind}_tokens"]
            sums = sample_sums(found.with_columns(pl.col(values).fill_null(0)), "bin", range(BINS), values)
            mean, low, high = mean_intervals(sums)
            frames.append(
                pl.DataFrame({
                    "labels": labels, "class": kind, "position_from": np.arange(BINS) / BINS,
                    "position_to": np.arange(1, BINS + 1) / BINS, "tokens": sums[..., 1].sum(axis=0).astype(np.int64),
                    "mean": mean, "mean_low": low, "mean_high": high,
                })
            )  # fmt: skip
    return pl.concat(frames) if frames else pl.DataFrame()


def draw(frame: pl.DataFrame) -> Canvas:
    datasets = by_dataset(frame)
    canvas, axes = grid(len(datasets), len(LABELS), 2.8)
    for row, (name, rows) in zip(axes, datasets, strict=True):
        for ax, (labels, part) in zip(row, by_value(rows, "labels"), strict=True):
            for kind, tokens in by_value(part.filter(pl.col("mean").is_finite()), "class"):
                at = 50 * (tokens["position_from"] + tokens["position_to"])
                ax.plot(at, tokens["mean"], "o-", color=CLASS_COLOURS[kind], markersize=3.5, label=kind)
                ax.fill_between(at, tokens["mean_low"], tokens["mean_high"], color=CLASS_COLOURS[kind], alpha=0.17, linewidth=0)
            if ax in axes[0]:
                ax.set_title(f"{labels} labels")
            ax.set_xlim(0, 100)
        row[0].set_ylabel(f"{name}\nmean confidence (probability)" if len(datasets) > 1 else "mean confidence (probability)")
    axes[0][0].legend(loc="best")
    for ax in axes[-1]:
        ax.set_xlabel("position in the response (% of its tokens)")
    return canvas


FIGURE = Figure(
    name="position",
    title="Confidence by position",
    caption="Mean confidence of code tokens by where in the response they stand, in twentieths. A gap that is there at"
    " every position is not one of position. Shaded: 95 % intervals, for which whole samples are drawn.",
    data=data,
    draw=draw,
)

if __name__ == "__main__":
    run_figure(FIGURE)
