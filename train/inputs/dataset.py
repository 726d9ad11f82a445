"""Opening annotated datasets for training: every fault of the files is found here, before the first step.

A fault is one line that names the folder, the sample and the remedy. The checks run over whole columns at once.
"""

from __future__ import annotations

import glob
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from jaxtyping import Bool, Int64
from numpy import ndarray as Array

from curate.errors import DatasetError, ModelError, OptionError, first_line
from curate.model import tokenizer_hash
from curate.schema import EXTRA_SCORES, SAMPLES, TOKEN_LISTS
from curate.store import part_files, read_manifest

__all__ = ["Opened", "neutral_mean_of", "occupied", "open_annotated", "refuse_inside"]

_TYPES = {column.name: column.type for column in (*SAMPLES, *EXTRA_SCORES)}
_ALWAYS = ("sample_id", "input_ids", "prompt_tokens", "sample_weight")
_ASKED_FOR = {"entropy_top20": "--entropy-top20", "ref_logprob": "--reference MODEL"}
_LISTS = (*TOKEN_LISTS, *_ASKED_FOR)
_SCORES = frozenset({"logprob", "entropy", "rank", "token_weight", *_ASKED_FOR})
"""What a build with --skip-scoring leaves empty, w among it."""
_WEIGHTS = ("tau", "lambda", "window", "region_scope", "launch_scope", "device_functions")
_NEVER_NEGATIVE = ("input_ids", "token_weight")


@dataclass(frozen=True, eq=False)
class Opened:
    """Checked samples of one or more datasets, end to end in the order given.

    `samples` is memory-mapped and holds the token lists that were asked for beside ids and weights.
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
    """Opens the folders of finished builds with these token lists and checks every value of them.

    `tokenizer` is that of the model to train, as loaded; `embeddings` the number of tokens that the model embeds.
    `need_scores` False lets a dataset built with --skip-scoring pass where no column is a score; w is then empty.
    Raises DatasetError, ModelError, OptionError.
    """
    if not paths:
        raise OptionError("no dataset: give the --out folder of a build")
    if unknown := sorted(set(columns) - set(_LISTS)):
        raise OptionError(f"no token list is named {unknown[0]}; there are {', '.join(_LISTS)}")
    manifests = tuple(_checked_manifest(path, columns, tokenizer, need_scores) for path in paths)
    for path, manifest in zip(paths, manifests, strict=True):
        _check_alike(path, manifest, paths[0], manifests[0])
    names, opened = [*_ALWAYS, *columns], []
    for path, manifest in zip(paths, manifests, strict=True):
        samples = _load(path, _checked_parts(path, int(manifest["counts"]["accepted"]), names), names)
        for rows, fault in _faults(samples, columns, scored=not manifest["config"]["skip_scoring"]):
            if rows.any():
                sample_id = samples[int(np.argmax(rows))]["sample_id"]
                raise DatasetError(f"{path}: sample {sample_id} {fault}; build the dataset again")
        highest = pc.max(pc.list_flatten(samples.data.column("input_ids"))).as_py()
        if embeddings is not None and highest >= embeddings:
            raise ModelError(
                f"{path}: holds token id {highest}, but the model embeds {embeddings}: tokenizer and model do not"
                " belong together; give the model that the dataset was scored with"
            )
        opened.append(samples)
    together = datasets.concatenate_datasets(opened) if len(opened) > 1 else opened[0]
    return Opened(manifests, together, _lengths(together, "input_ids"), _prompts(together))


def neutral_mean_of(manifests: Sequence[dict[str, Any]]) -> float | None:
    """Mean confidence of the neutral code tokens of all datasets; None where they are not scored."""
    known = [manifest.get("regions") or {} for manifest in manifests]
    known = [one for one in known if one.get("neutral_mean") is not None]
    tokens = sum(one["neutral_tokens"] for one in known)
    return sum(one["neutral_mean"] * one["neutral_tokens"] for one in known) / tokens if tokens else None


def occupied(out: Path) -> bool:
    """Whether something stands where a command is to make a folder; an empty folder is nothing."""
    return out.exists() and (not out.is_dir() or any(out.iterdir()))


def refuse_inside(out: Path, datasets_: Sequence[Path]) -> None:
    """Raises OptionError for an output folder inside a dataset, which is no place for anything else."""
    for path in datasets_:
        if out.resolve().is_relative_to(path.resolve()) and path.is_dir():
            raise OptionError(f"--out {out}: lies inside the dataset {path}; give another folder")


def _checked_manifest(path: Path, columns: Collection[str], tokenizer: Any, need_scores: bool) -> dict[str, Any]:
    manifest = read_manifest(path)
    try:
        unscored, sha256 = manifest["config"]["skip_scoring"], manifest["tokenizer"]["sha256"]
        scorer, samples = manifest["model"]["name"], int(manifest["counts"]["accepted"])
        if missing := [name for name in _WEIGHTS if name not in manifest["config"]]:
            raise KeyError(missing[0])
        neutral_mean_of([manifest])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else "values of another type"
        raise DatasetError(f"{path}/manifest.json: damaged ({what}); build the dataset again") from error
    if samples == 0:
        raise DatasetError(f"{path}: holds no sample; its rejected/ says why its rows were refused")
    needed = sorted(_SCORES & set(columns)) or (["sample_weight"] if need_scores else [])
    if unscored and needed:
        raise DatasetError(
            f"{path}: built with --skip-scoring, so it has no {', '.join(needed)}: build it again without, or ask for"
            " what needs no scores"
        )
    for name in columns:
        if name in _ASKED_FOR and name not in manifest.get("extra_scores", ()):
            raise DatasetError(f"{path}: has no {name}, which is needed here: build it again with {_ASKED_FOR[name]}")
    if tokenizer is not None and tokenizer_hash(tokenizer) != sha256:
        raise DatasetError(
            f"{path}: its token ids are those of the tokenizer of {scorer}, and that of {tokenizer.name_or_path} is"
            " another: train that model, or build the dataset again with --model of the one to train"
        )
    return manifest


def _check_alike(path: Path, manifest: dict[str, Any], other: Path, first: dict[str, Any]) -> None:
    """Token ids, masks and weights of several datasets must mean the same."""
    if manifest["tokenizer"]["sha256"] != first["tokenizer"]["sha256"]:
        raise DatasetError(
            f"{path}: its token ids are those of another tokenizer ({manifest['model']['name']}) than those of {other}"
            f" ({first['model']['name']}): build one of them again with --model of the other"
        )
    for name in _WEIGHTS:
        here, there = manifest["config"][name], first["config"][name]
        if here != there:
            raise DatasetError(
                f"{path}: weighed with {name} {here}, but {other} with {there}: make them one by"
                f" python -m curate.reweigh {path} --{name.replace('_', '-')} {there}"
            )


def _checked_parts(path: Path, accepted: int, names: Sequence[str]) -> list[Path]:
    """The Parquet files, by their footers: whole, with these columns as a build writes them, and none too few."""
    rows = 0
    parts = part_files(path / "samples")
    for part in parts:
        try:
            with pq.ParquetFile(part) as file:
                schema, held = file.schema_arrow, file.metadata.num_rows
        except (OSError, pa.ArrowException) as error:
            raise DatasetError(f"{part}: cannot be read ({first_line(error, 200)}); build the dataset again") from error
        for name in names:
            found = schema.field(name).type if name in schema.names else None
            if found is None or not _alike(found, _TYPES[name]):
                has = "is missing" if found is None else f"holds {found}"
                raise DatasetError(f"{part}: column {name} {has}, not {_TYPES[name]}; build the dataset again")
        rows += held
    if rows != accepted:
        raise DatasetError(
            f"{path}: samples/ holds {rows} samples, by the manifest it should be {accepted}: a file is missing or from"
            " another build; build the dataset again"
        )
    return parts


def _alike(found: pa.DataType, kind: pa.DataType) -> bool:
    """Whether the types are equal; the name of a list's elements says nothing."""
    if pa.types.is_list(found) and pa.types.is_list(kind):
        return bool(found.value_type == kind.value_type)
    return bool(found == kind)


def _load(path: Path, parts: Sequence[Path], names: Sequence[str]) -> datasets.Dataset:
    """The columns as a memory-mapped Arrow file, which `datasets` keeps in its cache and shares between processes."""
    files = [str(part.resolve()) for part in parts]
    if any("::" in file for file in files):
        raise DatasetError(f"{path}: `datasets` takes `::` in a path for a chain of addresses; rename the folder")
    bars = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        loaded: Any = datasets.Dataset.from_parquet([glob.escape(file) for file in files], columns=list(names))
        return loaded
    except Exception as error:  # whatever the reader, the cache's file system and `datasets` itself raise
        cause = error.__cause__ or error
        raise DatasetError(
            f"{path}: samples/ cannot be read ({type(cause).__name__}: {first_line(cause, 200)}); build the dataset"
            f" again, or see to the cache of `datasets`, {datasets.config.HF_DATASETS_CACHE} (HF_DATASETS_CACHE)"
        ) from error
    finally:
        if bars:
            datasets.enable_progress_bars()


def _prompts(samples: datasets.Dataset) -> Int64[Array, "S"]:
    return pc.fill_null(samples.data.column("prompt_tokens"), 0).to_numpy().astype(np.int64)


def _lengths(samples: datasets.Dataset, name: str) -> Int64[Array, "S"]:
    """Values in each sample's list; -1 where there is no list."""
    lengths = pc.fill_null(pc.list_value_length(samples.data.column(name)), -1)
    return lengths.to_numpy().astype(np.int64)


def _faults(
    samples: datasets.Dataset, columns: Collection[str], *, scored: bool
) -> Iterator[tuple[Bool[Array, "S"], str]]:
    """Which samples have a fault, and which; each test relies on those before it."""
    lengths, prompts = _lengths(samples, "input_ids"), _prompts(samples)
    yield np.asarray(samples.data.column("sample_id").is_null()), "has no sample_id"
    yield prompts < 1, "has no token of prompt, which its first response token could be predicted from"
    yield lengths <= prompts, "has no response token"
    for name in ("input_ids", *columns):
        sizes = lengths if name == "input_ids" else lengths - prompts
        yield _lengths(samples, name) != sizes, f"has another number of {name} values than of response tokens"
        bad = np.zeros(len(samples), bool)
        ends, before = np.cumsum(sizes), 0
        for chunk in samples.data.column(name).chunks:  # so that a large file stays mapped
            values = chunk.flatten()
            found = np.flatnonzero(_impossible(values, negative=name not in _NEVER_NEGATIVE)) + before
            bad[np.searchsorted(ends, found, side="right")] = True
            before += len(values)
        yield bad, f"holds a value in {name} that is none: empty, NaN, infinite or out of range"
    if scored:
        w = samples.data.column("sample_weight").to_numpy()
        yield ~((w >= 0) & (w <= 1)), "has a sample_weight that is not between 0 and 1"


def _impossible(values: pa.Array, *, negative: bool) -> Bool[Array, "T"]:
    if values.null_count:
        return np.asarray(values.is_null())
    plain = values.to_numpy(zero_copy_only=False)
    return ~np.isfinite(plain) if negative else ~(np.isfinite(plain) & (plain >= 0))
