"""Filters on the flaws that `curate.checks` finds, one for each of its reasons."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from curate.checks import CHECKS
from curate.config import BuildConfig
from curate.filters.types import Filter

__all__ = ["FLAWS"]


def _flaw(reason: str, row: Mapping[str, Any], config: BuildConfig) -> str | None:
    return next((flaw["detail"] for flaw in row["flaws"] if flaw["reason"] == reason), None)


FLAWS: tuple[Filter, ...] = tuple(Filter(reason, "parse", ("flaws",), partial(_flaw, reason)) for reason, _ in CHECKS)
"""In the order of the checks."""
