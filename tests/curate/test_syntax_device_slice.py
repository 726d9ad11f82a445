"""The device part of a file: what stays, what goes, and that it compiles where nvcc is at hand."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from curate.syntax import device_slice, parse_cuda
from curate.syntax.device_slice import SHIPPED_HEADERS

SOURCE = """\
#include <torch/extension.h>
#include <cuda_runtime.h>
#include "my_utils.h"
#include <vector>
// größe
#define TILE 16
#define MAKE(name) __global__ void name(float* a) { a[threadIdx.x] = TILE; }
namespace cfg { constexpr int kWarps = 4; }
using namespace torch;
using scalar = float;
constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
__constant__ float weights[ceil_div(33, TILE)];
struct Pair { float x, y; __device__ float sum() const { return x + y; } };
MAKE(filled)
static int counter = 0;
template <typename T> __device__ T twice(T v) { return v + v; }
extern "C" {
__global__ void scale(scalar* a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] = twice(a[i]) * weights[0] + FLT_MAX * cfg::kWarps;
}
}
torch::Tensor forward(torch::Tensor x) {
  scale<<<1, 32>>>(x.data_ptr<float>(), 32);
  return x;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""
LEFT_OUT = ["torch/extension.h", "my_utils.h", "using namespace torch", "counter", "forward", "PYBIND11", "<<<"]
KEPT = [
    "cuda_runtime.h",
    "<vector>",
    "größe",
    "TILE 16",
    "MAKE(filled)",
    "kWarps = 4",
    "using scalar",
    "ceil_div",
    "weights[",
]
KEPT += ["struct Pair", "twice(T v)", 'extern "C"', "void scale"]


def test_host_code_goes_and_device_code_stays_on_its_line() -> None:
    sliced = device_slice(parse_cuda(SOURCE), prelude="")
    assert [text for text in LEFT_OUT if text in sliced] == []
    assert [text for text in KEPT if text not in sliced] == []
    for old, new in zip(SOURCE.split("\n"), sliced.split("\n"), strict=True):
        assert new.strip() == "" or new == old


def test_a_text_without_device_code_leaves_nothing() -> None:
    assert (
        device_slice(parse_cuda("#include <torch/extension.h>\nint main() { return 0; }\n"), prelude="").strip() == ""
    )


MAKERS = """\
#define INSTANTIATE(T, Op) template __global__ void k<T, Op>(T*);
#define FOR_MAX(T) INSTANTIATE(T, Max)
#define HOST(T) template void launch<T>(T*);
"""


@pytest.mark.parametrize(
    ("call", "kept"),
    [
        ("INSTANTIATE(int, Sum);", True),
        ("INSTANTIATE(float, Sum)", True),
        ("INSTANTIATE(const float*, Sum);", True),
        ("INSTANTIATE(unsigned long long, Sum);", True),
        ("INSTANTIATE(std::pair<int, float>, Sum);", True),
        ("FOR_MAX(int);", True),
        ("FOR_MAX(unsigned)", True),
        ("HOST(int);", False),
        ("HOST(unsigned long);", False),
        ("UNKNOWN(int, Sum);", False),
    ],
)
def test_a_macro_that_makes_device_code_is_kept_where_it_is_called(call: str, kept: bool) -> None:
    sliced = device_slice(parse_cuda(f"{MAKERS}{call}\n__global__ void last() {{}}\n"), prelude="")
    assert (call in sliced) is kept
    assert "void last() {}" in sliced


@pytest.mark.parametrize(
    "header", [b"<cuda_fp16.h>", b"<cub/cub.cuh>", b"<cmath>", b"<math.h>", b'"cuda_runtime.h"', b"<cuda/barrier>"]
)
def test_shipped_headers(header: bytes) -> None:
    assert SHIPPED_HEADERS.fullmatch(header)


@pytest.mark.parametrize(
    "header",
    [
        b"<ATen/ATen.h>",
        b"<c10/cuda/CUDAStream.h>",
        b'"common.cuh"',
        b"<pybind11/pybind11.h>",
        b"</etc/passwd>",
        b'"../x.h"',
    ],
)
def test_other_headers(header: bytes) -> None:
    assert not SHIPPED_HEADERS.fullmatch(header)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on the PATH")
def test_nvcc_takes_the_slice(tmp_path: Path) -> None:
    source = tmp_path / "slice.cu"
    source.write_text(device_slice(parse_cuda(SOURCE)), encoding="utf-8")
    command = ["nvcc", "-cubin", "-arch=sm_90", "-std=c++17", "-o", str(tmp_path / "slice.cubin"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
