"""Copies of code: the same text, the same after renaming, or nearly the same; of each group the best row is kept."""

from __future__ import annotations

from curate.duplicates.fingerprint import Fingerprint, candidate_probability, fingerprint
from curate.duplicates.search import DUPLICATES, FINGERPRINT, THRESHOLD, find_duplicates
from curate.duplicates.similarity import similarity

__all__ = [
    "DUPLICATES",
    "FINGERPRINT",
    "THRESHOLD",
    "Fingerprint",
    "candidate_probability",
    "find_duplicates",
    "fingerprint",
    "similarity",
]
