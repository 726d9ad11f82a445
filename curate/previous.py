"""Scores of an earlier build of the same rows with the same model: found by sample, and used only for the same ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from curate.store import part_files, read_part

if TYPE_CHECKING:
    from curate.score import TokenScores

__all__ = ["PreviousScores"]

_WHOLE = frozenset({"rank", "topk_ids"})
_SCORES = ("logprob", "entropy", "rank")


class PreviousScores:
    """The parts of a folder as a source of scores; memory grows with the number of samples, not with their tokens."""

    def __init__(self, folder: Path, extra_scores: Sequence[str] = ()) -> None:
        self.scores = (*_SCORES, *extra_scores)
        self.part_of: dict[str, Path] = {}
        for part in part_files(folder):
            self.part_of.update(dict.fromkeys(read_part(part, columns=["sample_id"])["sample_id"], part))

    def find(self, samples: Sequence[tuple[str, np.ndarray, int]]) -> dict[str, TokenScores]:
        """Scores of those of the samples (sample_id, input_ids, prompt_tokens) that were scored with the same ids."""
        from curate.score import TokenScores

        wanted = {identity: (ids, prompt) for identity, ids, prompt in samples if identity in self.part_of}
        found = {}
        for part in sorted({self.part_of[identity] for identity in wanted}):
            columns = ["sample_id", "input_ids", "prompt_tokens", *self.scores]
            frame = read_part(part, columns=columns).filter(pl.col("sample_id").is_in(list(wanted)))
            for row in frame.iter_rows(named=True):
                ids, prompt = wanted[row["sample_id"]]
                same = row["prompt_tokens"] == prompt and row["input_ids"] == ids.tolist()
                if same and row["logprob"] is not None:
                    found[row["sample_id"]] = TokenScores(**{
                        name: np.array(row[name], np.int32 if name in _WHOLE else np.float32) for name in self.scores
                    })  # fmt: skip
        return found
