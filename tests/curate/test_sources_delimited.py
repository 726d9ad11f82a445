"""CSV and TSV: quoting, headers, and that a bad record costs one row."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curate.errors import OptionError, SourceError
from curate.sources import READ_REASONS, Row, open_sources
from curate.sources.streams import MAX_LINE
from tests.pace import processor_time

HEAD = b"prompt,response\n"
Found = list[tuple[str, str | None, str]]


def rows_of(path: Path, column_map: str | None = None) -> list[Row]:
    (source,) = open_sources([str(path)], column_map, None)
    return list(source.rows())


def found(tmp_path: Path, data: bytes, name: str = "a.csv") -> Found:
    """(source_id, reason, response) of each row."""
    (tmp_path / name).write_bytes(data)
    return [(row.source_id, row.reason, row.response) for row in rows_of(tmp_path / name)]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", b"prompt,response\nQ,A\n"),
        ("a.csv", b"\xef\xbb\xbfprompt,response\r\nQ,A\r\n"),
        ("a.csv", b'"prompt" , response\n"Q","A"'.replace(b" ,", b",")),
        ("a.csv", b"prompt;response\nQ;A\n"),
        ("a.csv", b"prompt\tresponse\nQ\tA\n"),
        ("a.TSV", b"prompt\tresponse\nQ\tA\n"),
        ("a.tsv", b"prompt\tresponse,x\nQ\tA,A\n".replace(b",x", b"").replace(b"A,A", b"A")),
        ("a.csv", b",prompt,response,\n0,Q,A,\n"),
        ("a.csv", b"\n\r\nprompt,response\n\nQ,A\n\n"),
    ],
)
def test_forms_of_one_row(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    (row,) = rows_of(tmp_path / name)
    assert (row.prompt, row.response, row.reason) == ("Q", "A", None)


def test_quoted_code_keeps_its_lines_commas_and_quotes(tmp_path: Path) -> None:
    code = '__global__ void k(int *a, int n) {\n  printf("x, %d\\n", n);\r\n\n}\n'
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["prompt", "response"], ["Q", code], ["Q2", "A2"]])
    assert found(tmp_path, text.getvalue().encode()) == [("2", None, code), ("7", None, "A2")]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b'Q,"not closed', "broken_csv"),
        (b'"not closed,A', "broken_csv"),
        (b'Q,"A"x', "broken_csv"),
        (b"Q", "ragged_row"),
        (b"Q,A,B", "ragged_row"),
        (b"Q,caf\xe9", "not_utf8"),
        (b"Q,a\0b", "nul_character"),
        (b"Q,\xed\xa0\x80", "not_utf8"),
    ],
)
@pytest.mark.parametrize("after", [b"Q,good\n", b'Q,"good"\n', b'"Q",good\n', b'"Q","good"\n'])
def test_bad_record_costs_one_row(tmp_path: Path, record: bytes, reason: str, after: bytes) -> None:
    rows = found(tmp_path, HEAD + after + record + b"\n" + after * 2)
    assert rows == [("2", None, "good"), ("3", reason, ""), ("4", None, "good"), ("5", None, "good")]
    bad = rows_of(tmp_path / "a.csv")[1]
    assert bad.detail
    assert bad.raw.encode("utf-8")
    assert reason in READ_REASONS


def test_line_beyond_the_limit_is_skipped(tmp_path: Path) -> None:
    rows = found(tmp_path, HEAD + b"Q,A\nQ," + b"x" * (MAX_LINE + 1) + b"\nQ,B\n")
    assert rows == [("2", None, "A"), ("3", "too_large", ""), ("4", None, "B")]


def test_own_ids_licences_and_conversations(tmp_path: Path) -> None:
    turns = json.dumps([{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}])
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["id", "license", "messages"], ["r1", "MIT", turns], ["r2", "", "no list"]])
    (tmp_path / "a.csv").write_text(text.getvalue())
    rows = rows_of(tmp_path / "a.csv")
    assert [(row.source_id, row.license, row.reason) for row in rows] == [
        ("r1", "MIT", None),
        ("r2", None, "wrong_type"),
    ]
    assert rows[0].response == "A"


def test_map_names_columns_of_the_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"task,code\nQ,A\n")
    assert [row.response for row in rows_of(tmp_path / "a.csv", "prompt=task,response=code")] == ["A"]
    with pytest.raises(OptionError, match="it has code, task"):
        rows_of(tmp_path / "a.csv", "prompt=task,response=kode")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"Write a kernel.,the code\nQ,A\n", ["first line has to name the columns", "--map"]),
        (b"prompt,response,prompt\nQ,A,Q\n", ["'prompt' twice"]),
        (b"prompt,response\n", ["no rows"]),
        (b"prompt,response\nQ\nQ\n", ["none of its first 2 rows"]),
        (b'prompt,"response\nQ,A\n', ["line 1", "header"]),
        (b"prompt,response\rQ,A\rQ,B\r", ["CR"]),
        (b"", ["empty"]),
        (b"\n\n", ["no rows"]),
    ],
)
def test_bad_file_is_one_line(tmp_path: Path, data: bytes, words: list[str]) -> None:
    with pytest.raises(SourceError) as caught:
        found(tmp_path, data)
    assert "\n" not in str(caught.value)
    for word in ("a.csv", *words):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "data", [b'"\n' * 200_000, b'x,"""\n' * 200_000, b'Q,"' + b"\n" * 500_000, b'"a"b,c\n' * 100_000, b'"""' * 10**6]
)
def test_hostile_quotes_take_no_quadratic_time(tmp_path: Path, data: bytes) -> None:
    with processor_time(20):
        assert found(tmp_path, HEAD + b"Q,A\n" + data)[0] == ("2", None, "A")


FIELD = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs=st.lists(st.tuples(FIELD, FIELD), min_size=1, max_size=6), quoting=st.sampled_from([0, 1]))
def test_what_csv_writes_is_read_again(tmp_path: Path, pairs: list[tuple[str, str]], quoting: int) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, quoting=quoting).writerows([("prompt", "response"), *pairs])  # type: ignore[arg-type]
    (tmp_path / "any.csv").write_bytes(text.getvalue().encode("utf-8"))
    assert [(row.prompt, row.response) for row in rows_of(tmp_path / "any.csv")] == pairs


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.lists(st.sampled_from([b'"', b",", b"\n", b"\r", b"a", b"\xff", b"\0"]), max_size=30).map(b"".join))
def test_no_content_raises(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "any.csv").write_bytes(HEAD + b"Q,A\n" + data)
    rows = rows_of(tmp_path / "any.csv")
    assert rows[0].response[:1] == "A"
    assert len({row.position for row in rows}) == len(rows)
    assert all(row.reason is None or row.reason in READ_REASONS for row in rows)
