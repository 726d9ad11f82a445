"""The form of a filter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from curate.config import BuildConfig

__all__ = ["Filter"]


@dataclass(frozen=True)
class Filter:
    """Refuses a row for one reason.

    `after`: the stage that it stands behind. `needs`: the columns that it reads. `options`: the fields of the
    configuration that it reads. `judge` takes a row's columns and returns the detail of the refusal (figures, no text
    of the row), or None for a row that passes.
    """

    reason: str
    after: str
    needs: tuple[str, ...]
    judge: Callable[[Mapping[str, Any], BuildConfig], str | None]
    options: tuple[str, ...] = ()
