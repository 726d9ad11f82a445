"""`python -m curate.inspect OUT ID`: one sample in the terminal, its labels and confidence in colour, or why a row was
refused."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import tyro
from rich.console import Console
from rich.style import Style
from rich.text import Text

from curate.console import main, parse_options, printable
from curate.errors import DatasetError
from curate.store import connect, part_files, read_part
from curate.taxonomy import CATEGORIES, LOCATIONS, Category

__all__ = ["InspectConfig"]

_COLOURS = (
    "",
    "#ff5f87",
    "#5fafff",
    "#d7af00",
    "#af87ff",
    "#ff8700",
    "#00d7af",
    "#ff5f5f",
    "#87d700",
    "#00afff",
    "#d787ff",
    "#ffd75f",
    "#5fd7d7",
    "#afaf87",
)
"""One for each category; neutral text keeps the terminal's own."""
_MOST_LINES = 200  # of a diff


@dataclass(frozen=True)
class InspectConfig:
    """Shows one sample: each line with its mean and lowest confidence, tokens coloured by category, unsure ones on
    red."""

    path: tyro.conf.Positional[Path]
    """The dataset's folder."""

    id: tyro.conf.Positional[str]
    """A sample_id or the beginning of one; the id of a refused row; or a source_id."""

    tokens: bool = False
    """List the tokens one by one instead of the text."""


def run(arguments: Sequence[str]) -> int:
    config = parse_options(InspectConfig, arguments, "curate.inspect")
    connection = connect(config.path)
    console = Console(emoji=False, highlight=False, markup=False, soft_wrap=True)
    # An exact name wins over the beginning of a sample's hash: the ids of refused rows are short numbers. The id, which
    # `rejected` shows, wins over the name that another row has in its source.
    for table, condition in (
        ("samples", "sample_id = $id"),
        ("rejected", "id = $id"),
        ("samples", "source_id = $id"),
        ("rejected", "source_id = $id"),
        ("samples", "starts_with(sample_id, $id)"),
    ):
        row = _one(connection, table, condition, config.id)
        if row is not None:
            if table == "samples":
                _show_sample(console, row, config.tokens)
            else:
                _show_refused(console, connection, config.path, row)
            if condition == "id = $id":
                _name_others(console, connection, config.id)
            return 0
    raise DatasetError(
        f"{config.path}: no sample or refused row {config.id}; the names:"
        f' python -m curate.query {config.path} "select source_id from samples union select source_id from rejected"'
    )


def _one(connection: duckdb.DuckDBPyConnection, table: str, condition: str, identity: str) -> dict[str, Any] | None:
    rows = connection.execute(f"SELECT * FROM {table} WHERE {condition} LIMIT 10", {"id": identity})
    names = [column[0] for column in rows.description or []]
    found = rows.fetchall()
    if len(found) > 1:
        key = names.index("sample_id" if table == "samples" else "id")
        raise DatasetError(
            f"{identity} fits several rows of {table}: {', '.join(str(row[key]) for row in found)}; give more of the id"
        )
    return dict(zip(names, found[0], strict=True)) if found else None


def _name_others(console: Console, connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Rows that their source calls what `rejected` calls another one: numbers of lines, for the most part."""
    others = connection.execute(
        "select sample_id, source from samples where source_id = $name"
        " union all select id, source from rejected where source_id = $name and id <> $name order by all limit 5",
        {"name": name},
    ).fetchall()
    for identity, source in others:
        console.print(f"{printable(source)} calls another row {printable(name)}: its id is {identity}", style="bold")


def _texts(part: Path, identity: str) -> pl.DataFrame:
    columns = ["id", "evidence", "prompt", "response", "raw"]
    return read_part(part, columns).filter(pl.col("id") == identity).drop("id")


def _show_refused(console: Console, connection: duckdb.DuckDBPyConnection, path: Path, row: Mapping[str, Any]) -> None:
    console.print(
        f"row {row['id']}, in {printable(row['source'])} called {printable(row['source_id'])}, was refused",
        style="bold",
    )
    console.print(f"{row['stage']}: {row['reason']}  {printable(row['detail'] or '')}\n", style="red")
    files = part_files(path / "refused")
    if not files:
        console.print("its text is not here: refused/ stays with the machine that built the dataset")
        return
    texts = next((frame.row(0, named=True) for part in files if len(frame := _texts(part, row["id"]))), {})
    kept = re.match(r"of ([0-9a-f]{32})\b", row["detail"] or "")
    twin = _one(connection, "samples", "sample_id = $id", kept[1]) if kept else None
    if twin is not None:
        console.print(f"from the kept {kept[1] if kept else ''} ({printable(twin['source_id'])}) to it", style="bold")
        lines = difflib.unified_diff(twin["response"].splitlines(), (texts.get("response") or "").splitlines(), n=1)
        shown = list(islice(lines, 2, _MOST_LINES))
        console.print(printable("\n".join(shown)) + "\n" if shown else "nothing but white space\n")
    for name in ("evidence", "prompt", "response", "raw"):
        if text := texts.get(name):
            console.print("row" if name == "raw" else name, style="bold")
            console.print(printable(text) + "\n")


def _style(row: Mapping[str, Any], i: int) -> Style:
    """Colour by category, background by how unsure the model is, underline for the paper's label set."""
    background = None
    if row["logprob"] is not None:
        doubt = 1 - min(1.0, 2.718281828 ** float(row["logprob"][i]))
        if doubt > 0.5:
            background = f"rgb({int(40 + 120 * (doubt - 0.5) * 2)},20,20)"
    return Style(color=_COLOURS[row["category"][i]] or None, bgcolor=background, underline=bool(row["statement"][i]))


def _show_sample(console: Console, row: Mapping[str, Any], list_tokens: bool) -> None:
    for name in (
        "sample_id",
        "source",
        "source_id",
        "license",
        "attribution",
        "correct",
        "flags",
        "redactions",
        "kernels",
        "device_functions",
        "launches",
        "error_share",
        "compile_status",
        "compile_engine",
        "kernel_names",
        "registers",
        "shared_bytes",
        "spill_bytes",
        "execute_status",
        "sample_weight",
        "min_window_confidence",
        "min_window_start",
    ):
        if row[name] not in (None, []):
            console.print(f"{name:22}{printable(_shown(row[name]))}")
    console.print(f"{'tokens':22}{row['prompt_tokens']} prompt, {len(row['char_start'])} response")
    console.print("\nprompt", style="bold")
    console.print(printable(row["prompt"]) + "\n")
    if list_tokens:
        _list_tokens(console, row)
    else:
        _show_lines(console, row)
    counts = Counter(row["category"])
    legend = Text("\n")
    for category in Category:
        if counts[category] and category:
            legend.append(f"{CATEGORIES[category]} {counts[category]}", Style(color=_COLOURS[category]))
            legend.append("   ")
    legend.append(f"neutral {counts[0]}")
    console.print(legend)


def _shown(value: Any) -> str:
    """A value of a column in one line."""
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return " ".join(map(str, value.values())) if isinstance(value, dict) else str(value)


def _confidence(row: Mapping[str, Any], i: int) -> float:
    return float(2.718281828 ** float(row["logprob"][i]))


def _show_lines(console: Console, row: Mapping[str, Any]) -> None:
    """Every line of the response: mean and lowest confidence of the tokens that begin in it, the text, its
    categories."""
    response, starts, ends = row["response"], row["char_start"], row["char_end"]
    styled = Text(printable_map(response))
    lines: dict[int, list[int]] = {}
    line_of = [0] * (len(response) + 1)
    for i, c in enumerate(response):
        line_of[i + 1] = line_of[i] + (c == "\n")
    for i, (a, b) in enumerate(zip(starts, ends, strict=True)):
        if a >= 0:
            styled.stylize(_style(row, i), a, b)
            solid = next((c for c in range(a, b) if not response[c].isspace()), a)
            lines.setdefault(line_of[solid], []).append(i)
    console.print("mean  low   | response", style="bold")
    for n, text in enumerate(styled.split("\n", allow_blank=True)):
        inside = lines.get(n, [])
        gutter = "            | "
        if inside and row["logprob"] is not None:
            values = [_confidence(row, i) for i in inside]
            gutter = f"{sum(values) / len(values):.2f}  {min(values):.2f}  | "
        marks = sorted({CATEGORIES[row["category"][i]] for i in inside if row["category"][i]})
        console.print(Text.assemble((gutter, "dim"), text, (f"   ‹{', '.join(marks)}›" if marks else "", "dim")))


def printable_map(text: str) -> str:
    """Like `printable`, but one character for one, so that positions stay: control characters become U+FFFD."""
    return "".join(c if c in "\t\n" or c.isprintable() else " " if c.isspace() else "�" for c in text)


def _list_tokens(console: Console, row: Mapping[str, Any]) -> None:
    console.print("  pos  id      conf    entropy rank  category           where          token", style="bold")
    for i, (a, b) in enumerate(zip(row["char_start"], row["char_end"], strict=True)):
        scores = " " * 21
        if row["logprob"] is not None:
            scores = f"{_confidence(row, i):.4f}  {float(row['entropy'][i]):6.3f}  {row['rank'][i]:<5d}"
        token = repr(row["response"][a:b]) if a >= 0 else "(template)"
        where = LOCATIONS[row["location"][i]]
        token_id = row["input_ids"][row["prompt_tokens"] + i]
        line = f"{i:5d}  {token_id:<6d}  {scores} {CATEGORIES[row['category'][i]]:18} {where:14} "
        console.print(Text(line) + Text(printable(token), _style(row, i)))


if __name__ == "__main__":
    main(run)
