"""Rows for a whole build: each of one planted fault with the reason that the build must give, or nearly so.

`planted_rows()` holds every reason that a row may be refused for once it was read; `near_misses()` rows that look like
it and must be accepted. Both take the kernels of `planted_kernels` along. A row's `id` is its name, which comes back as
`source_id`. The options, the benchmark and the command that the reasons need stand below.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from tests.curate.planted_kernels import NEAR_MISSES, PLANTED

__all__ = [
    "BENCHMARK",
    "COMPILER_REASONS",
    "OPTIONS",
    "SCRIPT",
    "PlantedRow",
    "cuda",
    "near_misses",
    "planted_rows",
    "program",
    "write_inputs",
]

OPTIONS: dict[str, Any] = {
    "min_code": 48,
    "compile_seconds": 12.0,
    "execute_seconds": 1.5,
    "filter": ("unknown_license=refuse",),
    "skip_scoring": True,
}
COMPILER_REASONS = frozenset(("compile_error", "compile_refused", "compile_timeout"))
SCRIPT = '#!/bin/sh\ngrep -q "program fails" "$1" && exit 1\ngrep -q "program hangs" "$1" && exec sleep 60\nexit 0\n'
"""Stands in for a command that runs programs: it reads them."""

_FUNCTIONS = (
    *("sinf", "cosf", "sqrtf", "fabsf", "tanhf", "expf", "log1pf", "rsqrtf", "floorf", "ceilf", "sinhf", "coshf"),
    *("atanf", "asinhf", "erff", "cbrtf"),
)
_CALLS = [f"{one}({other}(%s))" for one, other in combinations(_FUNCTIONS, 2)]


@dataclass(frozen=True)
class PlantedRow:
    """`reason`: what a build refuses it for, or in a near miss what it is near to. `row`: as a source holds it."""

    name: str
    reason: str
    prompt: str
    response: str
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def row(self) -> dict[str, Any]:
        return {"id": self.name, "prompt": self.prompt, "response": self.response, "license": "MIT", **self.more}


def cuda(code: str) -> str:
    return f"The kernel:\n\n```cuda\n{code.strip()}\n```\n"


def kernel(n: int, name: str = "apply", steps: int = 1, extra: str = "", before: str = "") -> str:
    """A kernel that calls two functions of its own for every n up to 119, so that no two are near-duplicates."""
    body = "".join(f"    v += {k}.f * {_CALLS[n] % f'v - {k}.f'};\n" for k in range(2, 2 + steps))
    return (
        f"{before}__global__ void {name}(const float* in, float* out, int n) {{\n"
        f"    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i >= n) return;\n    float v = in[i];\n"
        f"{body}{extra}    out[i] = v;\n}}\n"
    )


def program(n: int, say: str = "program runs") -> str:
    main = (
        f"int main() {{\n    float* x;\n    cudaMalloc(&x, 4096);\n    apply<<<4, 256>>>(x, x, 1024);\n    // {say}\n"
    )
    return kernel(n) + main + "    return cudaDeviceSynchronize();\n}\n"


def header(text: str) -> str:
    return f"// SPDX-License-Identifier: {text}\n"


def ask(what: str) -> str:
    return f"Write a CUDA kernel that {what}."


# ---- what rows are compared with

_TASK = (
    "Given two arrays of particle positions and charges, accumulate the electrostatic potential at every grid point of "
    "a regular lattice with spacing h, cutting interactions off beyond nine ångström, in single precision"
)
_CLASS = """
class {name}(nn.Module):
    {doc}
    def __init__(self, width, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, width)
        self.project = nn.Linear(width, 4 * width)

    def forward(self, x):
        return self.project(self.norm(x)).{last}(dim=-1)
"""
_STENCIL = """
__global__ void stencil(const float* grid, float* next, int width, int height, float rate) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= width - 1 || y >= height - 1) return;
    float middle = grid[y * width + x];
    float around = grid[y * width + x - 1] + grid[y * width + x + 1];
    around += grid[(y - 1) * width + x] + grid[(y + 1) * width + x];
    float change = rate * (around - 4.f * middle);
    next[y * width + x] = middle + change;
    if (change > 100.f) next[y * width + x] = middle;
}
"""
BENCHMARK = "".join(
    json.dumps(task) + "\n"
    for task in (
        {"task_id": "potential", "prompt": _TASK},
        {"task_id": "mix", "prompt": "Speed it up.", "code": "import torch.nn as nn\n" + _CLASS.format(name="Mix", doc='"""Mixes."""', last="amax")},
        {"task_id": "stencil", "prompt": "Diffuse.", "code": _STENCIL},
    )
)  # fmt: skip


def _module(last: str) -> str:
    shown = _CLASS.format(name="Block", doc="# a block", last=last)
    return f"Optimise this:\n\n```python\nimport torch.nn as nn\n{shown}```\n"


_TABLE = "__constant__ float table[{0}] = {{{1}}};\n"
_BOMB = (
    "#define A(x) x; x; x; x; x; x; x; x; x; x\n#define B(x) A(A(A(x)))\n#define C(x) B(B(B(x)))\n"
    "__global__ void burst(int* a, const int* b) {\n    C(a[0] += b[0]);\n}\n"
)
_BROKEN = "__global__ void k(float *x) { x[ = = ) 3 +; ( ] ) ; x } else ( ( { ;; ) = 4 = 5\n"


def _table(n: int, numbers: int) -> str:
    use = "    v *= table[i];\n"
    return kernel(n, extra=use, before=_TABLE.format(numbers, ", ".join(str(k % 10) for k in range(numbers))))


def _comments(n: int, lines: int) -> str:
    return kernel(n, before="".join(f"// step {k} of the explanation that comes first\n" for k in range(lines)))


def _repeating(n: int, times: int) -> str:
    return kernel(n, steps=6, extra="    v = v * 0.5f + 1.f;\n" * times)


_PROSE = "Each thread takes one element and writes it back. " * 200
_SAME, _OTHER = kernel(119, steps=8), kernel(118, steps=8)


def planted_rows() -> list[PlantedRow]:
    """In the order of the reasons; a copy comes behind what it is a copy of, which is a near miss."""
    rows = [PlantedRow(name, reason, prompt, response) for name, reason, prompt, response in PLANTED]
    fault = "    v += {};\n"
    rows += [
        PlantedRow("blank-prompt", "empty_prompt", " \n", cuda(kernel(0))),
        PlantedRow("blank-response", "empty_response", ask("waits"), "\t\n"),
        PlantedRow("said-to-be-wrong", "marked_incorrect", ask("waits"), cuda(kernel(0)), {"correct": False}),
        PlantedRow("prose", "no_cuda", ask("waits"), "Start with shared memory, then measure."),
        PlantedRow("host-alone", "no_cuda", ask("waits"), cuda("int main() {\n    int n = 3;\n    return n - 3;\n}")),
        PlantedRow("device-function-alone", "no_kernel", ask("waits"), cuda("__device__ float square(float x) {\n    return x * x;\n}")),
        PlantedRow("launch-alone", "no_kernel", ask("waits"), cuda("void run(float* x, int n) {\n    scale<<<n / 256, 256>>>(x, n);\n    cudaDeviceSynchronize();\n}")),
        PlantedRow("garbled", "kernel_syntax_errors", ask("waits"), cuda(_BROKEN)),
        PlantedRow("one-liner", "short_code", ask("waits"), cuda("__global__ void k(int* a) { a[0] += 1; }")),
        PlantedRow("explains", "mostly_comments", ask("waits"), cuda(_comments(0, 60))),
        PlantedRow("one-line", "long_line", ask("waits"), cuda(kernel(0, extra="    v = v" + " + 1.f" * 400 + ";\n"))),
        PlantedRow("table", "number_table", ask("waits"), cuda(_table(0, 600))),
        PlantedRow("loops-by-hand", "repeated_lines", ask("waits"), cuda(_repeating(0, 80))),
        PlantedRow("other-script", "non_ascii", ask("waits"), "内核如下所示，请看。" * 60 + "\n\n" + cuda(kernel(0))),
        # ---- rights
        PlantedRow("field-gpl", "license_not_allowed", ask("waits"), cuda(kernel(0)), {"license": "GPL-3.0-only"}),
        PlantedRow("header-gpl", "license_not_allowed", ask("waits"), cuda(header("GPL-2.0-or-later") + kernel(0))),
        PlantedRow("both-hold", "license_not_allowed", ask("waits"), cuda(kernel(0)), {"license": "MIT AND GPL-2.0-only"}),
        PlantedRow("no-licence", "unknown_license", ask("waits"), cuda(kernel(0)), {"license": None}),
        PlantedRow("licence-of-prose", "unknown_license", ask("waits"), cuda(kernel(0)), {"license": "Feel free to use it, but please ask first. " * 40}),
        PlantedRow("header-unread", "unknown_license", ask("waits"), cuda(header("see the file LICENCE") + kernel(0))),
        # ---- compilers
        PlantedRow("undefined-name", "compile_error", ask("waits"), cuda(kernel(0, extra=fault.format("missing")))),
        PlantedRow("wrong-type", "compile_error", ask("waits"), cuda(kernel(0, extra="    float* w = v;\n    v = *w;\n"))),
        PlantedRow("too-few-arguments", "compile_error", ask("waits"), cuda(kernel(0, extra=fault.format("lerp(v)"), before="__device__ float lerp(float a, float b) { return a + b; }\n"))),
        PlantedRow("shared-memory-of-a-megabyte", "compile_error", ask("waits"), cuda(kernel(0, extra="    __shared__ float s[262144];\n    s[i] = v;\n    __syncthreads();\n    v = s[n - i];\n"))),
        PlantedRow("absolute-include", "compile_refused", ask("waits"), cuda(kernel(0, extra='#include "/etc/passwd"\n'))),
        PlantedRow("parent-include", "compile_refused", ask("waits"), cuda(kernel(0, extra='#include "../../secret.h"\n'))),
        PlantedRow("standard-input", "compile_refused", ask("waits"), cuda(kernel(0, extra="#include </dev/stdin>\n"))),
        PlantedRow("macro-bomb", "compile_timeout", ask("waits"), cuda(_BOMB)),
        # ---- programs
        PlantedRow("program-fails", "execution_failed", ask("waits"), cuda(program(0, "program fails"))),
        PlantedRow("program-hangs", "execution_timeout", ask("waits"), cuda(program(1, "program hangs"))),
        # ---- benchmarks
        PlantedRow("prompt-quoted", "contaminated", f"Please help. {_TASK}, and test it.", cuda(kernel(0))),
        PlantedRow("prompt-reworded-at-its-ends", "contaminated", _TASK.replace("Given two", "Take").replace("single precision", "float"), cuda(kernel(0))),
        PlantedRow("class-renamed", "contaminated", _module("amax"), cuda(kernel(0))),
        PlantedRow("code-renamed", "contaminated", ask("diffuses"), cuda(_STENCIL.replace("middle", "centre").replace("around", "sum"))),
        PlantedRow("code-but-for-a-line", "contaminated", ask("diffuses"), cuda(_STENCIL.replace("    if (change > 100.f) next[y * width + x] = middle;\n", ""))),
        # ---- each other
        PlantedRow("again", "exact_duplicate", ask("is copied"), cuda(_SAME)),
        PlantedRow("other-address", "exact_duplicate", ask("is signed"), cuda("// questions to: bob@kernels.org\n" + _OTHER)),
        PlantedRow("other-prompt", "same_code", ask("is asked for otherwise"), cuda("// the same\n" + _SAME)),
        PlantedRow("other-layout", "same_code", ask("is indented otherwise"), cuda(_SAME.replace("    ", "\t\t   "))),
        PlantedRow("renamed", "renamed_code", ask("has other names"), cuda(_SAME.replace("v ", "value ").replace("v;", "value;").replace("apply", "transform"))),
        PlantedRow("a-number-changed", "near_duplicate", ask("has another number"), cuda(_SAME.replace("9.f", "99.f"))),
        PlantedRow("a-statement-more", "near_duplicate", ask("has a line more"), cuda(kernel(119, steps=8, extra="    v += 0.25f;\n"))),
        # ---- tokens
        PlantedRow("too-long", "too_long", ask("is long"), _PROSE + " And more." + cuda(kernel(117))),
    ]  # fmt: skip
    return [replace(row, prompt=row.prompt.replace("waits", f"waits for {row.name}")) for row in rows]


def near_misses() -> list[PlantedRow]:
    """Rows that must be accepted, the originals of the copies among them."""
    rows = [PlantedRow(name, reason, *_own(k, prompt, response)) for k, (name, reason, prompt, response) in enumerate(NEAR_MISSES)]  # fmt: skip
    n = iter(range(len(NEAR_MISSES), len(_CALLS) - 4))
    launch = kernel(next(n)) + "__launch_bounds__(256, 2) "
    rows += [
        PlantedRow("short-prompt", "empty_prompt", ".", cuda(kernel(next(n)))),
        PlantedRow("code-alone", "empty_response", ask("adds"), kernel(next(n))),
        PlantedRow("said-to-be-right", "marked_incorrect", ask("adds"), cuda(kernel(next(n))), {"correct": True}),
        PlantedRow("by-a-macro", "no_kernel", ask("adds"), cuda("#define GLOBAL __global__\n" + kernel(next(n)).replace("__global__", "GLOBAL", 1))),
        PlantedRow("untagged-fence", "no_cuda", ask("adds"), f"So:\n\n```\n{kernel(next(n))}```\n"),
        PlantedRow("launch-bounds", "kernel_syntax_errors", ask("adds"), cuda(launch.replace("__global__ void", "__global__ __launch_bounds__(256, 2) void").removesuffix("__launch_bounds__(256, 2) "))),
        PlantedRow("two-lines", "short_code", ask("adds"), cuda("__global__ void k(int* a, int* b) { a[0] += b[0]; }")),
        PlantedRow("explains-and-works", "mostly_comments", ask("adds"), cuda(_comments(next(n), 12))),
        PlantedRow("wide", "long_line", ask("adds"), cuda(kernel(next(n), extra="    v = v" + " + 1.f" * 270 + ";\n"))),
        PlantedRow("small-table", "number_table", ask("adds"), cuda(_table(next(n), 70))),
        PlantedRow("unrolled", "repeated_lines", ask("adds"), cuda(_repeating(next(n), 10))),
        PlantedRow("some-other-script", "non_ascii", ask("adds"), "内核如下。" * 10 + "\n\n" + cuda(kernel(next(n)))),
        PlantedRow("either-holds", "license_not_allowed", ask("adds"), cuda(kernel(next(n))), {"license": "MIT OR GPL-3.0-only"}),
        PlantedRow("header-wins", "license_not_allowed", ask("adds"), cuda(header("Apache-2.0") + kernel(next(n))), {"license": "GPL-3.0-only"}),
        PlantedRow("usual-name", "unknown_license", ask("adds"), cuda(kernel(next(n))), {"license": "Apache License, Version 2.0"}),
        PlantedRow("header-alone", "unknown_license", ask("adds"), cuda(header("BSD-3-Clause") + kernel(next(n))), {"license": None}),
        PlantedRow("name-of-a-foreign-header", "compile_error", ask("adds"), cuda('#include "mylib/lerp.h"\n' + kernel(next(n), extra="    v = lerp(v);\n"))),
        PlantedRow("include-left-out", "compile_refused", ask("adds"), cuda('#include "../common.h"\n' + kernel(next(n)))),
        PlantedRow("include-in-a-string", "compile_refused", ask("adds"), cuda(kernel(next(n), before='// not: see "/etc/passwd"\n'))),
        PlantedRow("many-macros", "compile_timeout", ask("adds"), cuda("#define A(x) x x x x\n" + kernel(next(n), extra="    A(A(v += 1.f;))\n"))),
        PlantedRow("program-runs", "execution_failed", ask("adds"), cuda(program(next(n)))),
        PlantedRow("main-elsewhere", "execution_timeout", ask("adds"), cuda(kernel(next(n), extra="    // program hangs\n"))),
        PlantedRow("some-words-shared", "contaminated", "Accumulate the electrostatic potential at every grid point of a ring of charges.", cuda(kernel(next(n)))),
        PlantedRow("class-with-another-end", "contaminated", _module("amin"), cuda(kernel(next(n)))),
        PlantedRow("other-stencil", "contaminated", ask("blurs"), cuda(kernel(next(n), extra="    v += 0.25f * (in[i - 1] + in[i + 1] - 2.f * in[i]);\n"))),
        PlantedRow("as-long-as-allowed", "too_long", ask("is long"), _PROSE + cuda(kernel(116))),
        # ---- originals, and what looks like a copy
        PlantedRow("copied", "same_code", ask("is copied"), cuda(_SAME)),
        PlantedRow("signed", "exact_duplicate", ask("is signed"), cuda("// questions to: ann@kernels.org\n" + _OTHER)),
        PlantedRow("other-functions", "renamed_code", ask("computes something else"), cuda(_SAME.replace("cbrtf", "exp2f"))),
        PlantedRow("other-memory", "near_duplicate", ask("uses shared memory"), cuda(kernel(119, steps=8, extra="    __shared__ float s[256];\n    s[threadIdx.x] = v;\n    __syncthreads();\n    v = s[255 - threadIdx.x];\n"))),
        PlantedRow("of-a-wrong-one", "near_duplicate", ask("mends what was wrong"), cuda(kernel(0, extra="    v += 1.f;\n"))),
    ]  # fmt: skip
    return rows


def _own(k: int, *texts: str) -> list[str]:
    """Other work in the kernels that all near misses share: alike as they are, they would be copies of each other."""
    scale, relu = "a * in[i]", "in[i] > 0.f ? in[i]"
    return [
        text.replace(scale, f"a * {_CALLS[k] % 'in[i]'}").replace(relu, f"in[i] > 0.f ? {_CALLS[k] % 'in[i]'}")
        for text in texts
    ]


def write_inputs(folder: Path, rows: list[PlantedRow]) -> dict[str, Any]:
    """Rows, benchmark and command as files in the folder; the options that name them."""
    source, benchmark, script = folder / "rows.jsonl", folder / "bench.jsonl", folder / "run.sh"
    source.write_text("".join(json.dumps(row.row) + "\n" for row in rows))
    benchmark.write_text(BENCHMARK)
    script.write_text(SCRIPT)
    return {"source": (str(source),), "against": (str(benchmark),), "execute": f"sh {script} {{}}"}
