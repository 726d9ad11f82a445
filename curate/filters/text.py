"""Filters on the texts of a row and their length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curate.config import BuildConfig
from curate.filters.types import Filter

__all__ = ["EMPTY_PROMPT", "EMPTY_RESPONSE", "MARKED_INCORRECT", "TOO_LONG"]


def _empty_prompt(row: Mapping[str, Any], config: BuildConfig) -> str | None:
    return None if row["prompt"].strip() else "the prompt is blank"


def _empty_response(row: Mapping[str, Any], config: BuildConfig) -> str | None:
    return None if row["response"].strip() else "the response is blank"


def _marked_incorrect(row: Mapping[str, Any], config: BuildConfig) -> str | None:
    return "its source says so" if row["correct"] is False else None


def _too_long(row: Mapping[str, Any], config: BuildConfig) -> str | None:
    tokens = len(row["input_ids"])
    return f"{tokens} tokens, {config.max_length} allowed" if tokens > config.max_length else None


EMPTY_PROMPT = Filter("empty_prompt", "read", ("prompt",), _empty_prompt)
EMPTY_RESPONSE = Filter("empty_response", "read", ("response",), _empty_response)
MARKED_INCORRECT = Filter("marked_incorrect", "read", ("correct",), _marked_incorrect)
TOO_LONG = Filter("too_long", "tokenise", ("input_ids",), _too_long, ("max_length",))
