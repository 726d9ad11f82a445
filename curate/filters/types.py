"""The form of a filter, and what may be done with the rows that it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from curate.config import BuildConfig

__all__ = ["Action", "Filter"]

Action = Literal["refuse", "mark", "off"]
"""What happens to a row that a filter finds: it goes to rejected/; it stays, with the reason among its `flags`; or
the filter is not asked."""


@dataclass(frozen=True)
class Filter:
    """Finds rows for one reason; unless the configuration says otherwise (`--filter`), they are refused.

    `after`: the stage that it stands behind. `needs`: the columns that it reads. `options`: the fields of the
    configuration that it reads. `judge` takes a row's columns and returns the detail of the refusal (figures, no text
    of the row), or None for a row that passes.
    """

    reason: str
    after: str
    needs: tuple[str, ...]
    judge: Callable[[Mapping[str, Any], BuildConfig], str | None]
    options: tuple[str, ...] = ()
    default: Action = "refuse"
