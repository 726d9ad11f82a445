"""What the drawings share: colours, text that stays text, and a panel for each dataset."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.figure import SubFigure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from curate.console import printable

__all__ = [
    "CLASS_COLOURS", "GREY", "LABEL_COLOURS", "WIDTH", "Panel", "by_value", "log_axis", "panels", "percent", "plain",
    "plain_token", "short_name", "signed",
]  # fmt: skip

WIDTH = 7.2
"""Inches; at 144 dots an inch a picture is about a thousand pixels wide, and still legible at 700."""

CLASS_COLOURS = {"sensitive": "#D55E00", "neutral": "#0072B2"}
LABEL_COLOURS = {"statement": "#009E73", "category": "#CC79A7"}
GREY = "#6B6B6B"

Panel = tuple[SubFigure, pl.DataFrame]
"""Where a dataset is drawn, and its rows."""

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
    text = "".join(c if ord(c) in drawable and c not in "\t\n" else c.encode("unicode_escape").decode() for c in text)
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


def panels(frame: pl.DataFrame, height: Callable[[pl.DataFrame], float]) -> tuple[Canvas, list[Panel]]:
    """A picture with a panel a dataset, below each other, each headed by the dataset's name; `height`: inches that
    the rows of one need. The panels come with their rows."""
    parts = list(by_value(frame, "dataset"))
    heights = [0.3 + height(rows) for _, rows in parts]
    canvas = Canvas(figsize=(WIDTH, sum(heights)))
    figures = canvas.subfigures(len(parts), 1, height_ratios=heights, squeeze=False)[:, 0]
    for figure, (name, _) in zip(figures, parts, strict=True):
        figure.suptitle(short_name(str(name)), x=0.008, ha="left", fontsize=10, fontweight="bold")
    return canvas, [(figure, rows) for figure, (_, rows) in zip(figures, parts, strict=True)]


def short_name(name: str, width: int = 60) -> str:
    """The name of a dataset, without the owner of its model."""
    return plain(name.rpartition("/")[2] or name, width)


def signed(value: float, digits: int = 3) -> str:
    """A number with its sign, a true minus as on the axes; a dash for what does not exist."""
    return f"{value:+.{digits}f}".replace("-", "−") if math.isfinite(value) else "–"


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
