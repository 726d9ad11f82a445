"""Prompts by their word n-grams: which share of what a task says, and no template says, stands in a text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator

__all__ = ["LEAST", "NGRAM", "ngrams", "words"]

NGRAM = 8
"""Words of an n-gram. Prompts of CUDA benchmarks hold 40 to 150 words, so the 13 of the general sets would leave a
prompt that was edited in three places with next to none; eight words in a row are still nobody's own phrase."""
LEAST = 6
"""N-grams that a task must have of its own to be matched; with fewer, a stock phrase would be all of it."""

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """Words in lower case: letters, digits and underscores, whatever stands between them."""
    return _WORD.findall(text.lower())


def ngrams(text: str, wanted: Collection[int] | None = None) -> Iterator[tuple[int, str]]:
    """(hash, words) of every n-gram of a text, of those in `wanted` alone if given. Linear in the text."""
    found = words(text)
    for start in range(len(found) - NGRAM + 1):
        gram = " ".join(found[start : start + NGRAM])
        value = int.from_bytes(hashlib.blake2b(gram.encode("utf-8", "replace"), digest_size=8).digest(), "little")
        if wanted is None or value in wanted:
            yield value, gram
