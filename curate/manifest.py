"""What makes a folder a dataset: its card, and the manifest, which is written last."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from curate.card import render_card
from curate.config import BuildConfig
from curate.schema import FORMAT_VERSION, PUBLIC_TABLES
from curate.store import attach_views, part_files, replace_file, scan_parts
from curate.summary import findings
from curate.taxonomy import CATEGORIES, LOCATIONS

__all__ = [
    "PACKAGES",
    "SHOWN",
    "count_sources",
    "file_sha256",
    "list_files",
    "listed",
    "manifest_tag",
    "other_files",
    "write_manifest",
]

PACKAGES = (
    "cuset",
    "torch",
    "transformers",
    "tokenizers",
    "tree-sitter",
    "tree-sitter-cuda",
    "tree-sitter-python",
    "polars",
    "pyarrow",
)
"""Those whose version may change a byte of a dataset."""

SHOWN = 5
"""Places of one kind that a message names."""

_NOT_OF_THE_DATA = (
    "source", "out", "against", "execute", "model", "reference", "device", "jobs", "overwrite", "engine", "ray_address",
    "actors", "actor_gpus",
)  # fmt: skip
"""Options that leave no mark in the data, or hold paths of this machine; sources and models are named by content
instead, devices by their kind (`scorer`)."""


def write_manifest(
    out: Path,
    config: BuildConfig,
    inputs: Mapping[str, Any],
    keys: Mapping[str, str],
    counts: Mapping[str, Any],
    regions: Mapping[str, Any],
) -> dict[str, Any]:
    """Writes README.md and then manifest.json, and returns the manifest."""
    options = {
        k.rstrip("_"): list(v) if isinstance(v, tuple) else v
        for k, v in vars(config).items()
        if k not in _NOT_OF_THE_DATA
    }
    manifest = {
        "format_version": FORMAT_VERSION,
        "config": options,
        "config_hash": hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:16],
        "stage_keys": dict(keys),
        "versions": {name: version(name) for name in PACKAGES},
        **inputs,
        "counts": dict(counts),
        "rows": count_sources(out),
        "files": list_files(out),
        "regions": dict(regions),
        "extra_scores": list(config.extra_scores),
        "categories": list(CATEGORIES),
        "locations": list(LOCATIONS),
        "findings": None if config.skip_scoring else _findings(out),
    }
    replace_file(out / "README.md", render_card(manifest).encode())
    replace_file(out / "manifest.json", (json.dumps(manifest, indent=2, ensure_ascii=False) + "\n").encode())
    return manifest


def _findings(out: Path) -> dict[str, Any]:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")  # sums of floats depend on their order: the manifest must not
    attach_views(connection, out)
    return findings(connection, part_files(out / "samples"))


def list_files(out: Path) -> list[dict[str, Any]]:
    """path, bytes and sha256 of the Parquet files of the public tables: with them the manifest's hash stands for the
    content of the dataset."""
    parts = [part for table in PUBLIC_TABLES for part in part_files(out / table)]
    return [{"path": f"{p.parent.name}/{p.name}", "bytes": p.stat().st_size, "sha256": file_sha256(p)} for p in parts]


def other_files(path: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Why the files of the public tables are not those that the manifest names, by content; nothing where they are."""
    entries = manifest.get("files")
    if not isinstance(entries, list):
        yield "manifest.json: names no files, as an older cuset wrote it; delete it and run the same build again"
        return
    try:
        wanted = {entry["path"]: entry["sha256"] for entry in entries}
    except (KeyError, TypeError):
        yield "manifest.json: damaged list of files; build the dataset again"
        return
    there = {entry["path"]: entry["sha256"] for entry in list_files(path)}
    told = (
        ("are not there", sorted(wanted.keys() - there.keys(), key=str)),
        ("are not of this build", sorted(there.keys() - wanted.keys())),
        ("have other contents", sorted(n for n in wanted.keys() & there.keys() if wanted[n] != there[n])),
    )
    for words, names in told:
        if names:
            yield f"files that {words} according to manifest.json: {listed(names)}; build the dataset again"
    for table in PUBLIC_TABLES:
        if not any(name.startswith(f"{table}/") for name in there):
            yield f"{table}/ holds no Parquet file; build the dataset again"


def listed(names: Sequence[str]) -> str:
    """Some names in a message, and how many more there are."""
    return ", ".join(map(str, names[:SHOWN])) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def manifest_tag(out: Path) -> str:
    """`manifest-` and the first 16 hexadecimal digits of the SHA-256 of manifest.json."""
    return f"manifest-{file_sha256(out / 'manifest.json')[:16]}"


def count_sources(out: Path) -> dict[str, Any]:
    """Source -> rows accepted and refused; licences and copyright lines of the accepted ones by number of rows."""
    samples, rejected = (scan_parts(part_files(out / table)) for table in ("samples", "rejected"))
    licenses: dict[str, Counter[str | None]] = {}
    for source, license, n in _rows_of(samples, "source", "license"):
        licenses.setdefault(source, Counter())[license] = n
    notices: dict[str, Counter[str]] = {}
    lines = samples.select("source", "attribution").explode("attribution").drop_nulls("attribution")
    for source, line, n in _rows_of(lines, "source", "attribution"):
        notices.setdefault(source, Counter())[line] = n
    refused = Counter(dict(_rows_of(rejected, "source")))
    rows: dict[str, Any] = {}
    for source in sorted({*refused, *licenses}):
        own, named = licenses.get(source, Counter()), notices.get(source, Counter())
        rows[source] = {
            "accepted": own.total(),
            "refused": refused[source],
            "licenses": [{"license": license, "rows": n} for license, n in _by_number(own)],
            "attributions": [{"notice": notice, "rows": n} for notice, n in _by_number(named)],
        }
    return rows


def _rows_of(frame: pl.LazyFrame, *names: str) -> Iterator[tuple[Any, ...]]:
    """Values of these columns that occur, and how many rows have them."""
    return frame.group_by(names).len().collect(engine="streaming").iter_rows()


def _by_number(counts: Counter[Any]) -> list[tuple[Any, int]]:
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0] or ""))
