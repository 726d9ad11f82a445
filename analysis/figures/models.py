"""The gap between sensitive and neutral tokens across models, by their size."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
from matplotlib.figure import Figure as Canvas
from numpy.typing import NDArray

from analysis.bootstrap import DRAWS, bootstrap, divided
from analysis.dataset import LABELS, Dataset
from analysis.figures.base import Figure, run_figure
from analysis.figures.drawing import LABEL_COLOURS, WIDTH, by_value, short_name, signed
from analysis.figures.sums import sample_sums
from analysis.statistics import FINITE

__all__ = ["FIGURE", "named_size", "size_of"]

PAPER = ("paper: Qwen3-8B", 8e9, 0.8914 - 0.6986)
"""Name, parameters and gap; the paper gives no interval."""

SQL = "\nUNION ALL\n".join(
    f"SELECT '{labels}' AS labels, sample_id, sum(confidence) FILTER ({column}) AS sensitive_total,"
    f" sum(confidence) FILTER (NOT {column}) AS neutral_total, count(*) FILTER ({column}) AS sensitive_tokens,"
    f" count(*) FILTER (NOT {column}) AS neutral_tokens FROM tokens WHERE in_code AND {FINITE} GROUP BY sample_id"
    for labels, column in LABELS.items()
)

_SIZE = re.compile(r"(?<![A-Za-z0-9.])(\d{1,6}(?:\.\d{1,3})?)\s?([MBT])(?![A-Za-z0-9])", re.IGNORECASE)


def size_of(dataset: Dataset) -> tuple[float | None, str]:
    """The number of the model's parameters and where that is from: `manifest`, in which the build counted them, or
    `name`, for datasets of earlier builds; None and nothing where neither tells."""
    counted = dataset.manifest["model"].get("parameters")
    if isinstance(counted, int) and counted > 0:
        return float(counted), "manifest"
    named = named_size(dataset.model)
    return named, "name" if named else ""


def named_size(model: str) -> float | None:
    """The number of parameters that a model's name tells (`-0.5B-`, `135M`); None where it tells none."""
    found = _SIZE.search(model)
    return float(found[1]) * {"M": 1e6, "B": 1e9, "T": 1e12}[found[2].upper()] if found else None


def data(dataset: Dataset, draws: int = DRAWS, seed: int = 0) -> pl.DataFrame:
    """A row a label set: the difference of the means, sensitive - neutral, with its 95 % interval by samples."""
    columns = ["sensitive_total", "neutral_total", "sensitive_tokens", "neutral_tokens"]
    found = dataset.query(SQL).with_columns(pl.col(columns).fill_null(0))
    size, known_by = size_of(dataset)
    rows = []
    for labels, part in by_value(found, "labels"):
        sums = sample_sums(dataset, part, "labels", [labels], columns)
        gap, (low, high) = bootstrap(sums[:, 0], _gap, draws, seed)
        rows.append({
            "model": dataset.model, "parameters": size, "size_from": known_by, "labels": labels,
            "samples": len(dataset.scored_ids), "gap": gap, "gap_low": low, "gap_high": high,
        })  # fmt: skip
    floats = dict.fromkeys(("parameters", "gap", "gap_low", "gap_high"), pl.Float64())
    return pl.DataFrame(rows, schema_overrides=floats)


def _gap(totals: NDArray[np.floating]) -> NDArray[np.floating]:
    means = divided(totals[..., :2], totals[..., 2:])
    return np.asarray(means[..., 0] - means[..., 1])


def draw(frame: pl.DataFrame) -> Canvas:
    order = frame.sort(pl.col("parameters").fill_null(float("inf")), maintain_order=True)
    names = order["dataset"].unique(maintain_order=True).to_list()
    canvas = Canvas(figsize=(WIDTH, 1.7 + 0.55 * len(names)))
    ax = canvas.subplots()
    ticks = []
    for at, name in enumerate(names):
        rows = order.filter(pl.col("dataset") == name)
        ticks.append(f"{short_name(name, 38)}\n{_told(rows['parameters'][0], rows['size_from'][0])}")
        for labels, part in by_value(rows, "labels"):
            y = at + (-0.14 if labels == "statement" else 0.14)
            ax.plot([part["gap_low"][0], part["gap_high"][0]], [y, y], color=LABEL_COLOURS[labels], linewidth=2.4)
            ax.plot(part["gap"][0], y, "o", color=LABEL_COLOURS[labels], markeredgecolor="black", markersize=6.5)
            ax.annotate(
                signed(part["gap"][0]), (max(part["gap"][0], np.nan_to_num(part["gap_high"][0], nan=-1)), y),
                xytext=(5, 0), textcoords="offset points", va="center", fontsize=8.5,
            )  # fmt: skip
    ax.plot(PAPER[2], len(names), "*", color="black", markersize=10)
    ax.annotate(
        signed(PAPER[2]), (PAPER[2], len(names)), xytext=(7, 0), textcoords="offset points", va="center", fontsize=8.5
    )
    ticks.append(f"{PAPER[0]}\n{_told(PAPER[1])}")
    ax.axvline(0, color="black", linewidth=1)
    ax.set_yticks(range(len(ticks)), ticks)
    ax.set_ylim(len(ticks) - 0.4, -0.6)
    ax.margins(x=0.16)
    ax.set_ylabel("model (parameters)")
    ax.set_xlabel("mean confidence, sensitive − neutral (probability)")
    for labels, colour in LABEL_COLOURS.items():
        label = f"{labels} labels, 95 % interval"
        ax.plot([], [], "o-", color=colour, markeredgecolor="black", linewidth=2.4, label=label)
    ax.plot([], [], "*", linestyle="", color="black", markersize=10, label="paper")
    canvas.legend(loc="outside lower center", ncols=3)
    return canvas


def _told(size: float | None, known_by: str = "") -> str:
    if size is None:
        return "size not known"
    told = f"{size / 1e9:.3g} B" if size >= 1e9 else f"{size / 1e6:.3g} M"
    return f"{told}, by its name" if known_by == "name" else told


FIGURE = Figure(
    name="models",
    title="The gap across models",
    caption="Mean confidence of sensitive less that of neutral code tokens, one dataset a row, the smallest model on"
    " top (parameters as the build counted them; of older builds, as the model's name tells them). Right of the line:"
    " sensitive tokens are surer, as the paper says. Intervals are by samples.",
    data=data,
    draw=draw,
    has_intervals=True,
    needs_several=True,
)

if __name__ == "__main__":
    run_figure(FIGURE)
