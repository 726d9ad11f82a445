"""What low-confidence regions are made of: the share of each category in them against its share in all code."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.figure import Figure as Canvas
from numpy.typing import NDArray

from analysis.bootstrap import DRAWS, divided, interval, resampled
from analysis.dataset import Dataset
from analysis.figures.base import Figure, run_figure
from analysis.figures.drawing import CLASS_COLOURS, log_axis, panels
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


def data(dataset: Dataset, draws: int = DRAWS, seed: int = 0) -> pl.DataFrame:
    """A row a category, by rising lift: its share of the regions' sensitive tokens over its share of all of them."""
    found = dataset.query(SQL)
    if found.is_empty() or not found["region_tokens"].sum():
        return found.clear()
    names = sorted(set(found["category"]), key=CATEGORIES.index)
    sums = sample_sums(dataset, found, "category", names, ["region_tokens", "all_tokens"])
    totals = sums.sum(axis=0)
    drawn = resampled(sums.reshape(len(sums), -1), draws, seed).reshape(-1, *totals.shape)
    bounds = np.array([interval(lift) for lift in _lift(drawn).T]).reshape(-1, 2)
    shares = divided(totals, totals.sum(axis=0, keepdims=True))
    return pl.DataFrame({
        "category": names, "region_tokens": totals[:, 0].astype(np.int64), "all_tokens": totals[:, 1].astype(np.int64),
        "region_share": shares[:, 0], "base_share": shares[:, 1], "lift": _lift(totals[None])[0],
        "lift_low": bounds[:, 0], "lift_high": bounds[:, 1],
    }, schema_overrides={"category": pl.String}).sort("lift", "category")  # fmt: skip


def _lift(totals: NDArray[np.floating]) -> NDArray[np.floating]:
    """(draws, categories, 2), tokens in regions and of all -> (draws, categories)."""
    shares = divided(totals, totals.sum(axis=1, keepdims=True))
    return divided(shares[..., 0], shares[..., 1])


def draw(frame: pl.DataFrame) -> Canvas:
    canvas, parts = panels(frame, lambda rows: 0.75 + 0.26 * max(8, len(rows)))
    bounds = [x for x in (frame["lift_low"].min(), frame["lift_high"].max()) if isinstance(x, float) and 0 < x < 100]
    for panel, rows in parts:
        ax = panel.subplots()
        at = np.arange(len(rows))
        ax.hlines(at, rows["lift_low"], rows["lift_high"], color=CLASS_COLOURS["sensitive"], linewidth=2.2)
        ax.plot(rows["lift"], at, "o", color=CLASS_COLOURS["sensitive"], markeredgecolor="black", markersize=6)
        ax.axvline(1, color="black", linewidth=1, linestyle="--")
        labels = [
            f"{category} ({100 * inside:.1f} / {100 * base:.1f} %)"
            for category, inside, base in rows.select("category", "region_share", "base_share").iter_rows()
        ]
        ax.set_yticks(at, labels)
        ax.set_ylim(-0.7, len(rows) - 0.3)
        ax.set_ylabel("category (% in regions / in all)")
        log_axis(ax, "x", _ticks(min([0.6, *bounds]), max([1.7, *bounds])))
        ax.set_xlim(min([0.6, *bounds]) / 1.08, max([1.7, *bounds]) * 1.08)
        ax.set_xlabel("lift: share in low-confidence regions / share in all (ratio)")
    return canvas


def _ticks(low: float, high: float) -> list[float]:
    """More of them in a narrow range."""
    wide = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20]
    return wide if high > 6 * low else [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1, 1.2, 1.4, 1.7, 2, 2.5, 3, 4, 5]


FIGURE = Figure(
    name="regions",
    title="What low-confidence regions are made of",
    caption="Regions are runs of sensitive tokens below the neutral mean. Right of the line: a category is more"
    " frequent in them than among all sensitive code tokens. Bars: 95 % intervals, for which whole samples are drawn.",
    data=data,
    draw=draw,
    has_intervals=True,
)

if __name__ == "__main__":
    run_figure(FIGURE)
