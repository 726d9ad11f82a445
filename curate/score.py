"""Scores of every response token under teacher forcing: log-probability, entropy, rank, and what is asked for beside.

Cost: 2 FLOP for each parameter of the body and token, 2 for each parameter of the head and response token, and the
attention. The head runs on response positions only, in chunks, with the softmax in float32, so that the logits of a
whole sample (4 GB at 4,096 tokens and a vocabulary of 152k) never exist at once.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float32, Int, Int32
from numpy import ndarray as Array
from torch import Tensor

from curate.causal import CausalModel
from curate.config import BuildConfig
from curate.devices import find_devices
from curate.errors import ModelError, OptionError
from curate.model import ModelFiles
from curate.packed import can_pack
from curate.reference import as_reference
from curate.statistics import TOP, entropy_of_top, most_probable, token_statistics

__all__ = ["ModelScorer", "Sample", "Scorer", "StubScorer", "TokenScores"]

log = logging.getLogger(__name__)

_GPU_BATCH_TOKENS = 16384

Sample = tuple[Int32[Array, "_"], int]
"""input_ids, prompt_tokens"""


@dataclass(frozen=True, eq=False)
class TokenScores:
    """Of the T response tokens: log-probability and entropy in nats, rank from 1 (the model's first choice).

    None where it was not asked for: the K most probable tokens, falling; the entropy in nats of the 20 most probable
    ones renormalised; the log-probability under the reference model.
    """

    logprob: Float32[Array, "T"]
    entropy: Float32[Array, "T"]
    rank: Int32[Array, "T"]
    topk_ids: Int32[Array, "T K"] | None = None
    topk_logprob: Float32[Array, "T K"] | None = None
    entropy_top20: Float32[Array, "T"] | None = None
    ref_logprob: Float32[Array, "T"] | None = None


Done = Callable[[int, int], None]


class Scorer(Protocol):
    """Scores samples; `done` is told samples and response tokens of each forward pass."""

    def identity(self) -> dict[str, object]:
        """What beside the model decides the figures."""

    def score(self, samples: Sequence[Sample], done: Done) -> list[TokenScores]:
        """The scores, in order of the samples."""


class ModelScorer:
    """Teacher-forced scoring with a `transformers` causal model, and a reference model beside it where one is given.

    Both stay in memory: shards are scored one by one, and loading two models for each would cost more than it saves.
    Raises ModelError, OptionError.
    """

    def __init__(self, files: ModelFiles, config: BuildConfig, reference: ModelFiles | None = None) -> None:
        self.config = config
        self.device = find_devices(config.device)[0]
        dtype = _dtype(config.dtype, self.device)
        on_gpu = self.device.type == "cuda"
        self.batch_tokens = config.batch_tokens or (_GPU_BATCH_TOKENS if on_gpu else 1)
        self.causal = CausalModel(files, dtype, self.device, config.max_length)
        if config.topk and config.topk > self.causal.vocabulary:
            raise OptionError(f"--topk {config.topk}: {files.name} has {self.causal.vocabulary} tokens")
        self.reference = None
        if reference is not None:
            with as_reference():
                self.reference = CausalModel(reference, dtype, self.device, config.max_length)

    @staticmethod
    def identity_of(config: BuildConfig) -> dict[str, object]:
        """What beside the model decides the figures: arithmetic, kind of device, and whose matrix product."""
        device = find_devices(config.device)[0]
        dtype = _dtype(config.dtype, device)
        products = "oneDNN, packed weights" if can_pack(dtype, device) else "PyTorch"
        return {"dtype": str(dtype).removeprefix("torch."), "device": device.type, "linear": products}

    def identity(self) -> dict[str, object]:
        return self.identity_of(self.config)

    def score(self, samples: Sequence[Sample], done: Done = lambda samples, tokens: None) -> list[TokenScores]:
        """Scores in order of the samples; batches are formed by length, so their make-up depends on the samples
        alone, and on the memory of a GPU where one does not fit."""
        highest = max((int(ids.max()) for ids, _ in samples), default=0)
        for model in (self.causal, *([self.reference] if self.reference else [])):
            if highest >= model.vocabulary:
                raise ModelError(
                    f"{model.name}: token id {highest}, but the model embeds {model.vocabulary}:"
                    " tokenizer and model do not belong together"
                )
        results: dict[int, TokenScores] = {}
        for batch in self._batches([len(ids) for ids, _ in samples]):
            results.update(zip(batch, self._scores([samples[i] for i in batch]), strict=True))
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

    def _scores(self, batch: Sequence[Sample]) -> list[TokenScores]:
        """The batch in one pass, or in two halves where it does not fit into the memory of the GPU, and so on."""
        try:
            return self._forward(batch)
        except torch.OutOfMemoryError as error:
            if len(batch) == 1:
                raise ModelError(
                    f"{self.causal.name}: a sample of {len(batch[0][0])} tokens does not fit into the memory of"
                    f" {self.device}; give --max-length {len(batch[0][0]) - 1} or less, or a smaller model"
                ) from error
        # Outside the handler: the error holds the tensors of the pass that failed.
        log.info("%d samples do not fit into the GPU at once: halved; a lower --batch-tokens avoids that", len(batch))
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        half = (len(batch) + 1) // 2
        return self._scores(batch[:half]) + self._scores(batch[half:])

    @torch.inference_mode()
    def _forward(self, batch: Sequence[Sample]) -> list[TokenScores]:
        """One pass over samples padded on the right: a causal model never looks at what follows a token."""
        longest = max(len(ids) for ids, _ in batch)
        ids = torch.zeros(len(batch), longest, dtype=torch.long)
        filled = torch.zeros_like(ids)
        for row, (tokens, _) in enumerate(batch):
            ids[row, : len(tokens)] = torch.from_numpy(tokens.astype(np.int64))
            filled[row, : len(tokens)] = 1
        ids = ids.to(self.device)
        mask = filled.to(self.device) if len(batch) > 1 else None
        # The token at j is predicted at j - 1: the shift happens here and nowhere else.
        at = [(row, j - 1) for row, (tokens, prompt) in enumerate(batch) for j in range(prompt, len(tokens))]
        rows, columns = torch.tensor(at, device=self.device).T
        target = ids[rows, columns + 1]
        values: dict[str, Array] = {}
        for part, logits in self.causal.logits(ids, mask, rows, columns):
            _put(values, part, len(target), self._figures(logits, target[part]))
        if self.reference is not None:
            for part, logits in self.reference.logits(ids, mask, rows, columns):
                logprob, _, _ = token_statistics(logits, target[part])
                _put(values, part, len(target), {"ref_logprob": logprob})
        cuts = np.cumsum([len(tokens) - prompt for tokens, prompt in batch])[:-1]
        split = {name: np.split(x, cuts) for name, x in values.items()}
        return [TokenScores(**{name: x[row] for name, x in split.items()}) for row in range(len(batch))]

    def _figures(self, logits: Float32[Tensor, "P V"], target: Int[Tensor, "P"]) -> Mapping[str, Tensor]:
        logprob, entropy, rank = token_statistics(logits, target)
        figures = {"logprob": logprob, "entropy": entropy, "rank": rank}
        most = max(self.config.topk or 0, min(TOP, self.causal.vocabulary) if self.config.entropy_top20 else 0)
        if most:
            ids, top = most_probable(logits, most)
            if self.config.topk:
                figures["topk_ids"] = ids[:, : self.config.topk].int()
                figures["topk_logprob"] = top[:, : self.config.topk]
            if self.config.entropy_top20:
                figures["entropy_top20"] = entropy_of_top(top[:, :TOP])
        return figures


def _put(values: dict[str, Array], part: slice, length: int, figures: Mapping[str, Tensor]) -> None:
    """Lays the figures of a chunk into arrays of the whole pass.

    Kept as tensors of their own, they would be cut out of the memory that the logits of the chunk have just left: the
    next chunk's no longer fit there, and the process grows by gigabytes.
    """
    for name, x in figures.items():
        own = x.cpu().numpy()
        if name not in values:
            values[name] = np.empty((length, *own.shape[1:]), own.dtype)
        values[name][part] = own


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]


class StubScorer:
    """Stands in for a model in tests and in measurements of everything else: figures drawn from a hash of the token
    ids."""

    def identity(self) -> dict[str, object]:
        return {"dtype": "stub", "device": "stub"}

    def score(self, samples: Sequence[Sample], done: Done = lambda samples, tokens: None) -> list[TokenScores]:
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
