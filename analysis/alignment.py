"""Tokens of two tokenizers on one text: on its characters, and on the words of its code.

A row holds `response`, `in_code`, `statement`, `category` (of the tokens of A), and `char_start_S`, `char_end_S`,
`logprob_S` for both sides S of "ab".
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.weights import confidence_mask

__all__ = ["CLASSES", "char_owner", "mask_sums", "word_logprob", "word_logprobs"]

CLASSES = {
    "all": "characters of the response",
    "code": "of its code",
    "statement": "of sensitive statements in code",
    "category": "of sensitive categories in code",
    "neutral": "of code outside both",
}
"""Class of characters -> what it holds, by the labels of the first dataset."""

_WORD = re.compile(r"[A-Za-z0-9_]+")


def char_owner(start: NDArray[np.integer], end: NDArray[np.integer], length: int) -> NDArray[np.int64]:
    """(length,): the first token that covers each character, -1 where none does (tokens of the template are -1, -1).
    Tokens that share a character, as parts of one of several bytes do, leave it to the first."""
    first, last = (np.clip(np.asarray(x, np.int64), 0, length) for x in (start, end))
    widths = np.maximum(last - first, 0)
    token = np.repeat(np.arange(len(first)), widths)
    before = np.repeat(np.cumsum(widths) - widths, widths)
    at = np.repeat(first, widths) + np.arange(len(token)) - before
    owner = np.full(length, len(first), dtype=np.int64)
    np.minimum.at(owner, at, token)
    owner[owner == len(first)] = -1
    return owner


def word_logprob(
    words: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64], logprob: NDArray[np.float16]
) -> NDArray[np.float64]:
    """(W,): sum over the tokens that touch each word of `words` (W, 2). Token ends and starts never fall; NaN where no
    token does, or one has no score."""
    real = np.flatnonzero(start >= 0)
    sums = np.concatenate([[0.0], np.cumsum(np.nan_to_num(logprob[real].astype(np.float64), nan=0, neginf=-65504))])
    bad = np.concatenate([[0], np.cumsum(np.isnan(logprob[real]))])
    first = np.searchsorted(end[real], words[:, 0], side="right")
    last = np.searchsorted(start[real], words[:, 1], side="left")
    there = (last > first) & (bad[np.maximum(last, first)] == bad[first])
    return np.where(there, sums[np.maximum(last, first)] - sums[first], np.nan)


def mask_sums(row: dict[str, Any], taus: tuple[float, float]) -> dict[str, NDArray[np.float64]]:
    """(characters, equal, kept by A, kept by B) of one sample, by class."""
    length = len(row["response"])
    owners = [char_owner(row[f"char_start_{s}"], row[f"char_end_{s}"], length) for s in "ab"]
    scores = [row[f"logprob_{s}"].astype(np.float16) for s in "ab"]
    there = (owners[0] >= 0) & (owners[1] >= 0)
    first, second = (owner[there] for owner in owners)
    scored = ~np.isnan(scores[0][first]) & ~np.isnan(scores[1][second])
    first, second = first[scored], second[scored]
    kept_a, kept_b = confidence_mask(scores[0], taus[0])[first], confidence_mask(scores[1], taus[1])[second]
    in_code, statement, sensitive = row["in_code"][first], row["statement"][first], row["category"][first] > 0
    classes = {
        "all": np.ones(len(first), bool), "code": in_code, "statement": in_code & statement,
        "category": in_code & sensitive, "neutral": in_code & ~statement & ~sensitive,
    }  # fmt: skip
    equal = kept_a == kept_b
    return {
        name: np.array([mask.sum(), (equal & mask).sum(), (kept_a & mask).sum(), (kept_b & mask).sum()], float)
        for name, mask in classes.items()
    }


def word_logprobs(row: dict[str, Any]) -> NDArray[np.float64]:
    """(W, 2): log-probability of each word of the code under A and B, where both have one."""
    owner = char_owner(row["char_start_a"], row["char_end_a"], len(row["response"]))
    code = np.concatenate([row["in_code"], [False]])[owner]
    spans = [(m.start(), m.end()) for m in _WORD.finditer(row["response"]) if code[m.end() - 1]]
    words = np.array(spans, np.int64).reshape(-1, 2)
    found = np.stack(
        [
            word_logprob(
                words, row[f"char_start_{s}"].astype(np.int64), row[f"char_end_{s}"].astype(np.int64),
                row[f"logprob_{s}"].astype(np.float16),
            )
            for s in "ab"
        ],
        axis=1,
    )  # fmt: skip
    return found[np.isfinite(found).all(axis=1)]
