"""Verdicts say no more than the data do, and their notes hold no number that does not exist."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from planted_dataset import Planted, plant, unchecked

from analysis.findings import Findings, find
from analysis.verdicts import FEW_SAMPLES, NOTES


def sample(sensitive: int, confidence: float = 0.95, tokens: int = 90) -> Planted:
    labels = np.arange(tokens) < sensitive
    return Planted(["a "] * tokens, np.where(labels, confidence, 0.5).tolist(), (labels * 2).tolist())


def found(path: Path, samples: list[Planted]) -> Findings:
    return find(unchecked(plant(path, samples)), draws=200)


def test_samples_without_sensitive_tokens_decide_nothing_about_them(tmp_path: Path) -> None:
    """Sixty samples, of which too few hold a sensitive token: however sure the model is of those."""
    for bearing, expected in ((FEW_SAMPLES - 1, "undecided"), (FEW_SAMPLES + 2, "holds")):
        verdicts = found(tmp_path / str(bearing), [sample(30 if i < bearing else 0) for i in range(60)]).verdicts
        gap = next(v for v in verdicts if "higher mean" in v.claim and (v.labels, v.control) == ("category", "none"))
        assert gap.verdict == expected
        assert (f"only {bearing} samples bear on it" in gap.note) == (expected == "undecided")


def test_low_windows_of_few_samples_decide_nothing_about_where_they_fall(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    samples = []
    for i in range(60):
        p = sample(40, 0.6)
        level = 0.2 if i < 5 else 0.9
        p.confidence = np.clip(random.normal(level, 0.02, 90), 0.01, 1).tolist()
        samples.append(p)
    verdicts = [v for v in found(tmp_path, samples).verdicts if v.labels == "category" and "low windows" in v.claim]
    assert len(verdicts) == 4
    for v in verdicts:
        assert v.verdict == "undecided"
        assert "only 5 samples bear on it" in v.note


HARD = {
    "neutral": [sample(0) for _ in range(12)],
    "sensitive": [sample(90) for _ in range(12)],
    "alike": [sample(30) for _ in range(12)],
    "short": [sample(2, tokens=5) for _ in range(12)],
    "nan": [Planted(["a "] * 90, [math.nan] * 90, [0, 2] * 45) for _ in range(12)],
    "one": [sample(30)],
}


@pytest.mark.parametrize("name", HARD)
def test_a_verdict_without_an_interval_is_undecided_and_says_why(tmp_path: Path, name: str) -> None:
    of_it = found(tmp_path, HARD[name])
    assert of_it.verdicts
    for v in of_it.verdicts:
        if not (math.isfinite(v.low) and math.isfinite(v.high)):
            assert v.verdict == "undecided"
            assert re.search("no interval|only .* samples|no token|no neutral|no window|no sample", v.note), v
    words = " ".join([*(f"{v.claim} {v.note}" for v in of_it.verdicts), *of_it.missing, *of_it.notes])
    assert not re.search(r"\b(nan|inf|none)\b", words, re.IGNORECASE), words
    assert len(of_it.missing) <= 5  # a class that is missing everywhere is missed once, not under every control
    assert "nan" not in re.sub(r'"(dataset|model)": ".*?"', "", of_it.to_json().lower())


def test_a_p_that_floating_point_does_not_hold_is_small_not_nothing(tmp_path: Path) -> None:
    notes = [v.note for v in found(tmp_path, [sample(45, tokens=900) for _ in range(30)]).verdicts if "KS" in v.note]
    assert any("p < 1e-308" in note for note in notes)
    assert not any(re.search(r"p 0\b(?!\.)", note) for note in notes)


def test_the_notes_explain_the_intervals() -> None:
    words = " ".join(NOTES)
    for said in ("95 %", "bootstrap", "samples, not tokens", "Wilson", "Student", "without correction", "independent"):
        assert said in words
