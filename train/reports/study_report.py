"""A study for people: the table on a terminal and in Markdown, and the figure."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from train.reports.study import Estimate, Row

__all__ = ["NOTE", "draw", "markdown", "table"]

NOTE = (
    "nll is how likely the reference answers are to the tuned model, in nats a token, lower is likelier. It is not"
    " functional correctness: code that the model writes was neither compiled nor run. sft minimises this very"
    " quantity, so that a rival with a higher nll is not thereby worse. Intervals: 95 %, over seeds and held-out"
    " samples; an interval of a difference that holds 0 decides nothing."
)

_COLOURS = {"all": "#000000", "sensitive": "#0072B2", "neutral": "#D55E00", "low_confidence": "#009E73"}
"""Okabe and Ito's, which colour-blind readers can tell apart."""


def _cell(found: Estimate | None, form: str = ".4f") -> str:
    if found is None or found.value != found.value:
        return ""
    return format(found.value, form) + ("" if found.low != found.low else f" [{found.low:.4f}, {found.high:.4f}]")


def _lines(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    first = next((row.objective for row in rows if row.difference is not None), "the first")
    head = ["objective", "tokens", "number", "nll", "less untuned", f"less {first}"]
    found = []
    for r in rows:
        numbers = [_cell(r.nll), _cell(r.difference, "+.4f"), _cell(r.against, "+.4f")]
        found.append([r.objective, r.token_class.replace("_", " "), f"{r.tokens:,}", *numbers])
    return head, found


def table(rows: Sequence[Row]) -> Table:
    """For a terminal."""
    head, lines = _lines(rows)
    found = Table(title="Held-out nll, nats a token", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(head):
        found.add_column(Text(name), justify="left" if number < 2 else "right")
    before = None
    for line in lines:
        found.add_row(*(Text("" if n == 0 and cell == before else cell) for n, cell in enumerate(line)))
        before = line[0]
    return found


def markdown(rows: Sequence[Row]) -> str:
    """A row an objective, a column a class: nll, and the difference from the first objective where there is one."""
    classes = list(dict.fromkeys(row.token_class for row in rows))
    first = next((row.objective for row in rows if row.difference is not None), "the first")
    lines = [f"| nll; less {first} | " + " | ".join(name.replace("_", " ") for name in classes) + " |"]
    lines.append("|---" * (len(classes) + 1) + "|")
    for name in dict.fromkeys(row.objective for row in rows):
        own = {row.token_class: row for row in rows if row.objective == name}
        cells = [_cell(own[c].nll) + (f"; {_cell(own[c].against, '+.4f')}" if own[c].against else "") for c in classes]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(rows: Sequence[Row]) -> dict[str, bytes]:
    """Differences with intervals, a colour a class: from the untuned model, and from the first objective."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row.objective for row in rows if row.difference is not None))
    classes = list(dict.fromkeys(row.token_class for row in rows))
    style: Any = {
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
        "grid.color": "#E4E4E4", "legend.frameon": False, "font.size": 10, "text.parse_math": False,
        "svg.fonttype": "path", "svg.hashsalt": "cuset",
    }  # fmt: skip
    with rc_context(style):
        canvas = Figure(figsize=(8.4, 1.5 + 0.55 * len(names)), layout="constrained")
        panels = canvas.subplots(1, 2, sharey=True)
        kinds = {"difference": "less the untuned model", "against": f"less {names[0]}"}
        for axes, (kind, title) in zip(panels, kinds.items(), strict=True):
            for number, token_class in enumerate(classes):
                colour = _COLOURS.get(token_class, "#CC79A7")
                for row in (row for row in rows if row.token_class == token_class):
                    found = getattr(row, kind)
                    if found is not None and found.value == found.value:
                        place = names.index(row.objective) + (number - (len(classes) - 1) / 2) * 0.17
                        axes.plot([found.low, found.high], [place] * 2, color=colour, linewidth=1.8)
                        axes.plot([found.value], [place], "o", color=colour, markersize=4.5)
                axes.plot([], [], "o-", color=colour, label=token_class.replace("_", " "))
            axes.axvline(0, color="#777777", linewidth=1)
            axes.set_title(f"held-out nll {title}", loc="left", fontsize=10.5)
            axes.set_xlabel("nats a token (negative: likelier)")
        panels[0].set_yticks(range(len(names)), names)
        panels[0].set_ylim(len(names) - 0.5, -0.5)
        canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(classes))
        found = {}
        for kind in ("png", "svg"):
            content = io.BytesIO()
            canvas.savefig(content, format=kind, dpi=144, metadata={"Date": None} if kind == "svg" else None)
            found[kind] = content.getvalue()
    return found
