"""Hostile rows, files, models and folders through the command: a row with a reason, or one line and exit code 2."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import KERNEL, fenced, pair, train_tokenizer

from curate import build as build_command
from curate.config import BuildConfig
from curate.console import main
from curate.driver import build_dataset
from curate.score import StubScorer
from curate.sources import archives, open_sources, parquet
from tests.pace import processor_time

Write = Callable[..., Path]
Run = Callable[..., str]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `python -m curate.build` in this process: it must end with code 2 and one line, which is returned."""

    def run(*arguments: str | Path) -> str:
        monkeypatch.setattr(sys, "argv", ["build", *map(str, arguments), "--jobs", "1"])
        with pytest.raises(SystemExit) as end:
            main(build_command.run)
        said = capsys.readouterr()
        assert (end.value.code, said.out) == (2, ""), said
        (line,) = (line for line in said.err.splitlines() if line.startswith("error: "))
        assert "Traceback" not in said.err
        assert "defect" not in said.err
        return line

    return run


@pytest.fixture
def build(tmp_path: Path, model_folder: Path) -> Callable[..., tuple[list[str], float]]:
    """Builds from rows; gives each row's reason, `ok` for an accepted one, and the processor seconds that it took."""

    def run(rows: list[dict[str, Any]], **options: Any) -> tuple[list[str], float]:
        source = tmp_path / "rows.jsonl"
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        began = time.thread_time()
        config = BuildConfig(source=(str(source),), out=tmp_path / "out", model=str(model_folder), jobs=1, **options)
        counts = build_dataset(config, StubScorer())["counts"]
        seconds = time.thread_time() - began
        assert counts["failed"] == 0
        bad = dict(pl.read_parquet(tmp_path / "out" / "rejected" / "*.parquet").select("id", "reason").iter_rows())
        return [bad.get(str(n), "ok") for n in range(counts["read"])], seconds

    return run


LONG = KERNEL.replace("scale", "s" * 100_000)
MANY_LINES = KERNEL.replace("x[i] *= a;\n", "{\n" + "        x[i] *= a;\n" * 20_000 + "    }\n")
NESTED = KERNEL.replace("if (i < n)", "{" * 10_000 + "if (i < n)").replace("*= a;\n", "*= a;" + "}" * 10_000 + "\n")


def test_absurd_code_is_labelled_in_bounded_time(tmp_path: Path, build: Callable[..., Any]) -> None:
    """A 100,000-character identifier, 10,000 nested braces, 20,000 lines: accepted where the length may be."""
    rows = [pair(n, code) for n, code in enumerate((LONG, NESTED, MANY_LINES))]
    found, seconds = build([pair(9), *rows], max_length=10**6, max_line=10**6, max_repeated_line_share=1)
    assert found[:2] == ["ok", "ok"]
    assert found[3] == "ok"
    assert found[2] in ("ok", "kernel_syntax_errors", "empty_kernel")  # its one statement is deeper than checks look
    assert seconds < 20
    lines = pl.read_parquet(tmp_path / "out" / "samples" / "*.parquet").sort(pl.col("response").str.len_chars())[-1]
    start, category = lines["char_start"][0], lines["category"][0]
    assert MANY_LINES in lines["response"][0]
    last = lines["response"][0].rindex("<<<")
    assert category.filter((start >= last) & (start < last + 3)).to_list() != [0]


def test_prompt_and_answer_exchanged_is_refused_for_want_of_code(build: Callable[..., Any]) -> None:
    """One such row among good ones gives no warning; its answer, which is an instruction, must not be trained on."""
    good = pair(1)
    swapped = {"prompt": pair(2)["response"], "response": "Scale a vector by a factor, with one thread an element."}
    assert build([good, swapped])[0] == ["ok", "no_cuda"]


def zip_with(name: str, kind: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as archive:
        archive.writestr(name, KERNEL * 20)
        archive.writestr("ok.cu", KERNEL, zipfile.ZIP_STORED)
    return file.getvalue()


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damaged_member_of_a_zip_costs_that_member(tmp_path: Path, kind: int) -> None:
    data = bytearray(zip_with("a.cu", kind))
    for at in range(48, 100):
        data[at] ^= 0xA5
    (tmp_path / "a.zip").write_bytes(data)
    rows = list(open_sources([str(tmp_path / "a.zip")])[0].rows())
    assert [(row.source_id, row.reason) for row in rows] == [("a.cu", "unreadable"), ("ok.cu", None)]
    assert "damaged in the archive" in rows[0].detail


def test_zip_whose_local_name_is_no_text_or_whose_offset_is_before_the_file(tmp_path: Path) -> None:
    data = bytearray(zip_with("größe.cu", zipfile.ZIP_STORED))
    local = bytearray(data)
    at = local.index("größe.cu".encode())
    local[at : at + 4] = b"\xff\xff\xff\xff"
    (tmp_path / "name.zip").write_bytes(local)
    directory = int.from_bytes(data[-6:-2], "little")
    data[-6:-2] = (directory + 40).to_bytes(4, "little")  # all offsets are then taken as 40 too high
    (tmp_path / "offset.zip").write_bytes(data)
    for name in ("name.zip", "offset.zip"):
        rows = list(open_sources([str(tmp_path / name)])[0].rows())
        assert (rows[0].source_id, rows[0].reason) == ("größe.cu", "unreadable"), name


def test_zip_that_expands_a_thousandfold_is_held_to_its_bounds(
    tmp_path: Path, refused: Run, model_folder: Path
) -> None:
    """300 members of 16 MiB each, 5 MB on disk, are more than may be expanded: told from the directory alone."""
    member = b" " * archives.MAX_CODE
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0.cu", member)
    data = (tmp_path / "bomb.zip").read_bytes()
    entry, end = data[data.index(b"PK\x01\x02") : data.index(b"PK\x05\x06")], bytearray(data[-22:])
    count = 300
    end[8:12] = count.to_bytes(2, "little") * 2
    end[12:16] = (count * len(entry)).to_bytes(4, "little")
    (tmp_path / "bomb.zip").write_bytes(data[: data.index(b"PK\x01\x02")] + entry * count + end)
    with processor_time(5):
        line = refused("--source", tmp_path / "bomb.zip", "--out", tmp_path / "out", "--model", model_folder)
        assert "expands to more than 4 GiB" in line
        assert "unpack what you need" in line
    assert not (tmp_path / "out").exists()


def test_parquet_whose_dictionary_is_a_bomb_is_read_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One value, stored once, for 200 rows: batches of a fixed number of rows would hold it that often at once."""
    monkeypatch.setattr(parquet, "_MOST_BYTES", 2**22)
    big = "x" * 1_000_000
    table = pa.table({"prompt": ["Q"] * 200, "response": [KERNEL, *[big] * 199]})
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd", dictionary_pagesize_limit=2**30)
    assert (tmp_path / "a.parquet").stat().st_size < 100_000
    source = open_sources([str(tmp_path / "a.parquet")])[0]
    del table
    held = pa.total_allocated_bytes()
    rows, most = 0, 0
    tracemalloc.start()
    try:
        for row in source.rows():
            rows += 1
            most = max(most, pa.total_allocated_bytes() - held)
            assert row.reason is None
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert rows == 200
    assert most < 20_000_000


def test_parquet_value_beyond_the_bound_of_a_line_is_a_reason(tmp_path: Path) -> None:
    table = pa.table({"prompt": ["Q", "Q"], "response": ["x" * (parquet.MAX_LINE + 1), "A"]})
    pq.write_table(table, tmp_path / "a.parquet")
    rows = list(open_sources([str(tmp_path / "a.parquet")])[0].rows())
    assert [row.reason for row in rows] == ["too_large", None]
    assert rows[0].raw == ""


def test_source_folder_that_loses_a_file_while_it_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for n in range(3):
        (folder / f"{n}.cu").write_text(KERNEL.replace("scale", f"scale{n}"))
    (source,) = open_sources([str(folder)])
    before, rows = source.fingerprint(), source.rows()
    assert next(rows).reason is None
    (folder / "1.cu").unlink()
    assert [row.reason for row in rows] == ["unreadable", None]
    assert source.fingerprint() != before


def test_source_that_is_gone_in_the_middle_is_one_line(
    tmp_path: Path, model_folder: Path, write_rows: Write, monkeypatch: pytest.MonkeyPatch, refused: Run
) -> None:
    from curate import driver

    source = write_rows([pair(n) for n in range(3)])
    measured = driver.measured

    def measure_and_remove(config: BuildConfig, frame: pl.DataFrame) -> pl.DataFrame:
        source.unlink(missing_ok=True)
        return measured(config, frame)

    monkeypatch.setattr(driver, "measured", measure_and_remove)
    line = refused("--source", source, "--out", tmp_path / "out", "--model", model_folder)
    assert "rows.jsonl" in line
    assert not (tmp_path / "out" / "manifest.json").exists()


# -- models -------------------------------------------------------------------------------------------------------------


def test_corrupt_weights_are_one_line_before_the_folder_is_made(
    tmp_path: Path, model_folder: Path, write_rows: Write, refused: Run
) -> None:
    source = write_rows([pair(1)])
    whole = (model_folder / "model.safetensors").read_bytes()
    shutil.copytree(model_folder, tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    header = int.from_bytes(whole[:8], "little")
    for damaged in (
        b"",
        whole[: len(whole) // 2],
        whole[:4],
        (2**62).to_bytes(8, "little") + whole[8:],
        whole[:8] + b"{" * header + whole[8 + header :],
        whole[:8] + whole[8 : 8 + header].replace(b'"F32"', b'"I64"') + whole[8 + header :],
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
    ):
        weights.write_bytes(damaged)
        line = refused("--source", source, "--out", tmp_path / "out", "--model", tmp_path / "model")
        assert "cannot load the weights" in line
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("damage", [b"", b"[]", b"{", b"\xff\xfe", b'{"tokenizer_class": 5, "model": {"type": "BPE"}}'])
def test_corrupt_settings_of_a_model_are_one_line(
    tmp_path: Path, model_folder: Path, write_rows: Write, refused: Run, name: str, damage: bytes
) -> None:
    shutil.copytree(model_folder, tmp_path / "model")
    (tmp_path / "model" / name).write_bytes(damage)
    line = refused("--source", write_rows([pair(1)]), "--out", tmp_path / "out", "--model", tmp_path / "model")
    assert "tokenizer" in line or "weights" in line
    assert not (tmp_path / "out").exists()


def test_tokenizer_of_more_tokens_than_the_model_embeds_is_one_line(
    tmp_path: Path, model_folder: Path, write_rows: Write, refused: Run
) -> None:
    """Whether the ids lie beyond the embedding is known when a sample has one: many models pad, and some lack, rows."""
    shutil.copytree(model_folder, tmp_path / "model", ignore=shutil.ignore_patterns("tokenizer*"))
    response = pair(1)["response"]
    train_tokenizer(
        [KERNEL, response, *(f"vector{n} tensor{n} matrix{n}" for n in range(300)), response], 2000
    ).save_pretrained(tmp_path / "model")
    rows = [{"prompt": f"vector{n} tensor{n} matrix{n}", "response": fenced()} for n in range(300)]
    line = refused("--source", write_rows(rows), "--out", tmp_path / "out", "--model", tmp_path / "model")
    assert "tokenizer and model do not belong together" in line
    assert not (tmp_path / "out" / "manifest.json").exists()


# -- folders ------------------------------------------------------------------------------------------------------------


def test_dataset_of_another_version_is_never_mixed_with_ours(
    tmp_path: Path, model_folder: Path, write_rows: Write, refused: Run
) -> None:
    source, out = write_rows([pair(1), pair(2)]), tmp_path / "out"
    options = ("--source", source, "--out", out, "--model", model_folder)
    config = BuildConfig(source=(str(source),), out=out, model=str(model_folder), jobs=1, skip_scoring=True)
    build_dataset(config)
    for name in ("manifest.json", ".cuset/plan.json"):
        content = json.loads((out / name).read_text())
        content["format_version"] = 99
        (out / name).write_text(json.dumps(content))
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert "format 99" in refused(*options, "--skip-scoring")
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before
    manifest = build_dataset(BuildConfig(**{**vars(config), "overwrite": True}))
    assert manifest["format_version"] == 1
    assert json.loads((out / "manifest.json").read_text()) == manifest


CANNOT_WRITE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if os.geteuid() == 0:
    for capability in (1, 2, 3):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER: what lets root ignore modes
        if libc.prctl(24, capability, 0, 0, 0):
            sys.exit(77)
os.execv(sys.executable, [sys.executable, "-m", "curate.build", *sys.argv[1:]])
"""


@pytest.mark.parametrize("begun", [False, True])
def test_folder_that_may_not_be_written_is_one_line(
    tmp_path: Path, model_folder: Path, write_rows: Write, begun: bool
) -> None:
    if os.name != "posix":
        pytest.skip("needs POSIX modes")
    source, out = write_rows([pair(1)]), tmp_path / "out"
    out.mkdir()
    if begun:
        (out / ".cuset").mkdir()
        (out / ".cuset" / "lock").touch()
        (out / ".cuset" / "lock").chmod(0o444)
        (out / ".cuset").chmod(0o555)
    out.chmod(0o555)
    try:
        done = subprocess.run(
            [sys.executable, "-c", CANNOT_WRITE, "--source", source, "--out", out, "--model", model_folder,
             "--skip-scoring", "--jobs", "1"],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    finally:
        for path in (out, out / ".cuset"):
            if path.exists():
                path.chmod(0o755)
    if done.returncode == 77:
        pytest.skip("root cannot be stopped from writing here: its capabilities cannot be dropped")
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    (line,) = done.stderr.splitlines()
    assert (
        line == f"error: --out {out}: cannot write there (Permission denied)" + line.partition("(Permission denied)")[2]
    )
    assert line.partition(";")[2]
    assert not (out / "manifest.json").exists()
