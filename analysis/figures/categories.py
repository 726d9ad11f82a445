"""Confidence by category of execution constraint, sorted by its mean."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.bootstrap import DRAWS
from analysis.dataset import Dataset
from analysis.figures.base import Figure, run_figure
from analysis.figures.drawing import CLASS_COLOURS, GREY, by_value, panels
from analysis.figures.sums import mean_intervals, sample_sums
from analysis.statistics import FINITE

__all__ = ["FIGURE"]

BINS = 25

SQL = f"""
    SELECT category, sample_id, least(floor(confidence * {BINS}), {BINS - 1})::INT AS bin, count(*) AS tokens,
        sum(confidence) AS total
    FROM tokens WHERE in_code AND {FINITE} GROUP BY GROUPING SETS ((category, bin), (category, sample_id))
    ORDER BY ALL
"""


def data(dataset: Dataset, draws: int = DRAWS, seed: int = 0) -> pl.DataFrame:
    """A row a category and bin of confidence, categories by rising mean; the interval of the mean is one by samples."""
    found = dataset.query(SQL)
    if found.is_empty():
        return found
    samples = found.filter(pl.col("bin").is_null())
    names = sorted(set(samples["category"]))
    sums = sample_sums(dataset, samples, "category", names, ["total", "tokens"])
    mean, low, high = mean_intervals(sums, draws, seed)
    means = pl.DataFrame({"category": names, "mean": mean, "mean_low": low, "mean_high": high})
    every = pl.DataFrame({"category": names}).join(pl.DataFrame({"bin": range(BINS)}), how="cross")
    bins = found.filter(pl.col("bin").is_not_null()).select("category", pl.col("bin").cast(pl.Int64), "tokens")
    return (
        every.join(bins, on=["category", "bin"], how="left")
        .join(means, on="category")
        .sort("mean", "category", "bin")
        .select(
            "category", (pl.col("bin") / BINS).alias("confidence_from"),
            ((pl.col("bin") + 1) / BINS).alias("confidence_to"),
            pl.col("tokens").fill_null(0), "mean", "mean_low", "mean_high",
        )
    )  # fmt: skip


def draw(frame: pl.DataFrame) -> Canvas:
    canvas, parts = panels(frame, lambda rows: 1.0 + 0.34 * max(4, rows["category"].n_unique()))
    edges = np.linspace(0, 1, BINS + 1)
    for panel, rows in parts:
        ax = panel.subplots()
        labels = []
        for at, (category, part) in enumerate(by_value(rows, "category")):
            colour = CLASS_COLOURS["neutral" if category == "neutral" else "sensitive"]
            tokens = part["tokens"].to_numpy()
            heights = at - 0.4 + 0.82 * tokens / tokens.max()
            ax.stairs(heights, edges, baseline=at - 0.4, fill=True, alpha=0.3, color=colour)
            ax.plot([part["mean_low"][0], part["mean_high"][0]], [at, at], color="black", linewidth=1.4)
            ax.plot(part["mean"][0], at, "o", color=colour, markeredgecolor="black", markersize=5.5, zorder=3)
            labels.append(f"{category} ({tokens.sum():,})")
        ax.set_yticks(range(len(labels)), labels)
        ax.set_ylim(-0.6, len(labels) - 0.4)
        ax.set_xlim(0, 1)
        ax.grid(axis="y", visible=False)
        ax.set_ylabel("category (tokens)")
        ax.set_xlabel("confidence (probability of the token)")
        mean = Line2D([], [], marker="o", color="black", markerfacecolor=GREY, label="mean, 95 % interval by samples")
        shades = Patch(color=GREY, alpha=0.35, label="distribution, each to its own height")
        panel.legend(handles=[mean, shades], loc="outside lower center", ncols=2)
    return canvas


FIGURE = Figure(
    name="categories",
    title="Confidence by category",
    caption="Code tokens by the execution constraint that they are tied to, the surest category on top: distribution"
    " (shaded), mean and its 95 % interval, for which whole samples are drawn. In brackets: the number of tokens.",
    data=data,
    draw=draw,
    has_intervals=True,
)

if __name__ == "__main__":
    run_figure(FIGURE)
