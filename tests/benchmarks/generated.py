"""Instruction/answer pairs for measurements that need more rows than the bundled corpus has: varied, none twice."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

__all__ = ["generated_pairs", "write_pairs"]

_TYPES = ("float", "double", "int", "half", "unsigned int", "long long")
_NAMES = ("scale", "blend", "gather", "stencil", "normalise", "clamp", "rotate", "accumulate", "mask", "shift")
_STEPS = (
    "v = v * {c} + ({t})(i % {m});",
    "if (v > ({t})({c})) v = v - ({t})({m});",
    "v += src[(i + {m}) % n];",
    "tile[threadIdx.x] = v;\n        __syncthreads();\n        v = tile[(threadIdx.x + {m}) % blockDim.x];",
    "v += __shfl_xor_sync(0xffffffff, v, {p});",
    "for (int k = 0; k < {m}; ++k) v = v * ({t})({c}) + src[(i + k) % n];",
    "atomicAdd(&counts[i % {m}], 1);",
    "const {t} w = src[i] / (({t})({m}) + ({t})({c}));\n        v = v > w ? v : w;",
)


def _answer(draw: random.Random, number: int) -> tuple[str, str]:
    kind, name, block = draw.choice(_TYPES), draw.choice(_NAMES), 32 << draw.randrange(5)
    steps = [
        step.format(t=kind, c=draw.randrange(1, 90), m=draw.randrange(2, 60), p=1 << draw.randrange(5))
        for step in draw.choices(_STEPS, k=draw.randrange(1, 10))
    ]
    body = "\n        ".join(steps)
    code = f"""\
#include <cuda_runtime.h>

__global__ void {name}_{number}({kind} *dst, const {kind} *src, int *counts, int n) {{
    __shared__ {kind} tile[{block}];
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {{
        {kind} v = src[i];
        {body}
        dst[i] = v;
    }}
}}

void run_{number}({kind} *dst, const {kind} *src, int *counts, int n) {{
    dim3 block({block});
    dim3 grid((n + block.x - 1) / block.x);
    {name}_{number}<<<grid, block>>>(dst, src, counts, n);
    cudaDeviceSynchronize();
}}
"""
    return f"Write a kernel that applies {name} to {kind} values, variant {number}.", f"```cuda\n{code}```\n"


def generated_pairs(rows: int) -> Iterator[tuple[str, str]]:
    """(prompt, response) of `rows` kernels of 20 to 45 lines each, the same in every run."""
    draw = random.Random(0)
    for number in range(rows):
        yield _answer(draw, number)


def write_pairs(rows: int, path: Path) -> int:
    """Writes the pairs as JSON lines; returns the bytes."""
    with path.open("w", encoding="utf-8") as file:
        for prompt, response in generated_pairs(rows):
            file.write(json.dumps({"prompt": prompt, "response": response}) + "\n")
    return path.stat().st_size
