"""The sliders of the viewer in a real browser, against `curate.weights`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from view_helpers import KNOBS, counts, expected_counts, stored

from analysis.dataset import Dataset
from curate.config import BuildConfig
from curate.weights import confidence_mask, cuda_mask, sample_weight, token_weight, weigh, window_means

pytest_plugins = ["view_fixtures"]


def test_sliders_give_the_counts_and_weights_of_python(visit: Any, page_file: Path, dataset: Dataset) -> None:
    page = visit(page_file)
    row = stored(dataset)[0]
    at_start = counts(page)
    assert at_start == expected_counts(row, 0.1)
    for tau in (0.5, 0.9):
        page.locator("#tau-range").fill(str(tau))
        assert counts(page) == expected_counts(row, tau) != at_start
        assert page.locator("#tau").input_value() == str(tau)
    for tau, lambda_, window in KNOBS:
        page.locator("#tau").fill(str(tau))
        page.locator("#lambda").fill(str(lambda_))
        page.locator("#window").fill(str(window))
        assert counts(page) == expected_counts(row, tau)
        config = BuildConfig(tau=tau, lambda_=lambda_, window=window)
        weights, sample = weigh(row["half"], row["location"], row["in_code"], config)
        said = page.locator("#weight").text_content()
        assert f"= {sample.weight:.4f}; sum of M = {weights.sum(dtype=float):.1f}." in said
        classes = page.evaluate("spans.map(s => s.classList.contains('k0'))")
        assert classes == (weights == 0).tolist()
    page.locator("#reset").click()
    assert counts(page) == at_start


def test_masks_and_windows_are_those_of_python_to_the_bit(visit: Any, page_file: Path, dataset: Dataset) -> None:
    page = visit(page_file)
    for n, row in enumerate(stored(dataset)):
        page.evaluate("n => open(n)", n)
        cuda = cuda_mask(row["location"], launch_scope="setup", device_functions=True)
        for tau, lambda_, window in KNOBS:
            mask = page.evaluate("([t, l]) => Array.from(maskOf(columns, t, l).weight)", [tau, lambda_])
            assert mask == token_weight(confidence_mask(row["half"], tau), cuda, lambda_).tolist()
            for scope in ("all", "code", "cuda"):
                want = sample_weight(row["half"], row["in_code"], cuda, window=window, region_scope=scope)
                got = page.evaluate("([l, s]) => windowsOf(columns, l, s).lowest", [window, scope])
                assert (got["mean"], got["weight"], got["start"]) == (want.min_confidence, want.weight, want.min_start)
            means = page.evaluate("l => Array.from(windowsOf(columns, l, 'all').means)", window)
            assert means == window_means(np.exp(row["half"].astype(float)), window).tolist()
