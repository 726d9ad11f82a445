"""The numbers of a study against planted truth."""

from __future__ import annotations

import numpy as np
import pytest

from train.reports.study import study_rows

CLASSES = ("all", "sensitive")


def planted(random: np.random.Generator, seeds: int, samples: int, gain: float, spread: float = 0.1):
    """Sums of an untuned model and of two objectives, the second better by `gain` nats a token, with a share of each
    seed and of each sample of its own."""
    tokens = random.integers(20, 60, (samples, 2)).astype(float)
    base = tokens * (2 + random.normal(0, 0.5, (samples, 1)))
    mine = []
    for better in (0.0, gain):
        seed_effect = random.normal(0, spread, (seeds, 1, 1))
        sample_effect = random.normal(0, spread, (1, samples, 1))
        mine.append(base[None] - tokens * (0.3 + better + seed_effect + sample_effect))
    return base, mine, tokens


def by_name(rows):
    return {(r.objective, r.token_class): r for r in rows}


def test_values_are_means_a_token():
    tokens = np.array([[2.0, 1.0], [6.0, 3.0]])
    base = np.array([[4.0, 1.0], [12.0, 3.0]])
    runs = {"sft": np.stack([base / 2, base / 4])}
    rows = by_name(study_rows(runs, base, tokens, CLASSES))
    assert rows["untuned", "all"].nll.value == 2
    assert rows["sft", "all"].nll.value == pytest.approx(0.75)
    assert rows["sft", "sensitive"].difference.value == pytest.approx(-0.625)
    assert rows["sft", "sensitive"].tokens == 4


def test_the_untuned_model_and_the_first_objective_are_compared_with_nothing():
    base, (a, b), tokens = planted(np.random.default_rng(0), 2, 10, 0.1)
    rows = by_name(study_rows({"sft": a, "cuset": b}, base, tokens, CLASSES))
    assert rows["untuned", "all"].difference is None
    assert rows["sft", "all"].against is None
    assert rows["cuset", "all"].against is not None


def test_the_same_results_differ_by_nothing():
    base, (a, _), tokens = planted(np.random.default_rng(1), 3, 12, 0)
    against = by_name(study_rows({"sft": a, "dft": a.copy()}, base, tokens, CLASSES))["dft", "all"].against
    assert (against.value, against.low, against.high) == (0, 0, 0)
    assert against.undecided


def test_objectives_are_compared_sample_by_sample():
    """Samples differ far more from each other than objectives do; a comparison that is not paired drowns in it."""
    random = np.random.default_rng(2)
    tokens = np.full((40, 1), 50.0)
    level = 50 * random.normal(2, 1, (40, 1))
    a = np.stack([level, level])
    b = a - 50 * (0.05 + random.normal(0, 0.005, a.shape))
    row = by_name(study_rows({"sft": a, "cuset": b}, level, tokens, ("all",)))["cuset", "all"]
    assert row.nll.high - row.nll.low > 0.3
    assert not row.against.undecided
    assert row.against.low < -0.05 < row.against.high


@pytest.mark.parametrize(("seeds", "samples", "spread"), [(3, 20, 0.1), (3, 40, 0.02), (10, 30, 0.1), (2, 20, 0.1)])
def test_intervals_hold_the_truth_as_often_as_they_say(seeds, samples, spread):
    """Seeds and samples with effects of their own. One over samples alone would hold it in about 50 of 100 studies."""
    held = 0
    for study in range(400):
        base, (a, b), tokens = planted(np.random.default_rng(study), seeds, samples, 0.02, spread)
        against = by_name(study_rows({"a": a, "b": b}, base, tokens, CLASSES))["b", "all"].against
        held += against.low <= -0.02 <= against.high
    assert 0.89 <= held / 400 <= 0.99


def test_one_seed_leaves_the_chance_of_samples():
    base, (a, _), tokens = planted(np.random.default_rng(3), 1, 30, 0)
    nll = by_name(study_rows({"sft": a}, base, tokens, CLASSES))["sft", "all"].nll
    assert nll.low < nll.value < nll.high


def test_a_class_without_tokens_has_no_number():
    base, (a, _), tokens = planted(np.random.default_rng(4), 2, 5, 0)
    tokens[:, 1] = base[:, 1] = a[:, :, 1] = 0
    nll = by_name(study_rows({"sft": a}, base, tokens, CLASSES))["sft", "sensitive"].nll
    assert np.isnan([nll.value, nll.low, nll.high]).all()
    assert nll.undecided


def test_unlike_numbers_of_seeds_are_refused():
    base, (a, b), tokens = planted(np.random.default_rng(5), 2, 5, 0)
    with pytest.raises(ValueError, match="seeds"):
        study_rows({"sft": a, "cuset": b[:1]}, base, tokens, CLASSES)
