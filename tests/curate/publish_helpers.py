"""What the tests of publishing share: a small dataset of several parts, and a Hub that this process talks to."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import polars as pl
import pytest
from conftest import pair
from hub_server import Hub, serving

from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.manifest import list_files
from curate.schema import table_columns
from curate.score import StubScorer
from curate.store import part_files, read_part, write_part

NAME = "user/kernels"
ROWS: tuple[dict[str, Any] | str, ...] = (
    *(pair(n, id=f"r{n}", license="MIT") for n in range(5)),
    '{"cut',
    pair(0, id="again", license="MIT"),
)
"""Five rows that are accepted, in three parts of two rows read, and two that are not."""


def build(model: Path, out: Path, rows: Sequence[dict[str, Any] | str] = ROWS, **more: Any) -> Path:
    """A dataset without a real model; `stub=False` scores with the one at `model`."""
    source = out.parent / f"{out.name}.jsonl"
    source.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    stub = more.pop("stub", not more.get("skip_scoring"))
    settings = {"jobs": 1, "shard_rows": 2, **more}
    build_dataset(
        BuildConfig(source=(str(source),), out=out, model=str(model), **settings), StubScorer() if stub else None
    )
    return out


def edit_rows(path: Path, table: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> str:
    """Rewrites the first part of a table that has rows, and returns its name."""
    part = next(part for part in part_files(path / table) if read_part(part).height)
    manifest = json.loads((path / "manifest.json").read_text())
    write_part(change(read_part(part)), table_columns(table, manifest["extra_scores"]), part)
    return f"{table}/{part.name}"


def edit_manifest(path: Path, change: Callable[[dict[str, Any]], object] = lambda manifest: None) -> None:
    """Changes the manifest, and lets it name the files as they now are."""
    file = path / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["files"] = list_files(path)
    change(manifest)
    file.write_text(json.dumps(manifest))


@contextlib.contextmanager
def hub_for_this_process(home: Path, pauses: bool = False) -> Iterator[Hub]:
    """A Hub that the client in this process takes for the real one, with the token of a user who may write.

    The client reads its environment once, when it is imported, so that its constants are set. `pauses`: whether it and
    we really wait before a request is made again.
    """
    with serving() as hub, pytest.MonkeyPatch.context() as patch:
        constants = huggingface_hub.constants
        patch.setattr(constants, "ENDPOINT", hub.url)
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.setattr(
            constants, "HF_HUB_DISABLE_XET", True
        )  # which is a protocol of its own, and has servers of its own
        patch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
        patch.setenv("HF_TOKEN", hub.writer)
        if not pauses:
            patch.setattr("time.sleep", lambda seconds: None)
        yield hub


def environment(hub: Hub, home: Path, **more: str) -> dict[str, str]:
    """Of a process that takes `hub` for the real one."""
    ours = {
        "HF_ENDPOINT": hub.url,
        "HF_TOKEN": hub.writer,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_XET": "1",
        "CUSET_CACHE": str(home),
    }
    plain = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE", "HF_DATASETS_CACHE")}
    return {**plain, **ours, **more}


def command(path: Path, *options: str) -> list[str]:
    """`python -m curate.publish`."""
    return [sys.executable, "-m", "curate.publish", str(path), "--repo", NAME, *options]


def run_python(code: str, env: dict[str, str], *arguments: str) -> str:
    """Standard output of a program that must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
