"""The token viewer in headless Chromium: 300 generated samples of 1,500 tokens."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from analysis.view import render_view, view_data
from curate.taxonomy import CATEGORIES
from tests.benchmarks.figures import Figure, timed

__all__ = ["measure"]

_SAMPLES, _TOKENS = 300, 1500
_TEXT = "    out[i] = alpha * x[i];\n" * (3 * _TOKENS // 27 + 1)

# The time from the event to the frame that shows it: the second frame begins when the first has been painted.
_REDRAW = """async () => {
    const slider = document.getElementById("SLIDER"), times = [];
    for (let i = 0; i < 20; i++) {
        const began = performance.now();
        slider.value = Number(slider.max) * (i + 1) / 22;
        slider.dispatchEvent(new Event("input", { bubbles: true }));
        await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        times.push(performance.now() - began);
    }
    return times.sort((a, b) => a - b)[18];
}"""
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


class _Generated:
    """Answers the queries of `view_data` with generated samples; nothing is known to compress well in them."""

    name = model = "generated"
    samples, scored, path = _SAMPLES, True, Path()

    def __init__(self, topk: int) -> None:
        self.topk = topk
        options = {"tau": 0.1, "lambda": 1.0, "window": 256, "region_scope": "code"}
        self.manifest = {"config": {**options, "launch_scope": "setup", "device_functions": True}}

    def query(self, sql: str, parameters: Any = None) -> Any:
        import polars as pl

        if "DESCRIBE" in sql:
            return pl.DataFrame({"column_name": ["logprob", "entropy", *(["topk_ids"] if self.topk else [])]})
        if "token_id" in sql:
            return pl.DataFrame({"token_id": range(49152), "text": [f" word{i}" for i in range(49152)]})
        draw = np.random.default_rng(0)
        return pl.DataFrame([self._row(n, draw) for n in range(_SAMPLES)])

    def _row(self, n: int, draw: np.random.Generator) -> dict[str, Any]:
        logprob = np.log(np.maximum(draw.beta(2.0, 0.6, _TOKENS), 1e-9))
        starts = 3 * np.arange(_TOKENS)
        category = np.where(draw.random(_TOKENS) < 0.3, draw.integers(1, len(CATEGORIES), _TOKENS), 0)
        row = {
            "sample_id": f"{n:032x}", "source": "generated", "source_id": None, "license": None, "prompt": "Scale.",
            "response": _TEXT, "sample_weight": 0.5, "prompt_tokens": 0,
            "input_ids": draw.integers(0, 49152, _TOKENS).tolist(), "char_start": starts.tolist(),
            "char_end": (starts + 3).tolist(), "rank": draw.geometric(0.3, _TOKENS).tolist(),
            "index_distance": np.where(category > 0, 1, 255).tolist(), "category": category.tolist(),
            "location": draw.integers(0, 5, _TOKENS).tolist(), "statement": (category > 2).tolist(),
            "in_code": [True] * _TOKENS, "logprob": logprob.tolist(), "entropy": draw.gamma(2, 1, _TOKENS).tolist(),
        }  # fmt: skip
        if self.topk:
            row["topk_ids"] = draw.integers(0, 49152, (_TOKENS, self.topk)).tolist()
            row["topk_logprob"] = np.log(draw.random((_TOKENS, self.topk))).tolist()
        return row


def measure() -> list[Figure]:
    """Sizes of the file, seconds to write it, and where there is a browser, first paint and redraw of a slider."""
    note = f"{_SAMPLES} samples of {_TOKENS} tokens, ids and figures at random"
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "view.html"
        generated: Any = _Generated(0)
        seconds, page = timed(lambda: render_view(view_data(generated)))
        file.write_text(page, encoding="utf-8")
        generated = _Generated(5)
        with_top = len(render_view(view_data(generated)).encode())
        figures = [
            Figure("file", file.stat().st_size / 1e6, "MB", note),
            Figure("file with 5 alternatives a token", with_top / 1e6, "MB"),
            Figure("written in", seconds, "s", "generating the samples included"),
        ]
        return figures + _in_browser(file)


def _in_browser(file: Path) -> list[Figure]:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        return [Figure("in a browser", float("nan"), "", "needs chromium and playwright")]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        page.goto(file.as_uri())
        page.wait_for_selector(".t")
        figures = [Figure("first paint", page.evaluate(_PAINT), "ms", "first contentful paint, headless Chromium")]
        shown = page.evaluate("performance.now()")
        figures.append(Figure("first sample drawn", shown, "ms", "at most: until the test saw it"))
        for slider in ("tau", "lambda", "window"):
            took = page.evaluate(_REDRAW.replace("SLIDER", f"{slider}-range"))
            figures.append(Figure(f"redraw, slider {slider}", took, "ms", "19th of 20, until the frame is painted"))
        browser.close()
    return figures
