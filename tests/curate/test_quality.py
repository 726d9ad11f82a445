"""Figures of an answer, on answers whose figures are known."""

from __future__ import annotations

import pytest

from curate.extract import extract_cuda
from curate.quality import TABLE_NUMBERS, Quality, measure_quality
from curate.syntax import parse_cuda
from tests.pace import processor_time

LINE = "__global__ void k(float* x) { x[threadIdx.x] = 0; }"


def quality(response: str) -> Quality:
    blocks = extract_cuda(response)
    return measure_quality(response, blocks, [parse_cuda(b.text) for b in blocks])


def fenced(code: str) -> str:
    return f"```cuda\n{code}\n```\n"


def test_prose_around_the_code_does_not_count() -> None:
    found = quality(
        "A kernel:\n\n" + fenced(LINE) + "\nThat is all of it, in one long line of prose that is no code of any kind.\n"
    )
    assert found.code_chars == len(LINE) + 1
    assert found.longest_line == len(LINE)
    assert found.comment_share == found.number_table_share == found.repeated_line_share == found.non_ascii_share == 0


def test_comments_are_those_of_the_tree() -> None:
    comment = "// twelve bytes"
    text = fenced(f'{comment}\n{LINE}\nconst char* s = "// a string";')
    code = extract_cuda(text)[0].text
    assert quality(text).comment_share == pytest.approx(len(comment) / len(code))


@pytest.mark.parametrize(
    ("body", "is_table"),
    [
        (", ".join(["-1.5f"] * TABLE_NUMBERS), True),
        (", ".join(["{1, 2}"] * (TABLE_NUMBERS // 2)), True),
        (", ".join(["1"] * (TABLE_NUMBERS - 1)), False),
        (", ".join(["1"] * TABLE_NUMBERS + ["n"]), False),
        (", ".join(["f(1)"] * TABLE_NUMBERS), False),
    ],
)
def test_number_tables(body: str, is_table: bool) -> None:
    table = "{" + body + "}"
    text = fenced(f"{LINE}\n__constant__ float t[] = {table};")
    code = extract_cuda(text)[0].text
    assert quality(text).number_table_share == pytest.approx(len(table) / len(code) if is_table else 0)


def test_repeated_lines_leave_brackets_and_blanks_out() -> None:
    code = LINE + "\nvoid f()\n{\n  a();\n\n  b();\n}\nvoid g()\n{\n  a();\n\n    b();\n});"
    assert quality(fenced(code)).repeated_line_share == pytest.approx(2 / 7)


def test_non_ascii_is_a_share_of_characters() -> None:
    text = "é" * 10 + "\n" + fenced(LINE)
    assert quality(text).non_ascii_share == pytest.approx(10 / len(text))


def test_nothing_to_measure() -> None:
    assert quality("") == Quality(0, 0.0, 0, 0.0, 0.0, 0.0)
    assert quality("no code here").code_chars == 0


@pytest.mark.parametrize("hostile", ["{" * 10_000, "{1," * 5_000, "//" * 100_000, "\n" * 300_000, "a" * 200_000])
def test_hostile_text_is_measured_in_linear_time(hostile: str) -> None:
    parsed = [parse_cuda(LINE + hostile)]
    with processor_time(2):
        measure_quality(hostile, extract_cuda(fenced(LINE)), parsed)
