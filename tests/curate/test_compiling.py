"""What compiles, what does not and why, with planted kernels. NVRTC comes with the extra `compile`; no GPU is needed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from curate.compiling import CompileResult, CompileSettings, check_archs, compilable_texts
from curate.compiling.cache import Cache
from curate.compiling.judge import compile_blocks
from curate.compiling.messages import clean_log, kernel_name, printable
from curate.compiling.nvcc import nvcc_version
from curate.compiling.nvrtc import nvrtc_version
from curate.compiling.pool import Worker
from curate.compiling.standard import headers_for
from curate.compiling.unit import make_unit
from curate.errors import OptionError
from curate.extract import extract_cuda

needs_nvrtc = pytest.mark.skipif(not nvrtc_version(), reason="NVRTC is not installed (extra `compile`)")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on the PATH")
NVRTC = CompileSettings(use_nvcc=False)
OK = "__global__ void scale(float *x, float a) { x[threadIdx.x] *= a; }\n"


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


@needs_nvrtc
@pytest.mark.parametrize(
    "code",
    [
        OK,
        "#include <cuda_runtime.h>\n#include <stdio.h>\n#include <vector>\n"
        + OK
        + "int main() { std::vector<int> v; }",
        "#include <cuda_fp16.h>\n__global__ void k(__half *x) { x[0] = __hadd(x[1], __float2half(2.0f)); }",
        "#include <mma.h>\nusing namespace nvcuda;\n__global__ void k(half *a) {\n"
        " wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> f; wmma::load_matrix_sync(f, a, 16); }",
        "__global__ void k(float *x, int64_t n) { x[0] = FLT_MAX + INFINITY + M_PI + pow(2.0, x[1]) + UINT32_MAX + n; }",
        "#include <cmath>\n#include <limits>\n#include <algorithm>\n__global__ void k(float *x, int n) {\n"
        " x[0] = std::max(std::sqrt(x[1]), std::numeric_limits<float>::lowest()) + std::abs(n) + std::pow(x[2], 2);\n"
        " x[1] = std::is_same<float, int>::value + std::isnan(x[2]) + std::exp(n); }",
        "constexpr int up(int a, int b) { return (a + b - 1) / b; }\n__global__ void k(int *x) { x[0] = up(x[1], 4); }",
        '__global__ void k() { asm volatile("wgmma.fence.sync.aligned;"); }',  # sm_90a
        "template <class T, int N, class F> __global__ void k(T *x, F f) { x[0] = f(x[1]) + N; }\n" + OK,
        "#include <cuda.h>\n__global__ void k(const __grid_constant__ CUtensorMap map, float *x) { x[0] = 1; }",
    ],
)
def test_what_compiles(worker: Worker, code: str) -> None:
    result = worker.ask([code], NVRTC)
    assert (result.status, result.log) == ("ok", "")
    assert result.engine == f"nvrtc {nvrtc_version()}"
    assert len(result.kernels) == 1


ERRORS = [
    ("\n\n__global__ void k(float *x) {\n  x[0] = undefined_name;\n}\n", 'block1.cu(4): error: identifier "undefined_name"'),
    ("__global__ void k(float *x) {\n x[0] = 1\n}\n", 'block1.cu(3): error: expected a ";"'),
    ("__global__ int k(float *x) { return 1; }\n", "block1.cu(1): error: a __global__ function must have a void return"),
    ("float host(float x) { return x; }\n__global__ void k(float *x) { x[0] = host(1); }", 'block1.cu(2): error: identifier "host"'),
    ("template <class T> __global__ void k(T *x) { x[0] = nothing; }\nvoid go(float *x) { k<float><<<1, 1>>>(x); }", 'block1.cu(1): error: identifier "nothing"'),
    ("template <class T> __global__ void k(T *x) { x[0] = ; }", "block1.cu(1): error: expected an expression"),
    (
        "template <class T> __global__ void k(T *x) {\n  x->f();\n}\nvoid go(float *x) { k<float><<<1, 1>>>(x); }",
        "block1.cu(2): error: expression must have pointer-to-class type",
    ),
    ("__global__ void k(int *x) { __shared__ int s[65536]; s[x[0]] = 1; x[1] = s[x[2]]; }", "too much shared data"),
    ('__global__ void k() { asm volatile("no.such.instruction;"); }', "no"),
    ("#include <torch/extension.h>\n__global__ void k(float *x) { x[0] = MAX_SIZE; }", 'identifier "MAX_SIZE"'),
]  # fmt: skip


@needs_nvrtc
@pytest.mark.parametrize(("code", "message"), ERRORS)
def test_what_does_not(worker: Worker, code: str, message: str) -> None:
    result = worker.ask([code], NVRTC)
    assert (result.status, result.kernels, result.arch) == ("error", (), "sm_90")
    assert message in result.log


@needs_nvcc
def test_nvcc_confirms_errors_and_names_the_same_line(worker: Worker) -> None:
    result = worker.ask([ERRORS[0][0]], CompileSettings())
    assert (result.status, result.engine) == ("error", f"nvcc {nvcc_version()}")
    assert ERRORS[0][1] in result.log


@needs_nvrtc
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("int main() { return 0; }\n", "no device code"),
        ("template <class T> __global__ void k(T x) { x.member(); }", "nothing instantiates the template kernel k"),
        ("#include <cutlass/numeric_types.h>\n__global__ void k(float *x) { x[0] = cutlass::half_t(1); }", "<cutlass/numeric_types.h>"),
        ('#include "common.cuh"\n__global__ void k(float *x) { x[0] = TILE; }', 'needs the header "common.cuh"'),
        ("#include <torch/extension.h>\n__global__ void k(at::Half *x) { x[0] = 1; }", "<torch/extension.h>"),
        ("#include <curand_kernel.h>\n__global__ void k(curandState *s) { curand(s); }", "curand_kernel.h"),
        ("struct P { int n; P() { n = 1; } };\n__global__ void k(int *x, P p) { x[0] = p.n; }", "needs nvcc"),
        ("#include <array>\n__global__ void k(std::array<int, 3> *x) { x[0][1] = 1; }", "needs nvcc"),
        ("struct P { std::vector<int> v; };\n" + OK, "needs nvcc"),
    ],
)  # fmt: skip
def test_what_nobody_here_can_judge(worker: Worker, code: str, reason: str) -> None:
    result = worker.ask([code], NVRTC)
    assert result.status == "skipped"
    assert reason in result.log


@needs_nvcc
def test_nvcc_judges_what_nvrtc_cannot(worker: Worker) -> None:
    head = "#include <vector>\nstruct P { int n; P() { n = 1; } int twice() { return 2 * n; } std::vector<int> *v; };\n"
    fine = worker.ask([head + "__global__ void k(int *x, P p) { x[0] = p.n; }"], CompileSettings())
    assert (fine.status, fine.engine, fine.kernels[0].name) == ("ok", f"nvcc {nvcc_version()}", "k")
    wrong = worker.ask([head + "__global__ void k(int *x, P p) { x[0] = p.twice(); }"], CompileSettings())
    assert (wrong.status, "P::twice" in wrong.log) == ("error", True)


@needs_nvcc
def test_nvcc_instantiates_what_is_launched(tmp_path: Path) -> None:
    from curate.compiling.nvcc import compile_nvcc

    code = "template <class T, int N> __global__ void k(T *x) {{ x[0]{} = N; }}\nvoid go(float *x) {{ k<float, 4><<<1, 1>>>(x); }}"
    unit = make_unit(code.format(""), "block1.cu")
    wrong = make_unit(code.format(".f"), "block1.cu")
    assert unit is not None
    assert wrong is not None
    assert unit.instances == ("k<float, 4>",)
    assert compile_nvcc(unit, "sm_90", tmp_path)[0]
    assert not compile_nvcc(wrong, "sm_90", tmp_path)[0]


@needs_nvrtc
def test_registers_shared_memory_and_spills(worker: Worker) -> None:
    spilling = """
__global__ void __launch_bounds__(1024, 2) spills(float *x) {
  float t[64];
  #pragma unroll
  for (int i = 0; i < 64; i++) t[i] = x[i * threadIdx.x];
  for (int j = 0; j < 20; j++) {
    #pragma unroll
    for (int i = 0; i < 64; i++) t[i] += t[(i * 7) % 64] * x[j];
  }
  #pragma unroll
  for (int i = 0; i < 64; i++) x[i] = t[i];
}
namespace inner {
__global__ void shares(float *x) {
  __shared__ float s[300];
  s[threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[threadIdx.x] = s[299 - threadIdx.x];
}
}
template <class T> __global__ void never(T *x) { x[0] = 1; }
template <int N> __global__ void sized(int *x) { __shared__ int s[N]; s[x[0]] = 1; x[1] = s[x[2]]; }
void go(int *x) { sized<16><<<1, 1>>>(x); sized<32><<<1, 1>>>(x); }
"""
    result = worker.ask([spilling], NVRTC)
    assert result.status == "ok"
    assert [use.name for use in result.kernels] == ["shares", "sized", "sized", "spills"]
    columns = result.parallel_to(["spills", "inner::shares", "never", "sized"])
    assert columns["shared_bytes"] == [0, 1200, None, 128]
    assert columns["registers"][0] == 32  # all that 2048 threads leave to one
    spilled = columns["spill_bytes"]
    assert spilled[0] is not None
    assert spilled[0] >= 128  # 64 floats do not fit into 32 registers
    assert spilled[1:] == [0, None, 0]


@needs_nvrtc
def test_every_architecture_counts(worker: Worker) -> None:
    code = "__global__ void k(int *x) {\n#if __CUDA_ARCH__ < 900\n  x[0] = missing;\n#endif\n}\n"
    one = worker.ask([code], NVRTC)
    both = worker.ask([code], CompileSettings(archs=("sm_90", "sm_80"), use_nvcc=False))
    fine = worker.ask([OK], CompileSettings(archs=("sm_90", "sm_80"), use_nvcc=False))
    assert (one.status, one.arch) == ("ok", "sm_90")
    assert (both.status, both.arch) == ("error", "sm_80")
    assert (fine.status, fine.arch, len(fine.kernels)) == ("ok", "sm_90,sm_80", 1)


@needs_nvrtc
def test_blocks_are_compiled_alone_or_else_as_one_file(worker: Worker) -> None:
    defines = "#define TILE 16\n__device__ float twice(float x) { return 2 * x; }\n"
    uses = "__global__ void k(float *x) { x[0] = twice(TILE); }\n"
    assert worker.ask([defines, uses], NVRTC).status == "ok"
    assert worker.ask([OK, OK], NVRTC).status == "ok"  # two versions, which no file could hold
    wrong = worker.ask([OK, "int main() {}", "\n__global__ void k(float *x) { x[0] = nothing; }"], NVRTC)
    assert (wrong.status, wrong.log.partition(" error")[0]) == ("error", "block3.cu(2):")


ANSWER = '''```python
import torch
from torch.utils.cpp_extension import load_inline
SIZE = 4
cuda_source = f"""
#include <torch/extension.h>
__global__ void twice(const float *x, float *y, int n) {{
  int i = blockIdx.x * {SIZE} + threadIdx.x + {SIZE * 2}{f(1)};
  if (i < n) y[i] = 2 * x[i];
}}
torch::Tensor run(torch::Tensor x) {{ twice<<<{SIZE}, 32>>>(x.data_ptr<float>(), 0, 1); return x; }}
"""
cpp_source = "torch::Tensor run(torch::Tensor x);"
module = load_inline(name="m", cpp_sources=cpp_source, cuda_sources=cuda_source, functions=["run"])
```
'''


@needs_nvrtc
def test_a_torch_extension_and_what_python_fills_in(worker: Worker) -> None:
    texts = compilable_texts(ANSWER, extract_cuda(ANSWER))
    assert "blockIdx.x * CUSET_FILLED_IN + threadIdx.x + CUSET_FILLED_INCUSET_FILLED_IN;" in texts[0]
    assert "twice<<<CUSET_FILLED_IN, 32>>>" in texts[0]
    assert "{ return x; }" not in texts[0]
    assert worker.ask(texts, NVRTC).status == "skipped"
    without = ANSWER.replace("blockIdx.x * {SIZE} + threadIdx.x + {SIZE * 2}{f(1)}", "blockIdx.x * 4 + threadIdx.x")
    texts = compilable_texts(without, extract_cuda(without))
    assert worker.ask(texts, NVRTC).status == "ok"  # the launch is host code, and no part of the slice
    plain = "```cuda\n" + OK + "```\n"
    assert compilable_texts(plain, extract_cuda(plain)) == [OK]


def test_no_compiler_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("curate.compiling.judge.nvrtc_version", lambda: "")
    result = compile_blocks([OK], NVRTC, tmp_path)
    assert (result.status, result.engine) == ("skipped", "none")
    assert "the extra `compile`" in result.log
    cache = Cache(tmp_path)  # NVRTC may be repaired without any other version
    cache.put("key", NVRTC, result)
    assert cache.get("key", NVRTC) is None
    cache.put("key", NVRTC, replace(result, log="no device code"))
    assert cache.get("key", NVRTC) is not None
    cache.close()


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_999", "garbage", "", "sm_90;rm", "compute_90", "90", "sm_90ff", "-sm_90"])
def test_an_architecture_that_nobody_knows_is_no_fault_of_the_rows(arch: str) -> None:
    with pytest.raises(OptionError, match="--arch") as error:
        check_archs(["sm_90", arch])
    assert "sm_80, " in str(error.value)
    check_archs(["sm_80", "sm_90", "sm_90a"])


@needs_nvrtc
def test_an_nvcc_too_old_for_the_architecture_is_not_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("curate.compiling.judge.nvcc_version", lambda: "12.0")
    monkeypatch.setattr("curate.compiling.judge.nvcc_archs", lambda: frozenset(("sm_80",)))
    result = compile_blocks(["#include <cub/none.cuh>\n__global__ void k() { f(); }"], CompileSettings(), tmp_path)
    assert (result.status, result.engine) == ("skipped", f"nvrtc {nvrtc_version()}")


@needs_nvrtc
def test_no_folder_of_this_machine_in_a_log(worker: Worker) -> None:
    broken_header = "#define __half 3\n#include <cuda_fp16.h>\n__global__ void k(float *x) { x[0] = 1; }"
    settings = [NVRTC, CompileSettings()]
    logs = [worker.ask([broken_header], s).log for s in settings]
    assert all(logs)
    assert [log for log in logs if re.search(r"/(?:usr|tmp|home|root|work|opt|var|lib)\b|site-packages", log)] == []
    assert printable("/usr/include/x.h(3): a / b, a/b/c, //c \x1b[3m\u202e") == "x.h(3): a / b, a/b/c, //c ?[3m?"
    assert len(clean_log("block1.cu(1): error: x\n" * 1000).split("\n")) == 12
    assert len(clean_log("x" * 1_000_000)) < 400


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z1kPf", "k"),
        ("plain", "plain"),
        ("_ZN5inner6sharesEPf", "shares"),
        ("_Z5sizedILi16EEvPi", "sized"),
        ("_ZN57_GLOBAL__N__00000000_9_block1_cu_0000000000000000_000000_000001kEPf", "k"),
        ("_Z99k", "k"),
        ("_Z", "_Z"),
    ],
)  # fmt: skip
def test_names_of_kernels(symbol: str, name: str) -> None:
    assert kernel_name(symbol) == name


def test_64_bit_types_are_those_of_a_host_or_of_nvidia_headers() -> None:
    assert "CUSET_INT64 long\n" in headers_for(OK)["cuset_standard"]
    assert "CUSET_INT64 long long\n" in headers_for("#include <cuda/barrier>\n" + OK)["cuset_standard"]


def test_results_survive_json() -> None:
    result = CompileResult("error", "nvcc 13.0", "sm_90", "log")
    assert CompileResult.from_json(result.to_json()) == result
    with pytest.raises(ValueError, match="status"):
        CompileResult.from_json({**result.to_json(), "status": "fine"})
