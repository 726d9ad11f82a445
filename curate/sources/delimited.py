"""Rows of CSV and TSV files: quoted as RFC 4180 says, one bad record costing one row."""

from __future__ import annotations

import csv
import json
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path

from curate.errors import SourceError
from curate.sources.conversation import BadRow
from curate.sources.files import shown
from curate.sources.streams import MAX_LINE, kind_of, lines_of

__all__ = ["delimited_items"]

Line = tuple[int, bytes, BadRow | None]
_UNCLOSED = "a quote is opened and not closed as it should be"


def delimited_items(path: Path) -> Iterator[tuple[int, object, str]]:
    """(line where the record begins, its columns or the BadRow that it is, its text if it is bad).

    The first record names the columns. A quote that is not closed, or text behind a closing quote, costs the line
    where the record begins, and reading goes on at the next. Raises SourceError for a header that names no columns.
    """
    numbered = ((n, line, bad) for n, (line, bad) in enumerate(lines_of(path), start=1))
    header: list[str] | None = None
    delimiter = "\t" if kind_of(path.name)[0] == ".tsv" else ","
    for number, record, text in _records(numbered, path, delimiter):
        if header is None:
            if isinstance(record, BadRow):
                raise SourceError(f"{shown(path)}, line {number}: the header cannot be read ({record}).")
            header = _header(record, path)
        elif isinstance(record, BadRow):
            yield number, record, text
        elif len(record) != len(header):
            detail = f"{len(record)} fields where the header names {len(header)} columns"
            yield number, BadRow("ragged_row", detail), json.dumps(record, ensure_ascii=False)
        else:
            yield number, dict(zip(header, record, strict=True)), ""


def _header(record: list[str], path: Path) -> list[str]:
    names = [name.strip() for name in record]
    twice = [name for name, count in Counter(names).items() if name and count > 1]
    if twice:
        raise SourceError(
            f"{shown(path)}: its first line names the column {twice[0][:60]!a} twice; it has to name each column once."
        )
    return names


def _records(lines: Iterator[Line], path: Path, delimiter: str) -> Iterator[tuple[int, list[str] | BadRow, str]]:
    """Records as `csv` reads them in its strict mode, each from lines of its own, so that it can begin anew."""
    csv.field_size_limit(MAX_LINE)
    for number, line, bad in (source := _Again(lines)):
        if bad is not None:
            yield number, bad, line.decode("utf-8", "replace")
            continue
        if not line.strip(b"\r\n"):
            continue
        if number == 1 and b"\r" in line.rstrip(b"\r\n") and b'"' not in line:
            raise SourceError(f"{shown(path)}: its lines end in CR alone; save it with LF or CRLF line ends.")
        if number == 1 and delimiter == "," and b"," not in line:
            delimiter = next((c for c in ";\t" if c.encode() in line), delimiter)
        used: list[Line] = [(number, line, bad)]
        record: list[str] | BadRow
        try:
            record = next(csv.reader(_texts(used, source), delimiter=delimiter, strict=True))
        except csv.Error as error:
            record = BadRow("broken_csv", _UNCLOSED if len(used) > 1 or "end of data" in str(error) else str(error))
            source.put_back(used[1:])
            used = used[:1]
        text = b"".join(line for _, line, _ in used)
        try:
            text.decode("utf-8")
        except UnicodeDecodeError as error:
            if not isinstance(record, BadRow):
                record = BadRow("not_utf8", f"byte {error.start + 1} of the record")
        yield number, record, text.decode("utf-8", "replace") if isinstance(record, BadRow) else ""


def _texts(used: list[Line], source: Iterator[Line]) -> Iterator[str]:
    """The lines of one record, as the reader asks for them; they are kept in `used`, up to MAX_LINE bytes."""
    yield used[0][1].decode("utf-8", "replace")
    size = len(used[0][1])
    for line in source:
        used.append(line)
        size += len(line[1])
        if line[2] is not None or size > MAX_LINE:  # a line that is bad by itself ends any record
            return
        yield line[1].decode("utf-8", "replace")


class _Again(Iterator[Line]):
    """Lines that can be put back."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self._lines = lines
        self._waiting: deque[Line] = deque()

    def __next__(self) -> Line:
        return self._waiting.popleft() if self._waiting else next(self._lines)

    def put_back(self, lines: list[Line]) -> None:
        self._waiting.extendleft(reversed(lines))
