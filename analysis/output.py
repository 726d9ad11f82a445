"""Where reports, figures and pages are written: beside their place first, and put there when all of it is written.

A run that is killed, or meets a full disk, leaves what stood there before. Nothing is written into a dataset, and
nothing is written over that this program did not write: its pages and drawings say in their head what made them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from curate.errors import OptionError
from curate.store import JOURNAL

__all__ = [
    "GENERATOR",
    "made_by_us",
    "refuse_file",
    "refuse_folder",
    "refuse_inside_dataset",
    "staged_file",
    "staged_folder",
]

GENERATOR = "cuset analysis"
"""What the head of a page, and the description of a drawing, names as its maker."""

_HEAD = 4096  # bytes in which a file names its maker


def made_by_us(file: Path) -> bool:
    """Whether a page or a drawing is one of this program."""
    try:
        with file.open("rb") as content:
            return GENERATOR.encode() in content.read(_HEAD)
    except OSError:
        return False


def refuse_inside_dataset(out: Path) -> None:
    """Raises OptionError where a path is, or lies in, the folder of a dataset or of an unfinished build."""
    with _one_line(out):
        place = out.resolve()
        for folder in (place, *place.parents):
            dataset = (folder / "manifest.json").is_file() and (folder / "samples").is_dir()
            if dataset or (folder / JOURNAL).is_dir():
                raise OptionError(f"--out {out}: lies in the dataset {folder}; give a place outside of it")


def refuse_folder(out: Path) -> None:
    """Raises OptionError for a folder that holds other things than a report, and for one in a dataset."""
    refuse_inside_dataset(out)
    with _one_line(out):
        if out.exists() and not out.is_dir():
            raise OptionError(f"--out {out}: is a file; give a folder")
        there = [] if not out.exists() else [p for p in out.iterdir() if not p.name.startswith(".")]
        if there and not any(made_by_us(p) for p in there if p.suffix == ".html"):
            raise OptionError(f"--out {out}: holds other files and no report; give a new or an empty folder")


def refuse_file(out: Path) -> None:
    """Raises OptionError for a file that is no page of this program, and for one in a dataset."""
    refuse_inside_dataset(out)
    with _one_line(out):
        if out.is_dir():
            raise OptionError(f"--out {out}: is a folder; give a file such as {out / 'view.html'}")
        if out.exists() and not (out.is_file() and made_by_us(out)):
            raise OptionError(f"--out {out}: is there already and no page of this program; give another file")


@contextlib.contextmanager
def _one_line(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise OptionError(f"--out {str(out)[:200]}: cannot write there ({why}); give another place") from error


@contextlib.contextmanager
def staged_folder(out: Path, obsolete: Callable[[], set[str]] = set) -> Iterator[Path]:
    """An empty folder to write in; at the end its files are put into `out`, where other files stay as they are, and
    the names of `obsolete` that were not written again are taken away.

    Raises OptionError where the disk or the folder forbids it; `out` is then as it was.
    """
    with _one_line(out):
        new = not out.exists()
        out.parent.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=".writing-", dir=out.parent if new else out))
        try:
            yield stage
            _sync(stage)
            if new:
                stage.chmod(0o777 & ~_umask())
                stage.rename(out)
                return
            names = sorted(p.name for p in stage.iterdir())
            for name in names:
                if (out / name).is_dir():
                    raise OptionError(f"--out {out}: {name} in it is a folder; give another place")
            for name in names:
                (stage / name).replace(out / name)
            for name in obsolete() - set(names):
                (out / name).unlink(missing_ok=True)
        finally:
            shutil.rmtree(stage, ignore_errors=True)


@contextlib.contextmanager
def staged_file(out: Path) -> Iterator[Path]:
    """A path to write to, beside `out`; at the end the file takes the place of `out`. Raises OptionError as above."""
    refuse_file(out)
    with _one_line(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(prefix=".writing-", dir=out.parent)
        os.close(number)
        stage = Path(name)
        try:
            yield stage
            _sync(stage)
            stage.chmod(0o666 & ~_umask())
            stage.replace(out)
        finally:
            stage.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """To the disk before it is renamed: after a power cut the new name would else hold nothing."""
    for file in path.iterdir() if path.is_dir() else [path]:
        with file.open("rb") as content:
            os.fsync(content.fileno())


def _umask() -> int:
    old = os.umask(0)
    os.umask(old)
    return old
