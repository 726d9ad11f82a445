"""Rows that go for the compiler, through whole builds: each costs itself at most, and every row is accounted for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import fenced, pair

import curate.compiling.check
from curate import build as build_command
from curate.build import run
from curate.compiling import CompileResult, CompileSettings
from curate.compiling.nvrtc import nvrtc_version
from curate.compiling.pool import Worker
from curate.compiling.unit import make_unit
from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.errors import SourceError
from tests.curate.planted_rows import BENCHMARK
from tests.pace import processor_time

Write = Callable[..., Path]
TABLE = "__device__ const int t[] = {{{0}0}};\n__global__ void look(int *a) {{ a[0] = t[a[1]]; }}\n"
NUMBER = "1234567890, "
WORK = "__global__ void work(int *a, const int *b) {{\n    {}\n}}\n"
HOSTILE = {
    "table": TABLE.format(NUMBER * 420_000),
    "spin": WORK.format("constexpr int z = [] { long s = 0; for (long i = 0; i < 1000000000000; i++) s += i % 3; return (int)s; }();\n    a[0] = z * b[0];"),
    "templates": "template <int N, int M> struct F { static const int v = F<N + 1, M>::v + F<N + 1, M + 1>::v; };\n" + WORK.format("a[0] = F<0, 0>::v * b[0];"),
    "memory": "__device__ int t[134217728] = {1};\n" + WORK.format("a[0] = t[b[0]];"),
    "bomb": "#define A(x) x; x; x; x; x; x; x; x; x; x\n#define B(x) A(A(A(x)))\n#define C(x) B(B(B(x)))\n" + WORK.format("C(a[0] += b[0]);"),
    "absolute": WORK.format('const char s[] = {\n#include "/etc/passwd"\n    };\n    a[0] = s[b[0]];'),
    "parent": WORK.format("a[0] = b[0];\n#include <../../../etc/passwd>"),
    "input": WORK.format('a[0] = b[0];\n#include "/dev/stdin"'),
    "line": '#line 1 "/etc/passwd"\n' + WORK.format("a[0] = b[0] + missing;"),
}  # fmt: skip
PROSE = "You may use this for whatever you like, as long as you tell me about it; see the wiki for the rest. " * 30


def built(source: Path, model: Path, out: Path, **options: Any) -> tuple[pl.DataFrame, dict[str, str]]:
    """(accepted rows, reasons of the others by id) of a build in which no row failed."""
    config = BuildConfig(source=(str(source),), out=out, model=str(model), skip_scoring=True, **options)
    counts = build_dataset(config)["counts"]
    samples, rejected = (pl.read_parquet(out / table / "*.parquet") for table in ("samples", "rejected"))
    assert counts["read"] == len(samples) + len(rejected)
    assert counts["failed"] == 0
    return samples, dict(rejected.select("source_id", "reason").iter_rows())


needs_nvrtc = pytest.mark.skipif(not nvrtc_version(), reason="NVRTC is not installed (extra `compile`)")


def hostile_rows(*names: str) -> list[dict[str, Any]]:
    """Hostile rows between good ones."""
    rows = [{"id": name, "prompt": f"Do {name}.", "response": fenced(HOSTILE[name])} for name in names]
    return [pair(0, id="good-0"), *rows, pair(1, id="good-1")]


@pytest.mark.compiles
@needs_nvrtc
def test_compilers_read_no_file_and_take_long_tables(write_rows: Write, model_folder: Path, tmp_path: Path) -> None:
    files = ("absolute", "parent", "input", "line")
    rows = [*hostile_rows("table", *files), {**pair(7), "id": "prose", "license": PROSE}]
    off = ("number_table=off", "long_line=off", "too_long=off")
    samples, reasons = built(write_rows(rows), model_folder, tmp_path / "out", jobs=1, license="MIT", filter=off)
    assert reasons == dict.fromkeys(files, "compile_refused")
    statuses = dict(samples.select("source_id", "compile_status").iter_rows())
    assert statuses == {"good-0": "ok", "good-1": "ok", "table": "ok", "prose": "ok"}
    (flag,) = samples.filter(source_id="prose")["flags"][0]
    assert flag == {"reason": "unknown_license", "detail": f"the licence is a text of {len(PROSE.strip())} characters"}
    refused = pl.read_parquet(tmp_path / "out" / "refused" / "*.parquet")
    assert not refused["evidence"].fill_null("").str.contains("root:").any()


@pytest.mark.compiles
@needs_nvrtc
def test_what_spins_and_what_eats_memory_costs_its_time(write_rows: Write, model_folder: Path, tmp_path: Path) -> None:
    """What a compiler gives up by itself is an error, what it does not a timeout; which of them is a matter of speed."""
    bad = ("spin", "templates", "memory", "bomb")
    began = time.monotonic()
    samples, reasons = built(
        write_rows(hostile_rows(*bad)), model_folder, tmp_path / "out", jobs=2, license="MIT", compile_seconds=4
    )
    assert time.monotonic() - began < 40
    assert set(reasons) == set(bad)
    assert set(reasons.values()) <= {"compile_error", "compile_timeout"}
    assert reasons["bomb"] == "compile_timeout"
    assert samples["compile_status"].to_list() == ["ok", "ok"]


def test_a_table_of_five_megabytes_is_cut_out_in_linear_time() -> None:
    table = TABLE.format(NUMBER * 420_000)
    with processor_time(10):
        unit = make_unit(table, "block1.cu")
    assert unit is not None
    assert unit.code == table


class Killed(Worker):
    """A worker whose process is killed in the middle of the answer that holds a word, whoever asks and how often."""

    def ask(self, blocks: Sequence[str], settings: CompileSettings) -> CompileResult:
        done = threading.Event()
        victim = any("good3" in block for block in blocks)
        thread = threading.Thread(target=self._kill, args=(done,))
        if victim:
            thread.start()
        try:
            return super().ask(blocks, settings)
        finally:
            done.set()
            if victim:
                thread.join()

    def _kill(self, done: threading.Event) -> None:
        while not done.wait(0.002):
            if (pid := self.pid) is not None:
                try:
                    os.killpg(pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    continue


@pytest.mark.compiles
@needs_nvrtc
def test_a_compiler_that_is_killed_costs_one_row_its_judgement(
    write_rows: Write, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curate.compiling.check, "Worker", Killed)
    rows = [pair(n, pair(n)["response"].split("```")[1][5:].replace("scale", "good"), id=str(n)) for n in range(6)]
    samples, reasons = built(write_rows(rows), model_folder, tmp_path / "out", jobs=1, license="MIT")
    assert reasons == {}
    statuses = dict(samples.select("source_id", "compile_status").iter_rows())
    assert statuses == {str(n): "skipped" if n == 3 else "ok" for n in range(6)}


@pytest.mark.parametrize(
    ("text", "says"),
    [('{"colour": "red", "size": 3}\n', "none of its columns"), ("", "no rows"), ("not json at all\n", "--against")],
)
def test_a_benchmark_that_says_nothing_is_one_line(
    write_rows: Write, model_folder: Path, tmp_path: Path, text: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark, out = tmp_path / "bench.jsonl", tmp_path / "out"
    benchmark.write_text(text)
    arguments = ["--source", str(write_rows([pair(0)])), "--out", str(out), "--model", str(model_folder)]
    with pytest.raises(SourceError, match=says) as error:
        run([*arguments, "--skip-scoring", "--against", str(benchmark)])
    assert "\n" not in str(error.value)
    assert not out.exists()


def test_code_two_and_one_line(write_rows: Write, model_folder: Path, tmp_path: Path) -> None:
    """The same as a user sees it."""
    benchmark = tmp_path / "bench.jsonl"
    benchmark.write_text('{"colour": "red"}\n' + BENCHMARK.replace('"prompt"', '"p"').replace('"code"', '"c"'))
    options = ["--source", write_rows([pair(0)]), "--out", tmp_path / "o", "--model", model_folder, "--skip-scoring"]
    command = [sys.executable, "-m", build_command.__name__, *map(str, options), "--against", str(benchmark)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    (line,) = done.stderr.strip().splitlines()
    assert (done.returncode, line.startswith("error: --against"), "colour" in line) == (2, True, True)
