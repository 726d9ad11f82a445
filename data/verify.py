"""Compiles the corpus with nvcc: `python data/verify.py [FILES...]`; with `--count` it says what the corpus holds.

Every piece of CUDA in an answer gives a device slice (kernels, device functions, types, macros), compiled to a cubin;
a piece with a `main` is compiled and linked whole as well, with warnings as errors. Nothing that is built is ever run.
Prints a line for each failure and a summary. Exit code 1 on a failure, 2 for a file that cannot be read, 0 otherwise,
also where nvcc is missing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # also from outside the repository, uninstalled

from curate.extract import extract_cuda
from curate.syntax import device_slice, label, parse_cuda
from curate.taxonomy import CATEGORIES

__all__ = ["PAIRS", "Unit", "compile_unit", "has_main", "kinds", "main", "units"]

PAIRS = Path(__file__).resolve().parent / "corpus" / "pairs.jsonl"
_MESSAGE_LINES = 3
_OUTSIDE = re.compile(r'^\s*#\s*include\s*[<"](?:/|[^>"]*\.\.)|\.incbin', re.MULTILINE)


@dataclass(frozen=True)
class Unit:
    """One compilation: `name` is the pair's id with the number of the block."""

    name: str
    kind: Literal["slice", "program"]
    code: str


def has_main(code: str) -> bool:
    """Whether a function `main` is defined at the top level."""
    for node in parse_cuda(code).main.root.named_children:
        declarator = node.child_by_field_name("declarator") if node.type == "function_definition" else None
        name = declarator.child_by_field_name("declarator") if declarator is not None else None
        if name is not None and name.text == b"main":
            return True
    return False


def units(name: str, response: str) -> Iterator[Unit]:
    """What there is to compile: the slice of each block with device code, and a block with `main` whole."""
    for number, block in enumerate(extract_cuda(response), start=1):
        unit = f"{name}#{number}"
        code = device_slice(parse_cuda(block.text))
        if code.strip():
            yield Unit(unit, "slice", code)
        if has_main(block.text):
            yield Unit(unit, "program", block.text)


def kinds(prompt: str, response: str) -> set[str]:
    """The rows of the card's table that a pair counts for: its form, and `category NAME` for each one it touches."""
    blocks = extract_cuda(response)
    touched = {int(category) for block in blocks for category in np.unique(label(block.text).category)}
    found = {f"category {CATEGORIES[category]}" for category in touched if category}
    form = {"fence": "fenced code", "whole": "bare code", "python_string": "Python module with load_inline"}
    found |= {form[block.kind] for block in blocks}
    found |= {f"fence tagged {block.tag or 'with nothing'}" for block in blocks if block.kind == "fence"}
    if any(has_main(block.text) for block in blocks):
        found.add("complete program")
    if "<think>" in response:
        found.add("reasoning trace")
    if not (prompt + response).isascii():
        found.add("multi-byte characters")
    return found


def compile_unit(unit: Unit, arch: str, timeout: float) -> str | None:
    """None when nvcc takes it, else the first lines of what it said. Works in a folder of its own, which is removed."""
    if _OUTSIDE.search(unit.code):
        return "includes a file outside the compiler's own folders: not compiled"
    with tempfile.TemporaryDirectory(prefix="cuset-verify-") as folder:
        source = Path(folder) / "unit.cu"
        source.write_text(unit.code, encoding="utf-8", errors="replace")
        kind = ["-cubin"] if unit.kind == "slice" else ["-Werror", "all-warnings", "-Xcompiler", "-Wall"]
        command = ["nvcc", f"-arch={arch}", *kind, source.name, "-o", "unit.out"]
        # a file, not a pipe, and a process group of its own: after the time limit nothing is left that writes or hangs
        with (Path(folder) / "log").open("w+b") as log:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={"PATH": os.environ.get("PATH", ""), "TMPDIR": folder},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return f"not done after {timeout:g} s"
            if code == 0:
                return None
            log.seek(0)
            lines = [line.strip() for line in log.read(65536).decode("utf-8", "replace").splitlines() if line.strip()]
    return " | ".join(lines[:_MESSAGE_LINES]) or f"nvcc ended with code {code}"


def _rows(path: Path) -> Iterator[tuple[str, str, str]]:
    """(id, prompt, response) of a JSONL file; the line number stands in for a missing id."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            response = row["response"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{path}:{number}: no JSON object with a response") from error
        if not isinstance(response, str):
            raise ValueError(f"{path}:{number}: the response is no text")
        yield str(row.get("id", number)), str(row.get("prompt", "")), response


def main(
    files: tyro.conf.Positional[tuple[Path, ...]] = (PAIRS,),
    /,
    arch: str = "sm_90",
    jobs: int = 2,
    timeout: float = 120.0,
    count: bool = False,
) -> int:
    """Compile the CUDA of instruction/answer pairs with nvcc; nothing is run.

    Args:
        files: JSONL files with the columns id and response.
        arch: the architecture that nvcc compiles for.
        jobs: compilations at the same time.
        timeout: seconds for one compilation.
        count: print how many pairs there are of each kind, and compile nothing.
    """
    if not count and shutil.which("nvcc") is None:
        print("nvcc is not on the PATH: nothing was compiled", flush=True)
        return 0
    try:
        pairs = [row for path in files for row in _rows(path)]
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    if count:
        counts = Counter(kind for _, prompt, response in pairs for kind in kinds(prompt, response))
        print(f"{len(pairs):4d} pairs")
        for kind, number in sorted(counts.items()):
            print(f"{number:4d} {kind}")
        return 0
    work = [unit for name, _, response in pairs for unit in units(name, response)]
    without = len(pairs) - len({unit.name.rpartition("#")[0] for unit in work})
    begin = time.monotonic()
    with ThreadPoolExecutor(max(1, jobs)) as pool:  # the compiler runs in processes, so threads are enough
        outcome = list(pool.map(partial(compile_unit, arch=arch, timeout=timeout), work))
    return _report(len(pairs), without, work, outcome, time.monotonic() - begin)


def _report(pairs: int, without: int, work: Sequence[Unit], outcome: Sequence[str | None], seconds: float) -> int:
    failed = [(unit, message) for unit, message in zip(work, outcome, strict=True) if message is not None]
    for unit, message in failed:
        print(f"FAILED {unit.kind} {unit.name}: {message}")
    for kind in ("slice", "program"):
        total = sum(unit.kind == kind for unit in work)
        print(f"{kind}s: {total - sum(unit.kind == kind for unit, _ in failed)} of {total} compile")
    print(f"{pairs} pairs, {without} without device code; {seconds:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(tyro.cli(main))
