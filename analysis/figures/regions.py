"""What low-confidence regions are made of: the share of each category in them against its share in all code."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.figure import Figure as Canvas

from analysis.bootstrap import divided, interval, resampled
from analysis.dataset import Dataset
from analysis.figures.base import Figure, run_figure
from analysis.figures.drawing import CLASS_COLOURS, WIDTH, by_dataset, log_axis
from analysis.figures.sums import sample_sums
from analysis.statistics import FINITE
from curate.taxonomy import CATEGORIES

__all__ = ["FIGURE"]

SQL = f"""
    WITH every AS (
        SELECT sample_id, category, count(*) AS tokens FROM tokens WHERE in_code AND sensitive AND {FINITE} GROUP BY ALL
    ), inside AS (
        SELECT sample_id, [{", ".join(f"'{name}'" for name in CATEGORIES)}][number + 1] AS category, count(*) AS tokens
        FROM (
            SELECT sample_id, unnest(s.category[first_token + 1 : last_token + 1]) AS number
            FROM regions JOIN (SELECT sample_id, category FROM samples) s USING (sample_id)
        ) WHERE number > 0 GROUP BY ALL
    )
    SELECT sample_id, category, every.tokens AS all_tokens, coalesce(inside.tokens, 0) AS region_tokens
    FROM every LEFT JOIN inside USING (sample_id, category) ORDER BY sample_id, category
"""


def data(dataset: Dataset) -> pl.DataFrame:
    """A row a category, by rising lift: its share of the regions' sensitive tokens over its share of all of them."""
    found = dataset.query(SQL)
    names = sorted(set(found["category"]), key=CATEGORIES.index)
    sums = sample_sums(found, "category", names, ["region_tokens", "all_tokens"])
    totals = sums.sum(axis=0)
    drawn = resampled(sums.reshape(len(sums), -1)).reshape(-1, *totals.shape)
    bounds = np.array([interval(lift) for lift in _lift(drawn).T]).reshape(-1, 2)
    shares = divided(totals, totals.sum(axis=0, keepdims=True))
    return pl.DataFrame({
        "category": names, "region_tokens": totals[:, 0].astype(np.int64), "all_tokens": totals[:, 1].astype(np.int64),
        "region_share": shares[:, 0], "base_share": shares[:, 1], "lift": _lift(totals[None])[0],
        "lift_low": bounds[:, 0], "lift_high": bounds[:, 1],
    }, schema_overrides={"category": pl.String}).sort("lift", "category")  # fmt: skip


def _lift(totals: np.ndarray) -> np.ndarray:
    """(draws, categories, 2), tokens in regions and of all -> (draws, categories)."""
    shares = divided(totals, totals.sum(axis=1, keepdims=True))
    return divided(shares[..., 0], shares[..., 1])


def draw(frame: pl.DataFrame) -> Canvas:
    datasets = by_dataset(frame)
    heights = [len(rows) for _, rows in datasets]
    canvas = Canvas(figsize=(WIDTH, 0.6 + 0.27 * sum(heights) + 0.5 * len(heights)))
    axes = canvas.subplots(len(datasets), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    for ax, (name, rows) in zip(axes, datasets, strict=True):
        at = np.arange(len(rows))
        ax.hlines(at, rows["lift_low"], rows["lift_high"], color=CLASS_COLOURS["sensitive"], linewidth=2.2)
        ax.plot(rows["lift"], at, "o", color=CLASS_COLOURS["sensitive"], markeredgecolor="black", markersize=6)
        ax.axvline(1, color="black", linewidth=1, linestyle="--")
        labels = [
            f"{category}  ({100 * inside:.1f} % of {100 * base:.1f} %)"
            for category, inside, base in rows.select("category", "region_share", "base_share").iter_rows()
        ]
        ax.set_yticks(at, labels)
        ax.set_ylim(-0.7, len(rows) - 0.3)
        ax.set_ylabel("category (in regions, in all)")
        ax.set_title(name)
    log_axis(axes[0], "x", [0.1, 0.2, 0.5, 1, 2, 5, 10])
    axes[-1].set_xlabel("lift: share among tokens of low-confidence regions / share among all sensitive tokens (ratio)")
    return canvas


FIGURE = Figure(
    name="regions",
    title="What low-confidence regions are made of",
    caption="Regions are runs of sensitive tokens below the neutral mean. Right of the line: a category is more frequent"
    " in them than among all sensitive code tokens. Bars: 95 % intervals, for which whole samples are drawn.",
    data=data,
    draw=draw,
)

if __name__ == "__main__":
    run_figure(FIGURE)
