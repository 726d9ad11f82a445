"""Scoring with the embedded model in float32 on two threads, against a plain loop and the machine's matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from curate.config import BuildConfig
from curate.extract import extract_cuda
from curate.model import locate_model
from curate.packed import PackedLinear, can_pack
from curate.score import ModelScorer, Sample
from curate.tokens import Encoder
from tests.benchmarks.figures import Figure, bundled_rows, timed

__all__ = ["measure"]

_EVERY = 10  # of the corpus: some 7,000 response tokens
_SIDE = 2048  # of the square matrices behind the machine's rate


def measure() -> list[Figure]:
    """Tokens are response tokens; both loops take the samples in turn, so that a disturbance meets both."""
    torch.set_num_threads(2)
    config = BuildConfig(device="cpu", dtype="float32")
    files = locate_model("embedded")
    encoder = Encoder(files.load_tokenizer(), "chat")
    samples = []
    for row in bundled_rows()[::_EVERY]:
        messages = [{"role": role, "content": content} for role, content in row.messages]
        sample = encoder.encode(messages, extract_cuda(row.response))
        samples.append((sample.input_ids, sample.prompt_tokens))
    scorer = ModelScorer(files, config)
    plain = files.load_model(torch.float32, "cpu")
    scorer.score(samples[:1])
    _plain(plain, samples[0])
    mkl, onednn = _rates()
    ours = theirs = apart = 0.0
    for sample in samples:
        seconds, (scores,) = timed(lambda sample=sample: scorer.score([sample]))
        ours += seconds
        seconds, expected = timed(lambda sample=sample: _plain(plain, sample))
        theirs += seconds
        apart = max(apart, float(np.abs(scores.logprob - expected[0].numpy()).max()))
    again = _rates()
    rate = max(mkl, onednn, *again)
    tokens = sum(len(ids) - prompt for ids, prompt in samples)
    flop = _flop(plain, samples)
    return [
        Figure("cuset", tokens / ours, "tokens/s", f"{len(samples)} samples, {tokens} response tokens"),
        Figure("plain loop, batch 1, full logits", tokens / theirs, "tokens/s"),
        Figure("cuset over plain", theirs / ours, "x", f"log-probabilities at most {apart:.1e} apart"),
        Figure("work", flop / tokens / 1e6, "MFLOP/token", "body and head, causal half of the attention"),
        Figure("matrix product, PyTorch", max(mkl, again[0]) / 1e9, "GFLOP/s", f"fp32, {_SIDE} x {_SIDE}, 2 threads"),
        Figure("matrix product, packed", max(onednn, again[1]) / 1e9, "GFLOP/s", "the same by oneDNN"),
        Figure("cuset, share of the faster", flop / ours / rate, "", f"{flop / ours / 1e9:.0f} GFLOP/s"),
        Figure("plain loop, share of the faster", flop / theirs / rate, "", f"{flop / theirs / 1e9:.0f} GFLOP/s"),
    ]


@torch.inference_mode()
def _plain(model: Any, sample: Sample) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-probability, entropy and rank as one writes them down first."""
    ids, prompt = torch.from_numpy(sample[0].astype(np.int64)), sample[1]
    logp = model(ids[None]).logits[0, prompt - 1 : -1].log_softmax(-1)
    own = logp.gather(1, ids[prompt:, None])
    return own[:, 0], -(logp.exp() * logp).sum(-1), (logp > own).sum(-1) + 1


def _flop(model: Any, samples: list[Sample]) -> float:
    """2 a body parameter and token, 2 a head parameter and response token, and the attention's two products."""
    head = model.get_output_embeddings().weight.numel()
    body = sum(p.numel() for p in model.parameters()) - model.get_input_embeddings().weight.numel()
    if model.get_output_embeddings().weight is not model.get_input_embeddings().weight:
        body -= head
    c = model.config
    width = c.num_hidden_layers * c.num_attention_heads * (c.hidden_size // c.num_attention_heads)
    return float(
        sum(2 * body * len(ids) + 2 * head * (len(ids) - prompt) + 2 * width * len(ids) ** 2 for ids, prompt in samples)
    )


@torch.inference_mode()
def _rates() -> tuple[float, float]:
    """FLOP a second of a float32 product of square matrices: PyTorch's own, and with packed weights (0: not there)."""
    x = torch.randn(_SIDE, _SIDE)
    linear = torch.nn.Linear(_SIDE, _SIDE, bias=False)
    works: list[Callable[[], Any]] = [lambda: linear(x)]
    if can_pack(torch.float32, torch.device("cpu")):
        packed = PackedLinear(linear)
        works.append(lambda: packed(x))
    best = [2 * _SIDE**3 / min(timed(work)[0] for _ in range(8)) for work in works]
    return best[0], best[1] if len(best) > 1 else 0.0
