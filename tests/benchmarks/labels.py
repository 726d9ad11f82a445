"""From the text of an answer to labels of tokens, on one core: extraction, parsing, queries, alignment."""

from __future__ import annotations

import numpy as np

from curate.align import paint, token_labels
from curate.extract import CodeBlock, extract_cuda
from curate.syntax import label
from tests.benchmarks.figures import Figure, bundled_rows, timed

__all__ = ["measure"]

_TOKEN = 3  # characters of a stand-in token; the tokenizer is measured with the model


def measure() -> list[Figure]:
    """Rates are of UTF-8 bytes of source; the long files are the corpus's kernels one after another."""
    blocks = [extract_cuda(row.response) for row in bundled_rows()]
    code = "\n".join(b.text for found in blocks for b in found) + "\n"
    _annotate(code[:20000])  # compiles the queries
    responses = [row.response for row in bundled_rows()]
    corpus, _ = timed(lambda: [_annotate(response) for response in responses])
    size = sum(len(r.encode()) for r in responses)
    half, whole = (_file(code, n) for n in (500_000, 1_000_000))
    small = min(timed(lambda: _annotate_code(half))[0] for _ in range(2))
    large = min(timed(lambda: _annotate_code(whole))[0] for _ in range(2))
    return [
        Figure(
            "bundled corpus", size / corpus / 1e6, "MB/s", f"{len(responses)} answers, {size / 1e3:.0f} kB, one core"
        ),
        Figure("one file of 0.5 MB", small, "s", f"{len(half) / small / 1e6:.2f} MB/s"),
        Figure("one file of 1 MB", large, "s", f"{len(whole) / large / 1e6:.2f} MB/s"),
        Figure("time at twice the size", large / small, "x", "2: linear"),
    ]


def _file(code: str, size: int) -> str:
    return (code * (size // len(code) + 1))[:size]


def _annotate(response: str) -> None:
    _label(response, list(extract_cuda(response)))


def _annotate_code(code: str) -> None:
    response = f"```cuda\n{code}\n```\n"
    blocks = list(extract_cuda(response))
    assert sum(len(b.text) for b in blocks) >= len(code), "the file was not taken for one block of code"
    _label(response, blocks)


def _label(response: str, blocks: list[CodeBlock]) -> None:
    chars = paint(len(response), [(b, label(b.text)) for b in blocks])
    starts = np.arange(0, len(response), _TOKEN, dtype=np.int32)
    token_labels(response, chars, starts, np.minimum(starts + _TOKEN, len(response)).astype(np.int32))
