"""From the text of an answer to labels of tokens, on one core: extraction, parsing, queries, alignment."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int32
from numpy import ndarray as Array
from tree_sitter import Parser

from curate.align import paint, token_labels
from curate.extract import extract_cuda
from curate.model import EMBEDDED, locate_model
from curate.syntax import label
from curate.syntax.parse import language
from tests.benchmarks.figures import Figure, bundled_rows

__all__ = ["measure"]

_REPEATS = 7  # passes over all answers; of each answer the fastest counts, since who shares the core slows some of them


def measure() -> list[Figure]:
    """Rates are of UTF-8 bytes of the answers; the long files are the corpus's kernels one after another."""
    responses = [row.response for row in bundled_rows()]
    code = "\n".join(b.text for response in responses for b in extract_cuda(response)) + "\n"
    label(code[:20000])  # compiles the queries
    corpus, _ = _of("bundled corpus", responses)
    half, half_seconds = _of("one file of 0.5 MB", [_file(code, 500_000)])
    whole, whole_seconds = _of("one file of 1 MB", [_file(code, 1_000_000)])
    growth = Figure("time at twice the size", whole_seconds / half_seconds, "x", "2: linear")
    return [*corpus, *half, *whole, growth]


def _of(what: str, responses: Sequence[str]) -> tuple[list[Figure], float]:
    """The figures of some answers, and the seconds from their text to labels of tokens."""
    blocks = [extract_cuda(response) for response in responses]
    codes = [b.text for found in blocks for b in found]
    assert sum(map(len, codes)) > 0.5 * sum(map(len, responses)), "most of the text was not taken for code"
    parser, tokenizer = Parser(language()), locate_model(EMBEDDED).load_tokenizer()
    megabytes = sum(len(r.encode()) for r in responses) / 1e6

    def tokens(response: str) -> Any:
        return tokenizer(response, return_offsets_mapping=True, add_special_tokens=False, verbose=False)

    offsets = [np.array(tokens(response)["offset_mapping"], np.int32) for response in responses]
    whole = _fastest(_annotate, responses, offsets)
    parts = {
        "labels of characters alone": _fastest(label, codes),
        "a plain tree-sitter parse": _fastest(lambda code: parser.parse(code.encode()), codes),
        "the tokenizer, for comparison": _fastest(tokens, responses),
    }
    figures = [
        Figure(
            what, megabytes / whole, "MB/s a core", f"text to labels of tokens, {megabytes:.2f} MB, {whole:.2f} CPU s"
        )
    ]
    figures += [Figure(f"  {part}", megabytes / seconds, "MB/s a core") for part, seconds in parts.items()]
    figures.append(Figure("  whole over plain parse", whole / parts["a plain tree-sitter parse"], "x"))
    return figures, whole


def _fastest(work: Callable[..., object], *arguments: Sequence[Any]) -> float:
    """CPU seconds of the work on all of them, so that a rate is one of a core, whoever else uses the machine."""
    calls = list(zip(*arguments, strict=True))
    seconds = np.full((_REPEATS, len(calls)), np.inf)
    for repeat in seconds:
        for n, given in enumerate(calls):
            began = time.process_time()
            work(*given)
            repeat[n] = time.process_time() - began
    return float(seconds.min(axis=0).sum())


def _file(code: str, size: int) -> str:
    return f"```cuda\n{(code * (size // len(code) + 1))[:size]}\n```\n"


def _annotate(response: str, offsets: Int32[Array, "T 2"]) -> None:
    blocks = extract_cuda(response)
    chars = paint(len(response), [(b, label(b.text)) for b in blocks])
    token_labels(response, chars, offsets[:, 0], offsets[:, 1])
