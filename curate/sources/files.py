"""Names, sizes and hashes of files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from curate.errors import SourceError

__all__ = ["digest", "shown"]


def shown(path: Path | str) -> str:
    """A path as text that can be printed and stored, whatever bytes or control characters its name holds."""
    text = os.fsencode(path).decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def digest(files: Iterable[tuple[str, Path]]) -> tuple[int, str]:
    """(bytes, sha256) of named files: of the content for one file, of the names and content hashes for several."""
    parts: list[tuple[str, int, str]] = []
    for name, path in files:
        try:
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                parts.append((name, file.tell(), sha256))
        except OSError as error:
            raise SourceError(f"{shown(path)}: cannot be read ({error.strerror}).") from None
    if len(parts) == 1:
        return parts[0][1], parts[0][2]
    whole = hashlib.sha256()
    for name, size, sha256 in parts:
        whole.update(f"{shown(name)}\0{size}\0{sha256}\n".encode())
    return sum(size for _, size, _ in parts), whole.hexdigest()
