"""The datasets that are to be joined: whether they fit together, and what the joined one says of its origin."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.config import BuildConfig
from curate.errors import DatasetError, OptionError
from curate.keys import INPUTS
from curate.manifest import other_files
from curate.store import read_manifest

__all__ = ["Input", "Inputs", "read_inputs"]

_OF_THE_READING = ("map", "license", "limit", "shards", "shard")
"""Options that say which rows were read: those of two datasets may differ, and each keeps its own in the manifest."""
_LAYOUT = ("shard_rows",)
_CONTENT = {"model": ("sha256",), "reference": ("sha256",)}
"""What of an identity decides, where both have it: the same weights may lie under two names."""
_OPTION = {"tokenizer": "the tokenizer", "model": "--model", "scorer": "the arithmetic of the scores",
           "reference": "--reference", "against": "--against", "execute": "--execute"}  # fmt: skip
_SHOWN = 120


@dataclass(frozen=True)
class Input:
    """A finished dataset, and the manifest that it had when it was looked at."""

    path: Path
    manifest: Mapping[str, Any]
    digest: str

    @property
    def config(self) -> Mapping[str, Any]:
        options: Mapping[str, Any] = self.manifest["config"]
        return options

    def unchanged(self) -> bool:
        """Whether the same dataset still stands there."""
        try:
            return _digest(self.path) == self.digest
        except OSError:
            return False


@dataclass(frozen=True)
class Inputs:
    """Datasets that fit together, in the order in which their rows follow each other.

    `interleaved`: they are the parts of one build (`--shards`), whose runs of rows take turns.
    `renamed`: for each dataset, names of sources that another one has for other rows, and what they are called instead.
    """

    datasets: tuple[Input, ...]
    interleaved: bool
    config: BuildConfig
    origin: Mapping[str, Any]
    renamed: tuple[Mapping[str, str], ...]

    @property
    def read(self) -> int:
        """Rows read by all of them."""
        return sum(int(dataset.manifest["counts"]["read"]) for dataset in self.datasets)


def read_inputs(paths: Sequence[Path], out: Path) -> Inputs:
    """The datasets at `paths`; raises DatasetError or OptionError, in one line, where they cannot be joined.

    Refused are folders that hold no finished dataset, other tokenizers, models or options that decide rows, texts or
    figures, and parts of a build that are not all there, or there twice.
    """
    _check_places(paths, out)
    datasets = []
    for path in paths:
        manifest = read_manifest(path)
        if not _is_whole(manifest):
            raise DatasetError(f"{path / 'manifest.json'}: damaged; build the dataset again")
        for problem in other_files(path, manifest):
            raise DatasetError(f"{path}: {problem}")
        datasets.append(Input(path, manifest, _digest(path)))
    first, *others = datasets
    for other in others:
        _check_alike(first, other)
    parts = [d for d in datasets if d.config.get("shards")]
    if parts:
        datasets = _in_order(datasets)
    elif len(datasets) < 2:
        raise OptionError(f"{first.path}: nothing to merge it with; give two datasets or more")
    renamed, sources = _sources(datasets)
    return Inputs(tuple(datasets), bool(parts), _config(datasets), _origin(datasets, sources), renamed)


def _is_whole(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest has what is asked of it here, as a build writes it."""
    kinds = {"config": dict, "config_hash": str, "versions": dict, "model": dict, "tokenizer": dict, "counts": dict}
    if not all(isinstance(manifest.get(name), kind) for name, kind in {**kinds, "sources": list}.items()):
        return False
    options, counts = manifest["config"], manifest["counts"]
    numbers = [options.get("shard_rows"), *(counts.get(name) for name in ("read", "accepted"))]
    numbers += [options[name] for name in ("shards", "shard") if options.get(name) is not None]
    others = [manifest.get("compilers", {}), manifest.get("reference") or {"name": ""}]
    if not all(isinstance(other, dict) for other in others) or "name" not in others[1]:
        return False
    named = all(isinstance(source, dict) and isinstance(source.get("name"), str) for source in manifest["sources"])
    return named and all(type(n) is int and n >= 0 for n in numbers) and options["shard_rows"] > 0


def _digest(path: Path) -> str:
    return hashlib.sha256((path / "manifest.json").read_bytes()).hexdigest()


def _check_places(paths: Sequence[Path], out: Path) -> None:
    try:
        places = [path.resolve() for path in paths]
        target = out.resolve()
    except (OSError, ValueError) as error:  # a NUL in the name, links in a circle
        raise DatasetError(f"{str(error)[:_SHOWN]}: cannot be read; give the --out folder of a build") from error
    for path, place in zip(paths, places, strict=True):
        if places.count(place) > 1:
            raise OptionError(f"{path} is named twice; name each dataset once")
        if target == place:
            raise OptionError(f"--out {out} is one of the datasets to merge; give another folder")
        if target.is_relative_to(place) or place.is_relative_to(target):
            raise OptionError(f"--out {out} and {path} lie inside each other; give another --out")


def _check_alike(one: Input, other: Input) -> None:
    for name, what in _OPTION.items():
        a, b = one.manifest.get(name), other.manifest.get(name)
        if _decisive(name, a, b) != _decisive(name, b, a):
            raise DatasetError(
                f"{other.path}: {what} is {_shown(_differing(b, a))}, but {_shown(_differing(a, b))} in {one.path};"
                " build one of them again with what the other has"
            )
    for name in dict.fromkeys([*one.config, *other.config]):
        a, b = one.config.get(name), other.config.get(name)
        if a != b and name not in (*_OF_THE_READING, *_LAYOUT):
            raise DatasetError(
                f"{other.path}: --{name.replace('_', '-')} is {_shown(b)}, but {_shown(a)} in {one.path};"
                " build one of them again with the other's option"
            )


def _decisive(name: str, own: Any, other: Any) -> Any:
    keys = _CONTENT.get(name, ())
    if keys and own and other and all(own.get(key) and other.get(key) for key in keys):
        return {key: own[key] for key in keys}
    return own


def _differing(own: Any, other: Any) -> Any:
    """The entries of an identity that the other has not."""
    if not isinstance(own, dict) or not isinstance(other, dict):
        return own
    return {key: value for key, value in own.items() if other.get(key) != value} or own


def _shown(value: Any) -> str:
    if value is None:
        return "not given"
    if isinstance(value, dict):
        value = ", ".join(f"{key} {str(v)[:24] if isinstance(v, str) else v}" for key, v in value.items())
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text[:_SHOWN] or "empty"


def _in_order(datasets: Sequence[Input]) -> list[Input]:
    """The parts of one build by their number; raises DatasetError unless each is there once."""
    first = datasets[0]
    total = next(d.config["shards"] for d in datasets if d.config.get("shards"))
    found: dict[int, Input] = {}
    for dataset in datasets:
        number = dataset.config.get("shard")
        if not isinstance(number, int) or dataset.config.get("shards") != total:
            what = "no part of a build" if number is None else f"part {number} of {dataset.config['shards']}"
            raise DatasetError(
                f"{dataset.path}: {what}, but others are parts of {total}; merge the parts of a build alone"
            )
        if number in found:
            raise DatasetError(f"{dataset.path}: --shard {number} is there twice, in {found[number].path} as well")
        for name in ("map", "license", "limit", *_LAYOUT):
            if dataset.config.get(name) != first.config.get(name):
                raise DatasetError(
                    f"{dataset.path}: --{name.replace('_', '-')} is {_shown(dataset.config.get(name))}, but"
                    f" {_shown(first.config.get(name))} in {first.path}; parts of one build read the same rows"
                )
        if dataset.manifest["sources"] != first.manifest["sources"]:
            raise DatasetError(
                f"{dataset.path}: built from other sources than {first.path}; parts of one build share them"
            )
        found[number] = dataset
    missing = [number for number in range(total) if number not in found]
    if missing:
        names = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        raise DatasetError(f"--shard {names} of --shards {total} is missing; build it, or name its folder as well")
    return [found[number] for number in range(total)]


def _config(datasets: Sequence[Input]) -> BuildConfig:
    """The options of the joined dataset: those that all share; None for how each was read, where they differ."""
    options: dict[str, Any] = dict(datasets[0].config)
    for name in _OF_THE_READING:
        if name in ("shards", "shard") or any(d.config.get(name) != options.get(name) for d in datasets):
            options[name] = None
    options["shard_rows"] = max(int(d.config["shard_rows"]) for d in datasets)
    options = {f"{k}_" if k == "lambda" else k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    reference = datasets[0].manifest.get("reference")
    try:
        return BuildConfig(**options, reference=reference["name"] if reference else None)
    except TypeError as error:
        raise DatasetError(f"{datasets[0].path / 'manifest.json'}: damaged; build the dataset again") from error


def _sources(datasets: Sequence[Input]) -> tuple[tuple[dict[str, str], ...], list[dict[str, Any]]]:
    """(new names of sources, for each dataset; the sources of all, each once).

    Two sources of one name and other content would be one in every count: the later gets a part of the hash of what
    it is behind its name.
    """
    known: dict[str, dict[str, Any]] = {}
    renamed: list[dict[str, str]] = []
    for dataset in datasets:
        names: dict[str, str] = {}
        for source in dataset.manifest["sources"]:
            name = source["name"]
            if known.setdefault(name, source) != source:
                digest = hashlib.sha256(json.dumps(source, sort_keys=True).encode()).hexdigest()
                names[name] = f"{name} ({digest[:8]})"
                known[names[name]] = {**source, "name": names[name]}
        renamed.append(names)
    return tuple(renamed), list(known.values())


def _origin(datasets: Sequence[Input], sources: list[dict[str, Any]]) -> dict[str, Any]:
    """What the joined dataset started from, as `curate.keys.INPUTS` names it."""
    origin = {name: datasets[0].manifest[name] for name in INPUTS if name in datasets[0].manifest}
    if "compilers" in origin:  # each row names the one that compiled it
        found: dict[str, Counter[str]] = {}
        for dataset in datasets:
            for package, version in dataset.manifest["compilers"].items():
                found.setdefault(package, Counter())[version] += 1
        origin["compilers"] = {package: ", ".join(versions) for package, versions in found.items()}
    merged = [
        {
            "manifest_sha256": d.digest,
            "config_hash": d.manifest["config_hash"],
            "versions": d.manifest["versions"],
            "options": {name: d.config.get(name) for name in (*_OF_THE_READING, *_LAYOUT)},
            "sources": [source["name"] for source in d.manifest["sources"]],
            "read": d.manifest["counts"]["read"],
            "accepted": d.manifest["counts"]["accepted"],
        }
        for d in datasets
    ]
    return {**origin, "sources": sources, "merged": merged}
