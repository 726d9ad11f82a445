"""Answers with one planted flaw each, and near misses: answers that look like it and are in order.

Written for this table. `PLANTED`: (name, reason, prompt, response); `NEAR_MISSES`: (name, the reason that they are
near to, prompt, response). Every planted row must be found by its reason and no other; a near miss must pass all checks.
"""

from __future__ import annotations

__all__ = ["NEAR_MISSES", "PLANTED"]


def _cuda(code: str) -> str:
    return f"The kernel:\n\n```cuda\n{code.strip()}\n```\n"


def _python(code: str) -> str:
    return f"The module:\n\n```python\n{code.strip()}\n```\n"


SCALE = """
__global__ void scale(const float* in, float* out, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a * in[i];
}
"""
RELU = """
__global__ void relu_kernel(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] > 0.f ? in[i] : 0.f;
}
"""
WRAPPER = """
torch::Tensor relu(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    relu_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""


def _launch(call: str) -> str:
    return "void run(const float* in, float* out, int n) {\n    " + call + "\n    cudaDeviceSynchronize();\n}\n"


def _kernel(body: str, parameters: str = "const float* in, float* out, int n") -> str:
    index = "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    return f"__global__ void work({parameters}) {{\n{index}    {body}\n}}\n" + _launch(
        "work<<<n / 256, 256>>>(in, out, n);"
    )


def _module(forward: str, init: str = "", more: str = "", kernel: str = RELU + WRAPPER) -> str:
    """A torch module with the extension `ext`; `forward` is the body of the method."""
    lines = "\n".join("        " + line for line in forward.strip("\n").split("\n"))
    inits = "".join("        " + line + "\n" for line in init.strip("\n").split("\n")) if init else ""
    return _python(f'''
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
{kernel.strip()}
"""
ext = load_inline(name="ext", cpp_sources="torch::Tensor relu(torch::Tensor x);", cuda_sources=source, functions=["relu"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
{inits}
    def forward(self, x, w):
{lines}

{more.rstrip()}
''')


TASK = "Write a CUDA kernel for this task."
MODULE_TASK = """Optimise this module with custom CUDA:

```python
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, w):
        return torch.relu(torch.matmul(x, w))
```
"""
GIVEN = SCALE + _launch("scale<<<n / 256, 256>>>(in, out, 2.f, n);")

PLANTED: tuple[tuple[str, str, str, str], ...] = (
    # ---- not launched
    ("main-without-launch", "not_launched", TASK, _cuda(SCALE + "int main() {\n    float* d;\n    cudaMalloc(&d, 4);\n    // scale<<<1, 1>>>(d, d, 2.f, 1);\n    cudaFree(d);\n}")),
    ("launches-another", "not_launched", TASK, _cuda(SCALE + "__global__ void other(float* x);\n" + _launch("other<<<1, 1>>>(out);"))),
    ("wrapper-returns-zeros", "not_launched", TASK, _cuda("#include <torch/extension.h>\n" + RELU + 'torch::Tensor relu(torch::Tensor x) { return torch::zeros_like(x); }\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("relu", &relu); }')),
    ("launched-by-an-idle-kernel", "not_launched", TASK, _cuda(SCALE + "__global__ void parent(float* x, int n) { x[0] = n; parent<<<1, 1>>>(x, n); }\nint main() { cudaDeviceReset(); }")),
    # ---- empty
    ("todo", "empty_kernel", TASK, _cuda(_kernel("// TODO: multiply\n    return;"))),
    ("bare-braces", "empty_kernel", TASK, _cuda("__global__ void work(const float* in, float* out, int n) {}\n" + _launch("work<<<1, 1>>>(in, out, n);"))),
    ("locals-alone", "empty_kernel", TASK, _cuda(_kernel("float v = in[i];\n    v = v * 2.f;"))),
    ("lone-empty-kernel", "empty_kernel", TASK, _cuda("__global__ void work(const float* in, float* out, int n) { /* the work */ }")),
    # ---- constants
    ("stores-zero", "constant_kernel", TASK, _cuda(_kernel("if (i < n) out[i] = 0.f;"))),
    ("stores-a-local-one", "constant_kernel", TASK, _cuda(_kernel("const float one = 1.f;\n    if (i < n) out[i] = one;"))),
    ("stores-through-an-alias", "constant_kernel", TASK, _cuda(_kernel("float* row = out + i;\n    row[0] = 42;"))),
    ("reads-and-drops", "constant_kernel", TASK, _cuda(_kernel("float v = in[i];\n    v += 1.f;\n    if (i < n) out[i] = 0.f;"))),
    # ---- inputs ignored
    ("index-for-result", "ignores_inputs", TASK, _cuda(_kernel("if (i < n) out[i] = i;"))),
    ("scalar-for-result", "ignores_inputs", TASK, _cuda(_kernel("if (i < n) out[i] = 2.f * n;"))),
    ("sine-of-index", "ignores_inputs", TASK, _cuda(_kernel("float v = in[i];\n    if (i < n) out[i] = sinf(i * 0.5f);"))),
    ("unnamed-inputs", "ignores_inputs", TASK, _cuda("__global__ void add(float* a, float* b, float* c, int n) {\n    int i = threadIdx.x;\n    if (i < n) c[i] = i + n;\n}\n" + "void run(float* a, float* b, float* c, int n) { add<<<1, n>>>(a, b, c, n); }")),
    # ---- a library does it
    ("matmul-in-cpp", "library_call", TASK, _cuda("#include <torch/extension.h>\n" + RELU + WRAPPER + 'torch::Tensor forward(torch::Tensor x, torch::Tensor w) {\n    auto y = torch::matmul(x, w);\n    return relu(y);\n}\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }')),
    ("cublas-with-a-copy", "library_call", TASK, _cuda("#include <cublas_v2.h>\n" + SCALE + "void gemm(cublasHandle_t h, const float* a, const float* b, float* c, int n) {\n    float one = 1.f, zero = 0.f;\n    cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a, n, b, n, &zero, c, n);\n    scale<<<n, 256>>>(c, c, 1.f, n * n);\n}")),
    ("matmul-in-forward", "library_call", MODULE_TASK, _module("y = torch.matmul(x, w)\nreturn ext.relu(y)")),
    ("at-sign", "library_call", MODULE_TASK, _module("return ext.relu(x @ w)")),
    ("called-linear", "library_call", MODULE_TASK, _module("return ext.relu(self.linear(x))", "self.linear = nn.Linear(8, 8)")),
    ("functional-conv-in-a-helper", "library_call", MODULE_TASK, _module("return ext.relu(self.work(x, w))", more="    def work(self, x, w):\n        return F.conv2d(x, w)")),
    ("kernel-never-called", "library_call", MODULE_TASK, _module("return F.relu(torch.mm(x, w))")),
    ("kernel-never-called-light", "library_call", MODULE_TASK, _module("return F.relu(x)")),
    ("copy-and-softmax", "library_call", MODULE_TASK, _module("return torch.softmax(ext.relu(x), -1)", kernel="__global__ void relu_kernel(const float* in, float* out, int n) {\n    int i = threadIdx.x;\n    if (i < n) out[i] = in[i];\n}\n" + WRAPPER)),
    # ---- falls back
    ("except-returns-torch", "reference_fallback", MODULE_TASK, _module("try:\n    return ext.relu(x)\nexcept RuntimeError:\n    return torch.relu(x)")),
    ("except-passes", "reference_fallback", MODULE_TASK, _module("try:\n    return ext.relu(x)\nexcept Exception:\n    pass\nreturn F.relu(x)")),
    ("except-calls-a-helper", "reference_fallback", MODULE_TASK, _module("try:\n    y = ext.relu(x)\nexcept Exception:\n    y = self.plain(x)\nreturn y", more="    def plain(self, x):\n        return torch.clamp(x, min=0)")),
    ("catch-in-cpp", "reference_fallback", TASK, _cuda("#include <torch/extension.h>\n" + RELU + "torch::Tensor relu(torch::Tensor x) {\n    auto y = torch::empty_like(x);\n    try {\n        relu_kernel<<<1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), 256);\n    } catch (const std::exception& e) {\n        return torch::relu(x);\n    }\n    return y;\n}")),
    # ---- no CUDA
    ("triton", "not_cuda", TASK, _python("import torch\nimport triton\nimport triton.language as tl\n\n@triton.jit\ndef add(x, y, n, BLOCK: tl.constexpr):\n    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)")),
    ("torch-compile", "not_cuda", MODULE_TASK, _python("import torch\nimport torch.nn as nn\n\nclass ModelNew(nn.Module):\n    @torch.compile\n    def forward(self, x, w):\n        return torch.relu(x @ w)")),
    ("whole-answer-is-torch", "not_cuda", MODULE_TASK, "import torch\nimport torch.nn as nn\n\nclass ModelNew(nn.Module):\n    def forward(self, x, w):\n        return torch.relu(torch.matmul(x, w))\n"),
    # ---- the prompt given back
    ("same-kernel", "equals_reference", "Make this faster:\n\n" + _cuda(GIVEN), _cuda(GIVEN)),
    ("same-but-for-comments", "equals_reference", "Make this faster:\n\n" + _cuda(GIVEN), _cuda("// optimised\n" + GIVEN.replace("    if (i < n)", "    /* in range? */\n  if (i < n)"))),
    ("same-module", "equals_reference", "Make it faster:\n\n" + _module("return ext.relu(x)").replace("ModelNew", "Model"), _module("# faster now\nreturn ext.relu(x)")),
)  # fmt: skip

NEAR_MISSES: tuple[tuple[str, str, str, str], ...] = (
    ("lone-kernel", "not_launched", TASK, _cuda(SCALE)),
    ("kernel-and-a-computing-helper", "not_launched", TASK, _cuda(SCALE + "constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }")),
    ("cuda-launch-kernel", "not_launched", TASK, _cuda(SCALE + "int main() {\n    void* args[4];\n    cudaLaunchKernel((void*)scale, dim3(1), dim3(32), args, 0, 0);\n}")),
    ("function-pointer", "not_launched", TASK, _cuda(SCALE + "int main() {\n    void (*f)(const float*, float*, float, int) = scale;\n    f<<<1, 32>>>(nullptr, nullptr, 1.f, 0);\n}")),
    ("launching-macro", "not_launched", TASK, _cuda("#define LAUNCH(k, n, ...) k<<<((n) + 255) / 256, 256>>>(__VA_ARGS__)\n" + SCALE + _launch("LAUNCH(scale, n, in, out, 2.f, n);"))),
    ("pasting-macro", "not_launched", TASK, _cuda("#define RUN(op, ...) op##_kernel<<<1, 256>>>(__VA_ARGS__)\n" + RELU + _launch("RUN(relu, in, out, n);"))),
    ("template-argument", "not_launched", TASK, _cuda(SCALE + "template <auto K> void start() { K<<<1, 1>>>(nullptr, nullptr, 1.f, 0); }\nint main() { start<scale>(); }")),
    ("dynamic-parallelism", "not_launched", TASK, _cuda(SCALE + "__global__ void parent(const float* in, float* out, int n) { scale<<<1, n>>>(in, out, 2.f, n); }\n" + _launch("parent<<<1, 1>>>(in, out, n);"))),
    ("launch-in-another-block", "not_launched", TASK, _cuda(SCALE) + "\nand start it:\n\n" + _cuda("int main() {\n    scale<<<1, 1>>>(nullptr, nullptr, 1.f, 0);\n}")),
    ("by-name-from-a-module", "not_launched", TASK, _cuda('extern "C" ' + SCALE.strip() + '\nint main() {\n    CUfunction f;\n    CUmodule m;\n    cuModuleGetFunction(&f, m, "scale");\n    cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, nullptr, nullptr);\n}')),
    ("spare-variant", "not_launched", TASK, _cuda(SCALE + RELU + _launch("relu_kernel<<<1, 256>>>(in, out, n);"))),
    ("raw-kernel", "not_launched", TASK, _python("import cupy as cp\n\nsource = r'''\nextern \"C\" " + SCALE.strip() + "\n'''\nscale = cp.RawKernel(source, 'scale')\n\ndef run(x, y):\n    scale((1,), (256,), (x, y, cp.float32(2), x.size))")),
    # ---- bodies
    ("hello-world", "empty_kernel", TASK, _cuda('__global__ void hello() { printf("hello from %d\\n", threadIdx.x); }\nint main() { hello<<<1, 4>>>(); cudaDeviceSynchronize(); }')),
    ("launch-overhead", "empty_kernel", "Measure the launch overhead of an empty kernel.", _cuda("__global__ void nothing() {}\nint main() { nothing<<<1, 1>>>(); cudaDeviceSynchronize(); }")),
    ("one-of-two-is-empty", "empty_kernel", TASK, _cuda(SCALE + "__global__ void warm_up() {}\n" + _launch("warm_up<<<1, 1>>>();\n    scale<<<1, 256>>>(in, out, 2.f, n);"))),
    ("body-in-a-device-function", "empty_kernel", TASK, _cuda("__device__ void step(const float* in, float* out, int i) { out[i] = in[i]; }\n" + _kernel("step(in, out, i);"))),
    ("inline-assembly", "empty_kernel", TASK, _cuda('__global__ void spin() { asm volatile("nanosleep.u32 100;"); }\nint main() { spin<<<1, 1>>>(); }')),
    ("fill", "constant_kernel", "Fill a vector with zeros.", _cuda("__global__ void fill(float* out, int n) {\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) out[i] = 0.f;\n}\nvoid run(float* out, int n) { fill<<<n / 256, 256>>>(out, n); }")),
    ("threshold", "constant_kernel", TASK, _cuda(_kernel("if (i < n) {\n        if (in[i] > 0.5f) out[i] = 1.f;\n        else out[i] = 0.f;\n    }"))),
    ("histogram", "constant_kernel", TASK, _cuda(_kernel("if (i < n) atomicAdd(&out[(int)in[i]], 1.f);"))),
    ("first-passage", "constant_kernel", TASK, _cuda(_kernel("int k = 0;\n    while (k < n && in[k] < i) ++k;\n    out[0] = 1.f;"))),
    ("iota", "ignores_inputs", "Write the index of each element.", _cuda("__global__ void iota(int* out, int n) {\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) out[i] = i;\n}\nint main() { int* d; cudaMalloc(&d, 4); iota<<<1, 1>>>(d, 1); }")),
    ("random-states", "ignores_inputs", TASK, _cuda("#include <curand_kernel.h>\n__global__ void init(curandState* states, unsigned long long seed) {\n    int i = threadIdx.x;\n    curand_init(seed, i, 0, &states[i]);\n}\nvoid run(curandState* s) { init<<<1, 256>>>(s, 1); }")),
    ("through-shared-memory", "ignores_inputs", TASK, _cuda(_kernel("__shared__ float tile[256];\n    tile[threadIdx.x] = i < n ? in[i] : 0.f;\n    __syncthreads();\n    out[i] = tile[255 - threadIdx.x];"))),
    ("vector-alias", "ignores_inputs", TASK, _cuda(_kernel("const float4* in4 = reinterpret_cast<const float4*>(in);\n    float4 v = in4[i];\n    reinterpret_cast<float4*>(out)[i] = make_float4(v.x, v.y, v.z, v.w);"))),
    ("through-a-macro", "ignores_inputs", TASK, _cuda("#define AT(k) in[(k)]\n" + _kernel("out[i] = AT(i) * 2.f;"))),
    ("in-place", "ignores_inputs", TASK, _cuda("__global__ void work(float* x, const float* unused, int n) {\n    int i = threadIdx.x;\n    if (i < n) x[i] *= 2.f;\n}\nvoid run(float* x, int n) { work<<<1, n>>>(x, nullptr, n); }")),
    ("accumulates-in-a-loop", "ignores_inputs", TASK, _cuda(_kernel("float acc[2] = {0.f, 0.f};\n    for (int k = 0; k < n; k += 2) { acc[0] += in[k]; acc[1] += in[k + 1]; }\n    out[i] = acc[0] + acc[1];"))),
    # ---- libraries
    ("allocates-and-reshapes", "library_call", MODULE_TASK, _module("x = x.contiguous().view(-1, 8).to(torch.float32)\ny = torch.empty_like(x)\nreturn ext.relu(x).reshape(y.shape)")),
    ("holds-weights-alone", "library_call", MODULE_TASK, _module("return ext.relu(x + self.linear.weight)", "self.linear = nn.Linear(8, 8)")),
    ("checked-against-torch", "library_call", MODULE_TASK, _module("return ext.relu(x)", more='def test():\n    x = torch.randn(8, 8)\n    assert torch.allclose(ModelNew()(x, x), torch.relu(torch.matmul(x, x)))\n\nif __name__ == "__main__":\n    print(torch.matmul(torch.ones(2, 2), torch.ones(2, 2)))\n    test()')),
    ("reference-class-beside", "library_call", MODULE_TASK, _module("return ext.relu(x)", more="class Reference(nn.Module):\n    def forward(self, x, w):\n        return torch.relu(torch.matmul(x, w))")),
    ("kernel-of-a-helper-object", "library_call", MODULE_TASK, _module("return self.helper.run(x).sum() + torch.sum(x)", "self.helper = Helper()", more="class Helper:\n    def run(self, x):\n        return ext.relu(x)")),
    ("kernel-by-another-name", "library_call", MODULE_TASK, _module("return torch.mean(self.run(x))", "self.run = self._run_on_gpu", more="    def _run_on_gpu(self, x):\n        return ext.relu(x)")),
    ("chosen-at-start-up", "library_call", MODULE_TASK, _module("return self.run(x, w)", "self.run = self._gpu if torch.cuda.is_available() else self._plain\nself.run = self._gpu\nif not torch.cuda.is_available():\n    self.run = self._plain", more="    def _gpu(self, x, w):\n        return ext.relu(x)\n\n    def _plain(self, x, w):\n        return torch.relu(torch.matmul(x, w))")),
    ("sum-of-partials", "library_call", MODULE_TASK, _module("return ext.relu(x).sum()")),
    ("cublas-as-a-check", "library_call", TASK, _cuda("#include <cublas_v2.h>\n" + SCALE + "int main() {\n    cublasHandle_t h;\n    cublasCreate(&h);\n    float *a, *b, one = 1.f;\n    cudaMalloc(&a, 4);\n    cudaMalloc(&b, 4);\n    scale<<<1, 1>>>(a, b, 1.f, 1);\n    cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, a, 1, a, 1, &one, b, 1);\n}")),
    ("cublas-asked-for", "library_call", "Multiply with cuBLAS, then scale by a kernel.", _cuda("#include <cublas_v2.h>\n" + SCALE + "void gemm(cublasHandle_t h, const float* a, const float* b, float* c, int n) {\n    float one = 1.f;\n    cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a, n, b, n, &one, c, n);\n    scale<<<n, 256>>>(c, c, 2.f, n * n);\n}")),
    ("block-reduce-of-cub", "library_call", TASK, _cuda("#include <cub/cub.cuh>\n" + _kernel("using Reduce = cub::BlockReduce<float, 256>;\n    __shared__ typename Reduce::TempStorage temp;\n    float sum = Reduce(temp).Sum(in[i]);\n    if (threadIdx.x == 0) out[blockIdx.x] = sum;"))),
    ("backward-by-torch", "library_call", TASK, _cuda("#include <torch/extension.h>\n" + RELU + WRAPPER + 'torch::Tensor relu_backward(torch::Tensor g, torch::Tensor w) { return torch::matmul(g, w); }\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n    m.def("relu", &relu);\n    m.def("relu_backward", &relu_backward);\n}')),
    # ---- fallbacks
    ("on-the-cpu-by-torch", "reference_fallback", MODULE_TASK, _module("if not x.is_cuda:\n    return torch.relu(torch.matmul(x, w))\nreturn ext.relu(x)")),
    ("other-shapes-by-torch", "reference_fallback", MODULE_TASK, _module("if x.size(0) % 4 == 0:\n    y = ext.relu(x)\nelse:\n    y = F.conv2d(x, w)\nreturn y")),
    ("except-raises", "reference_fallback", MODULE_TASK, _module('try:\n    return ext.relu(x)\nexcept RuntimeError as error:\n    raise ValueError("shapes") from error')),
    ("try-around-the-check", "reference_fallback", MODULE_TASK, _module("return ext.relu(x)", more="def test_relu():\n    try:\n        ext.relu(torch.ones(2))\n    except RuntimeError:\n        print(torch.relu(torch.ones(2)))")),
    # ---- CUDA after all
    ("torch-with-a-kernel", "not_cuda", MODULE_TASK, _module("return ext.relu(x)")),
    ("triton-mentioned", "not_cuda", TASK, _cuda("// in Triton this would be @triton.jit\n" + SCALE)),
    # ---- the prompt and more
    ("one-constant-changed", "equals_reference", "Use 128 threads:\n\n" + _cuda(GIVEN), _cuda(GIVEN.replace("256", "128"))),
    ("given-kernel-with-a-launch", "equals_reference", "Launch this:\n\n" + _cuda(SCALE), _cuda(GIVEN)),
)  # fmt: skip
