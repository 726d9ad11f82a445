"""The report as a reader gets it: files, order, what is missing, and hostile names."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from playwright.sync_api import sync_playwright

from analysis.dataset import open_datasets
from analysis.figures import FIGURES
from analysis.report import report_folder, run
from curate.errors import DatasetError, OptionError
from curate.schema import REJECTED
from curate.store import funnel, write_part
from tests.analysis.planted_dataset import Planted, plant

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HOSTILE = "</title><script>alert(1)</script><img src=x onerror=alert(2)> {{ 7 * 7 }} $x_"

PRINTED = (1031, 702)
"""Pixels of an A4 page on its side inside margins of 12 mm: 273 by 186 mm."""


class Page(HTMLParser):
    """Elements with their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def planted(path: Path, name: str, gap: float = 0.2, samples: int = 14) -> Path:
    """Sensitive tokens surer by `gap`; the manifest says what the figures ask of it."""
    random = np.random.default_rng(5)
    tokens = [Planted(
        ["int ", "x", "=", " 1", ";\n"] * 24, np.clip(random.normal(0.5, 0.1, 120) + gap * np.tile([1, 0, 0, 0, 0], 24), 0.01, 1),
        [3, 0, 0, 0, 0] * 24,
    ) for _ in range(samples)]  # fmt: skip
    return finish(plant(path, tokens, name))


def finish(path: Path) -> Path:
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["config"] |= {
        "tau": 0.1, "lambda": 1.0, "window": 256, "region_scope": "code", "launch_scope": "setup", "device_functions": True,
    }  # fmt: skip
    accepted = manifest["counts"]["accepted"]
    manifest["counts"] |= {
        "read": accepted + 3,
        "rejected": 3,
        "failed": 0,
        "refused": {"parse": {"no_kernel": 3}},
        "marked": {},
    }
    manifest["sources"] = [{"name": HOSTILE, "kind": "jsonl", "bytes": 1, "sha256": "00"}]
    (path / "manifest.json").write_text(json.dumps(manifest))
    refused = pl.DataFrame({"id": ["7", "8", "9"], "stage": "parse", "reason": "no_kernel"}).with_columns(
        pl.lit(None, pl.String).alias(name) for name in ("source", "source_id", "detail")
    )
    write_part(refused, REJECTED, path / "rejected" / "part-0.parquet")
    return path


def test_one_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = planted(tmp_path / "data", HOSTILE)
    assert run([str(path), "--draws", "200"]) == 0
    out = tmp_path / "data-report"
    assert capsys.readouterr().out == f"{out / 'index.html'}\n"
    assert sorted(p.name for p in path.iterdir()) == ["manifest.json", "regions", "rejected", "samples"]

    page = Page((out / "index.html").read_text())
    verdicts = page.text.index("Verdicts")
    assert verdicts < page.text.index("Findings\n") < page.text.index("Figures\n") < page.text.index("Funnel\n")
    assert "✓ holds" in page.text
    found = json.loads((out / "findings.json").read_text())["datasets"]
    assert [f["dataset"] for f in found] == [HOSTILE]
    gap = next(t["gap"] for t in found[0]["tokens"] if (t["labels"], t["control"]) == ("category", "none"))
    assert gap == pytest.approx(0.2, abs=0.03)
    assert f"{gap:.3f}" in page.text
    rows = list(csv.DictReader((out / "findings.csv").read_text().splitlines()))
    assert {"verdict", "tokens", "category", "windows"} <= {r["section"] for r in rows}

    drawn = {attrs["id"].removeprefix("figure-") for tag, attrs in page.elements if tag == "figure"}  # type: ignore[union-attr]
    for figure in FIGURES:
        files = [(out / f"{figure.name}.{kind}").is_file() for kind in ("png", "svg", "csv")]
        assert files == [figure.name in drawn] * 3, figure.name
        assert figure.title in page.text
    assert {"density", "categories", "windows_of_sample", "masks", "weights", "funnel"} <= drawn
    assert "models" not in drawn
    assert "two or more scored datasets" in page.text


def test_the_page_is_inert_and_needs_no_network(tmp_path: Path) -> None:
    path = planted(tmp_path / "data", HOSTILE)
    run([str(path), "--draws", "100"])
    content = (tmp_path / "data-report" / "index.html").read_text()
    page = Page(content)
    assert not [tag for tag, _ in page.elements if tag in ("script", "iframe", "object", "link")]
    images = [attrs["src"] or "" for tag, attrs in page.elements if tag == "img"]
    assert images
    assert all(src.startswith("data:image/") for src in images)
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]
    assert not re.findall(r"(?:href|src)=[\"'](?!#|data:)", content)
    assert page.text.count(HOSTILE) >= 3  # as text: in the title, as the model, as a source
    policies = [attrs["content"] or "" for tag, attrs in page.elements if attrs.get("http-equiv")]
    assert policies[0].startswith("default-src 'none'")
    assert "script-src" not in policies[0]
    assert "prefers-color-scheme: dark" in content
    assert "@media print" in content


def test_several_datasets_stand_beside_each_other(tmp_path: Path) -> None:
    up, down = planted(tmp_path / "up", "sure", 0.2), planted(tmp_path / "down", "unsure", -0.2)
    bare = finish(plant(tmp_path / "bare", [Planted(["a"], None, [0])], "unscored", skip_scoring=True))
    out = tmp_path / "r"
    run([str(up), str(down), str(bare), "--out", str(out), "--draws", "100"])
    page = Page((out / "index.html").read_text())
    assert "✓ holds" in page.text
    assert "✗ reversed" in page.text
    assert (out / "models.png").is_file()
    assert "Without unscored: no scores." in page.text
    assert "unscored: The dataset has no scores" in page.text
    assert len(list(csv.DictReader((out / "density.csv").read_text().splitlines()))) > 0
    assert {r["dataset"] for r in csv.DictReader((out / "findings.csv").read_text().splitlines())} == {"sure", "unsure"}
    run([str(up), "--out", str(out), "--draws", "100"])  # the figure of several does not stay behind
    assert not (out / "models.png").exists()


@pytest.mark.parametrize(("samples", "words"), [([], "no sample"), ([Planted(["a b"], None, [0])], "--skip-scoring")])
def test_without_scores_the_report_says_so(tmp_path: Path, samples: list[Planted], words: str) -> None:
    path = finish(plant(tmp_path / "data", samples, skip_scoring=bool(samples)))
    assert run([str(path), "--draws", "100"]) == 0
    page = Page((tmp_path / "data-report" / "index.html").read_text())
    assert words in page.text
    assert "No verdict" in page.text
    assert [attrs["id"] for tag, attrs in page.elements if tag == "figure"] == ["figure-funnel"]


def test_only_neutral_tokens(tmp_path: Path) -> None:
    samples = [Planted(["a ", "b ", "c "] * 30, [0.5, 0.0, 0.7] * 30, [0] * 90) for _ in range(3)]
    path = finish(plant(tmp_path / "data", samples))
    assert run([str(path), "--draws", "100"]) == 0
    page = Page((tmp_path / "data-report" / "index.html").read_text())
    assert "No sensitive code token" in page.text
    assert "nan" not in re.findall(r"\bnan\b", page.text.lower())


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "begun" / ".cuset").mkdir(parents=True)
    for name, words in (("folder", "no manifest"), ("begun", "has not ended"), ("none", "no such folder")):
        with pytest.raises(DatasetError, match=words):
            run([str(tmp_path / name)])
    path = plant(tmp_path / "data", [])
    (tmp_path / "file").write_text("x")
    for out, words in ((path, "lies in"), (path / "report", "lies in"), (tmp_path / "file", "is a file")):
        with pytest.raises(OptionError, match=words):
            run([str(path), "--out", str(out)])
    with pytest.raises(OptionError, match="--draws"):
        run([str(path), "--draws", "1"])
    with pytest.raises(OptionError, match="give the folder"):
        run([])
    ended = subprocess.run(
        [sys.executable, "-m", "analysis.report", str(tmp_path / "folder")],
        capture_output=True,
        text=True,
        env=os.environ,
    )
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith("error: ")


def test_report_folder_is_beside_the_dataset(tmp_path: Path) -> None:
    assert report_folder([tmp_path / "x" / "demo"]) == tmp_path / "x" / "demo-report"
    assert report_folder([tmp_path / "x" / "demo", tmp_path / "y" / "mine"]) == tmp_path / "x" / "demo-mine-report"


def test_funnel_counts_down_to_the_accepted(tmp_path: Path) -> None:
    (dataset,) = open_datasets([planted(tmp_path / "data", "m", samples=2)])
    assert funnel(dataset.manifest["counts"]) == [("parse", "no_kernel", 3, 2)]


def test_rows_that_failed_are_taken_away_once() -> None:
    counts = {"read": 9, "accepted": 4, "rejected": 3, "failed": 2, "refused": {"parse": {"no_kernel": 3, "failed": 2}}}
    assert funnel(counts) == [("parse", "no_kernel", 3, 6), ("parse", "failed", 2, 4)]


def test_in_a_browser(tmp_path: Path) -> None:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    run([str(planted(tmp_path / "data", HOSTILE)), "--draws", "100"])
    page_file = tmp_path / "data-report" / "index.html"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        papers = set()
        for scheme in ("light", "dark"):
            page = browser.new_page(color_scheme=scheme, viewport={"width": 1200, "height": 900})
            said: list[str] = []
            asked: list[str] = []
            page.on("console", lambda message, said=said: said.append(message.text))
            page.on("pageerror", lambda error, said=said: said.append(str(error)))
            page.on("dialog", lambda dialog, said=said: (said.append(dialog.message), dialog.dismiss()))
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.goto(page_file.as_uri())
            assert HOSTILE in page.inner_text("header")
            assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 300)")
            assert page.evaluate("document.images.length") >= 8
            # no table is cut: a printed page cannot be scrolled
            assert page.evaluate("[...document.querySelectorAll('.scroll')].every(e => e.scrollWidth <= e.clientWidth)")
            papers.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert not said
            assert not [url for url in asked if not url.startswith(("data:", page_file.as_uri()))]
            # pictures are dark on a dark screen and as they are on paper, where each is on one page with its caption
            filters = "[...new Set([...document.images].map(i => getComputedStyle(i).filter))]"
            assert page.evaluate(filters) == (["none"] if scheme == "light" else ["invert(0.91) hue-rotate(180deg)"])
            page.emulate_media(media="print")
            page.set_viewport_size({"width": PRINTED[0], "height": PRINTED[1]})
            assert page.evaluate(filters) == ["none"]
            heights = page.evaluate(
                "[...document.querySelectorAll('figure')].map(f => f.getBoundingClientRect().height)"
            )
            assert max(heights) < PRINTED[1]
            assert page.evaluate(
                "[...document.querySelectorAll('figure, tr')].every(e => getComputedStyle(e).breakInside === 'avoid')"
            )
        assert len(papers) == 2
        browser.close()
