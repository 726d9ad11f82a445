"""Confidence of sensitive and neutral tokens: the paper's first figure, under both label sets."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.figure import Figure as Canvas

from analysis.dataset import LABELS, Dataset
from analysis.figures.base import Figure, run_figure
from analysis.figures.drawing import CLASS_COLOURS, by_value, panels, signed
from analysis.statistics import cliffs_delta, ks, means, token_counts

__all__ = ["FIGURE"]

BINS = 40


def data(dataset: Dataset) -> pl.DataFrame:
    """A row a label set, class and bin of confidence; mean, KS D and Cliff's delta are those of all its tokens, not of
    the bins."""
    frames = [pl.DataFrame()]
    for labels in LABELS:
        counts = token_counts(dataset, labels)
        if not len(counts.values):
            continue
        bins = np.minimum((counts.values * BINS).astype(np.int64), BINS - 1)
        for kind, numbers, mean in zip(CLASS_COLOURS, (counts.sensitive, counts.neutral), means(counts), strict=True):
            tokens = np.bincount(bins, numbers, BINS).astype(np.int64)
            total = int(tokens.sum())
            frames.append(
                pl.DataFrame({
                    "labels": labels, "class": kind, "confidence_from": np.arange(BINS) / BINS,
                    "confidence_to": np.arange(1, BINS + 1) / BINS, "tokens": tokens,
                    "density": tokens * BINS / total if total else np.full(BINS, np.nan),
                    "mean": mean, "ks_d": ks(counts)[0], "cliffs_delta": cliffs_delta(counts),
                })
            )  # fmt: skip
    return pl.concat(frames, how="diagonal")


def draw(frame: pl.DataFrame) -> Canvas:
    canvas, parts = panels(frame, lambda rows: 3.1)
    edges = np.linspace(0, 1, BINS + 1)
    for panel, rows in parts:
        axes = panel.subplots(1, len(LABELS), sharey=True)
        for ax, (labels, part) in zip(axes, by_value(rows, "labels"), strict=True):
            for kind, tokens in by_value(part, "class"):
                mean, number, colour = tokens["mean"][0], tokens["tokens"].sum(), CLASS_COLOURS[kind]
                if number:
                    label = f"{kind}, mean {mean:.3f}\n({number:,} tokens)"
                    ax.stairs(tokens["density"], edges, color=colour, linewidth=1.6, label=label)
                    ax.stairs(tokens["density"], edges, color=colour, fill=True, alpha=0.13)
                    ax.axvline(mean, color=colour, linestyle=(0, (4, 2)), linewidth=1.3)
            distance, delta = signed(part["ks_d"][0]).lstrip("+"), signed(part["cliffs_delta"][0])
            ax.set_title(f"{labels} labels: KS D = {distance}, δ = {delta}", fontsize=9.5)
            ax.legend(loc="upper center", labelspacing=0.7, frameon=True)
            ax.set_xlim(0, 1)
            ax.set_xlabel("confidence (probability of the token)")
        axes[0].set_ylabel("density (per unit of probability)")
    return canvas


FIGURE = Figure(
    name="density",
    title="Confidence of sensitive and neutral tokens",
    caption="How the probability that the model gives to a code token is distributed, for CUDA-sensitive and for"
    " neutral tokens. Dashed: the means. KS D is the largest distance between the two distribution functions; Cliff's δ"
    " is the probability that a sensitive token is surer than a neutral one, less that of the reverse.",
    data=data,
    draw=draw,
)

if __name__ == "__main__":
    run_figure(FIGURE)
