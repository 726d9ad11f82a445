"""Confidence along a sample: does a model grow surer, and is the gap one of position?"""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.figure import Figure as Canvas

from analysis.bootstrap import DRAWS
from analysis.dataset import LABELS, Dataset
from analysis.figures.base import Figure, run_figure
from analysis.figures.drawing import CLASS_COLOURS, by_value, panels
from analysis.figures.sums import mean_intervals, sample_sums
from analysis.statistics import FINITE

__all__ = ["FIGURE"]

BINS = 20

_SUMS = ", ".join(
    f"sum({what}) FILTER ({condition}) AS {kind}_{name}"
    for kind, condition in (("sensitive", "{0}"), ("neutral", "NOT {0}"))
    for what, name in (("s", "total"), ("n", "tokens"))
)
_BY_LABELS = " UNION ALL ".join(
    f"SELECT '{labels}' AS labels, sample_id, bin, {_SUMS.format(column)} FROM counted GROUP BY ALL"
    for labels, column in LABELS.items()
)
SQL = f"""
    WITH counted AS (
        SELECT sample_id, (pos * {BINS} // length)::INT AS bin, {", ".join(LABELS.values())}, count(*) AS n,
            sum(confidence) AS s
        FROM tokens JOIN (SELECT sample_id, len(char_start) AS length FROM samples) USING (sample_id)
        WHERE in_code AND {FINITE} GROUP BY ALL
    )
    {_BY_LABELS} ORDER BY labels DESC, sample_id, bin
"""


def data(dataset: Dataset, draws: int = DRAWS, seed: int = 0) -> pl.DataFrame:
    """A row a label set, class and twentieth of the response: the mean of its code tokens, 95 % interval by samples."""
    frames = [pl.DataFrame()]
    for labels, found in by_value(dataset.query(SQL), "labels"):
        for kind in CLASS_COLOURS:
            values = [f"{kind}_total", f"{kind}_tokens"]
            sums = sample_sums(dataset, found.with_columns(pl.col(values).fill_null(0)), "bin", range(BINS), values)
            mean, low, high = mean_intervals(sums, draws, seed)
            frames.append(
                pl.DataFrame({
                    "labels": labels, "class": kind, "position_from": np.arange(BINS) / BINS,
                    "position_to": np.arange(1, BINS + 1) / BINS, "tokens": sums[..., 1].sum(axis=0).astype(np.int64),
                    "mean": mean, "mean_low": low, "mean_high": high,
                })
            )  # fmt: skip
    return pl.concat(frames, how="diagonal")


def draw(frame: pl.DataFrame) -> Canvas:
    canvas, parts = panels(frame, lambda rows: 3.0)
    shown = frame.filter(pl.col("mean").is_finite())
    bounds = shown.select(
        pl.min_horizontal("mean", pl.col("mean_low").fill_nan(1)).min().alias("low"),
        pl.max_horizontal("mean", pl.col("mean_high").fill_nan(0)).max().alias("high"),
    ).row(0)
    for panel, rows in parts:
        axes = panel.subplots(1, len(LABELS), sharey=True)
        for ax, (labels, part) in zip(axes, by_value(rows, "labels"), strict=True):
            for kind, tokens in by_value(part.filter(pl.col("mean").is_finite()), "class"):
                at, colour = 50 * (tokens["position_from"] + tokens["position_to"]), CLASS_COLOURS[kind]
                ax.plot(at, tokens["mean"], "o-", color=colour, markersize=3.5, label=kind)
                ax.fill_between(at, tokens["mean_low"], tokens["mean_high"], color=colour, alpha=0.17, linewidth=0)
            ax.set_title(f"{labels} labels")
            ax.set_xlim(0, 100)
            ax.set_ylim(bounds[0] - 0.03, bounds[1] + 0.03)
            ax.set_xlabel("position in the response (% of its tokens)")
        axes[0].set_ylabel("mean confidence (probability)")
        axes[0].legend(loc="lower right")
    return canvas


FIGURE = Figure(
    name="position",
    title="Confidence by position",
    caption="Mean confidence of code tokens by where in the response they stand, in twentieths. A gap that is there at"
    " every position is not one of position. Shaded: 95 % intervals, for which whole samples are drawn.",
    data=data,
    draw=draw,
    has_intervals=True,
)

if __name__ == "__main__":
    run_figure(FIGURE)
