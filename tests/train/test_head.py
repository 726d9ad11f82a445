"""The loss inside a model's forward: the model's own loss and gradients, one shift, adapters, logits that are changed."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.nn import functional as F
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)  # fmt: skip

from curate.errors import ModelError, OptionError
from train.head import attach_head, check_head
from train.objective_options import ObjectiveConfig
from train.objectives import OBJECTIVES, make_objective

# peft asks transformers by an old name.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")

LENGTH, PROMPT, VOCABULARY = 33, 8, 120
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip


def llama(**more: Any) -> Any:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, **more)).train()


def batch() -> dict[str, torch.Tensor]:
    """One sample whose first PROMPT tokens are its prompt."""
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(3, VOCABULARY, (1, LENGTH), generator=draw)
    at = torch.arange(PROMPT - 1, LENGTH - 1)
    return {
        "input_ids": ids, "position_ids": torch.arange(LENGTH)[None], "logit_index": at, "targets": ids[0, at + 1],
        "sample_index": torch.zeros(len(at), dtype=torch.long), "sample_weight": torch.tensor([0.6]),
        "logprob": -3 * torch.rand(len(at), generator=draw), "in_code": torch.ones(len(at), dtype=torch.bool),
        "location": torch.randint(0, 5, (len(at),), generator=draw, dtype=torch.uint8),
    }  # fmt: skip


def attached(model: Any, *, chunk: int | None = None, **options: Any) -> Any:
    attach_head(model, make_objective(ObjectiveConfig(**options), mean_sample_weight=0.5), chunk=chunk)
    return model


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def own_loss(model: Any, items: int) -> torch.Tensor:
    """The model's own loss of the response tokens, over `items`."""
    b = batch()
    out = model(
        input_ids=b["input_ids"], position_ids=b["position_ids"], use_cache=False, logits_to_keep=b["logit_index"],
        labels=b["targets"][None], shift_labels=b["targets"][None], num_items_in_batch=items,
    )  # fmt: skip
    return out.loss


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_weight_one_gives_the_models_own_gradients_to_the_bit(tied: bool) -> None:
    """With one chunk, over a power of two, by which a division loses no bit; the loss is a sum in another order."""
    model = llama(tie_word_embeddings=tied)
    ours = attached(copy.deepcopy(model), objective="sft")
    expected = own_loss(model, 32)
    expected.backward()
    loss = ours(**batch())["loss"] / 32
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=3e-7)
    theirs = gradients(model)
    assert theirs
    assert gradients(ours).keys() == theirs.keys()
    for name, gradient in gradients(ours).items():
        assert torch.equal(gradient, theirs[name]), name


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("chunk", [1, 7])
def test_weight_one_in_chunks_gives_the_models_own_gradients(tied: bool, chunk: int) -> None:
    """Against plain labels of the whole row: loss and gradients to 1e-6 of the gradient's length, for each parameter."""
    model = llama(tie_word_embeddings=tied)
    ours = attached(copy.deepcopy(model), objective="sft", chunk=chunk)
    b = batch()
    labels = b["input_ids"].clone()
    labels[:, :PROMPT] = -100
    expected = model(input_ids=b["input_ids"], labels=labels).loss
    expected.backward()
    loss = ours(**b)["loss"] / len(b["targets"])
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    for name, gradient in gradients(model).items():
        error = (gradients(ours)[name] - gradient).norm() / gradient.norm()
        assert error < 1e-6, f"{name}: {error}"


class _OneToken:
    """An objective that gives one response token a weight, and no other."""

    known, reach, kl, needs_entropy = True, "stored", 0.0, False

    def __init__(self, token: int) -> None:
        self.token = token

    def weights(self, statistics: Any, batch: Any, part: slice = slice(None)) -> torch.Tensor:
        return F.one_hot(torch.tensor(self.token), LENGTH - PROMPT).float()

    def scale(self, batch: Any) -> None:
        return None


@pytest.mark.parametrize("token", [0, 5, LENGTH - PROMPT - 1], ids=["first of the response", "within", "end of turn"])
def test_a_single_weighted_token_moves_only_the_logit_before_it(token: int) -> None:
    model = llama()
    attach_head(model, _OneToken(token))  # type: ignore[arg-type]
    states: list[torch.Tensor] = []
    model.base_model.register_forward_hook(lambda module, inputs, output: states.append(output[0]))
    out = model(**batch())
    (gradient,) = torch.autograd.grad(out["loss"], states[0], retain_graph=False)
    moved = gradient[0].abs().sum(1).nonzero()[:, 0].tolist()
    assert moved == [PROMPT + token - 1]
    logits = model.lm_head(states[0].detach())[0, PROMPT + token - 1]
    nll = F.cross_entropy(logits, batch()["input_ids"][0, PROMPT + token])
    assert out["loss"].item() == pytest.approx(nll.item(), rel=1e-6)


@pytest.mark.parametrize("confidence", ["precomputed", "online"])
def test_an_all_masked_batch_gives_a_zero_loss_that_is_connected(confidence: str) -> None:
    """Every parameter has a gradient, as data-parallel training needs, and all are zero."""
    model = attached(llama(tie_word_embeddings=False), mask="conf", tau=0.999999, confidence=confidence)
    out = model(**{**batch(), "logprob": torch.full((LENGTH - PROMPT,), -9.0)})
    assert out["loss"].item() == 0
    assert out["nll"].min() > 0
    out["loss"].backward()
    assert gradients(model).keys() == dict(model.named_parameters()).keys()
    assert not any(g.any() for g in gradients(model).values())


def test_a_batch_without_response_tokens_is_connected_too() -> None:
    model = attached(llama(tie_word_embeddings=False), objective="sft")
    b = batch()
    short = {name: x[:0] for name, x in b.items() if len(x) == LENGTH - PROMPT}
    model(**{**b, **short})["loss"].backward()
    assert gradients(model).keys() == dict(model.named_parameters()).keys()


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
@pytest.mark.parametrize("chunk", [None, 4])
def test_the_loss_is_the_weighted_sum_of_the_nll_and_its_gradient_that_of_detached_weights(
    name: Any, chunk: int | None
) -> None:
    """Each objective, online, against full logits under autograd."""
    adapter = LoraConfig(target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    torch.manual_seed(3)
    plain = get_peft_model(llama(), copy.deepcopy(adapter))
    ours = copy.deepcopy(plain)
    attach_head(
        ours.base_model.model,
        objective := make_objective(ObjectiveConfig(name, confidence="online", window=6)),
        chunk=chunk,
    )
    b = batch()
    out = ours(**b)
    out["loss"].backward()

    def logprobs() -> torch.Tensor:
        return plain(input_ids=b["input_ids"], use_cache=False).logits[0, b["logit_index"]].log_softmax(1)

    logp = logprobs()
    nll = -logp.gather(1, b["targets"][:, None])[:, 0]
    loss = (out["weights"] * nll).sum()
    if name == "asft":
        with plain.disable_adapter(), torch.no_grad():
            logq = logprobs()
        kl = (logq.exp() * (logq - logp)).sum(1)
        assert kl.min() > 0
        torch.testing.assert_close(out["kl"], kl.detach(), rtol=1e-4, atol=1e-7)
        loss = loss + objective.kl * kl.sum()
    loss.backward()
    torch.testing.assert_close(out["nll"], nll.detach())
    assert out["loss"].item() == pytest.approx(loss.item(), rel=1e-5)
    theirs = gradients(plain)
    assert gradients(ours).keys() == theirs.keys()
    for key, gradient in gradients(ours).items():
        torch.testing.assert_close(gradient, theirs[key], rtol=0, atol=1e-5 * float(theirs[key].abs().max()), msg=key)


def test_the_adapter_is_on_again_after_the_reference_has_run() -> None:
    model = get_peft_model(attached(llama(), objective="asft"), LoraConfig(target_modules=["down_proj"]))
    before = {name: p.requires_grad for name, p in model.named_parameters()}
    first = model(**batch())
    assert first["kl"].abs().max() < 1e-6  # a fresh adapter changes nothing
    assert {name: p.requires_grad for name, p in model.named_parameters()} == before
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.normal_()
    assert model(**batch())["kl"].min() > 1e-5


def test_asft_without_an_adapter_is_refused() -> None:
    with pytest.raises(OptionError, match="full tuning has none; train with LoRA"):
        attached(llama(), objective="asft")(**batch())


@pytest.mark.parametrize(
    "options", [{"target_modules": ["q_proj", "lm_head"]}, {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}],
    ids=["target", "saved"],
)  # fmt: skip
def test_an_adapter_on_the_head_is_refused(options: dict[str, Any]) -> None:
    model = get_peft_model(attached(llama(tie_word_embeddings=False), objective="sft"), LoraConfig(**options))
    for use in (lambda: check_head(model), lambda: model(**batch())):
        with pytest.raises(OptionError, match="adapter on the output embedding"):
            use()


@pytest.mark.parametrize(
    ("config", "kind", "options"),
    [
        (Gemma2Config, Gemma2ForCausalLM, {"final_logit_softcapping": 0.5}),
        (GraniteConfig, GraniteForCausalLM, {"logits_scaling": 0.25}),
        (CohereConfig, CohereForCausalLM, {"logit_scale": 4.0}),
    ],
    ids=["soft cap", "divided", "multiplied"],
)
def test_what_a_model_does_to_its_logits_is_done_here_too(config: Any, kind: Any, options: dict[str, float]) -> None:
    torch.manual_seed(0)
    model = kind(config(**SIZES, **options)).train()
    ours = attached(copy.deepcopy(model), objective="sft", chunk=4)
    own_loss(model, 1).backward()
    ours(**batch())["loss"].backward()
    for name, gradient in gradients(model).items():
        error = (gradients(ours)[name] - gradient).norm() / gradient.norm()
        assert error < 3e-6, f"{name}: {error}"


def test_logits_changed_in_an_unknown_way_are_refused_by_name() -> None:
    class ShiftingForCausalLM(LlamaForCausalLM):
        def forward(self, *arguments: Any, **more: Any) -> Any:
            out = super().forward(*arguments, **more)
            out.logits = out.logits + torch.arange(VOCABULARY) / VOCABULARY
            return out

    with pytest.raises(ModelError, match="ShiftingForCausalLM: its logits are more than"):
        attached(ShiftingForCausalLM(LlamaConfig(**SIZES)), objective="sft")


def test_without_targets_it_is_the_models_own_forward() -> None:
    model, ids = llama().eval(), batch()["input_ids"][:, :5]
    expected = model(input_ids=ids).logits
    text = model.generate(ids, max_new_tokens=4, do_sample=False)
    ours = attached(copy.deepcopy(model), objective="sft")
    assert torch.equal(ours(input_ids=ids).logits, expected)
    assert torch.equal(ours.generate(ids, max_new_tokens=4, do_sample=False), text)


def test_evaluation_gives_the_loss_of_training_without_a_graph() -> None:
    model = attached(llama(), confidence="online", window=5, chunk=4)
    trained = model(**batch())
    with torch.no_grad():
        judged = model(**batch())
    assert not judged["loss"].requires_grad
    assert torch.equal(judged["loss"], trained["loss"].detach())
    assert torch.equal(judged["weights"], trained["weights"])


def test_gradient_checkpointing_gives_the_same_gradients() -> None:
    model = llama()
    kept, again = attached(copy.deepcopy(model)), attached(copy.deepcopy(model))
    again.activation_checkpointing_enable({"use_reentrant": False})
    for one in (kept, again):
        one(**batch())["loss"].backward()
    for name, gradient in gradients(kept).items():
        torch.testing.assert_close(gradients(again)[name], gradient, rtol=1e-6, atol=1e-8)


def test_a_bf16_model_has_float32_figures() -> None:
    model = attached(llama().bfloat16())
    out = model(**batch())
    assert {out[name].dtype for name in ("loss", "nll", "probability", "weights")} == {torch.float32}
    out["loss"].backward()
    assert {g.dtype for g in gradients(model).values()} == {torch.bfloat16}


def test_a_model_on_no_device_is_attached_without_a_look_at_its_logits() -> None:
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**SIZES))
    attached(model)
    assert "targets" in inspect.signature(model.forward, follow_wrapped=False).parameters
    assert {p.device.type for p in model.parameters()} == {"meta"}
