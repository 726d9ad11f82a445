"""Reweighing a finished dataset equals building it with the other options, to the byte, and calls no model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import pair

from curate import reweigh as command
from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.errors import DatasetError, OptionError
from curate.score import ModelScorer, StubScorer
from curate.store import connect, read_manifest

Write = Callable[..., Path]


@pytest.fixture
def settings(tmp_path: Path, model_folder: Path, write_rows: Write) -> dict[str, Any]:
    source = write_rows([*(pair(n) for n in range(5)), "{cut"])
    return {"source": (str(source),), "model": str(model_folder), "jobs": 1, "shard_rows": 2}


def contents(folder: Path) -> dict[str, bytes]:
    files = (p for p in folder.rglob("*") if p.is_file() and p.name not in {"build.log.json", "lock"})
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


@pytest.mark.parametrize(
    ("options", "change"),
    [
        (["--tau", "0.4"], {"tau": 0.4}),
        (["--lambda", "0.5", "--window", "16"], {"lambda_": 0.5, "window": 16}),
        (["--region-scope", "cuda", "--launch-scope", "expr"], {"region_scope": "cuda", "launch_scope": "expr"}),
        (["--device-functions", "False"], {"device_functions": False}),
    ],
)
def test_it_gives_the_bytes_of_a_build_with_these_options(
    tmp_path: Path,
    settings: dict[str, Any],
    options: list[str],
    change: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build_dataset(BuildConfig(**settings, out=tmp_path / "out"), StubScorer())
    build_dataset(BuildConfig(**settings, out=tmp_path / "fresh", **change), StubScorer())
    monkeypatch.setattr(ModelScorer, "__init__", lambda *a: pytest.fail("a model was loaded"))
    assert command.run([str(tmp_path / "out"), *options]) == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_killed_in_the_middle_the_same_command_ends_it(
    tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    build_dataset(BuildConfig(**settings, out=tmp_path / "out"), StubScorer())
    build_dataset(BuildConfig(**settings, out=tmp_path / "fresh", tau=0.6), StubScorer())
    real, calls = command.write_part, []

    def interrupted(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        real(*arguments)

    monkeypatch.setattr(command, "write_part", interrupted)
    with pytest.raises(KeyboardInterrupt):
        command.run([str(tmp_path / "out"), "--tau", "0.6"])
    with pytest.raises(DatasetError, match="not ended"):
        connect(tmp_path / "out")
    monkeypatch.undo()
    command.run([str(tmp_path / "out"), "--tau", "0.6"])
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_what_cannot_be_weighed_is_one_line_and_stays_as_it_was(tmp_path: Path, settings: dict[str, Any]) -> None:
    build_dataset(BuildConfig(**settings, out=tmp_path / "out"), StubScorer())
    before = contents(tmp_path / "out")
    with pytest.raises(OptionError, match="--tau"):
        command.run([str(tmp_path / "out"), "--tau", "7"])
    assert contents(tmp_path / "out") == before
    build_dataset(BuildConfig(**settings, out=tmp_path / "bare", skip_scoring=True))
    with pytest.raises(DatasetError, match="no scores"):
        command.run([str(tmp_path / "bare"), "--tau", "0.5"])
    assert read_manifest(tmp_path / "bare")
    with pytest.raises(DatasetError, match=r"no manifest\.json"):
        command.run([str(tmp_path), "--tau", "0.5"])
    assert not (tmp_path / ".cuset").exists()
