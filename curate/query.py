"""`python -m curate.query PATH "select ..."`: SQL over an annotated dataset (views: see `curate.store`)."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import duckdb
import tyro
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from curate.console import main, parse_options, printable
from curate.errors import OptionError
from curate.store import connect

__all__ = ["QueryConfig"]

_LONGEST_CELL = 2000  # characters; a table is for reading, --csv and --json are for data


@dataclass(frozen=True)
class QueryConfig:
    """Runs SQL over an annotated dataset: views samples, tokens, windows, regions, rejected, manifest, and the macro
    windows(l)."""

    path: tyro.conf.Positional[Path]
    """The dataset's folder."""

    sql: tyro.conf.Positional[str]
    """A DuckDB query, such as "select category, count(*), avg(confidence) from tokens group by 1"."""

    csv: bool = False
    """Print CSV instead of a table."""

    json: bool = False
    """Print a JSON array instead of a table."""

    parquet: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write the result to this Parquet file."""
    rows: int = 100
    """Rows that the table shows at most; the other forms are never cut."""


def run(arguments: Sequence[str]) -> int:
    config = parse_options(QueryConfig, arguments, "curate.query")
    if config.csv + config.json + (config.parquet is not None) > 1:
        raise OptionError("give one of --csv, --json and --parquet")
    connection = connect(config.path)
    try:
        relation = connection.sql(config.sql)
        if relation is None:
            return 0
        if config.parquet:
            relation.write_parquet(str(config.parquet))
        elif config.csv or config.json:
            _copy_out(connection, config.sql, "csv, header" if config.csv else "json, array")
        else:
            _print_table(relation, config.rows)
    except duckdb.Error as error:
        raise OptionError(" ".join(str(error).split("LINE 1:")[0].split())) from error
    return 0


def _copy_out(connection: duckdb.DuckDBPyConnection, sql: str, form: str) -> None:
    """DuckDB's own CSV or JSON, which knows every type; on a terminal without the characters that could steer it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result"
        connection.execute(f"COPY ({sql.rstrip().rstrip(';')}\n) TO '{file}' (FORMAT {form})")
        if sys.stdout.isatty():
            with file.open(encoding="utf-8", newline="\n") as lines:
                for line in lines:
                    print(printable(line), end="")
        else:
            sys.stdout.flush()
            with file.open("rb") as content:
                shutil.copyfileobj(content, sys.stdout.buffer)


def _cell(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else "NULL" if value is None else str(value)
    return printable(text if len(text) <= _LONGEST_CELL else text[:_LONGEST_CELL] + "...")


def _print_table(relation: duckdb.DuckDBPyRelation, limit: int) -> None:
    """A table; or, where it has more columns than the terminal holds, each row as a list of its columns."""
    rows = relation.limit(limit + 1).fetchall()
    names = [printable(name) for name in relation.columns]
    # Into a pipe or a file nothing is folded: the width is that of the text.
    width = None if sys.stdout.isatty() else sum(_LONGEST_CELL + 8 for _ in names)
    console = Console(emoji=False, highlight=False, markup=False, width=width)
    if sum(max(len(name), 4) + 2 for name in names) > console.width:
        for row in rows[:limit]:
            for name, value in zip(names, row, strict=True):
                line = Text(f"{name:24} {_cell(value)}".replace("\n", "⏎"), no_wrap=True, overflow="ellipsis")
                console.print(line)
            console.print()
    else:
        table = Table(box=box.SIMPLE_HEAD)
        for n, name in enumerate(names):
            numeric = bool(rows) and isinstance(rows[0][n], (int, float))
            table.add_column(Text(name), justify="right" if numeric else "left", overflow="fold")
        for row in rows[:limit]:
            table.add_row(*(Text(_cell(value)) for value in row))
        console.print(table)
    if len(rows) > limit:
        console.print(f"the first {limit} rows; --rows N shows more, --csv all")


if __name__ == "__main__":
    main(run)
