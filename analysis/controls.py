"""The controls of the paper's first claim: is the gap in confidence still there on tokens that are not trivially sure?

One pass over the samples counts the tokens of every sample and value by label and control, so that each statistic
with and without each control is a sum over counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from analysis.bootstrap import SHIFTS, ShiftTest
from analysis.dataset import LABELS, Dataset
from analysis.lexical import token_kinds
from analysis.statistics import Counts
from curate.errors import DatasetError
from curate.taxonomy import CATEGORIES

__all__ = ["BINS", "CONTROLS", "Batch", "Controlled", "batches", "control_tokens"]

CONTROLS: dict[str, str] = {
    "none": "all code tokens",
    "first_subtoken": "tokens that begin a word, or have none: later sub-tokens of an identifier are nearly certain",
    "identifiers_literals": "identifiers and literals only: neither punctuation, keywords, comments nor white space",
    "first_occurrence": "tokens whose id does not stand earlier in the sample, prompt included: the others are copies",
    "not_punctuation": "tokens with a letter, a digit or an underscore: neither punctuation nor white space",
    "all": "all four controls at once",
}
"""Control -> the code tokens that it keeps."""

BINS = 64
"""Bins of a sample's histograms, even in the logit of the confidence from -9 to 9: for intervals only, which need the
distribution of every sample. Point estimates are exact."""

_VALUES = 2**16
_EDGES = 1 / (1 + np.exp(-np.linspace(-9, 9, BINS - 1)))
with np.errstate(over="ignore", invalid="ignore"):  # every pattern of bits is there, some that signal among them
    _CONFIDENCES = np.exp(np.arange(_VALUES, dtype=np.uint16).view(np.float16).astype(np.float64))
_BIN_OF = np.searchsorted(_EDGES, _CONFIDENCES).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Batch:
    """The tokens of some samples, (T,) each. `sample`: number of the sample in the dataset, from 0, rising. `patterns`:
    the bits of the float16 log-probability. `scored`: it has one, see
    `statistics.FINITE`."""

    first_sample: int
    samples: int
    sample: NDArray[np.int64]
    patterns: NDArray[np.uint16]
    confidence: NDArray[np.float64]
    scored: NDArray[np.bool_]
    in_code: NDArray[np.bool_]
    category: NDArray[np.int64]
    labels: dict[str, NDArray[np.bool_]]
    rows: pa.RecordBatch


def batches(dataset: Dataset, more: tuple[str, ...] = (), rows: int = 256) -> Iterator[Batch]:
    """The samples that have scores, `rows` at a time; `more`: further columns of `samples` for `Batch.rows`.

    Raises DatasetError where the files are damaged.
    """
    columns = ("logprob", "category", "statement", "in_code", *more)
    done = 0
    try:
        found = dataset.connection.cursor().sql(f"SELECT {', '.join(columns)} FROM samples WHERE logprob IS NOT NULL")
        for batch in found.to_arrow_reader(rows):
            yield _batch(batch, done)
            done += batch.num_rows
    except (duckdb.Error, pa.ArrowException, ValueError) as error:
        raise DatasetError(f"{dataset.path}: damaged ({str(error).splitlines()[0]}); build it again") from error


def _batch(rows: pa.RecordBatch, done: int) -> Batch:
    lengths = np.diff(rows["logprob"].offsets.to_numpy())
    logprob = _flat(rows, "logprob").astype(np.float16)
    category = _flat(rows, "category").astype(np.int64)
    in_code, statement = _flat(rows, "in_code").astype(bool), _flat(rows, "statement").astype(bool)
    if not len(logprob) == len(category) == len(in_code) == len(statement):
        raise ValueError("token lists of different lengths")
    patterns = logprob.view(np.uint16)
    return Batch(
        first_sample=done,
        samples=rows.num_rows,
        sample=np.repeat(np.arange(done, done + rows.num_rows), lengths),
        patterns=patterns,
        confidence=_CONFIDENCES[patterns],
        scored=logprob < 1,
        in_code=in_code,
        category=category,
        labels={"statement": statement, "category": category > 0},
        rows=rows,
    )


def _flat(rows: pa.RecordBatch, column: str) -> NDArray[np.generic]:
    return np.asarray(rows[column].flatten().to_numpy(zero_copy_only=False))


@dataclass(frozen=True, eq=False)
class Controlled:
    """Counts of the code tokens that have a score. Axes: label set of `LABELS`, control of `CONTROLS`, class
    (sensitive, neutral), N samples, V values of float16.

    `numbers`, `sums` (labels, controls, 2, N): tokens, and the sum of their confidence. `histograms` (labels, controls,
    2, N, BINS). `by_value` (labels, controls, 2, V). `categories` (2, categories, N): numbers and sums by category.
    `label_sets` (2, 4, N): likewise by 2 * statement + category, whether a token is sensitive in each label set.
    `shift_p`: of `bootstrap.ShiftTest`, by (labels, control). `unscored`: code tokens without a score (NaN), which
    nothing else counts.
    """

    numbers: NDArray[np.float64]
    sums: NDArray[np.float64]
    histograms: NDArray[np.float32]
    by_value: NDArray[np.int64]
    categories: NDArray[np.float64]
    label_sets: NDArray[np.float64]
    shift_p: dict[tuple[str, str], float]
    unscored: int

    @property
    def samples(self) -> int:
        return int(self.numbers.shape[-1])

    def counts(self, labels: str, control: str) -> Counts:
        """What `statistics.token_counts` gives, of the tokens that a control keeps."""
        sensitive, neutral = self.by_value[tuple(LABELS).index(labels), tuple(CONTROLS).index(control)]
        there = np.flatnonzero(sensitive + neutral)
        values, which = np.unique(_CONFIDENCES[there], return_inverse=True)
        merged = [np.bincount(which, c[there], len(values)).astype(np.int64) for c in (sensitive, neutral)]
        return Counts(values, *merged)


def control_tokens(dataset: Dataset, draws: int = SHIFTS, seed: int = 0) -> Controlled:
    """Counts the tokens of a scored dataset in one pass; `draws` of the shift test, 0 to leave it out.

    Memory: 12 KiB a sample.
    """
    by_value = np.zeros((len(LABELS), len(CONTROLS), 2, _VALUES), np.int64)
    empty = np.zeros((len(LABELS), len(CONTROLS), 2, 0))
    parts = [(empty, empty, np.zeros((*empty.shape, BINS), np.float32))]
    categories, label_sets = [np.zeros((2, len(CATEGORIES), 0))], [np.zeros((2, 4, 0))]
    tests = {(labels, control): ShiftTest(draws, seed) for labels in LABELS for control in CONTROLS}
    unscored = 0
    for batch in batches(dataset, ("response", "code_spans", "input_ids", "prompt_tokens", "char_start", "char_end")):
        counted = batch.in_code & batch.scored
        unscored += int((batch.in_code & ~batch.scored).sum())
        local = batch.sample - batch.first_sample
        kept = _controls(batch, local)
        shape = (len(LABELS), len(CONTROLS), 2, batch.samples)
        numbers, sums = np.zeros(shape), np.zeros(shape)
        histograms = np.zeros((*shape, BINS), np.float32)
        for i, labels in enumerate(LABELS):
            for j, control in enumerate(CONTROLS):
                if draws:
                    chosen = np.flatnonzero(counted & kept[control])
                    lengths = np.bincount(local[chosen], minlength=batch.samples)
                    tests[labels, control].add(batch.confidence[chosen], batch.labels[labels][chosen], lengths)
                for k, of_class in enumerate((batch.labels[labels], ~batch.labels[labels])):
                    chosen = np.flatnonzero(counted & kept[control] & of_class)
                    where, patterns = local[chosen], batch.patterns[chosen]
                    numbers[i, j, k] = np.bincount(where, minlength=batch.samples)
                    sums[i, j, k] = np.bincount(where, batch.confidence[chosen], batch.samples)
                    cells = np.bincount(where * BINS + _BIN_OF[patterns], minlength=batch.samples * BINS)
                    histograms[i, j, k] = cells.reshape(batch.samples, BINS)
                    by_value[i, j, k] += np.bincount(patterns, minlength=_VALUES)
        parts.append((numbers, sums, histograms))
        both = 2 * batch.labels["statement"] + batch.labels["category"]
        categories.append(_by_kind(batch, batch.category, len(CATEGORIES), counted))
        label_sets.append(_by_kind(batch, both, 4, counted))
    numbers, sums, histograms = (np.concatenate(arrays, axis=3) for arrays in zip(*parts, strict=True))
    shift_p = {key: test.p if draws else math.nan for key, test in tests.items()}
    return Controlled(
        numbers, sums, histograms, by_value, np.concatenate(categories, axis=2), np.concatenate(label_sets, axis=2),
        shift_p, unscored,
    )  # fmt: skip


def _controls(batch: Batch, local: NDArray[np.int64]) -> dict[str, NDArray[np.bool_]]:
    """Control -> the tokens that it keeps, (T,)."""
    rows = batch.rows
    start, end = (_flat(rows, name).astype(np.int64) for name in ("char_start", "char_end"))
    spans = [[(s["start"], s["end"]) for s in row or ()] for row in rows["code_spans"].to_pylist()]
    begins, named, word = token_kinds(rows["response"].to_pylist(), spans, local, start, end)
    ids = _flat(rows, "input_ids").astype(np.int64)
    lengths = np.diff(rows["input_ids"].offsets.to_numpy())
    place = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    sample = np.repeat(np.arange(batch.samples), lengths)
    first = np.zeros(len(ids), bool)
    first[np.unique((sample << 32) + ids, return_index=True)[1]] = True
    first = first[place >= rows["prompt_tokens"].to_numpy()[sample]]
    if not len(first) == len(start) == len(local):
        raise ValueError("token lists of different lengths")
    kept = {
        "first_subtoken": begins,
        "identifiers_literals": named,
        "first_occurrence": first,
        "not_punctuation": word,
    }
    return {"none": np.ones(len(local), bool), **kept, "all": np.logical_and.reduce(list(kept.values()))}


def _by_kind(batch: Batch, kind: NDArray[np.int64], kinds: int, counted: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(2, kinds, samples of the batch): numbers and sums of confidence."""
    cells = (kind * batch.samples + batch.sample - batch.first_sample)[counted]
    found = [np.bincount(cells, w, kinds * batch.samples) for w in (None, batch.confidence[counted])]
    return np.stack([f.reshape(kinds, batch.samples).astype(float) for f in found])
