"""The state of an output folder: empty, being built, finished; and what of an earlier build may be used again.

OUT/.cuset/lock         held while a build or a reweighing runs
OUT/.cuset/plan.json    what is being built, or was: the keys of the stages
OUT/.cuset/parsed-KEY/  shards after the parse pass; kept, so that a changed threshold parses nothing again
OUT/.cuset/cluster-ID/  what the machines of a Ray cluster write before it has its place, while they work
OUT/.cuset/previous/    parts of an earlier build whose scores still hold, while they are being rewritten
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
from filelock import FileLock, Timeout

from curate.errors import DatasetError
from curate.schema import FORMAT_VERSION, TABLES
from curate.store import JOURNAL, part_files, replace_file

__all__ = ["OutFolder", "held_for_reading"]

log = logging.getLogger(__name__)

_MADE_LAST = ("manifest.json", "README.md", "build.log.json")


@contextlib.contextmanager
def held_for_reading(path: Path) -> Iterator[None]:
    """Keeps builds away from a dataset's folder meanwhile, beside other readers; raises DatasetError where one is
    writing there. A folder without a lock, or on a file system without locks, is read as it is."""
    with contextlib.ExitStack() as held:
        try:
            lock = held.enter_context((path / JOURNAL / "lock").open("rb"))
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # given back as the file is closed
        except BlockingIOError:
            raise DatasetError(f"{path}: a build is writing there; wait until it has ended") from None
        except (OSError, ValueError):
            pass
        yield


class OutFolder:
    """A dataset's folder. Every method raises DatasetError, in one line, where the disk or the folder forbids it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = path / JOURNAL
        self.previous = self.journal / "previous"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the folder against a second build; makes it where it is not there. Refuses a folder of other files."""
        with self._one_line():
            if self.path.is_dir() and any(self.path.iterdir()) and not self._ours:
                raise DatasetError(f"--out {self.path}: the folder holds other files; give an empty or a new one")
            self.journal.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.journal / "lock")
        try:
            lock.acquire(blocking=False)
        except Timeout as error:
            raise DatasetError(
                f"--out {self.path}: another build is writing there; wait for it, or give another folder"
            ) from error
        except (OSError, NotImplementedError) as error:
            why = getattr(error, "strerror", None) or "its file system has no locks"
            raise DatasetError(f"--out {self.path}: cannot write there ({why}); give another folder") from error
        try:
            with self._one_line():
                yield
        finally:
            lock.release()

    @property
    def _finished(self) -> bool:
        return (self.path / "manifest.json").is_file()

    @property
    def _ours(self) -> bool:
        """Whether cuset made the folder; others too keep a manifest.json."""
        if self.journal.is_dir():
            return True
        try:
            manifest = json.loads((self.path / "manifest.json").read_text(encoding="utf-8"))
            return {"format_version", "stage_keys"} <= set(manifest)
        except (OSError, ValueError, TypeError, RecursionError):
            return False

    @property
    def plan(self) -> dict[str, Any] | None:
        """The plan that the folder was last opened with."""
        file = self.journal / "plan.json"
        try:
            return dict(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, RecursionError):
            return None

    @property
    def _format_version(self) -> str | None:
        """Of what stands or was begun in the folder, as its manifest or else its plan says; None where neither does."""
        try:
            manifest = json.loads((self.path / "manifest.json").read_text(encoding="utf-8"))
            return str(manifest["format_version"])[:20]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None if self.plan is None else self.plan.get("format_version")

    def open(self, plan: Mapping[str, Any], *, overwrite: bool) -> None:
        """Makes the folder ready for a plan (`build`, `scores`, `sources`: keys).

        The same plan goes on where it was. Another plan over the same sources, whose scores still hold, keeps the
        scores and makes the rest anew. Anything else needs `overwrite`: scores are what a build costs. So does what
        another version of cuset has left in another format, whatever its plan.
        """
        old = self.plan
        found = self._format_version
        if found not in (None, str(FORMAT_VERSION)):  # nothing in there can be relied on, whatever its plan says
            if not overwrite:
                raise DatasetError(
                    f"--out {self.path}: format {found}, but this version of cuset writes {FORMAT_VERSION};"
                    " give another folder, or --overwrite to replace it"
                )
            self._clear()
        elif old == dict(plan):
            log.info(
                "%s in %s",
                "nothing has changed" if self._finished else "going on with the interrupted build",
                self.path,
            )
            return
        elif old is None and not self._finished and not any(self._part_folders()):
            pass
        elif overwrite:
            self._clear()
        elif old is not None and all(old.get(name) == plan[name] for name in ("sources", "scores")):
            self._keep_scores()
        else:
            state = "a dataset" if self._finished else "an unfinished build"
            raise DatasetError(
                f"--out {self.path}: holds {state} of other sources, or with other scores;"
                " give another folder, or --overwrite to replace it"
            )
        self.replan(plan)

    def replan(self, plan: Mapping[str, Any]) -> None:
        """Says what the folder holds from now on."""
        replace_file(self.journal / "plan.json", json.dumps(dict(plan)).encode())

    def _part_folders(self) -> Iterator[Path]:
        return (self.path / table for table in TABLES if (self.path / table).is_dir())

    def _clear(self) -> None:
        for name in _MADE_LAST:  # first what makes it a dataset
            (self.path / name).unlink(missing_ok=True)
        self._remove_parts()
        for folder in (*self.journal.glob("parsed-*"), self.previous):
            shutil.rmtree(folder, ignore_errors=True)

    def _remove_parts(self) -> None:
        """Only what a build writes: other files in these folders are not ours."""
        for folder in self._part_folders():
            for part in folder.glob("part-*.parquet*"):
                part.unlink()
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _keep_scores(self) -> None:
        """Sets the parts with scores aside, and takes away what the new plan makes anew."""
        for name in _MADE_LAST:
            (self.path / name).unlink(missing_ok=True)
        self.previous.mkdir(exist_ok=True)
        taken = len(list(self.previous.iterdir()))
        for n, part in enumerate(part_files(self.path / "samples")):
            part.rename(self.previous / f"{taken + n:06d}.parquet")
        self._remove_parts()

    def close(self, parsed: Path) -> None:
        """Takes away what a finished build needs no more."""
        shutil.rmtree(self.previous, ignore_errors=True)
        for folder in self.journal.glob("parsed-*"):
            if folder != parsed:
                shutil.rmtree(folder)

    @contextlib.contextmanager
    def _one_line(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pl.exceptions.PolarsError, duckdb.Error) as error:
            number = getattr(error, "errno", None)  # libraries put paths and words of their own into the message
            if os.strerror(errno.ENOSPC) in str(error):
                number = errno.ENOSPC
            why = os.strerror(number) if number else str(error).splitlines()[0]
            raise DatasetError(
                f"--out {self.path}: cannot write there ({why});"
                " what is done is kept: run the same command again to go on"
            ) from error
