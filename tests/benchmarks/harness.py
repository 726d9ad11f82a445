"""Scoring against `HFLM` of lm-evaluation-harness: same model, token ids, float32 and two threads, in one run."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import numpy as np
import torch

from curate.config import BuildConfig
from curate.extract import extract_cuda
from curate.model import locate_model
from curate.score import ModelScorer
from curate.tokens import Encoder
from tests.benchmarks.figures import Figure, bundled_rows, timed

__all__ = ["measure"]

_EVERY = 10  # of the corpus: some 7,000 response tokens


def measure() -> list[Figure]:
    """Response tokens a second; the two take the samples in turn, and who begins changes.

    `HFLM.loglikelihood` cuts a text anew (it encodes context and answer as one text, cuts that by the length of the
    context's own encoding, and moves trailing white space of the context into the answer), so that it is given our
    ids through `_loglikelihood_tokens`, the method behind it. Both batch one sample, its default and ours on a CPU. It
    computes the sum of an answer's log-probabilities and whether all are the model's first choice; we every token's
    log-probability, entropy and rank.
    """
    try:
        release = version("lm_eval")
    except PackageNotFoundError:
        return [Figure("lm-evaluation-harness", float("nan"), "", "not installed: pip install -e .[bench]")]
    from lm_eval.models.huggingface import HFLM

    torch.set_num_threads(2)
    files = locate_model("embedded")
    tokenizer = files.load_tokenizer()
    encoder = Encoder(tokenizer, "chat")
    rows = bundled_rows()[::_EVERY]
    encoded = [
        encoder.encode([{"role": a, "content": b} for a, b in row.messages], extract_cuda(row.response)) for row in rows
    ]
    samples = [(x.input_ids, x.prompt_tokens) for x in encoded]
    scorer = ModelScorer(files, BuildConfig(device="cpu", dtype="float32"))
    harness = HFLM(pretrained=files.load_model(torch.float32, "cpu"), tokenizer=tokenizer, batch_size=1, device="cpu")

    def theirs(ids: np.ndarray, prompt: int) -> tuple[float, bool]:
        request = (("", ""), ids[:prompt].tolist(), ids[prompt:].tolist())
        return harness._loglikelihood_tokens([request], disable_tqdm=True)[0]

    scorer.score(samples[:1])
    theirs(*samples[0])
    ours_s = theirs_s = apart = 0.0
    same_greedy = 0
    for n, sample in enumerate(samples):
        for way in ("ours", "theirs")[:: 1 if n % 2 else -1]:
            if way == "ours":
                seconds, (scores,) = timed(lambda sample=sample: scorer.score([sample]))
                ours_s += seconds
            else:
                seconds, (total, greedy) = timed(lambda sample=sample: theirs(*sample))
                theirs_s += seconds
        own = float(scores.logprob.astype(np.float64).sum())
        apart = max(apart, abs(own - total) / abs(total))
        same_greedy += bool((scores.rank == 1).all()) == greedy
    assert apart < 1e-4, f"summed log-likelihoods differ by {apart:.1e} of their size"
    tokens = sum(len(ids) - prompt for ids, prompt in samples)
    agree = f"sums at most {apart:.1e} of their size apart, greedy the same for {same_greedy} of {len(samples)}"
    return [
        Figure("cuset", tokens / ours_s, "tokens/s", f"{len(samples)} samples, {tokens} response tokens"),
        Figure("lm-evaluation-harness", tokens / theirs_s, "tokens/s", f"{release}, HFLM, the same ids"),
        Figure("cuset over harness", theirs_s / ours_s, "x", agree),
    ]
