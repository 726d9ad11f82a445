"""Several devices: which they are, and that a process for each gives the rows that one process gives."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import pair
from test_kill import contents

from curate import BuildConfig, build_dataset
from curate.devices import find_devices
from curate.errors import ModelError, OptionError
from curate.score import StubScorer

Rows = Callable[..., Path]


@pytest.mark.parametrize(
    ("spec", "gpus", "expected"),
    [
        ("auto", 0, ["cpu"]),
        ("auto", 3, ["cuda:0", "cuda:1", "cuda:2"]),
        ("cuda", 2, ["cuda:0", "cuda:1"]),
        ("cuda:1", 2, ["cuda:1"]),
        ("cuda:1,cuda:0", 2, ["cuda:1", "cuda:0"]),
        ("cpu", 2, ["cpu"]),
        ("cpu,cpu", 0, ["cpu", "cpu"]),
    ],
)
def test_devices_are_found(monkeypatch: pytest.MonkeyPatch, spec: str, gpus: int, expected: list[str]) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert [str(device) for device in find_devices(spec)] == expected


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("cuda:0,cpu", "a CPU and of a GPU"),
        ("cuda:1,cuda:1", "names a GPU twice"),
        ("cuda,cuda:0", "names a GPU twice"),
        ("cuda:7", "PyTorch sees 2 GPUs"),
        ("cuda:0,", "not a device"),
        ("tpu", "not a device"),
        ("mps", "not supported"),
    ],
)
def test_devices_that_cannot_be_are_refused(monkeypatch: pytest.MonkeyPatch, spec: str, said: str) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(OptionError, match=said):
        find_devices(spec)


def options(source: Path, out: Path, model: Path, device: str) -> BuildConfig:
    return BuildConfig(source=(str(source),), out=out, model=str(model), device=device, shard_rows=2, jobs=1)


def test_two_processes_give_the_bytes_of_one(write_rows: Rows, tmp_path: Path, model_folder: Path) -> None:
    source = write_rows([*(pair(n) for n in range(7)), "{cut", pair(2), pair(9, max="x")])
    for device in ("cpu", "cpu,cpu"):
        build_dataset(options(source, tmp_path / device, model_folder, device))
    one, two = (contents(tmp_path / device) for device in ("cpu", "cpu,cpu"))
    assert len([name for name in one if name.startswith("samples/")]) == 5
    assert two == one


class Mortal(StubScorer):
    """Ends its process at the first shard, while the file is there."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def score(self, samples, done):
        if self.file.exists():
            os._exit(9)
        return super().score(samples, done)


def test_a_process_that_ends_stops_the_build_in_one_line(write_rows: Rows, tmp_path: Path, model_folder: Path) -> None:
    source = write_rows([pair(n) for n in range(8)])
    config = options(source, tmp_path / "out", model_folder, "cpu,cpu")
    (tmp_path / "trap").touch()
    with pytest.raises(ModelError, match=r"the process that scores on cpu has ended \(exit code 9"):
        build_dataset(config, Mortal(tmp_path / "trap"))
    assert not (tmp_path / "out" / "manifest.json").exists()
    (tmp_path / "trap").unlink()
    assert build_dataset(config, Mortal(tmp_path / "trap"))["counts"]["accepted"] == 8


class Unwilling(StubScorer):
    def score(self, samples, done):
        raise ModelError("a sample of 9 tokens does not fit")


def test_an_error_of_a_process_is_the_builds(write_rows: Rows, tmp_path: Path, model_folder: Path) -> None:
    config = options(write_rows([pair(n) for n in range(4)]), tmp_path / "out", model_folder, "cpu,cpu")
    with pytest.raises(ModelError, match=r"^a sample of 9 tokens does not fit$"):
        build_dataset(config, Unwilling())


def test_a_changed_threshold_takes_the_scores_over(write_rows: Rows, tmp_path: Path, model_folder: Path) -> None:
    source = write_rows([pair(n) for n in range(6)])
    config = options(source, tmp_path / "out", model_folder, "cpu,cpu")
    build_dataset(config, StubScorer())
    before = contents(tmp_path / "out")
    manifest = build_dataset(replace(config, tau=0.7), Unwilling())  # which is never asked
    assert manifest["counts"]["accepted"] == 6
    changed = {name for name, data in contents(tmp_path / "out").items() if before.get(name) != data}
    assert any(name.startswith("samples/") for name in changed)
