"""Peak memory and time of head and loss, forward and backward, against cross-entropy over full float32 logits.

Each measurement has a process of its own, so that no peak hides behind another's. The shape is that of a 0.5 B model:
2,048 response tokens, vocabulary 151,936, hidden size 896, float32 on two threads.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.figures import Figure

__all__ = ["measure"]

_ROOT = Path(__file__).parents[2]
_TOKENS, _VOCABULARY, _HIDDEN = 2048, 151_936, 896
_WAYS = {
    "full": "full float32 logits",
    "known": "cuset, weights known",
    "token": "cuset, weights of each token (dft)",
    "online": "cuset, weights of the whole sequence (online)",
}
_ROUNDS = 2  # the ways take turns, so that a disturbance meets them all; the faster round counts


def measure() -> list[Figure]:
    """Peak beyond what the process held with its inputs, and seconds, with the output embedding frozen (LoRA) and
    trained."""
    figures = []
    for trained in (False, True):
        found: dict[str, list[dict[str, float]]] = {way: [] for way in _WAYS}
        for _ in range(_ROUNDS):
            for way, results in found.items():
                command = [sys.executable, "-m", "tests.benchmarks.head", way, *(["trained"] if trained else [])]
                done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=_ROOT)
                results.append(json.loads(done.stdout))
        peak = {way: max(r["peak"] for r in results) for way, results in found.items()}
        seconds = {way: min(r["seconds"] for r in results) for way, results in found.items()}
        processor = {way: min(r["processor"] for r in results) for way, results in found.items()}
        kind = "trained" if trained else "frozen"
        for way, name in _WAYS.items():
            note = "" if way == "full" else f"1/{peak['full'] / peak[way]:.1f} of full logits"
            if trained and way != "full":
                note += f", {_VOCABULARY * _HIDDEN * 4 / 1e6:.0f} MB of it the embedding's gradient"
            figures.append(Figure(f"{name}, {kind} embedding: memory", peak[way], "MB", note))
        for way, name in _WAYS.items():
            ratios = seconds[way] / seconds["full"], processor[way] / processor["full"]
            note = "" if way == "full" else f"{ratios[0]:.2f} of full logits, {ratios[1]:.2f} by processor time"
            figures.append(Figure(f"{name}, {kind} embedding: time", seconds[way], "s", note))
    return figures


class _Peak:
    """The highest resident memory of this process, in MB, while the context lasts."""

    def __enter__(self) -> _Peak:
        self._done = threading.Event()
        self.before = self.value = _resident()
        self._watch = threading.Thread(target=self._look)
        self._watch.start()
        return self

    def _look(self) -> None:
        while not self._done.wait(0.002):
            self.value = max(self.value, _resident())

    def __exit__(self, *error: Any) -> None:
        self._done.set()
        self._watch.join()
        self.value = max(self.value, _resident())


def _resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def _run(way: str, trained: bool) -> dict[str, float]:
    import torch

    from train.cross_entropy import weighted_cross_entropy
    from train.objective_options import ObjectiveConfig
    from train.objectives import make_objective

    torch.set_num_threads(2)
    torch.manual_seed(0)
    weight = torch.empty(_VOCABULARY, _HIDDEN).normal_(std=0.02).requires_grad_(trained)
    hidden = torch.randn(_TOKENS, _HIDDEN, requires_grad=True)
    targets = torch.randint(0, _VOCABULARY, (_TOKENS,))
    batch = {
        "sample_index": torch.zeros(_TOKENS, dtype=torch.long), "sample_weight": torch.tensor([0.5]),
        "logprob": -5 * torch.rand(_TOKENS), "location": torch.randint(0, 5, (_TOKENS,), dtype=torch.uint8),
        "in_code": torch.ones(_TOKENS, dtype=torch.bool),
    }  # fmt: skip
    stored = make_objective(ObjectiveConfig())

    def step() -> None:
        if way == "full":
            logits = torch.nn.functional.linear(hidden, weight).float()
            nll = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
            del logits
            loss = (stored.weights(None, batch) * nll).sum()
        elif way == "known":
            loss = weighted_cross_entropy(hidden, weight, targets, stored.weights(None, batch)).loss
        else:
            objective = make_objective(ObjectiveConfig("dft" if way == "token" else "cuset", confidence="online"))
            loss = weighted_cross_entropy(
                hidden, weight, targets, lambda statistics, part: objective.weights(statistics, batch, part),
                whole=objective.reach == "sequence",
            ).loss  # fmt: skip
        (loss / _TOKENS).backward()

    (hidden[:64] @ weight.T).sum().backward()  # the libraries' own buffers are there
    hidden.grad = weight.grad = None
    with _Peak() as peak:
        began, processor = time.perf_counter(), time.process_time()
        step()
        seconds, processor = time.perf_counter() - began, time.process_time() - processor
    return {"peak": peak.value - peak.before, "seconds": seconds, "processor": processor}


if __name__ == "__main__":
    print(json.dumps(_run(sys.argv[1], "trained" in sys.argv[2:])))
