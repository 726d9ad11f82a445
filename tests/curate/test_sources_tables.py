"""JSON Lines, JSON and Parquet: bad lines stay bad rows, bad files are one line."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curate.errors import SourceError
from curate.sources import READ_REASONS, Row, open_sources

GOOD = {"prompt": "Q", "response": "A"}
LINE = json.dumps(GOOD).encode()


def rows_of(path: Path) -> list[Row]:
    (source,) = open_sources([str(path)], None, None)
    return list(source.rows())


def written(tmp_path: Path, name: str, data: bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"prompt": "Q", "response": "A', "broken_json"),
        (b"not json", "broken_json"),
        (b'{"prompt": ' + b"[" * 100_000, "broken_json"),
        (b'{"prompt": "Q", "n": ' + b"9" * 5000 + b', "response": "A"}', "broken_json"),
        (b'{"prompt": "caf\xe9", "response": "A"}', "not_utf8"),
        (b"\x00\x01\x02\xff", "not_utf8"),
        (b"null", "not_an_object"),
        (b"NaN", "not_an_object"),
        (b'"text"', "not_an_object"),
    ],
)
def test_bad_line_is_one_bad_row(tmp_path: Path, line: bytes, reason: str) -> None:
    rows = rows_of(written(tmp_path, "a.jsonl", LINE + b"\n" + line + b"\n" + LINE + b"\n"))
    assert [row.reason for row in rows] == [None, reason, None]
    assert [row.source_id for row in rows] == ["1", "2", "3"]
    assert rows[1].raw.encode("utf-8")
    assert rows[1].detail


def test_bom_line_ends_blank_lines_and_no_final_newline(tmp_path: Path) -> None:
    rows = rows_of(written(tmp_path, "a.jsonl", b"\xef\xbb\xbf" + LINE + b"\r\n\r\n  \n" + LINE))
    assert [(row.reason, row.source_id) for row in rows] == [(None, "1"), (None, "4")]


def test_cut_last_line_is_a_bad_row(tmp_path: Path) -> None:
    assert [row.reason for row in rows_of(written(tmp_path, "a.jsonl", LINE + b"\n" + LINE[:-8]))] == [
        None,
        "broken_json",
    ]


def test_nan_and_double_keys_do_not_raise(tmp_path: Path) -> None:
    line = b'{"prompt": "old", "score": NaN, "prompt": "Q", "response": "A", "x": Infinity}'
    (row,) = rows_of(written(tmp_path, "a.jsonl", line))
    assert (row.reason, row.prompt) == (None, "Q")


@pytest.mark.parametrize(
    "value",
    [
        [GOOD, GOOD],
        {"data": [GOOD, GOOD]},
        {"version": 1, "rows": [GOOD, GOOD]},
        {"prompt": ["Q", "Q"], "response": ["A", "A"]},
    ],
    ids=["list", "object", "object with more", "columns"],
)
def test_json_forms(tmp_path: Path, value: Any) -> None:
    rows = rows_of(written(tmp_path, "a.json", b"\xef\xbb\xbf" + json.dumps(value, indent=1).encode()))
    assert [(row.prompt, row.response, row.source_id) for row in rows] == [("Q", "A", "1"), ("Q", "A", "2")]


def test_json_lines_under_the_name_of_json(tmp_path: Path) -> None:
    rows = rows_of(written(tmp_path, "a.json", LINE + b"\n" + LINE[:-3] + b"\n"))
    assert [row.reason for row in rows] == [None, "broken_json"]


def test_one_conversation_as_a_json_file(tmp_path: Path) -> None:
    value = {"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]}
    assert [row.response for row in rows_of(written(tmp_path, "a.json", json.dumps(value).encode()))] == ["A"]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.jsonl", b"", ["empty"]),
        ("a.jsonl", b"\n \n", ["no rows"]),
        ("a.jsonl", b"1\n2\n", ["JSON object"]),
        ("a.json", b'[{"prompt": "Q",\n "response": ]', ["line 2", "column", ".jsonl"]),
        ("a.json", b"[]", ["no rows"]),
        ("a.json", b'"text"', ["list of objects"]),
        ("a.json", b"[" * 100_000, ["nested"]),
        ("a.json", b'[{"prompt": "\xe9"}]', ["UTF-8", "byte 14"]),
        ("a.parquet", b"PAR1 but not really", ["Parquet"]),
        ("a.parquet", b"", ["empty"]),
    ],
)
def test_bad_file_is_one_line_that_names_it(tmp_path: Path, name: str, data: bytes, words: list[str]) -> None:
    with pytest.raises(SourceError) as caught:
        rows_of(written(tmp_path, name, data))
    message = str(caught.value)
    assert "\n" not in message
    for word in (name, *words):
        assert word in message


def test_parquet_reads_like_json_lines(tmp_path: Path) -> None:
    turns = [[{"role": "user", "content": "Q"}, {"role": "assistant", "content": f"A{i}"}] for i in range(300)]
    turns[7] = None  # type: ignore[call-overload]
    pq.write_table(pa.table({"messages": turns, "id": [f"r{i}" for i in range(300)]}), tmp_path / "a.parquet")
    rows = rows_of(tmp_path / "a.parquet")
    assert [row.source_id for row in rows] == [f"r{i}" for i in range(300)]
    assert [row.position for row in rows] == list(range(1, 301))
    assert rows[299].response == "A299"
    assert [row.source_id for row in rows if row.reason] == ["r7"]


def test_parquet_row_that_is_no_utf8_stays_alone(tmp_path: Path) -> None:
    raw = pa.array([b"Q", b"caf\xe9", b"Q"]).view(pa.string())
    pq.write_table(pa.table({"prompt": raw, "response": ["A", "A", "A"]}), tmp_path / "a.parquet")
    assert [row.reason for row in rows_of(tmp_path / "a.parquet")] == [None, "not_utf8", None]


def test_cut_parquet_is_one_line(tmp_path: Path) -> None:
    pq.write_table(pa.table({"prompt": ["Q"] * 100, "response": ["A"] * 100}), tmp_path / "a.parquet")
    data = (tmp_path / "a.parquet").read_bytes()
    with pytest.raises(SourceError, match=r"cut\.parquet: not a whole Parquet file"):
        rows_of(written(tmp_path, "cut.parquet", data[: len(data) // 2]))


def test_parquet_with_a_damaged_page_names_the_row(tmp_path: Path) -> None:
    text = [f"{i} " * 2000 for i in range(400)]
    pq.write_table(pa.table({"prompt": text, "response": text}), tmp_path / "a.parquet", row_group_size=200)
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    middle = len(data) * 3 // 5
    data[middle : middle + 4000] = b"\xff" * 4000
    (source,) = open_sources([str(written(tmp_path, "b.parquet", bytes(data)))], None, None)
    with pytest.raises(SourceError, match=r"b\.parquet.* after row \d+"):
        list(source.rows())


def test_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    import hashlib

    (source,) = open_sources([str(written(tmp_path, "a.jsonl", LINE))], None, None)
    expected = {"name": "a.jsonl", "kind": "jsonl", "bytes": len(LINE), "sha256": hashlib.sha256(LINE).hexdigest()}
    assert source.fingerprint() == expected


def test_reading_lines_keeps_memory_flat(tmp_path: Path) -> None:
    path = tmp_path / "big.jsonl"
    line = json.dumps({"prompt": "Q", "response": "A" * 20_000}).encode() + b"\n"
    path.write_bytes(line * 1500)  # 30 MB
    (source,) = open_sources([str(path)], None, None)
    tracemalloc.start()
    assert sum(row.reason is None for row in source.rows()) == 1500
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(st.binary(max_size=60).map(lambda data: data.replace(b"\n", b"")), max_size=8))
def test_every_line_that_is_not_blank_gives_one_row(tmp_path: Path, lines: list[bytes]) -> None:
    rows = rows_of(written(tmp_path, "any.jsonl", b"\n".join([LINE, *lines])))
    assert len(rows) == 1 + sum(bool(line.strip()) for line in lines)
    assert all(row.reason is None or row.reason in READ_REASONS for row in rows)
    for row in rows:
        row.raw.encode("utf-8")
