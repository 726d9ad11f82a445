"""Every query file carries its own examples: `; example: CODE`, then `; marks: A ~ B` or `; marks nothing`."""

from __future__ import annotations

from itertools import groupby

import pytest

from curate.syntax import label
from curate.syntax.queries import query_files
from curate.taxonomy import CATEGORIES


def examples() -> list[tuple[str, str, list[str]]]:
    found = []
    for name, path in query_files().items():
        code = None
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("; example: "):
                assert code is None, f"{path.name}: an example without its answer"
                code = line.removeprefix("; example: ")
            elif line.startswith("; marks"):
                assert code is not None, f"{path.name}: an answer without its example"
                answer = line.removeprefix("; marks").removeprefix(":").strip()
                found.append((name, code, [] if answer == "nothing" else answer.split(" ~ ")))
                code = None
    return found


def marked(code: str, category: str) -> list[str]:
    """The maximal runs of characters that carry a category."""
    values = label(code).category == CATEGORIES.index(category)
    return [
        "".join(code[i] for i in run) for value, run in groupby(range(len(code)), lambda i: bool(values[i])) if value
    ]


@pytest.mark.parametrize(("category", "code", "answer"), examples())
def test_an_example_is_marked_as_its_file_says(category: str, code: str, answer: list[str]) -> None:
    assert marked(code, category) == answer


def test_every_category_has_an_example_and_a_counterexample() -> None:
    for category in CATEGORIES[1:]:
        answers = [answer for name, _, answer in examples() if name == category]
        assert any(answers), category
        assert [] in answers, category


def test_the_smallest_construct_wins() -> None:
    code = "__global__ void k(int* s) { atomicAdd(&s[threadIdx.x], 1); }"
    assert marked(code, "atomic") == ["atomicAdd(&s[", "], 1)"]
    assert marked(code, "thread_index") == ["threadIdx.x"]


@pytest.mark.parametrize(
    ("code", "category", "answer"),
    [
        ("// __syncthreads()\n", "synchronisation", []),
        ('void f() { puts("__syncthreads(); threadIdx.x"); }', "thread_index", []),
        ('const char* s = R"(__global__ void k() {})";', "qualifier", []),
        ("__global__ void k() { auto g = [=] __device__ (int i) { return i; }; }", "qualifier",
         ["__global__", "__device__"]),
        ("struct __align__(16) V { float x; };\n__device__ V f() { return V(); }", "qualifier", ["__device__"]),
        ("__global__ void k() { __shared__ __align__(16) float s[4]; }", "memory_space",
         ["__shared__ __align__(16) float s[4];"]),
        ("#define SYNC() do { __syncthreads(); } while (0)\n", "synchronisation", ["__syncthreads()"]),
        ('#define CP(d, s) \\\n  asm volatile("cp.async [%0], [%1], 16;" :: "r"(d), "l"(s))\n', "async_tensor",
         ['asm volatile("cp.async [%0], [%1], 16;" :: "r"(d), "l"(s))']),
        ("void h() { dim3 grid(blocks); }", "launch", ["dim3 grid(blocks);"]),
        ("int main() {\n  #pragma unroll\n  for (;;) {}\n}", "loop_directive", ["#pragma unroll"]),
    ],
)  # fmt: skip
def test_what_the_grammar_cannot_take_or_must_not_see(code: str, category: str, answer: list[str]) -> None:
    assert marked(code, category) == answer
