"""The lowest window of a dataset, which two figures look at."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from analysis.dataset import Dataset
from analysis.statistics import FINITE
from curate.store import ANALYSIS_WINDOW

__all__ = ["LowestWindow", "lowest_window"]


@dataclass(frozen=True)
class LowestWindow:
    """`start`: position of its first token in the response; `neutral_mean`: by statement labels, as in the paper."""

    sample_id: str
    start: int
    confidence: float
    neutral_mean: float


_FOUND: WeakKeyDictionary[Dataset, LowestWindow | None] = WeakKeyDictionary()


def lowest_window(dataset: Dataset) -> LowestWindow | None:
    """The full window of 64 code tokens of the lowest mean, the first of equal ones; None where there is none."""
    if dataset not in _FOUND:
        found = dataset.query(f"""
            SELECT sample_id, start, w.confidence,
                (SELECT avg(confidence) FROM tokens WHERE in_code AND NOT statement AND {FINITE}) AS neutral_mean
            FROM windows({ANALYSIS_WINDOW}) w WHERE NOT isnan(w.confidence)
            ORDER BY w.confidence, sample_id, start LIMIT 1
        """)
        _FOUND[dataset] = LowestWindow(**found.row(0, named=True)) if len(found) else None
    return _FOUND[dataset]
