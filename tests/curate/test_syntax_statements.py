"""The paper's whole-statement labels, and where a character stands, on code with planted answers."""

from __future__ import annotations

import numpy as np
import pytest

from curate.syntax import label
from curate.taxonomy import NOT_DERIVED, Category, Location

# every line that begins with S is marked from its first to its last character, every other line not at all
ANNOTATED = """\
  | template <typename T>
  | __global__ void row_sums(const T* __restrict__ in, T* out, int rows, int cols) {
S |   __shared__ T partial[32];
S |   const int warp_width = 32;
  |   const T zero = T(0);
S |   int row = blockIdx.x;
S |   int lane = threadIdx.x % warp_width;
  |   T sum = zero;
  |   if (row >= rows) return;
S |   for (int c = threadIdx.x; c < cols; c += blockDim.x)
  |     sum += in[row * cols + c];
S |   if (threadIdx.x < 32)
  |     partial[lane] = sum;
  |   __syncthreads();
S |   do { sum += 1; } while (threadIdx.x > sum);
  |   out[row] = partial[0];
  | }
  | void launch(const float* in, float* out, int rows, int cols) {
  |   float scale = 1.0f;
S |   int threads = 256;
S |   size_t bytes = threads * sizeof(float);
  |   if (rows == 0) return;
S |   dim3 grid(rows);
S |   row_sums<float><<<grid, threads, bytes>>>(in, out, rows, cols);
  |   check(scale);
  | }"""


def test_statements_of_a_kernel_and_its_launch() -> None:
    lines = [(line[0] == "S", line[4:]) for line in ANNOTATED.splitlines()]
    code = "\n".join(line for _, line in lines)
    marked = label(code).statement
    at = 0
    for expected, line in lines:
        part = marked[at : at + len(line)]
        at += len(line) + 1
        if line.strip().startswith("do"):
            assert "".join(c for c, m in zip(line, part, strict=True) if m) == "(threadIdx.x > sum)"
        elif expected:
            assert part[len(line) - len(line.lstrip()) :].all(), line
        else:
            assert not part.any(), line


def test_only_the_header_of_a_compound_statement_is_marked() -> None:
    code = "__global__ void k(int n) { if (threadIdx.x < n) { f(); } else { g(); } }"
    labels = label(code)
    assert "".join(c for c, m in zip(code, labels.statement, strict=True) if m) == "if (threadIdx.x < n)"


def test_a_macro_that_is_a_loop_header_is_marked() -> None:
    header = "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += blockDim.x * gridDim.x)"
    code = f"#define GRID_LOOP(i, n) {header}\n#define HOST_LOOP(i, n) for (int i = 0; i < (n); ++i)\n"
    assert "".join(c for c, m in zip(code, label(code).statement, strict=True) if m) == header


def test_a_comment_in_a_marked_statement_is_not() -> None:
    code = "__global__ void k() { int i = /* who */ threadIdx.x; }"
    assert "".join(c for c, m in zip(code, label(code).statement, strict=True) if m) == "int i =  threadIdx.x;"


def where(code: str, location: Location) -> str:
    return "".join(c for c, at in zip(code, label(code).location, strict=True) if at == location)


def test_locations_of_a_file() -> None:
    kernel = "template <int N> __global__ void k(float* a) { a[threadIdx.x] = N; }"
    device = "static __device__ __forceinline__ int twice(int i) { return 2 * i; }"
    launch = "k<4><<<grid, threads>>>(a)"
    setup = ["int n = size();", "int threads = 128;", "dim3 grid(n / threads);", "grid.y = 2;"]
    code = f"{kernel}\n{device}\nvoid h(float* a) {{ int other = 1; {' '.join(setup)} {launch}; done(other); }}"
    assert where(code, Location.KERNEL) == kernel
    assert where(code, Location.DEVICE_FUNCTION) == device
    assert where(code, Location.LAUNCH) == launch
    assert where(code, Location.LAUNCH_SETUP) == "".join(setup)


def test_a_launch_by_call_with_its_set_up() -> None:
    launch = "cudaLaunchKernel((void*)k, grid, block, args, 0, stream)"
    code = f"void h() {{ int b = 64; dim3 grid = 3; dim3 block(b); int s = 1; {launch}; }}"
    assert where(code, Location.LAUNCH) == launch
    assert where(code, Location.LAUNCH_SETUP) == "int b = 64;dim3 grid = 3;dim3 block(b);"
    assert label(code).launches == 1


@pytest.mark.parametrize(
    ("code", "kernels"),
    [
        (
            'extern "C" __global__ void a() {}\nvoid __global__ b() {}\n__global__ void __launch_bounds__(32) c() {}',
            ("a", "b", "c"),
        ),
        ("__global__ void a();\nvoid h() {}", ()),
        ("template <class T> __global__ void a(T);\ntemplate <> __global__ void a<int>(int) {}", ("a<int>",)),
        ("template __global__ void a<int>(int);", ()),
        ("// __global__ void a() {}\n/* __global__ void b() {} */", ()),
        ('const char* s = "__global__ void a() {}"; const char* r = R"(__global__ void b() {})";', ()),
        ("#define KERNEL(name) \\\n  __global__ void name(int* p) { \\\n    p[threadIdx.x] = 1; \\\n  }\n", ("name",)),
        ("#define K(n) __global__ void n##_kernel() {}\n", ("n___kernel",)),
        ("#define GLOBAL __global__\nGLOBAL void a() {}\nstatic GLOBAL void b() {}", ("a", "b")),
    ],
)
def test_kernels_are_definitions(code: str, kernels: tuple[str, ...]) -> None:
    assert label(code).kernels == kernels


def test_device_functions_are_named() -> None:
    members = "__device__ V() {} __host__ __device__ int* at(int i) { return p + i; } int* p;"
    code = f"struct V {{ {members} }};\n__device__ int g;"
    assert label(code).device_functions == ("V", "at")


def test_a_device_lambda_is_device_code() -> None:
    lam = "[=] __device__ (int i) { return i; }"
    code = f"void h() {{ auto f = {lam}; }}"
    assert where(code, Location.DEVICE_FUNCTION) == lam


def test_a_declaration_behind_a_lambda_is_still_local() -> None:
    code = "void h(int n) { auto f = [&] { return n; }; int threads = 64; k<<<f(), threads>>>(); }\nint other = 2;"
    assert where(code, Location.LAUNCH_SETUP) == "auto f = [&] { return n; };int threads = 64;"


def test_a_launch_geometry_named_like_a_builtin_is_no_index() -> None:
    setup = "dim3 blockDim(16, 16); const dim3 gridDim((n + blockDim.x - 1) / blockDim.x);"
    code = f"void h(int n) {{ {setup} k<<<gridDim, blockDim>>>(n); int b = blockDim.x; if (b > n) f(); }}"
    labels = label(code)
    assert not np.any(labels.category == Category.THREAD_INDEX)
    assert not np.any(labels.category == Category.BOUNDARY_GUARD)
    assert np.all(labels.index_distance == NOT_DERIVED)
    assert where(code, Location.LAUNCH_SETUP) == setup.replace("; ", ";")
    assert not np.any(labels.statement[code.index("int b") :])


def test_a_host_variable_named_like_a_builtin_hides_it_only_there() -> None:
    kernel = "__global__ void k(int* a) { a[blockDim.x] = warpSize; }"
    for host in ("void h() { dim3 blockDim(16); k<<<1, blockDim>>>(a); }", "dim3 blockDim(16);\nint warpSize = 3;"):
        for code in (f"{kernel}\n{host}", f"{host}\n{kernel}"):
            at = code.index("a[blockDim") + 2
            assert np.all(label(code).index_distance[at : at + len("blockDim.x")] == 0), code
            at = code.index("dim3 blockDim") + 5
            assert np.all(label(code).index_distance[at : at + len("blockDim")] == NOT_DERIVED), code


def test_a_group_of_one_type_with_an_argument_declares_its_variable() -> None:
    code = "__device__ void f() { cg::thread_block b = g(); cg::thread_block_tile<32> t = g(); int r = t.size() * 2; }"
    assert "".join(c for c, m in zip(code, label(code).statement, strict=True) if m) == "int r = t.size() * 2;"


def test_an_error_outside_the_kernel_is_not_counted() -> None:
    kernel = "__global__ void k(float* a) { a[0] = 1; }"
    labels = label(f"{kernel}\nvoid h() {{ int ] = 3; }}")
    assert (labels.kernels, labels.kernel_bytes, labels.error_bytes) == (("k",), len(kernel), 0)


def test_an_error_in_the_kernel_is_counted_in_part() -> None:
    body = "a[0] = 1; " * 50
    labels = label(f"__global__ void k(float* a) {{ {body} int ] = 3; }}")
    assert labels.kernels == ("k",)
    assert 0 < labels.error_bytes < 0.1 * labels.kernel_bytes


def test_a_kernel_that_the_parser_gave_up_on_is_a_kernel_full_of_errors() -> None:
    kernel = "__global__ void k(float *a, { int i = threadIdx.x; if (i < a[i] = 0; }"
    code = f"{kernel}\nvoid h() {{ f(); }}"
    labels = label(code)
    assert labels.kernels == ("k",)
    assert labels.error_bytes == labels.kernel_bytes == len(kernel)
    assert where(code, Location.KERNEL) == kernel
