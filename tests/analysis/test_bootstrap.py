"""Intervals and tests by samples: they find a planted gap, and stay quiet in about 95 of 100 draws without one."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import signal, stats

from analysis.bootstrap import ShiftTest, bootstrap, divided, interval, paired, resampled, shifted

SAMPLES, TOKENS, REPEATS = 40, 120, 200


def draw(random: np.random.Generator, gap: float) -> list[tuple[NDArray[np.float64], NDArray[np.bool_]]]:
    """Samples of different level, whose neighbouring tokens are alike and whose labels form runs."""
    result = []
    for _ in range(SAMPLES):
        noise = signal.lfilter([1], [1, -0.8], random.normal(0, 0.1, TOKENS + 50))[50:]
        level = random.normal(0.5, 0.1)
        labels = np.zeros(TOKENS, bool)
        for start in random.integers(0, TOKENS, random.integers(2, 6)):
            labels[start : start + 10] = True
        result.append((level + noise + gap * labels, labels))
    return result


def joined(samples: list[tuple[NDArray[np.float64], NDArray[np.bool_]]]) -> tuple[NDArray[np.generic], ...]:
    confidence, labels = (np.concatenate(x) for x in zip(*samples, strict=True))
    return confidence, labels, np.array([len(c) for c, _ in samples])


def sums_of(samples: list[tuple[NDArray[np.float64], NDArray[np.bool_]]]) -> NDArray[np.float64]:
    return np.array([(c[s].sum(), c[~s].sum(), s.sum(), (~s).sum()) for c, s in samples])


def gap_of(totals: NDArray[np.floating]) -> NDArray[np.float64]:
    found = divided(totals[..., :2], totals[..., 2:])
    return found[..., 0] - found[..., 1]


@pytest.fixture(scope="module")
def quiet() -> dict[str, int]:
    """Of `REPEATS` data sets without a gap, in how many each test speaks up."""
    random = np.random.default_rng(5)
    loud = dict.fromkeys(("bootstrap", "student", "wilcoxon", "shift", "ks of tokens"), 0)
    for repeat in range(REPEATS):
        samples = draw(random, 0.0)
        sums = sums_of(samples)
        _, (low, high) = bootstrap(sums, gap_of, draws=300, seed=repeat)
        found = paired(np.subtract(*divided(sums[:, :2], sums[:, 2:]).T))
        test = ShiftTest(draws=300, seed=repeat)
        test.add(*joined(samples))
        pooled = [np.concatenate([c[s == of_class] for c, s in samples]) for of_class in (True, False)]
        loud["bootstrap"] += not low <= 0 <= high
        loud["student"] += not found.t_interval[0] <= 0 <= found.t_interval[1]
        loud["wilcoxon"] += found.wilcoxon_p < 0.05
        loud["shift"] += test.p < 0.05
        loud["ks of tokens"] += stats.ks_2samp(*pooled).pvalue < 0.05
    return loud


@pytest.mark.parametrize("test", ["bootstrap", "student", "wilcoxon", "shift"])
def test_quiet_in_about_95_of_100_draws_without_a_gap(quiet: dict[str, int], test: str) -> None:
    low, high = stats.binom.ppf([0.001, 0.999], REPEATS, 0.05)
    assert low <= quiet[test] <= high + 0.02 * REPEATS  # a percentile interval of 40 samples is a little narrow


def test_the_paper_s_test_is_loud_on_the_same_draws(quiet: dict[str, int]) -> None:
    """Which is why it is not relied on."""
    assert quiet["ks of tokens"] > 0.2 * REPEATS


@pytest.mark.parametrize("gap", [0.2, -0.2])
def test_a_planted_gap_is_found(gap: float) -> None:
    covered = 0
    for repeat in range(40):
        samples = draw(np.random.default_rng(repeat), gap)
        sums = sums_of(samples)
        value, (low, high) = bootstrap(sums, gap_of, draws=300)
        assert value == pytest.approx(gap, abs=0.1)
        assert (low > 0, high < 0) == (gap > 0, gap < 0)
        covered += low <= gap <= high
        found = paired(np.subtract(*divided(sums[:, :2], sums[:, 2:]).T))
        assert found.wilcoxon_p < 0.01
        test = ShiftTest(300)
        test.add(*joined(samples))
        assert test.p < 0.01
    assert covered >= 33  # of 40 at 95 %: 33 or fewer once in two thousand


def test_resampled_draws_whole_samples_with_replacement() -> None:
    identity = np.eye(7)
    times = resampled(identity, draws=500)
    assert times.shape == (500, 7)
    assert (times.sum(axis=1) == 7).all()
    assert times.mean() == 1
    assert times.var() == pytest.approx(6 / 7, rel=0.1)  # binomial(7, 1/7)
    assert (resampled(identity, 500, seed=0) == times).all()
    assert (resampled(identity, 500, seed=1) != times).any()


def test_equals_the_bootstrap_of_scipy() -> None:
    sums = sums_of(draw(np.random.default_rng(3), 0.1))
    _, ours = bootstrap(sums, gap_of, draws=4000)
    theirs = stats.bootstrap(
        tuple(sums.T), lambda *x, axis: gap_of(np.stack([v.sum(axis=axis) for v in x], axis=-1)), paired=True,
        method="percentile", n_resamples=4000, rng=np.random.default_rng(1),
    ).confidence_interval  # fmt: skip
    width = theirs.high - theirs.low
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.06 * width)


def test_shifts_are_those_of_rolled_labels() -> None:
    random = np.random.default_rng(0)
    samples = [(random.random(n), random.random(n) < 0.4) for n in [*random.integers(2, 60, 80).tolist(), 1, 400]]
    samples += [
        (random.random(9), np.ones(9, bool)),
        (random.random(9), np.zeros(9, bool)),
        (np.empty(0), np.empty(0, bool)),
    ]
    expected = sorted(
        [c[r].mean() - c[~r].mean() for r in (np.roll(s, k) for k in range(len(s)))]
        for c, s in samples
        if 0 < s.sum() < len(s)
    )
    found = sorted(
        list(row[:n]) for rows, lengths in shifted(*joined(samples)) for row, n in zip(rows, lengths, strict=True)
    )
    assert len(found) == len(expected) > 70
    assert all(ours == pytest.approx(theirs) for ours, theirs in zip(found, expected, strict=True))


def test_nothing_to_draw_from_has_no_interval() -> None:
    assert np.isnan(bootstrap(np.empty((0, 4)), gap_of)[1]).all()
    assert np.isnan(bootstrap(np.array([[1.0, 0.0, 2.0, 0.0]]), gap_of)[1]).all()
    assert np.isnan(interval(np.array([np.nan] * 10 + [1.0] * 90))).all()
    assert np.isnan(ShiftTest().p)
    for differences, samples in (([], 0), ([0.1], 1), ([np.nan, 0.1, 0.1], 2)):
        found = paired(np.array(differences, dtype=float))
        assert found.samples == samples
        assert np.isnan(found.wilcoxon_p)
