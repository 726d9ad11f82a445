"""Window means along the sample of the lowest window: the paper's second figure."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from numpy.typing import NDArray

from analysis.dataset import Dataset
from analysis.figures.base import Figure, run_figure
from analysis.figures.drawing import CLASS_COLOURS, GREY, LABEL_COLOURS, panels, plain
from analysis.figures.lowest import lowest_window
from curate.store import ANALYSIS_WINDOW
from curate.taxonomy import CATEGORIES

__all__ = ["FIGURE"]

SQL = f"""
    SELECT t.sample_id, s.source_id, t.pos, t.category, t.statement, w.confidence AS window_mean, $mean AS neutral_mean,
        w.confidence < $mean AS low, t.pos = $start AS lowest
    FROM (FROM tokens WHERE sample_id = $sample AND in_code) t JOIN samples s USING (sample_id)
    LEFT JOIN (
        SELECT pos, avg(confidence) OVER w AS confidence, count(*) OVER w AS tokens FROM tokens
        WHERE sample_id = $sample AND in_code
        WINDOW w AS (ORDER BY pos ROWS BETWEEN CURRENT ROW AND {ANALYSIS_WINDOW - 1} FOLLOWING)
    ) w ON t.pos = w.pos AND w.tokens = {ANALYSIS_WINDOW}
    ORDER BY t.pos
"""


def data(dataset: Dataset) -> pl.DataFrame:
    """A row a code token of the sample; `window_mean` is that of the window that starts at it."""
    found = lowest_window(dataset)
    parameters: dict[str, object] = {
        "sample": found.sample_id if found else "",
        "mean": found.neutral_mean if found else None,
        "start": found.start if found else -1,
    }
    return dataset.query(SQL, parameters)


def draw(frame: pl.DataFrame) -> Canvas:
    canvas, parts = panels(frame, lambda rows: 3.7 + 0.18 * (1 + len(_strip(rows))))
    for panel, rows in parts:
        strip = _strip(rows)
        means, below = panel.subplots(2, 1, sharex=True, height_ratios=[2.6, 0.27 + 0.18 * len(strip)])
        means.set_title(f"sample {plain(rows['source_id'][0] or rows['sample_id'][0])}")
        _draw_means(means, rows)
        _draw_strip(below, rows, strip)
        panel.legend(*means.get_legend_handles_labels(), loc="outside lower center", ncols=4, columnspacing=1.2)
    return canvas


def _strip(rows: pl.DataFrame) -> list[str]:
    """The categories of a sample, in the order of the taxonomy."""
    there = set(rows["category"])
    return [category for category in CATEGORIES[1:] if category in there]


def _draw_means(ax: Axes, rows: pl.DataFrame) -> None:
    windows = rows.drop_nulls("window_mean")
    start, mean = windows["pos"].to_numpy(), windows["window_mean"].to_numpy()
    neutral = rows["neutral_mean"][0]
    ax.plot(start, mean, color=CLASS_COLOURS["neutral"], linewidth=1.3, label=f"{ANALYSIS_WINDOW} code tokens")
    if neutral is not None:
        ax.fill_between(
            start, mean, neutral, where=mean < neutral, interpolate=True, label="low windows",
            color=CLASS_COLOURS["sensitive"], alpha=0.22, linewidth=0,
        )  # fmt: skip
        ax.axhline(neutral, color=GREY, linestyle="--", linewidth=1.1, label=f"neutral mean, {neutral:.3f}")
    lowest = windows.filter("lowest")
    ax.plot(
        lowest["pos"], lowest["window_mean"], "v", color="black", markersize=6,
        label=f"lowest, {lowest['window_mean'][0]:.3f}" if len(lowest) else None,
    )  # fmt: skip
    ax.set_ylabel("window mean (probability)")
    ax.set_ylim(min(mean.min(), neutral or 1) - 0.03, max(mean.max(), neutral or 0) + 0.03)


def _draw_strip(ax: Axes, rows: pl.DataFrame, strip: list[str]) -> None:
    pos = rows["pos"].to_numpy()
    marks = [("statement", rows["statement"].to_numpy(), LABEL_COLOURS["statement"])]
    category = rows["category"].to_numpy()
    marks += [(name, category == name, CLASS_COLOURS["sensitive"]) for name in strip]
    for at, (_, there, colour) in enumerate(marks):
        ax.broken_barh(_runs(pos[there]), (at - 0.4, 0.8), facecolor=colour, linewidth=0)
    ax.set_yticks(range(len(marks)), [name for name, *_ in marks], fontsize=7.5)
    ax.set_ylim(len(marks) - 0.4, -0.6)
    ax.set_ylabel("labels")
    ax.set_xlabel("position in the response; of a window, its first token (tokens)")
    ax.set_xlim(pos.min(), pos.max() + 1)


def _runs(positions: NDArray[np.int64]) -> list[tuple[int, int]]:
    """(start, length) of the runs in rising positions."""
    runs = []
    for _, members in groupby(enumerate(positions.tolist()), key=lambda pair: pair[1] - pair[0]):
        at = [position for _, position in members]
        runs.append((at[0], len(at)))
    return runs


FIGURE = Figure(
    name="windows_of_sample",
    title="Window means along one sample",
    caption="The sample that holds the dataset's lowest window: mean confidence of every full window of code tokens, by"
    " its first token. Shaded: below the mean of all neutral tokens (statement labels, dashed). Below: which tokens are"
    " part of a whole sensitive statement, and of which category.",
    data=data,
    draw=draw,
)

if __name__ == "__main__":
    run_figure(FIGURE)
