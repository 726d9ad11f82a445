"""What the viewer draws in a real browser: texts, and what is missing."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import expect
from view_helpers import counts, expected_counts, stored

from analysis import view
from analysis.dataset import Dataset
from curate.score import StubScorer

pytest_plugins = ["view_fixtures"]


def test_every_token_is_drawn_with_its_own_text(visit: Any, page_file: Path, dataset: Dataset) -> None:
    page = visit(page_file)
    first = stored(dataset)[0]
    assert page.locator("#code").text_content() == first["response"]  # characters beyond the BMP among them
    drawn = page.locator(".t").all_text_contents()
    tokens = dataset.query("SELECT token FROM tokens WHERE sample_id = $id ORDER BY pos", {"id": first["sample_id"]})
    whole = [(d, t) for d, t in zip(drawn, tokens["token"], strict=True) if t and "\ufffd" not in t and d]
    assert len(whole) > 100
    seen = set(zip(first["char_start"], first["char_end"], strict=True))
    assert len(seen) < len(drawn)  # tokens that share a character: only the first of them is drawn with it
    assert sum(d == t for d, t in whole) == len(whole)
    levels = page.evaluate("spans.map(s => Number(s.style.getPropertyValue('--level')))")
    np.testing.assert_allclose(levels, 1 - np.exp(first["half"].astype(float)), atol=0.0051)
    classes = page.evaluate("spans.map(s => s.className.match(/ g(\\d+)/)[1]).map(Number)")
    assert classes == list(first["category"])
    assert {0, 2, 8} <= set(classes)


def test_text_that_no_token_covers_is_shown_too(visit: Any, build: Callable[..., Dataset], tmp_path: Path) -> None:
    """With --context raw the tokens are those of the code alone."""
    dataset = build("raw", StubScorer(), context="raw")
    view.write_view(dataset, tmp_path / "view.html")
    page = visit(tmp_path / "view.html", scheme="dark")
    row = stored(dataset)[0]
    assert row["response"].startswith("Here is the kernel:")
    assert page.locator("#code").text_content() == row["response"]
    assert page.locator("#code > s").first.text_content().startswith("Here is the kernel:")
    assert "Here" not in "".join(page.locator(".t").all_text_contents())
    assert counts(page) == expected_counts(row, 0.1)


def test_without_scores_it_shows_labels_and_says_so(visit: Any, build: Callable[..., Dataset], tmp_path: Path) -> None:
    dataset = build("unscored", skip_scoring=True)
    view.write_view(dataset, tmp_path / "view.html")
    page = visit(tmp_path / "view.html", scheme="dark")
    assert "Scores are missing" in page.locator("#notice").text_content()
    assert page.locator("#tau").is_hidden()
    assert page.locator("#mini").is_hidden()
    assert page.locator(".t.g8").count() > 0
    page.locator(".t.g8").first.hover()
    expect(page.locator("#card")).to_contain_text("launch")
    assert "probability" not in page.locator("#card").text_content()
    for key in ("w", "m", "ArrowRight", "n"):
        page.keyboard.press(key)


def test_figures_that_are_no_numbers_do_no_harm(dataset: Dataset, visit: Any, tmp_path: Path) -> None:
    """Damaged files: the page says that there is no figure, and goes on."""
    data = view.view_data(dataset, limit=1)
    table = np.frombuffer(base64.b64decode(data["confidences"]), "<f8").copy()
    table[:] = np.nan
    data["confidences"] = base64.b64encode(table.tobytes()).decode()
    (tmp_path / "view.html").write_text(view.render_view(data), encoding="utf-8")
    page = visit(tmp_path / "view.html")
    page.locator('[data-pos="40"]').hover()
    expect(page.locator("#card")).to_contain_text("probability–")
