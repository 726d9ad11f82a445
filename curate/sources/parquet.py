"""Rows of a Parquet file, batch by batch, none of which may expand to more than memory holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from curate.errors import SourceError
from curate.sources.conversation import BadRow
from curate.sources.files import shown
from curate.sources.streams import MAX_LINE

__all__ = ["Item", "open_parquet", "parquet_items"]

Item = tuple[int, object, str]
"""Position, the row or the BadRow that it is, and its text where there is no row to show (empty otherwise)."""

_BATCH = 128
_MOST_BYTES = 2**30
"""That a batch may expand to."""


def open_parquet(path: Path) -> pq.ParquetFile:
    """The file, opened; raises SourceError for one that is not whole."""
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _broken_parquet(path, error) from None


def parquet_items(path: Path, columns: Collection[str] | None) -> Iterator[Item]:
    """Batch by batch, the wanted columns alone."""
    with open_parquet(path) as table:
        names = table.schema_arrow.names
        wanted = None if columns is None else [name for name in names if name in columns]
        position = 0
        try:
            for batch in table.iter_batches(batch_size=_batch_rows(table.metadata, wanted), columns=wanted):
                for value in _python_rows(batch):
                    position += 1
                    yield position, _not_too_large(value), ""
        except (pa.ArrowException, OSError) as error:
            raise _broken_parquet(path, error, f" after row {position}") from None


def _batch_rows(metadata: pq.FileMetaData, columns: Collection[str] | None) -> int:
    """Rows of a batch: fewer where a dictionary, which holds a value once for all rows, could make a batch a bomb."""
    most = 1
    for n in range(metadata.num_row_groups):
        group = metadata.row_group(n)
        chunks = (group.column(i) for i in range(group.num_columns))
        named = (c for c in chunks if columns is None or c.path_in_schema.split(".")[0] in columns)
        most = max(most, sum(c.total_uncompressed_size for c in named if c.has_dictionary_page))
    return max(1, min(_BATCH, _MOST_BYTES // most))


def _not_too_large(value: object) -> object:
    """The row, held to what a line of text may hold."""
    size = (
        max((len(x) for x in value.values() if isinstance(x, str | bytes)), default=0) if isinstance(value, dict) else 0
    )
    return BadRow("too_large", f"a value of {size} characters, more than {MAX_LINE}") if size > MAX_LINE else value


def _python_rows(batch: pa.RecordBatch) -> Iterator[object]:
    try:
        yield from batch.to_pylist()
        return
    except (UnicodeDecodeError, pa.ArrowException, ValueError, OverflowError):
        pass
    for i in range(batch.num_rows):  # one bad row must not take its batch along
        try:
            yield batch.slice(i, 1).to_pylist()[0]
        except UnicodeDecodeError:
            yield BadRow("not_utf8", "a column of the row")
        except (pa.ArrowException, ValueError, OverflowError) as error:
            yield BadRow("wrong_type", type(error).__name__)


def _broken_parquet(path: Path, error: Exception, where: str = "") -> SourceError:
    reason = str(error).split("\n")[0].replace(str(path), path.name)[:200]
    return SourceError(f"{shown(path)}: not a whole Parquet file{where} ({reason}); fetch or write it again.")
