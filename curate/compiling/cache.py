"""Results by key in one SQLite file, so that a second run compiles nothing.

Each result is committed by itself: a run that is killed loses none of those before, and a file that cannot be read is
begun anew. A timeout is taken from the cache only for limits no wider than those it was reached with, and a process
that died, or found no compiler that it could load, is never kept: all may be the machine's fault.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from curate.compiling.nvcc import nvcc_version
from curate.compiling.pool import DIED
from curate.compiling.types import NO_COMPILER, CompileResult, CompileSettings

__all__ = ["Cache", "cache_key", "compilers"]

_VERSION = 2
"""Raised when slices, options or judgement change: older results are then not found."""
_PACKAGES = (
    "cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-cccl", "nvidia-cuda-crt",
)  # fmt: skip


def compilers(use_nvcc: bool = True) -> dict[str, str]:
    """Versions of all that a result depends on besides the source; "" for what is not installed. Loads nothing."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = ""
    return {**found, "nvcc": nvcc_version() if use_nvcc else ""}


def cache_key(blocks: Sequence[str], settings: CompileSettings, versions: dict[str, str]) -> str:
    """Of the whole source rather than its slice, so that a hit needs no parsing; limits are not part of it."""
    spec = [_VERSION, list(settings.archs), sorted(versions.items()), list(blocks)]
    return hashlib.sha256(json.dumps(spec).encode()).hexdigest()


class Cache:
    """For one thread; `folder` None keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._connection = _open(folder / "compiled.sqlite") if folder is not None else None

    def get(self, key: str, settings: CompileSettings) -> CompileResult | None:
        if self._connection is None:
            return None
        try:
            row = self._connection.execute(
                "select seconds, memory, result from results where key = ?", (key,)
            ).fetchone()
            if row is None:
                return None
            result = CompileResult.from_json(json.loads(row[2]))
        except (sqlite3.Error, ValueError, KeyError, TypeError, AttributeError):
            return None
        if result.status == "timeout" and (settings.seconds > row[0] or settings.memory_mb > row[1]):
            return None
        return result

    def put(self, key: str, settings: CompileSettings, result: CompileResult) -> None:
        """Losing a result costs a compilation, so a full disk is no error."""
        if self._connection is None or result.log.startswith((DIED, NO_COMPILER)):
            return
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute(
                "insert or replace into results values (?, ?, ?, ?)",
                (key, settings.seconds, settings.memory_mb, json.dumps(result.to_json())),
            )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _open(path: Path) -> sqlite3.Connection | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(2):
        connection = None
        try:
            connection = sqlite3.connect(path, isolation_level=None, timeout=30, check_same_thread=False)
            connection.execute(
                "pragma synchronous = off"
            )  # safe against a killed process; a crash of the machine is rare
            connection.execute(
                "create table if not exists results (key text primary key, seconds real, memory integer, result text)"
            )
            connection.execute("select key, seconds, memory, result from results limit 1").fetchall()
            return connection
        except sqlite3.OperationalError as error:
            if connection is not None:
                connection.close()
            if "no such column" not in str(error):
                return None  # a folder that cannot be written, a lock: compile without
        except sqlite3.DatabaseError:
            if connection is not None:
                connection.close()
        for name in (path.name, f"{path.name}-journal"):
            path.with_name(name).unlink(missing_ok=True)
    return None
