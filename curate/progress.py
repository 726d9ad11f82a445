"""Progress with rate and time left: a bar on a terminal, a plain line now and then elsewhere.

To standard error.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from curate.console import stderr
from curate.pool import cores
from curate.store import replace_file

__all__ = ["LOG", "Reporter", "is_log", "write_log"]

LOG = "build.log.json"
_LOGGED = {"seconds", "tokens_per_second", "processor", "cores", "platform"}

_SECONDS_BETWEEN_LINES = 10.0


class Reporter:
    """Progress of one phase: `advance` counts items (rows) against the total, `tokens` counts what the rate is given
    in."""

    def __init__(self, what: str, total: int | None) -> None:
        self.what, self.total = what, total
        self.rows = self.tokens = 0
        self.began = self.last_line = time.monotonic()
        self.printed = -1
        self.bar: Progress | None = None

    def __enter__(self) -> Reporter:
        if stderr.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("rows  {task.fields[rate]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
            )
            self.bar = Progress(*columns, console=stderr)
            self.task = self.bar.add_task(self.what, total=self.total, rate="")
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar:
            self.bar.stop()
        elif kind is None and self.printed != self.rows:
            stderr.print(self.line())

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def rate(self) -> str:
        """Tokens a second where tokens are counted, else rows."""
        count, unit = (self.tokens, "tokens/s") if self.tokens else (self.rows, "rows/s")
        return f"{count / max(self.seconds, 1e-9):,.0f} {unit}"

    def line(self) -> str:
        of = f" of {self.total}" if self.total is not None else ""
        left = ""
        if self.total and 0 < self.rows < self.total:
            left = f", {self.seconds / self.rows * (self.total - self.rows):.0f} s left"
        return f"{self.what}: {self.rows}{of} rows, {self.rate()}, {self.seconds:.0f} s{left}"

    def advance(self, rows: int = 0, tokens: int = 0) -> None:
        """Counts finished rows and tokens."""
        self.rows += rows
        self.tokens += tokens
        if self.bar:
            self.bar.update(self.task, completed=self.rows, rate=self.rate())
        elif time.monotonic() - self.last_line > _SECONDS_BETWEEN_LINES:
            self.last_line, self.printed = time.monotonic(), self.rows
            stderr.print(self.line())


def write_log(out: Path, seconds: Mapping[str, float], tokens_per_second: float | None = None) -> None:
    """Writes build.log.json: timings up to the manifest, and the machine; the one file that may differ between two
    runs."""
    content = {
        "seconds": dict(seconds),
        "tokens_per_second": tokens_per_second,
        "processor": platform.processor() or platform.machine(),
        "cores": cores(),
        "platform": platform.platform(),
    }
    assert content.keys() == _LOGGED
    replace_file(out / LOG, json.dumps(content, indent=2).encode())


def is_log(file: Path) -> bool:
    """Whether a file is such a log; nothing vouches for its content but its shape."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.keys() == _LOGGED and isinstance(content["seconds"], dict)
