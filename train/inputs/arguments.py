"""What `transformers.TrainingArguments` a run gets: our defaults, the options of the command, and what
`--training NAME=VALUE` adds for everything else that the Trainer can do (FSDP, DeepSpeed, schedulers, optimisers)."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from curate.errors import OptionError, first_line

if TYPE_CHECKING:
    from transformers import TrainingArguments

    from train.inputs.run import RunConfig

__all__ = ["TRACKERS", "check_tracker", "processes", "training_arguments"]

TRACKERS = {"tensorboard": 'pip install "cuset[track]"', "wandb": "pip install wandb", "trackio": "pip install trackio"}
"""Where figures can be reported to, with what installs it."""

_OWN = {
    "output_dir": "--out", "per_device_train_batch_size": "--batch-size", "report_to": "--report-to",
    "gradient_accumulation_steps": "--accumulation", "learning_rate": "--learning-rate", "seed": "--seed",
    "num_train_epochs": "--epochs", "bf16": "--dtype bfloat16", "fp16": "--dtype", "activation_checkpointing":
    "--checkpointing", "gradient_checkpointing": "--checkpointing", "save_total_limit": "--save-limit",
    "push_to_hub": "--push-to-hub", "hub_model_id": "--push-to-hub", "resume_from_checkpoint": "--resume",
    "max_steps": "--max-steps", "hub_token": "hf auth login, or HF_TOKEN in the environment",
}  # fmt: skip
"""Arguments that have an option of their own."""

_KEPT = frozenset({
    "remove_unused_columns", "label_names", "label_smoothing_factor", "use_liger_kernel", "use_cache", "debug",
    "average_tokens_across_devices", "auto_find_batch_size", "train_sampling_strategy", "neftune_noise_alpha",
    "prediction_loss_only", "batch_eval_metrics", "parallelism_config", "include_for_metrics", "do_train", "do_eval",
    "do_predict", "length_column_name", "ignore_data_skip", "dataloader_drop_last", "accelerator_config",
    "activation_checkpointing_kwargs", "gradient_checkpointing_kwargs", "disable_tqdm", "eval_do_concat_batches",
    "logging_nan_inf_filter", "eval_on_start", "eval_accumulation_steps",
})  # fmt: skip
"""Arguments that would change what the loss is divided by, or that mean nothing here."""


_RANGES = {
    "per_device_eval_batch_size": (1, 2**20), "dataloader_num_workers": (0, 2**10), "data_seed": (0, 2**32 - 1),
}  # fmt: skip
"""What the Trainer itself does not look at before it trains."""


def processes() -> int:
    """Ranks of the run, as torchrun tells them."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def check_tracker(name: str) -> None:
    """Raises OptionError for a tracker that is not installed."""
    if name != "none" and importlib.util.find_spec(name) is None:
        raise OptionError(f"--report-to {name}: not installed; {TRACKERS[name]}")


def training_arguments(config: RunConfig, out: Path, *, bf16: bool, evaluate: bool, **more: Any) -> TrainingArguments:
    """The arguments of a run into `out`; `evaluate`: there are held-out samples, judged at the start and every epoch.

    `more` wins over the options, `--training` over the defaults. Raises OptionError.
    """
    import torch
    from transformers import TrainingArguments

    given = _given(config.training)
    defaults: dict[str, Any] = {
        "logging_steps": 10, "save_strategy": "epoch", "eval_strategy": "epoch" if evaluate else "no",
        "dataloader_pin_memory": torch.cuda.is_available(), "per_device_eval_batch_size": config.batch_size,
        "ddp_find_unused_parameters": False, "log_level": "error", "log_level_replica": "error",
        # without it, and without a GPU, each process of torchrun would train a copy for itself
        "use_cpu": not torch.accelerator.is_available(),
    }  # fmt: skip
    defaults |= {f"{what}_strategy": "steps" for what in ("save", "eval") if f"{what}_steps" in given}
    if "metric_for_best_model" in given:  # ours are better when lower; from eval_nll the Trainer concludes otherwise
        defaults["greater_is_better"] = False
    fixed: dict[str, Any] = {
        "output_dir": str(out), "per_device_train_batch_size": config.batch_size,
        "gradient_accumulation_steps": config.accumulation, "learning_rate": config.learning_rate,
        "num_train_epochs": config.epochs, "max_steps": config.max_steps or -1, "seed": config.seed, "bf16": bf16,
        "activation_checkpointing": config.checkpointing,
        "activation_checkpointing_kwargs": {"use_reentrant": False} if config.checkpointing else None,
        "remove_unused_columns": False, "label_names": [], "logging_nan_inf_filter": False, "disable_tqdm": True,
        "report_to": "none", "eval_on_start": evaluate,
    }  # fmt: skip
    try:
        return TrainingArguments(**(defaults | given | fixed | more))
    except (ImportError, ValueError, TypeError, OSError, RuntimeError) as error:
        raise OptionError(f"--training: the Trainer refuses these arguments: {first_line(error)}") from error


def _given(words: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE words as typed arguments, read by the Trainer's own parser."""
    from transformers import HfArgumentParser, TrainingArguments

    values: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.strip().lstrip("-").replace("-", "_")
        if not equals or not name:
            raise OptionError(f"--training {word}: write NAME=VALUE, such as warmup_steps=0.03")
        if name in _OWN:
            raise OptionError(f"--training {name}: has an option of its own: {_OWN[name]}")
        if name in _KEPT:
            raise OptionError(f"--training {name}: is set by train.sft and cannot be changed")
        if name not in TrainingArguments.__dataclass_fields__:
            raise OptionError(f"--training {name}: transformers.TrainingArguments has no such argument")
        values[name] = value
    if not values:
        return {}

    def refuse(message: str) -> NoReturn:
        raise OptionError(f"--training: {message}") from None

    parser = HfArgumentParser(TrainingArguments, allow_abbrev=False)  # type: ignore[arg-type]
    parser.error = refuse  # type: ignore[method-assign]
    parsed = parser.parse_args([f"--{name}={value}" for name, value in values.items()])
    found: dict[str, Any] = {}
    for name in values:
        value = getattr(parsed, name)
        if isinstance(value, float) and not math.isfinite(value):
            raise OptionError(f"--training {name}: {value} is no number to train with")
        low, high = _RANGES.get(name, (-math.inf, math.inf))
        if name in _RANGES and not low <= value <= high:
            raise OptionError(f"--training {name}: must lie between {low} and {high}")
        # of an argument that may be a text or a truth value, such as fsdp
        found[name] = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
    return found
