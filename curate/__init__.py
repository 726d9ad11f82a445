"""Corpus to annotated dataset: `python -m curate.build | query | inspect`.

From Python: `build_dataset(BuildConfig(...))` makes a dataset, `connect(folder)` opens it as DuckDB views. Heavy
modules (torch) are loaded when they are first used.
"""

from __future__ import annotations

from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.errors import CusetError, DatasetError, ModelError, OptionError, SourceError
from curate.store import connect
from curate.taxonomy import Category, Location

__all__ = [
    "BuildConfig",
    "Category",
    "CusetError",
    "DatasetError",
    "Location",
    "ModelError",
    "OptionError",
    "SourceError",
    "build_dataset",
    "connect",
]
