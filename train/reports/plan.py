"""What a run will do, before it does it: steps, tokens, parameters, and about how much memory.

The estimate of memory, for one process without sharding, in bytes; V vocabulary, H width, I width of the MLP, L tokens
of the longest forward pass, l layers, b bytes of the arithmetic (2 or 4), T trained parameters:

    weights       as loaded, and a copy in b bytes of those of them that autocast converts (full tuning in bfloat16)
    training      T x 4 (gradient) + T x 8 (the two moments of AdamW)
    activations   with checkpointing: the input of each layer, and one layer in full; else all layers in full. One
                  layer: L x (8 H + 4 I) values of b bytes, as much again in float32 for the norms and LoRA's inputs
    head          three float32 tables of a chunk (`cross_entropy.CHUNK_VALUES`), and 4 H bytes a supervised token

It leaves out the allocator's own loss and the libraries (about 1 GB on a GPU).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from train.inputs.arguments import processes

if TYPE_CHECKING:
    from train.inputs.run import Inputs, RunConfig

__all__ = ["Plan", "make_plan", "print_plan"]


@dataclass(frozen=True)
class Plan:
    """Numbers of a run; memory in bytes."""

    steps: int
    steps_an_epoch: int
    samples: int
    held_out: int
    tokens: int
    supervised: int
    longest: int
    parameters: int
    trained: int
    memory: dict[str, int]


def make_plan(inputs: Inputs, config: RunConfig) -> Plan:
    """Counts without loading weights."""
    from train.inputs.run import bfloat16, fresh_model

    data = inputs.data.train
    batches = math.ceil(len(data) / (config.batch_size * processes()))
    an_epoch = max(1, math.ceil(batches / config.accumulation))
    model = fresh_model(inputs, config, inputs.objective(config), meta=True)
    every, trained, size = 0, 0, 0
    for parameter in model.parameters():
        every += parameter.numel()
        size += parameter.numel() * parameter.element_size()
        trained += parameter.numel() if parameter.requires_grad else 0
    rows = sorted((int(data.lengths[list(row)].sum()) for row in data.bins), reverse=True)
    longest = sum(rows[: config.batch_size])
    return Plan(
        steps=config.max_steps or math.ceil(config.epochs * an_epoch),
        steps_an_epoch=an_epoch,
        samples=data.samples,
        held_out=inputs.data.held_out.samples if inputs.data.held_out is not None else 0,
        tokens=data.tokens,
        supervised=data.supervised_tokens,
        longest=longest,
        parameters=every,
        trained=trained,
        memory=_memory(model.config.get_text_config(), config, longest, size, trained, 2 if bfloat16(config) else 4),
    )


def _memory(text: Any, config: RunConfig, tokens: int, size: int, trained: int, b: int) -> dict[str, int]:
    from train.cross_entropy import CHUNK_VALUES

    width, layers = text.hidden_size, text.num_hidden_layers
    layer = tokens * (8 * width + 4 * getattr(text, "intermediate_size", 4 * width)) * (b + 4)
    inputs = layers * tokens * width * b
    return {
        "weights": size + (size // 2 if config.tuning == "full" and b == 2 else 0),
        "training": trained * 12,
        "activations": inputs + layer if config.checkpointing else layers * layer,
        "head": 3 * 4 * min(CHUNK_VALUES, tokens * text.vocab_size) + 4 * tokens * width,
    }


def print_plan(console: Console, plan: Plan) -> None:
    """The plan as a table."""
    table = Table(show_header=False, box=None)
    table.add_column()
    table.add_column(justify="right")
    lines = {
        "samples": f"{plan.samples:,}", "held out": f"{plan.held_out:,}", "tokens an epoch": f"{plan.tokens:,}",
        "of them supervised": f"{plan.supervised:,}", "longest forward pass": f"{plan.longest:,} tokens",
        "steps an epoch": f"{plan.steps_an_epoch:,}", "steps": f"{plan.steps:,}", "processes": f"{processes():,}",
        "parameters": f"{plan.parameters:,}",
        "of them trained": f"{plan.trained:,} ({plan.trained / plan.parameters:.2%})",
    }  # fmt: skip
    lines |= {f"memory, {name}": f"{size / 2**30:.2f} GiB" for name, size in plan.memory.items()}
    lines["memory, together"] = f"about {sum(plan.memory.values()) / 2**30:.1f} GiB a process, unsharded"
    for name, value in lines.items():
        table.add_row(name, value)
    console.print(table)
