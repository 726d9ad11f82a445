"""Bytes and lines of files that may be compressed (.gz, .zst), streaming, with a bound on what one line may hold."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path

import pyarrow as pa

from curate.errors import SourceError
from curate.sources.conversation import BadRow
from curate.sources.files import shown

__all__ = ["COMPRESSED", "MAX_LINE", "Broken", "kind_of", "lines_of", "pieces_of", "read_whole"]

COMPRESSED = (".gz", ".zst")
MAX_LINE = 16 * 2**20
"""Bytes of one line, or of one record of a CSV file. No answer is that long; what is longer is skipped, not held."""
_PIECE = 2**16
_SHOWN = 1000


class Broken(Exception):
    """A compressed file ends before its stream does. What came before is what was written."""


def kind_of(name: str) -> tuple[str, str]:
    """(kind, compression) of a file name, by its suffixes in lower case: `a.jsonl.gz` is (".jsonl", ".gz")."""
    suffixes = Path(name.lower().replace(".tgz", ".tar.gz")).suffixes
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSED else ""
    return (suffixes[-1] if suffixes else ""), compression


def pieces_of(path: Path) -> Generator[bytes, None, None]:
    """The content, piece by piece. Raises Broken at the place where a compressed file is cut off, SourceError for one
    that is damaged (its text cannot be trusted) or cannot be read.
    """
    compression = kind_of(path.name)[1]
    try:
        if compression == ".zst":
            yield from _zstd(path)
        elif compression == ".gz":
            with gzip.open(path) as packed:
                while piece := packed.read1(_PIECE):  # unlike read, keeps what comes before a break
                    yield piece
        else:
            with path.open("rb") as file:
                while piece := file.read(_PIECE):
                    yield piece
    except EOFError:
        raise Broken from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(path, error) from None
    except OSError as error:
        raise SourceError(f"{shown(path)}: cannot be read ({error.strerror or type(error).__name__}).") from None


def _zstd(path: Path) -> Iterator[bytes]:
    done, step = 0, _PIECE
    while True:
        file = path.open("rb")
        with file, pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd") as packed:
            left = done
            while left:
                left -= len(packed.read(min(left, _PIECE)))
            try:
                while piece := packed.read(step):
                    done += len(piece)
                    yield piece
                return
            except OSError as error:
                if error.errno is not None:
                    raise
                if "truncated" not in str(error).lower():
                    raise _damaged(path, error) from None
        if step == 1:
            raise EOFError
        step = 1  # the read that met the break took up to _PIECE good bytes along: fetch them one by one


def _damaged(path: Path, error: Exception) -> SourceError:
    return SourceError(f"{shown(path)}: damaged compressed data ({str(error)[:120]}); fetch or write it again.")


def read_whole(path: Path, limit: int) -> bytes:
    """The content at once. Raises SourceError beyond `limit` bytes (without reading on) and where it is cut off."""
    held = bytearray()
    try:
        for piece in pieces_of(path):
            held += piece
            if len(held) > limit:
                raise SourceError(f"{shown(path)}: holds more than {limit} bytes; save one object a line as .jsonl.")
    except Broken:
        raise SourceError(f"{shown(path)}: the compressed file is cut off; fetch or write it again.") from None
    return bytes(held)


def lines_of(path: Path) -> Iterator[tuple[bytes, BadRow | None]]:
    """Every line with its end, in bytes and without a byte order mark.

    A line of more than `MAX_LINE` bytes comes with the BadRow that it is (`too_large`), and only its beginning; so
    does what is left at the break of a compressed file that is cut off (`truncated`), as the last line.
    """
    held, size = bytearray(), 0
    try:
        with contextlib.closing(pieces_of(path)) as pieces:
            first = True
            for piece in pieces:
                for part in _split(piece):
                    size += len(part)
                    if len(held) <= MAX_LINE:
                        held += part[: MAX_LINE + 1 - len(held)]
                    if part.endswith(b"\n"):
                        yield _line(held, size, first)
                        held, size, first = bytearray(), 0, False
        if held:
            yield _line(held, size, first)
    except Broken:
        yield bytes(held[:_SHOWN]), BadRow("truncated", "the compressed file is cut off here; fetch or write it again")


def _split(piece: bytes) -> list[bytes]:
    """Lines end at LF alone."""
    parts = [part + b"\n" for part in piece.split(b"\n")]
    parts[-1] = parts[-1][:-1]
    return parts if parts[-1] else parts[:-1]


def _line(held: bytearray, size: int, first: bool) -> tuple[bytes, BadRow | None]:
    line = bytes(held)
    if first:
        line = line.removeprefix(b"\xef\xbb\xbf")
    if size > MAX_LINE:
        return line[:_SHOWN], BadRow("too_large", f"a line of {size} bytes, more than {MAX_LINE}")
    return line, None
