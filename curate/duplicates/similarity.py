"""The Jaccard similarity of two sketches."""

from __future__ import annotations

import numpy as np
from jaxtyping import UInt32
from numpy import ndarray as Array

from curate.duplicates.fingerprint import SKETCH, Fingerprint
from curate.duplicates.operations import other_operations

__all__ = ["jaccard", "similarity"]


def jaccard(one: UInt32[Array, "n"], other: UInt32[Array, "m"]) -> float:
    """|A and B| / |A or B| of two sets of hashes, each sorted and distinct, the `SKETCH` smallest of them.

    Exact while both sets are kept whole; else an estimate over the `SKETCH` smallest of the union (bottom-k), with a
    standard error below sqrt(s (1 - s) / 512), 0.018 at s = 0.8. 1 for two empty sets.
    """
    if not len(one) or not len(other):
        return float(len(one) == len(other))
    both = np.concatenate([one, other])
    both.sort(kind="stable")
    same = both[1:] == both[:-1]
    shared = int(np.count_nonzero(same))
    union = len(both) - shared
    if union > SKETCH and SKETCH in (len(one), len(other)):
        first = np.concatenate([[True], ~same])  # the first of each value
        limit = int(np.flatnonzero(first)[SKETCH - 1])  # where the last value that counts begins
        shared, union = int(np.count_nonzero(same[: limit + 1])), SKETCH
    return shared / union


def similarity(one: Fingerprint, other: Fingerprint) -> float:
    """min(Jaccard of the device code, Jaccard of the whole); 0 where the device code computes something else.

    Of two kernels with the same host code around them the first is small, of the same kernel in two programs the
    second.
    """
    if one.shape_hash == other.shape_hash:
        return 1.0
    if other_operations(one.profile, other.profile):
        return 0.0
    return min(
        jaccard(np.frombuffer(a, "<u4"), np.frombuffer(b, "<u4"))
        for a, b in ((one.device, other.device), (one.whole, other.whole))
    )
