"""The smallest syntax node around a span."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.syntax import parse_cuda
from curate.syntax.enclosing import enclosing_nodes
from tests.pace import processor_time

CODE = """\
// grüße 🙂
#define AT(p, i) p[(i) * 2 + blockDim.x]
__global__ void scale(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2.0f;
}
void run(float *x) { scale<<<(9 + 255) / 256, 256>>>(x, 9); }
"""


def around(code: str, piece: str) -> tuple[str, str]:
    start = code.index(piece)
    (node,) = enclosing_nodes(parse_cuda(code), [(start, start + len(piece))])
    return node.type, code[node.start : node.end]


@pytest.mark.parametrize(
    ("piece", "kind", "text"),
    [
        ("threadIdx", "identifier", "threadIdx"),
        ("threadIdx.", "field_expression", "threadIdx.x"),
        ("* blockDim.x + thr", "binary_expression", "blockIdx.x * blockDim.x + threadIdx.x"),
        ("i < n", "binary_expression", "i < n"),
        ("<<<", "kernel_call_syntax", "<<<(9 + 255) / 256, 256>>>"),
        ("__global__", "__global__", "__global__"),
        ("n) x[", "if_statement", "if (i < n) x[i] *= 2.0f;"),
        (") * 2 + block", "binary_expression", "(i) * 2 + blockDim.x"),
    ],
)
def test_planted_spans(piece: str, kind: str, text: str) -> None:
    assert around(CODE, piece) == (kind, text)


def test_a_span_over_two_definitions_has_the_whole_text() -> None:
    assert around(CODE, "}\nvoid run") == ("translation_unit", CODE)


def smallest(code: str, start: int, end: int) -> tuple[int, int]:
    """The same by brute force in the main tree: bytes equal characters here."""
    parsed = parse_cuda(code)
    best = (0, len(code))
    stack = list(parsed.main.root.children)
    while stack:
        node = stack.pop()
        word = node.is_named or node.type[:1].isalpha() or node.type[:1] == "_"
        if word and node.start_byte <= start and end <= node.end_byte:
            best = min(best, (node.start_byte, node.end_byte), key=lambda s: s[1] - s[0])
        stack.extend(node.children)
    return best


PLAIN = CODE[CODE.index("__global__") :]


@settings(deadline=None)
@given(
    st.one_of(st.just(PLAIN), st.text("ab(){}[];<>+ =*\n,.", max_size=60)),
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 30)), max_size=12),
)
def test_one_walk_finds_what_a_search_for_each_finds(code: str, raw: list[tuple[int, int]]) -> None:
    spans = sorted((a, min(a + n, len(code))) for a, n in raw if a < len(code))
    found = list(enclosing_nodes(parse_cuda(code), spans))
    assert [(n.start, n.end) for n in found] == [smallest(code, *span) for span in spans]


@settings(deadline=None)
@given(st.text(max_size=80), st.data())
def test_any_text_and_the_node_covers_the_span(code: str, data: st.DataObject) -> None:
    if not code:
        return
    start = data.draw(st.integers(0, len(code) - 1))
    end = data.draw(st.integers(start + 1, len(code)))
    (node,) = enclosing_nodes(parse_cuda(code), [(start, end)])
    assert 0 <= node.start <= start < end <= node.end <= len(code)


@pytest.mark.parametrize(
    "code",
    ["int a;" * 60_000, "x = " + "a+" * 60_000 + "a;", "{" * 10_000 + "a;" * 20_000, "#define A f(b)\n" * 10_000],
)
def test_the_time_is_linear_in_the_text(code: str) -> None:
    parsed = parse_cuda(code)
    with processor_time(5):
        spans = [(i, i + 1) for i in range(0, len(code), 3)]
        assert len(list(enclosing_nodes(parsed, spans))) == len(spans)
