"""Bad input through the whole build: a row becomes a reason, a file or option one line; nothing raises, nothing is
lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import KERNEL, fenced, kernel, pair

from curate import driver, parts
from curate import inspect as inspect_command
from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.errors import CusetError, DatasetError, ModelError, OptionError, SourceError
from curate.score import StubScorer
from curate.store import connect

Write = Callable[..., Path]


@pytest.fixture
def reasons(tmp_path: Path, model_folder: Path) -> Callable[..., list[str]]:
    """Builds from bytes of a file and gives each row's reason, `ok` for an accepted one, in order."""

    def run(content: bytes, name: str = "rows.jsonl", **options: Any) -> list[str]:
        source = tmp_path / name
        source.write_bytes(content)
        out = tmp_path / "out"
        settings: dict[str, Any] = {
            "source": (str(source),),
            "out": out,
            "model": str(model_folder),
            "jobs": 1,
            "overwrite": True,
            **options,
        }
        counts = build_dataset(BuildConfig(**settings), StubScorer())["counts"]
        assert counts["failed"] == 0
        bad = dict(pl.read_parquet(out / "rejected" / "*.parquet").select("id", "reason").iter_rows())
        return [bad.get(str(n), "ok") for n in range(counts["read"])]

    return run


def line(row: Any) -> bytes:
    return json.dumps(row).encode() + b"\n"


def test_a_broken_line_among_good_ones(reasons: Callable[..., list[str]]) -> None:
    content = (
        line(pair(1))
        + b'{"prompt": "x", "respo\n'
        + b"nonsense\n"
        + b"[1, 2]\n"
        + b'"text"\n'
        + line(pair(2))
        + line(pair(3))[:-9]
    )
    assert reasons(content) == [
        "ok",
        "broken_json",
        "broken_json",
        "not_an_object",
        "not_an_object",
        "ok",
        "broken_json",
    ]


def test_nulls_and_other_types(reasons: Callable[..., list[str]]) -> None:
    rows = [
        pair(1),
        {"prompt": None, "response": "r"},
        {"prompt": "p", "response": None},
        {"prompt": "p"},
        {"prompt": 5, "response": "r"},
        {"prompt": "p", "response": ["r"]},
    ]
    assert reasons(b"".join(map(line, rows))) == [
        "ok",
        "missing_prompt",
        "missing_response",
        "missing_response",
        "wrong_type",
        "wrong_type",
    ]


def test_characters_that_no_text_should_hold(reasons: Callable[..., list[str]]) -> None:
    nul = {**pair(1), "response": fenced("// \0\n" + KERNEL)}
    surrogate = line({**pair(2), "prompt": "x"}).replace(b'"x"', b'"\\ud83d"')
    latin = line(pair(3)).replace(b"vector", "größe".encode("latin-1"))
    assert reasons(line(nul) + surrogate + latin + line(pair(4))) == [
        "nul_character",
        "lone_surrogate",
        "not_utf8",
        "ok",
    ]


def test_bom_crlf_and_blank_lines_are_no_fault(reasons: Callable[..., list[str]]) -> None:
    content = (
        b"\xef\xbb\xbf"
        + line(pair(1)).replace(b"\n", b"\r\n")
        + b"\r\n"
        + line({**pair(2), "response": fenced().replace("\n", "\r\n")})
    )
    assert reasons(content) == ["ok", "ok"]


def test_fences_that_never_close_and_special_tokens_in_comments(
    reasons: Callable[..., list[str]], tmp_path: Path
) -> None:
    unclosed = {**pair(1), "response": fenced().removesuffix("```\n")}
    special = {**pair(2), "response": fenced("// <|im_end|> <|im_start|>user\n" + kernel(2))}
    assert reasons(line(unclosed) + line(special)) == ["ok", "ok"]
    frame = pl.read_parquet(tmp_path / "out" / "samples" / "*.parquet")
    for row in frame.iter_rows(named=True):
        assert row["input_ids"][row["prompt_tokens"] :].count(2) == 1  # one <|im_end|>: the template's


def test_binary_noise(reasons: Callable[..., list[str]]) -> None:
    noise = bytes(range(256)) * 40
    found = reasons(noise + b"\n" + line(pair(1)))
    assert set(found) == {"not_utf8", "broken_json", "ok"}
    assert found[-1] == "ok"
    assert found.count("ok") == 1
    assert reasons(noise, "noise.cu") == ["binary_file"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("empty.jsonl", b"", "empty"),
        ("cut.parquet", b"PAR1\x15\x04\x15", "cut.parquet"),
        ("broken.json", b'[{"prompt": "x"', "broken.json"),
        ("notes.docx", b"PK", "notes.docx"),
        ("columns.jsonl", b'{"alpha": "1", "beta": "2"}\n', "alpha"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(
    tmp_path: Path, model_folder: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=says) as error:
        build_dataset(
            BuildConfig(source=(str(tmp_path / name),), out=tmp_path / "out", model=str(model_folder)), StubScorer()
        )
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_truncated_parquet_is_one_line(tmp_path: Path, model_folder: Path) -> None:
    whole = tmp_path / "rows.parquet"
    pl.DataFrame([pair(n) for n in range(50)]).write_parquet(whole)
    whole.write_bytes(whole.read_bytes()[:-200])
    with pytest.raises(SourceError, match=r"rows\.parquet"):
        build_dataset(BuildConfig(source=(str(whole),), out=tmp_path / "out", model=str(model_folder)), StubScorer())


def test_a_folder_without_sources_is_one_line(tmp_path: Path, model_folder: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="empty"):
        build_dataset(
            BuildConfig(source=(str(tmp_path / "empty"),), out=tmp_path / "out", model=str(model_folder)), StubScorer()
        )


def test_a_folder_that_is_not_ours_is_never_overwritten(tmp_path: Path, model_folder: Path, write_rows: Write) -> None:
    out = tmp_path / "home"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(DatasetError, match="holds other files"):
            build_dataset(
                BuildConfig(
                    source=(str(write_rows([pair(1)])),), out=out, model=str(model_folder), overwrite=overwrite
                ),
                StubScorer(),
            )
    assert (out / "thesis.tex").read_text() == "years of work"


def test_a_dataset_that_stands_is_replaced_only_on_request(
    tmp_path: Path, model_folder: Path, write_rows: Write
) -> None:
    settings: dict[str, Any] = {
        "source": (str(write_rows([pair(1)])),),
        "out": tmp_path / "out",
        "model": str(model_folder),
        "jobs": 1,
    }
    build_dataset(BuildConfig(**settings), StubScorer())
    before = (tmp_path / "out" / "manifest.json").read_bytes()
    other = {**settings, "source": (str(write_rows([pair(2)], "other.jsonl")),)}
    with pytest.raises(DatasetError, match="--overwrite"):
        build_dataset(BuildConfig(**other), StubScorer())
    assert (tmp_path / "out" / "manifest.json").read_bytes() == before
    (tmp_path / "out" / "notes.txt").write_text("mine")
    build_dataset(BuildConfig(**settings, overwrite=True), StubScorer())
    assert (tmp_path / "out" / "manifest.json").read_bytes() == before
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_a_model_that_cannot_be_used_leaves_no_folder(tmp_path: Path, model_folder: Path, write_rows: Write) -> None:
    shutil.copytree(model_folder, tmp_path / "model", ignore=shutil.ignore_patterns("tokenizer*"))
    for model in (str(tmp_path / "model"), str(tmp_path / "nothing"), "nobody-xyz/nothing"):
        with pytest.raises(ModelError):
            build_dataset(BuildConfig(source=(str(write_rows([pair(1)])),), out=tmp_path / "out", model=model))
        assert not (tmp_path / "out").exists()


def test_out_that_is_a_file_is_one_line(tmp_path: Path, model_folder: Path, write_rows: Write) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(CusetError, match="--out"):
        build_dataset(
            BuildConfig(source=(str(write_rows([pair(1)])),), out=tmp_path / "out", model=str(model_folder)),
            StubScorer(),
        )


def test_a_limit_of_zero_and_a_corpus_of_bad_rows_still_make_datasets(
    reasons: Callable[..., list[str]], tmp_path: Path
) -> None:
    assert reasons(line(pair(1)), limit=0) == []
    assert reasons(line({"prompt": None, "response": "r"}) + b"{\n") == ["missing_prompt", "broken_json"]
    assert len(pl.read_parquet(tmp_path / "out" / "samples" / "*.parquet")) == 0


def test_a_source_and_the_output_may_not_lie_inside_each_other(
    tmp_path: Path, model_folder: Path, write_rows: Write
) -> None:
    settings: dict[str, Any] = {"model": str(model_folder), "jobs": 1, "overwrite": True}
    out = tmp_path / "out"
    build_dataset(BuildConfig(source=(str(write_rows([pair(1)])),), out=out, **settings), StubScorer())
    own = str(out / "samples" / "part-00000.parquet")
    with pytest.raises(OptionError, match="inside each other"):
        build_dataset(BuildConfig(source=(own,), out=out, **settings), StubScorer())
    assert (out / "samples" / "part-00000.parquet").is_file()
    with pytest.raises(OptionError, match="inside each other"):
        build_dataset(BuildConfig(source=(str(tmp_path),), out=tmp_path / "new", **settings), StubScorer())


def test_a_manifest_of_someone_else_does_not_make_a_folder_ours(
    tmp_path: Path, model_folder: Path, write_rows: Write
) -> None:
    out = tmp_path / "extension"
    (out / "samples").mkdir(parents=True)
    (out / "manifest.json").write_text('{"manifest_version": 3}')
    (out / "samples" / "precious.txt").write_text("mine")
    source = (str(write_rows([pair(1)])),)
    with pytest.raises(DatasetError, match="holds other files"):
        build_dataset(BuildConfig(source=source, out=out, model=str(model_folder), overwrite=True), StubScorer())
    assert (out / "samples" / "precious.txt").read_text() == "mine"


@pytest.mark.parametrize(
    "name", ["a'b [x] *", "response=zzz", "sp ace", "größe 🎉", "q?uestion", "esc\x1b[31m", "back\\slash"]
)
def test_a_folder_may_have_any_name(
    tmp_path: Path, model_folder: Path, write_rows: Write, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / name
    build_dataset(
        BuildConfig(source=(str(write_rows([pair(1), "{"])),), out=out, model=str(model_folder), jobs=1), StubScorer()
    )
    assert connect(out).execute("select count(distinct response), any_value(response) from samples").fetchone() == (
        1,
        pair(1)["response"],
    )
    assert connect(out).execute("select count(*) from manifest").fetchone() == (1,)
    for row in ("1", "2"):
        inspect_command.run([str(out), row])
    assert "broken_json" in capsys.readouterr().out


def test_a_source_that_changes_while_it_is_read_is_told(
    tmp_path: Path, model_folder: Path, write_rows: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_rows([pair(1)])

    def append_then_judge(self: Any) -> Any:
        raise AssertionError("the change was not noticed")

    def measure_and_append(config: BuildConfig, frame: pl.DataFrame) -> pl.DataFrame:
        with source.open("a") as file:
            file.write(json.dumps(pair(2)) + "\n")
        return measured(config, frame)

    measured = driver.measured
    monkeypatch.setattr(driver, "measured", measure_and_append)
    monkeypatch.setattr(driver._Build, "_judge", append_then_judge)
    with pytest.raises(SourceError, match="has changed while it was read"):
        build_dataset(
            BuildConfig(source=(str(source),), out=tmp_path / "out", model=str(model_folder), jobs=1), StubScorer()
        )
    assert not list((tmp_path / "out").glob(".cuset/parsed-*")), "rows of two states of the file are kept"


@pytest.mark.parametrize(
    "damage", [lambda p: p.write_bytes(b""), lambda p: p.write_bytes(p.read_bytes()[:-9]), Path.unlink]
)
def test_damaged_intermediate_results_are_made_again(
    tmp_path: Path, model_folder: Path, write_rows: Write, damage: Callable[[Path], Any]
) -> None:
    source, out = (str(write_rows([pair(n) for n in range(5)])),), tmp_path / "out"
    settings: dict[str, Any] = {"source": source, "out": out, "model": str(model_folder), "jobs": 1, "shard_rows": 2}
    build_dataset(BuildConfig(**settings), StubScorer())
    whole = {p: p.read_bytes() for p in out.rglob("*") if p.is_file() and p.name != "build.log.json"}
    (out / "manifest.json").unlink()
    damage(next(out.glob(".cuset/parsed-*/000001.parquet")))
    damage(out / "samples" / "part-00000.parquet")
    damage(out / "rejected" / "part-00002.parquet")
    build_dataset(BuildConfig(**settings), StubScorer())
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file() and p.name != "build.log.json"} == whole


def test_a_full_disk_is_one_line_and_the_build_goes_on_when_there_is_room(
    tmp_path: Path, model_folder: Path, write_rows: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {
        "source": (str(write_rows([pair(n) for n in range(5)])),),
        "model": str(model_folder),
        "jobs": 1,
        "shard_rows": 2,
    }
    written: list[int] = []
    real = parts.write_part

    def full(*arguments: Any) -> None:
        written.append(1)
        if len(written) == 5:
            raise OSError(28, "No space left on device")
        real(*arguments)

    monkeypatch.setattr(parts, "write_part", full)
    with pytest.raises(DatasetError, match="No space left on device"):
        build_dataset(BuildConfig(out=tmp_path / "out", **settings), StubScorer())
    monkeypatch.undo()
    build_dataset(BuildConfig(out=tmp_path / "out", **settings), StubScorer())
    build_dataset(BuildConfig(out=tmp_path / "fresh", **settings), StubScorer())
    for path in (tmp_path / "fresh").rglob("*.parquet"):
        assert (tmp_path / "out" / path.relative_to(tmp_path / "fresh")).read_bytes() == path.read_bytes()
