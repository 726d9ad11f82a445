"""Copies of code are found, whatever they were dressed in; kernels that only look alike are kept."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.duplicates import (
    FINGERPRINT,
    THRESHOLD,
    Fingerprint,
    candidate_probability,
    find_duplicates,
    fingerprint,
    similarity,
)
from curate.duplicates.fingerprint import SKETCH
from curate.duplicates.similarity import jaccard
from curate.syntax import label_parsed, parse_cuda
from tests.pace import processor_time

KERNEL = """
#define BLOCK 256
__global__ void block_sum(const float *in, float *out, int n) {
    __shared__ float tile[BLOCK];
    int tid = threadIdx.x;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[tid] = i < n ? in[i] : 0.0f;  // out of range counts nothing
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step >>= 1) {
        if (tid < step) tile[tid] = tile[tid] + tile[tid + step];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = tile[0];
}
"""
HOST = """
#include <cstdio>
#include <cuda_runtime.h>
#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { printf("%s\\n", cudaGetErrorString(e)); exit(1); } } while (0)
int main() {
    int n = 1 << 20;
    float *a, *b, *host = (float *)malloc(n * sizeof(float));
    for (int i = 0; i < n; ++i) host[i] = i % 7;
    CHECK(cudaMalloc(&a, n * sizeof(float)));
    CHECK(cudaMalloc(&b, n * sizeof(float)));
    CHECK(cudaMemcpy(a, host, n * sizeof(float), cudaMemcpyHostToDevice));
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaEventRecord(begin));
    NAME<<<(n + 255) / 256, 256>>>(a, b, n);
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    CHECK(cudaMemcpy(host, b, n * sizeof(float), cudaMemcpyDeviceToHost));
    printf("%f ms, %f\\n", ms, host[0]);
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    free(host);
    return 0;
}
"""
PROGRAM = KERNEL + HOST.replace("NAME", "block_sum")
RENAMED = PROGRAM
for old, new in {
    "block_sum": "reduce", "in": "src", "out": "dst", "tile": "cache", "tid": "t", "i": "gid", "step": "offset", "n": "len",
    "BLOCK": "THREADS", "a": "d_in", "b": "d_out", "host": "h", "CHECK": "OK", "e": "err", "begin": "t0", "end": "t1",
}.items():  # fmt: skip
    RENAMED = re.sub(rf"(?<!\\)\b{old}\b", new, RENAMED)
OTHER_HOST = """
#include <torch/extension.h>
torch::Tensor forward(torch::Tensor x) {
    auto out = torch::empty({(x.numel() + 255) / 256}, x.options());
    block_sum<<<out.numel(), 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "block sums"); }
"""


def prints(*codes: str) -> Fingerprint:
    parsed = [parse_cuda(code) for code in codes]
    found = fingerprint([(p, label_parsed(p)) for p in parsed])
    assert found is not None
    return found


def alike(one: str, other: str) -> float:
    return similarity(prints(one), prints(other))


def row(number: int, code: str, **more: Any) -> dict[str, Any]:
    return {
        "row": number, "sample_id": f"{number:032x}", "compile_status": None, "error_share": 0.0, "license": "MIT",
        "code_bytes": len(code), **vars(prints(code)), **more,
    }  # fmt: skip


def found(rows: Sequence[dict[str, Any]], folder: Path, frames: int = 1, threshold: float = THRESHOLD) -> pl.DataFrame:
    schema = {
        "row": pl.Int64(), "sample_id": pl.String(), "compile_status": pl.String(), "error_share": pl.Float64(),
        "license": pl.String(), "code_bytes": pl.Int64(), **FINGERPRINT,
    }  # fmt: skip
    size = max(1, -(-len(rows) // frames))
    parts = [pl.DataFrame(rows[i : i + size], schema) for i in range(0, len(rows), size)]
    result = list(find_duplicates(parts, folder / "index.duckdb", threshold))
    return pl.concat(result) if result else pl.DataFrame(schema={"row": pl.Int64(), "kept_row": pl.Int64()})


def reformatted(code: str) -> str:
    """Every space another one, every comment gone, line breaks where C++ allows them."""
    code = re.sub(r"//[^\n]*", "", code)
    lines = [line if line.startswith("#") else re.sub(r"([;{])", r"\1\n\t", line).strip() for line in code.split("\n")]
    return "/* rewritten */\n" + "\n\n".join(lines)


TWINS = {
    "reformatted": (reformatted(PROGRAM), "exact_code"),
    "comments": (PROGRAM.replace("// out of range counts nothing", "/* zero beyond\n the end */"), "exact_code"),
    "renamed": (RENAMED, "renamed"),
    "renamed and reformatted": (reformatted(RENAMED), "renamed"),
    "macro": (RENAMED.replace("THREADS 256", "THREADS 512"), "near"),
    "kernel line": (PROGRAM.replace("if (tid == 0)", "if (i >= n) return;\n    if (tid == 0)"), "near"),
    "host lines": (RENAMED.replace("free(h);", "free(h);\n    cudaDeviceReset();").replace("% 7", "% 11"), "near"),
    "bounds": (PROGRAM.replace("void block_sum", "void __launch_bounds__(256) block_sum"), "near"),
}


@pytest.mark.parametrize("name", TWINS)
def test_twin_is_found(name: str, tmp_path: Path) -> None:
    twin, kind = TWINS[name]
    result = found([row(0, PROGRAM), row(1, twin, sample_id="f" * 32, code_bytes=10**6)], tmp_path)
    assert result.select("row", "kept_row", "kind").rows() == [(1, 0, kind)]
    assert (result["similarity"][0] == 1.0) == (kind != "near")


NEAR_MISSES = {
    "maximum": PROGRAM.replace("tile[tid] + tile[tid + step]", "fmaxf(tile[tid], tile[tid + step])"),
    "product": PROGRAM.replace("tile[tid] + tile", "tile[tid] * tile").replace("0.0f", "1.0f"),
    "product, same identity": PROGRAM.replace("tile[tid] + tile", "tile[tid] * tile"),
    "atomic": PROGRAM.replace("out[blockIdx.x] = tile[0]", "atomicAdd(out, tile[0])"),
    "cached load": PROGRAM.replace("? in[i]", "? __ldg(&in[i])"),
    "barrier of the warp": PROGRAM.replace("tid + step];\n        __syncthreads();", "tid + step];\n        __syncwarp();"),
    "constant memory": PROGRAM.replace("__global__", "__constant__ float scale;\n__global__", 1),
    "same kernel, other program": KERNEL + OTHER_HOST,
    "same program, other kernel": "__global__ void block_sum(const float *in, float *out, int n) {\n"
    "    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)\n"
    "        out[i] = 2.0f * in[i];\n}\n" + HOST.replace("NAME", "block_sum"),
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_kernel_that_only_looks_alike_is_kept(name: str, tmp_path: Path) -> None:
    assert NEAR_MISSES[name] != PROGRAM
    assert found([row(0, PROGRAM), row(1, NEAR_MISSES[name])], tmp_path).is_empty()


def test_names_that_are_not_the_texts_own_stay() -> None:
    body = "__global__ void k(float *x) {{ x[threadIdx.{}] = {}(x[0]); {} }}"
    one = prints(body.format("x", "sinf", "__syncthreads();"))
    others = (("y", "sinf", "__syncthreads();"), ("x", "cosf", "__syncthreads();"), ("x", "sinf", "__syncwarp();"))
    for other in others:
        assert prints(body.format(*other)).shape_hash != one.shape_hash
    assert (
        prints(
            body.format("x", "sinf", "__syncthreads();").replace("float *x", "float *y").replace("x[", "y[")
        ).shape_hash
        == one.shape_hash
    )


def test_renaming_must_be_consistent() -> None:
    one = prints("__global__ void k(int *a, int *b, int *c) { a[0] = b[0] - c[0]; }")
    swapped = prints("__global__ void k(int *a, int *b, int *c) { a[0] = c[0] - b[0]; }")
    merged = prints("__global__ void k(int *a, int *b, int *c) { a[0] = b[0] - b[0]; }")
    assert len({one.shape_hash, swapped.shape_hash, merged.shape_hash}) == 3


def test_what_the_grammar_cannot_take_still_counts() -> None:
    base = "__global__ void __launch_bounds__({}) k(int *a) {{ a[0] = 1; }}"
    one, other = prints(base.format("128")), prints(base.format("256"))
    assert one.code_hash != other.code_hash
    assert one.code_hash == prints(base.format(" /* a warp */ 128 ")).code_hash


def test_names_go_through_all_blocks() -> None:
    one = prints("__device__ int helper(int a) { return a; }", "__global__ void k(int *p) { *p = helper(1); }")
    other = prints("__device__ int aid(int b) { return b; }", "__global__ void f(int *q) { *q = aid(1); }")
    assert one.shape_hash == other.shape_hash
    assert one.code_hash != other.code_hash


BEST = [
    ({"compile_status": "ok", "error_share": 0.5}, {"compile_status": "skipped"}),
    ({"compile_status": None}, {"compile_status": "error"}),
    ({"error_share": 0.1, "license": None}, {"error_share": 0.2}),
    ({"license": "Apache-2.0", "code_bytes": 900}, {"license": "GPL-3.0-only"}),
    ({"license": "GPL-3.0-only"}, {"license": None}),
    ({"code_bytes": 90, "sample_id": "f"}, {"code_bytes": 91, "sample_id": "a"}),
    ({"sample_id": "a"}, {"sample_id": "b"}),
]


@pytest.mark.parametrize(("better", "worse"), BEST)
@pytest.mark.parametrize("twin", ["renamed", "macro"])
def test_best_row_is_kept(better: dict[str, Any], worse: dict[str, Any], twin: str, tmp_path: Path) -> None:
    common = {"code_bytes": 80}
    rows = [row(0, TWINS[twin][0], **common | worse), row(1, PROGRAM, **common | better)]
    result = found(rows, tmp_path)
    assert result.select("row", "kept_row").rows() == [(0, 1)]
    assert result["kept_id"].to_list() == [rows[1]["sample_id"]]


def chain(links: int) -> list[str]:
    """Each differs from the one before by a fifth of its statements at most, the ends share nothing."""
    lines = [f"    out[{n}] = in[{n * n + 3}] + in[{n + 7}];" for n in range(20 + links)]
    head = "__global__ void k(const float *in, float *out) {\n"
    return [head + "\n".join(lines[i : i + 20]) + "\n}\n" for i in range(0, links, 1)]


def test_chain_keeps_what_is_unlike_everything_kept(tmp_path: Path) -> None:
    codes = chain(20)
    rows = [row(n, code, code_bytes=100 + n) for n, code in enumerate(codes)]
    result = found(rows, tmp_path)
    refused = {r["row"]: r for r in result.iter_rows(named=True)}
    kept = [n for n in range(len(codes)) if n not in refused]
    assert 3 <= len(kept) < len(codes)
    for n, r in refused.items():
        assert r["kept_row"] in kept
        assert r["similarity"] == pytest.approx(alike(codes[n], codes[r["kept_row"]]))
        assert r["similarity"] >= THRESHOLD
        assert r["similarity"] == max(alike(codes[n], codes[k]) for k in kept if k < n)
    assert all(alike(codes[a], codes[b]) < THRESHOLD for a in kept for b in kept if a < b)


def test_copies_of_a_refused_row_name_a_kept_one(tmp_path: Path) -> None:
    twin = TWINS["macro"][0]
    rows = [row(0, PROGRAM, code_bytes=1), row(1, twin, code_bytes=2), row(2, reformatted(twin), code_bytes=3)]
    result = found(rows, tmp_path)
    assert result.select("row", "kept_row", "kind").rows() == [(1, 0, "near"), (2, 0, "near")]
    assert result["similarity"].n_unique() == 1


def test_order_of_rows_and_frames_changes_nothing(tmp_path: Path) -> None:
    codes = [PROGRAM, *(code for code, _ in TWINS.values()), *NEAR_MISSES.values(), *chain(8)]
    rows = [row(n, code) for n, code in enumerate(codes)]
    plain = found(rows, tmp_path).sort("row")
    assert 8 <= len(plain) < len(rows) - 6
    for seed in range(3):
        mixed = random.Random(seed).sample(rows, len(rows))
        numbered = [{**r, "row": n} for n, r in enumerate(mixed)]
        back = dict(zip(range(len(mixed)), (r["row"] for r in mixed), strict=True))
        result = found(numbered, tmp_path, frames=seed + 2)
        same = result.with_columns(pl.col("row", "kept_row").replace(back)).sort("row")
        assert same.equals(plain)


def test_more_rows_than_a_batch(tmp_path: Path) -> None:
    """Every kernel has a twin far away in the order; and nothing else falls."""
    codes = [
        "__global__ void k(float *x, int n) { int i = threadIdx.x; if (i < n) { " + " ".join(
            f"x[i + {n * 31 + m}] = x[i * {m + 2}] {'+-*/'[(n + m) % 4]} {n * 17 + m}.0f;" for m in range(8)
        ) + " }}"
        for n in range(300)
    ]  # fmt: skip
    twins = [
        code.replace("int n)", "int count)").replace("i < n", "i < count").replace("x[", "data[").replace("*x", "*data")
        + "\nint spare = 1;"
        for code in codes
    ]
    rows = [row(n, code) for n, code in enumerate(codes)] + [
        row(1000 + n, code, compile_status="error") for n, code in enumerate(twins)
    ]
    result = found(rows, tmp_path, frames=7)
    assert result.select("row", "kept_row").rows() == [(1000 + n, n) for n in range(300)]
    assert set(result["kind"]) == {"near"}


def test_rows_without_code_are_left_alone(tmp_path: Path) -> None:
    empty = dict.fromkeys(FINGERPRINT)
    rows = [{**row(n, PROGRAM), **empty} for n in range(3)]
    assert found(rows, tmp_path).is_empty()
    assert found([], tmp_path).is_empty()
    assert fingerprint([]) is None
    parsed = parse_cuda("// nothing but a comment")
    assert fingerprint([(parsed, label_parsed(parsed))]) is None


@given(
    st.sets(st.integers(0, 2**32 - 1), max_size=600),
    st.sets(st.integers(0, 2**32 - 1), max_size=600),
    st.integers(0, 600),
)
@settings(max_examples=60, deadline=None)
def test_jaccard_of_sketches(one: set[int], other: set[int], shared: int) -> None:
    common = set(range(0, shared * 2**22, 2**22))
    one, other = one | common, other | common
    exact = len(one & other) / len(one | other) if one | other else 1.0
    sketches = [np.array(sorted(s)[:SKETCH], np.uint32) for s in (one, other)]
    if max(len(one), len(other)) < SKETCH:
        assert jaccard(*sketches) == pytest.approx(exact)
    smallest = sorted(one | other)[:SKETCH]
    if len(one | other) > SKETCH and max(len(one), len(other)) >= SKETCH:
        assert jaccard(*sketches) == pytest.approx(len([x for x in smallest if x in one and x in other]) / SKETCH)
    assert jaccard(*sketches) == jaccard(*sketches[::-1])


def test_s_curve() -> None:
    """Two sets that agree in a share s of each half of a band meet with the stated probability."""
    rng = np.random.default_rng(0)
    from curate.duplicates.fingerprint import _bands

    for share in (0.5, 0.8):
        met = 0
        for _ in range(300):
            size, common = 400, int(800 * share / (1 + share))
            shared = rng.integers(0, 2**63, common, dtype=np.uint64)
            sets = [np.concatenate([shared, rng.integers(0, 2**63, size - common, dtype=np.uint64)]) for _ in range(2)]
            one, other = (np.frombuffer(_bands(s, s), "<u8") for s in sets)
            met += bool((one == other).any())
        assert met / 300 == pytest.approx(candidate_probability(share), abs=0.07)


@given(st.text(max_size=300))
@settings(max_examples=60, deadline=None)
def test_any_text_has_a_fingerprint_or_none(text: str) -> None:
    parsed = parse_cuda(text)
    result = fingerprint([(parsed, label_parsed(parsed))])
    assert result is None or len(result.code_hash) == 16


HOSTILE = {
    "braces": "{" * 10_000 + "}" * 10_000,
    "one name": "int " + "a" * 100_000 + ";",
    "names": "int a;" * 60_000,
    "sum": "int x = " + "+".join(f"a{n}" for n in range(60_000)) + ";",
    "macro": "#define A " + "x(1) " * 10_000 + "\n",
    "string": 'const char *s = "' + "\\n" * 200_000 + '";',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_time_is_linear_on_hostile_text(name: str) -> None:
    parsed = parse_cuda(HOSTILE[name])
    labels = label_parsed(parsed)
    with processor_time(5):
        fingerprint([(parsed, labels)])
