"""Offsets: bytes against characters, blanking, and text that is no code at all."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.syntax import label, parse_cuda
from curate.syntax.labels import paint
from curate.syntax.normalise import MAX_DEPTH, normalise
from curate.taxonomy import Category, Location

KERNEL = "__global__ void k(float* a, int n) { int i = threadIdx.x; if (i < n) a[i] = 1; }"
PIECES = st.sampled_from([
    "__global__ ", "void k", "(", ")", "{", "}", "[", "]", "<<<", ">>>", "<", ";", ",", "=", "threadIdx.x", "dim3 g",
    "\n", "#define K(x) \\\n", "#pragma unroll\n", "//", "/*", "*/", '"', "'", 'R"x(', ')x"', "__align__(8)", "asm",
    "é", "𝛌", "\\", "__launch_bounds__(", "[=] __device__ (", "if", "for", "template", " ", "int ", "a", "1", "##",
    "\0", "\ud800", KERNEL,
])  # fmt: skip
CODE = st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=200)


@pytest.mark.parametrize("before", ["// café\n", "/* 𝛌𝛍 数 */", 'const char* s = "größe";\n', "\ud800\n"])
def test_labels_do_not_move_behind_multi_byte_text(before: str) -> None:
    plain, moved = label(KERNEL), label(before + KERNEL)
    assert np.array_equal(moved.category[len(before) :], plain.category)
    assert np.array_equal(moved.statement[len(before) :], plain.statement)
    assert np.array_equal(moved.index_distance[len(before) :], plain.index_distance)
    assert np.array_equal(moved.location[len(before) :], plain.location)
    assert moved.kernels == ("k",)


def test_char_of_a_byte() -> None:
    parsed = parse_cuda("aé𝛌b")
    assert [parsed.char(byte) for byte in range(9)] == [0, 1, 1, 2, 2, 2, 2, 3, 4]


@settings(max_examples=300, deadline=None)
@given(CODE)
def test_any_text_is_labelled(code: str) -> None:
    labels = label(code)
    for values in (labels.category, labels.statement, labels.index_distance, labels.location):
        assert values.shape == (len(code),)
    assert labels.category.max(initial=0) <= max(Category)
    assert labels.location.max(initial=0) <= max(Location)
    assert 0 <= labels.error_bytes <= labels.kernel_bytes <= len(code.encode(errors="replace")) * 3
    assert (labels.kernel_bytes > 0) == bool(labels.kernels)


@settings(max_examples=300, deadline=None)
@given(CODE)
def test_blanking_keeps_every_byte_in_its_place(code: str) -> None:
    data = code.encode(errors="replace")
    blanked, blanks = normalise(data)
    assert len(blanked) == len(data)
    changed = {i for i, (old, new) in enumerate(zip(data, blanked, strict=True)) if old != new}
    assert all(blanked[i] == ord(" ") for i in changed)
    covered = {i for blank in blanks for i in range(blank.start, blank.end)}
    assert {i for i in changed if data[i] != 0} <= covered


@pytest.mark.parametrize(
    "text", ["// __align__(8)\n", "/* __align__(8) */", '"__align__(8)"', 'R"y(" __align__(8))y"', "'\\'' "]
)
def test_comments_and_strings_are_not_blanked(text: str) -> None:
    data = f"{text} struct __align__(8) V {{}};".encode()
    blanked, blanks = normalise(data)
    assert blanked == data.replace(b"struct __align__(8)", b"struct             ")
    assert [data[blank.start : blank.end] for blank in blanks] == [b"__align__(8)"]


@pytest.mark.parametrize("bracket", ["{}", "()", "[]"])
def test_absurd_nesting_is_cut_and_what_follows_is_not(bracket: str) -> None:
    code = "void f() { " + bracket[0] * 10_000 + bracket[1] * 10_000 + " }\n" + KERNEL
    labels = label(code)
    assert labels.kernels == ("k",)
    assert np.array_equal(labels.category[-len(KERNEL) :], label(KERNEL).category)
    assert parse_cuda(code).data.count(bracket[0].encode()) <= MAX_DEPTH + 10


@pytest.mark.parametrize("terms", [1_000, 70_000])
def test_a_sum_of_many_terms_is_labelled(terms: int) -> None:
    code = "__global__ void k() { int i = " + "threadIdx.x + " * terms + "1; }"
    labels = label(code)
    assert labels.kernels == ("k",)
    assert labels.index_distance[code.index("i =")] == 1 or terms > 10_000


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x" + ".f()" * 300 + ";", ""),
        ("f(" * 200, ")" * 200 + ";"),
        ("".join(f"if (c[{i}]) g({i}); else " for i in range(500)) + "{", "}"),
    ],
    ids=["chain", "calls", "else-if"],
)
def test_what_stands_in_or_behind_deep_code_is_labelled(before: str, after: str) -> None:
    inner = "atomicAdd(&a[threadIdx.x], __popc(m))"
    code = f"__global__ void k(int* a) {{ {before}{inner}{after or ';'} }}\n{KERNEL}"
    labels = label(code)
    start = code.index(inner)
    head = "__global__ void k(int* a) { "
    plain = label(f"{head}{inner}; }}").category[len(head) : len(head) + len(inner)]
    assert set(plain.tolist()) == {Category.ATOMIC, Category.THREAD_INDEX, Category.MATH_INTRINSIC}
    assert np.array_equal(labels.category[start : start + len(inner)], plain)
    assert np.array_equal(labels.category[-len(KERNEL) :], label(KERNEL).category)


@pytest.mark.parametrize(
    "code",
    [
        "void h() { " + ("x" + ".size()" * 1_000 + ";") * 30 + " }",
        "__device__ void h() { " + ("f(" * 900 + "a" + ")" * 900 + ".size();") * 80 + " }",
    ],
    ids=["chains", "calls"],
)
def test_the_time_for_deep_code_is_near_that_for_flat_code(code: str) -> None:
    def seconds(text: str) -> float:
        taken = []
        for _ in range(2):
            before = time.thread_time()
            label(text)
            taken.append(time.thread_time() - before)
        return min(taken)

    # two to three times; more than ten where depth costs what it may
    assert seconds(code) < 6 * seconds((KERNEL + "\n") * (len(code) // len(KERNEL)))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=5))
def test_painting_agrees_with_painting_one_by_one(pairs: list[tuple[int, int]]) -> None:
    # nested or disjoint spans: [d, 20 - d) by depth, and short ones behind
    spans = [(depth, 20 - depth) for depth, _ in pairs] + [(20 + 2 * i, 21 + 2 * i) for i in range(len(pairs))]
    values = [value for _, value in pairs] * 2
    expected = np.zeros(40, np.uint8)
    for (start, end), value in sorted(
        zip(spans, values, strict=True), key=lambda item: (item[0][0] - item[0][1], item[1])
    ):
        expected[start:end] = value
    painted = paint(40, np.array(spans, np.int64).reshape(-1, 2), np.array(values, np.uint8))
    assert np.array_equal(painted, expected)
