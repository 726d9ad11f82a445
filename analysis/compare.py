"""`python -m analysis.compare A B`: two builds of one corpus with two models, or with two sets of options.

Samples are joined by `sample_id`, a hash of the messages, so their texts are the same. Tokens of different tokenizers
are not: masks are compared on characters, each with the mask of the token that covers it, and confidence on words,
maximal runs of letters, digits and underscores in code, each with the probability of all tokens that touch it (the sum
of their log-probabilities). That a token often holds the space before its word makes this an approximation.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import duckdb
import numpy as np
import pyarrow as pa
import tyro
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from scipy import stats

from analysis.alignment import CLASSES, mask_sums, word_logprobs
from analysis.bootstrap import DRAWS, bootstrap, divided
from analysis.dataset import Dataset, open_datasets
from analysis.findings import plain
from curate.console import main, parse_options, printable
from curate.errors import DatasetError, OptionError
from curate.store import attach_views

__all__ = ["Agreement", "CompareConfig", "Comparison", "Moved", "Number", "compare", "print_comparison"]

_OPTIONS = ("context", "tau", "lambda", "window", "region_scope", "launch_scope", "device_functions")
_TABLE: dict[str, Any] = {
    "title_justify": "left",
    "box": box.SIMPLE_HEAD,
    "padding": (0, 1),
    "pad_edge": False,
    "collapse_padding": True,
}
_TOKENS = ("char_start", "char_end", "logprob")


@dataclass(frozen=True)
class CompareConfig:
    """Compares two annotated datasets of one corpus: masks, ranks of confidence, and sample weights."""

    a: tyro.conf.Positional[Path]
    """The first dataset's folder."""
    b: tyro.conf.Positional[Path]
    """The second's."""
    top: int = 10
    """Samples whose weight moved most to list."""
    draws: int = DRAWS
    """Draws of samples behind each interval."""
    seed: int = 0
    """Of the draws."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON instead of tables."""


@dataclass(frozen=True)
class Number:
    """A number with its 95 % interval by samples; NaN where there is nothing to compute it from."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Agreement:
    """Masks on the characters that tokens of both datasets cover. `equal`: share with equal Mconf, equation (2);
    `kappa`: Cohen's; `kept_a`, `kept_b`: shares that each mask keeps."""

    characters: int
    equal: Number
    kappa: Number
    kept_a: float
    kept_b: float


@dataclass(frozen=True)
class Moved:
    """A sample's weight w in both datasets."""

    sample_id: str
    source_id: str
    weight_a: float
    weight_b: float


@dataclass(frozen=True)
class Comparison:
    """`common`: samples of both with scores. `agreement`: by class of `CLASSES`. `words`: those compared;
    `word_rank`: Spearman's correlation of their confidence, `word_rank_within`: the mean of it within samples.
    `weight_rank`: Spearman's of w. `options`: those that differ, as (A's, B's)."""

    a: str
    b: str
    samples_a: int
    samples_b: int
    common: int
    agreement: dict[str, Agreement]
    words: int
    word_rank: Number
    word_rank_within: Number
    weight_rank: float
    moved: tuple[Moved, ...]
    options: dict[str, tuple[Any, Any]]

    def to_json(self) -> str:
        """One JSON object; what does not exist is null."""
        return json.dumps(plain(asdict(self)), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _joined(a: Dataset, b: Dataset) -> Iterator[dict[str, Any]]:
    """The samples of both that have scores, with the token lists of both."""
    lists = ", ".join(f"{side}.{name} AS {name}_{side}" for side in "ab" for name in _TOKENS)
    sql = f"""
        SELECT a.sample_id, a.source_id, a.response, a.in_code, a.statement, a.category,
            a.sample_weight AS weight_a, b.sample_weight AS weight_b, {lists}
        FROM first.samples a JOIN second.samples b USING (sample_id)
        WHERE a.logprob IS NOT NULL AND b.logprob IS NOT NULL
    """
    try:
        with duckdb.connect() as connection:
            for schema, dataset in (("first", a), ("second", b)):
                connection.execute(f"CREATE SCHEMA {schema}")
                connection.execute(f"USE {schema}")
                attach_views(connection, dataset.path)
            for batch in connection.sql(sql).to_arrow_reader(256):
                for row in range(batch.num_rows):
                    yield {name: _value(batch[name][row]) for name in batch.schema.names}
    except (duckdb.Error, pa.ArrowException) as error:
        raise DatasetError(f"{a.path} or {b.path}: damaged ({str(error).splitlines()[0]}); build it again") from error


def _value(scalar: pa.Scalar) -> Any:
    return scalar.values.to_numpy(zero_copy_only=False) if isinstance(scalar, pa.ListScalar) else scalar.as_py()


def _kappa(sums: NDArray[np.floating]) -> NDArray[np.float64]:
    """Cohen's kappa of totals (..., 4); NaN where both masks keep everything, or nothing."""
    share = divided(sums[..., 1:], sums[..., :1])
    equal, a, b = share[..., 0], share[..., 1], share[..., 2]
    chance = a * b + (1 - a) * (1 - b)
    return divided(equal - chance, 1 - chance)


def _correlation(sums: NDArray[np.floating]) -> NDArray[np.float64]:
    """Pearson's from totals (..., 6): n, x, y, xx, yy, xy."""
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spread = np.sqrt(np.maximum(n * xx - x * x, 0) * np.maximum(n * yy - y * y, 0))
    return divided(n * xy - x * y, spread)


def _rank_correlation(words: Sequence[NDArray[np.float64]], draws: int, seed: int) -> Number:
    """Spearman's over all words; its interval draws samples and keeps the ranks."""
    if not sum(map(len, words)):
        return Number(math.nan, math.nan, math.nan)
    ranks = np.stack([stats.rankdata(x) for x in np.concatenate(words).T], axis=1)
    ranks = ranks / len(ranks) - 0.5 * (1 + 1 / len(ranks))  # about 0: nothing is lost in the sums
    parts = np.split(ranks, np.cumsum([len(w) for w in words])[:-1])
    sums = np.array([[len(r), *r.sum(0), *(r**2).sum(0), r.prod(axis=1).sum()] for r in parts])
    value, (low, high) = bootstrap(sums, _correlation, draws, seed)
    return Number(value, low, high)


def _spearman(pairs: NDArray[np.float64]) -> float:
    if len(pairs) < 2 or not np.ptp(pairs, axis=0).all():
        return math.nan
    return float(stats.spearmanr(pairs[:, 0], pairs[:, 1]).statistic)


def compare(a: Dataset, b: Dataset, top: int = 10, draws: int = DRAWS, seed: int = 0) -> Comparison:
    """Compares two scored datasets that share samples; raises DatasetError where they have none in common."""
    for dataset in (a, b):
        if not dataset.scored:
            raise DatasetError(f"{dataset.path}: has no scores to compare; build without --skip-scoring")
    configs = [d.manifest["config"] for d in (a, b)]
    taus = (float(configs[0]["tau"]), float(configs[1]["tau"]))
    rows = []
    for row in _joined(a, b):
        moved = Moved(row["sample_id"], row["source_id"] or "", float(row["weight_a"]), float(row["weight_b"]))
        rows.append((moved, mask_sums(row, taus), word_logprobs(row)))
    if not rows:
        raise DatasetError(f"{a.path} and {b.path} share no sample: they are builds of different corpora")
    rows.sort(key=lambda r: r[0].sample_id)
    agreement = {}
    for name in CLASSES:
        sums = np.stack([by_class[name] for _, by_class, _ in rows])
        total = sums.sum(axis=0)
        equal, equal_in = bootstrap(sums, lambda s: divided(s[..., 1], s[..., 0]), draws, seed)
        kappa, kappa_in = bootstrap(sums, _kappa, draws, seed)
        kept = divided(total[2:], total[:1])
        agreement[name] = Agreement(
            int(total[0]), Number(equal, *equal_in), Number(kappa, *kappa_in), float(kept[0]), float(kept[1])
        )
    words = [w for _, _, w in rows]
    within = np.array([_spearman(w) for w in words])
    within = within[np.isfinite(within)]
    mean = np.stack([np.ones_like(within), within], axis=1)
    value, inside = bootstrap(mean, lambda s: divided(s[..., 1], s[..., 0]), draws, seed)
    weights = np.array([[m.weight_a, m.weight_b] for m, _, _ in rows])
    finite = np.isfinite(weights).all(axis=1)
    every = [m for (m, _, _), known in zip(rows, finite, strict=True) if known]
    every.sort(key=lambda m: -abs(m.weight_b - m.weight_a))
    return Comparison(
        a.name, b.name, a.samples, b.samples, len(rows), agreement, sum(map(len, words)),
        _rank_correlation(words, draws, seed), Number(value, *inside), _spearman(weights[finite]), tuple(every[:top]),
        {o: (configs[0].get(o), configs[1].get(o)) for o in _OPTIONS if configs[0].get(o) != configs[1].get(o)},
    )  # fmt: skip


def print_comparison(found: Comparison, console: Console) -> None:
    """The comparison as tables."""
    console.print(f"A: {printable(found.a)}, {found.samples_a} samples", markup=False, highlight=False)
    console.print(f"B: {printable(found.b)}, {found.samples_b} samples; {found.common} in both", markup=False)
    for name, (first, second) in found.options.items():
        console.print(f"{name} differs: {first} in A, {second} in B", markup=False)
    masks = Table("characters", title="Masks (Mconf)", **_TABLE)
    for column in ("number", "equal", "95 %", "kappa", "95 %", "kept A", "kept B"):
        masks.add_column(column, justify="right")
    for name in CLASSES:
        one = found.agreement[name]
        masks.add_row(
            name, f"{one.characters:,}", _number(one.equal.value), _interval(one.equal), _number(one.kappa.value),
            _interval(one.kappa), _number(one.kept_a), _number(one.kept_b),
        )  # fmt: skip
    console.print(masks)
    ranks = Table(
        "Spearman's rank correlation", title="Confidence and weights", title_justify="left", box=box.SIMPLE_HEAD
    )
    for column in ("value", "95 %"):
        ranks.add_column(column, justify="right")
    ranks.add_row(
        f"confidence of {found.words:,} words of code", _number(found.word_rank.value), _interval(found.word_rank)
    )
    ranks.add_row(
        "the same within samples, mean", _number(found.word_rank_within.value), _interval(found.word_rank_within)
    )
    ranks.add_row("sample weight w", _number(found.weight_rank), "")
    console.print(ranks)
    if found.moved:
        moved = Table("sample", "id", title="Weights that moved most", **_TABLE)
        for column in ("w in A", "w in B", "B - A"):
            moved.add_column(column, justify="right")
        for m in found.moved:
            change = f"{m.weight_b - m.weight_a:+.3f}"
            source = Text(printable(m.source_id)[:60])  # rich would read [..] in a plain string as markup
            moved.add_row(source, m.sample_id[:12], _number(m.weight_a), _number(m.weight_b), change)
        console.print(moved)


def _number(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "-"


def _interval(number: Number) -> str:
    return f"{number.low:.3f}..{number.high:.3f}" if math.isfinite(number.low) else "-"


def run(arguments: Sequence[str]) -> int:
    config = parse_options(CompareConfig, arguments, "analysis.compare")
    if config.top < 0:
        raise OptionError("--top: give 0 or more")
    if not 100 <= config.draws <= 100_000:
        raise OptionError("--draws: give 100 to 100,000")
    if config.seed < 0:
        raise OptionError("--seed: give 0 or more")
    a, b = open_datasets([config.a, config.b])
    found = compare(a, b, config.top, config.draws, config.seed)
    if config.json:
        sys.stdout.write(found.to_json())
    else:
        print_comparison(found, Console(soft_wrap=False, emoji=False, highlight=False))
    return 0


if __name__ == "__main__":
    main(run)
