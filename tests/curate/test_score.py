"""Scoring against a plain loop over the model's own logits, and what does not belong together."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from curate.config import BuildConfig
from curate.errors import ModelError, OptionError
from curate.model import locate_model
from curate.packed import can_pack, pack_linear_layers
from curate.score import ModelScorer
from curate.statistics import token_statistics


def plain_loop(model: Any, ids: np.ndarray, prompt: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-probability, entropy and rank from full logits, token by token."""
    with torch.inference_mode():
        logits = model(torch.from_numpy(ids.astype(np.int64))[None]).logits[0].double()
    logp = torch.log_softmax(logits, dim=-1)
    own, entropy, rank = [], [], []
    for j in range(prompt, len(ids)):
        row = logp[j - 1]
        own.append(float(row[ids[j]]))
        entropy.append(float(-(row.exp() * row).sum()))
        rank.append(1 + int((row > row[ids[j]]).sum()))
    return np.array(own), np.array(entropy), np.array(rank)


def samples(vocabulary: int, *lengths: int) -> list[tuple[np.ndarray, int]]:
    draw = np.random.default_rng(0)
    return [(draw.integers(3, vocabulary, n).astype(np.int32), max(1, n // 3)) for n in lengths]


@pytest.fixture(scope="module")
def scorer(model_folder: Path) -> ModelScorer:
    return ModelScorer(locate_model(str(model_folder)), BuildConfig())


@pytest.mark.parametrize("batch_tokens", [1, 200, 10_000])
def test_equals_a_plain_loop_whatever_the_batches(scorer: ModelScorer, batch_tokens: int) -> None:
    scorer.batch_tokens = batch_tokens
    batch = samples(scorer.causal.vocabulary, 40, 7, 120, 2, 120, 33)
    for (ids, prompt), scores in zip(batch, scorer.score(batch), strict=True):
        logprob, entropy, rank = plain_loop(scorer.causal.model, ids, prompt)
        np.testing.assert_allclose(scores.logprob, logprob, atol=1e-4)
        np.testing.assert_allclose(scores.entropy, entropy, atol=1e-4)
        assert scores.rank.tolist() == rank.tolist()


def test_chunks_of_the_head_do_not_show(scorer: ModelScorer, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = samples(scorer.causal.vocabulary, 50)
    whole = scorer.score(batch)[0]
    monkeypatch.setattr("curate.causal._CHUNK_VALUES", 3 * scorer.causal.vocabulary)
    np.testing.assert_allclose(scorer.score(batch)[0].logprob, whole.logprob, atol=1e-5)


def test_progress_counts_every_response_token(scorer: ModelScorer) -> None:
    seen: list[tuple[int, int]] = []
    batch = samples(scorer.causal.vocabulary, 30, 9, 14)
    scorer.score(batch, lambda rows, tokens: seen.append((rows, tokens)))
    assert sum(tokens for _, tokens in seen) == sum(len(ids) - prompt for ids, prompt in batch)
    assert sum(rows for rows, _ in seen) == 3


def test_statistics_of_planted_logits() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]))
    logprob, entropy, rank = token_statistics(logits, torch.tensor([1, 0]))
    assert logprob.exp().tolist() == pytest.approx([0.25, 0.1])
    assert entropy.tolist() == pytest.approx(
        [1.5 * np.log(2), -(0.1 * np.log(0.1) + 0.2 * np.log(0.2) + 0.7 * np.log(0.7))]
    )
    assert rank.tolist() == [2, 3]


def test_a_logit_of_minus_infinity_has_no_share_in_the_entropy() -> None:
    _, entropy, _ = token_statistics(torch.tensor([[0.0, 0.0, -torch.inf]]), torch.tensor([0]))
    assert entropy.item() == pytest.approx(np.log(2))


def test_a_model_that_caps_its_logits_is_scored_by_its_own_forward_pass(tmp_path: Path, tokenizer: Any) -> None:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    torch.manual_seed(1)
    config = Gemma2Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, final_logit_softcapping=0.05,
    )  # fmt: skip
    Gemma2ForCausalLM(config).save_pretrained(tmp_path / "gemma")
    scorer = ModelScorer(locate_model(str(tmp_path / "gemma")), BuildConfig())
    assert not scorer.causal.plain_head
    (ids, prompt), *_ = batch = samples(scorer.causal.vocabulary, 24)
    np.testing.assert_allclose(
        scorer.score(batch)[0].logprob, plain_loop(scorer.causal.model, ids, prompt)[0], atol=1e-4
    )


def test_ids_beyond_the_models_vocabulary_are_refused(scorer: ModelScorer) -> None:
    with pytest.raises(ModelError, match="do not belong together"):
        scorer.score([(np.array([1, 2, scorer.causal.vocabulary], np.int32), 1)])


def test_a_length_beyond_the_models_positions_is_refused(model_folder: Path) -> None:
    with pytest.raises(OptionError, match="give --max-length 8192"):
        ModelScorer(locate_model(str(model_folder)), BuildConfig(max_length=8193))


@pytest.mark.parametrize("device", ["cuda:99", "quantum", "meta"])
def test_a_device_that_is_not_there_is_refused(model_folder: Path, device: str) -> None:
    with pytest.raises(OptionError, match=f"--device {device}"):
        ModelScorer(locate_model(str(model_folder)), BuildConfig(device=device))


def test_a_model_that_sees_what_follows_is_refused(tmp_path: Path) -> None:
    from transformers import BertConfig, BertLMHeadModel

    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    BertLMHeadModel(BertConfig(vocab_size=300, is_decoder=False, **size)).save_pretrained(tmp_path / "bert")
    with pytest.raises(ModelError, match="not a causal model"):
        ModelScorer(locate_model(str(tmp_path / "bert")), BuildConfig(max_length=256))


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, model_folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(model_folder, tmp_path / "model")
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    next(iter(tensors.values())).fill_(torch.nan)
    save_file(tensors, tmp_path / "model" / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match="no numbers"):
        ModelScorer(locate_model(str(tmp_path / "model")), BuildConfig())


def test_packed_weights_give_the_plain_products() -> None:
    if not can_pack(torch.float32, torch.device("cpu")):
        pytest.skip("this PyTorch has no oneDNN")
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(40, 24), torch.nn.ReLU(), torch.nn.Linear(24, 7, bias=False))
    packed = torch.nn.Sequential(*(type(m)() if isinstance(m, torch.nn.ReLU) else m for m in plain))
    x = torch.randn(3, 5, 40)
    with torch.inference_mode():
        expected = plain(x)
        assert pack_linear_layers(packed) == 2
        torch.testing.assert_close(packed(x), expected, rtol=1e-5, atol=1e-5)


def test_memory_never_holds_the_logits_of_a_sample() -> None:
    """Chunks that leave their memory in pieces once took twice what the whole takes."""
    from tests.benchmarks.memory import VOCABULARY, peak_of

    tokens = 1000
    assert peak_of("cuset", tokens) < tokens * VOCABULARY * 4 / 1e6
