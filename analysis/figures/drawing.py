"""What the drawings share: colours, text that stays text, and one row of axes a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import NDArray

from curate.console import printable

__all__ = [
    "CLASS_COLOURS", "GREY", "LABEL_COLOURS", "WIDTH", "by_dataset", "by_value", "grid", "log_axis", "percent",
    "plain", "plain_token",
]  # fmt: skip

WIDTH = 7.2
"""Inches; at 144 dots an inch a picture is about a thousand pixels wide, and still legible at 700."""

CLASS_COLOURS = {"sensitive": "#D55E00", "neutral": "#0072B2"}
LABEL_COLOURS = {"statement": "#009E73", "category": "#CC79A7"}
GREY = "#6B6B6B"

_MARKS = {"\n": "↵", "\r": "␍", "\t": "⇥", " ": "·"}


@cache
def _drawable(family: str) -> frozenset[int]:
    """The characters that the font has; of others matplotlib would draw a box and warn."""
    return frozenset(get_font(findfont(FontProperties(family=family))).get_charmap())


def plain(text: str, width: int = 44, family: str = "DejaVu Sans") -> str:
    """Text of a corpus or a name, on one line, that is drawn as it reads: what is no printable character of the font
    is spelled out, the middle of a long one left out. ("$" stays itself: the style sheet turns mathematics off.)"""
    drawable = _drawable(family)
    text = printable(text[: 4 * width] if len(text) <= 4 * width else text[: 2 * width] + text[-2 * width :])
    text = "".join(
        c if ord(c) in drawable and c not in "\t\n" else c.encode("unicode_escape").decode() for c in text
    )
    if len(text) > width:
        text = f"{text[: width // 2]}…{text[-(width - width // 2 - 1) :]}"
    return f"\u2009{text}" if text.startswith("_") else text  # a legend leaves out what begins with "_"


def plain_token(token: str | None, width: int = 14) -> str:
    """A token for a label in a font of fixed width, with marks for white space; None is a token of the template."""
    if token is None:
        return "(end)"
    marked = "".join(_MARKS.get(c, c) for c in token[: 4 * width])
    return plain(marked, width, "DejaVu Sans Mono")


def by_value(frame: pl.DataFrame, column: str) -> Iterator[tuple[Any, pl.DataFrame]]:
    """The parts of a frame by the value of a column, in the order of first appearance."""
    for value in frame[column].unique(maintain_order=True):
        yield value, frame.filter(pl.col(column) == value)


def by_dataset(frame: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """(name to be drawn, rows) of each dataset."""
    return [(plain(str(name)), rows) for name, rows in by_value(frame, "dataset")]


def grid(
    rows: int, columns: int, height: float, share_x: bool = True, share_y: bool = True, **more: Any
) -> tuple[Canvas, NDArray[Any]]:
    """A picture of `rows` times `columns` axes; `height`: inches of a row."""
    canvas = Canvas(figsize=(WIDTH, 0.3 + height * rows))
    axes = canvas.subplots(rows, columns, squeeze=False, sharex=share_x, sharey=share_y, **more)
    return canvas, np.asarray(axes)


def percent(axis: Any, digits: int = 0) -> None:
    """Labels an axis of shares in per cent."""
    axis.set_major_formatter(FuncFormatter(lambda value, at: f"{100 * value:.{digits}f}"))


def log_axis(axes: Axes, which: str, ticks: Sequence[float]) -> None:
    """A logarithmic axis with these ticks, written as plain numbers."""
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, at: f"{value:,.6g}"))
