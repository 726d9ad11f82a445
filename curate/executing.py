"""Hands a complete program of an answer to a command of the user's, which builds and runs it where that is wanted.

Nothing here runs by default, and nothing here is a sandbox: the limits below stop accidents (endless loops, floods of
output, memory), not malice. A command that runs untrusted programs has to bring its own isolation: a container, a
virtual machine, another user.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from curate.compiling.messages import printable
from curate.errors import OptionError
from curate.store import replace_file
from curate.syntax import Parsed

__all__ = ["ExecuteLimits", "ExecuteResult", "Runner", "check_command", "command_identity", "execute", "has_main"]

_CONTAINERS = frozenset(
    ("preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif", "linkage_specification", "declaration_list")
)
_TAIL_BYTES = 16384
_MAX_SCRIPT = 1 << 26
_TAIL = 2000
_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?", re.DOTALL)
_ENVIRONMENT = ("PATH", "LANG", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES")
# limits are set by a process between, since code between fork and exec is not safe beside threads
_SHIM = (
    "import json, os, resource, sys; limits, command = json.loads(sys.argv[1]);\n"
    "for what, limit in limits: hard = resource.getrlimit(what)[1];"
    " limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard); resource.setrlimit(what, (limit, limit))\n"
    "try: os.execvp(command[0], command)\n"
    "except OSError as error: print(error.strerror + ': ' + command[0], file=sys.stderr); sys.exit(127)"
)


@dataclass(frozen=True)
class ExecuteLimits:
    """`memory_mb` bounds the data segment (RLIMIT_DATA) rather than the address space, of which the CUDA driver
    reserves far more than it uses. `file_mb`: the largest file, the captured output included.
    """

    seconds: float = 60.0
    memory_mb: int = 16384
    file_mb: int = 1024


@dataclass(frozen=True)
class ExecuteResult:
    """`pass`: the command ended with exit code 0 in time. `output_tail`: the end of what it wrote to both streams.
    `exit_code`: negative for the signal that ended it, that of the time's end included."""

    status: Literal["pass", "fail", "timeout"]
    output_tail: str
    seconds: float
    exit_code: int


def has_main(parsed: Parsed) -> bool:
    """Whether the file defines `main` at its top level (in `extern "C"` and preprocessor conditions as well)."""
    stack = [parsed.main.root]
    while stack:
        for node in stack.pop().named_children:
            if node.type in _CONTAINERS:
                stack.append(node)
            elif node.type == "function_definition":
                declarator = node.child_by_field_name("declarator")
                name = declarator.child_by_field_name("declarator") if declarator is not None else None
                if name is not None and name.text == b"main":
                    return True
    return False


def execute(command: str, program: str, limits: ExecuteLimits | None = None) -> ExecuteResult:
    """Writes `program` to `program.cu` in a private folder and runs `command` there, once.

    `command` is split as a shell would, without being given to one; `{}` in it stands for the file's path, which is
    appended where there is none. Standard input is empty, the environment holds PATH, HOME (the folder) and what CUDA
    needs. After the command ends, or the time is over, its process group is killed and the folder removed; a process
    that left the group on purpose is not followed. Raises OptionError for a command that cannot be split.
    """
    limits = limits or ExecuteLimits()
    with tempfile.TemporaryDirectory(prefix="cuset-execute-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        source = folder / "program.cu"
        source.write_text(program, encoding="utf-8", errors="replace")
        words = _words(command, str(source))
        with tempfile.TemporaryFile() as output:
            began = time.monotonic()
            process = _start(words, folder, output.fileno(), limits)
            timed_out = False
            try:
                process.wait(limits.seconds)
            except subprocess.TimeoutExpired:
                timed_out = True
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            seconds = time.monotonic() - began
            size = output.seek(0, os.SEEK_END)
            output.seek(max(0, size - _TAIL_BYTES))
            tail = _clean(output.read(_TAIL_BYTES).decode(errors="replace"), name)
        status: Literal["pass", "fail", "timeout"] = (
            "timeout" if timed_out else "pass" if process.returncode == 0 else "fail"
        )
        return ExecuteResult(status, tail, seconds, process.returncode)


def check_command(command: str) -> None:
    """Raises OptionError for a command that cannot be split, or whose program is not there: it would refuse every row.

    The command runs in the folder of each program, so that a relative path of its own would not be found there.
    """
    program = _words(command, "program.cu")[0]
    if "/" in program and not program.startswith("/"):
        there = Path.cwd() / program
        raise OptionError(f"--execute: {program} is relative, and the command runs in another folder; write {there}")
    if shutil.which(program, path=os.environ.get("PATH", os.defpath)) is None:
        raise OptionError(f"--execute: there is no program {program} on the PATH that may be run")


def command_identity(command: str) -> dict[str, Any]:
    """What a result depends on besides the program: the command, and the files that its words name (a script that is
    corrected is another command). What these call in turn is not seen."""
    files = {}
    for word in _words(command, ""):
        path = Path(word)
        with contextlib.suppress(OSError, ValueError):
            if path.is_absolute() and path.is_file() and path.stat().st_size <= _MAX_SCRIPT:
                files[word] = hashlib.sha256(path.read_bytes()).hexdigest()
    spec = json.dumps([command, sorted(files.items())])
    return {"command_sha256": hashlib.sha256(spec.encode()).hexdigest()}


def _words(command: str, path: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise OptionError(f"--execute: the command {command!r} cannot be split into words: {error}") from error
    if not words:
        raise OptionError("--execute: the command is empty")
    filled = [word.replace("{}", path) for word in words]
    return filled if filled != words else [*words, path]


def _start(words: list[str], folder: Path, output: int, limits: ExecuteLimits) -> subprocess.Popen[bytes]:
    bounds = [
        (resource.RLIMIT_DATA, limits.memory_mb << 20),
        (resource.RLIMIT_FSIZE, limits.file_mb << 20),
        (resource.RLIMIT_CORE, 0),
    ]
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _SHIM, json.dumps([bounds, words])],
        stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=folder, start_new_session=True,
        env={"PATH": os.defpath, **environment, "HOME": str(folder), "TMPDIR": str(folder)},
    )  # fmt: skip


def _clean(text: str, folder: str) -> str:
    text = _ESCAPE_SEQUENCE.sub("", text.replace(f"{folder}/", "").replace("\r\n", "\n"))
    return printable(text)[-_TAIL:].strip()


class Runner:
    """Runs programs by a command, and keeps each result in `folder`, so that an interrupted build runs none again."""

    def __init__(self, command: str, seconds: float, folder: Path) -> None:
        self.command, self.limits, self.folder = command, ExecuteLimits(seconds=seconds), folder
        self.identity = command_identity(command)

    def run(self, program: str) -> ExecuteResult:
        key = hashlib.sha256(json.dumps([self.identity, asdict(self.limits), program]).encode()).hexdigest()
        file = self.folder / f"{key}.json"
        with contextlib.suppress(OSError, ValueError, TypeError):
            return ExecuteResult(**json.loads(file.read_text(encoding="utf-8")))
        result = execute(self.command, program, self.limits)
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(file, json.dumps(asdict(result)).encode())
        return result
