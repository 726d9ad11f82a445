"""Def-use from a thread index: distances, shadowing, and what does not carry."""

from __future__ import annotations

import re

import numpy as np
import pytest

from curate.syntax import label
from curate.taxonomy import NOT_DERIVED, Category


def distances(code: str) -> dict[str, list[int]]:
    """Of every identifier the distances of its occurrences, in order."""
    found: dict[str, list[int]] = {}
    values = label(code).index_distance
    for match in re.finditer(r"[A-Za-z_]\w*", code):
        span = values[match.start() : match.end()]
        assert len(set(span.tolist())) == 1, f"{match[0]} is split"
        found.setdefault(match[0], []).append(int(span[0]))
    return found


def test_each_assignment_adds_a_step() -> None:
    code = "__global__ void k(float* a, int n) { int i = threadIdx.x; int j = i * 2; int m; m = j + n; a[m] = n; }"
    found = distances(code)
    assert found["threadIdx"] == [0]
    assert found["i"] == [1, 1]
    assert found["j"] == [2, 2]
    assert found["m"] == [3, 3, 3]
    assert found["n"] == [NOT_DERIVED] * 3
    assert found["a"] == [NOT_DERIVED] * 2


def test_the_shortest_way_counts() -> None:
    found = distances("__global__ void k() { int i = threadIdx.x; int j = i + 1; int m = j + blockIdx.x; }")
    assert found["m"] == [1]


def test_a_loop_carries_its_index() -> None:
    found = distances(
        "__global__ void k(int n) { for (int i = threadIdx.x; i < n; i += blockDim.x) { int r = i / 4; } }"
    )
    assert found["i"] == [1, 1, 1, 1]
    assert found["r"] == [2]


def test_an_inner_declaration_shadows() -> None:
    found = distances("__global__ void k() { int i = threadIdx.x; { int i = 3; int a = i; } int b = i; }")
    assert found["i"] == [1, NOT_DERIVED, NOT_DERIVED, 1]
    assert found["a"] == [NOT_DERIVED]
    assert found["b"] == [2]


def test_nothing_crosses_a_function() -> None:
    found = distances("__device__ int f() { int i = threadIdx.x; return i; } __device__ int g(int i) { return i; }")
    assert found["i"] == [1, 1, NOT_DERIVED, NOT_DERIVED]


@pytest.mark.parametrize(
    "expression", ["a[i]", "*(a + i)", "__ldg(a + i)", "load(i)", "i < 4 ? 1 : 0", "sizeof(i)", "a[i] + n"]
)
def test_a_load_a_call_and_a_choice_do_not_carry(expression: str) -> None:
    found = distances(f"__global__ void k(float* a, int n) {{ int i = threadIdx.x; float v = {expression}; }}")
    assert found["v"] == [NOT_DERIVED]


@pytest.mark.parametrize(
    "expression", ["-i", "(int)i", "static_cast<int>(i)", "min(i, n)", "n ? i : 0", "i < n", "&a[i]", "a + i"]
)
def test_arithmetic_comparison_casts_and_addresses_carry(expression: str) -> None:
    found = distances(f"__global__ void k(float* a, int n) {{ int i = threadIdx.x; auto v = {expression}; }}")
    assert found["v"] == [2]


def test_a_long_chain_is_capped_below_not_derived() -> None:
    steps = "".join(f"int v{k} = v{k - 1};" for k in range(1, 400))
    found = distances(f"__global__ void k() {{ int v0 = threadIdx.x; {steps} }}")
    assert found["v252"] == [253, 253]
    assert found["v253"] == [254, 254]
    assert found["v399"] == [254]


def test_the_rank_of_a_group_is_an_index() -> None:
    found = distances("__device__ void f(cg::thread_block g) { int r = g.thread_rank(); }")
    assert found["r"] == [1]


def test_a_derived_condition_is_a_guard_and_a_loaded_one_is_not() -> None:
    code = (
        "__global__ void k(float* a, int n) { int i = threadIdx.x; bool in = i < n; if (in) f(); if (a[i] > 0) g(); }"
    )
    category = label(code).category
    assert np.all(category[code.index("(in)") : code.index("(in)") + 4] == Category.BOUNDARY_GUARD)
    assert not np.any(category[code.index("(a[i]") : code.index("g()")] == Category.BOUNDARY_GUARD)
