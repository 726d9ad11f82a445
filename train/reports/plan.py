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
from typing import Any

from rich.table import Table

from train.cross_entropy import CHUNK_VALUES
from train.inputs.arguments import processes
from train.inputs.run import Inputs, RunConfig, bfloat16, fresh_model

__all__ = ["plan"]


def plan(inputs: Inputs, config: RunConfig) -> Table:
    """Name and number of all that the run will do and take; loads no weights."""
    data, held_out = inputs.data.train, inputs.data.held_out
    batches = math.ceil(len(data) / (config.batch_size * processes()))
    an_epoch = max(1, math.ceil(batches / config.accumulation))
    longest = sum(sorted((int(data.lengths[row].sum()) for row in data.bins), reverse=True)[: config.batch_size])
    model = fresh_model(inputs, config, inputs.objective(config), meta=True)
    parameters = list(model.parameters())
    every, size = sum(p.numel() for p in parameters), sum(p.numel() * p.element_size() for p in parameters)
    trained = sum(p.numel() for p in parameters if p.requires_grad)
    memory = _memory(model.config.get_text_config(), config, longest, size, trained, 2 if bfloat16(config) else 4)
    numbers = {
        "samples": data.samples, "held out": held_out.samples if held_out is not None else 0,
        "tokens an epoch": data.tokens, "of them supervised": data.supervised_tokens,
        "longest forward pass": f"{longest:,} tokens", "steps an epoch": an_epoch,
        "steps": config.max_steps or math.ceil(config.epochs * an_epoch), "processes": processes(),
        "parameters": every, "of them trained": f"{trained:,} ({trained / every:.2%})",
        **{f"memory, {name}": f"{part / 2**30:.2f} GiB" for name, part in memory.items()},
        "memory, together": f"about {sum(memory.values()) / 2**30:.1f} GiB a process, unsharded",
    }  # fmt: skip
    table = Table(show_header=False, box=None)
    table.add_column()
    table.add_column(justify="right")
    for name, number in numbers.items():
        table.add_row(name, f"{number:,}" if isinstance(number, int) else number)
    return table


def _memory(text: Any, config: RunConfig, tokens: int, size: int, trained: int, b: int) -> dict[str, int]:
    width, layers = text.hidden_size, text.num_hidden_layers
    layer = tokens * (8 * width + 4 * getattr(text, "intermediate_size", 4 * width)) * (b + 4)
    inputs = layers * tokens * width * b
    return {
        "weights": size + (size // 2 if config.tuning == "full" and b == 2 else 0),
        "training": trained * 12,
        "activations": inputs + layer if config.checkpointing else layers * layer,
        "head": 3 * 4 * min(CHUNK_VALUES, tokens * text.vocab_size) + 4 * tokens * width,
    }
