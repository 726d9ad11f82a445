"""All rows -> which of them are copies, and of which kept row; memory stays flat, the index lies on disk."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import polars as pl

from curate.duplicates.fingerprint import BANDS
from curate.duplicates.operations import other_operations
from curate.duplicates.similarity import jaccard

__all__ = ["DUPLICATES", "FINGERPRINT", "PERMISSIVE", "THRESHOLD", "find_duplicates"]

THRESHOLD = 0.8

FINGERPRINT: dict[str, pl.DataType] = {
    name: pl.Binary() for name in ("code_hash", "shape_hash", "bands", "device", "whole", "profile")
}
"""The columns of `Fingerprint`, null where a row has none."""
_NEEDS = ("row", "sample_id", "compile_status", "error_share", "license", "code_bytes", *FINGERPRINT)
DUPLICATES: dict[str, pl.DataType] = {
    "row": pl.Int64(), "kept_row": pl.Int64(), "kept_id": pl.String(), "kind": pl.String(), "similarity": pl.Float64(),
}  # fmt: skip
"""`kind`: exact_code (equal but for comments and white space), renamed (equal after renaming as well), near."""

PERMISSIVE = (
    *("apache-2.0", "mit", "mit-0", "bsd-2-clause", "bsd-3-clause", "bsd-3-clause-clear", "isc", "zlib", "bsl-1.0"),
    *("cc0-1.0", "cc-by-4.0", "cc-by-3.0", "unlicense", "0bsd", "ncsa", "postgresql", "apache", "bsd"),
)

_ORDER = f"""
    case compile_status when 'ok' then 0 when 'error' then 2 else 1 end,
    coalesce(error_share, 0),
    case when license is null or trim(license) = '' or lower(trim(license)) in ('unknown', 'other') then 2
         when lower(trim(license)) in ({", ".join(f"'{name}'" for name in PERMISSIVE)}) then 0 else 1 end,
    code_bytes, sample_id, row"""
"""Best first: compiled, then unchecked, then refused by the compiler; less broken; a permissive licence, another one,
none; shorter; and by identity, so that the order of reading decides nothing.
"""
_PLAIN = re.compile(r"[\w./ +,:=@-]*")
_FIRST_BATCH, _BATCH = 256, 8192
_READ = 256
"""Rows of a batch whose candidates are in memory at a time."""
_GIVEN = 50_000


def find_duplicates(
    frames: Iterable[pl.DataFrame], database: Path, threshold: float | None = THRESHOLD, memory: str = "256MB"
) -> Iterator[pl.DataFrame]:
    """The rows that are copies, as frames of `DUPLICATES` by `row`.

    `frames` hold `row`, `sample_id`, `compile_status` (ok, skipped, error or null), `error_share`, `license`,
    `code_bytes` and the columns of `FINGERPRINT`, any others are ignored. `database` is made anew, with a file
    of the sketches beside it (`.sketches`); both may be deleted afterwards. `memory` is what DuckDB may hold.

    Rows are taken best first (see `_ORDER`), and each is compared with the kept ones that share a band with it: it is
    refused where it is itself at least `threshold` similar to a kept row, and then names the most similar one. So no
    chain of small changes removes a row that is unlike everything that is kept, and of two similar rows the better
    one stays. Rows of one `shape_hash` share their fate: all but the best are refused at once. Neither the order of
    the rows nor the number of frames changes the result. Cost: n rows times the kept rows that share a band. Without
    a threshold (None) only rows of one `shape_hash` are copies.
    """
    if not _PLAIN.fullmatch(str(database)):  # DuckDB reads a ? or a backslash in a path as its own
        with tempfile.TemporaryDirectory(prefix="cuset-bands-") as folder:
            yield from find_duplicates(frames, Path(folder) / "bands.duckdb", threshold, memory)
        return
    sketches = database.with_suffix(".sketches")
    for path in (database, database.with_name(database.name + ".wal"), sketches):
        path.unlink(missing_ok=True)
    with closing(duckdb.connect(database)) as connection:
        connection.execute(f"set memory_limit = '{memory}'; set threads = 1; set preserve_insertion_order = true")
        _load(connection, frames, sketches)
        connection.execute(f"""
            create table ranked as
                select *, row_number() over (order by {_ORDER}) as rank from given;
            drop table given;
            create table best as
                select row_number() over (order by rank) as position, * from (
                    select * from ranked qualify rank = min(rank) over (partition by shape_hash)) order by position;
            alter table ranked drop bands;
            create table near (position bigint, kept bigint, similarity double);
            create table index_bands (band ubigint, kept bigint);
        """)
        with sketches.open("rb") as file:
            if threshold is not None:
                _search(connection, _Sketches(file.fileno()), threshold)
        yield from _result(connection)


def _load(connection: duckdb.DuckDBPyConnection, frames: Iterable[pl.DataFrame], sketches: Path) -> None:
    connection.execute("""
        create table given (
            row bigint, sample_id varchar, compile_status varchar, error_share double, license varchar,
            code_bytes bigint, code_hash blob, shape_hash blob, bands blob, profile blob,
            place bigint, device bigint, whole bigint)
    """)
    done = 0
    with sketches.open("wb") as file:
        for frame in frames:
            part = frame.select(_NEEDS).filter(pl.col("code_hash").is_not_null())
            sizes = part.select(pl.col("device", "whole").bin.size().cast(pl.Int64))
            ends = sizes.sum_horizontal().cum_sum() + done
            for device, whole in part.select("device", "whole").iter_rows():
                file.write(device)
                file.write(whole)
            part = part.drop("device", "whole").with_columns(
                (ends - sizes.sum_horizontal()).alias("place"), *sizes.get_columns()
            )
            done = int(ends[-1]) if len(ends) else done
            connection.register("part", part.to_arrow())
            connection.execute("insert into given by name select * from part")
            connection.unregister("part")


class _Sketches:
    """Sketches of rows by their place in the file; read when they are compared, and not kept."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __call__(self, at: int, device: int, whole: int) -> tuple[np.ndarray, np.ndarray]:
        data = os.pread(self.descriptor, device + whole, at)
        return np.frombuffer(data[:device], "<u4"), np.frombuffer(data[device:], "<u4")


Compared = tuple[bytes, np.ndarray, np.ndarray]


def _search(connection: duckdb.DuckDBPyConnection, sketches: _Sketches, threshold: float) -> None:
    """Fills `near`: every row of `best` against the kept ones before it, batch by batch."""
    [(total,)] = connection.execute("select count(*) from best").fetchall()
    first, size = 1, _FIRST_BATCH
    while first <= total:
        part = _table(
            connection,
            "select position, bands, profile, place, device, whole from best where position between ? and ? order by 1",
            first,
            first + size - 1,
        )
        bands = np.frombuffer(b"".join(part["bands"]), "<u8").reshape(-1, BANDS)
        found, kept = _judge(part, bands, _candidates(connection, bands), sketches, threshold)
        _insert(connection, "near", pl.DataFrame(found, ["position", "kept", "similarity"], orient="row"))
        rows = np.array(kept, np.int64)
        _insert(
            connection,
            "index_bands",
            pl.DataFrame({"band": bands[rows].ravel(), "kept": np.repeat(rows + first, BANDS)}),
        )
        first += size
        size = min(2 * size, _BATCH)


def _table(connection: duckdb.DuckDBPyConnection, query: str, *parameters: int) -> pl.DataFrame:
    return pl.DataFrame(connection.sql(query, params=parameters).to_arrow_table())


def _insert(connection: duckdb.DuckDBPyConnection, table: str, frame: pl.DataFrame) -> None:
    if len(frame):
        connection.register("part", frame.to_arrow())
        connection.execute(f"insert into {table} select * from part")
        connection.unregister("part")


def _candidates(connection: duckdb.DuckDBPyConnection, bands: np.ndarray) -> Iterator[pl.DataFrame | None]:
    """For each row of a batch the kept rows of earlier batches that share a band with it.

    The pairs lie in a table, since they are many where a corpus is made from templates; what they hold is read for a
    few rows at a time.
    """
    keys = pl.DataFrame({"band": bands.ravel(), "position": np.repeat(np.arange(len(bands)), BANDS)})
    connection.register("keys", keys.to_arrow())
    connection.execute("""
        create or replace table pairs as
            select distinct position, kept from keys join index_bands using (band) order by 1, 2
    """)
    connection.unregister("keys")
    for first in range(0, len(bands), _READ):
        found = _table(
            connection,
            """
            select pairs.position, kept, profile, place, device, whole
            from (select * from pairs where position between ? and ?) pairs join best on best.position = kept
            order by 1, 2
            """,
            first,
            first + _READ - 1,
        )
        parts = {row: part for (row,), part in found.partition_by("position", as_dict=True).items()}
        yield from (parts.get(row) for row in range(first, min(first + _READ, len(bands))))


def _judge(
    part: pl.DataFrame,
    bands: np.ndarray,
    candidates: Iterator[pl.DataFrame | None],
    sketches: _Sketches,
    threshold: float,
) -> tuple[list[tuple[int, int, float]], list[int]]:
    """((position, kept position, similarity) of what is refused, rows of the batch that are kept)."""
    _, inverse, counts = np.unique(bands, return_inverse=True, return_counts=True)
    shared = (counts > 1)[inverse].reshape(bands.shape)
    buckets: dict[int, list[int]] = {}
    here: dict[int, Compared] = {}
    found: list[tuple[int, int, float]] = []
    kept: list[int] = []
    rows = zip(part.iter_rows(), candidates, strict=True)
    for row, ((position, _, profile, *place), older) in enumerate(rows):
        keys = bands[row, shared[row]].tolist()
        before = sorted({other for key in keys for other in buckets.get(key, ())})
        best: tuple[float, int] = (0.0, 0)
        if before or keys or older is not None:
            own: Compared = (profile, *sketches(*place))
            if older is not None:
                for _, other, its_profile, *its_place in older.iter_rows():
                    if not other_operations(profile, its_profile):
                        best = max(best, (_similarity(own, (its_profile, *sketches(*its_place))), -other))
            for other in before:
                best = max(best, (_similarity(own, here[other]), -other - (position - row)))
        if best[0] >= threshold:
            found.append((position, -best[1], best[0]))
            continue
        kept.append(row)
        if keys:
            here[row] = own
            for key in keys:
                buckets.setdefault(key, []).append(row)
    return found, kept


def _similarity(one: Compared, other: Compared) -> float:
    """`curate.duplicates.similarity.similarity` of two rows of different shapes."""
    if other_operations(one[0], other[0]):
        return 0.0
    device = jaccard(one[1], other[1])
    return min(device, jaccard(one[2], other[2]))


def _result(connection: duckdb.DuckDBPyConnection) -> Iterator[pl.DataFrame]:
    cursor = connection.execute("""
        select r.row, k.row as kept_row, k.sample_id as kept_id,
               case when near.kept is not null then 'near' when r.code_hash = k.code_hash then 'exact_code'
                    else 'renamed' end as kind,
               coalesce(near.similarity, 1.0) as similarity
        from ranked r join best b using (shape_hash)
        left join near on near.position = b.position
        join best k on k.position = coalesce(near.kept, b.position)
        where k.row <> r.row order by r.row
    """)
    while rows := cursor.fetchmany(_GIVEN):
        yield pl.DataFrame(rows, DUPLICATES, orient="row")
