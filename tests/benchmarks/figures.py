"""What a measurement hands back, and the corpus that several of them use."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from curate.sources import Row, open_sources

__all__ = ["Figure", "bundled_rows", "timed"]

T = TypeVar("T")


@dataclass(frozen=True)
class Figure:
    """One line of the table: what was measured, its value with unit, and what it has to be read against."""

    what: str
    value: float
    unit: str
    note: str = ""


def bundled_rows() -> list[Row]:
    """The readable rows of the bundled corpus."""
    return [row for source in open_sources(("bundled",), None, None) for row in source.rows() if not row.reason]


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """(seconds, result)"""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result
