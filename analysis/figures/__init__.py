"""One file a figure: a query, a drawing, and a command of its own."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.figures.base import Figure

__all__ = ["FIGURES", "NAMES"]

NAMES = (
    "density", "categories", "windows_of_sample", "lowest_window", "low_windows", "regions", "rank_entropy", "masks",
    "weights", "position", "models", "funnel",
)  # fmt: skip
"""The modules of this package that are figures, in the order of a report."""

FIGURES: tuple[Figure, ...]
"""All figures; imported when they are asked for, so that one of them runs as a command without the others."""


def __getattr__(name: str) -> object:
    if name != "FIGURES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return tuple(import_module(f"{__name__}.{module}").FIGURE for module in NAMES)
