"""What a build says at its end: the funnel, and the first findings."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from curate.console import printable
from curate.errors import CusetError
from curate.frames import FAILED
from curate.stages import STAGE_ORDER
from curate.store import ANALYSIS_WINDOW, funnel, narrow, part_files, scan_parts

__all__ = ["count_rows", "findings", "print_build", "print_findings", "print_funnel"]

_LABEL_SETS = {"statement": "statement", "category": "sensitive"}
"""Label set -> the column of the tokens view that says whether a token is CUDA-sensitive in it."""


def count_rows(out: Path, read: int) -> dict[str, Any]:
    """The funnel, counted from the parts that stand in `out`; raises CusetError unless it balances."""
    rejected = scan_parts(part_files(out / "rejected")).group_by("stage", "reason").len()
    samples = scan_parts(part_files(out / "samples"))
    accepted = samples.select(pl.len()).collect().item()
    by_reason = sorted(
        (((stage, reason), rows) for stage, reason, rows in rejected.collect(engine="streaming").iter_rows()),
        key=lambda x: (STAGE_ORDER.index(x[0][0]), -x[1], x[0][1]),
    )
    refused: dict[str, dict[str, int]] = {}
    for (stage, reason), rows in by_reason:
        refused.setdefault(stage, {})[reason] = rows
    failed = sum(rows for (_, reason), rows in by_reason if reason == FAILED)
    all_refused = sum(rows for _, rows in by_reason)
    if read != accepted + all_refused:
        raise CusetError(
            f"the build does not balance: {read} rows read, {accepted} accepted, {all_refused} refused;"
            " this is a defect of cuset"
        )
    return {
        "read": read,
        "accepted": accepted,
        "rejected": all_refused - failed,
        "failed": failed,
        "refused": refused,
        "marked": dict(sorted(_marks(samples).items(), key=lambda x: (-x[1], x[0]))),
        "redacted": dict(sorted(_redactions(samples).items())),
    }


def _marks(samples: pl.LazyFrame) -> dict[str, int]:
    """Accepted rows by the reason of a flag."""
    reasons = pl.col("flags").list.eval(pl.element().struct.field("reason").unique())
    marked = samples.select(reason=reasons).explode("reason").drop_nulls().group_by("reason").len()
    return dict(marked.collect(engine="streaming").iter_rows())


def _redactions(samples: pl.LazyFrame) -> dict[str, int]:
    """Placeholders in accepted rows by the kind of what they stand for."""
    found = samples.select("redactions").explode("redactions").drop_nulls().unnest("redactions")
    return dict(found.group_by("kind").agg(pl.col("count").sum()).collect(engine="streaming").iter_rows())


def findings(connection: duckdb.DuckDBPyConnection, parts: Sequence[Path]) -> dict[str, Any]:
    """Mean confidence of sensitive and neutral code tokens, and the share of low windows, for both label sets.

    A window is low when its mean confidence is below the mean of the neutral tokens. Two rules say that a window falls
    on a sensitive structure: any of its tokens is sensitive; or more of them are than in its sample's code as a whole.
    Prose around the code is left out, since the paper's samples hold none. Values are None where there is nothing to
    take them over.

    `parts` are the files behind the connection's `samples`, no sample in two of them. Windows are counted file by
    file, since DuckDB holds all tokens that it forms windows over; `samples` is left narrowed to the last file.
    """
    result: dict[str, Any] = {}
    for name, column in _LABEL_SETS.items():
        tokens = connection.execute(f"""
            SELECT count(*) FILTER ({column}), count(*) FILTER (NOT {column}),
                avg(confidence) FILTER ({column}), avg(confidence) FILTER (NOT {column})
            FROM tokens WHERE in_code
        """).fetchone()
        assert tokens is not None
        result[name] = dict(
            zip(("sensitive_tokens", "neutral_tokens", "sensitive_mean", "neutral_mean"), tokens, strict=True)
        )
    counted = {name: [0] * 8 for name in result}
    for part in parts:
        narrow(connection, part)
        for name, means in result.items():
            here = _windows(connection, name, means["neutral_mean"])
            counted[name] = [a + b for a, b in zip(counted[name], here, strict=True)]
    for name, (every, low, samples, low_samples, *on_sensitive) in counted.items():
        shares = [n / of if of else None for n, of in zip(on_sensitive, (low, every, low, every), strict=True)]
        result[name] |= {
            "windows": every,
            "low_windows": low,
            "samples_with_windows": samples,
            "samples_with_low_window": low_samples,
            "low_windows_touching": shares[0],
            "all_windows_touching": shares[1],
            "low_windows_above_base": shares[2],
            "all_windows_above_base": shares[3],
        }
    return result


def _windows(connection: duckdb.DuckDBPyConnection, name: str, neutral_mean: float | None) -> tuple[int, ...]:
    """Windows, low ones, samples with windows, with low ones; then windows low and touching, touching, low and above
    their sample's share, above it."""
    found = connection.execute(
        f"""
        WITH base AS (SELECT sample_id, avg({_LABEL_SETS[name]}::INT) AS share FROM tokens WHERE in_code GROUP BY 1),
        marked AS (
            SELECT w.sample_id, w.confidence < $mean AS low, w.{name}_tokens > 0 AS touches,
                w.{name}_tokens / $window > base.share AS above
            FROM windows w JOIN base USING (sample_id)
        )
        SELECT count(*), count(*) FILTER (low), count(DISTINCT sample_id), count(DISTINCT sample_id) FILTER (low),
            count(*) FILTER (low AND touches), count(*) FILTER (touches),
            count(*) FILTER (low AND above), count(*) FILTER (above)
        FROM marked
        """,
        {"mean": neutral_mean, "window": float(ANALYSIS_WINDOW)},
    ).fetchone()
    assert found is not None
    return found


def print_build(manifest: Mapping[str, Any], out: Path) -> None:
    """What a build, or a merge, says at its end: funnel, findings where there are scores, and where the dataset is."""
    console = Console(emoji=False, highlight=False, soft_wrap=not sys.stdout.isatty())
    print_funnel(console, manifest["counts"])
    if manifest["findings"]:
        print_findings(console, manifest["findings"])
    console.print(printable(str(out)), markup=False)


def print_funnel(console: Console, counts: Mapping[str, Any]) -> None:
    """Rows in and out of each stage, by reason."""
    table = Table(title="Funnel", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("stage")
    table.add_column("reason")
    table.add_column("rows", justify="right")
    table.add_column("left", justify="right")
    table.add_row("read", "", "", str(counts["read"]))
    for stage, reason, rows, left in funnel(counts):
        table.add_row(stage, Text(printable(reason)), f"-{rows}", str(left))
    table.add_row("accepted", "", "", str(counts["accepted"]), style="bold")
    console.print(table)
    for what, found in (("marked", counts["marked"]), ("placeholders for", counts["redacted"])):
        if found:
            told = ", ".join(f"{name} {rows}" for name, rows in found.items())
            console.print(printable(f"  of the accepted, {what}: {told}"), markup=False)


def _number(value: float | None, form: str = ".4f") -> str:
    return "-" if value is None else format(value, form)


def _share(part: float | None, whole: float | None = 1) -> str:
    return "-" if part is None or not whole else f"{100 * part / whole:.1f} %"


def print_findings(console: Console, found: Mapping[str, Any]) -> None:
    """The findings table: one column for each label set."""
    table = Table(
        title=f"Confidence of code tokens (windows of {ANALYSIS_WINDOW} tokens)",
        box=box.SIMPLE_HEAD,
        title_justify="left",
    )
    table.add_column("")
    names = list(_LABEL_SETS)
    for name in names:
        table.add_column(f"{name} labels", justify="right")
    f = [found[name] for name in names]
    rows = {
        "sensitive tokens": [str(x["sensitive_tokens"]) for x in f],
        "neutral tokens": [str(x["neutral_tokens"]) for x in f],
        "mean confidence, sensitive": [_number(x["sensitive_mean"]) for x in f],
        "mean confidence, neutral": [_number(x["neutral_mean"]) for x in f],
        "low windows": [_share(x["low_windows"], x["windows"]) for x in f],
        "samples with a low window": [_share(x["samples_with_low_window"], x["samples_with_windows"]) for x in f],
        "low windows: any sensitive token": [_share(x["low_windows_touching"]) for x in f],
        "  all windows": [_share(x["all_windows_touching"]) for x in f],
        "low windows: more than their sample": [_share(x["low_windows_above_base"]) for x in f],
        "  all windows ": [_share(x["all_windows_above_base"]) for x in f],
    }
    for name, cells in rows.items():
        table.add_row(name, *cells)
    console.print(table)
