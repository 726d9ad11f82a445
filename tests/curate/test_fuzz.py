"""Damaged rows and damaged files, by the hundred, through reading, extraction, parsing, tokenising and alignment.

The mutator is seeded, so that a failure can be had again. `CUSET_FUZZ=20` does twenty times as many, with other seeds.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import random
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from conftest import KERNEL, fenced, pair

from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.errors import CusetError
from curate.frames import FAILED, frame_of
from curate.measure import code_blocks
from curate.score import StubScorer
from curate.sources import READ_REASONS, Row, open_sources
from curate.stages import JUDGED_EARLY, MODEL_STAGES, PARSE_STAGES, Context, run_filters, run_stages
from tests.pace import processor_time

TIMES = int(os.environ.get("CUSET_FUZZ", "1"))
ROUNDS = range(5 * TIMES)
LONGEST = 8.0
"""Processor seconds that the slowest file, or group of rows, may take."""

PYTHON = f'import torch\nsrc = r"""\n{KERNEL}"""\none = "__global__ void k(int *p)\\n{{ p[0] = 1; }}"\nload_inline("m", cuda_sources=[src, one])\n'
ANSWERS = (
    fenced(),
    fenced(tag=""),
    fenced(PYTHON, "python"),
    KERNEL,
    PYTHON,
    f"<think>\nPerhaps `x`?\n```cuda\n{KERNEL}```\n</think>\n{fenced()}",
    "\n".join(f"> {line}" for line in fenced().splitlines()),
    fenced(
        "#define AT(i, j) a[(i) * n + (j)]\n#define RUN(k) \\\n  k<<<1, 32>>>(p)\n// größe 🎉 κ\n" + KERNEL, "{.cuda}"
    ),
    f"````markdown\n{fenced()}\n````\n\n1. so:\n   {fenced('__device__ int one() { return 1; }')}",
)
SPLINTERS = (
    *("\0", "\ud83d", "\udc80", "\ufeff", "\u2028", "\x85", "\r", "\r\n", "\u202e", "\u200d", "e\u0301", "\U0010ffff"),
    *("🎉", "ﷺ", "İ", "ß", "\u0600", "\x1b[31m", "\x0c", "\x1c", "\t", "\\", "\\\n", '"', '"""', "'''", "//", "/*"),
    *("*/", "`", "```", "````cuda\n", "~~~", "<think>", "</think>", "<|im_end|>", "<|im_start|>assistant\n", "⟪0⟫"),
    *("<|endoftext|>", "\U000f0000", "\U000ffffd", "{", "}", "((((((", "]]]", "<<<", ">>>", "#", "#if 0\n", "#define "),
    *("__global__ ", 'R"(', "u8", "\\N{DASH}", "\\x", 'f"{', "{{", "template<", "9" * 50, "x" * 300, " " * 200),
)


def mutated_text(draw: random.Random, text: str, other: str) -> str:
    for _ in range(draw.choice((1, 1, 2, 4, 8))):
        a, b = sorted((draw.randrange(len(text) + 1), draw.randrange(len(text) + 1)))
        match draw.randrange(8):
            case 0:
                text = text[:a] + draw.choice(SPLINTERS) + text[a:]
            case 1:
                text = text[:a] + draw.choice(SPLINTERS) * draw.choice((2, 10, 100)) + text[a:]
            case 2:
                text = text[:a] if draw.random() < 0.5 else text[a:]
            case 3:
                text = text[:a] + text[b:]
            case 4:
                text = text[:b] + text[a:b] * draw.choice((1, 2, 5)) + text[b:] if len(text) < 20_000 else text[:a]
            case 5:
                text = text[:a] + other[a:b] + text[b:]
            case 6:
                text = text[a:b] + text[:a] + text[b:]
            case _:
                raw = mutated_bytes(draw, text.encode("utf-8", "surrogatepass"))
                text = raw.decode("utf-8", draw.choice(("replace", "surrogateescape", "ignore")))
    return text


def mutated_bytes(draw: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 3, 10))):
        a, b = sorted((draw.randrange(len(changed) + 1), draw.randrange(len(changed) + 1)))
        match draw.randrange(7):
            case 0 | 1:
                for _ in range(draw.choice((1, 4, 30))):
                    if changed:
                        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
            case 2:
                del changed[a:]
            case 3:
                del changed[a : a + draw.choice((1, 2, 16, 512))]
            case 4:
                changed[a:a] = changed[a:b][:4096] if len(changed) < 10**6 else b""
            case 5:
                odd = (b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\xc3", b"\n", b'"', b",", b"}", b"\x00" * 512, b"1e999")
                changed[a:a] = draw.choice(odd)
            case _:
                changed[a : a + 4] = draw.randbytes(4)
    return bytes(changed)


def mutated_row(draw: random.Random) -> dict[str, Any]:
    """Good columns with other contents, exchanged columns, and values of other types."""
    row: dict[str, Any] = {"prompt": "Scale a vector.", "response": draw.choice(ANSWERS), "id": f"row-{draw.random()}"}
    for name in draw.sample(("prompt", "response", "response", "id"), 2):
        row[name] = mutated_text(draw, row[name], draw.choice(ANSWERS))
    if draw.random() < 0.1:
        one, two = draw.sample(tuple(row), 2)
        row[one], row[two] = row[two], row[one]
    if draw.random() < 0.1:
        odd = (None, 5, 1e308, True, [], {}, [[["x"]]], {"a": {"b": []}}, ["x", None], [{"role": "user"}], "")
        row[draw.choice(tuple(row))] = draw.choice(odd)
    return row


def talk(row: dict[str, Any]) -> dict[str, Any]:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": row["prompt"]}]
    return {"messages": [*turns, {"role": "assistant", "content": row["response"]}]}


def json_lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def delimited(rows: list[dict[str, Any]], delimiter: str = ",") -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, ["prompt", "response"], extrasaction="ignore", delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def parquet(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    pl.DataFrame(rows).write_parquet(file, compression="zstd")
    return file.getvalue()


def zstd(data: bytes) -> bytes:
    file = pa.BufferOutputStream()
    with pa.CompressedOutputStream(file, "zstd") as packed:
        packed.write(data)
    return bytes(file.getvalue())


def zipped(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for n, row in enumerate(rows):
            archive.writestr(f"src/{n}.cu", row["response"])
    return file.getvalue()


def tarred(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for n, row in enumerate(rows):
            entry = tarfile.TarInfo(f"src/größe-{n}.cu" if n else "x" * 120 + ".cu")
            data = row["response"].encode()
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return file.getvalue()


FILES: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "a.jsonl": json_lines,
    "talk.jsonl": lambda rows: json_lines([talk(row) for row in rows]),
    "a.json": lambda rows: json.dumps(rows, indent=1).encode(),
    "columns.json": lambda rows: json.dumps({k: [r[k] for r in rows] for k in ("prompt", "response")}).encode(),
    "a.csv": delimited,
    "a.tsv": lambda rows: delimited(rows, "\t"),
    "a.parquet": parquet,
    "talk.parquet": lambda rows: parquet([talk(row) for row in rows]),
    "a.cu": lambda rows: rows[0]["response"].encode(),
    "a.jsonl.gz": lambda rows: gzip.compress(json_lines(rows), mtime=0),
    "a.jsonl.zst": lambda rows: zstd(json_lines(rows)),
    "a.csv.gz": lambda rows: gzip.compress(delimited(rows), mtime=0),
    "a.cu.zst": lambda rows: zstd(rows[0]["response"].encode()),
    "a.zip": zipped,
    "a.tar": tarred,
    "a.tar.gz": lambda rows: gzip.compress(tarred(rows), mtime=0),
    "a.tar.zst": lambda rows: zstd(tarred(rows)),
}


@pytest.fixture(scope="module")
def context(model_folder: Path) -> Context:
    context = Context(BuildConfig(model=str(model_folder), skip_scoring=True))
    assert context.encoder.start_token == ""
    return context


def through(rows: list[Row], context: Context) -> Counter[str]:
    """Reasons of rows after every stage up to alignment ("" for an accepted one), each row checked."""
    frame = run_filters(JUDGED_EARLY, run_stages(PARSE_STAGES, frame_of(rows, 0), context), context.config)
    frame = run_stages([s for s in MODEL_STAGES if s.name in {"tokenise", "label"}], frame, context)
    assert frame["row"].to_list() == list(range(len(rows))), "a row is lost, doubled or out of order"
    for row in frame.iter_rows(named=True):
        if row["reason"] is not None:
            assert row["reason"] != FAILED, (row["stage"], row["detail"], row["response"])
            assert row["stage"], row
            continue
        blocks_stand_in(row)
        tokens_stand_in(row)
    return Counter(reason or "" for reason in frame["reason"])


def blocks_stand_in(row: dict[str, Any]) -> None:
    response, at = row["response"], 0
    for block in code_blocks(row):
        assert at <= block.start < block.end <= len(response)
        at = block.end
        starts, ends = block.char_ranges()
        assert len(starts) == len(ends) == len(block.text)
        assert (block.start <= starts).all()
        assert (starts < ends).all()
        assert (ends <= block.end).all()
        assert (ends[:-1] <= starts[1:]).all(), "characters of a block are out of order"
    for name in ("category", "statement", "index_distance", "location", "in_code"):
        assert len(row[f"char_{name}"]) == len(response)


def tokens_stand_in(row: dict[str, Any]) -> None:
    pairs = [(a, b) for a, b in zip(row["char_start"], row["char_end"], strict=True) if (a, b) != (-1, -1)]
    assert all(0 <= a < b <= len(row["response"]) for a, b in pairs)
    assert all(a <= c and b <= d for (a, b), (c, d) in pairwise(pairs)), "tokens are out of order"
    covered = {i for a, b in pairs for i in range(a, b)}
    assert covered == set(range(len(row["response"]))), "a character of the response is in no token"
    tokens = len(row["input_ids"]) - row["prompt_tokens"]
    assert row["prompt_tokens"] > 0
    for name in ("char_start", "category", "statement", "index_distance", "location", "in_code"):
        assert len(row[name]) == tokens


@pytest.mark.parametrize("seed", ROUNDS)
def test_mutated_rows(tmp_path: Path, context: Context, seed: int) -> None:
    draw = random.Random(seed)
    rows = [pair(0), *(mutated_row(draw) for _ in range(80))]
    (tmp_path / "rows.jsonl").write_bytes(json_lines(rows))
    with processor_time(LONGEST):
        read = list(open_sources([str(tmp_path / "rows.jsonl")])[0].rows())
        assert len(read) == len(rows)
        assert {row.reason for row in read} <= {None, *READ_REASONS}
        found = through(read, context)
    assert found[""] > 10, "mutations so wild that next to nothing is left test little"
    assert found.total() - found[""] > 10


def read_or_told(path: Path) -> tuple[list[Row], str]:
    """The rows of a file, or the one error that may be raised for it."""
    try:
        source = open_sources([str(path)])[0]
        rows = list(source.rows())
        source.fingerprint()
        return rows, ""
    except CusetError as error:
        return [], str(error)


@pytest.mark.parametrize("name", FILES)
def test_mutated_files(tmp_path: Path, context: Context, name: str) -> None:
    draw = random.Random(name)
    path = tmp_path / name
    whole = FILES[name]([{"prompt": "Scale.", "response": answer} for answer in (ANSWERS[3], ANSWERS[7], ANSWERS[2])])
    path.write_bytes(whole)
    rows = list(open_sources([str(path)])[0].rows())
    assert [row.reason for row in rows] == [None] * len(rows)
    ends: Counter[str] = Counter()
    for _ in range(30 * TIMES):
        path.write_bytes(mutated_bytes(draw, whole))
        with processor_time(LONGEST):
            rows, said = read_or_told(path)
            if said:
                assert name in said
                ends["file"] += 1
                continue
            assert {row.reason for row in rows} <= {None, *READ_REASONS}
            assert [row.position for row in rows] == sorted({row.position for row in rows})
            ends += through(rows, context)
    assert ends.total() >= 30 * TIMES
    if Path(name).suffix in {".jsonl", ".csv", ".tsv", ".cu", ".tar", ".zip"}:
        assert ends[""] > 0
        assert len(ends) > 1, "mutations so tame, or so wild, that all files end alike test little"


def test_mutated_rows_through_a_whole_build(tmp_path: Path, model_folder: Path) -> None:
    draw = random.Random(99)
    kinds = [
        json_lines([mutated_row(draw) for _ in range(40)]),
        delimited([{"prompt": "Scale.", "response": fenced()}] * 9),
    ]
    lines = [mutated_bytes(draw, line) if draw.random() < 0.3 else line for line in kinds[0].splitlines(keepends=True)]
    (tmp_path / "a.jsonl").write_bytes(json_lines([pair(0)]) + b"".join(lines))
    (tmp_path / "a.csv").write_bytes(kinds[1][:30] + mutated_bytes(draw, kinds[1][30:]))
    sources = (str(tmp_path / "a.jsonl"), str(tmp_path / "a.csv"))
    counts = build_dataset(
        BuildConfig(source=sources, out=tmp_path / "out", model=str(model_folder), jobs=1, shard_rows=16), StubScorer()
    )["counts"]
    assert counts["failed"] == 0
    assert counts["read"] == counts["accepted"] + counts["rejected"]
    assert counts["read"] == sum(len(list(source.rows())) for source in open_sources(sources))
    for table, rows in (
        ("samples", counts["accepted"]),
        ("rejected", counts["rejected"]),
        ("refused", counts["rejected"]),
    ):
        assert pl.read_parquet(tmp_path / "out" / table / "*.parquet").height == rows
