"""Characters of code to characters of the response to tokens: planted spans, and properties on random ones."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from curate.align import CharLabels, _solid, paint, token_labels
from curate.extract import CodeBlock, extract_cuda
from curate.syntax import CodeLabels, label
from curate.taxonomy import NOT_DERIVED, Category, Location


def labels_of(category: list[int]) -> CodeLabels:
    n = len(category)
    zeros = np.zeros(n, np.uint8)
    return CodeLabels(
        category=np.array(category, np.uint8),
        statement=np.array(category, bool),
        index_distance=np.full(n, NOT_DERIVED, np.uint8),
        location=zeros,
        kernels=(),
        device_functions=(),
        launches=0,
        error_bytes=0,
        kernel_bytes=0,
    )


def char_labels(category: list[int]) -> CharLabels:
    return paint(len(category), [(CodeBlock("whole", "", 0, len(category), "x" * len(category)), labels_of(category))])


def categories(text: str, category: list[int], spans: list[tuple[int, int]]) -> list[int]:
    starts, ends = (np.array(x, np.int32) for x in zip(*spans, strict=True))
    return token_labels(text, char_labels(category), starts, ends).category.tolist()


def test_paint_leaves_the_rest_neutral() -> None:
    painted = paint(10, [(CodeBlock("fence", "cuda", 3, 6, "abc"), labels_of([1, 2, 3]))])
    assert painted.category.tolist() == [0, 0, 0, 1, 2, 3, 0, 0, 0, 0]
    assert painted.in_code.tolist() == [False] * 3 + [True] * 3 + [False] * 4


def test_an_escape_labels_every_character_that_spells_it() -> None:
    """`a\\nb` in the response is three characters of code, the middle one spelled with two."""
    block = CodeBlock(
        "python_string", "src", 1, 5, "a\nb", np.array([1, 2, 4], np.int32), np.array([2, 4, 5], np.int32)
    )
    assert paint(6, [(block, labels_of([1, 2, 3]))]).category.tolist() == [0, 1, 2, 2, 3, 0]


def test_implicitly_joined_strings_leave_the_quotes_between_unlabelled() -> None:
    """`"ab" "c"`: the characters of the code stand at 1, 2 and 6."""
    block = CodeBlock("python_string", "", 0, 8, "abc", np.array([1, 2, 6], np.int32), np.array([2, 3, 7], np.int32))
    painted = paint(8, [(block, labels_of([5, 5, 5]))])
    assert np.flatnonzero(painted.category).tolist() == [1, 2, 6]


def test_majority_of_the_solid_characters_decides() -> None:
    text = "int  i=threadIdx.x;"
    category = [0] * 7 + [2] * 11 + [0]
    assert categories(text, category, [(0, 3), (3, 7), (7, 16), (16, 19)]) == [0, 0, 2, 2]
    # leading white space does not count against `   x`, and punctuation glued to one labelled character is labelled
    assert categories("   x", [0, 0, 0, 4], [(0, 4)]) == [4]
    assert categories("x;", [4, 0], [(0, 2)]) == [4]
    assert categories("x;;", [4, 0, 0], [(0, 3)]) == [0]


def test_white_space_tokens_follow_the_construct_they_stand_in() -> None:
    assert categories("a\n  b", [8, 8, 8, 8, 8], [(0, 1), (1, 4), (4, 5)]) == [8, 8, 8]
    assert categories("a\n  b", [8, 0, 0, 0, 8], [(0, 1), (1, 4), (4, 5)]) == [8, 0, 8]


def test_template_tokens_are_neutral_and_outside_code() -> None:
    tokens = token_labels("ab", char_labels([1, 1]), np.array([0, -1], np.int32), np.array([2, -1], np.int32))
    assert tokens.category.tolist() == [1, 0]
    assert tokens.in_code.tolist() == [True, False]
    assert tokens.index_distance.tolist() == [NOT_DERIVED, NOT_DERIVED]


@given(st.lists(st.integers(0, 13), min_size=1, max_size=40), st.text("ab \n", min_size=40, max_size=40), st.data())
def test_one_token_a_character_keeps_every_label(category: list[int], text: str, data: st.DataObject) -> None:
    n = len(category)
    starts = np.arange(n, dtype=np.int32)
    tokens = token_labels(text[:n], char_labels(category), starts, starts + 1)
    assert tokens.category.tolist() == category
    cuts = sorted({0, n, *data.draw(st.lists(st.integers(0, n), max_size=8))})
    starts, ends = np.array(cuts[:-1], np.int32), np.array(cuts[1:], np.int32)
    merged = token_labels(text[:n], char_labels(category), starts, ends)
    for a, b, value in zip(starts, ends, merged.category, strict=True):
        assert value in set(category[a:b])


def test_bytes_characters_and_tokens_agree_behind_multi_byte_text() -> None:
    code = "// größe 汉字 🎉\n__global__ void f(int *a) { a[threadIdx.x] = 1; __syncthreads(); }\n"
    response = f"Antwort über 🎉:\n```cuda\n{code}```\n"
    blocks = extract_cuda(response)
    painted = paint(len(response), [(b, label(b.text)) for b in blocks])
    for text, category in (
        ("__global__", Category.QUALIFIER),
        ("threadIdx.x", Category.THREAD_INDEX),
        ("__syncthreads", Category.SYNCHRONISATION),
    ):
        at = response.index(text)
        assert set(painted.category[at : at + len(text)]) == {category}
    assert painted.location[response.index("void")] == Location.KERNEL
    assert painted.category[: response.index("__global__")].sum() == 0


def majority_by_counting(text: str, values: list[int], start: int, end: int) -> int:
    span = range(max(start, 0), max(end, 0))
    counts = Counter(values[i] for i in [i for i in span if not text[i].isspace()] or span)
    neutral = counts.pop(0, 0)
    best = min(counts, key=lambda kind: (-counts[kind], kind), default=0)
    return best if counts[best] >= max(neutral, 1) else 0


@given(st.text(st.sampled_from("ab;\n\t \x1c\x85\u3000\u2028汉🎉\ud800"), max_size=30), st.data())
def test_labels_of_tokens_are_those_of_a_loop_over_them(text: str, data: st.DataObject) -> None:
    """Tokens may be empty, overlap (bytes of one character), or belong to the template."""
    n = len(text)
    kinds = {"category": 14, "statement": 2, "location": 5, "in_code": 2}
    drawn = {k: data.draw(st.lists(st.integers(0, m - 1), min_size=n, max_size=n)) for k, m in kinds.items()}
    distance = data.draw(st.lists(st.sampled_from((0, 1, 7, 254, 255)), min_size=n, max_size=n))
    ends = st.tuples(st.integers(0, n), st.integers(0, n)).map(sorted)
    spans = data.draw(st.lists(st.just([-1, -1]) | ends, max_size=12))
    chars = CharLabels(
        index_distance=np.array(distance, np.uint8),
        **{k: np.array(v, bool if kinds[k] == 2 else np.uint8) for k, v in drawn.items()},
    )
    starts, stops = np.array(spans, np.int32).reshape(-1, 2).T
    tokens = token_labels(text, chars, starts, stops)
    for name, values in drawn.items():
        assert getattr(tokens, name).tolist() == [majority_by_counting(text, values, a, b) for a, b in spans]
    assert tokens.index_distance.tolist() == [
        min(distance[max(a, 0) : max(b, 0)], default=NOT_DERIVED) for a, b in spans
    ]


def test_white_space_is_what_str_says_it_is() -> None:
    every = "".join(map(chr, range(0x110000)))
    assert _solid(every).tolist() == [not c.isspace() for c in every]
