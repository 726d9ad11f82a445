"""The files of a publication, and what of them a repository has already."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.progress import LOG
from curate.publishing.figures import FIGURES
from curate.schema import TABLES
from curate.store import JOURNAL

__all__ = ["Change", "PublishedFile", "change", "is_ours", "left_out", "published_files"]

_FIGURES = "figures"
_OLD_FEATURES = "dataset_infos.json"


@dataclass(frozen=True)
class PublishedFile:
    """`name`: path in the repository. `content`: bytes, or the file that holds them."""

    name: str
    content: bytes | Path
    size: int
    sha256: str

    @property
    def git_oid(self) -> str:
        """The name that git gives to a file of this content."""
        content = self.content if isinstance(self.content, bytes) else self.content.read_bytes()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass(frozen=True)
class Change:
    """What a commit has to do to a repository; nothing where it holds these very files."""

    add: tuple[PublishedFile, ...]
    delete: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.add or self.delete)


def published_files(
    path: Path, manifest: Mapping[str, Any], card: str, figures: Mapping[str, bytes]
) -> list[PublishedFile]:
    """The card and its figures, the manifest, the log of the build and the parts that the manifest names; nothing else
    of the folder."""
    made = {"README.md": card.encode(), **{figure_path(name): png for name, png in figures.items()}}
    for name in ("manifest.json", LOG):
        if (path / name).is_file():
            made[name] = (path / name).read_bytes()
    files = [
        PublishedFile(name, content, len(content), hashlib.sha256(content).hexdigest())
        for name, content in made.items()
    ]
    parts = [
        PublishedFile(part["path"], path / part["path"], part["bytes"], part["sha256"]) for part in manifest["files"]
    ]
    return files + parts


def figure_path(name: str) -> str:
    """Where a figure of the card lies in the repository."""
    return f"{_FIGURES}/{name}.png"


def left_out(path: Path, files: Sequence[PublishedFile]) -> list[str]:
    """What stands in the folder and is not published: files by name, the refused texts and the journal as folders."""
    published = {file.name for file in files}
    found = set()
    for file in path.rglob("*"):
        name = file.relative_to(path)
        if name.parts[0] in ("refused", JOURNAL):
            found.add(f"{name.parts[0]}/")
        elif file.is_file() and name.as_posix() not in published:
            found.add(name.as_posix())
    return sorted(found)


def is_ours(name: str) -> bool:
    """Whether a file of a repository is one that a publication, or a copy of a dataset's folder, has put there: a
    part, refused texts among them, a figure of the card, or the file that held features before cards did."""
    folder, _, file = name.rpartition("/")
    single = {_OLD_FEATURES, *(figure_path(figure) for figure in FIGURES)}
    return (folder in TABLES and file.endswith(".parquet")) or name in single


def change(files: Sequence[PublishedFile], tree: Mapping[str, str]) -> Change:
    """What makes a repository whose files are `tree` hold these files.

    `tree`: path -> SHA-256 of a large file, or git's name of a small one. Files that are not ours stay.
    """
    wanted = {file.name for file in files}
    return Change(
        tuple(file for file in files if tree.get(file.name) not in _identities(file, tree)),
        tuple(sorted(name for name in tree if is_ours(name) and name not in wanted)),
    )


def _identities(file: PublishedFile, tree: Mapping[str, str]) -> tuple[str, ...]:
    there = tree.get(file.name)
    if there is None or len(there) == len(file.sha256):
        return (file.sha256,)
    return (file.git_oid,)
