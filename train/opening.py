"""Opening annotated datasets for training: every fault of the files is found here, before the first step.

A fault is one line of DatasetError or ModelError that names the folder, the sample and the remedy. The checks run over
whole columns at once: 10,000 samples take about a second.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from jaxtyping import Int64
from numpy import ndarray as Array

from curate.errors import DatasetError, ModelError, OptionError
from curate.store import part_files, read_manifest

__all__ = ["SAMPLE_COLUMNS", "SCORES", "TOKEN_COLUMNS", "Opened", "open_annotated", "tokenizer_hash"]

SAMPLE_COLUMNS: dict[str, pa.DataType] = {
    "sample_id": pa.string(), "input_ids": pa.list_(pa.int32()), "prompt_tokens": pa.int32(),
    "sample_weight": pa.float32(),
}  # fmt: skip
"""Read of every sample, whatever the objective."""

TOKEN_COLUMNS: dict[str, pa.DataType] = {
    name: pa.list_(kind)
    for name, kind in {
        "logprob": pa.float16(), "entropy": pa.float16(), "rank": pa.int32(), "category": pa.uint8(),
        "statement": pa.bool_(), "index_distance": pa.uint8(), "location": pa.uint8(), "in_code": pa.bool_(),
        "token_weight": pa.float32(), "entropy_top20": pa.float16(), "ref_logprob": pa.float16(),
    }.items()
}  # fmt: skip
"""Lists of one value a response token that training can ask for, with the types that a build writes."""

SCORES = frozenset({"logprob", "entropy", "rank", "token_weight", "sample_weight", "entropy_top20", "ref_logprob"})
"""Columns that a build with --skip-scoring leaves empty."""

_ASKED_FOR = {"entropy_top20": "--entropy-top20", "ref_logprob": "--reference MODEL"}
_WEIGHTS = ("tau", "lambda", "window", "region_scope", "launch_scope", "device_functions")


@dataclass(frozen=True, eq=False)
class Opened:
    """Checked samples of one or more datasets, end to end in the order given.

    `samples` is memory-mapped and holds the columns that were asked for and SAMPLE_COLUMNS.
    """

    manifests: tuple[dict[str, Any], ...]
    samples: datasets.Dataset
    lengths: Int64[Array, "S"]
    """Tokens of each sample, prompt included."""
    prompts: Int64[Array, "S"]
    """Tokens of each prompt: at least 1, fewer than `lengths`."""


def open_annotated(
    paths: Sequence[Path], columns: Collection[str], *, tokenizer: Any = None, embeddings: int | None = None,
    need_scores: bool = True,
) -> Opened:  # fmt: skip
    """Opens the folders of finished builds with these token lists and checks all of them.

    `tokenizer` is that of the model to train, as loaded; `embeddings` the number of tokens that the model embeds.
    `need_scores` False lets a dataset built with --skip-scoring pass where no column is a score: w is then 1. Raises
    DatasetError, ModelError, OptionError.
    """
    if not paths:
        raise OptionError("no dataset: give the --out folder of a build")
    unknown = sorted(set(columns) - set(TOKEN_COLUMNS))
    if unknown:
        raise OptionError(f"no token list is named {unknown[0]}; there are {', '.join(TOKEN_COLUMNS)}")
    manifests = tuple(_checked_manifest(path, columns, tokenizer, need_scores) for path in paths)
    _same_weights(paths, manifests)
    wanted = SAMPLE_COLUMNS | {name: TOKEN_COLUMNS[name] for name in columns}
    opened = []
    for path, manifest in zip(paths, manifests, strict=True):
        samples = _load(path, _checked_parts(path, manifest, wanted), list(wanted))
        _check_values(path, samples, columns, embeddings, scored=not manifest["config"]["skip_scoring"])
        opened.append(samples)
    together = datasets.concatenate_datasets(opened) if len(opened) > 1 else opened[0]
    return Opened(manifests, together, _lengths(together, "input_ids"), _numbers(together, "prompt_tokens"))


def tokenizer_hash(tokenizer: Any) -> str:
    """The hash by which a manifest names its tokenizer; raises ModelError for one that has none."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(
            f"the tokenizer of {tokenizer.name_or_path} has no tokenizer.json, so nobody can tell whether the dataset"
            " was made with it: give a model with a 'fast' tokenizer"
        )
    return hashlib.sha256(backend.to_str().encode("utf-8")).hexdigest()


def _checked_manifest(path: Path, columns: Collection[str], tokenizer: Any, need_scores: bool) -> dict[str, Any]:
    manifest = read_manifest(path)
    try:
        skipped, named = manifest["config"]["skip_scoring"], manifest["tokenizer"]["sha256"]
        scorer, rows = manifest["model"]["name"], int(manifest["counts"]["accepted"])
    except (KeyError, TypeError, ValueError) as error:
        raise DatasetError(f"{path}/manifest.json: lacks {error}; build the dataset again") from error
    if rows == 0:
        raise DatasetError(f"{path}: holds no sample; rejected/ says why its rows were refused")
    needed = sorted(SCORES & set(columns)) or (["sample_weight"] if need_scores else [])
    if skipped and needed:
        raise DatasetError(
            f"{path}: built with --skip-scoring, so it has no {', '.join(needed)}: build it again without, or ask"
            " for an objective or mask that needs no scores"
        )
    for name in columns:
        if name in _ASKED_FOR and name not in manifest.get("extra_scores", ()):
            raise DatasetError(
                f"{path}: has no column {name}, which the objective needs: build it again with {_ASKED_FOR[name]}"
            )
    if tokenizer is not None and tokenizer_hash(tokenizer) != named:
        raise DatasetError(
            f"{path}: its token ids are those of the tokenizer of {scorer}, and that of {tokenizer.name_or_path} is"
            " another: train that model, or build the dataset again with --model of the model to train"
        )
    return manifest


def _same_weights(paths: Sequence[Path], manifests: Sequence[dict[str, Any]]) -> None:
    """Masks and weights of several datasets must mean the same."""
    first = manifests[0]["config"]
    for path, manifest in zip(paths[1:], manifests[1:], strict=True):
        for name in _WEIGHTS:
            here, there = manifest["config"].get(name), first.get(name)
            if here != there:
                raise DatasetError(
                    f"{path}: weighed with {name} {here}, but {paths[0]} with {there}: give one of them the other's by"
                    f" python -m curate.reweigh FOLDER --{name.replace('_', '-')} VALUE"
                )


def _checked_parts(path: Path, manifest: dict[str, Any], wanted: dict[str, pa.DataType]) -> list[Path]:
    """The Parquet files, by their footers: whole, with these columns of these types, as many rows as were accepted."""
    rows = 0
    parts = part_files(path / "samples")
    for part in parts:
        try:
            with pq.ParquetFile(part) as file:
                schema, held = file.schema_arrow, file.metadata.num_rows
        except (OSError, pa.ArrowException) as error:
            raise DatasetError(f"{part}: cannot be read ({_said(error)}); build the dataset again") from error
        for name, kind in wanted.items():
            if name not in schema.names:
                raise DatasetError(f"{part}: has no column {name}; build the dataset again with this version of cuset")
            if not _alike(schema.field(name).type, kind):
                raise DatasetError(
                    f"{part}: column {name} holds {schema.field(name).type}, not {kind}; build the dataset again"
                )
        rows += held
    accepted = int(manifest["counts"]["accepted"])
    if rows != accepted:
        raise DatasetError(
            f"{path}: the manifest tells of {accepted} samples, samples/ holds {rows}: a part is missing or of another"
            " build; build the dataset again"
        )
    return parts


def _alike(found: pa.DataType, kind: pa.DataType) -> bool:
    """Equal types; the name of a list's elements says nothing."""
    if pa.types.is_list(kind):
        return (pa.types.is_list(found) or pa.types.is_large_list(found)) and found.value_type == kind.value_type
    return bool(found == kind)


def _load(path: Path, parts: Sequence[Path], columns: list[str]) -> datasets.Dataset:
    """The columns as a memory-mapped Arrow file, which `datasets` keeps in its cache and shares between processes."""
    files = [glob.escape(str(part.resolve())) for part in parts]
    if any("::" in file for file in files):
        raise DatasetError(f"{path}: `datasets` takes `::` in a path for a chain of addresses; rename the folder")
    try:
        with _quiet():
            loaded = datasets.Dataset.from_parquet(files, columns=columns)
    except Exception as error:  # whatever the reader, the cache's file system and `datasets` itself raise
        cause = error.__cause__ or error
        raise DatasetError(
            f"{path}: samples/ cannot be read ({type(cause).__name__}: {_said(cause)}); build the dataset again, or see"
            f" to the cache of `datasets` in {datasets.config.HF_DATASETS_CACHE} (HF_DATASETS_CACHE)"
        ) from error
    assert isinstance(loaded, datasets.Dataset)
    return loaded.select_columns(columns)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No bars, and no second report beside our own line."""
    bars, level = not datasets.are_progress_bars_disabled(), datasets.logging.get_verbosity()
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        datasets.logging.set_verbosity(level)
        if bars:
            datasets.enable_progress_bars()


def _said(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:200]


def _numbers(samples: datasets.Dataset, name: str) -> Array:
    return samples.data.column(name).to_numpy().astype(np.int64)


def _lengths(samples: datasets.Dataset, name: str) -> Int64[Array, "S"]:
    """Values in each sample's list; -1 where there is no list."""
    return pc.fill_null(pc.list_value_length(samples.data.column(name)), -1).to_numpy().astype(np.int64)


def _check_values(
    path: Path, samples: datasets.Dataset, columns: Collection[str], embeddings: int | None, *, scored: bool
) -> None:
    """Every value of every sample; raises DatasetError for the first fault, ModelError for ids not embedded."""

    def fault(rows: Array, say: Any) -> None:
        """Names the first sample for which `rows` holds."""
        if rows.any():
            row = int(np.argmax(rows))
            raise DatasetError(f"{path}: sample {samples[row]['sample_id']}: {say(row)}; build the dataset again")

    lengths = _lengths(samples, "input_ids")
    if samples.data.column("prompt_tokens").null_count or samples.data.column("sample_id").null_count:
        raise DatasetError(f"{path}: a sample has no prompt_tokens or no sample_id; build the dataset again")
    prompts = _numbers(samples, "prompt_tokens")
    fault(prompts < 1, lambda row: f"prompt_tokens is {prompts[row]}, so nothing predicts its first response token")
    fault(lengths <= prompts, lambda row: f"{max(lengths[row], 0)} token ids, of which {prompts[row]} are prompt")
    for name in columns:
        found = _lengths(samples, name)
        fault(
            found != lengths - prompts,
            lambda row, name=name, found=found: (
                f"{name} holds {max(found[row], 0)} values for {lengths[row] - prompts[row]} response tokens"
            ),
        )
    for name in ("input_ids", *columns):
        sizes = lengths if name == "input_ids" else lengths - prompts
        fault(_rows_of(samples, name, sizes, _missing), lambda row, name=name: f"{name} holds an empty value")
        fault(_rows_of(samples, name, sizes, _not_a_number), lambda row, name=name: f"{name} holds NaN or infinity")
        if name == "token_weight":
            fault(_rows_of(samples, name, sizes, _negative), lambda row: "a token_weight is negative")
    fault(_rows_of(samples, "input_ids", lengths, _negative), lambda row: "a token id is negative")
    if scored:
        w = pc.fill_null(samples.data.column("sample_weight"), np.nan).to_numpy()
        fault(~((w >= 0) & (w <= 1)), lambda row: f"sample_weight is {w[row]}, not between 0 and 1")
    if embeddings is not None:
        highest = pc.max(pc.list_flatten(samples.data.column("input_ids"))).as_py()
        if highest >= embeddings:
            raise ModelError(
                f"{path}: holds token id {highest}, but the model embeds {embeddings}: tokenizer and model do not"
                " belong together; give the model that the dataset was scored with"
            )


def _missing(values: pa.Array) -> Array:
    return np.asarray(values.is_null()) if values.null_count else np.zeros(len(values), bool)


def _not_a_number(values: pa.Array) -> Array:
    return ~np.isfinite(values.to_numpy()) if pa.types.is_floating(values.type) else np.zeros(len(values), bool)


def _negative(values: pa.Array) -> Array:
    return values.to_numpy() < 0


def _rows_of(samples: datasets.Dataset, name: str, sizes: Int64[Array, "S"], test: Any) -> Array:
    """Which samples hold a value for which `test` is true; chunk by chunk, so that a large file stays mapped."""
    rows = np.zeros(len(samples), bool)
    ends, before = np.cumsum(sizes), 0
    for chunk in samples.data.column(name).chunks:
        bad = np.flatnonzero(test(chunk.flatten()))
        rows[np.searchsorted(ends, bad + before, side="right")] = True
        before += len(chunk.flatten())
    return rows
