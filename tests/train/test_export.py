"""Exports for trainers of binary masks: the labels, what is said to be lost, and TRL's own reading of it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest

from curate.config import BuildConfig
from curate.errors import DatasetError, OptionError
from tests.train.annotated import Planted, annotate, planted
from train import export as command
from train.export import ExportConfig, export
from train.inputs.portions import DataConfig, open_data

TAU = 0.1
COLUMNS = ["input_ids", "labels", "completion_mask", "sample_id"]
LAUNCH_SETUP, DEVICE_FUNCTION = 4, 2


def rows_of(folder: Path, file: str = "train.parquet") -> dict[str, dict[str, Any]]:
    return {row["sample_id"]: row for row in pq.read_table(folder / file).to_pylist()}


def stored(path: Path) -> dict[str, dict[str, Any]]:
    table = pq.read_table(path / "samples")
    return {row["sample_id"]: row for row in table.select(["sample_id", "input_ids", "prompt_tokens", "logprob", "location", "token_weight"]).to_pylist()}  # fmt: skip


def test_the_labels_are_the_tokens_of_weight_above_zero(tmp_path: Path) -> None:
    path = annotate(tmp_path / "data", planted(30))
    export(ExportConfig((path,), tmp_path / "out"))
    rows = rows_of(tmp_path / "out")
    assert len(rows) == 30
    for sample_id, its in stored(path).items():
        weights = [0.0] * its["prompt_tokens"] + its["token_weight"]
        row = rows[sample_id]
        assert row["input_ids"] == its["input_ids"]
        assert row["labels"] == [i if w > 0 else -100 for i, w in zip(its["input_ids"], weights, strict=True)]
        assert row["completion_mask"] == [int(w > 0) for w in weights]
    assert {-100} < {label for row in rows.values() for label in row["labels"]}


@pytest.mark.parametrize("mask", ["conf", "cuda", "both", "none"])
@pytest.mark.parametrize(("tau", "lambda_"), [(None, None), (0.6, None), (None, 0.0), (0.6, 3.0)])
def test_each_mask(tmp_path: Path, mask: str, tau: float | None, lambda_: float | None) -> None:
    path = annotate(tmp_path / "data", planted(12, response=(20, 40)), config=BuildConfig(launch_scope="expr", device_functions=False))  # fmt: skip
    if mask == "cuda" and lambda_ == 0:
        with pytest.raises(DatasetError, match="leaves no token"):
            export(ExportConfig((path,), tmp_path / "out", mask=mask, tau=tau, lambda_=lambda_))  # type: ignore[arg-type]
        return
    export(ExportConfig((path,), tmp_path / "out", mask=mask, tau=tau, lambda_=lambda_))  # type: ignore[arg-type]
    rows = rows_of(tmp_path / "out")
    for sample_id, its in stored(path).items():
        expected = []
        for logprob, location in zip(its["logprob"], its["location"], strict=True):
            sure = float(logprob) > np.log(TAU if tau is None else tau)
            inside = location not in (0, LAUNCH_SETUP, DEVICE_FUNCTION) and lambda_ != 0
            expected.append({"conf": sure, "cuda": inside, "both": sure or inside, "none": True}[mask])
        row = rows.get(sample_id)
        if row is None:
            assert not any(expected)
        else:
            assert row["completion_mask"] == [0] * its["prompt_tokens"] + [int(e) for e in expected]


def test_jsonl_holds_what_parquet_holds(tmp_path: Path) -> None:
    path = annotate(tmp_path / "data", planted(5))
    for files in ("parquet", "jsonl"):
        export(ExportConfig((path,), tmp_path / files, files=files))  # type: ignore[arg-type]
    lines = datasets.Dataset.from_json(str(tmp_path / "jsonl" / "train.jsonl"))
    assert isinstance(lines, datasets.Dataset)
    assert lines.to_list() == pq.read_table(tmp_path / "parquet" / "train.parquet").to_pylist()


def test_the_held_out_file_holds_what_training_holds_out(tmp_path: Path) -> None:
    path = annotate(tmp_path / "data", planted(40))
    export(ExportConfig((path,), tmp_path / "out", held_out=0.2, split_seed=7))
    held = open_data(DataConfig((path,), held_out=0.2, split_seed=7), ()).held_out
    assert held is not None
    assert set(rows_of(tmp_path / "out", "test.parquet")) == {held.sample(n).sample_id for n in range(held.samples)}
    assert len(rows_of(tmp_path / "out")) == 32
    loaded = datasets.load_dataset(str(tmp_path / "out"))
    assert {name: split.num_rows for name, split in loaded.items()} == {"train": 32, "test": 8}
    assert loaded["train"].column_names == COLUMNS


def test_samples_are_cut_like_in_training(tmp_path: Path) -> None:
    samples = [Planted([4, 5, 2], prompt=[3] * n, sample_id=f"prompt-of-{n}") for n in (2, 7, 8)]
    path = annotate(tmp_path / "data", samples)
    data, written = export(ExportConfig((path,), tmp_path / "out", max_length=8))
    rows = rows_of(tmp_path / "out")
    assert rows["prompt-of-7"]["labels"] == [-100] * 7 + [4]
    assert rows["prompt-of-2"]["labels"] == [-100] * 2 + [4, 5, 2]
    assert set(rows) == {"prompt-of-2", "prompt-of-7"}
    assert data.dropped == ("prompt-of-8",)
    assert written["train"].longest == 8


def test_it_says_what_the_format_cannot_carry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = [
        Planted([4, 5, 6, 2], logprob=[-5, -5, -1, -1], location=[0, 1, 1, 0], sample_weight=0.25),
        Planted([4, 2], logprob=[-5, -5], location=[0, 0], sample_weight=0.75),
    ]
    path = annotate(tmp_path / "data", samples)
    (path / "README.md").write_text("licences and notices")
    assert command.run([str(path), "--out", str(tmp_path / "out"), "--format", "trl"]) == 0
    said = capsys.readouterr().out
    assert "--mask both, tau 0.1, lambda 1" in said
    assert "train.parquet: 1 samples, 3 of 6 response tokens (50.0%) with a label; 1 samples without" in said
    assert "M of equation (4); 1 tokens of 3 in train have another weight than 1, up to 2" in said
    assert "w of equation (8), in train 0.500 in the mean" in said
    assert "the denominator" in said
    assert "--confidence online" in said
    assert "those of planted" in said
    assert "SFTConfig(max_length=7)" in said
    readme = (tmp_path / "out" / "README.md").read_text()
    assert all(f"- {line}\n" in readme for line in said.splitlines())
    assert (tmp_path / "out" / "SOURCE-0.md").read_text() == "licences and notices"


def test_what_the_format_does_carry_is_not_said_to_be_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = annotate(tmp_path / "data", planted(4), config=BuildConfig(skip_scoring=True))
    assert command.run([str(path), "--out", str(tmp_path / "out"), "--mask", "none"]) == 0
    assert "not carried" not in capsys.readouterr().out
    assert all(-100 not in r["labels"][r["completion_mask"].index(1) :] for r in rows_of(tmp_path / "out").values())


def test_a_mask_of_scores_without_scores(tmp_path: Path) -> None:
    path = annotate(tmp_path / "data", planted(4), config=BuildConfig(skip_scoring=True))
    with pytest.raises(DatasetError, match=r"built with --skip-scoring, so it has no logprob"):
        export(ExportConfig((path,), tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    export(ExportConfig((path,), tmp_path / "out", mask="cuda"))
    assert len(rows_of(tmp_path / "out")) > 0


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = annotate(tmp_path / "data", planted(4))
    out = tmp_path / "out"
    out.mkdir()
    export(ExportConfig((path,), out))  # into an empty folder
    before = {file: file.read_bytes() for file in out.iterdir()}
    with pytest.raises(OptionError, match="is there already"):
        export(ExportConfig((path,), out, mask="none"))
    assert {file: file.read_bytes() for file in out.iterdir()} == before
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OptionError, match="is there already"):
        export(ExportConfig((path,), tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "mine"


def test_an_export_into_a_dataset(tmp_path: Path) -> None:
    data = annotate(tmp_path / "data", planted(3))
    with pytest.raises(OptionError, match="lies inside the dataset"):
        export(ExportConfig((data,), data / "samples" / "out"))
    assert not (data / "samples" / "out").exists()


def test_the_name_of_a_model_is_escaped(tmp_path: Path) -> None:
    data = annotate(tmp_path / "data", planted(3))
    manifest = json.loads((data / "manifest.json").read_text())
    manifest["model"]["name"] = "\x1b[31m<b>x\n# head"
    (data / "manifest.json").write_text(json.dumps(manifest))
    export(ExportConfig((data,), tmp_path / "out"))
    text = (tmp_path / "out" / "README.md").read_text()
    assert "those of &#91;31m&#60;b&#62;x &#35; head: train" in text


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = annotate(tmp_path / "data", planted(4))

    def full(*arguments: Any, **more: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(DatasetError, match=r"cannot write there \(No space left on device\)"):
        export(ExportConfig((path,), tmp_path / "new" / "out"))
    assert list((tmp_path / "new").iterdir()) == []


def test_no_token_left(tmp_path: Path) -> None:
    path = annotate(tmp_path / "data", [Planted([4, 2], logprob=[-5, -5])])
    with pytest.raises(DatasetError, match="--mask both: leaves no token to train on"):
        export(ExportConfig((path,), tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", [["--tau", "2"], ["--lambda", "-1"], ["--max-length", "1"], ["--held-out", "1"]])
def test_values_that_cannot_work(tmp_path: Path, option: list[str]) -> None:
    path = annotate(tmp_path / "data", planted(4))
    with pytest.raises(OptionError, match=option[0]):
        command.run([str(path), "--out", str(tmp_path / "out"), *option])
    assert not (tmp_path / "out").exists()


def test_the_command_ends_with_one_line_and_exit_code_2(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "train.export", str(tmp_path / "nothing"), "--out", str(tmp_path / "out")],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"error: {tmp_path / 'nothing'}: no such folder; give the --out folder of a build\n"


@pytest.mark.filterwarnings("ignore")  # of TRL, which is no dependency of ours
def test_trl_trains_on_these_labels(tmp_path: Path, model_folder: Path, tokenizer: Any) -> None:
    trl = pytest.importorskip("trl", reason="TRL is not installed: its reading of an export is not tested")
    import torch
    from transformers import AutoModelForCausalLM

    path = annotate(tmp_path / "data", planted(6), tokenizer=tokenizer)
    export(ExportConfig((path,), tmp_path / "out"))
    rows = rows_of(tmp_path / "out")
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    trainer = trl.SFTTrainer(
        model=model, train_dataset=datasets.load_dataset(str(tmp_path / "out"), split="train"),
        processing_class=tokenizer,
        args=trl.SFTConfig(output_dir=str(tmp_path / "trl"), per_device_train_batch_size=3, report_to="none",
                           use_cpu=True, bf16=False, gradient_checkpointing=False, dataloader_pin_memory=False),
    )  # fmt: skip
    seen = {}
    for batch in trainer.get_train_dataloader():
        for ids, labels, mask in zip(batch["input_ids"], batch["labels"], batch["attention_mask"], strict=True):
            seen[tuple(ids[mask == 1].tolist())] = labels[mask == 1].tolist()
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        nll = torch.nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), batch["labels"][:, 1:])
        assert float(trainer.compute_loss(model, batch)) == pytest.approx(float(nll), rel=1e-5)
    assert seen == {tuple(row["input_ids"]): row["labels"] for row in rows.values()}
