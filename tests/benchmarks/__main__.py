"""`python -m tests.benchmarks [--only NAME]`: every measurement once, as one table. About twenty minutes, two idle
cores."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal, get_args

from rich.console import Console
from rich.table import Table

from curate.console import main, parse_options, stderr
from curate.pool import cores
from tests.benchmarks.figures import Figure, timed

Name = Literal[
    "scoring",
    "harness",
    "labels",
    "parse",
    "checks",
    "compiling",
    "duplicates",
    "scale",
    "ray",
    "storage",
    "loading",
    "queries",
    "viewer",
    "report",
    "memory",
    "training",
    "head",
    "publish",
]
NAMES = get_args(Name)


@dataclass(frozen=True)
class BenchmarkConfig:
    """Measures speed, memory and size."""

    only: Name | Literal["all"] = "all"
    """Run this one alone."""


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _text(figure: Figure) -> str:
    if math.isnan(figure.value):
        return "-"
    digits = 0 if figure.value >= 1000 else 1 if figure.value >= 100 else 2
    return f"{figure.value:,.{digits}f} {figure.unit}".rstrip()


def run(arguments: Sequence[str]) -> int:
    config = parse_options(BenchmarkConfig, arguments, "tests.benchmarks")
    load = os.getloadavg()[0]
    table = Table(title=f"{_processor()}, {cores()} cores, load before {load:.1f}", title_justify="left")
    for title in ("", "measured", "", "note"):
        table.add_column(title, justify="right" if table.columns and len(table.columns) == 2 else "left")
    for name in NAMES if config.only == "all" else (config.only,):
        seconds, figures = timed(import_module(f"tests.benchmarks.{name}").measure)
        stderr.print(f"{name}: {seconds:.0f} s")
        table.add_section()
        for n, figure in enumerate(figures):
            table.add_row(name if n == 0 else "", figure.what, _text(figure), figure.note)
    Console(highlight=False, width=None if os.isatty(1) else 130).print(table)
    return 0


if __name__ == "__main__":
    main(run)
