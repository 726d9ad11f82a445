"""Statistics from counts against scipy and numpy on the tokens themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.statistics import Counts, auc, cliffs_delta, ks, means, medians

CONFIDENCES = st.lists(st.integers(0, 12).map(lambda n: n / 12), min_size=2, max_size=60)


def counted(sensitive: list[float], neutral: list[float]) -> Counts:
    values = np.unique(np.array(sensitive + neutral, dtype=float))
    numbers = [(values[:, None] == np.array(v, dtype=float)[None]).sum(axis=1) for v in (sensitive, neutral)]
    return Counts(values, *numbers)


@settings(max_examples=60, deadline=None)
@given(CONFIDENCES, CONFIDENCES)
def test_equals_the_statistics_of_single_tokens(sensitive: list[float], neutral: list[float]) -> None:
    counts = counted(sensitive, neutral)
    assert counts.tokens == (len(sensitive), len(neutral))
    assert means(counts) == pytest.approx((np.mean(sensitive), np.mean(neutral)))
    assert medians(counts) == pytest.approx((np.median(sensitive), np.median(neutral)))
    expected = stats.ks_2samp(sensitive, neutral, method="asymp")
    assert ks(counts) == pytest.approx((expected.statistic, expected.pvalue))
    u = stats.mannwhitneyu(sensitive, neutral, method="asymptotic").statistic if len(counts.values) > 1 else None
    area = 0.5 if u is None else u / (len(sensitive) * len(neutral))
    assert auc(counts) == pytest.approx(area)
    assert cliffs_delta(counts) == pytest.approx(2 * area - 1)


def test_a_class_without_tokens_has_no_statistics() -> None:
    for counts in (counted([], [0.1, 0.9]), counted([0.1], []), counted([], [])):
        assert all(math.isnan(found) for found in (auc(counts), cliffs_delta(counts), *ks(counts)))
    for statistic in (means, medians):
        found = statistic(counted([], [0.5]))
        assert math.isnan(found[0])
        assert found[1] == 0.5


def test_classes_apart() -> None:
    counts = counted([0.9] * 40, [0.1] * 60)
    assert (auc(counts), cliffs_delta(counts), ks(counts)[0]) == (1.0, 1.0, 1.0)
    assert ks(counts)[1] < 1e-20
