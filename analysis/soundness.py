"""Whether a dataset's files are what its manifest and `curate.schema` say: looked at once, when it is opened.

Nothing is computed from a damaged file then, and the message names it. Every column that the analysis computes with is
read whole; a text that no check reads is met by the query that asks for it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from curate.errors import DatasetError
from curate.folder import held_for_reading
from curate.schema import EXTRA_SCORES, REGIONS, REJECTED, SAMPLES, TOKEN_LISTS, Column
from curate.store import part_files
from curate.taxonomy import CATEGORIES, LOCATIONS

__all__ = ["check_dataset", "check_unlocked"]

_REMEDY = "build the dataset again"
_TABLES = {"samples": SAMPLES, "regions": REGIONS, "rejected": REJECTED}
_SCORES = ("logprob", "entropy", "rank", "token_weight")  # null in a sample without scores
_OPTIONAL = tuple(c.name for c in EXTRA_SCORES)
_TEXTS = ("sample_id", "source", "prompt", "response")
_HIGHEST = 0.01  # of a log-probability: a sum of rounded figures may be a little above 0


def _count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _refusals(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(v, dict) and all(map(_count, v.values())) for v in value.values())


def _sources(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) and {"name", "kind"} <= set(one) for one in value)


_NEEDED: dict[str, Callable[[Any], bool]] = {
    "model.name": lambda value: isinstance(value, str) and value != "",
    "counts.read": _count,
    "counts.accepted": _count,
    "counts.rejected": _count,
    "counts.refused": _refusals,
    "config.skip_scoring": lambda value: isinstance(value, bool),
    "config.tau": lambda value: _number(value) and value <= 1,
    "config.lambda": _number,
    "config.window": lambda value: _count(value) and value > 0,
    "config.region_scope": lambda value: value in ("all", "code", "cuda"),
    "config.launch_scope": lambda value: value in ("expr", "setup"),
    "config.device_functions": lambda value: isinstance(value, bool),
}
"""Keys of the manifest that the analysis reads, and what they must be."""

_CHECKED_IF_THERE: dict[str, Callable[[Any], bool]] = {
    "counts.failed": _count,
    "regions.found": _count,
    "sources": _sources,
    "versions": lambda value: isinstance(value, dict),
    "categories": lambda value: value == list(CATEGORIES),
    "locations": lambda value: value == list(LOCATIONS),
}


def check_unlocked(path: Path) -> None:
    """Raises DatasetError while a build or a reweighing writes into the folder."""
    with held_for_reading(path):
        pass


def check_dataset(path: Path, manifest: dict[str, Any]) -> None:
    """Raises DatasetError, in one line that names the file, where a finished dataset is damaged."""
    _check_manifest(path / "manifest.json", manifest)
    counts = manifest["counts"]
    rows = {
        "samples": counts["accepted"],
        "regions": _value(manifest, "regions.found"),
        "rejected": counts["rejected"] + counts.get("failed", 0),
    }
    for table, columns in _TABLES.items():
        _check_table(path, table, columns, rows[table])


def _value(manifest: Any, key: str) -> Any:
    for name in key.split("."):
        manifest = manifest.get(name) if isinstance(manifest, dict) else None
    return manifest


def _check_manifest(file: Path, manifest: dict[str, Any]) -> None:
    for needed, keys in ((True, _NEEDED), (False, _CHECKED_IF_THERE)):
        for key, sound in keys.items():
            value = _value(manifest, key)
            if value is None and needed:
                raise DatasetError(f"{file}: damaged (no {key}); {_REMEDY}")
            if value is not None and not sound(value):
                raise DatasetError(f"{file}: damaged ({key} is not what this version of cuset writes); {_REMEDY}")


def _damaged(file: Path, why: str) -> NoReturn:
    raise DatasetError(f"{file}: damaged ({why}); {_REMEDY}")


def _parts(path: Path, table: str) -> list[Path]:
    try:
        parts = part_files(path / table)
    except OSError as error:
        raise DatasetError(f"{path / table}: cannot be read ({error.strerror})") from error
    if not parts:
        raise DatasetError(f"{path}: {table}/ holds no Parquet file; {_REMEDY}")
    return parts


@contextlib.contextmanager
def _opened(part: Path) -> Iterator[pq.ParquetFile]:
    try:
        with part.open("rb") as content, pq.ParquetFile(content) as file:
            yield file
    except OSError as error:
        if error.errno is None:  # pyarrow's word for data that does not decompress
            _damaged(part, _first_line(error))
        raise DatasetError(f"{part}: cannot be read ({error.strerror})") from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        _damaged(part, _first_line(error))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _check_table(path: Path, table: str, columns: Sequence[Column], expected: int | None) -> None:
    """Every part has the columns, all parts the same; together they have the rows that the manifest counts."""
    rows, first = 0, set[str]()
    names = []
    for part in _parts(path, table):
        with _opened(part) as file:
            schema = file.schema_arrow
            _check_columns(part, schema, columns)
            first = first or set(schema.names)
            if odd := sorted(first ^ set(schema.names)):
                _damaged(part, f"column {odd[0]} is not in every part of {table}/")
            rows += file.metadata.num_rows
            names.append(part.name)
            if table == "samples":
                _check_samples(part, file)
            elif table == "regions":
                for group in range(file.num_row_groups):
                    _check_regions(part, file.read_row_group(group, columns=["category", "location"]))
    if expected is not None and rows != expected:
        what = "missing" if rows < expected else "of another build"
        raise DatasetError(
            f"{path}: {table}/ holds {rows} rows in {len(names)} parts, but manifest.json counts {expected}: a part is"
            f" {what}{_suspect(path, table, set(names))}; {_REMEDY}"
        )


def _suspect(path: Path, table: str, names: set[str]) -> str:
    """The part that only this table has, or lacks: a build writes one of each for a shard."""
    others = [{part.name for part in part_files(path / other)} for other in _TABLES if other != table]
    anywhere = others[0].union(*others)
    odd = sorted((others[0].intersection(*others) - names) | (names - anywhere))
    return f" ({table}/{odd[0]})" if odd and names & anywhere else ""


def _check_columns(part: Path, schema: pa.Schema, columns: Sequence[Column]) -> None:
    there = dict(zip(schema.names, schema.types, strict=True))
    for column in (*columns, *EXTRA_SCORES):
        found = there.get(column.name)
        if found is None:
            if column.name in _OPTIONAL:
                continue
            _damaged(part, f"no column {column.name}")
        if not _same(found, column.type):
            _damaged(part, f"column {column.name} is {found}, not {column.type}")


def _same(a: pa.DataType, b: pa.DataType) -> bool:
    """Types are the same but for the names that a writer gives to the elements of lists."""
    if pa.types.is_list(a) and pa.types.is_list(b):
        return _same(a.value_type, b.value_type)
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        return a.num_fields == b.num_fields and all(
            f.name == g.name and _same(f.type, g.type) for f, g in zip(a, b, strict=True)
        )
    return bool(a == b)


def _check_regions(part: Path, rows: pa.Table) -> None:
    for name, names in (("category", CATEGORIES), ("location", LOCATIONS)):
        highest = pc.max(rows[name]).as_py()
        if highest is not None and highest >= len(names):
            _damaged(part, f"{name} {highest} is not known")


class _Rows:
    """A row group of samples, checked column by column; `fail` names the first bad row, counted from 0."""

    def __init__(self, part: Path, first: int, table: pa.Table) -> None:
        self.part, self.first, self.table = part, first, table
        for name in (*_TEXTS, "prompt_tokens", "input_ids", *(c for c in TOKEN_LISTS if c not in _SCORES)):
            self.fail(table[name].is_null().to_numpy(), f"{name} is null")
        ids, prompts = self.lengths("input_ids"), table["prompt_tokens"].to_numpy()
        self.tokens = ids - prompts
        self.fail((prompts < 0) | (self.tokens <= 0), "it has no response token")
        self.offsets = np.concatenate([[0], np.cumsum(self.tokens)])

    def fail(self, bad: NDArray[np.bool_], why: str) -> None:
        if bad.any():
            _damaged(self.part, f"row {self.first + int(np.argmax(bad))}: {why}")

    def fail_token(self, bad: NDArray[np.bool_], why: str) -> None:
        if bad.any():
            _damaged(self.part, f"row {self.first + int(self.row_of(np.argmax(bad)))}: {why}")

    def row_of(self, tokens: Any) -> Any:
        return np.searchsorted(self.offsets, tokens, side="right") - 1

    def lengths(self, name: str) -> NDArray[np.int64]:
        """Of the lists of a column; -1 for null."""
        found = pc.fill_null(pc.list_value_length(self.table[name]), -1)
        return np.asarray(found.to_numpy(), np.int64)

    def flat(self, name: str) -> pa.Array:
        """The elements of all lists, none of them null; with as many a row as it has response tokens."""
        lengths = self.lengths(name)
        self.fail(lengths != self.tokens, f"{name} has not one value a response token")
        values = self.table[name].combine_chunks().flatten()
        values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        if values.null_count:
            self.fail_token(values.is_null().to_numpy(zero_copy_only=False), f"{name} holds a null")
        return values

    def scored(self) -> _Rows | None:
        """The rows that have scores; None where none has. Scores are there all together, or not at all."""
        names = [name for name in (*_SCORES, *_OPTIONAL) if name in self.table.column_names]
        null = np.stack([self.table[name].is_null().to_numpy() for name in names])
        self.fail(null.any(axis=0) != null.all(axis=0), "it has some of its scores, but not all")
        kept = ~null[0]
        if not kept.any():
            return None
        return self if kept.all() else _Rows(self.part, self.first, self.table.filter(pa.array(kept)))


def _check_samples(part: Path, file: pq.ParquetFile) -> None:
    columns = [*_TEXTS, "prompt_tokens", "input_ids", *TOKEN_LISTS, *_OPTIONAL]
    first = 0
    for group in range(file.num_row_groups):
        table = file.read_row_group(group, columns=[name for name in columns if name in file.schema_arrow.names])
        rows = _Rows(part, first, table)
        _check_labels(rows)
        if (scored := rows.scored()) is not None:
            _check_scores(scored)
        first += table.num_rows


def _check_labels(rows: _Rows) -> None:
    for name, names in (("category", CATEGORIES), ("location", LOCATIONS)):
        rows.fail_token(rows.flat(name).to_numpy() >= len(names), f"{name} holds a number that is not known")
    for name in ("statement", "in_code", "index_distance"):
        rows.flat(name)
    start, end = (rows.flat(name).to_numpy() for name in ("char_start", "char_end"))
    length = np.repeat(pc.utf8_length(rows.table["response"]).to_numpy(), rows.tokens)
    bad = (start < -1) | (end < start) | (end > length)
    rows.fail_token(bad, "a token covers characters that the response has not")


def _check_scores(rows: _Rows) -> None:
    for name in ("rank", "token_weight"):
        rows.flat(name)
    for name in ("logprob", "entropy", "entropy_top20", "ref_logprob"):
        if name not in rows.table.column_names:
            continue
        values = rows.flat(name).to_numpy(zero_copy_only=False)
        rows.fail_token(np.isnan(values), f"{name} holds a figure that is not a number")
        if name.endswith("logprob"):
            rows.fail_token(values > _HIGHEST, f"{name} holds the logarithm of a probability above 1")
        else:
            rows.fail_token(np.isinf(values), f"{name} holds an infinite figure")
    if "topk_ids" in rows.table.column_names:
        ids, logprobs = rows.flat("topk_ids"), rows.flat("topk_logprob")
        k = pc.list_value_length(ids).to_numpy()
        rows.fail_token((k != k[0]) | (k != pc.list_value_length(logprobs).to_numpy()), "topk lists differ in length")
        values = logprobs.flatten().to_numpy(zero_copy_only=False)
        if ids.flatten().null_count or not (values <= _HIGHEST).all():
            _damaged(rows.part, "topk holds a figure that is not a number, or none")
