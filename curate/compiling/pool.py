"""Worker processes from the parent's side: started, asked, killed when the time is over, replaced when they die."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from curate.compiling.types import CompileResult, CompileSettings

__all__ = ["DIED", "Worker"]

DIED = "its process died"
_JOBS = 256
"""Jobs of one worker: what a compiler leaks ends with its process."""
_MAX_REPLY = 4 << 20
_START = 60.0
# `curate` as a bare package: its own __init__ loads the whole product
_BOOT = (
    "import json, sys, types; package = types.ModuleType('curate');"
    " sys.path[:], package.__path__ = json.loads(sys.argv[1]);"
    " sys.modules['curate'] = package; from curate.compiling.worker import main; print(flush=True); main()"
)


class Worker:
    """One process at most, started with the first job. Not for two threads at once."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = ""
        self._jobs = 0
        self._stopped = False

    def ask(self, blocks: Sequence[str], settings: CompileSettings) -> CompileResult:
        """The result of one answer; a worker that dies is asked once more, with a new process."""
        job = json.dumps({"blocks": list(blocks), "settings": asdict(settings)}).encode() + b"\n"
        for _ in range(2):
            if self._stopped:
                break
            if self._jobs >= _JOBS:
                self.close()
            try:
                reply = self._exchange(job, settings.seconds)
            except TimeoutError:
                self.close()
                return CompileResult(
                    "timeout", arch=",".join(settings.archs), log=f"not done after {settings.seconds:g} s"
                )
            except (OSError, EOFError, ValueError, KeyError, TypeError):
                self.close()
                continue
            self._jobs += 1
            return reply
        return CompileResult("skipped", arch=",".join(settings.archs), log=f"{DIED}, twice")

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def stop(self) -> None:
        """From another thread: ends what it is doing, and lets it do nothing more. `close` comes after."""
        self._stopped = True
        if (process := self._process) is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Ends the process and whatever it started, and removes its folder."""
        process, self._process, self._jobs = self._process, None, 0
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    if stream is not None:
                        stream.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = ""

    def _exchange(self, job: bytes, seconds: float) -> CompileResult:
        if self._process is None:
            self._start()
            self._read_line(time.monotonic() + _START)
        assert self._process is not None
        assert self._process.stdin is not None
        deadline = time.monotonic() + seconds
        self._send(job, deadline)
        return CompileResult.from_json(json.loads(self._read_line(deadline)))

    def _start(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="cuset-compile-")
        package = Path(__file__).resolve().parent.parent
        paths = [[str(package.parent), *(p for p in sys.path if p)], [str(package)]]
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),  # of nvcc and its host compiler
            "HOME": self._folder,
            "TMPDIR": self._folder,
            "LC_ALL": "C.UTF-8",
            "OPENBLAS_NUM_THREADS": "1",  # each of its threads takes address space
            "OMP_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _BOOT, json.dumps(paths)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
            cwd=self._folder, env=environment, start_new_session=True,
        )  # fmt: skip
        if self._stopped:
            self.stop()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)

    def _send(self, job: bytes, deadline: float) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        pipe = self._process.stdin.fileno()
        view = memoryview(job)
        while view:
            if not select.select([], [pipe], [], max(0.0, deadline - time.monotonic()))[1]:
                raise TimeoutError
            view = view[os.write(pipe, view[:65536]) :]

    def _read_line(self, deadline: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        parts: list[bytes] = []
        size = 0
        while True:
            if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError
            part = os.read(pipe, 65536)
            size += len(part)
            if not part or size > _MAX_REPLY:
                raise EOFError
            parts.append(part)
            if part.endswith(b"\n"):
                return b"".join(parts)
