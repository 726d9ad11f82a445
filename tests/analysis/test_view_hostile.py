"""Hostile text in the viewer is text, in the file and in a real browser."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from playwright.sync_api import expect
from view_helpers import HOSTILE, stored

from analysis import view
from analysis.dataset import Dataset

pytest_plugins = ["view_fixtures"]


def test_hostile_text_is_text(visit: Any, page_file: Path, dataset: Dataset) -> None:
    page = visit(page_file)
    page.keyboard.press("n")
    expect(page.locator("#name")).to_have_text(HOSTILE)
    row = stored(dataset)[1]
    assert HOSTILE in row["response"]
    assert page.locator("#name").text_content() == page.locator("#prompt").text_content() == HOSTILE
    assert page.locator("#code").text_content() == row["response"].replace("\u202e", "")  # spelled out instead
    assert page.locator('#code [data-sign="U+202E"]').count() == 2
    for t in page.evaluate("spans.flatMap((s, t) => s.textContent.includes('<') ? [t] : [])")[:3]:
        page.locator(f'[data-pos="{t}"]').hover()
        expect(page.locator("#card code")).to_contain_text("<")
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 4
    assert page.evaluate("window.owned") is None


def test_the_file_holds_no_markup_of_the_corpus(page_file: Path) -> None:
    text = html.unescape(page_file.read_text(encoding="utf-8"))
    assert "<img" not in text
    assert text.count("</script>") == text.count("<script") == 4
    assert "default-src 'none'" in text
    assert "unsafe" not in text.partition("<style>")[0]


def test_hostile_names_are_text(visit: Any, dataset: Dataset, tmp_path: Path) -> None:
    """Names of model, dataset, source and licence, ids, and what a tokenizer calls its tokens."""
    data = view.view_data(dataset)
    data |= {"dataset": HOSTILE, "model": HOSTILE + "2", "vocabulary": dict.fromkeys([*data["vocabulary"], 5], HOSTILE)}
    for number, sample in enumerate(data["samples"]):
        sample |= {"source": HOSTILE, "license": HOSTILE, "source_id": None, "sample_id": f"{number}{HOSTILE}"}
    (tmp_path / "view.html").write_text(view.render_view(data), encoding="utf-8")
    page = visit(tmp_path / "view.html")
    expect(page.locator("#title")).to_have_text(HOSTILE)
    assert page.title() == f"{HOSTILE}: tokens"
    expect(page.locator("#about")).to_contain_text(HOSTILE + "2")
    assert page.locator("#facts").text_content().count(HOSTILE) == 3
    page.locator('[data-pos="5"]').hover()
    expect(page.locator("#card .alternative")).to_have_count(2)
    expect(page.locator("#card .alternative").last).to_contain_text("<img")
    page.keyboard.press("n")
    expect(page.locator("#name")).to_have_text(f"1{HOSTILE}")
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 4
    assert page.evaluate("window.owned") is None
