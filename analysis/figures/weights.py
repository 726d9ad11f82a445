"""The sample weights w, and their relation to the length of a sample."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.figure import Figure as Canvas
from scipy import stats

from analysis.dataset import Dataset
from analysis.figures.base import Figure, run_figure
from analysis.figures.drawing import CLASS_COLOURS, by_dataset, grid, log_axis

__all__ = ["FIGURE"]

SQL = """
    SELECT sample_id, sample_weight AS weight, len(char_start) AS response_tokens
    FROM samples WHERE NOT isnan(sample_weight) ORDER BY sample_id
"""

POINTS = 3000
"""Samples that are drawn one by one; more of them are counted in hexagons."""


def data(dataset: Dataset) -> pl.DataFrame:
    """A row a sample, and the rank correlation (Spearman) of weight and length over all of them."""
    found = dataset.query(SQL).with_columns(window=pl.lit(int(dataset.manifest["config"]["window"])))
    varied = len(found) > 2 and all(found[c].n_unique() > 1 for c in ("weight", "response_tokens"))
    rho = float(stats.spearmanr(found["weight"], found["response_tokens"]).statistic) if varied else float("nan")
    return found.with_columns(spearman=pl.lit(rho))


def draw(frame: pl.DataFrame) -> Canvas:
    datasets = by_dataset(frame)
    canvas, axes = grid(len(datasets), 2, 2.9, share_x=False, share_y=False, width_ratios=[1, 1.3])
    colour = CLASS_COLOURS["neutral"]
    bounds = frame["weight"].min(), frame["weight"].max()
    edges = np.linspace(max(0, float(bounds[0]) - 0.01), min(1, float(bounds[1]) + 0.01), 31)
    for row, (name, rows) in zip(axes, datasets, strict=True):
        histogram, scatter = row
        weight, length = rows["weight"].to_numpy(), rows["response_tokens"].to_numpy()
        histogram.hist(weight, bins=edges, color=colour, alpha=0.75)
        histogram.axvline(weight.mean(), color="black", linestyle="--", linewidth=1.1)
        histogram.set_title(f"mean {weight.mean():.3f}, standard deviation {weight.std():.3f}", fontsize=10)
        histogram.set_ylabel(f"{name}\nsamples (number)" if len(datasets) > 1 else "samples (number)")
        histogram.set_xlabel("sample weight w (no unit)")
        if len(rows) > POINTS:
            hexagons = scatter.hexbin(length, weight, xscale="log", gridsize=40, bins="log", cmap="cividis_r", mincnt=1)
            canvas.colorbar(hexagons, ax=scatter, label="samples (number)", format=lambda v, at: f"{v:,.0f}")
        else:
            scatter.plot(length, weight, "o", color=colour, alpha=0.55, markersize=4, markeredgewidth=0)
        window = rows["window"][0]
        scatter.axvline(window, color="black", linestyle=":", linewidth=1.1)
        scatter.annotate(f" l = {window}", (window, 1), xycoords=("data", "axes fraction"), va="top", fontsize=9)
        log_axis(scatter, "x", _ticks(int(length.min()), int(length.max())))
        scatter.set_ylim(edges[0], edges[-1])
        scatter.set_title(f"rank correlation ρ = {rows['spearman'][0]:+.2f} ({len(rows):,} samples)", fontsize=10)
        scatter.set_xlabel("length of the response (tokens)")
        scatter.set_ylabel("sample weight w (no unit)")
    return canvas


def _ticks(low: int, high: int) -> list[float]:
    """1, 2, 5, 10, ... over a range and one beyond on either side, so that a narrow range has some."""
    steps = [m * 10.0**e for e in range(8) for m in (1, 2, 5)]
    return [t for t in steps if low / 2 <= t <= high * 2]


FIGURE = Figure(
    name="weights",
    title="Sample weights",
    caption="w = 1 - C, where C is the mean confidence of the sample's lowest training window (equations 5 to 8). Left:"
    " its distribution, mean dashed. Right: against length; a longer sample has more windows to take the lowest of, so"
    " that it can get a larger weight for its length alone. Dotted: the length of a window.",
    data=data,
    draw=draw,
)

if __name__ == "__main__":
    run_figure(FIGURE)
