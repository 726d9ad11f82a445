"""`python -m curate.query PATH "select ..."`: SQL over an annotated dataset (views: see `curate.store`)."""

from __future__ import annotations

import sys
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


@dataclass(frozen=True)
class QueryConfig:
    """Runs SQL over an annotated dataset: views samples, tokens, windows, rejected, manifest, and the macro
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
        elif config.csv:
            relation.pl().write_csv(sys.stdout.buffer)
        elif config.json:
            relation.pl().write_json(sys.stdout.buffer)
            print()
        else:
            _print_table(relation, config.rows)
    except duckdb.Error as error:
        raise OptionError(str(error).splitlines()[0]) from error
    return 0


def _cell(value: object) -> Text:
    text = f"{value:.6g}" if isinstance(value, float) else "NULL" if value is None else str(value)
    return Text(printable(text), overflow="fold")


def _print_table(relation: duckdb.DuckDBPyRelation, limit: int) -> None:
    rows = relation.limit(limit + 1).fetchall()
    table = Table(box=box.SIMPLE_HEAD)
    for name in relation.columns:
        numeric = bool(rows) and isinstance(rows[0][relation.columns.index(name)], (int, float))
        table.add_column(Text(printable(name)), justify="right" if numeric else "left")
    for row in rows[:limit]:
        table.add_row(*map(_cell, row))
    console = Console(highlight=False, markup=False, soft_wrap=not sys.stdout.isatty())
    console.print(table)
    if len(rows) > limit:
        console.print(f"the first {limit} rows; --rows N shows more, --csv all")


if __name__ == "__main__":
    main(run)
