"""Filters on what compiling an answer, and running it where that is asked for, came to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from curate.config import BuildConfig
from curate.filters.types import Filter

__all__ = ["COMPILING", "EXECUTING"]


def _compiled(status: str, row: Mapping[str, Any], config: BuildConfig) -> str | None:
    if row["compile_status"] != status:
        return None
    first = (row["compile_log"] or "").strip().split("\n")[0]
    return f"{row['compile_engine']}, {row['compile_arch']}: {_shape(first)}"


def _shape(line: str) -> str:
    """A message of a compiler without what it quotes of the row."""
    return line.split('"')[0].strip()[:160]


def _executed(status: str, row: Mapping[str, Any], config: BuildConfig) -> str | None:
    return "the command says so" if row["execute_status"] == status else None


COMPILING: tuple[Filter, ...] = tuple(
    Filter(
        reason,
        "compile",
        ("compile_status", "compile_engine", "compile_arch", "compile_log"),
        partial(_compiled, status),
    )
    for reason, status in (
        ("compile_error", "error"),
        ("compile_refused", "refused"),
        ("compile_timeout", "timeout"),
    )
)
EXECUTING: tuple[Filter, ...] = tuple(
    Filter(reason, "execute", ("execute_status",), partial(_executed, status))
    for reason, status in (("execution_failed", "fail"), ("execution_timeout", "timeout"))
)
