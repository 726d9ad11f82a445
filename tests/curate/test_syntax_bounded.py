"""The parser gives hostile text up after a number of steps, and reads all others as it would without a bound."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import KERNEL, fenced, pair
from pace import processor_time
from tree_sitter import Parser

from curate import BuildConfig, build_dataset
from curate.extract import extract_cuda
from curate.extract.language import preorder
from curate.score import StubScorer
from curate.sources import open_sources
from curate.store import read_part
from curate.syntax import label
from curate.syntax.bounded import parse_bounded
from curate.syntax.parse import language, parse_cuda

HOSTILE = {name: KERNEL + (name * 10_000)[:20_000] for name in ("}~", "*/\\", "/*R")}
"""Without a bound they take the square of their length: the first two 25 to 150 seconds, the third 1 to 4."""


def test_trees_are_those_of_the_plain_parser() -> None:
    parser = Parser(language())
    for row in open_sources(["bundled"])[0].rows():
        for block in extract_cuda(row.response):
            for code in (block.text, block.text.replace(";", "", 2)):
                tree = parse_bounded(parser, code.encode())
                assert tree is not None
                assert str(tree.root_node) == str(parser.parse(code.encode()).root_node)
                assert tree.root_node.text == parser.parse(code.encode()).root_node.text


@pytest.mark.parametrize("end", ["}", "} ) ;"], ids=["sound", "with an error"])
def test_nodes_know_their_text_of_any_length(end: str) -> None:
    data = ("/* " + "é€😀 " * 3_000 + "*/ void h() { " + "a = b; " * 3_000 + end).encode()
    tree = parse_bounded(Parser(language()), data)
    assert tree is not None
    assert tree.root_node.has_error == (end != "}")
    texts = [(node.text, data[node.start_byte : node.end_byte]) for node, _ in preorder(tree.root_node)]
    assert [text for text, _ in texts] == [expected for _, expected in texts]
    assert max(len(expected) for _, expected in texts) > 50_000


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_given_up_in_linear_time(name: str) -> None:
    with processor_time(20):
        parsed = parse_cuda(HOSTILE[name])
        assert parsed.given_up
        assert len(parsed.data) == len(HOSTILE[name])
        assert not label(HOSTILE[name]).category.any()
        extract_cuda(HOSTILE[name])
    assert not parse_cuda(KERNEL).given_up


@pytest.mark.parametrize("name", ["1.", ".1", "1.1'", "a.1."])
def test_numbers_of_many_points_take_linear_time(name: str) -> None:
    """90 seconds where each point begins another number."""
    with processor_time(10):
        parsed = parse_cuda(f"__launch_bounds__(1) {name * (100_000 // len(name))}")
    assert len(parsed.data) == 21 + len(name) * (100_000 // len(name))
    assert parsed.data.startswith(b" " * 21), "the qualifier is blanked"


def test_a_row_that_is_given_up_says_so(write_rows, tmp_path: Path, model_folder: Path) -> None:
    rows = [{"prompt": f"p{n}", "response": fenced(code)} for n, code in enumerate(HOSTILE.values())]
    config = BuildConfig(
        source=(str(write_rows([pair(0), *rows])),), out=tmp_path / "out", model=str(model_folder), jobs=1,
        filter=("too_long=off",),
    )  # fmt: skip
    manifest = build_dataset(config, StubScorer())
    (part,) = (tmp_path / "out" / "rejected").glob("*.parquet")
    refused = read_part(part).select("reason", "detail").rows()
    assert refused == [("unparsable", "the grammar takes more than linear time to repair its errors")] * 3
    assert manifest["counts"]["accepted"] == 1
