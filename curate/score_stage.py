"""The stage that scores: rows of token ids in, the model's figures out as they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from curate.frames import Refused, each_row

if TYPE_CHECKING:
    from curate.score import TokenScores
    from curate.stages import Context

__all__ = ["score_rows"]

_COLUMNS: dict[str, pl.DataType] = {
    "logprob": pl.List(pl.Float16()), "entropy": pl.List(pl.Float16()), "rank": pl.List(pl.Int32()),
    "topk_ids": pl.List(pl.List(pl.Int32())), "topk_logprob": pl.List(pl.List(pl.Float16())),
    "entropy_top20": pl.List(pl.Float16()), "ref_logprob": pl.List(pl.Float16()),
}  # fmt: skip
_ALWAYS = ("logprob", "entropy", "rank")
_LOWEST = np.finfo(np.float16).min  # a probability below e^-65504 does not fit; no mask can tell it from that


def score_rows(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    """The stored values: float16, from which every mask and weight is computed.

    Scores that an earlier build of the folder has for the same ids are taken over.
    """
    schema = {name: _COLUMNS[name] for name in (*_ALWAYS, *context.config.extra_scores)}
    if context.config.skip_scoring:
        return each_row(frame, "score", [], lambda row: None, schema)
    open_rows = frame.filter(pl.col("reason").is_null())
    names, prompts = open_rows["sample_id"].to_list(), open_rows["prompt_tokens"].to_list()
    samples = list(zip(names, [x.to_numpy() for x in open_rows["input_ids"]], prompts, strict=True))
    scores = context.previous.find(samples) if context.previous else {}
    missing = [s for s in samples if s[0] not in scores]
    if missing:
        fresh = context.scorer.score([(ids, prompt) for _, ids, prompt in missing], context.done)
        scores.update(zip((s[0] for s in missing), fresh, strict=True))
    by_row = {row: scores[name] for row, name in zip(open_rows["row"].to_list(), names, strict=True)}

    def compute(row: dict[str, Any]) -> dict[str, pl.Series]:
        values = by_row[row["row"]]
        _check(values)
        return {name: _stored(getattr(values, name)) for name in schema}

    return each_row(frame, "score", [], compute, schema)


def _check(values: TokenScores) -> None:
    """Refuses figures that are no numbers; a token of the vocabulary that is impossible may stand among the top k."""
    own = (values.logprob, values.entropy, values.entropy_top20, values.ref_logprob)
    finite = all(np.isfinite(x).all() for x in own if x is not None)
    if not finite or (values.topk_logprob is not None and np.isnan(values.topk_logprob).any()):
        raise Refused("non_finite_score", "the model gives a probability that is no number")


def _stored(values: np.ndarray) -> pl.Series:
    """One value, or one list of k values, a token."""
    if values.dtype.kind == "f":
        values = values.clip(_LOWEST).astype(np.float16)
    flat = pl.Series(values.ravel())
    return flat if values.ndim == 1 else flat.reshape(values.shape).arr.to_list()
