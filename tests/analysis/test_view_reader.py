"""What a reader does with the viewer in a real browser: hover, links, keys, filters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import expect
from view_helpers import HOSTILE, stored

from analysis.dataset import Dataset
from curate.weights import window_means

pytest_plugins = ["view_fixtures"]


def test_hover_shows_the_figures_of_the_token(visit: Any, page_file: Path, dataset: Dataset) -> None:
    page = visit(page_file)
    row, t = stored(dataset)[0], 5
    page.locator(f'[data-pos="{t}"]').hover()
    card = page.locator("#card")
    figures = dict(zip(card.locator("th").all_text_contents(), card.locator("td").all_text_contents(), strict=True))
    half = float(np.float16(np.log(0.5)))  # as it is stored
    assert figures["probability"] == f"{np.exp(half):.4f}"
    assert figures["rank"] == str(row["rank"][t])
    assert figures["entropy"] == f"{np.float16(row['entropy'][t]):.2f} nats"
    assert figures["window mean"] == "no window here"  # prose before the code
    assert figures["mask"] == "M = 1 (1 + 1 × 0)"
    alternatives = card.locator(".alternative").all_text_contents()
    assert len(alternatives) == 2
    assert alternatives[0].endswith(f"{np.exp(half):.4f} ← this token")
    assert alternatives[1].endswith(f"{np.exp(float(np.float16(np.log(0.5) - 1))):.4f}")
    page.mouse.move(5, 5)
    assert card.is_hidden()


def test_a_link_leads_to_its_token(visit: Any, page_file: Path, dataset: Dataset) -> None:
    third = stored(dataset)[2]["sample_id"]
    page = visit(page_file, f"#{third[:9]}&17")
    page.wait_for_selector(".at")
    assert page.locator(".at").get_attribute("data-pos") == "17"
    assert page.locator("#name").text_content() == "third"
    assert page.url.endswith(f"#{third}&17")
    expect(page.locator("#card")).to_contain_text("17 of")
    page.evaluate("location.hash = 'no%such&x'")
    expect(page.locator("#notice")).to_be_visible()
    expect(page.locator("#name")).to_have_text("first")


def test_keys(visit: Any, page_file: Path, dataset: Dataset) -> None:
    page = visit(page_file)
    found = stored(dataset)
    for key, name in (("n", found[1]["source_id"]), ("n", "third"), ("n", "third"), ("p", HOSTILE), ("p", "first")):
        page.keyboard.press(key)
        expect(page.locator("#name")).to_have_text(name)
    for key, position in (("ArrowRight", 0), ("ArrowRight", 1), ("ArrowLeft", 0), ("End", len(found[0]["rank"]) - 1)):
        page.keyboard.press(key)
        assert page.locator(".at").get_attribute("data-pos") == str(position)
        expect(page.locator("#card")).to_contain_text(f"{position} of")
        expect(page.locator("#card")).to_be_visible()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    below = int(page.locator(".at").get_attribute("data-pos"))
    start = found[0]["char_start"][below]
    assert found[0]["response"][:start] == "Here is the kernel:\n"  # the empty line
    page.keyboard.press("w")
    means = window_means(np.exp(found[0]["half"][found[0]["in_code"]].astype(float)), 256)
    centre = np.flatnonzero(found[0]["in_code"])[np.argmin(means)]
    assert page.locator(".at").get_attribute("data-pos") == str(centre)
    page.keyboard.press("m")
    assert page.locator("#code").get_attribute("data-mode") == "mask"
    page.keyboard.press("Escape")
    assert page.locator("#card").is_hidden()
    page.keyboard.press("d")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 29)"
    page.keyboard.press("/")
    page.keyboard.type("SCALE3")  # stands in the third sample alone; letters are no commands here
    assert page.locator("#found").text_content() == "0 here; in 1 other samples"
    page.keyboard.press("Enter")
    page.wait_for_selector(".hit")
    expect(page.locator("#name")).to_have_text("third")
    assert "scale3" in "".join(page.locator(".hit").all_text_contents())


def test_a_category_can_be_shown_alone(visit: Any, page_file: Path, dataset: Dataset) -> None:
    page = visit(page_file)
    category = np.asarray(stored(dataset)[0]["category"])
    page.locator('#legend input[value="8"]').check()
    assert page.locator(".t:not(.off)").count() == np.sum(category == 8) > 0
    page.locator("#all").click()
    assert page.locator(".off").count() == 0
