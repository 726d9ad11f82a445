"""Hostile text in the viewer is text, in the file and in a real browser."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from playwright.sync_api import expect
from view_helpers import HOSTILE, stored

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
