"""What may not be published: every way in which a dataset can be unfinished, changed, or not for the public."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import fenced, kernel, pair
from publish_helpers import build, edit_manifest, edit_rows

from curate.errors import DatasetError
from curate.publish import PublishConfig, prepare, publish

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
ADDRESS = "jane.doe@some-company.com"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    return build(model_folder, tmp_path_factory.mktemp("checks") / "out")


@pytest.fixture
def copy(dataset: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(dataset, tmp_path / "copy"))


def problems(path: Path, **more: Any) -> list[str]:
    return prepare(PublishConfig(path, "user/kernels", **more)).problems


def test_a_build_as_it_is_has_none(dataset: Path) -> None:
    prepared = prepare(PublishConfig(dataset, "user/kernels", dry_run=True))
    assert prepared.problems == []
    assert {f.name for f in prepared.files} >= {"README.md", "figures/density.png", "figures/categories.png"}


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda p: (p / "manifest.json").unlink(), "no manifest.json, so no finished dataset"),
        (lambda p: (p / "manifest.json").write_text("{"), "damaged"),
        (lambda p: (p / "manifest.json").write_text('{"format_version": 99}'), "format 99"),
        (lambda p: shutil.rmtree(p), "no such folder"),
    ],
)
def test_what_is_no_finished_dataset(copy: Path, damage: Callable[[Path], object], words: str) -> None:
    damage(copy)
    with pytest.raises(DatasetError, match=words):
        problems(copy)


def first(path: Path, table: str = "samples") -> Path:
    return sorted((path / table).iterdir())[0]


def cut(part: Path) -> None:
    part.write_bytes(part.read_bytes()[:-100])


def changed(part: Path) -> None:
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            lambda p: first(p).unlink(),
            "files that are not there according to manifest.json: samples/part-00000.parquet",
        ),
        (
            lambda p: shutil.copy(first(p), p / "samples/part-00099.parquet"),
            "files that are not of this build according",
        ),
        (lambda p: changed(first(p)), "files that have other contents according"),
        (lambda p: cut(first(p, "rejected")), "rejected/part-00000.parquet: damaged"),
        (lambda p: shutil.rmtree(p / "regions"), "regions/ holds no Parquet file"),
        (lambda p: edit_manifest(p, lambda m: m.pop("files")), "names no files"),
        (lambda p: edit_manifest(p, lambda m: m.update(files=[1])), "damaged list of files"),
    ],
)
def test_files_that_are_not_those_of_the_manifest(copy: Path, damage: Callable[[Path], object], words: str) -> None:
    damage(copy)
    assert any(words in problem for problem in problems(copy)), problems(copy)


def with_column(name: str, value: object) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """The first row with another value."""

    def change(frame: pl.DataFrame) -> pl.DataFrame:
        values = pl.Series(name, [value, *frame[name].to_list()[1:]], dtype=frame.schema[name])
        return frame.with_columns(values)

    return change


@pytest.mark.parametrize(
    ("table", "change", "words"),
    [
        ("samples", lambda f: f.head(0), r"does not balance: 7 rows read, but samples/ holds \d and rejected/ 2"),
        ("rejected", lambda f: f.head(0), "does not balance"),
        ("regions", lambda f: f.head(1), r"regions/ holds \d+ rows, manifest.json says \d+"),
        (
            "samples",
            with_column("source", "elsewhere.jsonl"),
            "rows of sources that manifest.json does not name: elsewhere",
        ),
        (
            "samples",
            with_column("license", "GPL-3.0-only"),
            r"allow-list of the build does not hold: GPL-3.0-only \(1 rows\)",
        ),
        ("samples", with_column("license", None), "1 rows have no known licence; .*--allow-unknown-license"),
        ("rejected", with_column("reason", "another"), "counts of refused are not those of the files"),
        ("rejected", with_column("stage", "another"), "a stage that this version of cuset does not know"),
    ],
)
def test_rows_that_are_not_those_of_the_manifest(
    copy: Path, table: str, change: Callable[[pl.DataFrame], pl.DataFrame], words: str
) -> None:
    import re

    edit_rows(copy, table, change)
    edit_manifest(copy)  # so that the files are those that it names
    found = problems(copy)
    assert any(re.search(words, problem) for problem in found), found


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("samples", "response", f"token = '{TOKEN}'"),
        ("samples", "prompt", f"Ask {ADDRESS}"),
        ("samples", "messages", [{"role": "user", "content": f"Use {TOKEN}"}]),
        ("samples", "attribution", ["Copyright 2020 A", f"(c) 2021 {ADDRESS}"]),
        ("samples", "compile_log", f"error near {TOKEN}"),
        ("samples", "source_id", f"src/{TOKEN}.cu"),
        ("samples", "flags", [{"reason": "x", "detail": ADDRESS}]),
        ("regions", "text", f'"{TOKEN}"'),
        ("rejected", "detail", f"says {ADDRESS}"),
    ],
)
def test_secrets_in_any_text(copy: Path, table: str, column: str, value: object) -> None:
    part = edit_rows(copy, table, with_column(column, value))
    edit_manifest(copy)
    found = [problem for problem in problems(copy) if "unredacted" in problem]
    kind = "email" if "some-company" in str(value) else "github_token"
    assert found == [f"{part}, row 1, {column}: unredacted {kind}; build without --no-redact"]
    assert TOKEN not in "".join(problems(copy)), "a secret is not printed"


def test_secrets_beside_the_rows(copy: Path) -> None:
    edit_manifest(copy, lambda m: m["sources"][0].update(note=TOKEN))
    (copy / "build.log.json").write_text(json.dumps({"host": ADDRESS}))
    found = problems(copy)
    assert any(p.startswith("manifest.json: holds what looks like github_token") for p in found)
    assert any(p.startswith("build.log.json: holds what looks like email") for p in found)


def test_what_stands_in_the_place_of_the_log_is_not_published(copy: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "passwords"
    foreign.write_text("root:x:0:0")
    log = copy / "build.log.json"
    log.unlink()
    log.symlink_to(foreign)
    assert problems(copy) == ["build.log.json: not as a build writes it; delete it"]
    log.unlink()
    os.mkfifo(log)  # which would be waited for without end
    os.mkfifo(copy / "samples" / "part-00008.parquet")
    (copy / "regions" / "part-00009.parquet").mkdir()
    prepared = prepare(PublishConfig(copy, "user/kernels", dry_run=True))
    assert prepared.problems == []
    assert "build.log.json" not in {file.name for file in prepared.files}


def test_many_secrets_are_counted(copy: Path, model_folder: Path, tmp_path: Path) -> None:
    rows = [pair(n, code=kernel(n) + f"// mail {n}{ADDRESS}\n", license="MIT") for n in range(9)]
    path = build(model_folder, tmp_path / "open", rows, skip_scoring=True, shard_rows=9, redact=False)
    found = [p for p in problems(path) if "part-00000" in p]
    assert len(found) == 6
    assert found[-1] == "samples/part-00000.parquet: 13 more texts with secrets or addresses"
    with pytest.raises(DatasetError, match=r"unredacted email; build without --no-redact \(5 more"):
        publish(PublishConfig(path, "user/kernels"))
    redacted = build(model_folder, tmp_path / "redacted", rows, skip_scoring=True)
    assert problems(redacted) == []


def test_licences(model_folder: Path, tmp_path: Path) -> None:
    rows = [pair(0, license="MIT"), pair(1), pair(2, license="GPL-3.0-only")]
    kept = build(model_folder, tmp_path / "kept", rows, skip_scoring=True, filter=("license_not_allowed=mark",))
    found = problems(kept)
    assert len(found) == 2
    assert found[0].startswith("1 rows have no known licence")
    assert "GPL-3.0-only (1 rows)" in found[1]
    assert len(problems(kept, allow_unknown_license=True)) == 1
    allowed = build(model_folder, tmp_path / "allowed", rows[2:], skip_scoring=True, allow_license=("GPL-3.0-only",))
    assert problems(allowed) == []


def test_columns_that_the_manifest_does_not_tell_of(copy: Path) -> None:
    edit_manifest(copy, lambda m: m.update(extra_scores=["entropy_top20"]))
    assert any("columns that differ from what the manifest says" in p for p in problems(copy))


def test_nothing_to_publish(model_folder: Path, tmp_path: Path) -> None:
    rows = [{"prompt": "p", "response": fenced("int x;")}]
    empty = build(model_folder, tmp_path / "empty", rows, skip_scoring=True)
    assert any("samples/ holds no row" in p for p in problems(empty))
    found = prepare(PublishConfig(empty, "user/kernels", dry_run=True)).problems
    assert any("names no licence" in p for p in found)


def test_a_figure_of_a_manifest_that_is_no_number_makes_no_card(copy: Path) -> None:
    edit_manifest(copy, lambda m: m["model"].update(parameters="x"))
    found = prepare(PublishConfig(copy, "user/kernels", dry_run=True)).problems
    assert any("manifest.json: makes no card" in p for p in found)
    edit_manifest(copy, lambda m: m["files"][0].update(path=7))
    (copy / "manifest.json").write_text((copy / "manifest.json").read_text())
    assert prepare(PublishConfig(copy, "user/kernels")).problems


@pytest.mark.parametrize("key", ["counts", "rows", "regions", "sources", "config", "versions", "model", "tokenizer"])
def test_a_manifest_that_lacks_something(copy: Path, key: str) -> None:
    edit_manifest(copy, lambda m: (m.pop(key), m.update(findings=None)))  # and no figures, which take their time
    config = PublishConfig(copy, "user/kernels", dry_run=True)
    assert any("manifest.json" in p for p in prepare(config).problems)
    with pytest.raises(DatasetError, match=r"manifest\.json"):
        publish(dataclasses.replace(config, dry_run=False))
