"""Peak memory of scoring one sample of 4,096 tokens at a vocabulary of 152k, in a process of its own."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.benchmarks.figures import Figure

__all__ = ["VOCABULARY", "measure", "peak_of"]

_ROOT = Path(__file__).parents[2]
_TOKENS, VOCABULARY = 4096, 151_936


def measure() -> list[Figure]:
    """The peak beyond what the process held with the model loaded."""
    ours, full = peak_of("cuset"), peak_of("plain")
    return [
        Figure("cuset", ours, "MB", f"{_TOKENS} tokens, vocabulary {VOCABULARY}, model taken off"),
        Figure("plain loop, full logits", full, "MB"),
        Figure("plain over cuset", full / ours, "x"),
    ]


def peak_of(way: str, tokens: int = _TOKENS) -> float:
    """MB that scoring takes beyond the model, by `cuset` or by the `plain` loop, in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.memory", way, str(tokens)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=_ROOT)
    return float(json.loads(done.stdout))


def _peak() -> float:
    """Highest resident memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e6 / 1024)


class _Files:
    """A small model with a large vocabulary and random weights, in place of one from a folder."""

    name = "random"

    def load_model(self, dtype: Any, device: str) -> Any:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=4, max_position_embeddings=_TOKENS, tie_word_embeddings=True,
        )  # fmt: skip
        return LlamaForCausalLM(config).eval()


def _score(way: str, tokens: int) -> float:
    import numpy as np
    import torch

    from curate.config import BuildConfig
    from curate.score import ModelScorer
    from tests.benchmarks.scoring import _plain

    torch.set_num_threads(2)
    ids = np.random.default_rng(0).integers(0, VOCABULARY, tokens).astype(np.int32)
    files: Any = _Files()
    scorer = ModelScorer(files, BuildConfig(device="cpu", dtype="float32")) if way == "cuset" else None
    model = None if scorer else files.load_model(torch.float32, "cpu")
    before = _peak()
    if scorer is not None:
        scorer.score([(ids, 1)])
    else:
        _plain(model, (ids, 1))
    return _peak() - before


if __name__ == "__main__":
    print(json.dumps(_score(sys.argv[1], int(sys.argv[2]))))
