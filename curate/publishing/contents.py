"""One look at every part of a dataset: its rows, columns, size in memory, licences, and what is private in its texts.

A part is read once, whole, so that a damaged page shows; memory is that of one part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.redaction import find_private

__all__ = ["PartContents", "look_into"]


@dataclass
class PartContents:
    """`arrow_bytes`: size of the columns in memory. `licenses`: rows by the column of that name, where there is one.
    `private`: (column, row from 0, kinds) of texts in which secrets or addresses are left."""

    schema: pa.Schema
    rows: int
    arrow_bytes: int
    licenses: Counter[str | None] = field(default_factory=Counter)
    private: list[tuple[str, int, tuple[str, ...]]] = field(default_factory=list)


def look_into(part: Path) -> PartContents:
    """Reads one Parquet file. Raises OSError or pyarrow.ArrowException where it is damaged."""
    with pq.ParquetFile(part) as file:
        table = file.read()
    contents = PartContents(table.schema, table.num_rows, table.nbytes)
    if "license" in table.column_names:
        contents.licenses.update(table["license"].to_pylist())
    known: dict[str, tuple[str, ...]] = {}  # a prompt stands in a column of its own, and among the messages
    for name in table.column_names:
        for texts, rows in _texts(table[name].combine_chunks(), pa.array(range(table.num_rows), pa.int64())):
            for text, row in zip(texts.to_pylist(), rows.to_pylist(), strict=True):
                if text:
                    if text not in known:
                        known[text] = tuple(sorted({found.kind for found in find_private(text)}))
                    if known[text]:
                        contents.private.append((name, row, known[text]))
    return contents


def _texts(values: pa.Array, rows: pa.Array) -> Iterator[tuple[Any, Any]]:
    """The arrays of texts in a column, however deep, each with the number of the row that each text stands in."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        yield values, rows
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _texts(pc.list_flatten(values), rows.take(pc.list_parent_indices(values)))
    elif pa.types.is_struct(kind):
        for inner in values.flatten():
            yield from _texts(inner, rows)
