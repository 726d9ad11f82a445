"""The funnel of curation: how many rows each reason takes away."""

from __future__ import annotations

import polars as pl
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter

from analysis.dataset import Dataset
from analysis.figures.base import Figure, run_figure
from analysis.figures.drawing import CLASS_COLOURS, panels, plain

__all__ = ["FIGURE"]

SQL = """
    SELECT stage, reason, count(*) AS rows FROM rejected GROUP BY ALL
    UNION ALL SELECT 'accepted', '', count(*) FROM samples ORDER BY ALL
"""

MOST = 40
"""Reasons that are drawn; the rarest of a longer list are one bar for each stage."""


def data(dataset: Dataset) -> pl.DataFrame:
    """A row a reason, in the order of the stages, the most frequent first: rows refused for it, rows left behind it."""
    found = dataset.query(SQL)
    stages = [*dataset.manifest["counts"].get("refused", {})]
    place = {stage: i for i, stage in enumerate(stages)} | {"accepted": len(stages) + 1}
    ordered = found.with_columns(
        place=pl.col("stage").replace_strict(place, default=len(stages), return_dtype=pl.Int64)
    ).sort("place", "rows", "reason", descending=[False, True, False])
    accepted = pl.col("stage") == "accepted"
    refused = ordered.filter(~accepted).with_columns(
        left=int(found["rows"].sum()) - pl.col("rows").cum_sum().cast(pl.Int64)
    )
    last = ordered.filter(accepted).with_columns(left=pl.col("rows").cast(pl.Int64))
    return pl.concat([refused, last]).drop("place")


def draw(frame: pl.DataFrame) -> Canvas:
    canvas, parts = panels(frame, lambda rows: 0.75 + 0.205 * max(5, len(_bars(rows))))
    for panel, rows in parts:
        ax, bars = panel.subplots(), _bars(rows)
        widest = max(left + taken for _, left, taken in bars) or 1
        for at, (_, left, taken) in enumerate(bars):
            faint = 1 if at in (0, len(bars) - 1) else 0.35
            ax.barh(at, left, color=CLASS_COLOURS["neutral"], alpha=faint, height=0.78)
            ax.barh(at, taken, left=left, color=CLASS_COLOURS["sensitive"], height=0.78)
            text = f"−{taken:,}" if taken else f"{left:,}"
            ax.text(left + taken + 0.01 * widest, at, text, va="center", fontsize=8.5)
        ax.set_yticks(range(len(bars)), [label for label, *_ in bars], fontsize=8.5)
        ax.set_ylim(len(bars) - 0.4, -0.6)
        ax.set_xlim(0, widest * 1.1)
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, at: f"{value:,.6g}"))
        ax.grid(axis="y", visible=False)
        ax.set_ylabel("stage: reason")
        ax.set_xlabel("rows (number): blue are left, orange are refused")
    return canvas


def _bars(rows: pl.DataFrame) -> list[tuple[str, int, int]]:
    """(label, rows left, rows taken away)."""
    accepted = int(rows["rows"][-1])
    refused = [(str(s), str(r), int(n)) for s, r, n in rows.select("stage", "reason", "rows").iter_rows()][:-1]
    smallest = sorted((n for *_, n in refused), reverse=True)[MOST - 1 : MOST]
    kept: list[tuple[str, int]] = []
    for stage, reason, n in refused:
        rare = bool(smallest) and len(refused) > MOST and n < smallest[0]
        label = f"{plain(stage, 20)}: {'rarer reasons' if rare else plain(reason, 30)}"
        if rare and kept and kept[-1][0] == label:
            kept[-1] = (label, kept[-1][1] + n)
        else:
            kept.append((label, n))
    left = accepted + sum(n for _, n in kept)
    bars = [("read", left, 0)]
    for label, n in kept:
        left -= n
        bars.append((label, left, n))
    return [*bars, ("accepted", left, 0)]


FIGURE = Figure(
    name="funnel",
    title="The funnel of curation",
    caption="From the rows that were read to those that were accepted: what each reason takes away, in the order in"
    " which they are asked. A row is refused for the first reason that holds.",
    data=data,
    draw=draw,
    needs_scores=False,
)

if __name__ == "__main__":
    run_figure(FIGURE)
