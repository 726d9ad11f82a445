"""How many samples have a low window, and how many low windows fall on sensitive structures, by window length."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from scipy import stats

from analysis.bootstrap import DRAWS, divided, interval, resampled
from analysis.dataset import LABELS, Dataset
from analysis.figures.base import Figure, run_figure
from analysis.figures.drawing import GREY, LABEL_COLOURS, by_value, log_axis, panels, percent
from analysis.measures import RULES
from analysis.statistics import means, token_counts
from analysis.windows import WINDOW_COLUMNS, windows_by_sample
from curate.store import ANALYSIS_WINDOW

__all__ = ["FIGURE"]

LENGTHS = (16, 32, 64, 128, 256, 512)

PAPER = {"samples": 0.7447, "touching": 0.9118, "above": 0.9118}
"""Shares that the paper states for windows of 64 tokens; it does not say by which rule, so that both are measured by
the same number."""

_SCHEMA = {
    "labels": pl.String(), "length": pl.Int64(), "windows": pl.Int64(), "low_windows": pl.Int64(),
    "measure": pl.String(), **dict.fromkeys(("share", "share_low", "share_high", "base"), pl.Float64()),
}  # fmt: skip

_PANELS = {
    "samples": "samples with\na low window",
    "touching": "low windows with\nany sensitive token",
    "above": "low windows above\ntheir sample's share",
}


def data(dataset: Dataset, draws: int = DRAWS, seed: int = 0) -> pl.DataFrame:
    """A row a label set, length and measure: `share` with its 95 % interval, and `base`, the same of all windows.

    Intervals are by samples: a bootstrap, and Wilson's for shares of samples.
    """
    thresholds = {labels: means(token_counts(dataset, labels))[1] for labels in LABELS}
    counted = [windows_by_sample(dataset, thresholds, length) for length in LENGTHS]
    rows = []
    for labels in LABELS:
        sums = np.stack([found[labels] for found in counted], axis=1)  # (N, lengths, WINDOW_COLUMNS)
        drawn = resampled(sums.reshape(len(sums), -1), draws, seed).reshape(-1, *sums.shape[1:])
        for i, length in enumerate(LENGTHS):
            total = dict(zip(WINDOW_COLUMNS, sums[:, i].sum(axis=0), strict=True))
            column = dict(zip(WINDOW_COLUMNS, drawn[:, i].T, strict=True))
            shared = [labels, length, int(total["windows"]), int(total["low"])]
            samples, with_low = (int((sums[:, i, WINDOW_COLUMNS.index(c)] > 0).sum()) for c in ("windows", "low"))
            if samples:
                low, high = stats.binomtest(with_low, samples).proportion_ci(method="wilson")
                rows.append([*shared, "samples", with_low / samples, float(low), float(high), None])
            if total["low"]:
                for rule in RULES:
                    bounds = interval(divided(column[f"low_{rule}"], column["low"]))
                    share = total[f"low_{rule}"] / total["low"]
                    rows.append([*shared, rule, share, *bounds, total[rule] / total["windows"]])
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def draw(frame: pl.DataFrame) -> Canvas:
    canvas, parts = panels(frame, lambda rows: 3.2)
    for panel, rows in parts:
        axes = panel.subplots(1, len(_PANELS), sharey=True)
        for ax, (measure, title) in zip(axes, _PANELS.items(), strict=True):
            for labels, part in by_value(rows.filter(pl.col("measure") == measure), "labels"):
                length, colour = part["length"], LABEL_COLOURS[labels]
                ax.plot(length, part["share"], "o-", color=colour, markersize=4)
                ax.fill_between(length, part["share_low"], part["share_high"], color=colour, alpha=0.18, linewidth=0)
                if measure != "samples":
                    ax.plot(length, part["base"], "--", color=colour, linewidth=1.2)
            ax.plot(ANALYSIS_WINDOW, PAPER[measure], "*", color="black", markersize=9, zorder=4)
            log_axis(ax, "x", LENGTHS)
            ax.set_ylim(-0.03, 1.05)
            percent(ax.yaxis)
            ax.set_title(title, fontsize=10)
            ax.set_xlabel("window length l (tokens)")
        axes[0].set_ylabel("share (%)")
        panel.legend(handles=_legend(), loc="outside lower center", ncols=4, columnspacing=1.4)
    return canvas


def _legend() -> list[Line2D]:
    labels = [Line2D([], [], marker="o", color=c, markersize=4, label=f"{n} labels") for n, c in LABEL_COLOURS.items()]
    base = Line2D([], [], linestyle="--", color=GREY, label="all windows (base rate)")
    return [*labels, base, Line2D([], [], marker="*", linestyle="", color="black", markersize=9, label="paper")]


FIGURE = Figure(
    name="low_windows",
    title="Low windows and where they fall",
    caption="A window is low when its mean confidence is below the mean of all neutral tokens. Left: samples, of those"
    " long enough, that hold one. Middle and right: low windows on sensitive structures, under two rules; dashed is the"
    " same share of all windows, which it has to be read against. Shaded: 95 % intervals, by samples.",
    data=data,
    draw=draw,
    has_intervals=True,
)

if __name__ == "__main__":
    run_figure(FIGURE)
