"""The tokens of the lowest window, one bar each."""

from __future__ import annotations

import polars as pl
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch

from analysis.dataset import Dataset
from analysis.figures.base import Figure, run_figure
from analysis.figures.drawing import CLASS_COLOURS, GREY, WIDTH, by_dataset, plain, plain_token
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
    parameters = {
        "sample": found.sample_id if found else "",
        "start": found.start if found else 0,
        "window_mean": found.confidence if found else None,
        "mean": found.neutral_mean if found else None,
    }
    return dataset.query(SQL, parameters)


def draw(frame: pl.DataFrame) -> Canvas:
    datasets = by_dataset(frame)
    canvas = Canvas(figsize=(WIDTH, 0.5 + (2.15 * ROWS + 0.4) * len(datasets)))
    axes = canvas.subplots(ROWS * len(datasets), 1, sharey=True)
    for i, (name, rows) in enumerate(datasets):
        mean, neutral = rows["window_mean"][0], rows["neutral_mean"][0]
        source = plain(rows["source_id"][0] or rows["sample_id"][0])
        axes[ROWS * i].set_title(f"{name}\nsample {source}, from token {rows['pos'][0]}, mean {mean:.3f}")
        step = -(-len(rows) // ROWS)
        for ax, part in zip(axes[ROWS * i :], rows.iter_slices(step), strict=False):
            colours = [CLASS_COLOURS["sensitive" if s else "neutral"] for s in part["sensitive"]]
            at = list(range(len(part)))
            ax.bar(at, part["confidence"], color=colours, width=0.8)
            inside = [x for x, statement in zip(at, part["statement"], strict=True) if statement]
            ax.bar(inside, [-0.045] * len(inside), width=1.0, color="black", linewidth=0)
            ax.set_xticks(at, [plain_token(token) for token in part["token"]], rotation=90, fontfamily="DejaVu Sans Mono")
            ax.tick_params(axis="x", labelsize=8, length=0)
            ax.axhline(mean, color="black", linewidth=1.1, linestyle=":")
            if neutral is not None:
                ax.axhline(neutral, color=GREY, linestyle="--", linewidth=1.1)
            ax.set_xlim(-0.7, step - 0.3)
            ax.set_ylim(-0.05, 1.02)
            ax.set_yticks([0, 0.5, 1])
            ax.grid(axis="x", visible=False)
            ax.set_ylabel("confidence\n(probability)")
    axes[-1].set_xlabel("tokens in order; ↵ line end, · space, ⇥ tab")
    handles = [Patch(color=colour, label=f"{kind} (category)") for kind, colour in CLASS_COLOURS.items()]
    handles.append(Patch(color="black", label="in a sensitive statement"))
    lines = [axes[-1].plot([], [], color=c, linestyle=s, label=t)[0] for c, s, t in (("black", ":", "window mean"), (GREY, "--", "neutral mean"))]
    canvas.legend(handles=[*handles, *lines], loc="outside lower center", ncols=5, columnspacing=1.0, fontsize=8.5)
    return canvas


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
