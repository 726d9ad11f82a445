"""What may be named as a source, and how sources are named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from curate.errors import OptionError, SourceError
from curate.sources import open_sources, opening

LINE = json.dumps({"prompt": "Q", "response": "A"}) + "\n"


def corpus(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.jsonl").write_text(text)
    return folder


def test_bundled_corpus_without_the_flawed_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = corpus(tmp_path, b=LINE, a=LINE * 2, flawed=LINE * 9)
    monkeypatch.setattr(opening, "bundled_folder", lambda: folder)
    (source,) = open_sources(["bundled"], "prompt=x,response=y", None)  # a map is for the user's own tables
    rows = list(source.rows())
    assert source.name == "cuset-corpus"
    assert [row.position for row in rows] == [1, 2, 3]
    assert len({row.source_id for row in rows}) == 3
    assert source.fingerprint()["bytes"] == 3 * len(LINE)


def test_bundled_corpus_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "bundled_folder", lambda: tmp_path)
    with pytest.raises(SourceError, match="bundled corpus is not there"):
        open_sources(["bundled"], None, None)


def test_bundled_folder_is_next_to_the_package() -> None:
    assert (opening.bundled_folder().parent.parent / "curate" / "errors.py").is_file()


def test_equal_names_are_told_apart_by_their_folder(tmp_path: Path) -> None:
    for name in ("one", "two", "three/two"):
        corpus(tmp_path / name, train=LINE)
    specs = [str(tmp_path / name / "train.jsonl") for name in ("one", "two", "three/two")]
    assert [source.name for source in open_sources(specs, None, None)] == [
        "one/train.jsonl",
        "two/train.jsonl",
        "two/train.jsonl (2)",
    ]
    assert [source.name for source in open_sources(specs[:1], None, None)] == ["train.jsonl"]
    assert [row.source for source in open_sources(specs[:2], None, None) for row in source.rows()] == [
        "one/train.jsonl",
        "two/train.jsonl",
    ]


def test_folder_of_tables_gives_a_source_for_each(tmp_path: Path) -> None:
    corpus(tmp_path / "set" / "data", b=LINE, a=LINE)
    (tmp_path / "set" / "dataset_info.json").write_text("{}")
    assert [source.name for source in open_sources([str(tmp_path / "set")], None, None)] == ["a.jsonl", "b.jsonl"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent.jsonl", ["does not exist"]),
        ("notes.txt", ["unknown kind", ".jsonl, .json, .parquet, .csv, .tsv, .cu, .cuh", ".gz or .zst"]),
        ("empty", ["holds no .cu, .cuh, .jsonl, .parquet, .csv, .tsv file"]),
        ("a.parquet.gz", ["unknown kind"]),
        ("nul\0.cu", ["nul\ufffd.cu does not exist"]),
    ],
)
def test_what_cannot_be_a_source(tmp_path: Path, name: str, words: list[str]) -> None:
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "a.parquet.gz").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError) as caught:
        open_sources([f"{tmp_path}/{name}"], None, None)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_source_named_twice(tmp_path: Path) -> None:
    path = corpus(tmp_path, a=LINE) / "a.jsonl"
    with pytest.raises(OptionError, match="twice"):
        open_sources([str(path), str(tmp_path / "." / "a.jsonl")], None, None)


def test_no_source_at_all() -> None:
    with pytest.raises(OptionError, match="no source"):
        open_sources([], None, None)


def test_tables_of_a_folder_csv_only_where_nothing_else_is(tmp_path: Path) -> None:
    folder = corpus(tmp_path / "set", a=LINE)
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(LINE.encode()))
    (folder / "stats.csv").write_text("rows,bytes\n1,2\n")
    assert [source.name for source in open_sources([str(folder)], None, None)] == ["a.jsonl", "b.jsonl.gz"]
    (folder / "a.jsonl").unlink()
    (folder / "b.jsonl.gz").unlink()
    (folder / "stats.csv").write_text("prompt,response\nQ,A\n")
    assert [source.name for source in open_sources([str(folder)], None, None)] == ["stats.csv"]
