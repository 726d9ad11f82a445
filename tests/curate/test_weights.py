"""Equations (2) to (8): planted values, and the fast windows against a naive double loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.config import BuildConfig
from curate.taxonomy import Location
from curate.weights import confidence_mask, cuda_mask, sample_weight, token_weight, weigh, window_bounds, window_means

probabilities = st.lists(st.floats(2**-14, 1.0), min_size=1, max_size=60)


def naive_region(t: int, length: int, window: int) -> list[int]:
    """R_t as the paper prints it: t from 1, max(1, t - floor(l/2)) <= j <= min(T, t + ceil(l/2) - 1)."""
    if length < window:
        return list(range(1, length + 1))
    return [j for j in range(1, length + 1) if max(1, t - window // 2) <= j <= min(length, t + -(-window // 2) - 1)]


@given(st.integers(1, 80), st.integers(1, 100))
def test_window_bounds_equal_the_printed_definition(length: int, window: int) -> None:
    start, end = window_bounds(length, window)
    for t in range(1, length + 1):
        assert list(range(start[t - 1] + 1, end[t - 1] + 1)) == naive_region(t, length, window)


@given(probabilities, st.integers(1, 70))
def test_window_means_equal_a_double_loop(values: list[float], window: int) -> None:
    c = np.array(values)
    naive = [np.mean([c[j - 1] for j in naive_region(t, len(c), window)]) for t in range(1, len(c) + 1)]
    np.testing.assert_allclose(window_means(c, window), naive, rtol=1e-12)


@given(probabilities, st.integers(1, 70), st.data())
def test_sample_weight_equals_a_double_loop(values: list[float], window: int, data: st.DataObject) -> None:
    logprob = np.log(np.array(values)).astype(np.float16)
    flags = st.lists(st.booleans(), min_size=len(values), max_size=len(values))
    in_code, mcuda = np.array(data.draw(flags)), np.array(data.draw(flags))
    scope = data.draw(st.sampled_from(["all", "code", "cuda"]))
    chosen = [i for i in range(len(values)) if scope == "all" or in_code[i]] or list(range(len(values)))
    c = np.exp(logprob.astype(np.float64))[chosen]
    centres = [k for k, i in enumerate(chosen) if scope != "cuda" or mcuda[i]] or list(range(len(chosen)))
    regions = {k: naive_region(k + 1, len(chosen), window) for k in centres}
    means = {k: float(np.mean([c[j - 1] for j in region])) for k, region in regions.items()}
    result = sample_weight(logprob, in_code, mcuda, window=window, region_scope=scope)
    assert result.min_confidence == pytest.approx(min(means.values()), rel=1e-9)
    assert result.weight == pytest.approx(1 - min(means.values()), abs=1e-9)
    lowest = [chosen[regions[k][0] - 1] for k in centres if means[k] <= min(means.values()) + 1e-12]
    assert result.min_start in lowest


def test_mask_is_strict_at_tau() -> None:
    tau = float(np.exp(np.float32(np.float16(-2.0))))  # log tau is a value that float16 holds
    below, at, above = (
        np.nextafter(np.float16(-2), np.float16(-9)),
        np.float16(-2),
        np.nextafter(np.float16(-2), np.float16(0)),
    )
    assert confidence_mask(np.array([below, at, above]), tau).tolist() == [False, False, True]


def test_tau_zero_keeps_every_token_and_tau_one_none() -> None:
    logprob = np.array([-65504, -1, 0], np.float16)
    assert confidence_mask(logprob, 0.0).all()
    assert not confidence_mask(logprob, 1.0).any()


def test_token_weight_is_one_of_four_values() -> None:
    weights = token_weight(np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool), 0.5)
    assert weights.tolist() == [0.0, 0.5, 1.0, 1.5]


@pytest.mark.parametrize(
    ("launch_scope", "device_functions", "inside"),
    [("setup", True, {1, 2, 3, 4}), ("expr", True, {1, 2, 3}), ("setup", False, {1, 3, 4}), ("expr", False, {1, 3})],
)
def test_cuda_mask_follows_its_two_options(launch_scope: str, device_functions: bool, inside: set[int]) -> None:
    mask = cuda_mask(np.array(list(Location), np.uint8), launch_scope=launch_scope, device_functions=device_functions)
    assert set(np.flatnonzero(mask)) == inside


def test_code_windows_do_not_see_the_prose_between() -> None:
    """Code of confidence 0.9 around prose of 0.1: over code alone the minimum is 0.9, over all tokens it is 0.1."""
    logprob = np.log(np.array([0.9, 0.9, 0.1, 0.1, 0.9, 0.9])).astype(np.float16)
    in_code = np.array([1, 1, 0, 0, 1, 1], bool)
    nothing = np.zeros(6, bool)
    code = sample_weight(logprob, in_code, nothing, window=2, region_scope="code")
    everything = sample_weight(logprob, in_code, nothing, window=2, region_scope="all")
    assert code.min_confidence == pytest.approx(0.9, abs=1e-3)
    assert (everything.min_confidence, everything.min_start) == (pytest.approx(0.1, abs=1e-3), 2)


def test_lambda_zero_gives_the_confidence_mask_alone() -> None:
    logprob = np.array([-3, -1, -0.5, -4], np.float16)
    location = np.array([1, 1, 0, 3], np.uint8)
    weights, _ = weigh(logprob, location, np.ones(4, bool), BuildConfig(lambda_=0.0))
    assert weights.tolist() == [0, 1, 1, 0]
    weights, _ = weigh(logprob, location, np.ones(4, bool), BuildConfig())
    assert weights.tolist() == [1, 2, 1, 1]
