"""CUDA source files, single or a whole folder, as rows with a written instruction."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from curate.sources.files import digest, shown
from curate.sources.instruction import instruction_for, spdx_license
from curate.sources.types import Row

__all__ = ["CODE_SUFFIXES", "CodeSource", "code_paths"]

CODE_SUFFIXES = (".cu", ".cuh")
_MAX_BYTES = 16 * 2**20
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
        data = b""
        if refusal is None:
            try:
                data = (self.folder / path).read_bytes()
            except OSError as error:
                refusal = "unreadable", error.strerror or type(error).__name__
        refusal = refusal or _binary(data)
        text = data.decode("utf-8-sig", "replace")
        if refusal is None and "\0" in text:
            refusal = "nul_character", f"at character {text.find(chr(0))}"
        if refusal is not None:
            reason, detail = refusal
            return Row(self.name, shown(path), position, license=self.license, reason=reason, detail=detail, raw=text)
        prompt = instruction_for(text, shown(Path(path).name))
        return Row(
            self.name,
            shown(path),
            position,
            license=spdx_license(text) or self.license,
            messages=(("user", prompt), ("assistant", text)),
            prompt=prompt,
            response=text,
            synthetic_prompt=True,
        )


def code_paths(folder: Path) -> list[str]:
    """Paths inside the folder of every source file, and of links to folders outside (each a refused row), sorted."""
    found: list[str] = []
    for place, folders, files in os.walk(folder, followlinks=False):
        inside = Path(place).relative_to(folder)
        found += [str(inside / name) for name in files if name.lower().endswith(CODE_SUFFIXES)]
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
    if status.st_size > _MAX_BYTES:
        return "too_large", f"{status.st_size} bytes, more than {_MAX_BYTES}"
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
