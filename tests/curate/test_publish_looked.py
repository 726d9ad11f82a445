"""What publishing keeps of the parts that it has looked into: nothing that could let a secret through."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from publish_helpers import build, edit_manifest, edit_rows

from curate.publishing import looked
from curate.publishing.checks import check_dataset
from curate.publishing.contents import PartContents, look_into
from curate.publishing.looked import look_into_all
from curate.store import read_manifest

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    return build(model_folder, tmp_path_factory.mktemp("looked") / "out", shard_rows=2)


@pytest.fixture
def copy(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(looked, "cache_folder", lambda: tmp_path / "cache")
    return Path(shutil.copytree(dataset, tmp_path / "copy"))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The parts that are looked into, as they are."""
    parts: list[Path] = []

    def noted(part: Path) -> PartContents:
        parts.append(part)
        return look_into(part)

    monkeypatch.setattr(looked, "look_into", noted)
    return parts


def checked(path: Path) -> tuple[list[str], dict[str, Any]]:
    found = check_dataset(path, read_manifest(path))
    return found.problems, {str(part): vars(held) for parts in found.parts.values() for part, held in parts}


def test_no_part_is_looked_into_twice_and_the_result_is_the_same(copy: Path, looks: list[Path]) -> None:
    before = checked(copy)
    parts = {copy / entry["path"] for entry in read_manifest(copy)["files"]}
    assert len(looks) == len(parts) > 3
    assert set(looks) == parts
    assert checked(copy) == before
    assert before[0] == []
    assert len(looks) == len(parts)


def test_a_part_with_a_secret_is_never_taken_for_clean(copy: Path, looks: list[Path]) -> None:
    checked(copy)
    edit_rows(copy, "samples", lambda frame: frame.with_columns(prompt=pl.col("prompt") + f" {TOKEN}"))
    edit_manifest(copy)
    looks.clear()
    for _ in range(3):
        problems, _ = checked(copy)
        assert any("unredacted github_token" in problem for problem in problems), problems
    assert len(looks) == 3  # the changed part, each time; the others are known


def test_files_that_are_not_those_of_the_manifest_are_not_kept(copy: Path, looks: list[Path]) -> None:
    part = next((copy / "samples").glob("*.parquet"))
    whole = part.read_bytes()
    pl.read_parquet(part).with_columns(prompt=pl.lit("clean, but another")).write_parquet(part)
    assert checked(copy)[0]
    part.write_bytes(whole)
    looks.clear()
    assert checked(copy)[0] == []
    assert part in looks


def test_another_search_looks_again_and_what_is_old_goes(
    copy: Path, tmp_path: Path, looks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    checked(copy)
    many = len(looks)
    monkeypatch.setattr(looked, "_search_key", lambda: "another")
    checked(copy)
    assert len(looks) == 2 * many
    assert [folder.name for folder in (tmp_path / "cache").iterdir()] == ["looked-another"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", json.dumps({"arrow_bytes": "x", "licenses": [[1]]})])
def test_a_damaged_cache_costs_another_look(copy: Path, tmp_path: Path, looks: list[Path], text: str) -> None:
    before = checked(copy)
    many = len(looks)
    for file in (tmp_path / "cache").rglob("*"):
        if file.is_file():
            file.write_text(text)
    assert checked(copy) == before
    assert len(looks) == 2 * many


def test_a_cache_that_cannot_be_written_is_no_error(copy: Path, tmp_path: Path, looks: list[Path]) -> None:
    (tmp_path / "cache").write_text("a file")
    assert checked(copy) == checked(copy)
    assert checked(copy)[0] == []


def test_several_processes_find_what_one_does(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = sorted((copy / "samples").glob("*.parquet"))
    pl.read_parquet(parts[0]).with_columns(prompt=pl.lit(TOKEN)).write_parquet(parts[0])
    parts[1].write_bytes(b"no Parquet")
    alone = list(look_into_all(parts, {}))
    monkeypatch.setattr(looked, "_ALONE", 0)
    monkeypatch.setattr(looked, "cores", lambda: 2)
    together = list(look_into_all(parts, {}))
    assert [part for part, _ in together] == parts
    assert [str(found) for _, found in together] == [str(found) for _, found in alone]
    assert isinstance(together[0][1], PartContents)
    assert together[0][1].private
    assert isinstance(together[1][1], Exception)
