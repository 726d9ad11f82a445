"""Rank and entropy against confidence: is the model torn between many tokens, or sure of another one?"""

from __future__ import annotations

import polars as pl
from matplotlib.figure import Figure as Canvas

from analysis.dataset import Dataset
from analysis.figures.base import Figure, run_figure
from analysis.figures.drawing import CLASS_COLOURS, by_value, log_axis, panels
from analysis.statistics import FINITE

__all__ = ["FIGURE"]

BINS = 20

SQL = f"""
    SELECT if(sensitive, 'sensitive', 'neutral') AS class, bin / {BINS} AS confidence_from,
        (bin + 1) / {BINS} AS confidence_to, tokens, entropy[1] AS entropy_10, entropy[2] AS entropy_50,
        entropy[3] AS entropy_90, rank[1] AS rank_10, rank[2] AS rank_50, rank[3] AS rank_90
    FROM (
        SELECT sensitive, least(floor(confidence * {BINS}), {BINS - 1}) AS bin, count(*) AS tokens,
            quantile_cont(entropy, [0.1, 0.5, 0.9]) FILTER (NOT isnan(entropy)) AS entropy,
            quantile_disc(rank, [0.1, 0.5, 0.9]) AS rank
        FROM tokens WHERE in_code AND {FINITE} GROUP BY ALL
    ) ORDER BY class DESC, confidence_from
"""


def data(dataset: Dataset) -> pl.DataFrame:
    """A row a class and bin of confidence: median and the middle 80 % of entropy and rank."""
    return dataset.query(SQL)


def draw(frame: pl.DataFrame) -> Canvas:
    canvas, parts = panels(frame, lambda rows: 3.1)
    highest = {what: frame[f"{what}_90"].max() for what in ("entropy", "rank")}
    for panel, rows in parts:
        axes = panel.subplots(1, 2, sharex=True)
        for kind, part in by_value(rows, "class"):
            confidence, colour = (part["confidence_from"] + part["confidence_to"]) / 2, CLASS_COLOURS[kind]
            for ax, what in zip(axes, ("entropy", "rank"), strict=True):
                low, high = part[f"{what}_10"], part[f"{what}_90"]
                ax.plot(confidence, part[f"{what}_50"], "o-", color=colour, markersize=3.5, label=f"{kind}, median")
                ax.fill_between(confidence, low, high, color=colour, alpha=0.16, linewidth=0, label="middle 80 %")
        entropy, rank = axes
        entropy.set_ylabel("entropy (nats)")
        entropy.set_ylim(0, float(str(highest["entropy"])) * 1.05 or 1)
        log_axis(rank, "y", [1, 2, 5, 10, 20, 50, 100, 1000, 10000])
        rank.set_ylabel("rank (number; 1: first choice)")
        rank.set_ylim(0.85, max(5, float(str(highest["rank"])) * 1.2))
        rank.set_xlim(0, 1)
        rank.legend(loc="upper right")
        for ax in axes:
            ax.set_xlabel("confidence (probability of the token)")
    return canvas


FIGURE = Figure(
    name="rank_entropy",
    title="Rank and entropy against confidence",
    caption="Entropy of the model's distribution at a token, and the token's rank in it, by the probability that it"
    " gives to the token (category labels). Low confidence with low entropy means that the model is sure of another"
    " token; with high entropy, that it is torn between many.",
    data=data,
    draw=draw,
)

if __name__ == "__main__":
    run_figure(FIGURE)
