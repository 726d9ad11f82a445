"""Confidence of every response token under teacher forcing: log-probability, entropy and rank of the true token.

Cost: 2 FLOP for each parameter of the body and token, 2 for each parameter of the head and response token, and the
attention. The head runs on response positions only, in chunks, with the softmax in float32, so that the logits of a
whole sample (4 GB at 4,096 tokens and a vocabulary of 152k) never exist at once.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, Int32
from numpy import ndarray as Array
from torch import Tensor

from curate.config import BuildConfig
from curate.errors import ModelError, OptionError
from curate.model import ModelFiles
from curate.packed import can_pack, pack_linear_layers

__all__ = ["ModelScorer", "Scorer", "StubScorer", "TokenScores", "token_statistics"]

log = logging.getLogger(__name__)

_CHUNK_VALUES = 1 << 23  # logits in memory at once: 32 MiB in float32
_GPU_BATCH_TOKENS = 16384


@dataclass(frozen=True, eq=False)
class TokenScores:
    """Of the T response tokens: log-probability and entropy in nats, rank from 1 (the model's first choice)."""

    logprob: Float32[Array, "T"]
    entropy: Float32[Array, "T"]
    rank: Int32[Array, "T"]


Done = Callable[[int, int], None]


class Scorer(Protocol):
    """Scores samples of (input_ids, prompt_tokens); `done` is told samples and response tokens of each forward pass."""

    def identity(self) -> dict[str, object]:
        """What beside the model decides the figures."""

    def score(self, samples: Sequence[tuple[Int32[Array, "_"], int]], done: Done) -> list[TokenScores]:
        """The scores, in order of the samples."""


def token_statistics(logits: Float[Tensor, "P V"], target: Int[Tensor, "P"]) -> tuple[Tensor, Tensor, Tensor]:
    """(log p, entropy, rank) of the targets, each (P,), from float32 logits; the logits are overwritten.

    Entropy is logsumexp(z) - sum p z. The rank counts the logits strictly above the target's, plus one.
    """
    own = logits.gather(1, target[:, None])
    rank = (logits > own).sum(dim=1, dtype=torch.int32) + 1
    lse = torch.logsumexp(logits, dim=1, keepdim=True)
    centred = logits.sub_(lse)
    entropy = -(centred.exp() * centred).sum(dim=1)
    if not torch.isfinite(entropy).all():  # a logit of -inf makes 0 * -inf
        entropy = -torch.where(centred == -torch.inf, 0.0, centred.exp() * centred).sum(dim=1)
    return (own - lse)[:, 0], entropy, rank


class ModelScorer:
    """Teacher-forced scoring with a `transformers` causal model.

    Raises ModelError, OptionError.
    """

    def __init__(self, files: ModelFiles, config: BuildConfig) -> None:
        self.config = config
        self.device = _device(config.device)
        self.dtype = _dtype(config.dtype, self.device)
        on_gpu = self.device.type == "cuda"
        self.batch_tokens = config.batch_tokens or (_GPU_BATCH_TOKENS if on_gpu else 1)
        self.model = files.load_model(self.dtype, str(self.device))
        limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        if limit and config.max_length > limit:
            raise OptionError(
                f"--max-length {config.max_length}: {files.name} has {limit} positions; give --max-length {limit}"
            )
        self.vocabulary = self.model.get_input_embeddings().num_embeddings
        self.name = files.name
        if can_pack(self.dtype, self.device):
            pack_linear_layers(self.model)
        self.head = self.model.get_output_embeddings()
        self.plain_head = self._head_is_plain()

    @staticmethod
    def identity_of(config: BuildConfig) -> dict[str, object]:
        """What beside the model decides the figures: arithmetic, kind of device, and whose matrix product."""
        device = _device(config.device)
        dtype = _dtype(config.dtype, device)
        products = "oneDNN, packed weights" if can_pack(dtype, device) else "PyTorch"
        return {"dtype": str(dtype).removeprefix("torch."), "device": device.type, "linear": products}

    def identity(self) -> dict[str, object]:
        return self.identity_of(self.config)

    @torch.inference_mode()
    def _head_is_plain(self) -> bool:
        """Whether logits are the output embedding of the body's last hidden state, and nothing else.

        Some models cap or scale their logits after the head. They are scored through their own forward pass, whose
        logits are right whatever it does, at the cost of memory. Raises ModelError for a model whose logits are no
        numbers, or where what follows a token moves its probability: that is not a causal model.
        """
        ids = torch.arange(8, device=self.device)[None] % self.vocabulary
        own = self.model(input_ids=ids, use_cache=False).logits.float()
        if not torch.isfinite(own).all():
            raise ModelError(f"{self.name}: the model's logits are no numbers; its weights are damaged")
        other = ids.clone()
        other[0, -1] = (ids[0, -1] + 1) % self.vocabulary
        moved = (self.model(input_ids=other, use_cache=False).logits.float() - own)[:, :-1].abs().max()
        if moved > (1e-4 if self.dtype == torch.float32 else 1e-2) * own.abs().max():
            raise ModelError(f"{self.name}: not a causal model: a later token changes the probability of earlier ones")
        if self.head is None or self.model.base_model is self.model:
            return False
        ours = self.head(self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state).float()
        return ours.shape == own.shape and torch.allclose(ours, own, rtol=1e-4, atol=1e-4 * float(own.abs().max()))

    def score(
        self, samples: Sequence[tuple[Int32[Array, "_"], int]], done: Done = lambda samples, tokens: None
    ) -> list[TokenScores]:
        """Scores in order of the samples; batches are formed by length, so their make-up depends on the samples
        alone."""
        highest = max((int(ids.max()) for ids, _ in samples), default=0)
        if highest >= self.vocabulary:
            raise ModelError(
                f"{self.name}: token id {highest}, but the model embeds {self.vocabulary}:"
                " tokenizer and model do not belong together"
            )
        results: dict[int, TokenScores] = {}
        for batch in self._batches([len(ids) for ids, _ in samples]):
            for index, scores in zip(batch, self._forward([samples[i] for i in batch]), strict=True):
                results[index] = scores
            done(len(batch), sum(len(results[i].logprob) for i in batch))
        return [results[i] for i in range(len(samples))]

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Longest first, as many of nearly equal length as the token budget holds: little padding."""
        batch: list[int] = []
        longest = 0
        for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
            if batch and (len(batch) + 1) * longest > self.batch_tokens:
                yield batch
                batch = []
            longest = lengths[i] if not batch else longest
            batch.append(i)
        if batch:
            yield batch

    @torch.inference_mode()
    def _forward(self, batch: Sequence[tuple[Int32[Array, "_"], int]]) -> list[TokenScores]:
        """One pass over samples padded on the right: a causal model never looks at what follows a token."""
        longest = max(len(ids) for ids, _ in batch)
        ids = torch.zeros(len(batch), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, (tokens, _) in enumerate(batch):
            ids[row, : len(tokens)] = torch.from_numpy(tokens.astype(np.int64))
            mask[row, : len(tokens)] = 1
        ids = ids.to(self.device)
        inputs = {"input_ids": ids, "use_cache": False}
        if len(batch) > 1:
            inputs["attention_mask"] = mask.to(self.device)
        states = self.model.base_model(**inputs).last_hidden_state if self.plain_head else self.model(**inputs).logits
        # The token at j is predicted at j - 1: the shift happens here and nowhere else.
        at = [(row, j - 1) for row, (tokens, prompt) in enumerate(batch) for j in range(prompt, len(tokens))]
        rows, columns = torch.tensor(at, device=self.device).T
        target = ids[rows, columns + 1]
        states = states[rows, columns]  # (P, hidden), or (P, V) from the model's own forward pass
        parts = []
        step = max(1, _CHUNK_VALUES // self.vocabulary)
        for first in range(0, len(target), step):
            chunk = states[first : first + step]
            logits = self.head(chunk).float() if self.plain_head else chunk.float()
            parts.append([x.cpu() for x in token_statistics(logits, target[first : first + step])])
        logprob, entropy, rank = (torch.cat(x).numpy() for x in zip(*parts, strict=True))
        cuts = np.cumsum([len(tokens) - prompt for tokens, prompt in batch])[:-1]
        return [
            TokenScores(*parts)
            for parts in zip(np.split(logprob, cuts), np.split(entropy, cuts), np.split(rank, cuts), strict=True)
        ]


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise OptionError(f"--device {name}: not a device; give auto, cpu, cuda or cuda:N") from error
    if device.type not in {"cpu", "cuda"}:
        raise OptionError(f"--device {name}: not supported; give auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise OptionError(f"--device {name}: PyTorch sees {torch.cuda.device_count()} GPUs here; give --device cpu")
    return device


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]


class StubScorer:
    """Stands in for a model in tests and in measurements of everything else: figures drawn from a hash of the token
    ids."""

    def identity(self) -> dict[str, object]:
        return {"dtype": "stub", "device": "stub"}

    def score(
        self, samples: Sequence[tuple[Int32[Array, "_"], int]], done: Done = lambda samples, tokens: None
    ) -> list[TokenScores]:
        results = []
        for ids, prompt in samples:
            seed = int.from_bytes(hashlib.sha256(ids.tobytes()).digest()[:8], "big")
            draw = np.random.default_rng(seed)
            length = len(ids) - prompt
            confidence = draw.beta(2.0, 0.6, length)
            logprob = np.log(np.maximum(confidence, 1e-9)).astype(np.float32)
            results.append(
                TokenScores(logprob, (-2 * logprob).astype(np.float32), (1 + (confidence < 0.5)).astype(np.int32))
            )
            done(1, length)
        return results
