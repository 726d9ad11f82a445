"""Weighted cross-entropy of response tokens, in chunks, so that the logits of a sample never exist at once.

    loss = sum over tokens of weight * (-log p) + kl * KL(q, p),    p: the model, q: the reference, if there is one

The gradient is formed in the forward pass, chunk by chunk: d loss / d logits = weight * (p - onehot) + kl * (p - q).
Weights that depend on the whole sequence cost one product more, in a first pass that collects the statistics.
Cost: 2 products of N x H x V, 3 where the output embedding is trained, one more for whole-sequence weights and one for
a reference. Memory: two chunks of float32 logits (three with a reference), and the gradients themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
    trained = [torch.is_grad_enabled() and x is not None and x.requires_grad for x in (hidden, weight, bias)]
    with torch.no_grad(), torch.autocast(kind, enabled=False):
        tensors = [None if x is None else x.to(dtype) for x in (hidden, weight, bias, ref_hidden)]
        head = _Head(*tensors, targets, kl, rule or LogitRule(), entropy_top20, rows)  # type: ignore[call-arg,arg-type]
        if whole and any(trained) and not isinstance(weights, Tensor):
            weights = head.run(weights, [False] * 3)[0].weights
        out, gradients = head.run(weights, trained)
    if any(trained):
        out = replace(out, loss=_WithGradients.apply(out.loss, gradients, hidden, weight, bias))
    return out


class _WithGradients(torch.autograd.Function):
    """Gives the loss its gradients by the inputs, which are known already (None: not asked for); one backward pass."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, gradients: Sequence[Tensor | None], *inputs: Tensor | None) -> Tensor:
        ctx.known = [(gradient, None if x is None else x.dtype) for gradient, x in zip(gradients, inputs, strict=True)]
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.known is None:
            raise RuntimeError("the gradients of this loss have been handed out: it has one backward pass")
        known, ctx.known = ctx.known, None
        return (None, None, *(None if x is None else x.mul_(upstream).to(dtype) for x, dtype in known))


@dataclass(frozen=True, eq=False)
class _Head:
    """The inputs of `weighted_cross_entropy`, in the type of the products; `rows`: tokens of a chunk."""

    hidden: Float[Tensor, "N H"]
    weight: Float[Tensor, "V H"]
    bias: Float[Tensor, "V"] | None
    ref_hidden: Float[Tensor, "N H"] | None
    targets: Int64[Tensor, "N"]
    kl: Float32[Tensor, "N"] | None
    rule: LogitRule
    entropy_top20: bool
    rows: int

    def run(self, weights: Tensor | Weigh, trained: Sequence[bool]) -> tuple[HeadOutput, list[Tensor | None]]:
        """One pass over the tokens, and the gradients by hidden states, output embedding and its bias, as far as they
        are `trained`; those of the output embedding in float32. Where none is, the weights are worked out at the end.
        """
        count = len(self.hidden)
        rows = max(1, min(self.rows, count))
        # made once: a fresh buffer for each chunk would have its pages mapped anew
        shape = (rows, len(self.weight))
        buffers = [self.hidden.new_empty(shape, dtype=torch.float32) for _ in range(2 + (self.ref_hidden is not None))]
        by_hidden = torch.empty_like(self.hidden) if trained[0] else None
        by_weight: Tensor | None = None
        by_bias = self.hidden.new_zeros(len(self.weight), dtype=torch.float32) if trained[2] else None
        chunks: list[list[Tensor]] = [[], [], [], []]
        nll, entropy, divergence, used = chunks
        for first in range(0, max(count, 1), rows):  # without a token once, for gradients of 0
            part = slice(first, min(first + rows, count))
            hidden, at = self.hidden[part], self.targets[part, None]
            z, logp, *reference = (buffer[: len(at)] for buffer in buffers)
            self._logits(hidden, z)
            torch.log_softmax(z, 1, out=logp)
            nll.append(-logp.gather(1, at)[:, 0])
            if self.entropy_top20:
                entropy.append(entropy_of_top(logp.topk(min(TOP, logp.shape[1])).values))
            if self.ref_hidden is not None:
                divergence.append(self._divergence(self.ref_hidden[part], logp, reference[0]))
            if not any(trained):
                continue
            if isinstance(weights, Tensor):
                used.append(weights[part])
            else:
                used.append(weights(_statistics(nll[-1:], entropy[-1:]), part))
            gradient = self._by_logits(part, used[-1], z, logp, *reference).to(hidden.dtype)
            if by_hidden is not None:
                torch.mm(gradient, self.weight, out=by_hidden[part])
            if trained[1] and by_weight is None:
                by_weight = (gradient.T @ hidden).float()
            elif by_weight is not None and hidden.dtype == torch.float32:
                by_weight.addmm_(gradient.T, hidden)
            elif by_weight is not None:
                by_weight += gradient.T @ hidden
            if by_bias is not None:
                by_bias += gradient.sum(0, dtype=torch.float32)
        statistics = _statistics(nll, entropy)
        if isinstance(weights, Tensor):
            weight = weights
        else:
            weight = torch.cat(used) if used else weights(statistics, slice(0, count))
        loss = torch.where(weight == 0, 0.0, weight * statistics.nll).sum()  # a weight of 0 keeps an infinite nll out
        kl = torch.cat(divergence) if divergence else None
        if kl is not None and self.kl is not None:
            loss = loss + (self.kl * kl).sum()
        return HeadOutput(loss, statistics, weight, kl), [by_hidden, by_weight, by_bias]

    def _logits(self, hidden: Float[Tensor, "P H"], out: Float32[Tensor, "P V"]) -> None:
        if self.weight.dtype == torch.float32 and self.bias is None:
            torch.mm(hidden, self.weight.T, out=out)
        else:
            out.copy_(torch.nn.functional.linear(hidden, self.weight, self.bias))
        self.rule.apply_(out)

    def _divergence(self, ref_hidden: Tensor, logp: Tensor, q: Float32[Tensor, "P V"]) -> Float32[Tensor, "P"]:
        """KL(q, p) of each token; the buffer `q` becomes the reference's probabilities."""
        self._logits(ref_hidden, q)
        logq = q.log_softmax(1)
        torch.exp(logq, out=q)
        return torch.linalg.vecdot(q, logq.sub_(logp))

    def _by_logits(
        self, part: slice, weight: Tensor, z: Tensor, logp: Tensor, q: Tensor | None = None
    ) -> Float32[Tensor, "P V"]:
        """weight * (p - onehot) + kl * (p - q), by the logits before the rule; overwrites `z` and `q`.

        By log p the loss has the gradient -(weight * onehot + kl * q); from there on autograd's own formula for the
        log-softmax, so that with one chunk the result is autograd's to the bit. It reads each value before it writes
        it, and so may work in place.
        """
        if q is not None and self.kl is not None:
            gradient = q.mul_(-self.kl[part, None])
        else:
            gradient = torch.zeros_like(z) if self.rule.softcap else z.zero_()
        gradient.scatter_add_(1, self.targets[part, None], -weight[:, None])
        torch.ops.aten._log_softmax_backward_data.out(gradient, logp, 1, torch.float32, out=gradient)
        self.rule.backward_(gradient, z)
        return gradient


def _statistics(nll: list[Tensor], entropy: list[Tensor]) -> TokenStatistics:
    """Of the tokens of some chunks."""
    joined = torch.cat(nll)
    return TokenStatistics(joined, (-joined).exp(), torch.cat(entropy) if entropy else None)
