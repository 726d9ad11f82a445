"""How many samples have a low window, and how many low windows fall on sensitive structures, by window length."""

from __future__ import annotations

import polars as pl
from matplotlib.figure import Figure as Canvas

from analysis.dataset import LABELS, Dataset
from analysis.figures.base import Figure, run_figure
from analysis.figures.drawing import GREY, LABEL_COLOURS, by_dataset, by_value, grid, log_axis, percent
from analysis.measures import RULES, window_finding
from analysis.statistics import means, token_counts
from analysis.windows import windows_by_sample
from curate.store import ANALYSIS_WINDOW

__all__ = ["FIGURE"]

LENGTHS = (16, 32, 64, 128, 256, 512)

PAPER = {"samples": 0.7447, "touching": 0.9118}
"""Shares that the paper states for windows of 64 tokens; it does not say by which rule."""

_PANELS = {
    "samples": "samples with\na low window",
    "touching": "low windows with\nany sensitive token",
    "above": "low windows above\ntheir sample's share",
}


def data(dataset: Dataset) -> pl.DataFrame:
    """A row a label set, length and measure: `share` with its 95 % interval by samples, `base` of all windows."""
    thresholds = {labels: means(token_counts(dataset, labels))[1] for labels in LABELS}
    rows = []
    for length in LENGTHS:
        for labels, counted in windows_by_sample(dataset, thresholds, length).items():
            for rule in RULES:
                f = window_finding(counted, labels, rule, thresholds[labels], length)
                shared = {"labels": labels, "length": length, "windows": f.windows, "low_windows": f.low_windows}
                bounds = {"share": f.share, "share_low": f.share_low, "share_high": f.share_high, "base": f.base}
                rows.append(shared | {"measure": rule} | bounds)
            samples = {"share": f.samples_share, "share_low": f.samples_share_low, "share_high": f.samples_share_high}
            rows.append(shared | {"measure": "samples"} | samples | {"base": None})
    schema = {"labels": pl.String, "length": pl.Int64, "windows": pl.Int64, "low_windows": pl.Int64, "measure": pl.String}
    return pl.DataFrame(rows, schema={**schema, **dict.fromkeys(("share", "share_low", "share_high", "base"), pl.Float64)})


def draw(frame: pl.DataFrame) -> Canvas:
    datasets = by_dataset(frame)
    canvas, axes = grid(len(datasets), len(_PANELS), 2.7)
    for row, (name, rows) in zip(axes, datasets, strict=True):
        for ax, (measure, title) in zip(row, _PANELS.items(), strict=True):
            for labels, part in by_value(rows.filter(pl.col("measure") == measure), "labels"):
                colour = LABEL_COLOURS[labels]
                ax.plot(part["length"], part["share"], "o-", color=colour, markersize=4)
                ax.fill_between(part["length"], part["share_low"], part["share_high"], color=colour, alpha=0.18, linewidth=0)
                if measure != "samples":
                    ax.plot(part["length"], part["base"], "--", color=colour, linewidth=1.2)
            if measure in PAPER:
                ax.plot(ANALYSIS_WINDOW, PAPER[measure], "*", color="black", markersize=9, zorder=4)
            log_axis(ax, "x", LENGTHS)
            ax.set_ylim(-0.03, 1.05)
            percent(ax.yaxis)
            if ax in axes[0]:
                ax.set_title(title)
            if ax in axes[-1]:
                ax.set_xlabel("window length l (tokens)")
        row[0].set_ylabel(f"{name}\nshare (%)" if len(datasets) > 1 else "share (%)")
    last = axes[-1][-1]
    for labels, colour in LABEL_COLOURS.items():
        last.plot([], [], "o-", color=colour, markersize=4, label=f"{labels} labels")
    last.plot([], [], "--", color=GREY, label="all windows (base rate)")
    last.plot([], [], "*", linestyle="", color="black", markersize=9, label="paper, l = 64")
    canvas.legend(loc="outside lower center", ncols=4)
    return canvas


FIGURE = Figure(
    name="low_windows",
    title="Low windows and where they fall",
    caption="A window is low when its mean confidence is below the mean of all neutral tokens. Left: samples, of those"
    " long enough, that hold one. Middle and right: low windows on sensitive structures, under two rules; dashed is the"
    " same share of all windows, which it has to be read against. Shaded: 95 % intervals, by samples.",
    data=data,
    draw=draw,
)

if __name__ == "__main__":
    run_figure(FIGURE)
