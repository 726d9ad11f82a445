"""Weighted cross-entropy of response tokens, in chunks, so that the logits of a sample never exist at once.

    loss = sum over tokens of weight * (-log p) + kl * KL(q, p),    p: the model, q: the reference, if there is one

The gradient is formed in the forward pass, chunk by chunk: d loss / d logits = weight * (p - onehot) + kl * (p - q).
Weights that depend on the whole sequence cost one product more, in a first pass that collects the statistics.
Cost: 2 products of N x H x V, 3 where the output embedding is trained, one more for whole-sequence weights and one for
a reference. Memory: two chunks of float32 logits (three with a reference), and the gradients themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from curate.statistics import TOP, entropy_of_top
from train.objectives import TokenStatistics

__all__ = ["CHUNK_VALUES", "HeadOutput", "LogitRule", "weighted_cross_entropy"]

CHUNK_VALUES = 1 << 26
"""Float32 logits of a chunk: 256 MiB. A quarter of that costs a fifth more time on two cores."""


@dataclass(frozen=True)
class LogitRule:
    """What a model does to its logits after the output embedding: softcap * tanh(scale * z / softcap)."""

    scale: float = 1.0
    softcap: float | None = None

    def apply_(self, z: Float32[Tensor, "P V"]) -> None:
        """Final logits in the place of plain ones."""
        if self.scale != 1:
            z.mul_(self.scale)
        if self.softcap:
            z.div_(self.softcap).tanh_().mul_(self.softcap)

    def backward_(self, gradient: Float32[Tensor, "P V"], z: Float32[Tensor, "P V"]) -> None:
        """The gradient by the plain logits in the place of that by the final ones, `z`, which are overwritten."""
        if self.softcap:
            gradient.mul_(z.div_(self.softcap).square_().neg_().add_(1))
        if self.scale != 1:
            gradient.mul_(self.scale)


Weigh = Callable[[TokenStatistics, slice], Tensor]
"""Weights (P,) of the tokens in a slice, from their statistics."""


@dataclass(frozen=True)
class HeadOutput:
    """The un-normalised loss, and of the N tokens, detached: statistics, weights, KL(q, p) where q is there."""

    loss: Float32[Tensor, ""]
    statistics: TokenStatistics
    weights: Float32[Tensor, "N"]
    kl: Float32[Tensor, "N"] | None


def weighted_cross_entropy(
    hidden: Float[Tensor, "N H"],
    weight: Float[Tensor, "V H"],
    targets: Int64[Tensor, "N"],
    weights: Float32[Tensor, "N"] | Weigh,
    *,
    whole: bool = False,
    bias: Float[Tensor, "V"] | None = None,
    rule: LogitRule | None = None,
    entropy_top20: bool = False,
    ref_hidden: Float[Tensor, "N H"] | None = None,
    kl: Float32[Tensor, "N"] | None = None,
    chunk: int | None = None,
) -> HeadOutput:
    """The loss of N tokens, each predicted by its row of `hidden` under the output embedding `weight`.

    Weights are given, or a function of the statistics: of a chunk at a time, or of all N tokens where they depend on
    the `whole` sequence. `ref_hidden`: the reference's hidden states, under the same output embedding; `kl`: the
    coefficient of each token. `chunk`: tokens at once. Products are in the type of `weight`, or of autocast; softmax
    and loss in float32. With N = 0, or weights of 0, the loss is 0 and still connected to the graph.
    """
    kind = hidden.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
    rows = chunk or max(1, CHUNK_VALUES // len(weight))
    trained = tuple(torch.is_grad_enabled() and x is not None and x.requires_grad for x in (hidden, weight, bias))
    with torch.no_grad(), torch.autocast(kind, enabled=False):
        head = _Head(
            hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype), targets, rows,
            rule or LogitRule(), entropy_top20, None if ref_hidden is None else ref_hidden.to(dtype), kl,
        )  # fmt: skip
        if whole and any(trained) and not isinstance(weights, Tensor):
            weights = head.run(weights, None).weights
        gradients = _Gradients(trained) if any(trained) else None
        out = head.run(weights, gradients)
    if gradients is not None:
        out = replace(out, loss=_WithGradients.apply(out.loss, gradients, hidden, weight, bias))
    return out


@dataclass(eq=False)
class _Gradients:
    """Gradients of the un-normalised loss, as they grow chunk by chunk; those of the output embedding in float32."""

    trained: tuple[bool, ...]
    """Whether hidden states, output embedding and its bias need one."""
    of_hidden: list[Tensor] = field(default_factory=list)
    of_weight: Tensor | None = None
    of_bias: Tensor | None = None

    def add(self, gradient: Float[Tensor, "P V"], hidden: Float[Tensor, "P H"], weight: Float[Tensor, "V H"]) -> None:
        """Takes in a chunk: the gradient by its logits, its hidden states, the output embedding."""
        of_hidden, of_weight, of_bias = self.trained
        if of_hidden:
            self.of_hidden.append(gradient @ weight)
        if of_weight and self.of_weight is None:
            self.of_weight = (gradient.T @ hidden).float()
        elif self.of_weight is not None and hidden.dtype == torch.float32:
            self.of_weight.addmm_(gradient.T, hidden)
        elif self.of_weight is not None:
            self.of_weight += gradient.T @ hidden
        if of_bias:
            summed = gradient.sum(0, dtype=torch.float32)
            self.of_bias = summed if self.of_bias is None else self.of_bias.add_(summed)


class _WithGradients(torch.autograd.Function):
    """Gives the loss its gradients, which are known already; one backward pass."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, gradients: _Gradients, *inputs: Tensor | None) -> Tensor:
        ctx.gradients = gradients
        ctx.like = [None if x is None else (x.shape, x.dtype, x.device) for x in inputs]
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("the gradients of this loss have been handed out: it has one backward pass")
        known, ctx.gradients = ctx.gradients, None
        hidden = torch.cat(known.of_hidden) if known.of_hidden else None
        result: list[Tensor | None] = [None, None]
        for trained, gradient, like in zip(
            known.trained, (hidden, known.of_weight, known.of_bias), ctx.like, strict=True
        ):
            if not trained:
                result.append(None)
            elif gradient is None:  # no token at all
                result.append(torch.zeros(like[0], dtype=like[1], device=like[2]))
            else:
                result.append(gradient.mul_(upstream).to(like[1]))
        return tuple(result)


@dataclass(frozen=True, eq=False)
class _Head:
    """The inputs of `weighted_cross_entropy`, in the type of the products."""

    hidden: Float[Tensor, "N H"]
    weight: Float[Tensor, "V H"]
    bias: Float[Tensor, "V"] | None
    targets: Int64[Tensor, "N"]
    rows: int
    rule: LogitRule
    entropy_top20: bool
    ref_hidden: Float[Tensor, "N H"] | None
    kl: Float32[Tensor, "N"] | None

    def run(self, weights: Tensor | Weigh, gradients: _Gradients | None) -> HeadOutput:
        """One pass over the tokens. Where no gradient is asked for, the weights are worked out at its end."""
        count = len(self.hidden)
        rows = min(self.rows, count)
        nll = self.hidden.new_empty(count, dtype=torch.float32)
        used, divergence, entropy = torch.empty_like(nll), torch.empty_like(nll), torch.empty_like(nll)
        # Made once: a fresh buffer for each chunk would have its pages mapped anew.
        logits = nll.new_empty(rows, len(self.weight))
        logprobs = torch.empty_like(logits)
        reference = torch.empty_like(logits) if self.ref_hidden is not None else None
        for first in range(0, count, self.rows):
            part = slice(first, min(first + self.rows, count))
            at = self.targets[part, None]
            z, logp = logits[: len(at)], logprobs[: len(at)]
            self._logits(self.hidden[part], z)
            torch.log_softmax(z, 1, out=logp)
            nll[part] = -logp.gather(1, at)[:, 0]
            if self.entropy_top20:
                entropy[part] = entropy_of_top(logp.topk(min(TOP, logp.shape[1])).values)
            q = None
            if reference is not None and self.ref_hidden is not None:
                q = reference[: len(at)]
                divergence[part] = self._divergence(self.ref_hidden[part], logp, q)
            if gradients is None:
                continue
            if isinstance(weights, Tensor):
                used[part] = weights[part]
            else:
                used[part] = weights(_statistics(nll[part], entropy[part] if self.entropy_top20 else None), part)
            gradient = self._by_logits(z, logp, at, used[part], q, None if self.kl is None else self.kl[part])
            gradients.add(gradient.to(self.hidden.dtype), self.hidden[part], self.weight)
        statistics = _statistics(nll, entropy if self.entropy_top20 else None)
        if gradients is None:
            used = weights if isinstance(weights, Tensor) else weights(statistics, slice(0, count))
        loss = torch.where(used == 0, 0.0, used * nll).sum()  # a weight of 0 keeps an infinite nll out
        if self.kl is not None and reference is not None:
            loss = loss + (self.kl * divergence).sum()
        return HeadOutput(loss, statistics, used, None if reference is None else divergence)

    def _logits(self, hidden: Float[Tensor, "P H"], out: Float32[Tensor, "P V"]) -> None:
        if self.weight.dtype == torch.float32 and self.bias is None:
            torch.mm(hidden, self.weight.T, out=out)
        else:
            out.copy_(torch.nn.functional.linear(hidden, self.weight, self.bias))
        self.rule.apply_(out)

    def _divergence(
        self, ref_hidden: Float[Tensor, "P H"], logp: Float32[Tensor, "P V"], q: Float32[Tensor, "P V"]
    ) -> Float32[Tensor, "P"]:
        """KL(q, p) of each token; the buffer `q` becomes the reference's probabilities."""
        self._logits(ref_hidden, q)
        logq = q.log_softmax(1)
        torch.exp(logq, out=q)
        return torch.linalg.vecdot(q, logq.sub_(logp))

    def _by_logits(
        self,
        z: Float32[Tensor, "P V"],
        logp: Float32[Tensor, "P V"],
        at: Int64[Tensor, "P 1"],
        weight: Float32[Tensor, "P"],
        q: Float32[Tensor, "P V"] | None,
        kl: Float32[Tensor, "P"] | None,
    ) -> Float32[Tensor, "P V"]:
        """weight * (p - onehot) + kl * (p - q), by the logits before the rule; overwrites its inputs.

        By log p the loss has the gradient -(weight * onehot + kl * q); from there on autograd's own formula for the
        log-softmax, so that with one chunk the result is autograd's to the bit. It reads each value before it writes
        it, and so may work in place.
        """
        if q is not None and kl is not None:
            gradient = q.mul_(-kl[:, None])
        else:
            gradient = torch.zeros_like(z) if self.rule.softcap else z.zero_()
        gradient.scatter_add_(1, at, -weight[:, None])
        torch.ops.aten._log_softmax_backward_data.out(gradient, logp, 1, torch.float32, out=gradient)
        self.rule.backward_(gradient, z)
        return gradient


def _statistics(nll: Float32[Tensor, "P"], entropy: Float32[Tensor, "P"] | None) -> TokenStatistics:
    return TokenStatistics(nll, (-nll).exp(), entropy)
