"""A figure and the findings say the same of a dataset, down to the ends of the intervals."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from figure_helpers import BY_NAME, planted
from planted_dataset import Planted

from analysis.dataset import LABELS, Dataset
from analysis.findings import Findings, find

DRAWS, SEED = 700, 3


@pytest.fixture(scope="module")
def hard(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Samples without scores, without sensitive tokens, without neutral ones, without code, too short for a window,
    with scores that are no number; stored in no order of their ids, in several row groups of one query."""
    random = np.random.default_rng(4)
    samples = []
    for i in range(36):
        size = int(random.integers(70, 200)) if i % 5 else 20
        category = random.choice([0, 0, 0, 2, 5, 8], size)
        confidence = random.beta(1 + i % 3, 1, size)
        p = Planted(
            ["ab "] * size, confidence.tolist(), category.tolist(), (random.random(size) < 0.3).tolist(),
            (random.random(size) < 0.9).tolist(),
        )  # fmt: skip
        match i % 9:
            case 1:
                p.confidence = None
            case 2:
                p.category, p.statement = [0] * size, [False] * size
            case 3:
                p.category, p.statement = [2] * size, [True] * size
            case 4:
                p.in_code = [False] * size
            case 5:
                p.confidence = [math.nan if n % 40 == 7 else c for n, c in enumerate(confidence.tolist())]
        samples.append(p)
    ids = [f"{i:032x}" for i in random.permutation(len(samples))]
    return planted(tmp_path_factory.mktemp("hard") / "d", samples, {"sample_id": ids})


@pytest.fixture(scope="module")
def found(hard: Dataset) -> Findings:
    return find(hard, DRAWS, SEED)


def rows(name: str, dataset: Dataset) -> pl.DataFrame:
    figure = BY_NAME[name]
    return figure.data(dataset, DRAWS, SEED) if figure.has_intervals else figure.data(dataset)


def row(frame: pl.DataFrame, **values: Any) -> dict[str, Any]:
    (one,) = frame.filter(*(pl.col(column) == value for column, value in values.items())).rows(named=True)
    return one


def test_density(hard: Dataset, found: Findings) -> None:
    frame = rows("density", hard)
    for t in (t for t in found.tokens if t.control == "none"):
        part = frame.filter(pl.col("labels") == t.labels)
        assert part["ks_d"].unique().to_list() == pytest.approx([t.ks_d])
        assert part["cliffs_delta"].unique().to_list() == pytest.approx([t.cliffs_delta])
        for kind in ("sensitive", "neutral"):
            of_class = part.filter(pl.col("class") == kind)
            assert of_class["tokens"].sum() == getattr(t, f"{kind}_tokens")
            assert of_class["mean"][0] == pytest.approx(getattr(t, f"{kind}_mean"), abs=1e-6)


def test_categories(hard: Dataset, found: Findings) -> None:
    frame = rows("categories", hard)
    assert {c.category for c in found.categories} == {*frame["category"]} - {"neutral"}
    assert frame["tokens"].sum() == found.code_tokens
    for c in found.categories:
        part = frame.filter(pl.col("category") == c.category)
        assert part["tokens"].sum() == c.tokens
        drawn = [part[name][0] for name in ("mean", "mean_low", "mean_high")]
        assert drawn == pytest.approx([c.mean, c.mean_low, c.mean_high], abs=1e-6)
        assert c.mean_low < c.mean < c.mean_high


def test_low_windows(hard: Dataset, found: Findings) -> None:
    frame = rows("low_windows", hard)
    for w in found.windows:
        assert w.low_windows
        on = row(frame, labels=w.labels, length=w.length, measure=w.rule)
        assert (on["windows"], on["low_windows"]) == (w.windows, w.low_windows)
        drawn = [on[name] for name in ("share", "share_low", "share_high", "base")]
        assert drawn == pytest.approx([w.share, w.share_low, w.share_high, w.base])
        of_samples = row(frame, labels=w.labels, length=w.length, measure="samples")
        drawn = [of_samples[name] for name in ("share", "share_low", "share_high")]
        assert drawn == pytest.approx([w.samples_share, w.samples_share_low, w.samples_share_high])


def test_the_gap_across_models(hard: Dataset, found: Findings) -> None:
    frame = rows("models", hard)
    for t in (t for t in found.tokens if t.control == "none"):
        one = row(frame, labels=t.labels)
        drawn = [one[name] for name in ("gap", "gap_low", "gap_high")]
        assert drawn == pytest.approx([t.gap, t.gap_low, t.gap_high], abs=1e-6)
        assert one["samples"] == found.scored_samples == 32
        where = f"in_code AND logprob < 1 AND {LABELS[t.labels]} ="
        for flag, number in (("true", t.sensitive_samples), ("false", t.neutral_samples)):
            counted = hard.query(f"SELECT count(DISTINCT sample_id) AS n FROM tokens WHERE {where} {flag}")
            assert counted["n"].to_list() == [number]
        assert t.sensitive_samples < found.scored_samples


def test_the_threshold_and_the_number_of_tokens(hard: Dataset, found: Findings) -> None:
    threshold = next(t.neutral_mean for t in found.tokens if (t.labels, t.control) == ("statement", "none"))
    for name in ("windows_of_sample", "lowest_window"):
        assert rows(name, hard)["neutral_mean"][0] == pytest.approx(threshold, abs=1e-6)
    assert rows("rank_entropy", hard)["tokens"].sum() == found.code_tokens
    position = rows("position", hard)
    for labels in ("statement", "category"):
        assert position.filter(pl.col("labels") == labels)["tokens"].sum() == found.code_tokens
    masks = rows("masks", hard).filter(pl.col("tau") == 0.1)
    assert masks.filter(pl.col("category") != "outside code")["tokens"].sum() == found.code_tokens


def test_another_seed_or_number_of_draws_draws_otherwise(hard: Dataset) -> None:
    """So that the tests above compare what a report was asked for."""
    for figure in BY_NAME.values():
        if figure.has_intervals and len(frame := figure.data(hard, DRAWS, SEED)):
            assert frame.equals(figure.data(hard, DRAWS, SEED))
            assert not frame.equals(figure.data(hard, DRAWS, SEED + 1)), figure.name
            assert not frame.equals(figure.data(hard, DRAWS + 1, SEED)), figure.name


def test_every_figure_with_an_interval_takes_draws() -> None:
    assert {name for name, figure in BY_NAME.items() if figure.has_intervals} == {
        "categories", "low_windows", "regions", "position", "models",
    }  # fmt: skip


def test_a_report_hands_its_draws_to_the_figures(tmp_path: Path, hard: Dataset) -> None:
    from analysis.report import write_report

    write_report([hard], tmp_path / "r", draws=200, seed=5)
    csv = pl.read_csv(tmp_path / "r" / "categories.csv")
    of_report = find(hard, 200, 5).categories[0]
    part = csv.filter(pl.col("category") == of_report.category)
    assert part["mean_low"][0] == pytest.approx(of_report.mean_low, abs=1e-6)
