"""What makes a folder a dataset: its card, and the manifest, which is written last."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import yaml

from curate.config import BuildConfig
from curate.schema import FORMAT_VERSION, table_columns
from curate.store import attach_views, replace_file
from curate.summary import findings
from curate.taxonomy import CATEGORIES, LOCATIONS

__all__ = ["write_manifest"]

_PACKAGES = (
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
_NOT_OF_THE_DATA = ("source", "out", "model", "reference", "jobs", "overwrite", "shard_rows")
"""Options that leave no mark in the data, or hold paths of this machine; sources and models are named by content
instead."""


def write_manifest(
    out: Path, config: BuildConfig, inputs: Mapping[str, Any], keys: Mapping[str, str], counts: Mapping[str, Any]
) -> dict[str, Any]:
    """Writes README.md and then manifest.json, and returns the manifest."""
    options = {k.rstrip("_"): v for k, v in vars(config).items() if k not in _NOT_OF_THE_DATA}
    manifest = {
        "format_version": FORMAT_VERSION,
        "config": options,
        "config_hash": hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:16],
        "stage_keys": dict(keys),
        "versions": {name: version(name) for name in _PACKAGES},
        **inputs,
        "counts": dict(counts),
        "categories": list(CATEGORIES),
        "locations": list(LOCATIONS),
        "findings": None if config.skip_scoring else _findings(out),
    }
    replace_file(out / "README.md", _card(manifest, config).encode())
    replace_file(out / "manifest.json", (json.dumps(manifest, indent=2, ensure_ascii=False) + "\n").encode())
    return manifest


def _findings(out: Path) -> dict[str, Any]:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")  # sums of floats depend on their order: the manifest must not
    attach_views(connection, out)
    return findings(connection)


def _card(manifest: Mapping[str, Any], config: BuildConfig) -> str:
    """The dataset card: the YAML that makes the folder loadable, how it was made, its columns."""
    counts = manifest["counts"]
    rows = {"samples": counts["accepted"], "rejected": counts["read"] - counts["accepted"]}
    head = {
        "pretty_name": "CUDA answers, annotated token by token",
        "tags": ["cuda", "code", "token-annotations"],
        "configs": [  # `datasets` cannot load a table without rows
            {"config_name": name, "data_files": f"{name}/*.parquet", **({"default": True} if name == "samples" else {})}
            for name, count in rows.items()
            if count
        ],
    }
    lines = [
        "---", yaml.safe_dump(head, sort_keys=False).rstrip(), "---", "",
        "# CUDA answers, annotated token by token", "",
        f"{counts['accepted']} of {counts['read']} rows, made by cuset. `rejected/` says of every other row why it is"
        " not here; `manifest.json` says how the dataset was made.", "",
        "| column | type | meaning |", "|---|---|---|",
        *(f"| `{c.name}` | {c.type} | {c.meaning} |" for c in table_columns("samples", config.extra_scores)), "",
        "The numbers in `category`: " + ", ".join(f"{n} {name}" for n, name in enumerate(CATEGORIES)) + ".", "",
        "The numbers in `location`: " + ", ".join(f"{n} {name}" for n, name in enumerate(LOCATIONS)) + ".", "",
    ]  # fmt: skip
    return "\n".join(lines)
