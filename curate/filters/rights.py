"""Filters on the licence of a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curate.config import BuildConfig
from curate.filters.types import Filter
from curate.licences import ALLOWED, is_allowed

__all__ = ["LICENSE_NOT_ALLOWED", "UNKNOWN_LICENSE"]


def _unknown(row: Mapping[str, Any], config: BuildConfig) -> str | None:
    if row["license"] is not None:
        return None
    return row["license_note"] or "neither the code, nor the row, nor --license names one"


def _not_allowed(row: Mapping[str, Any], config: BuildConfig) -> str | None:
    license = row["license"]
    return None if license is None or is_allowed(license, config.allow_license or ALLOWED) else license


UNKNOWN_LICENSE = Filter("unknown_license", "license", ("license", "license_note"), _unknown, default="mark")
LICENSE_NOT_ALLOWED = Filter("license_not_allowed", "license", ("license",), _not_allowed, ("allow_license",))
