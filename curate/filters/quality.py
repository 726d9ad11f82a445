"""Filters on the figures of `curate.quality`, each with a threshold of its own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from curate.config import BuildConfig
from curate.filters.types import Filter

__all__ = ["QUALITY"]

_LIMITS = (
    ("mostly_comments", "comment_share", "max_comment_share", "of the code's bytes are comments"),
    ("long_line", "longest_line", "max_line", "characters in one line of code"),
    ("number_table", "number_table_share", "max_number_table_share", "of the code's bytes are tables of numbers"),
    ("repeated_lines", "repeated_line_share", "max_repeated_line_share", "of the code's lines stand there before"),
    ("non_ascii", "non_ascii_share", "max_non_ascii_share", "of the response's characters are not ASCII"),
)
"""(reason, column, option, what the figure is)"""


def _above(column: str, option: str, what: str, row: Mapping[str, Any], config: BuildConfig) -> str | None:
    value, limit = row[column], getattr(config, option)
    return f"{value:.4g} {what}, {limit} allowed" if value > limit else None


def _short(row: Mapping[str, Any], config: BuildConfig) -> str | None:
    chars = row["code_chars"]
    return f"{chars} characters of code, {config.min_code} asked for" if chars < config.min_code else None


QUALITY: tuple[Filter, ...] = (
    Filter("short_code", "parse", ("code_chars",), _short, ("min_code",)),
    *(
        Filter(reason, "parse", (column,), partial(_above, column, option, what), (option,))
        for reason, column, option, what in _LIMITS
    ),
)
