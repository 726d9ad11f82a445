"""Going on with a run: a finished one stays as it is, a damaged or incomplete checkpoint is named, a full disk too."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from curate.errors import DatasetError, TrainingError
from tests.train.annotated import annotate, planted
from train import sft
from train.inputs.checkpoints import newest_checkpoint, writing

Words = Callable[[Path], list[str]]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory, model_folder: Path, tokenizer: Any) -> Words:
    data = annotate(tmp_path_factory.mktemp("data") / "data", planted(9, seed=2), tokenizer=tokenizer)

    def those(out: Path, *more: str) -> list[str]:
        said = ["--data", data, "--model", model_folder, "--out", out, "--accumulation", 2, "--held-out", 0.3, *more]
        return [str(word) for word in said]

    return those


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, words: Any) -> Path:
    """A run of two steps of three an epoch, a checkpoint after each."""
    out = tmp_path_factory.mktemp("whole") / "out"
    assert sft.run(words(out, *TWO)) == 0
    return out


TWO = ("--max-steps", "2", "--training", "save_steps=1")


@pytest.mark.parametrize("more", [("--epochs", "1"), TWO])
def test_a_finished_run_that_is_resumed_is_as_it_was(more: tuple[str, ...], words: Any, tmp_path: Path) -> None:
    """Not a step more, in the middle of an epoch either; and the same figures."""
    out = tmp_path / "out"
    assert sft.run(words(out, *more)) == 0
    before = load_file(out / "adapter_model.safetensors")
    card, results = (out / "README.md").read_text(), (out / "results.json").read_text()
    assert sft.run(words(out, *more, "--resume")) == 0
    after = load_file(out / "adapter_model.safetensors")
    assert all(after[name].equal(value) for name, value in before.items())
    assert (out / "README.md").read_text() == card
    assert json.loads((out / "results.json").read_text())["steps"] == json.loads(results)["steps"]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def _other_rank(path: Path) -> None:
    save_file({name: value[:1] for name, value in load_file(path).items()}, path, metadata={"format": "pt"})


def _other_step(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "global_step": 7}))


@pytest.mark.parametrize("damage", [_cut, Path.unlink, lambda path: path.write_bytes(b"\x80\xff" * 50)])
@pytest.mark.parametrize("name", ["adapter_model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"])
@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_damaged_or_missing_file(name: str, damage: Any, whole: Path, words: Any, tmp_path: Path) -> None:
    """Without its optimiser the Trainer would go on with a new one, and say nothing."""
    _refused(whole, words, tmp_path, name, damage)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("trainer_state.json", _cut),
        ("trainer_state.json", lambda path: path.write_text("[]")),
        ("trainer_state.json", _other_step),
        ("adapter_model.safetensors", _other_rank),
    ],
)
def test_a_checkpoint_of_something_else(name: str, damage: Any, whole: Path, words: Any, tmp_path: Path) -> None:
    _refused(whole, words, tmp_path, name, damage)


def _refused(whole: Path, words: Any, tmp_path: Path, name: str, damage: Any) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    shutil.rmtree(out / "checkpoint-2")
    damage(out / "checkpoint-1" / name)
    with pytest.raises(DatasetError, match=r"checkpoint-1: damaged .*--resume goes on from the one before"):
        sft.run(words(out, *TWO, "--resume"))


def test_folders_that_are_no_checkpoints_are_passed_over(whole: Path, tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) is None
    shutil.copytree(whole / "checkpoint-1", tmp_path / "checkpoint-1")
    shutil.copytree(whole / "checkpoint-1", tmp_path / "checkpoint-copy")
    (tmp_path / "checkpoint-99" / "trainer_state.json").mkdir(parents=True)
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-1"


@pytest.mark.parametrize("record", ['{"run": 3}', '{"run": "x"}', "[" * 100_000])
def test_a_record_that_is_none(record: str, whole: Path, words: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    (out / "training.json").write_text(record)
    with pytest.raises(DatasetError, match=r"training\.json: damaged"):
        sft.run(words(out, *TWO, "--resume"))


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("PytorchStreamWriter failed. More")]
)
def test_a_full_disk(error: Exception, words: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise error

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        with pytest.raises(TrainingError, match=r"checkpoint-1: cannot be written .*--resume goes on"):
            sft.run(words(out, *TWO))
    assert newest_checkpoint(out) is None
    assert sft.run(words(out, *TWO, "--resume")) == 0


def test_memory_that_does_not_suffice_is_no_full_disk(tmp_path: Path) -> None:
    with pytest.raises(torch.OutOfMemoryError), writing(tmp_path):
        raise torch.OutOfMemoryError("CUDA out of memory")
