"""Compiling many answers: order, cache, limits, hostile source, and workers that die."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from curate.compiling import CompileResult, CompileSettings, check_all
from curate.compiling.cache import Cache, cache_key, compilers
from curate.compiling.nvrtc import nvrtc_version
from curate.compiling.pool import DIED, Worker

needs_nvrtc = pytest.mark.skipif(not nvrtc_version(), reason="NVRTC is not installed (extra `compile`)")
NVRTC = CompileSettings(use_nvcc=False)
OK = "__global__ void scale(float *x, float a) { x[threadIdx.x] *= a; }\n"
BROKEN = "__global__ void scale(float *x) { x[0] = missing; }\n"
BOMB = (
    "#define A(x) x x x x x x x x x x\n#define B(x) A(A(A(x)))\n#define C(x) B(B(B(x)))\n"
    "__global__ void k(int *a) { C(a[0]++;) }\n"
)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


@pytest.mark.parametrize(
    "code",
    [
        '__global__ void k(char *a) { const char s[] = {\n#include "/etc/passwd"\n}; }',
        "__global__ void k(char *a) {\n#inc\\\nlude </etc/passwd>\n}",
        "#define F </etc/passwd>\n__global__ void k(char *a) {\n#include F\n}",
        '#line 1 "/etc/passwd"\n' + BROKEN,
        '__global__ void k() { asm(".incbin \\"/etc/passwd\\""); }',
        '#pragma GCC dependency "/etc/passwd"\n' + OK,
    ],
)
def test_files_of_the_machine_are_not_read(worker: Worker, code: str) -> None:
    result = worker.ask([OK, code], CompileSettings())
    assert (result.status, result.engine) == ("refused", "none")
    assert result.log.startswith("block2.cu: ")
    assert "root:" not in result.log


def test_an_include_that_the_slice_leaves_out_is_no_matter(worker: Worker) -> None:
    result = worker.ask(['#include "../../etc/passwd"\n' + OK], NVRTC)
    assert result.status == ("ok" if nvrtc_version() else "skipped")


@needs_nvrtc
def test_a_compiler_that_spins_costs_its_time_and_nothing_else(worker: Worker) -> None:
    began = time.monotonic()
    result = worker.ask([BOMB], CompileSettings(seconds=2, use_nvcc=False))
    assert (result.status, result.log) == ("timeout", "not done after 2 s")
    assert time.monotonic() - began < 10
    assert worker.pid is None
    assert worker.ask([OK], NVRTC).status == "ok"


@needs_nvrtc
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("template <int N> struct F { static const int v = F<N + 1>::v; };\n__global__ void k(int *a) { a[0] = F<0>::v; }", {"error"}),
        ("__global__ void k(int *a) { constexpr int z = [] { long s = 0; for (long i = 0; i < 1000000000000; i++) s += i % 3; return (int)s; }(); a[0] = z; }", {"error", "timeout"}),
        ("__device__ const int t[] = {" + "123," * 50_000 + "0};\n__global__ void k(int *a) { a[0] = t[a[1]]; }", {"ok"}),
        ("__global__ void k() {" + "{" * 20_000 + "}" * 20_000 + "}", {"ok", "error", "skipped"}),
        ("__global__ void k(int *a) { a[0] = " + "(" * 20_000 + "1" + ")" * 20_000 + "; }", {"ok", "error", "skipped"}),
        ("__global__ void k(int *a) { int " + "x" * 100_000 + " = 1; a[0] = y; }", {"error"}),
        ("__global__ void k(int *a) { a[0] = '\0\x1b\ud800\u202e'; }", {"error", "ok", "skipped"}),
        ("__global__ void k( {\n" * 2000, {"error", "skipped"}),
    ],
)  # fmt: skip
def test_odd_source_ends_in_a_status(worker: Worker, code: str, status: set[str]) -> None:
    result = worker.ask([code], CompileSettings(seconds=8, use_nvcc=False))
    assert result.status in status
    assert len(result.log) <= 2000
    assert result.log.isprintable() or "\n" in result.log
    assert "\x1b" not in result.log


@needs_nvrtc
def test_memory_has_a_limit() -> None:
    worker = Worker()
    try:
        result = worker.ask([BOMB], CompileSettings(seconds=20, memory_mb=1500, use_nvcc=False))
        assert result.status in ("skipped", "error", "timeout")
        assert worker.ask([OK], NVRTC).status == "ok"
    finally:
        worker.close()


@needs_nvrtc
def test_a_worker_killed_in_the_middle_is_asked_again() -> None:
    worker = Worker()
    try:
        assert worker.ask([OK], NVRTC).status == "ok"
        first = worker.pid
        assert first is not None
        timer = threading.Timer(0.7, os.killpg, (first, signal.SIGKILL))
        timer.start()
        result = worker.ask([BOMB], CompileSettings(seconds=3, use_nvcc=False))
        timer.join()
        assert result.status == "timeout"  # of the second process: the first one died before
        assert worker.ask([OK], NVRTC).status == "ok"
        assert worker.pid != first
    finally:
        worker.close()


def test_a_worker_that_always_dies_costs_its_answer_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("curate.compiling.pool._BOOT", "import os; print(flush=True); os.kill(os.getpid(), 9)")
    found = dict(check_all([(1, [OK]), (2, [BROKEN])], NVRTC, tmp_path, 1))
    assert {result.status for result in found.values()} == {"skipped"}
    assert all(result.log.startswith(DIED) for result in found.values())
    monkeypatch.undo()
    if nvrtc_version():  # nothing of it was kept
        assert [r.status for _, r in check_all([(1, [OK]), (2, [BROKEN])], NVRTC, tmp_path, 1)] == ["ok", "error"]


@needs_nvrtc
def test_in_order_and_a_second_time_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sources = [(n, [BROKEN if n % 3 == 0 else OK.replace("scale", f"k{n}")]) for n in range(12)]
    taken = []

    def counted() -> Iterator[tuple[int, list[str]]]:
        for source in sources:
            taken.append(source[0])
            yield source

    first = []
    for number, result in check_all(counted(), NVRTC, tmp_path, 2):
        first.append((number, result))
        assert len(taken) <= len(first) + 8
    assert [number for number, _ in first] == list(range(12))
    assert [result.status for _, result in first] == ["error" if n % 3 == 0 else "ok" for n in range(12)]
    monkeypatch.setattr("curate.compiling.pool._BOOT", "raise SystemExit(1)")
    assert list(check_all(sources, NVRTC, tmp_path, 2)) == first


def test_what_a_key_depends_on() -> None:
    versions = compilers(False)
    key = cache_key([OK], NVRTC, versions)
    assert key == cache_key([OK], CompileSettings(seconds=1, use_nvcc=False), versions)
    others = [
        cache_key([BROKEN], NVRTC, versions),
        cache_key([OK, ""], NVRTC, versions),
        cache_key([OK], CompileSettings(archs=("sm_80",)), versions),
        cache_key([OK], NVRTC, {**versions, "nvcc": "12.0"}),
        cache_key([OK], NVRTC, {**versions, "nvidia-cuda-nvrtc": "1"}),
    ]
    assert len({key, *others}) == 6


def test_a_timeout_is_kept_for_narrower_limits_alone(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put("key", CompileSettings(seconds=10, memory_mb=1000), CompileResult("timeout"))
    cache.put("died", NVRTC, CompileResult("skipped", log=f"{DIED}, twice"))
    assert cache.get("key", CompileSettings(seconds=5, memory_mb=1000)) == CompileResult("timeout")
    assert cache.get("key", CompileSettings(seconds=11, memory_mb=1000)) is None
    assert cache.get("key", CompileSettings(seconds=10, memory_mb=1001)) is None
    assert cache.get("died", NVRTC) is None
    cache.close()


def test_a_damaged_cache_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "compiled.sqlite"
    path.write_bytes(b"no database at all" * 1000)
    cache = Cache(tmp_path)
    cache.put("key", NVRTC, CompileResult("ok"))
    assert cache.get("key", NVRTC) == CompileResult("ok")
    cache.close()
    with sqlite3.connect(path) as connection:
        connection.execute('update results set result = \'{"status": "fine"}\'')
    connection.close()
    again = Cache(tmp_path)
    assert again.get("key", NVRTC) is None
    again.close()


@needs_nvrtc
def test_an_iterator_that_is_closed_leaves_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    results = check_all(
        [(0, [OK]), (1, [BOMB]), (2, [BOMB]), (3, [OK])], CompileSettings(seconds=30, use_nvcc=False), None, 1
    )
    assert next(results)[1].status == "ok"
    assert len(list(tmp_path.iterdir())) == 1
    began = time.monotonic()
    results.close()
    assert time.monotonic() - began < 5
    assert list(tmp_path.iterdir()) == []


@needs_nvrtc
def test_a_worker_ends_with_its_parent_in_the_middle_of_a_compilation(tmp_path: Path) -> None:
    code = (
        "import sys, threading, time\nfrom curate.compiling import CompileSettings\nfrom curate.compiling.pool import Worker\n"
        "w = Worker(); threading.Thread(target=w.ask, args=([sys.argv[1]], CompileSettings(use_nvcc=False)), daemon=True).start()\n"
        "while w.pid is None: time.sleep(0.05)\nprint(w.pid, flush=True); time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, BOMB],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(2.5)  # well inside the compilation
    finally:
        parent.kill()
        parent.communicate()
    for _ in range(100):
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            assert list(tmp_path.iterdir()) == []
            return
        time.sleep(0.05)
    raise AssertionError("the worker outlived its parent")
