"""The tokens of the lowest window, one bar each."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch

from analysis.dataset import Dataset
from analysis.figures.base import Figure, run_figure
from analysis.figures.drawing import CLASS_COLOURS, GREY, panels, plain, plain_token
from analysis.figures.lowest import lowest_window
from curate.store import ANALYSIS_WINDOW

__all__ = ["FIGURE"]

SQL = f"""
    SELECT t.sample_id, s.source_id, t.pos, t.token, t.confidence, t.category, t.sensitive, t.statement,
        $window_mean AS window_mean, $mean AS neutral_mean
    FROM (FROM tokens WHERE sample_id = $sample AND in_code AND pos >= $start) t JOIN samples s USING (sample_id)
    ORDER BY t.pos LIMIT {ANALYSIS_WINDOW}
"""

ROWS = 2
"""Rows that the bars of a window stand in, so that their labels can be read."""


def data(dataset: Dataset) -> pl.DataFrame:
    """A row a token of the window."""
    found = lowest_window(dataset)
    parameters: dict[str, object] = {
        "sample": found.sample_id if found else "",
        "start": found.start if found else 0,
        "window_mean": found.confidence if found else None,
        "mean": found.neutral_mean if found else None,
    }
    return dataset.query(SQL, parameters)


def draw(frame: pl.DataFrame) -> Canvas:
    canvas, parts = panels(frame, lambda rows: 0.8 + 2.1 * ROWS)
    for panel, rows in parts:
        mean, neutral = rows["window_mean"][0], rows["neutral_mean"][0]
        axes = panel.subplots(ROWS, 1, sharey=True)
        source = plain(rows["source_id"][0] or rows["sample_id"][0])
        axes[0].set_title(f"sample {source}, from token {rows['pos'][0]}")
        step = -(-len(rows) // ROWS)
        for ax, part in zip(axes, rows.iter_slices(step), strict=False):
            _draw_bars(ax, part)
            ax.axhline(mean, color="black", linewidth=1.1, linestyle=":", label=f"window mean, {mean:.3f}")
            if neutral is not None:
                ax.axhline(neutral, color=GREY, linestyle="--", linewidth=1.1, label=f"neutral mean, {neutral:.3f}")
            ax.set_xlim(-0.7, step - 0.3)
        axes[-1].set_xlabel("tokens in order (↵ line end, · space, ⇥ tab)")
        handles = [Patch(color=colour, label=f"{kind} (category)") for kind, colour in CLASS_COLOURS.items()]
        handles.append(Patch(color="black", label="in a sensitive statement"))
        lines = axes[0].get_legend_handles_labels()[0]
        panel.legend(handles=[*handles, *lines], loc="outside lower center", ncols=3)
    return canvas


def _draw_bars(ax: Axes, tokens: pl.DataFrame) -> None:
    at = list(range(len(tokens)))
    colours = [CLASS_COLOURS["sensitive" if s else "neutral"] for s in tokens["sensitive"]]
    ax.bar(at, tokens["confidence"], color=colours, width=0.8)
    inside = [x for x, statement in zip(at, tokens["statement"], strict=True) if statement]
    ax.bar(inside, [-0.06] * len(inside), width=1.0, color="black", linewidth=0)
    ax.set_xticks(at, [plain_token(token) for token in tokens["token"]], rotation=90, fontfamily="DejaVu Sans Mono")
    ax.tick_params(axis="x", labelsize=8, length=0)
    ax.set_ylim(-0.06, 1.02)
    ax.set_yticks([0, 0.5, 1])
    ax.grid(axis="x", visible=False)
    ax.set_ylabel("confidence\n(probability)")


FIGURE = Figure(
    name="lowest_window",
    title="The tokens of the lowest window",
    caption="The full window of 64 code tokens of which the model is least sure, token by token. Bars: the probability"
    " that it gives to the token. Dashed: the mean of all neutral tokens (statement labels).",
    data=data,
    draw=draw,
)

if __name__ == "__main__":
    run_figure(FIGURE)
