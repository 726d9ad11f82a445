"""From what the user names on the command line to sources that are known to be readable."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import curate.errors
from curate.errors import OptionError, SourceError
from curate.licences import parse_option_license
from curate.sources.archives import ARCHIVES, ArchiveSource, is_archive, open_archive
from curate.sources.code_files import CODE_SUFFIXES, CodeSource, code_paths, is_code
from curate.sources.files import shown
from curate.sources.hub import HUB, HubSource, open_hub
from curate.sources.shapes import parse_map
from curate.sources.spec import SourceSpec, parse_spec
from curate.sources.streams import COMPRESSED, kind_of
from curate.sources.tables import TableSource, open_table
from curate.sources.types import Row, Source

__all__ = ["BUNDLED", "bundled_folder", "open_sources"]

BUNDLED = "bundled"
_BUNDLED_NAME = "cuset-corpus"
_FLAWED = "flawed.jsonl"
_TABLE_SUFFIXES = (".jsonl", ".json", ".parquet", ".csv", ".tsv")
_FOLDER_TABLES = ((".jsonl", ".parquet"), (".csv", ".tsv"))
"""Read in a folder: the first of these that is there; a .csv beside .jsonl files holds something about them."""
_ACCEPTED = f"accepted are {', '.join((*_TABLE_SUFFIXES, *CODE_SUFFIXES))}, a folder of these "
_ACCEPTED += f"(text also as {' or '.join(COMPRESSED)}), {', '.join(ARCHIVES)} of source files, {HUB}USER/NAME, "
_ACCEPTED += f"or the word {BUNDLED}"

_Opened = TableSource | CodeSource | ArchiveSource | HubSource
_Known = tuple[_Opened, Path]


def open_sources(specs: Sequence[str], column_map: str | None = None, license: str | None = None) -> list[Source]:
    """The sources that `specs` name, in that order, each checked to be readable and of a known shape.

    A spec is `bundled` (the corpus of this repository), a .jsonl, .json, .csv, .tsv or .parquet file, a .cu or .cuh
    file, all but .parquet also compressed (.gz, .zst), or a folder: of source files (searched in all its depth; tables
    in such a folder are not read), else of .jsonl and .parquet files, else of .csv and .tsv files, each a source;
    or a .zip, .tar, .tar.gz, .tgz or .tar.zst of source files;
    or `hf://USER/NAME[/CONFIG][@REVISION][:SPLIT]`, a dataset of the Hub. Behind each may stand
    `?map=...&license=...`, options that hold for it alone (`curate.sources.spec`).

    `column_map` names the columns (`prompt=COL,response=COL`; also messages, id, license) of every table but the
    bundled one; `license` holds for rows that name none.

    Raises SourceError for what cannot be read, OptionError for a bad map, both in one line with the remedy.
    """
    mapping = parse_map(column_map)
    if not specs:
        raise OptionError(f"no source is named; {_ACCEPTED}.")
    if license is not None:
        license = parse_option_license(license)
    known: list[_Known] = []
    own: list[dict[str, object]] = []
    for spec in map(parse_spec, specs):
        opened = _opened(spec, mapping if spec.map is None else parse_map(spec.map), _own(spec) or license)
        known += opened
        own += [spec.own] * len(opened)
    paths = Counter(os.path.realpath(path) for _, path in known)
    twice = next((path for _, path in known if paths[os.path.realpath(path)] > 1), None)
    if twice is not None:
        raise OptionError(f"{shown(twice)} is named twice; name each source once.")
    return [
        _WithOptions(source, options) if options else source
        for source, options in zip(_told_apart(known), own, strict=True)
    ]


@dataclass(frozen=True)
class _WithOptions:
    """A source whose fingerprint says which options it has for itself: with others its rows are other rows."""

    source: _Opened
    options: dict[str, object]

    @property
    def name(self) -> str:
        return self.source.name

    def fingerprint(self) -> dict[str, object]:
        return {**self.source.fingerprint(), **self.options}

    def rows(self) -> Iterator[Row]:
        return self.source.rows()


def _own(spec: SourceSpec) -> str | None:
    return (
        None if spec.license is None else parse_option_license(spec.license, f"--source {shown(spec.place)}?license=")
    )


def _opened(spec: SourceSpec, mapping: Mapping[str, str], license: str | None) -> list[_Known]:
    if spec.place == BUNDLED:
        return [_bundled(license)]
    if spec.place.startswith(HUB):
        return [(open_hub(spec.place, mapping, license), Path(spec.place))]
    return _named(Path(spec.place), mapping, license)


def bundled_folder() -> Path:
    """Where the repository keeps its corpus, next to the package."""
    return Path(curate.errors.__file__).resolve().parent.parent / "data" / "corpus"


def _bundled(license: str | None) -> _Known:
    folder = bundled_folder()
    paths = tuple(path for path in sorted(folder.glob("*.jsonl")) if path.name != _FLAWED)
    if not paths:
        raise SourceError(
            "the bundled corpus is not there: data/corpus/ holds no .jsonl file. It comes with the repository's "
            "checkout, not with the installed package; run from a checkout, or name a file."
        )
    shapes = tuple(open_table(path, {}) for path in paths)
    return TableSource(_BUNDLED_NAME, "bundled", paths, shapes, license), folder


def _named(path: Path, mapping: Mapping[str, str], license: str | None) -> list[_Known]:
    try:
        if path.is_dir():
            return _folder(path, mapping, license)
        if not path.is_file():
            wrong = "is no regular file" if path.exists() else "does not exist"
            raise SourceError(f"{shown(path)} {wrong}; {_ACCEPTED}.")
        return [_file(path, mapping, license)]
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the name
        raise SourceError(f"{str(path)!a}: cannot be read ({getattr(error, 'strerror', None) or error}).") from None


def _file(path: Path, mapping: Mapping[str, str], license: str | None) -> _Known:
    suffix, packed = kind_of(path.name)
    if is_archive(path.name):
        return open_archive(path, shown(path.name), license), path
    if suffix in CODE_SUFFIXES:
        if path.stat().st_size == 0:
            raise SourceError(f"{shown(path)} is empty.")
        return CodeSource(shown(path.name), "code_file", path.parent, (path.name,), license), path
    if suffix not in _TABLE_SUFFIXES or (suffix == ".parquet" and packed):
        raise SourceError(f"{shown(path)}: unknown kind of file; {_ACCEPTED}.")
    shape = open_table(path, mapping)
    return TableSource(shown(path.name), suffix[1:] + packed, (path,), (shape,), license), path


def _folder(path: Path, mapping: Mapping[str, str], license: str | None) -> list[_Known]:
    code = code_paths(path)
    if any(is_code(name) for name in code):
        return [(CodeSource(_folder_name(path), "code_folder", path, tuple(code), license), path)]
    files = sorted(file for file in path.rglob("*") if file.is_file())
    for kinds in _FOLDER_TABLES:
        tables = [file for file in files if kind_of(file.name)[0] in kinds]
        if tables:
            return [_file(table, mapping, license) for table in tables]
    raise SourceError(f"{shown(path)} holds no {', '.join((*CODE_SUFFIXES, *chain(*_FOLDER_TABLES)))} file.")


def _folder_name(path: Path) -> str:
    return shown(path.resolve().name) or "root"


def _told_apart(known: Sequence[_Known]) -> list[_Opened]:
    """Equal names get the name of the folder above in front, and a number where that is equal too."""
    counts = Counter(source.name for source, _ in known)
    longer = [
        f"{_folder_name(path.resolve().parent)}/{source.name}" if counts[source.name] > 1 else source.name
        for source, path in known
    ]
    seen: Counter[str] = Counter()
    result: list[_Opened] = []
    for (source, _), name in zip(known, longer, strict=True):
        seen[name] += 1
        result.append(replace(source, name=name if seen[name] == 1 else f"{name} ({seen[name]})"))
    return result
