"""CUDA source files, single or a whole folder, as rows with a written instruction."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from curate.errors import SourceError
from curate.sources.files import digest, shown
from curate.sources.instruction import instruction_for, spdx_license
from curate.sources.streams import Broken, kind_of, pieces_of
from curate.sources.types import Row

__all__ = ["CODE_SUFFIXES", "MAX_CODE", "CodeSource", "code_paths", "code_row", "is_code", "refused_row"]

CODE_SUFFIXES = (".cu", ".cuh")
MAX_CODE = 16 * 2**20
"""Bytes of one source file."""
_TEXT_CONTROLS = b"\t\n\r\f\v\x1a\x1b"


@dataclass(frozen=True)
class CodeSource:
    """A source file, or the source files of a folder by their paths inside it."""

    name: str
    kind: str
    folder: Path
    paths: tuple[str, ...]
    license: str | None = None

    def fingerprint(self) -> dict[str, object]:
        """name, kind, bytes, sha256 of the content; files that cannot be read as source are left out."""
        files = [(path, self.folder / path) for path in self.paths if _refusal(self.folder, path) is None]
        size, sha256 = digest(files)
        return {"name": self.name, "kind": self.kind, "bytes": size, "sha256": sha256}

    def rows(self) -> Iterator[Row]:
        """One Row for every file, sorted by path."""
        for position, path in enumerate(self.paths, start=1):
            yield self._row(position, path)

    def _row(self, position: int, path: str) -> Row:
        refusal = _refusal(self.folder, path)
        data = bytearray()
        if refusal is None:
            try:
                for piece in pieces_of(self.folder / path):
                    data += piece
                    if len(data) > MAX_CODE:
                        refusal = "too_large", f"more than {MAX_CODE} bytes"
                        del data[1000:]
                        break
            except Broken:
                refusal = "truncated", "the compressed file is cut off; fetch or write it again"
            except SourceError as error:
                refusal = "unreadable", str(error).removeprefix(f"{shown(self.folder / path)}: ")
        if refusal is not None:
            return refused_row(self.name, path, position, self.license, refusal, bytes(data))
        return code_row(self.name, path, position, self.license, bytes(data))


def is_code(path: str) -> bool:
    """Whether a file's name says that it is CUDA source, compressed or not."""
    return kind_of(path)[0] in CODE_SUFFIXES


def code_row(source: str, path: str, position: int, license: str | None, data: bytes) -> Row:
    """The row of one source file; bytes that are no text make it a refused one."""
    refusal = _binary(data)
    text = data.decode("utf-8-sig", "replace")
    if refusal is None and "\0" in text:
        refusal = "nul_character", f"at character {text.find(chr(0))}"
    if refusal is not None:
        return refused_row(source, path, position, license, refusal, data)
    name = Path(path).name
    prompt = instruction_for(text, shown(name[: len(name) - len(kind_of(name)[1])]))
    return Row(
        source,
        shown(path),
        position,
        license=spdx_license(text) or license,
        messages=(("user", prompt), ("assistant", text)),
        prompt=prompt,
        response=text,
        synthetic_prompt=True,
    )


def refused_row(
    source: str, path: str, position: int, license: str | None, refusal: tuple[str, str], data: bytes = b""
) -> Row:
    """The row of a file that cannot be read as source, for a (reason, detail)."""
    reason, detail = refusal
    text = data.decode("utf-8-sig", "replace")
    return Row(source, shown(path), position, license=license, reason=reason, detail=detail, raw=text)


def code_paths(folder: Path) -> list[str]:
    """Paths inside the folder of every source file, and of links to folders outside (each a refused row), sorted."""
    found: list[str] = []
    for place, folders, files in os.walk(folder, followlinks=False):
        inside = Path(place).relative_to(folder)
        found += [str(inside / name) for name in files if is_code(name)]
        found += [
            str(inside / name)
            for name in folders
            if (Path(place) / name).is_symlink() and _leaves(folder, inside / name)
        ]
    return sorted(found, key=os.fsencode)


def _leaves(folder: Path, path: Path | str) -> bool:
    return not Path(os.path.realpath(folder / path)).is_relative_to(os.path.realpath(folder))


def _refusal(folder: Path, path: str) -> tuple[str, str] | None:
    """(reason, detail) where the file may not be opened."""
    full = folder / path
    try:
        if full.is_symlink() and _leaves(folder, path):
            return "symlink_outside", "the link leads out of the folder"
        status = full.stat()
    except (OSError, RuntimeError) as error:
        return "unreadable", getattr(error, "strerror", None) or type(error).__name__
    if not stat.S_ISREG(status.st_mode):
        return "unreadable", "no regular file"
    if status.st_size > MAX_CODE:
        return "too_large", f"{status.st_size} bytes, more than {MAX_CODE}"
    return None


def _binary(data: bytes) -> tuple[str, str] | None:
    """(reason, detail) for bytes that are no UTF-8 text."""
    controls = sum(data.count(bytes([code])) for code in range(32) if code not in _TEXT_CONTROLS)
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        if controls > len(data) // 50:
            return "binary_file", f"{controls} control bytes of {len(data)}"
        return "not_utf8", f"byte {error.start + 1}"
    if controls > len(data) // 10:
        return "binary_file", f"{controls} control bytes of {len(data)}"
    return None
