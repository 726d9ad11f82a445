"""An annotated dataset as the analysis sees it: its views, its model, and what is missing in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from analysis.soundness import check_dataset, check_unlocked
from curate.errors import DatasetError
from curate.store import connect, read_manifest

__all__ = ["LABELS", "Dataset", "open_datasets"]

LABELS = {"statement": "statement", "category": "sensitive"}
"""Label set -> column of the view `tokens` that says whether a token is CUDA-sensitive in it. The paper's own label
set is `statement`, whole statements; `category` marks the construct's own tokens in all 13 categories."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """`name`: short, unique among the datasets that are looked at together. Queries run on the views of
    `curate.store`."""

    name: str
    path: Path
    manifest: dict[str, Any]
    connection: duckdb.DuckDBPyConnection

    def query(self, sql: str, parameters: dict[str, object] | None = None) -> pl.DataFrame:
        """The result of a query as a frame; raises DatasetError where the files are damaged."""
        try:
            found = self.connection.sql(sql, params=parameters).to_arrow_table()
        except duckdb.Error as error:
            raise DatasetError(f"{self.path}: damaged ({str(error).splitlines()[0]}); build it again") from error
        frame = pl.from_arrow(found)
        assert isinstance(frame, pl.DataFrame)
        return frame

    @property
    def model(self) -> str:
        return str(self.manifest["model"]["name"])

    @property
    def samples(self) -> int:
        return int(self.manifest["counts"]["accepted"])

    @property
    def scored(self) -> bool:
        """Whether it has confidences: not with --skip-scoring, nor without a sample."""
        return self.samples > 0 and not self.manifest["config"]["skip_scoring"]

    @cached_property
    def scored_ids(self) -> pl.DataFrame:
        """`sample_id` of the samples that have scores and their number `place`, from 0, in the order in which they are
        stored: the samples that every interval draws from."""
        found = self.query("SELECT sample_id FROM samples WHERE logprob IS NOT NULL")
        return found.with_row_index("place")


def open_datasets(paths: Sequence[Path]) -> list[Dataset]:
    """The datasets of finished builds, named by their model where that tells them apart, else by their folder.

    Raises DatasetError, in one line, for what is none or is damaged.
    """
    resolved = [path.resolve() for path in paths]
    for path, where in zip(paths, resolved, strict=True):
        if resolved.count(where) > 1:
            raise DatasetError(f"{path}: given twice; give each dataset once")
    manifests = []
    for path in paths:
        check_unlocked(path)
        manifests.append(read_manifest(path))
        check_dataset(path, manifests[-1])
    models = [str(manifest["model"]["name"]) for manifest in manifests]
    names = models if len(set(models)) == len(models) else _folder_names(resolved)
    return [
        Dataset(name, path, manifest, connect(path))
        for name, path, manifest in zip(names, paths, manifests, strict=True)
    ]


def _folder_names(paths: Sequence[Path]) -> list[str]:
    """The folders' own names, with as many of the folders around them as tell them apart."""
    for depth in range(1, 1 + max(len(path.parts) for path in paths)):
        names = [str(Path(*path.parts[-depth:])) for path in paths]
        if len(set(names)) == len(names):
            break
    return names
