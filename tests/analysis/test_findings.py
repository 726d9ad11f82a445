"""Findings of planted datasets: what was planted comes back, and what is missing is said."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from planted_dataset import Planted, plant, unchecked

from analysis.controls import CONTROLS, control_tokens
from analysis.dataset import LABELS, Dataset, open_datasets
from analysis.findings import Findings, find
from analysis.statistics import token_counts
from analysis.verdicts import Verdict
from analysis.windows import windows_by_sample
from curate.errors import DatasetError

WORDS = (" a", " =", " idx", ";", "\n", " +")


def opened(path: Path) -> Dataset:
    return open_datasets([path])[0]


def beta(random: np.random.Generator, mean: float | NDArray[np.float64], size: int) -> NDArray[np.float64]:
    return random.beta(6 * np.asarray(mean), 6 * (1 - np.asarray(mean)), size)


def sample(random: np.random.Generator, sensitive: float, neutral: float, tokens: int = 150) -> Planted:
    """Runs of ten sensitive tokens; the level of the sample moves both classes."""
    labels = np.repeat(random.random(tokens // 10) < 0.35, 10)
    means = np.where(labels, sensitive, neutral) + random.normal(0, 0.04)
    words = [WORDS[i] for i in random.integers(0, len(WORDS), tokens)]
    return Planted(words, beta(random, means, tokens), labels * 2, labels & (np.arange(tokens) % 2 == 0))


def verdict(found: Findings, claim: str, labels: str = "category", control: str = "none") -> Verdict:
    (one,) = [v for v in found.verdicts if claim in v.claim and (v.labels, v.control) == (labels, control)]
    return one


@pytest.mark.parametrize(
    ("sensitive", "neutral", "expected"),
    [(0.8, 0.6, "holds"), (0.45, 0.7, "reversed"), (0.6, 0.6, "undecided")],
)
def test_planted_means_come_back(tmp_path: Path, sensitive: float, neutral: float, expected: str) -> None:
    random = np.random.default_rng(7)
    found = find(opened(plant(tmp_path, [sample(random, sensitive, neutral) for _ in range(80)], part=30)))
    (t,) = [t for t in found.tokens if (t.labels, t.control) == ("category", "none")]
    assert t.sensitive_mean == pytest.approx(sensitive, abs=0.02)
    assert t.neutral_mean == pytest.approx(neutral, abs=0.02)
    assert t.gap_low <= sensitive - neutral <= t.gap_high
    assert t.paired_low <= sensitive - neutral <= t.paired_high
    assert t.gap_high - t.gap_low < 0.04
    one, other = (random.beta(6 * m, 6 * (1 - m), 100_000) for m in (sensitive, neutral))
    delta = 2 * (one > other).mean() - 1  # of tokens of one level
    assert t.cliffs_delta == pytest.approx(2 * t.auc - 1)
    assert t.cliffs_delta_low < t.cliffs_delta < t.cliffs_delta_high
    assert t.cliffs_delta_low - 0.01 <= delta <= t.cliffs_delta_high + 0.01  # the samples' levels blur it a little
    assert (t.shift_p < 0.01, t.wilcoxon_p < 0.01) == (expected != "undecided",) * 2
    for claim in ("higher mean", "as a distribution", "within a sample"):
        assert verdict(found, claim).verdict == expected
    (c,) = found.categories
    assert (c.category, c.tokens) == ("thread_index", t.sensitive_tokens)
    assert (c.gap, c.gap_low, c.gap_high) == pytest.approx((t.gap, t.gap_low, t.gap_high))
    assert verdict(found, "higher mean").paper == 0.1928


def test_a_gap_of_punctuation_alone_is_gone_under_the_control(tmp_path: Path) -> None:
    """Sensitive code of this corpus has more punctuation, and punctuation is nearly certain; words are alike."""
    random = np.random.default_rng(1)
    samples = []
    for _ in range(60):
        labels = np.arange(120) % 20 < 8
        marks = random.random(120) < np.where(labels, 0.7, 0.3)
        words = [";" if m else " w" for m in marks]
        samples.append(Planted(words, beta(random, np.where(marks, 0.95, 0.5), 120), labels * 8))
    found = find(opened(plant(tmp_path, samples)))
    assert verdict(found, "higher mean").verdict == "holds"
    for control in ("not_punctuation", "identifiers_literals"):
        assert verdict(found, "higher mean", control=control).verdict == "undecided"
        assert abs(verdict(found, "higher mean", control=control).number) < 0.03
    assert verdict(found, "higher mean", control="first_subtoken").verdict == "holds"


def test_a_gap_of_later_sub_tokens_and_of_copies_is_gone_under_their_controls(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    split, copied = [], []
    for _ in range(60):
        labels = np.arange(120) % 20 < 8
        later = (np.arange(120) % 2 == 1) & labels
        words = ["dx" if x else " i" for x in later]
        split.append(Planted(words, beta(random, np.where(later, 0.95, 0.5), 120), labels * 1, prompt_ids=()))
        again = labels & (np.arange(120) > 20)
        ids = np.where(labels, np.arange(120) % 20 + 1000, np.arange(120))
        copied.append(
            Planted([" i"] * 120, beta(random, np.where(again, 0.95, 0.5), 120), labels * 1, ids=ids.tolist())
        )
    for name, samples, control in (("s", split, "first_subtoken"), ("c", copied, "first_occurrence")):
        found = find(opened(plant(tmp_path / name, samples)))
        assert verdict(found, "higher mean").verdict == "holds"
        assert abs(verdict(found, "higher mean", control=control).number) < 0.05
        assert verdict(found, "higher mean", control=control).low < 0.03


def test_a_token_of_the_prompt_is_no_first_occurrence(tmp_path: Path) -> None:
    planted = Planted([" a", " b", " a", " c"], [0.5] * 4, [1, 1, 1, 0], ids=[5, 6, 5, 7], prompt_ids=[9, 6])
    counts = control_tokens(opened(plant(tmp_path, [planted]))).counts("category", "first_occurrence")
    assert counts.tokens == (1, 1)


def test_counts_are_those_of_a_group_by(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    samples = [sample(random, 0.7, 0.6) for _ in range(12)]
    samples[3].in_code = [False] * 20 + [True] * 130
    samples[4].confidence = [0.0, math.nan, *np.asarray(samples[4].confidence)[2:]]
    samples[5].confidence = None
    dataset = unchecked(plant(tmp_path, samples, part=5))
    controlled = control_tokens(dataset)
    assert controlled.unscored == 1
    assert controlled.samples == 11
    for labels in LABELS:
        exact, counted = token_counts(dataset, labels), controlled.counts(labels, "none")
        assert counted.values == pytest.approx(exact.values, abs=1e-12)
        assert (counted.sensitive == exact.sensitive).all()
        assert (counted.neutral == exact.neutral).all()
        assert sum(exact.tokens) == 11 * 150 - 20 - 1
    assert controlled.numbers.sum(axis=-1).tolist() == controlled.by_value.sum(axis=-1).tolist()
    assert controlled.histograms.sum(axis=-1).tolist() == controlled.numbers.tolist()
    found = find(dataset)
    assert found.missing[:2] == (
        "1 samples have no scores and are left out.",
        "1 code tokens have a score that is not a number and are left out.",
    )


@pytest.mark.parametrize("length", [1, 7, 64, 150])
def test_windows_are_those_of_the_view(tmp_path: Path, length: int) -> None:
    random = np.random.default_rng(4)
    samples = [sample(random, 0.5, 0.7) for _ in range(8)]
    samples[2].in_code = [False] * 20 + [True] * 60 + [False] * 30 + [True] * 40
    samples.append(Planted([" a"], [0.5], [1]))
    dataset = opened(plant(tmp_path, samples, part=3))
    found = windows_by_sample(dataset, {"statement": 0.63, "category": 0.65}, length)
    for labels, low in (("statement", 0.63), ("category", 0.65)):
        expected = dataset.query(f"""
            SELECT count(start), count(*) FILTER (low), count(*) FILTER (touches), count(*) FILTER (low AND touches),
                count(*) FILTER (above), count(*) FILTER (low AND above)
            FROM (SELECT DISTINCT sample_id, avg({LABELS[labels]}::INT) AS share FROM tokens WHERE in_code GROUP BY 1)
            LEFT JOIN (SELECT *, confidence < {low} AS low, {labels}_tokens > 0 AS touches FROM windows({length}))
                USING (sample_id), LATERAL (SELECT {labels}_tokens / {length}.0 > share + 1e-9 AS above)
            GROUP BY sample_id ORDER BY sample_id
        """)  # fmt: skip
        assert found[labels].tolist() == [[float(n) for n in row] for row in expected.rows()]


@pytest.mark.parametrize(("on_sensitive", "expected"), [(0.95, "holds"), (0.5, "undecided"), (0.05, "reversed")])
def test_planted_low_regions_come_back(tmp_path: Path, on_sensitive: float, expected: str) -> None:
    """Samples of two halves, one sensitive; three of four samples have a dip, in the sensitive half as often as told."""
    random = np.random.default_rng(11)
    samples = []
    for i in range(80):
        labels = np.arange(800) < 400
        confidence = np.full(800, 0.8)
        if i % 4:
            start = 150 if random.random() < on_sensitive else 550
            confidence[start : start + 100] = 0.2
        samples.append(Planted([" a"] * 800, confidence, labels * 2))
    found = find(opened(plant(tmp_path, samples)))
    dips = sum(min(np.asarray(s.confidence)) < 0.5 for s in samples)
    assert dips == 60
    w = next(w for w in found.windows if (w.labels, w.rule) == ("category", "above"))
    assert (w.samples, w.samples_with_low) == (80, 60)
    assert w.samples_share_low <= 0.75 <= w.samples_share_high
    assert w.share_low <= on_sensitive <= w.share_high
    assert w.base == pytest.approx(0.5, abs=0.01)
    assert verdict(found, "more than others (more").verdict == expected
    assert verdict(found, "most samples hold").verdict == "holds"
    assert verdict(found, "most samples hold").paper == 0.7447


def test_no_score_no_sample_no_class(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    neutral = [Planted([" a"] * 90, beta(random, 0.6, 90), [0] * 90) for _ in range(12)]
    unscored = [Planted([" a"] * 90, None, [0] * 90) for _ in range(12)]
    sensitive = [Planted([" a"] * 90, beta(random, 0.6, 90), [1] * 90) for _ in range(12)]
    nan = [Planted([" a"] * 90, [math.nan] * 90, [0, 1] * 45) for _ in range(12)]
    short = [Planted([" a", " b"], [0.5, 0.25], [0, 1]) for _ in range(3)]
    cases = {
        "zero": (plant(tmp_path / "zero", []), "no sample"),
        "skipped": (plant(tmp_path / "skipped", unscored, skip_scoring=True), "--skip-scoring"),
        "unscored": (plant(tmp_path / "unscored", unscored), "12 samples have no scores"),
        "neutral": (plant(tmp_path / "neutral", neutral), "No sensitive code token by statement labels"),
        "sensitive": (plant(tmp_path / "sensitive", sensitive), "No neutral code token by category labels"),
        "nan": (plant(tmp_path / "nan", nan), "1080 code tokens have a score that is not a number"),
        "short": (plant(tmp_path / "short", short), "No sample has a window of 64 scored"),
    }
    for name, (path, said) in cases.items():
        found = find(unchecked(path), draws=50)
        assert any(said in line for line in found.missing), name
        assert all(v.verdict == "undecided" for v in found.verdicts if "most samples" not in v.claim), name
        strict = json.loads(found.to_json(), parse_constant=lambda text: pytest.fail(text))
        assert strict["missing"] == list(found.missing)
        rows = list(csv.DictReader(io.StringIO(found.to_csv())))
        assert all(row["number"] not in ("nan", "inf") for row in rows), name


def test_json_and_csv_hold_every_number(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    found = find(opened(plant(tmp_path, [sample(random, 0.8, 0.6) for _ in range(15)], name='a, "b"')), draws=100)
    read = json.loads(found.to_json())
    assert [t["control"] for t in read["tokens"]] == list(CONTROLS) * 2
    assert read["tokens"][0]["gap"] == found.tokens[0].gap
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert {row["dataset"] for row in rows} == {'a, "b"'}
    (gap,) = [
        r for r in rows if (r["section"], r["labels"], r["control"], r["name"]) == ("tokens", "category", "all", "gap")
    ]
    t = next(t for t in found.tokens if (t.labels, t.control) == ("category", "all"))
    assert [float(gap[c]) for c in ("number", "low", "high")] == [t.gap, t.gap_low, t.gap_high]
    assert sum(row["section"] == "verdict" for row in rows) == len(found.verdicts) == 2 * (3 * len(CONTROLS) + 5)
    assert len({tuple(row[c] for c in ("section", "labels", "control", "name")) for row in rows}) == len(rows)
    assert find(opened(tmp_path), draws=100) == found
    assert any(
        "35 of 47 and 31 of 34, with 95 % intervals of 60 to 85 % and 77 to 97 %" in note for note in found.notes
    )


def test_few_samples_decide_nothing(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    found = find(opened(plant(tmp_path, [sample(random, 0.9, 0.3) for _ in range(9)])), draws=100)
    assert {v.verdict for v in found.verdicts} == {"undecided"}
    assert "only 9 samples" in verdict(found, "higher mean").note
    assert verdict(found, "higher mean").low > 0


def test_label_sets_are_compared(tmp_path: Path) -> None:
    kinds = [0] * 4 + [1] * 3 + [2] * 2 + [3]  # neither, category, statement, both
    means = [0.25, 0.5, 0.75, 1.0]
    samples = [
        Planted([" a"] * 10, [means[k] for k in kinds], [k % 2 for k in kinds], [k > 1 for k in kinds])
        for _ in range(12)
    ]
    found = find(opened(plant(tmp_path, samples)), draws=50)
    assert [(o.sensitive_by, o.tokens, o.share) for o in found.overlap] == [
        ("neither", 48, 0.4), ("category", 36, 0.3), ("statement", 24, 0.2), ("both", 12, 0.1),
    ]  # fmt: skip
    assert [o.mean for o in found.overlap] == pytest.approx(means, abs=1e-3)


def test_damage_is_one_line(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    dataset = opened(plant(tmp_path, [sample(random, 0.8, 0.6)]))
    file = tmp_path / "samples" / "part-000000.parquet"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(DatasetError, match="damaged") as caught:
        find(dataset)
    assert "\n" not in str(caught.value)
