"""Rows of JSON Lines, JSON, CSV and Parquet files; all but the last may be compressed."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from curate.errors import SourceError
from curate.sources.conversation import BadRow, split_turns
from curate.sources.delimited import delimited_items
from curate.sources.files import digest, shown
from curate.sources.parquet import Item, open_parquet, parquet_items
from curate.sources.shapes import Shape, choose_shape, peeked
from curate.sources.streams import kind_of, lines_of, read_whole
from curate.sources.types import Row

__all__ = ["TableSource", "open_table", "read_row", "table_values", "warn_if_swapped"]

_log = logging.getLogger(__name__)

_PEEK_ROWS = 200
_PEEK_LINES = 5000
_SWAP_ROWS, _SWAP_LEAST = 20, 5
_MAX_JSON = 2**30
"""Bytes of a .json file, which is held in memory as a whole."""


@dataclass(frozen=True)
class TableSource:
    """One or several files of the same kind that are read as one source."""

    name: str
    kind: str
    paths: tuple[Path, ...]
    shapes: tuple[Shape, ...]
    license: str | None = None

    def fingerprint(self) -> dict[str, object]:
        """name, kind, bytes, sha256 of the content."""
        size, sha256 = digest([(path.name, path) for path in self.paths])
        return {"name": self.name, "kind": self.kind, "bytes": size, "sha256": sha256}

    def rows(self) -> Iterator[Row]:
        """One Row for every row of the files, in order."""
        before = 0
        for path, shape in zip(self.paths, self.shapes, strict=True):
            position = 0
            for position, value, raw in _items(path, shape):
                yield read_row(self.name, shape, before + position, value, self.license, raw=raw)
            before += position


def read_row(
    source: str,
    shape: Shape,
    position: int,
    value: object,
    license: str | None,
    revision: str | None = None,
    raw: str = "",
) -> Row:
    """The Row of one value, or of the BadRow that it is; `license` and `revision` hold where the row names none."""
    source_id = str(position)
    try:
        if isinstance(value, BadRow):
            raise value
        if not isinstance(value, Mapping):
            raise BadRow("not_an_object", f"the row is {type(value).__name__}")
        source_id = shape.row_id(value, position)
        license = shape.row_license(value) or license
        revision = shape.row_revision(value) or revision
        talk = split_turns(shape.read(value))
    except BadRow as bad:
        text = raw or _evidence(value)
        return Row(source, source_id, position, revision, license, reason=bad.reason, detail=bad.detail, raw=text)
    return Row(
        source, source_id, position, revision, license, talk.turns, talk.prompt, talk.response,
        correct=shape.row_correct(value), detail=talk.note,
    )  # fmt: skip


def open_table(path: Path, mapping: Mapping[str, str]) -> Shape:
    """The shape of a file, read off its first rows (or schema). Raises SourceError where it is empty, broken or
    unknown.
    """
    if path.stat().st_size == 0:
        raise SourceError(f"{shown(path)} is empty.")
    if kind_of(path.name)[0] == ".parquet":
        table = open_parquet(path)
        if table.metadata.num_rows == 0:
            raise SourceError(f"{shown(path)} holds no rows.")
        names = table.schema_arrow.names
        ids = [name for name in names if peeked({name: True})[name]]
        first = islice(parquet_items(path, ids), _PEEK_ROWS) if ids else []
        rows = [dict.fromkeys(names) | value for _, value, _raw in first if isinstance(value, dict)]
        shape = choose_shape(rows or [dict.fromkeys(names)], shown(path), mapping)
        warn_if_swapped(shown(path), shape, (value for _, value, _raw in parquet_items(path, shape.columns)))
        return shape
    rows = []
    start: list[object] = []
    line = 0
    for line, (_, value, _raw) in enumerate(_items(path, None), start=1):
        if isinstance(value, Mapping):
            rows.append(peeked(value))
            start += [value] if len(start) < _SWAP_ROWS else []
        if len(rows) == _PEEK_ROWS or line == _PEEK_LINES:
            break
    if line == 0:
        raise SourceError(f"{shown(path)} holds no rows.")
    named = kind_of(path.name)[0] in (".csv", ".tsv")
    if not rows:
        what = "has as many fields as its header" if named else "is a JSON object"
        raise SourceError(f"{shown(path)}: none of its first {line} rows {what}.")
    where = f"{shown(path)} (its first line has to name the columns)" if named else shown(path)
    shape = choose_shape(rows, where, mapping)
    warn_if_swapped(shown(path), shape, start)
    return shape


def warn_if_swapped(where: str, shape: Shape, values: Iterable[object]) -> None:
    """Says so, in the log, when the first prompts hold kernels and their answers none.

    It stays a warning: a set of explanations of kernels looks the same, and its rows are refused one by one, for
    want of a kernel, in any case, so that nothing wrong gets into a dataset.
    """
    rows = [read_row("", shape, 1, value, None) for value in islice(values, _SWAP_ROWS)]
    read = [row for row in rows if row.reason is None]
    if (
        len(read) >= _SWAP_LEAST
        and all("__global__" in row.prompt for row in read)
        and not any("__global__" in row.response for row in read)
    ):
        one, two = shape.required if len(shape.required) == 2 else ("COLUMN", "COLUMN")
        remedy = f"--map prompt={two},response={one}"
        _log.warning("%s: its first prompts hold kernels and its answers none; if they are swapped: %s", where, remedy)


def table_values(path: Path) -> Iterator[object]:
    """The rows of a file as they stand in it, whatever their columns; a bad one is a BadRow. Raises SourceError."""
    return (value for _, value, _raw in _items(path, None))


def _items(path: Path, shape: Shape | None) -> Iterator[Item]:
    kind, _ = kind_of(path.name)
    if kind == ".parquet":
        yield from parquet_items(path, None if shape is None else shape.columns)
    elif kind in (".csv", ".tsv"):
        yield from delimited_items(path)
    elif kind == ".json" and not _is_lines(path):
        for position, value in enumerate(_json_rows(path), start=1):
            yield position, value, ""
    else:
        yield from _jsonl_items(path)


def _jsonl_items(path: Path) -> Iterator[Item]:
    """Line by line, in bytes, so that one bad line stays one bad row. Blank lines are not rows."""
    for number, (line, bad) in enumerate(lines_of(path), start=1):
        if bad or line.strip():
            value = bad or _parse(line)
            yield number, value, line.decode("utf-8", "replace") if isinstance(value, BadRow) else ""


def _parse(line: bytes) -> object:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        return BadRow("not_utf8", f"byte {error.start + 1} of the line")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        return BadRow("broken_json", f"{error.msg.removesuffix(' at')} at character {error.pos + 1}")
    except RecursionError:
        return BadRow("broken_json", "nested too deeply")
    except ValueError:  # an integer of more digits than Python converts
        return BadRow("broken_json", "a number is too long")


def _is_lines(path: Path) -> bool:
    """Whether a .json file is JSON Lines in truth: its first line is a whole object, and more follows."""
    lines = (line.strip() for line, bad in islice(lines_of(path), 100) if bad is None)
    first = next(lines, b"")
    return first.startswith(b"{") and first.endswith(b"}") and any(lines) and isinstance(_parse(first), dict)


def _json_rows(path: Path) -> list[object]:
    """A list of rows, the one list inside an object, or an object of columns. Held in memory as a whole."""
    data = read_whole(path, _MAX_JSON)
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise SourceError(f"{shown(path)}: not UTF-8 at byte {error.start + 1}; save it as UTF-8.") from None
    except json.JSONDecodeError as error:
        raise SourceError(
            f"{shown(path)}: broken JSON at line {error.lineno}, column {error.colno} ({error.msg}); "
            "mend it, or save one object a line as .jsonl, where a bad line costs one row."
        ) from None
    except (ValueError, RecursionError):
        raise SourceError(f"{shown(path)}: nested too deeply, or a number is too long; save it as .jsonl.") from None
    if isinstance(value, list):
        return value
    if isinstance(value, dict) and _is_row(value):
        return [value]
    if isinstance(value, dict) and value:
        lists = {key: item for key, item in value.items() if isinstance(item, list)}
        if len(lists) == 1 and (rows := next(iter(lists.values()))) and isinstance(rows[0], dict):
            return list(rows)
        if len(lists) == len(value) and len({len(item) for item in lists.values()}) == 1:
            return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]
    raise SourceError(f"{shown(path)}: holds neither a list of objects nor columns; save one object a line as .jsonl.")


def _is_row(value: Mapping[str, object]) -> bool:
    """A file that is one conversation: its list of messages is no list of rows."""
    turns = value.get("messages", value.get("conversations"))
    return (
        isinstance(turns, list)
        and bool(turns)
        and isinstance(turns[0], dict)
        and bool({"role", "from"} & set(turns[0]))
    )


def _evidence(value: object) -> str:
    """A row as text that UTF-8 can hold."""
    if isinstance(value, BadRow):
        return ""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, TypeError, RecursionError):
        text = repr(type(value))
    return text.encode("utf-8", "replace").decode("utf-8")
