"""The process that compiles: jobs as lines of JSON on its standard input, results on its standard output.

Started by `curate.compiling.pool` with an empty environment and a private folder. It limits itself before the first
job, and ends with its whole process group when its input closes, in the middle of a compilation too.
"""

from __future__ import annotations

import json
import os
import queue
import resource
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import IO

from curate.compiling.judge import compile_blocks
from curate.compiling.nvrtc import nvrtc_version
from curate.compiling.types import CompileSettings

__all__ = ["main"]

_MAX_FILE = 256 << 20


def main() -> None:
    """Serves jobs until the input ends."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as replies:
        quiet = os.open(os.devnull, os.O_RDWR)
        os.dup2(quiet, 1)  # what native code prints is no reply
        home = Path.cwd()
        jobs: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_read, args=(jobs, home), daemon=True).start()
        nvrtc_version()  # loads the library before the limits, and once
        while True:
            _serve(jobs.get(), replies, home)


def _read(jobs: queue.SimpleQueue[str], home: Path) -> None:
    for line in sys.stdin:
        jobs.put(line)
    shutil.rmtree(home, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)  # the parent is gone, or has no more work


def _serve(line: str, replies: IO[str], home: Path) -> None:
    job = json.loads(line)
    settings = CompileSettings(**{**job["settings"], "archs": tuple(job["settings"]["archs"])})
    _limit(settings)
    folder = home / "job"
    folder.mkdir()
    os.chdir(folder)
    try:
        result = compile_blocks(job["blocks"], settings, folder)
    finally:
        os.chdir(home)
        shutil.rmtree(folder, ignore_errors=True)
    replies.write(json.dumps(result.to_json()) + "\n")
    replies.flush()


def _limit(settings: CompileSettings) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = int(used.ru_utime + used.ru_stime + 2 * settings.seconds) + 2  # the parent's clock strikes first
    memory = settings.memory_mb << 20
    for what, limit in (
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, _MAX_FILE),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
