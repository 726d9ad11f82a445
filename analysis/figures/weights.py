"""The sample weights w, and their relation to the length of a sample."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator
from scipy import stats

from analysis.dataset import Dataset
from analysis.figures.base import Figure, run_figure
from analysis.figures.drawing import CLASS_COLOURS, log_axis, panels, signed

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
    canvas, parts = panels(frame, lambda rows: 3.0)
    weights, lengths = frame["weight"].to_numpy(), frame["response_tokens"].to_numpy()
    edges = np.linspace(max(0, weights.min() - 0.01), min(1, weights.max() + 0.01), 31)
    ticks = _ticks(int(lengths.min()), int(lengths.max()))
    for panel, rows in parts:
        histogram, scatter = panel.subplots(1, 2, width_ratios=[1, 1.3])
        weight, length = rows["weight"].to_numpy(), rows["response_tokens"].to_numpy()
        histogram.hist(weight, bins=edges, color=CLASS_COLOURS["neutral"], alpha=0.75)
        histogram.axvline(weight.mean(), color="black", linestyle="--", linewidth=1.1)
        histogram.set_title(f"mean {weight.mean():.3f}, s.d. {weight.std():.3f}", fontsize=10)
        histogram.set_ylabel("samples (number)")
        histogram.set_xlabel("sample weight w (from 0 to 1)")
        histogram.yaxis.set_major_locator(MaxNLocator(integer=True))
        if len(rows) > POINTS:
            hexagons = scatter.hexbin(length, weight, xscale="log", gridsize=40, cmap="cividis_r", mincnt=1)
            panel.colorbar(hexagons, ax=scatter, label="samples (number)", format=lambda v, at: f"{v:,.0f}")
        else:
            scatter.plot(
                length, weight, "o", color=CLASS_COLOURS["neutral"], alpha=0.55, markersize=4, markeredgewidth=0
            )
        window = rows["window"][0]
        scatter.axvline(window, color="black", linestyle=":", linewidth=1.1)
        log_axis(scatter, "x", ticks)
        scatter.set_xlim(min(lengths.min(), window) / 1.15, max(lengths.max(), window) * 1.15)
        scatter.set_ylim(edges[0], edges[-1])
        scatter.set_title(f"rank correlation ρ = {signed(rows['spearman'][0], 2)} ({len(rows):,} samples)", fontsize=10)
        scatter.set_xlabel(f"length of the response (tokens; dotted: {window})")
        scatter.set_ylabel("sample weight w (from 0 to 1)")
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
