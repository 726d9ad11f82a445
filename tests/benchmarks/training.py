"""Time of a training step: our trainer against the plain `Trainer` with the model's own loss, and against TRL's
`SFTTrainer`, on the same samples with the same adapter; random weights, float32, two threads, one run."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from tests.benchmarks.figures import Figure
from train.data import Sample, collate
from train.head import attach_head
from train.objective_options import ObjectiveConfig
from train.objectives import make_objective
from train.trainer import CusetTrainer

__all__ = ["measure"]

_SHAPES: dict[str, dict[str, int]] = {
    "49k": {
        "vocab_size": 49_152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3,
    },
    "152k": {
        "vocab_size": 151_936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2,
    },
}  # fmt: skip
"""Those of SmolLM2-135M and Qwen2.5-0.5B."""

_ROUNDS, _STEPS, _WARM = 3, 2, 1
_PROMPT = 0.2  # share of a sample's tokens


class _Clock(TrainerCallback):
    """Seconds of each step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._began = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(time.perf_counter() - self._began)


def measure() -> list[Figure]:
    """Medians over the steps of all rounds; the ways take turns, so that a slower hour of the machine meets all."""
    torch.set_num_threads(2)
    figures = []
    for name, shape in _SHAPES.items():
        samples = _samples(shape["vocab_size"])
        ways: dict[str, Callable[[Any, Path], Trainer]] = {
            "plain Trainer": lambda model, out, s=samples: _plain(model, s, out),
            "cuset": lambda model, out, s=samples: _ours(model, s, out),
        }
        try:
            ways[f"TRL {version('trl')}"] = lambda model, out, s=samples: _trl(model, s, out)
        except PackageNotFoundError:
            figures.append(Figure("TRL's SFTTrainer", float("nan"), "", "not installed: pip install trl"))
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(_ROUNDS):
            for way, make in ways.items():
                seconds[way] += _steps(make, shape)
        medians = {way: statistics.median(times) for way, times in seconds.items()}
        tokens = sum(len(s.input_ids) for s in samples)
        figures += [
            Figure(f"{way}, vocabulary {name}", value, "s/step", f"{tokens} tokens a step, LoRA r 8, float32")
            for way, value in medians.items()
        ]
        figures += [
            Figure(f"cuset over {way}, vocabulary {name}", medians["cuset"] / value, "x")
            for way, value in medians.items()
            if way != "cuset"
        ]
    return figures


def _samples(vocabulary: int) -> list[Sample]:
    """One step's samples: ragged lengths, as in a corpus of kernels."""
    random = np.random.default_rng(0)
    found = []
    for number, length in enumerate((224, 160, 192)):
        prompt = int(_PROMPT * length)
        lists = {
            "token_weight": random.integers(0, 3, length - prompt).astype(np.float32),
            "logprob": -random.exponential(1, length - prompt).astype(np.float16),
            "category": random.integers(0, 14, length - prompt).astype(np.uint8),
            "in_code": np.ones(length - prompt, bool),
            "location": random.integers(0, 5, length - prompt).astype(np.uint8),
        }
        ids = random.integers(0, vocabulary, length).astype(np.int32)
        found.append(Sample(str(number), ids, prompt, 0.5, lists))
    return found


def _model(shape: dict[str, int]) -> Any:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    model: Any = LlamaForCausalLM(LlamaConfig(**shape, max_position_embeddings=4096, tie_word_embeddings=True))
    return model, lambda: get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear"))


def _arguments(kind: type[TrainingArguments], out: Path, samples: int, **more: Any) -> Any:
    return kind(
        output_dir=str(out), per_device_train_batch_size=1, gradient_accumulation_steps=samples, use_cpu=True,
        max_steps=_STEPS + _WARM, save_strategy="no", logging_steps=1, report_to="none", disable_tqdm=True, **more,
    )  # fmt: skip


def _steps(make: Callable[[Any, Path], Trainer], shape: dict[str, int]) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        trainer = make(_model(shape), Path(folder))
        clock = _Clock()
        trainer.add_callback(clock)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return clock.seconds[_WARM:]


def _ours(model: Any, samples: list[Sample], out: Path) -> Trainer:
    base, adapt = model
    objective = make_objective(ObjectiveConfig(objective="cuset"), 0.5)
    attach_head(base, objective)
    arguments = _arguments(TrainingArguments, out, len(samples), remove_unused_columns=False, label_names=[])
    return CusetTrainer(
        model=adapt(), args=arguments, objective=objective, data_collator=collate,
        train_dataset=[[s] for s in samples], neutral_mean=0.5,  # type: ignore[arg-type]
    )  # fmt: skip


def _rows(samples: list[Sample]) -> list[dict[str, Any]]:
    rows = []
    for s in samples:
        ids = s.input_ids.tolist()
        labels = [-100] * s.prompt_tokens + ids[s.prompt_tokens :]
        rows.append({"input_ids": ids, "labels": labels})
    return rows


def _plain(model: Any, samples: list[Sample], out: Path) -> Trainer:
    rows = [{**row, "attention_mask": [1] * len(row["input_ids"])} for row in _rows(samples)]
    arguments = _arguments(TrainingArguments, out, len(samples))
    return Trainer(model=model[1](), args=arguments, train_dataset=rows, data_collator=_padded)  # type: ignore[arg-type]


def _padded(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Batches of one sample need no padding."""
    return {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}


def _trl(model: Any, samples: list[Sample], out: Path) -> Trainer:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    from tests.conftest import train_tokenizer

    rows = Dataset.from_list([
        {"input_ids": s.input_ids.tolist(), "completion_mask": [0] * s.prompt_tokens + [1] * (len(s.input_ids) - s.prompt_tokens)}
        for s in samples
    ])  # fmt: skip
    arguments = _arguments(
        SFTConfig,
        out,
        len(samples),
        completion_only_loss=True,
        max_length=None,
        bf16=False,
        gradient_checkpointing=False,
    )
    return SFTTrainer(model=model[1](), args=arguments, train_dataset=rows, processing_class=train_tokenizer())
