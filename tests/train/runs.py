"""Small runs for the tests: planted data, the random tiny model, one thread, no dropout unless a test asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from train.inputs.run import Inputs, RunConfig, make_trainer, open_inputs
from train.trainer import CusetTrainer


def options(data: Path, model: Path, **more: Any) -> RunConfig:
    """Full tuning by plain gradient descent, everything in one step; `more` wins."""
    words = ("max_grad_norm=0", "optim=sgd", "lr_scheduler_type=constant", *more.pop("training", ()))
    base: dict[str, Any] = {
        "data": (data,), "model": str(model), "objective": "sft", "tuning": "full", "held_out": 0.0, "lora_dropout": 0.0,
        "accumulation": 1, "learning_rate": 0.5, "epochs": 1.0, "checkpointing": False, "training": words,
    }  # fmt: skip
    return RunConfig(**(base | more))


def trainer_of(config: RunConfig, out: Path, inputs: Inputs | None = None, **more: Any) -> CusetTrainer:
    """A trainer that saves nothing."""
    more.setdefault("save_strategy", "no")
    return make_trainer(inputs or open_inputs(config), config, out, **more)


def assert_close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], share: float = 1e-5) -> None:
    """Equal but for rounding: within `share` of each tensor's largest value, which must not be 0 everywhere."""
    assert found.keys() == expected.keys()
    assert any(value.abs().max() > 0 for value in expected.values())
    for name, value in expected.items():
        difference = (found[name] - value).abs().max().item()
        assert difference <= share * max(value.abs().max().item(), 1e-6), name
