"""Queries by shape capture what the query files ask for, as the query engine reads them."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_sitter import Query, QueryCursor

from curate.extract import extract_cuda
from curate.sources import open_sources
from curate.syntax import parse_cuda, queries
from curate.syntax.parse import language
from curate.syntax.patterns import shapes

Spans = dict[str, list[tuple[int, int]]]
_ARITHMETIC = {"+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^"}


@cache
def _plain() -> Query:
    return Query(language(), "\n".join(path.read_text(encoding="utf-8") for path in queries.query_files().values()))


def by_engine(code: str) -> Spans:
    """The captures of the main tree, every pattern as it stands in the files."""
    found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for _, match in QueryCursor(_plain(), match_limit=queries.MAX_OPEN_MATCHES).matches(parse_cuda(code).main.root):
        for name, nodes in match.items():
            for node in nodes:
                if name == "binary":
                    operator = node.child_by_field_name("operator")
                    assert operator is not None
                    found["arithmetic" if operator.type in _ARITHMETIC else "carry"].append(node.byte_range)
                elif name[0] != "_" and (node.start_byte < node.end_byte or name == "missing"):
                    found[name].append(node.byte_range)
    return {name: sorted(spans) for name, spans in found.items()}


def by_shape(code: str) -> Spans:
    (main, *_) = queries.capture(parse_cuda(code))
    return {name: sorted(map(tuple, spans.tolist())) for name, spans in main.spans.items() if len(spans)}


def corpus() -> list[str]:
    return [block.text for row in open_sources(["bundled"])[0].rows() for block in extract_cuda(row.response)]


def test_the_bundled_corpus_has_the_captures_of_the_engine() -> None:
    codes = corpus()
    assert len(codes) > 100
    for code in codes:
        assert by_shape(code) == by_engine(code)


EXAMPLES = [
    line.removeprefix("; example: ")
    for path in queries.query_files().values()
    for line in path.read_text(encoding="utf-8").splitlines()
    if line.startswith("; example: ")
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(EXAMPLES), min_size=1, max_size=4).map(" ".join), st.data())
def test_so_do_pieces_of_the_examples(code: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(code)))
    piece = code[start : data.draw(st.integers(start, len(code)))]
    assert by_shape(piece) == by_engine(piece)


def test_a_missing_token_at_the_start_of_an_error_is_found() -> None:
    assert by_shape("<<") == by_engine("<<") == {"error": [(0, 2)], "missing": [(0, 0)]}


def test_a_large_tree_has_the_captures_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "\n".join(corpus()[:20])
    whole = by_shape(code)
    monkeypatch.setattr(queries, "_PORTION", 100)
    assert by_shape(code) == whole


def test_every_pattern_is_in_one_shape() -> None:
    texts = [path.read_text(encoding="utf-8") for path in queries.query_files().values()]
    kept = sum(len(shape.always) + len(shape.rules) for shape in shapes(texts))
    assert kept == _plain().pattern_count


def test_patterns_that_differ_in_names_alone_share_a_shape() -> None:
    call = "(call_expression function: (identifier) @_name {}) @{}"
    first, second = call.format('(#any-of? @_name "f" "g")', "one"), call.format('(#match? @_name "^g$")', "two")
    (shape,) = shapes([f"; a comment with @one\n{first}", second])
    assert shape.text == "(call_expression function: (identifier) @_0) @c1"
    assert [shape.names_of(name) for name in (b"f", b"g", b"h")] == [[("one",)], [("one",), ("two",)], []]


def test_a_pattern_alone_and_a_predicate_that_is_not_known_are_left_to_the_engine() -> None:
    alone, unknown = '((identifier) @use (#eq? @use "x"))', '((comment) @neutral (#not-eq? @neutral "// ;"))'
    found = shapes([alone, unknown, "(comment) @other"])
    assert [shape.text for shape in found] == [
        '((identifier) @c0 (#eq? @c0 "x"))', '((comment) @c0 (#not-eq? @c0 "// ;"))', "(comment) @c0",
    ]  # fmt: skip
    assert not any(shape.rules for shape in found)
    for shape in found:
        Query(language(), shape.text)
