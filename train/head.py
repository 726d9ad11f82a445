"""Puts the loss inside a causal model's forward, where DDP, FSDP and gradient checkpointing see it."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from curate.errors import ModelError, OptionError
from train.cross_entropy import HeadOutput, LogitRule, weighted_cross_entropy
from train.objectives import Objective, TokenStatistics

__all__ = ["attach_head", "check_head"]


def attach_head(model: Any, objective: Objective, *, chunk: int | None = None) -> None:
    """Gives a `transformers` causal model a forward that returns the objective's un-normalised loss.

    To be called before peft or a parallel wrapper takes the model. The forward takes a batch of `train.data` (one row,
    position ids that start anew at each sample, no mask), and returns detached values of its N response tokens beside
    the loss: `nll`, `probability`, `weights`, and where the objective has them `entropy_top20` and `kl`. Without
    `targets` it is the model's own forward.

    Raises ModelError where the model does more to its logits than `LogitRule` knows, OptionError for an adapter on the
    output embedding.
    """
    check_head(model)
    rule = _logit_rule(model)
    own = model.forward
    linear = model.get_output_embeddings()
    linear.forward = types.MethodType(_linear_forward, linear)

    @functools.wraps(type(model).forward)
    def forward(self: Any, *args: Any, targets: Int64[Tensor, "N"] | None = None, **batch: Any) -> Any:
        if targets is None:
            return own(*args, **batch)
        check_head(self)
        hidden = _hidden(self, batch)
        reference = kl = None
        if objective.kl:
            scale = objective.scale(batch)
            kl = torch.full_like(targets, objective.kl, dtype=torch.float32) * (1 if scale is None else scale)
            with _without_adapter(self), torch.no_grad():
                reference = _hidden(self, batch)

        def weigh(statistics: TokenStatistics, part: slice) -> Tensor:
            return objective.weights(statistics, batch, part)

        def work(weight: Tensor, bias: Tensor | None) -> HeadOutput:
            weights = objective.weights(None, batch) if objective.known else weigh
            return weighted_cross_entropy(
                hidden, weight, targets, weights, whole=objective.reach == "sequence", bias=bias, rule=rule,
                entropy_top20=objective.needs_entropy, ref_hidden=reference, kl=kl, chunk=chunk,
            )  # fmt: skip

        # Through the module, so that the hooks of FSDP and ZeRO gather its weight.
        out = self.get_output_embeddings()(hidden, work)
        found = {"loss": out.loss, "weights": out.weights, "kl": out.kl, **vars(out.statistics)}
        return {name: x for name, x in found.items() if x is not None}

    model.forward = types.MethodType(forward, model)


def check_head(model: Any) -> None:
    """Raises OptionError for an adapter on the output embedding, or one that is trained beside it: the loss reads the
    embedding's own weight."""
    head = model.get_output_embeddings()
    if hasattr(head, "disable_adapters"):
        raise OptionError(
            "an adapter on the output embedding (lm_head): the loss reads its plain weight; take it out of the"
            " adapter's targets and of the modules to save"
        )
    if not isinstance(head, nn.Linear) or not head.weight.is_floating_point():
        raise ModelError(f"{type(model).__name__}: its output embedding is no plain linear layer")


def _linear_forward(self: Any, hidden: Tensor, work: Callable[[Tensor, Tensor | None], Any] | None = None) -> Any:
    return type(self).forward(self, hidden) if work is None else work(self.weight, self.bias)


def _hidden(model: Any, batch: Mapping[str, Any]) -> Float[Tensor, "N H"]:
    """The last hidden states that predict the response tokens."""
    # of one sample positions say nothing, and would cost every layer an explicit mask
    positions = batch["position_ids"] if len(batch["sample_weight"]) > 1 else None
    states = model.base_model(input_ids=batch["input_ids"], position_ids=positions, use_cache=False)[0]
    return states[0, batch["logit_index"]]


@contextmanager
def _without_adapter(model: nn.Module) -> Iterator[None]:
    """The base model: every adapter off. peft's own switch would also turn `requires_grad` off and on again."""
    layers: list[Any] = [m for m in model.modules() if hasattr(m, "_disable_adapters")]
    if not layers:
        raise OptionError(
            "--objective asft: its reference is the base model with the adapter off, and full tuning has none; train"
            " with LoRA"
        )
    before = [layer._disable_adapters for layer in layers]
    try:
        for layer in layers:
            layer._disable_adapters = True
        yield
    finally:
        for layer, was in zip(layers, before, strict=True):
            layer._disable_adapters = was


@torch.no_grad()
def _logit_rule(model: Any) -> LogitRule:
    """What the model does to its logits, by its configuration, and checked on a few tokens; raises ModelError."""
    config = model.config.get_text_config()
    scale = getattr(config, "logit_scale", None) or getattr(config, "lm_head_multiplier", None) or 1.0
    if getattr(config, "logits_scaling", None):
        scale = 1 / config.logits_scaling
    rule = LogitRule(scale, getattr(config, "final_logit_softcapping", None))
    head = model.get_output_embeddings()
    if head.weight.is_meta:
        return rule
    ids = torch.arange(4, device=head.weight.device)[None] % head.weight.shape[0]
    states: list[Tensor] = []
    hook = model.base_model.register_forward_hook(lambda module, inputs, output: states.append(output[0][0]))
    training = model.training
    model.eval()
    try:
        own = model(input_ids=ids, use_cache=False).logits[0].float()
    finally:
        hook.remove()
        model.train(training)
    if not own.isfinite().all():
        raise ModelError(
            f"{type(model).__name__}: its logits are not finite, so its weights are damaged; fetch the model again"
        )
    ours = head(states[0].to(head.weight.dtype)).float() if len(states) == 1 else own.new_empty(0, 0)
    rule.apply_(ours)
    near = (1e-4 if head.weight.dtype == torch.float32 else 2e-2) * float(own.abs().max())
    if ours.shape != own.shape or not torch.allclose(ours, own, rtol=0, atol=near):
        raise ModelError(
            f"{type(model).__name__}: its logits are more than its output embedding of the last hidden state, in a way"
            " that the loss does not know; train another model"
        )
    return rule
