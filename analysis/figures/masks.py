"""Masks: what share of each category the confidence mask keeps, by its threshold, and what lambda restores."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from analysis.dataset import Dataset
from analysis.figures.base import Figure, run_figure
from analysis.figures.drawing import panels
from analysis.statistics import FINITE
from curate.taxonomy import CATEGORIES, LOCATIONS
from curate.weights import confidence_mask, cuda_mask, token_weight

__all__ = ["FIGURE", "TAUS"]

TAUS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)

OUTSIDE = "outside code"

SQL = f"""
    SELECT if(in_code, category, '{OUTSIDE}') AS category, location, logprob, count(*) AS tokens
    FROM tokens WHERE {FINITE} GROUP BY ALL ORDER BY ALL
"""


def data(dataset: Dataset) -> pl.DataFrame:
    """A row a category and tau: `kept_by_confidence`, the share with Mconf = 1; `kept`, with M > 0, which also counts
    what lambda restores. All response tokens; equations (2) to (4) with the options of the dataset."""
    options = dataset.manifest["config"]
    found = dataset.query(SQL)
    logprob = found["logprob"].cast(pl.Float64).to_numpy().astype(np.float16)  # stored so: exact
    location = np.array([LOCATIONS.index(name) for name in found["location"]], dtype=np.uint8)
    inside = cuda_mask(location, launch_scope=options["launch_scope"], device_functions=options["device_functions"])
    names = [name for name in (*CATEGORIES, OUTSIDE) if name in set(found["category"])]
    category, tokens = found["category"].to_numpy(), found["tokens"].to_numpy()
    rows = []
    for name in names:
        of_it = category == name
        total = int(tokens[of_it].sum())
        for tau in TAUS:
            confident = confidence_mask(logprob[of_it], tau)
            weight = token_weight(confident, inside[of_it], options["lambda"])
            rows.append({
                "category": name, "tau": tau, "lambda": float(options["lambda"]), "tokens": total,
                "kept_by_confidence": int(tokens[of_it] @ confident) / total,
                "kept": int(tokens[of_it] @ (weight > 0)) / total, "mean_weight": float(tokens[of_it] @ weight) / total,
            })  # fmt: skip
    return pl.DataFrame(rows)


def draw(frame: pl.DataFrame) -> Canvas:
    canvas, parts = panels(frame, lambda rows: 1.5 + 0.245 * max(5, rows["category"].n_unique()))
    for panel, rows in parts:
        axes = panel.subplots(1, 2, sharey=True)
        names = rows["category"].unique(maintain_order=True).to_list()
        tokens = rows.group_by("category", maintain_order=True).first()["tokens"]
        titles = {"kept_by_confidence": "by confidence alone, p > τ", "kept": f"with λ = {rows['lambda'][0]:g}"}
        for ax, (column, title) in zip(axes, titles.items(), strict=True):
            image = _draw_shares(ax, rows[column].to_numpy().reshape(len(names), len(TAUS)))
            ax.set_title(title)
        axes[0].set_yticks(range(len(names)), [f"{n} ({t:,})" for n, t in zip(names, tokens, strict=True)])
        axes[0].set_ylabel("category (tokens)")
        panel.colorbar(
            image, ax=axes, location="bottom", label="kept tokens of the category (%)", shrink=0.5, aspect=40,
            ticks=[0, 0.25, 0.5, 0.75, 1], format=lambda value, at: f"{100 * value:.0f}",
        )  # fmt: skip
    return canvas


def _draw_shares(ax: Axes, shares: NDArray[np.float64]) -> AxesImage:
    image = ax.imshow(shares, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    for (y, x), share in np.ndenumerate(shares):
        colour = "white" if share < 0.5 else "black"
        ax.text(x, y, f"{100 * share:.0f}", ha="center", va="center", fontsize=8.5, color=colour)
    ax.set_xticks(range(len(TAUS)), [f"{tau:g}" for tau in TAUS])
    ax.set_xlabel("τ (probability)")
    ax.grid(visible=False)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return image


FIGURE = Figure(
    name="masks",
    title="What the masks keep",
    caption="Share of each category's tokens, in per cent, that keep a weight. Left: by the confidence mask alone."
    " Right: with lambda, which gives every token of a kernel or a launch a weight whatever the model thinks of it.",
    data=data,
    draw=draw,
)

if __name__ == "__main__":
    run_figure(FIGURE)
