"""What the tests of the viewer share: rows with hostile and odd texts, a scorer with alternatives, and what Python
computes from the stored columns."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
from conftest import fenced, kernel, pair

from analysis.dataset import Dataset
from curate.score import StubScorer, TokenScores
from curate.weights import confidence_mask, cuda_mask

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HOSTILE = "</script><img src=x onerror='window.owned=1'><!--<script>\u202e&amp;"
EMOJI = "// 🚀🚀 naïve 漢字\n"
KNOBS = [(0.1, 1.0, 256), (0.0, 0.0, 1), (0.37, 0.5, 7), (0.5, 4.0, 64), (0.905, 1.3, 32), (1.0, 2.0, 1024)]


class Alternatives(StubScorer):
    """Figures with the two most probable tokens: the token itself, then id 5; one token has probability 0."""

    def score(self, samples: Sequence[Any], done: Any = lambda *a: None) -> list[TokenScores]:
        scores = []
        for (ids, prompt), plain in zip(samples, super().score(samples, done), strict=True):
            own = ids[prompt:].astype(np.int32)
            plain.logprob[3], plain.logprob[5] = -1e5, np.log(0.5)
            top = np.stack([own, np.full_like(own, 5)], axis=1)
            values = np.stack([plain.logprob, plain.logprob - 1], axis=1)
            scores.append(dataclasses.replace(plain, topk_ids=top, topk_logprob=values))
        return scores


def rows() -> list[dict[str, Any]]:
    helper = "__device__ float twice(float x) { return 2.f * x; }\n"
    return [
        pair(1, code=EMOJI + kernel(1), id="first"),
        {"id": HOSTILE, "prompt": HOSTILE, "response": f"{HOSTILE}\n" + fenced(f"// {HOSTILE}\n" + helper + kernel(2))},
        pair(3, code=kernel(3) + kernel(4), id="third"),
    ]


def stored(dataset: Dataset) -> list[dict[str, Any]]:
    found = dataset.query("SELECT * FROM samples").to_dicts()
    for row in found:
        row["half"] = np.asarray(row["logprob"], np.float32).astype(np.float16)
        row["location"], row["in_code"] = np.asarray(row["location"], np.uint8), np.asarray(row["in_code"], bool)
    return found


def counts(page: Any) -> list[int]:
    return [int(x) for x in page.locator("#counts td:nth-child(2)").all_text_contents()]


def expected_counts(row: dict[str, Any], tau: float) -> list[int]:
    sure = confidence_mask(row["half"], tau)
    cuda = cuda_mask(row["location"], launch_scope="setup", device_functions=True)
    return np.bincount(sure + 2 * cuda, minlength=4).tolist()
