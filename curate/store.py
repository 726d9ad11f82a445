"""An annotated dataset on disk: writing its Parquet parts, and opening it as DuckDB views.

    samples                 one row an accepted sample, columns as in `curate.schema`
    tokens                  one row a response token: sample_id, pos, token_id, token, confidence = exp(logprob),
                            category by name, ...
    windows(l)              macro: full windows of l code tokens by start token; `windows` is windows(64)
    regions                 one row a low-confidence CUDA-sensitive region, category and location by name
    rejected, manifest      why rows were refused; how the dataset was made

The layout (lists of float16, one list a column) costs about two thirds of a table with one float32 row a token.
"""

from __future__ import annotations

import glob
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from curate.errors import DatasetError
from curate.schema import FORMAT_VERSION, Column, arrow_schema
from curate.taxonomy import CATEGORIES, LOCATIONS

__all__ = [
    "ANALYSIS_WINDOW",
    "JOURNAL",
    "attach_views",
    "cache_folder",
    "connect",
    "funnel",
    "is_whole",
    "narrow",
    "part_files",
    "read_manifest",
    "read_part",
    "replace_file",
    "scan_parts",
    "write_frame",
    "write_part",
]

JOURNAL = ".cuset"
"""The folder inside a dataset's that a build keeps its intermediate results in; of no meaning to readers."""

ANALYSIS_WINDOW = 64
"""Tokens in a window of the analysis; not the training window of equation (5)."""

_LEVEL = 16  # costs 60 ms more than level 10 for 76 thousand tokens, which take a model a minute and a half
_PACKED: dict[str, tuple[str, int]] = {
    **dict.fromkeys(("char_start", "char_end"), ("DELTA_BINARY_PACKED", 14)),  # they rise by small steps
    # nearly every value is another one; DuckDB cannot read float16 as BYTE_STREAM_SPLIT, which would save 1 % more
    **dict.fromkeys(("logprob", "entropy", "topk_logprob", "entropy_top20", "ref_logprob"), ("PLAIN", _LEVEL)),
    "rank": ("BYTE_STREAM_SPLIT", _LEVEL),  # the high bytes are nearly all zero
    "input_ids": ("PLAIN", _LEVEL),  # zstd finds runs of tokens, which the packed indices of a dictionary hide
}
"""Encoding and zstd level of the columns that are smaller this way than through a dictionary at `_LEVEL`, like the
rest."""

_TEXTS = frozenset({"prompt", "response", "raw", "text"})
"""Their smallest and largest value, which statistics would hold, are whole texts, and no query goes by them."""

_EXTRA_SCORES = {"topk_ids": "INT[]", "topk_logprob": "FLOAT[]", "entropy_top20": "FLOAT", "ref_logprob": "FLOAT"}
"""Columns that a dataset has only when its build was asked for them, with their types in the view of tokens."""


def cache_folder() -> Path:
    """The user's folder for what can be made again; it need not be there."""
    base = os.environ.get("CUSET_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cuset"
    return Path(base)


def replace_file(path: Path, content: bytes) -> None:
    """Writes under a temporary name, then renames: a reader, or a build that resumes, never meets half a file."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    temporary.replace(path)


def write_frame(frame: pl.DataFrame, path: Path) -> None:
    """Writes a frame as it is, for this program alone. From memory: polars' own words for a full disk name no disk."""
    content = io.BytesIO()
    frame.write_parquet(content, compression="lz4")
    replace_file(path, content.getvalue())


def _leaves(field: pa.Field) -> list[str]:
    """The column paths that Parquet makes of a field."""
    if pa.types.is_list(field.type):
        return [f"{field.name}.list.{leaf}" for leaf in _leaves(field.type.value_field.with_name("element"))]
    if pa.types.is_struct(field.type):
        return [f"{field.name}.{leaf}" for inner in field.type for leaf in _leaves(inner)]
    return [field.name]


def write_part(frame: pl.DataFrame, columns: Sequence[Column], path: Path) -> None:
    """Writes the columns of a frame as one Parquet file (zstd), byte for byte the same for the same rows."""
    schema = arrow_schema(tuple(columns))
    arrow = frame.select(schema.names).to_arrow(compat_level=pl.CompatLevel.oldest())
    table = pa.table([arrow[f.name].cast(f.type) for f in schema], schema=schema)
    leaves = [(f.name, leaf) for f in schema for leaf in _leaves(f)]
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    with pq.ParquetWriter(
        temporary,
        schema,
        compression="zstd",
        compression_level={leaf: _PACKED[name][1] if name in _PACKED else _LEVEL for name, leaf in leaves},
        use_dictionary=[leaf for name, leaf in leaves if name not in _PACKED],
        column_encoding={leaf: _PACKED[name][0] for name, leaf in leaves if name in _PACKED} or None,
        write_statistics=[f.name for f in schema if not pa.types.is_nested(f.type) and f.name not in _TEXTS],
        store_schema=False,  # Parquet's own types say it all
    ) as writer:
        if len(table):  # `datasets` cannot read a row group of no rows
            writer.write_table(table, row_group_size=len(table))
    temporary.replace(path)


def part_files(folder: Path) -> list[Path]:
    """The Parquet files of a table, in order; by listing, since a path may hold the characters of a pattern."""
    return sorted(p for p in folder.iterdir() if p.suffix == ".parquet" and p.is_file()) if folder.is_dir() else []


def is_whole(path: Path) -> bool:
    """Whether a Parquet file is there and ends as it should: after a power cut a renamed file may still be short."""
    try:
        with pq.ParquetFile(path):
            return True
    except (OSError, pa.ArrowException):
        return False


def read_part(path: Path, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """One Parquet file, whatever characters its path holds."""
    return pl.read_parquet(
        path, columns=None if columns is None else list(columns), glob=False, hive_partitioning=False
    )


def scan_parts(paths: Sequence[Path]) -> pl.LazyFrame:
    """All rows of Parquet files of one table, to count in without holding them."""
    return pl.scan_parquet(list(paths), glob=False, hive_partitioning=False)


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a finished dataset; raises DatasetError where there is none, or one of another format."""
    file = path / "manifest.json"
    try:
        there, finished, begun = path.is_dir(), file.is_file(), (path / JOURNAL).exists()
    except (OSError, ValueError) as error:  # a name too long, a NUL in it
        raise DatasetError(f"{str(path)[:200]}: cannot be read ({error})") from error
    if not there:
        raise DatasetError(f"{path}: no such folder; give the --out folder of a build")
    if not finished:
        unfinished = " (its build has not ended: run the same build again)" if begun else ""
        raise DatasetError(f"{path}: no manifest.json, so no finished dataset{unfinished}")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        version = manifest["format_version"]
    except OSError as error:
        raise DatasetError(f"{file}: cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DatasetError(f"{file}: damaged; build the dataset again") from error
    if version != FORMAT_VERSION:
        raise DatasetError(
            f"{path}: format {str(version)[:20]}, but this version of cuset reads {FORMAT_VERSION}: build it again"
        )
    return dict(manifest)


def funnel(counts: Mapping[str, Any]) -> list[tuple[str, str, int, int]]:
    """(stage, reason, rows refused, rows left) out of a manifest's counts, in the order in which rows are judged.

    Rows on which a stage raised an error are among them, with the reason `failed`.
    """
    left, lines = counts["read"], []
    for stage, reasons in counts["refused"].items():
        for reason, rows in reasons.items():
            left -= rows
            lines.append((stage, reason, rows, left))
    return lines


def connect(path: Path | str) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB connection with the views of a finished dataset.

    Raises DatasetError.
    """
    path = Path(path)
    read_manifest(path)
    connection = duckdb.connect()
    try:
        attach_views(connection, path)
    except duckdb.Error as error:
        raise DatasetError(f"{path}: damaged ({str(error).splitlines()[0]}); build the dataset again") from error
    return connection


def _quoted(path: Path) -> str:
    """A path as an SQL string that means this one file to DuckDB, whatever characters it holds."""
    path = path.absolute()  # a `~` at the beginning would be the home folder
    return "'" + glob.escape(str(path)).replace("'", "''") + "'"


def _parquet(path: Path, table: str) -> str:
    files = part_files(path / table)
    if not files:
        raise DatasetError(f"{path}: {table}/ holds no Parquet file; build the dataset again")
    return f"read_parquet([{', '.join(map(_quoted, files))}], hive_partitioning = false)"


def _named(values: Sequence[str], index: str) -> str:
    return f"[{', '.join(repr(v) for v in values)}][{index} + 1]"


def attach_views(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Creates the views over the Parquet files of `path`, finished or not."""
    connection.execute(f"CREATE VIEW samples AS SELECT * FROM {_parquet(path, 'samples')}")
    connection.execute(f"CREATE VIEW rejected AS SELECT * FROM {_parquet(path, 'rejected')}")
    connection.execute(f"""
        CREATE VIEW regions AS SELECT * REPLACE (
            {_named(CATEGORIES, "category")} AS category, {_named(LOCATIONS, "location")} AS location
        ) FROM {_parquet(path, "regions")}
    """)
    if (path / "manifest.json").is_file():
        connection.execute(f"CREATE VIEW manifest AS SELECT * FROM read_json({_quoted(path / 'manifest.json')})")
    # One index a token, and each list taken by it: DuckDB then reads only the lists and the samples that a query asks
    # for.
    plain = ("index_distance", "rank", "statement", "in_code", "token_weight", "char_start", "char_end")
    there = {name for name, *_ in connection.execute("DESCRIBE samples").fetchall()}
    extra = "".join(f", {name}[i]::{kind} AS {name}" for name, kind in _EXTRA_SCORES.items() if name in there)
    connection.execute(f"""
        CREATE VIEW tokens AS
        SELECT sample_id, source, i - 1 AS pos, input_ids[prompt_tokens + i] AS token_id,
            CASE WHEN char_start[i] >= 0 THEN substring(response, char_start[i] + 1, char_end[i] - char_start[i]) END
                AS token,
            logprob[i]::FLOAT AS logprob, exp(logprob[i]::FLOAT) AS confidence, entropy[i]::FLOAT AS entropy,
            {_named(CATEGORIES, "category[i]")} AS category, category[i] > 0 AS sensitive,
            {_named(LOCATIONS, "location[i]")} AS location,
            {", ".join(f"{name}[i] AS {name}" for name in plain)}, sample_weight{extra}
        FROM (SELECT *, unnest(range(1, len(char_start) + 1)) AS i FROM samples)
    """)
    connection.execute(
        """
        CREATE MACRO windows(l) AS TABLE
        SELECT sample_id, start, confidence, statement_tokens, category_tokens
        FROM (
            SELECT sample_id, pos AS start, avg(confidence) OVER w AS confidence, sum(statement::INT) OVER w AS
            statement_tokens,
                sum(sensitive::INT) OVER w AS category_tokens, count(*) OVER w AS tokens
            FROM tokens WHERE in_code
            WINDOW w AS (PARTITION BY sample_id ORDER BY pos ROWS BETWEEN CURRENT ROW AND l - 1 FOLLOWING)
        )
        WHERE tokens = l
    """
    )
    connection.execute(f"CREATE VIEW windows AS SELECT * FROM windows({ANALYSIS_WINDOW})")


def narrow(connection: duckdb.DuckDBPyConnection, part: Path) -> None:
    """Puts one file of `samples` behind the view of that name, and so behind `tokens` and `windows`."""
    source = f"read_parquet([{_quoted(part)}], hive_partitioning = false)"
    connection.execute(f"CREATE OR REPLACE VIEW samples AS SELECT * FROM {source}")
