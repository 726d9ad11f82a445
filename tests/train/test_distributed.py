"""Two processes (gloo, on the CPU) train what one trains: same gradients, no sample twice, same held-out figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.train.annotated import annotate, planted
from train import sft

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("tuning", ["full"])
def test_two_processes_end_elsewhere_than_one(tuning: str, model_folder: Path, tmp_path: Path, tokenizer: Any) -> None:
    """Nine ragged samples, 4 a step, so that one rank has a batch less; plain gradient descent, which hides nothing."""
    data = annotate(tmp_path / "data", planted(12, seed=4, response=(3, 40)), tokenizer=tokenizer)
    words = [
        "--data",
        str(data),
        "--model",
        str(model_folder),
        "--tuning",
        tuning,
        "--held-out",
        "0.25",
        "--epochs",
        "2",
    ]
    words += ["--learning-rate", "0.3", "--training", "optim=sgd", "--training", "max_grad_norm=0"]
    one, two = tmp_path / "one", tmp_path / "two"
    assert sft.run([*words, "--out", str(one), "--accumulation", "4"]) == 0
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "train.sft"]
    done = subprocess.run(
        [*launch, *words, "--out", str(two), "--accumulation", "2"], cwd=ROOT, capture_output=True, text=True, timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("Held-out nll") == 1  # by the first process alone
    found, expected = load_file(two / "model.safetensors"), load_file(one / "model.safetensors")
    start = load_file(model_folder / "model.safetensors")
    for name, value in expected.items():
        moved = (value - start[name]).abs().max().item()
        assert moved > 0
        assert (found[name] - value).abs().max().item() <= 1e-4 * moved, name
    results = [json.loads((out / "results.json").read_text()) for out in (one, two)]
    assert results[0]["steps"] == results[1]["steps"] == 6
    assert results[0]["held_out_tokens"] == results[1]["held_out_tokens"]
    for key in ("eval_nll", "eval_nll_sensitive", "eval_loss"):
        assert results[0]["after"][key] == pytest.approx(results[1]["after"][key], rel=1e-4)
