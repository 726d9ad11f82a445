"""CUDA source files in a zip or tar archive, as if its folder had been unpacked; nothing is ever unpacked to disk."""

from __future__ import annotations

import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, cast

from curate.errors import SourceError
from curate.sources.code_files import MAX_CODE, code_row, is_code, refused_row
from curate.sources.files import digest, shown
from curate.sources.streams import Broken, pieces_of
from curate.sources.types import Row

__all__ = ["ARCHIVES", "ArchiveSource", "is_archive", "open_archive"]

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.zst")
_MAX_TOTAL = 2**32
"""Bytes that an archive may expand to: of a zip its source files, of a tar all that is in it (it is read through)."""
_MAX_MEMBERS = 10**6
_MAX_HEADER = 2**20
"""Bytes of one long name or extended header in a tar, which `tarfile` holds in memory."""

_DAMAGED = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, NotImplementedError, OverflowError, RuntimeError, ValueError),
)
"""What `zipfile` and `tarfile` raise for damage; the latter kinds for versions, offsets and names that cannot be."""

Member = tuple[str, tuple[str, str] | None, Callable[[], bytes]]
"""Name inside the archive, (reason, detail) if it may not be read, and how to read it."""


@dataclass(frozen=True)
class ArchiveSource:
    """The source files of an archive, in its order."""

    name: str
    kind: str
    path: Path
    license: str | None = None

    def fingerprint(self) -> dict[str, object]:
        """name, kind, bytes, sha256 of the archive as it is."""
        size, sha256 = digest([(self.path.name, self.path)])
        return {"name": self.name, "kind": self.kind, "bytes": size, "sha256": sha256}

    def rows(self) -> Iterator[Row]:
        """One Row for every member with the name of a source file; the break of a tar that is cut off is a row too.

        A member is refused if it would lie outside the folder, is no regular file (a link, a device), or is too large.
        Raises SourceError where the archive is damaged or expands to more than it may.
        """
        position = 0
        cut = "truncated", "the archive is cut off here; fetch or write it again"
        try:
            for position, (name, refusal, read) in enumerate(_members(self.path), start=1):
                data = b""
                try:
                    data = b"" if refusal else read()
                except Broken:
                    yield refused_row(self.name, name, position, self.license, cut)
                    return
                except _DAMAGED as error:
                    refusal = "unreadable", f"damaged in the archive ({str(error)[:100]})"
                if refusal:
                    yield refused_row(self.name, name, position, self.license, refusal)
                else:
                    yield code_row(self.name, name, position, self.license, data)
        except Broken:
            yield refused_row(self.name, self.path.name, position + 1, self.license, cut)


def is_archive(name: str) -> bool:
    """Whether a file's name is that of an archive."""
    return name.lower().endswith(ARCHIVES)


def open_archive(path: Path, name: str, license: str | None) -> ArchiveSource:
    """An archive that holds a source file. Raises SourceError where it holds none, or cannot be opened."""
    try:
        first = next(_members(path), None)
    except Broken:
        raise SourceError(f"{shown(path)}: the archive is cut off; fetch or write it again.") from None
    if first is None:
        raise SourceError(f"{shown(path)} holds no .cu or .cuh file; of archives nothing else is read: unpack it.")
    return ArchiveSource(name, next(kind for kind in ARCHIVES if path.name.lower().endswith(kind))[1:], path, license)


def _members(path: Path) -> Generator[Member, None, None]:
    with _one_line(path):
        yield from _zip(path) if path.name.lower().endswith(".zip") else _tar(path)


@contextmanager
def _one_line(path: Path) -> Iterator[None]:
    try:
        yield
    except (*_DAMAGED, OSError) as error:
        raise SourceError(f"{shown(path)}: damaged archive ({str(error)[:120]}); fetch or write it again.") from None


def _outside(name: str) -> bool:
    path = PurePosixPath(name.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts or name[1:2] == ":"


def _refusal(name: str, size: int, regular: bool) -> tuple[str, str] | None:
    if _outside(name):
        return "path_outside", "the name leads out of the archive's folder"
    if not regular:
        return "unreadable", "a link, a device or another entry that is no regular file"
    if size > MAX_CODE:
        return "too_large", f"{size} bytes, more than {MAX_CODE}"
    return None


def _zip(path: Path) -> Generator[Member, None, None]:
    """Sizes are those of the directory: what a member really expands to is never read beyond them."""
    with zipfile.ZipFile(path) as archive:
        members = [m for m in archive.infolist() if not m.is_dir() and is_code(m.filename)]
        total = sum(m.file_size for m in members if m.file_size <= MAX_CODE)
        if total > _MAX_TOTAL or len(members) > _MAX_MEMBERS:
            raise _bomb(path)
        for member in members:
            kind = member.external_attr >> 28  # of the file's Unix mode; 0 where there is none
            refusal = _refusal(member.filename, member.file_size, regular=kind in (0, 8))
            if refusal is None and member.header_offset < 0:
                refusal = "unreadable", "damaged in the archive (an offset before its beginning)"
            if refusal is None and member.flag_bits & 1:
                refusal = "unreadable", "encrypted"
            yield member.filename, refusal, partial(_unzip, path, archive, member)


def _unzip(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    try:
        with archive.open(member) as file:
            data = file.read(member.file_size + 1)  # to the end, where the checksum is compared
    except OSError as error:
        if error.errno is None:  # bzip2's word for damaged data
            raise EOFError(str(error)) from None
        raise SourceError(f"{shown(path)}: cannot be read ({error.strerror}).") from None
    if len(data) != member.file_size:
        raise EOFError("shorter than its directory says")
    return data


class _Header(tarfile.TarInfo):
    """Raises ValueError for a broken header, where `tarfile` would take it for the end and leave out what follows."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if any(buf):  # blocks of zeros are the end
                raise ValueError(f"header: {error}") from None
            raise
        if header.size < 0:
            raise ValueError("header: a negative size")
        return header


def _tar(path: Path) -> Generator[Member, None, None]:
    """Read through once, in order: a member's size is known from its header before anything of it is expanded."""
    content = _Content(path)
    total = 0
    with tarfile.open(
        fileobj=cast(IO[bytes], content), mode="r|", tarinfo=_Header, bufsize=tarfile.BLOCKSIZE
    ) as archive:
        for count in range(_MAX_MEMBERS + 1):
            member = archive.next()
            if member is None:
                break
            archive.members = []  # type: ignore[attr-defined]  # it would remember every one
            total += max(0, member.size)
            if total > _MAX_TOTAL or count == _MAX_MEMBERS:
                raise _bomb(path)
            content.allowed = member.size + _MAX_HEADER
            if is_code(member.name) and not member.isdir():
                refusal = _refusal(member.name, member.size, regular=member.isreg())
                yield member.name, refusal, partial(_extract, path, archive, member)
    content.drain(_MAX_HEADER)


def _extract(path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    with _one_line(path):
        file = archive.extractfile(member)
        return file.read() if file else b""


class _Content:
    """The expanded bytes of a tar as the file object that `tarfile` reads from.

    A tar has a mark at its end, so that whoever reads to the end of the file has a tar that is cut off. `allowed` is
    how many bytes may be read before the next member is known: `tarfile` holds headers of any length in memory.
    """

    def __init__(self, path: Path) -> None:
        self._pieces = pieces_of(path)
        self._held = b""
        self._at = 0
        self.allowed = _MAX_HEADER

    def read(self, size: int) -> bytes:
        if self._at == len(self._held):
            self._held, self._at = next(self._pieces, b""), 0
            if not self._held:
                raise Broken
        data = self._held[self._at : self._at + size]
        self._at += len(data)
        self.allowed -= len(data)
        if self.allowed < 0:
            raise ValueError(f"a header of more than {_MAX_HEADER} bytes")
        return data

    def drain(self, limit: int) -> None:
        """Reads the padding behind the end, and with it the checksum of a compressed file."""
        for piece in self._pieces:
            limit -= len(piece)
            if limit < 0:
                raise ValueError("it goes on behind its end")


def _bomb(path: Path) -> SourceError:
    return SourceError(
        f"{shown(path)}: expands to more than {_MAX_TOTAL >> 30} GiB or {_MAX_MEMBERS} files; unpack what you need."
    )
