"""Compressed files read like plain ones; where one is cut off, the rows before the break are kept."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from curate.errors import SourceError
from curate.sources import READ_REASONS, Row, open_sources
from curate.sources.streams import MAX_LINE, kind_of

KERNEL = "__global__ void add(const float *a, float *b) { b[threadIdx.x] += a[threadIdx.x]; }\n"


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


PACK: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".zst": zstd, "": bytes}
both = pytest.mark.parametrize("suffix", [".gz", ".zst"])


def rows_of(path: Path) -> list[Row]:
    (source,) = open_sources([str(path)], None, None)
    return list(source.rows())


def written(tmp_path: Path, name: str, data: bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def lines(count: int) -> bytes:
    """Rows that do not compress well, so that a cut in the file is a cut in the middle of the rows."""
    rng = random.Random(0)
    return b"".join(
        json.dumps({"prompt": "Q", "response": f"A{i} {rng.randbytes(200).hex()}"}).encode() + b"\n"
        for i in range(count)
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.jsonl.gz", (".jsonl", ".gz")),
        ("A.CSV.ZST", (".csv", ".zst")),
        ("v1.2.cu", (".cu", "")),
        ("x.gz", ("", ".gz")),
        ("x", ("", "")),
        (".gz", ("", "")),
    ],
)
def test_kind(name: str, expected: tuple[str, str]) -> None:
    assert kind_of(name) == expected


@both
@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (".jsonl", b'\xef\xbb\xbf{"prompt": "Q", "response": "A"}\n{"prompt": "Q", "response": "B"}'),
        (".json", b'[{"prompt": "Q", "response": "A"}, {"prompt": "Q", "response": "B"}]'),
        (".json", b'{"prompt": "Q", "response": "A"}\n{"prompt": "Q", "response": "B"}\n'),
        (".csv", b'prompt,response\nQ,A\n"Q",B\n'),
        (".tsv", b"prompt\tresponse\nQ\tA\nQ\tB\n"),
    ],
)
def test_reads_like_the_plain_file(tmp_path: Path, suffix: str, kind: str, data: bytes) -> None:
    packed = written(tmp_path, f"a{kind}{suffix}", PACK[suffix](data))
    assert [row.response for row in rows_of(packed)] == ["A", "B"]
    (source,) = open_sources([str(packed)], None, None)
    assert (source.name, source.fingerprint()["kind"]) == (packed.name, f"{kind[1:]}{suffix}")
    assert source.fingerprint()["bytes"] == packed.stat().st_size


@both
def test_several_streams_in_one_file(tmp_path: Path, suffix: str) -> None:
    data = b'{"prompt": "Q", "response": "A"}\n'
    assert len(rows_of(written(tmp_path, f"a.jsonl{suffix}", PACK[suffix](data) + PACK[suffix](data)))) == 2


@both
@pytest.mark.parametrize("share", [0.5, 0.9, 0.999])
def test_cut_file_keeps_the_rows_before_the_break(tmp_path: Path, suffix: str, share: float) -> None:
    whole = PACK[suffix](lines(3000))
    rows = rows_of(written(tmp_path, f"a.jsonl{suffix}", whole[: int(len(whole) * share)]))
    assert [row.reason for row in rows] == [None] * (len(rows) - 1) + ["truncated"]
    assert "truncated" in READ_REASONS
    assert len(rows) > 3000 * share - 700  # zstd: a block of 128 KiB that is not whole has no text
    assert [row.response.split()[0] for row in rows[:-1]] == [f"A{i}" for i in range(len(rows) - 1)]
    rows[-1].raw.encode("utf-8")


def test_gzip_that_lacks_its_last_byte_lacks_no_row(tmp_path: Path) -> None:
    rows = rows_of(written(tmp_path, "a.jsonl.gz", gzip.compress(lines(50))[:-1]))
    assert [row.reason for row in rows] == [None] * 50 + ["truncated"]


@both
@pytest.mark.parametrize("kind", [".jsonl", ".json", ".csv"])
def test_nothing_left_of_a_file_is_one_line(tmp_path: Path, suffix: str, kind: str) -> None:
    with pytest.raises(SourceError) as caught:
        rows_of(written(tmp_path, f"a{kind}{suffix}", PACK[suffix](lines(5))[:12]))
    assert f"a{kind}{suffix}" in str(caught.value)
    assert "\n" not in str(caught.value)


@both
def test_damaged_file_is_refused_since_its_text_cannot_be_trusted(tmp_path: Path, suffix: str) -> None:
    data = bytearray(PACK[suffix](lines(2000)))
    middle = len(data) // 2
    data[middle : middle + 80_000] = bytes(80_000)  # over the head of a block: zstd need not have a checksum
    (source,) = open_sources([str(written(tmp_path, f"a.jsonl{suffix}", bytes(data)))], None, None)
    with pytest.raises(SourceError, match="damaged compressed data"):
        list(source.rows())


@both
def test_plain_file_under_a_compressed_name(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(SourceError, match="damaged"):
        rows_of(written(tmp_path, f"a.jsonl{suffix}", lines(2)))


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_line_of_50_mb_is_skipped_in_little_memory(tmp_path: Path, suffix: str) -> None:
    good = b'{"prompt": "Q", "response": "A"}\n'
    long = b'{"prompt": "Q", "response": "' + b"x" * 50_000_000 + b'"}\n'
    path = written(tmp_path, f"a.jsonl{suffix}", PACK[suffix](good + long + good))
    (source,) = open_sources([str(path)], None, None)
    tracemalloc.start()
    try:
        rows = list(source.rows())
        assert tracemalloc.get_traced_memory()[1] < 3 * MAX_LINE
    finally:
        tracemalloc.stop()
    assert [row.reason for row in rows] == [None, "too_large", None]
    assert [row.source_id for row in rows] == ["1", "2", "3"]
    assert f"{len(long)} bytes" in rows[1].detail
    assert 0 < len(rows[1].raw) <= 1000


def test_lines_up_to_the_limit_are_read(tmp_path: Path) -> None:
    frame = len(b'{"prompt": "Q", "response": ""}\n')
    for size, reason in ((MAX_LINE, None), (MAX_LINE + 1, "too_large")):
        text = b"x" * (size - frame)
        data = b'{"prompt": "Q", "response": "A"}\n{"prompt": "Q", "response": "' + text + b'"}\n'
        assert [row.reason for row in rows_of(written(tmp_path, "a.jsonl", data))] == [None, reason]


@both
def test_code_files(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pack = PACK[suffix]
    (folder / f"a.cu{suffix}").write_bytes(pack(KERNEL.encode()))
    (folder / f"b.cuh{suffix}").write_bytes(pack(random.Random(0).randbytes(5000).hex().encode())[:-100])
    (folder / f"c.cu{suffix}").write_bytes(pack(b" " * (MAX_LINE + 1)))
    (folder / f"d.cu{suffix}").write_bytes(b"no such stream")
    (folder / "e.cuh").write_text("int f();\n")
    rows = rows_of(folder)
    assert [(row.source_id, row.reason) for row in rows] == [
        (f"a.cu{suffix}", None),
        (f"b.cuh{suffix}", "truncated"),
        (f"c.cu{suffix}", "too_large"),
        (f"d.cu{suffix}", "unreadable"),
        ("e.cuh", None),
    ]
    assert rows[0].response == KERNEL
    assert str(tmp_path) not in rows[3].detail
    (alone,) = rows_of(folder / f"a.cu{suffix}")
    assert alone.response == KERNEL
