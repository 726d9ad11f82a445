"""The chunked cross-entropy against plain float64 formulas under autograd, and against autograd's own bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from train.cross_entropy import LogitRule, weighted_cross_entropy

N, H, V = 23, 8, 50


def inputs(dtype: torch.dtype = torch.float32, *, seed: int = 0, size: float = 1.0) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return {
        "hidden": (torch.randn(N, H, generator=draw) * size).to(dtype).requires_grad_(),
        "weight": torch.randn(V, H, generator=draw).to(dtype).requires_grad_(),
        "bias": torch.randn(V, generator=draw).to(dtype).requires_grad_(),
        "targets": torch.randint(0, V, (N,), generator=draw),
        "weights": torch.rand(N, generator=draw) * (torch.rand(N, generator=draw) < 0.7),
        "ref_hidden": torch.randn(N, H, generator=draw).to(dtype),
        "kl": torch.rand(N, generator=draw),
    }


def plain(
    x: dict[str, Any], rule: LogitRule, dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The loss as the formula says it, with full logits, and autograd's gradients."""
    live = [x[name].detach().to(dtype).requires_grad_() for name in ("hidden", "weight", "bias")]

    def logprob(hidden: torch.Tensor) -> torch.Tensor:
        z = F.linear(hidden, live[1], live[2]) * rule.scale
        return (rule.softcap * torch.tanh(z / rule.softcap) if rule.softcap else z).log_softmax(1)

    logp, logq = logprob(live[0]), logprob(x["ref_hidden"].to(dtype)).detach()
    nll = -logp[torch.arange(N), x["targets"]]
    kl = (logq.exp() * (logq - logp)).sum(1)
    loss = (x["weights"].to(dtype) * nll).sum() + (x["kl"].to(dtype) * kl).sum()
    loss.backward()
    return loss.detach(), [p.grad for p in live if p.grad is not None]


RULES = [LogitRule(), LogitRule(0.3), LogitRule(1.0, 2.0), LogitRule(0.5, 3.0)]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("chunk", [1, 7, N, 100])
@pytest.mark.parametrize("divergence", [False, True])
def test_loss_and_gradients_equal_full_logits_in_float64(rule: LogitRule, chunk: int, divergence: bool) -> None:
    x = inputs()
    if not divergence:
        x["kl"] = torch.zeros(N)
    expected, gradients = plain(x, rule)
    more = {"ref_hidden": x["ref_hidden"], "kl": x["kl"]} if divergence else {}
    out = weighted_cross_entropy(
        x["hidden"], x["weight"], x["targets"], x["weights"], bias=x["bias"], rule=rule, chunk=chunk, **more
    )
    (out.loss * 3).backward()
    assert out.loss.item() == pytest.approx(expected.item(), rel=1e-6)
    for name, gradient in zip(("hidden", "weight", "bias"), gradients, strict=True):
        own = x[name].grad
        assert own is not None
        torch.testing.assert_close(
            own.double(), 3 * gradient, rtol=0, atol=2e-6 * float(gradient.abs().max()), msg=name
        )


def test_divergence_of_each_token_is_kl_of_reference_and_model() -> None:
    x = inputs()
    logp, logq = ((h @ x["weight"].T).log_softmax(1) for h in (x["hidden"], x["ref_hidden"]))
    expected = F.kl_div(logp, logq, log_target=True, reduction="none").sum(1)
    out = weighted_cross_entropy(
        x["hidden"], x["weight"], x["targets"], x["weights"], ref_hidden=x["ref_hidden"], kl=x["kl"], chunk=5
    )
    torch.testing.assert_close(out.kl, expected.detach())


def test_one_chunk_is_autograd_to_the_bit() -> None:
    x, y = inputs(), inputs()
    nll = F.cross_entropy(F.linear(y["hidden"], y["weight"]).float(), y["targets"], reduction="none")
    (y["weights"] * nll).sum().backward()
    out = weighted_cross_entropy(x["hidden"], x["weight"], x["targets"], x["weights"])
    out.loss.backward()
    assert torch.equal(out.statistics.nll, nll)
    for name in ("hidden", "weight"):
        own, other = x[name].grad, y[name].grad
        assert own is not None
        assert other is not None
        assert torch.equal(own, other), name


def test_weights_known_by_chunk_or_by_sequence_give_the_same_bits() -> None:
    results = []
    weights = inputs()["weights"]
    ways: list[tuple[Any, bool]] = [
        (weights, False),
        (lambda s, part: weights[part], False),
        (lambda s, part: weights[part], True),
    ]
    for given, whole in ways:
        x = inputs()
        out = weighted_cross_entropy(x["hidden"], x["weight"], x["targets"], given, whole=whole, chunk=5)
        out.loss.backward()
        results.append([out.loss.detach(), out.weights, x["hidden"].grad, x["weight"].grad])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert a is not None
            assert torch.equal(a, b)


def test_weights_of_a_whole_sequence_see_every_token_once_and_those_of_a_chunk_their_own() -> None:
    x = inputs()
    nll = F.cross_entropy(x["hidden"] @ x["weight"].T, x["targets"], reduction="none").detach()

    def recorder(seen: list[torch.Tensor]) -> Callable[..., torch.Tensor]:
        def weigh(statistics: Any, part: slice) -> torch.Tensor:
            assert torch.equal(statistics.probability, (-statistics.nll).exp())
            torch.testing.assert_close(statistics.nll, nll[part])
            seen.append(statistics.nll)
            return torch.ones_like(statistics.nll)

        return weigh

    for whole, calls in ((True, [N]), (False, [10, 10, 3])):
        seen: list[torch.Tensor] = []
        weighted_cross_entropy(x["hidden"], x["weight"], x["targets"], recorder(seen), whole=whole, chunk=10)
        assert [len(s) for s in seen] == calls
        with torch.no_grad():  # nothing to form a gradient for: one pass, one call
            weighted_cross_entropy(x["hidden"], x["weight"], x["targets"], recorder(seen := []), whole=whole, chunk=10)
        assert [len(s) for s in seen] == [N]


def test_entropy_is_that_of_the_twenty_most_probable_tokens() -> None:
    x = inputs()
    p = (x["hidden"] @ x["weight"].T).softmax(1).sort(1, descending=True).values[:, :20].double()
    p = p / p.sum(1, keepdim=True)
    out = weighted_cross_entropy(x["hidden"], x["weight"], x["targets"], x["weights"], entropy_top20=True, chunk=4)
    assert out.statistics.entropy_top20 is not None
    torch.testing.assert_close(out.statistics.entropy_top20, -(p * p.log()).sum(1).float().detach())


def test_bf16_products_but_float32_softmax() -> None:
    """A softmax in bf16 would be off by a percent; the loss over bf16 logits is right to float32."""
    x = inputs(torch.bfloat16, size=3.0)
    expected = F.cross_entropy(F.linear(x["hidden"], x["weight"]).float(), x["targets"], reduction="none")
    out = weighted_cross_entropy(x["hidden"], x["weight"], x["targets"], x["weights"], chunk=N)
    assert torch.equal(out.statistics.nll, expected)
    (x["weights"] * expected).sum().backward()
    theirs = {name: x[name].grad for name in ("hidden", "weight")}
    y = inputs(torch.bfloat16, size=3.0)
    weighted_cross_entropy(y["hidden"], y["weight"], y["targets"], y["weights"], chunk=5).loss.backward()
    for name, other in theirs.items():
        own = y[name].grad
        assert own is not None
        assert other is not None
        assert own.dtype == torch.bfloat16
        torch.testing.assert_close(own.float(), other.float(), rtol=0, atol=2**-7 * float(other.abs().max()))


def test_autocast_is_followed_in_the_products_alone() -> None:
    x, y = inputs(), inputs()
    with torch.autocast("cpu", torch.bfloat16):
        expected = F.cross_entropy(F.linear(y["hidden"], y["weight"]).float(), y["targets"], reduction="none")
        out = weighted_cross_entropy(x["hidden"], x["weight"], x["targets"], x["weights"])
    assert torch.equal(out.statistics.nll, expected)
    out.loss.backward()
    (y["weights"] * expected).sum().backward()
    for name in ("hidden", "weight"):
        own, other = x[name].grad, y[name].grad
        assert own is not None
        assert other is not None
        assert own.dtype == torch.float32
        torch.testing.assert_close(own, other, rtol=0, atol=2**-7 * float(other.abs().max()))


@pytest.mark.parametrize("count", [0, 5])
@pytest.mark.parametrize("whole", [False, True])
def test_nothing_to_learn_gives_a_zero_loss_that_is_connected(count: int, whole: bool) -> None:
    x = inputs()
    out = weighted_cross_entropy(
        x["hidden"][:count], x["weight"], x["targets"][:count], lambda s, part: torch.zeros_like(s.nll), whole=whole,
        bias=x["bias"], chunk=2,
    )  # fmt: skip
    assert out.loss.item() == 0
    assert out.loss.requires_grad
    out.loss.backward()
    for name in ("hidden", "weight", "bias"):
        gradient = x[name].grad
        assert gradient is not None, name
        assert not gradient.any()


def test_a_masked_token_of_probability_zero_makes_no_nan() -> None:
    x = inputs()
    target = int(x["targets"][3])
    bias = torch.zeros(V)
    bias[target] = -torch.inf
    weights = (x["targets"] != target).float()
    out = weighted_cross_entropy(x["hidden"], x["weight"], x["targets"], weights, bias=bias, chunk=4)
    assert out.statistics.nll[3] == torch.inf
    out.loss.backward()
    assert torch.isfinite(out.loss)
    assert x["hidden"].grad is not None
    assert torch.isfinite(x["hidden"].grad).all()


def test_frozen_output_embedding_gets_no_gradient() -> None:
    x = inputs()
    out = weighted_cross_entropy(x["hidden"], x["weight"].detach(), x["targets"], x["weights"], chunk=5)
    out.loss.backward()
    assert x["weight"].grad is None
    assert x["hidden"].grad is not None


def test_a_second_backward_pass_is_refused() -> None:
    x = inputs()
    loss = weighted_cross_entropy(x["hidden"], x["weight"], x["targets"], x["weights"]).loss
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="one backward pass"):
        loss.backward()


class _Largest(TorchDispatchMode):
    """The most values that a tensor made in this context has."""

    values = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.values = max(
            [self.values, *(x.numel() for x in torch.utils._pytree.tree_leaves(out) if isinstance(x, torch.Tensor))]
        )
        return out


@pytest.mark.parametrize("whole", [False, True])
def test_no_tensor_is_larger_than_a_chunk_of_logits(whole: bool) -> None:
    x = inputs()
    with _Largest() as largest:
        out = weighted_cross_entropy(
            x["hidden"], x["weight"], x["targets"], lambda s, part: s.probability, whole=whole, chunk=9,
            entropy_top20=True, ref_hidden=x["ref_hidden"], kl=x["kl"],
        )  # fmt: skip
        out.loss.backward()
    assert 9 * V > V * H
    assert largest.values == 9 * V
