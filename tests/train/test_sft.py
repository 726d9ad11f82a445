"""The command: what it writes, resuming to the bit, and one line with exit code 2 for what cannot work."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file, save_file

from curate.config import BuildConfig
from curate.console import OneLine, main
from curate.errors import OptionError
from tests.train.annotated import annotate, planted
from train import sft
from train.inputs.arguments import training_arguments
from train.inputs.run import recipe_file
from train.sft import SftConfig

Run = Callable[..., str]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    return annotate(tmp_path_factory.mktemp("data") / "data", planted(9, seed=2), tokenizer=tokenizer)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command as the shell does; it must end with exit code 2 and one line, which is given back."""

    def run(*words: object) -> str:
        monkeypatch.setattr(sys, "argv", ["train.sft", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main(sft.run)
        said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith(("cut ", "dropped "))]
        assert end.value.code == 2
        assert [line.partition(": ")[0] for line in said] == ["error"], said
        return said[0]

    return run


def small(data: Path, model: Path, out: Path, *more: object) -> list[str]:
    words = ["--data", data, "--model", model, "--out", out, "--accumulation", 2, "--held-out", 0.3, *more]
    return [str(word) for word in words]


def test_what_a_run_writes(data: Path, model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert sft.run(small(data, model_folder, out, "--epochs", "2", "--report-to", "tensorboard")) == 0
    said = capsys.readouterr().out
    assert "Held-out nll" in said
    assert said.rstrip().endswith(str(out))
    results = json.loads((out / "results.json").read_text())
    assert results["steps"] == 6
    assert results["before"]["step"] == 0
    assert results["after"]["step"] == 6
    assert results["before"]["eval_nll"] != results["after"]["eval_nll"]
    record = json.loads((out / "training.json").read_text())
    assert record["run"]["objective"] == "cuset"
    assert record["run"]["samples"] == 6
    assert record["run"]["model"]["name"] == model_folder.name
    assert str(tmp_path) not in json.dumps(record)
    assert str(model_folder.parent) not in json.dumps(record)
    assert sorted(p.name for p in out.glob("checkpoint-*")) == ["checkpoint-3", "checkpoint-6"]
    assert (out / "adapter_model.safetensors").is_file()
    assert (out / "tokenizer.json").is_file()
    assert list(out.rglob("events.out.tfevents*"))
    card = (out / "README.md").read_text()
    assert yaml.safe_load(card.split("---")[1])["library_name"] == "peft"
    assert f"| all | {results['held_out_tokens']['all']:.0f} | {results['before']['eval_nll']:.4f} |" in card


def test_dry_run_writes_nothing(
    data: Path, model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert sft.run(small(data, model_folder, out, "--dry-run", "--epochs", "2")) == 0
    words = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["steps", "6"] in words
    assert ["samples", "6"] in words
    assert ["held", "out", "3"] in words
    assert not out.exists()


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_resuming_in_the_middle_of_an_epoch_ends_elsewhere(
    tuning: str, data: Path, model_folder: Path, tmp_path: Path
) -> None:
    """Dropout, order, optimiser and schedule must all go on: the parameters are equal to the bit."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    words = (
        "--tuning",
        tuning,
        "--lora-dropout",
        "0.3",
        "--epochs",
        "3",
        "--learning-rate",
        "0.01",
        "--save-limit",
        "9",
    )
    words += ("--training", "save_steps=1")
    assert sft.run(small(data, model_folder, whole, *words)) == 0
    broken.mkdir()
    shutil.copy(whole / "training.json", broken)
    shutil.copytree(whole / "checkpoint-4", broken / "checkpoint-4")
    shutil.copytree(whole / "checkpoint-5", broken / "checkpoint-5")
    (broken / "checkpoint-5" / "trainer_state.json").unlink()  # as a kill leaves it
    assert sft.run(small(data, model_folder, broken, *words, "--resume")) == 0
    name = "adapter_model.safetensors" if tuning == "lora" else "model.safetensors"
    found, expected = load_file(broken / name), load_file(whole / name)
    start = load_file(whole / "checkpoint-4" / name)
    assert all(found[key].equal(value) for key, value in expected.items())
    assert not all(start[key].equal(value) for key, value in expected.items())


def test_resume_refuses_the_checkpoint_of_another_run(
    data: Path, model_folder: Path, tmp_path: Path, refused: Run, tokenizer: Any
) -> None:
    out = tmp_path / "out"
    words = small(data, model_folder, out, "--max-steps", "1")
    assert sft.run(words) == 0
    files = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert "exists; --resume goes on" in refused(*words)
    assert 'objective was "cuset", is "sft"' in refused(*words, "--resume", "--objective", "sft")
    assert "learning_rate was 0.0001, is 0.1" in refused(*words, "--resume", "--learning-rate", "0.1")
    assert "training was" in refused(*words, "--resume", "--training", "optim=sgd")
    other = annotate(tmp_path / "other", planted(9, seed=8), tokenizer=tokenizer, config=BuildConfig(limit=9))
    assert "datasets was" in refused(*small(other, model_folder, out, "--max-steps", "1", "--resume"))
    (out / "training.json").write_text("{")
    assert "damaged" in refused(*words, "--resume")
    (out / "training.json").write_bytes(files[out / "training.json"])
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == files
    empty = tmp_path / "empty"
    assert "no training.json" in refused(*small(data, model_folder, empty, "--resume"))
    assert not empty.exists()


def test_bad_options(data: Path, model_folder: Path, tmp_path: Path, refused: Run) -> None:
    out = tmp_path / "out"
    good = small(data, model_folder, out)
    assert "--data: give" in refused("--out", out)
    assert "--out: give" in refused("--data", data)
    assert "no such folder" in refused("--data", tmp_path / "none", "--model", model_folder, "--out", out)
    assert "--learning-rate -1.0" in refused(*good, "--learning-rate", "-1")
    assert "objective" in refused(*good, "--objective", "dpo")
    assert "--normalize weights" in refused(*good, "--objective", "dft", "--normalize", "weights")
    assert "--lora-targets nonsense" in refused(*good, "--lora-targets", "nonsense")
    assert "lm_head" in refused(*good, "--lora-targets", "lm_head,q_proj")
    assert "has an option of its own: --learning-rate" in refused(*good, "--training", "learning_rate=1")
    assert "cannot be changed" in refused(*good, "--training", "remove_unused_columns=true")
    assert "no such argument" in refused(*good, "--training", "warm_up=3")
    assert "NAME=VALUE" in refused(*good, "--training", "warmup_steps")
    assert "invalid float value" in refused(*good, "--training", "logging_steps=few")
    assert "is set by train.sft" in refused(*good, "--training", "eval_on_start=false")
    assert "weight_decay: nan" in refused(*good, "--training", "weight_decay=nan")
    assert "data_seed: must lie" in refused(*good, "--training", f"data_seed={2**80}")
    assert "--training: the Trainer refuses" in refused(*good, "--training", "fsdp=true")
    assert "per_device_eval_batch_size: must" in refused(*good, "--training", "per_device_eval_batch_size=0")
    assert "dataloader_num_workers: must" in refused(*good, "--training", "dataloader_num_workers=-1")
    assert "--lora-targets q_proj,v_porj: the model has no module v_porj" in refused(
        *good, "--lora-targets", "q_proj,v_porj"
    )
    assert "Target module ModuleList( (0-1)" in refused(*good, "--lora-targets", "layers")
    assert "--save-limit 0: must be" in refused(*good, "--save-limit", "0")
    assert "no name of a repository" in refused(*good, "--push-to-hub", "a/b/c")
    assert "asft" in refused(*good, "--objective", "asft", "--tuning", "full")
    assert "no such argument" in refused(*good, "--dry-run", "--training", "warm_up=3")
    assert "lies inside the dataset" in refused(*small(data, model_folder, data / "samples" / "out"))
    assert not (data / "samples" / "out").exists()
    (tmp_path / "file").write_text("")
    assert "cannot write in" in refused(*small(data, model_folder, tmp_path / "file" / "out"))
    assert "--attention nonsense" in refused(*good, "--attention", "nonsense")
    assert "--push-to-hub" in refused(*good, "--push-to-hub", "someone/model")  # the tests run without a network
    assert not out.exists()


@pytest.mark.parametrize("words", ["optim=adamw_bnb_8bit", "adam_beta1=2", "lr_scheduler_type=cosine_with_min_lr"])
def test_arguments_that_a_library_refuses_late(
    words: str, data: Path, model_folder: Path, tmp_path: Path, refused: Run
) -> None:
    said = refused(*small(data, model_folder, tmp_path / "out", "--training", words, "--held-out", 0))
    assert "--training: the Trainer refuses these arguments" in said


def test_weights_that_are_no_numbers(data: Path, model_folder: Path, tmp_path: Path, refused: Run) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(model_folder, damaged)
    weights = {name: value * float("nan") for name, value in load_file(damaged / "model.safetensors").items()}
    save_file(weights, damaged / "model.safetensors", metadata={"format": "pt"})
    assert "its logits are not finite" in refused(*small(data, damaged, tmp_path / "out"))


def test_the_best_models_figures_are_reported(data: Path, model_folder: Path, tmp_path: Path) -> None:
    """Not those of the last step, which is another model."""
    out, best = tmp_path / "out", ("load_best_model_at_end=true", "metric_for_best_model=eval_nll", "save_steps=1")
    words = [word for one in (*best, "eval_steps=1", "optim=sgd", "max_grad_norm=0") for word in ("--training", one)]
    words += ["--tuning", "full", "--objective", "sft", "--learning-rate", "6", "--save-limit", "9", "--max-steps", "3"]
    assert sft.run(small(data, model_folder, out, *words)) == 0
    state = json.loads((out / "checkpoint-3" / "trainer_state.json").read_text())
    nll = [line["eval_nll"] for line in state["log_history"] if "eval_nll" in line][1:]
    after = json.loads((out / "results.json").read_text())["after"]["eval_nll"]
    assert min(nll) < nll[-1]
    assert after == pytest.approx(min(nll), rel=1e-6)


def test_hostile_names_are_shown_and_do_nothing(
    model_folder: Path, tmp_path: Path, tokenizer: Any, refused: Run, caplog: pytest.LogCaptureFixture
) -> None:
    evil = "\x1b[31m<b>x|y](z)\n# head"
    samples = planted(9, seed=2)
    for n, sample in enumerate(samples):
        sample.sample_id = f"{evil}{n}"
    data = annotate(tmp_path / evil, samples, tokenizer=tokenizer)
    model = tmp_path / f"m{evil}"
    shutil.copytree(model_folder, model)
    assert sft.run(small(data, model, tmp_path / "out", "--max-steps", "1")) == 0
    card = (tmp_path / "out" / "README.md").read_text()
    assert "\x1b" not in card
    assert "<b>" not in card
    assert not [line for line in card.splitlines() if line.startswith("# head")]
    refused(*small(data, model, tmp_path / "b", "--max-length", 4))
    (record,) = [r for r in caplog.records if r.getMessage().startswith("dropped")]
    line = OneLine().format(record)
    assert "\x1b" not in line
    assert "\n" not in line
    assert "\\x1b[31m<b>x|y](z) # head" in line


def test_a_column_that_the_build_left_out(model_folder: Path, tmp_path: Path, refused: Run, tokenizer: Any) -> None:
    unscored = annotate(
        tmp_path / "unscored", planted(6), tokenizer=tokenizer, config=BuildConfig(skip_scoring=True), extra=()
    )
    out = tmp_path / "out"
    assert "built with --skip-scoring" in refused(*small(unscored, model_folder, out, "--objective", "profit"))
    assert not out.exists()
    assert sft.run(small(unscored, model_folder, out, "--objective", "sft", "--max-steps", "1")) == 0


def test_another_tokenizer(model_folder: Path, tmp_path: Path, refused: Run) -> None:
    other = annotate(tmp_path / "other", planted(6))
    assert "is another" in refused(*small(other, model_folder, tmp_path / "out"))


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio"])
def test_a_tracker_that_is_not_installed(
    name: str, data: Path, model_folder: Path, tmp_path: Path, refused: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == name else found(n, *a))
    said = refused(*small(data, model_folder, tmp_path / "out", "--report-to", name))
    assert f"--report-to {name}: not installed; pip install" in said


def test_a_file_of_options(data: Path, model_folder: Path, tmp_path: Path, refused: Run) -> None:
    file, out = tmp_path / "run.yaml", tmp_path / "out"
    options: dict[str, Any] = {"objective": "sft", "data": str(data), "model": str(model_folder), "held_out": 0}
    options |= {"max_steps": 1, "learning_rate": "1e-4", "training": {"warmup_steps": 0, "adam_beta2": 0.9}}
    file.write_text(yaml.safe_dump(options))
    assert sft.run(["--config", str(file), "--out", str(out), "--training", "adam_beta2=0.95"]) == 0
    run = json.loads((out / "training.json").read_text())["run"]
    assert run["training"] == ["adam_beta2=0.9", "adam_beta2=0.95", "warmup_steps=0"]
    assert run["objective"] == "sft"
    assert not (out / "results.json").read_text().count("eval_nll")
    file.write_text(yaml.safe_dump(options | {"lorar": 3}))
    assert "lorar" in refused("--config", file, "--out", tmp_path / "b")
    for key, value in {"lora_targets": ["q_proj", "v_proj"], "objective": ["sft", "dft"], "tau": []}.items():
        file.write_text(yaml.safe_dump(options | {key: value}))
        assert f"{key} takes one value, not a list" in refused("--config", file, "--out", tmp_path / "b")
    file.write_text(yaml.safe_dump(options | {"training": {"warm_up": 3}}))
    assert "--training warm_up" in refused("--config", file, "--out", tmp_path / "b")
    assert "--config" in refused("--config", tmp_path / "none.yaml", "--out", tmp_path / "b")
    assert "there are cpu, paper" in refused("--recipe", "nonsense", "--out", tmp_path / "b")
    assert "give one of them" in refused("--recipe", "cpu", "--config", file)


@pytest.mark.parametrize("name", ["cpu", "paper"])
def test_recipes_are_understood(name: str, data: Path, tmp_path: Path) -> None:
    options = yaml.safe_load(recipe_file(name).read_text())
    given = {{"lambda": "lambda_"}.get(key, key): value for key, value in options.items()}
    words = tuple(f"{key}={value}" for key, value in given.pop("training", {}).items())
    config = SftConfig(**given | {"learning_rate": float(given["learning_rate"])}, data=(data,), training=words)
    arguments = training_arguments(config, tmp_path, bf16=False, evaluate=True)
    assert arguments.learning_rate == config.learning_rate
    if name == "paper":
        assert (config.lora_r, config.lora_alpha, config.lora_dropout, config.lora_targets) == (
            8,
            16,
            0.05,
            "all-linear",
        )
        assert (config.max_length, config.learning_rate, config.epochs, config.batch_size) == (4096, 1e-4, 3, 1)


def test_arguments_of_the_trainer(data: Path, tmp_path: Path) -> None:
    words = ("warmup_steps=0.03", "lr_scheduler_type=cosine", 'lr_scheduler_kwargs={"num_cycles": 0.4}', "eval-steps=7")
    found = training_arguments(SftConfig(data=(data,), training=words), tmp_path, bf16=False, evaluate=True)
    assert found.warmup_steps == 0.03
    assert found.lr_scheduler_kwargs == {"num_cycles": 0.4}
    assert found.eval_strategy == "steps"
    assert found.eval_steps == 7
    assert found.activation_checkpointing
    assert found.activation_checkpointing_kwargs == {"use_reentrant": False}
    assert not found.remove_unused_columns
    sharded = SftConfig(data=(data,), training=("fsdp=true", 'fsdp_config={"reshard_after_forward": true}'))
    assert training_arguments(sharded, tmp_path, bf16=False, evaluate=False).fsdp_plugin_args is not None
    with pytest.raises(OptionError, match="deepspeed"):
        training_arguments(
            SftConfig(data=(data,), training=("deepspeed=none.json",)), tmp_path, bf16=False, evaluate=False
        )
