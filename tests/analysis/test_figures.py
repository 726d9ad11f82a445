"""Figures: every text in them is text, inside and apart; what is missing is left out, or said in one line."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from conftest import kernel, pair
from figure_helpers import BY_NAME, axes_of, drawn, planted, random_samples, shown, texts
from hypothesis import given
from hypothesis import strategies as st
from planted_dataset import Planted, plant

from analysis.dataset import Dataset, open_datasets
from analysis.figures import FIGURES, NAMES, weights
from analysis.figures.base import Figure, draw_figure
from analysis.figures.drawing import _drawable, plain, plain_token
from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.errors import DatasetError
from curate.score import StubScorer

HOSTILE = "_$\\frac{x$ <b>&amp; 漢\u202e\x1b[31m --> %s{0}"


def built(folder: Path, model: Path, write_rows: Callable[..., Path], **options: Any) -> Path:
    rows = [pair(n, "".join(kernel(10 * n + m) for m in range(3))) for n in range(5)]
    source = write_rows([*rows, "{cut", rows[0]])
    config = BuildConfig(source=(str(source),), out=folder, model=str(model), jobs=1, compile=False, **options)
    build_dataset(config, StubScorer())
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> list[Dataset]:
    """A small build under two names, one of them hostile."""
    folder = tmp_path_factory.mktemp("built")

    def write_rows(rows: Sequence[Any]) -> Path:
        path = folder / "rows.jsonl"
        path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows) + "\n")
        return path

    first = open_datasets([built(folder / "out", model_folder, write_rows)])[0]
    return [replace(first, name="first"), replace(first, name=HOSTILE)]


@pytest.mark.parametrize("figure", FIGURES, ids=NAMES)
def test_it_draws_several_datasets(tmp_path: Path, two: list[Dataset], figure: Figure) -> None:
    frame = draw_figure(figure, two, tmp_path)
    assert (tmp_path / f"{figure.name}.png").read_bytes().startswith(b"\x89PNG")
    ElementTree.parse(tmp_path / f"{figure.name}.svg")
    csv = pl.read_csv(tmp_path / f"{figure.name}.csv", infer_schema_length=None)
    assert csv.columns == frame.columns
    assert len(csv) == len(frame)
    assert set(csv["dataset"]) == {"first", HOSTILE}


@pytest.mark.parametrize("figure", FIGURES, ids=NAMES)
def test_texts_are_text_inside_the_picture_and_apart(two: list[Dataset], figure: Figure) -> None:
    canvas = drawn(figure, two)
    found = texts(canvas)
    assert not any(t.get_parse_math() for t in found)
    for ax in axes_of(canvas):
        assert ax.get_xlabel() or figure.name == "lowest_window" or not shown(ax.get_xticklabels())
        assert ax.get_ylabel() or not shown(ax.get_yticklabels())
    boxes = [(t.get_text(), t.get_window_extent()) for t in found]
    width, height = canvas.bbox.size
    for text, box in boxes:
        assert min(box.x0, box.y0, width - box.x1, height - box.y1) >= -1, text
    for i, (text, box) in enumerate(boxes):
        for other, its in boxes[i + 1 :]:
            apart = min(box.x1, its.x1) - max(box.x0, its.x0) < 1.5 or min(box.y1, its.y1) - max(box.y0, its.y0) < 1.5
            assert apart, (text, other)


def test_many_samples_are_counted_in_hexagons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "POINTS", 3)
    spread = np.random.default_rng(3).random(12).astype(np.float32).tolist()
    canvas = drawn(BY_NAME["weights"], [planted(tmp_path / "d", random_samples(12), {"sample_weight": spread})])
    assert len(axes_of(canvas)) == 3
    assert not [t.get_text() for t in texts(canvas) if "$" in t.get_text()]
    assert (
        sum(
            float(c.get_array().sum())
            for ax in axes_of(canvas)
            for c in ax.collections
            if c.get_array() is not None and ax.get_title("left")
        )
        == 12
    )


@pytest.mark.parametrize("figure", FIGURES, ids=NAMES)
def test_what_is_missing_is_left_out(tmp_path: Path, figure: Figure) -> None:
    """Only neutral tokens, one token a sample, no score at all: a picture, or no rows."""
    cases = {
        "neutral": [Planted(["a"] * 70, [0.5] * 70, [0] * 70)],
        "sensitive": [Planted(["a"] * 70, [0.5] * 70, [2] * 70)],
        "tiny": [Planted(["a"], [0.5], [2])],
        "nan": [Planted(["a"] * 70, [math.nan] * 70, [0, 2] * 35)],
        "zero": [Planted(["a"] * 70, [0.0] * 70, [0, 2] * 35)],
    }
    empty = set()
    for name, samples in cases.items():
        dataset = planted(tmp_path / name, samples)
        if len(figure.data(dataset)):
            drawn(figure, [dataset])
        else:
            empty.add(name)
    windowless = {"tiny", "nan"} if figure.name in {"windows_of_sample", "lowest_window", "low_windows"} else set()
    by_score = {"nan"} if figure.needs_scores and figure.name != "weights" else set()
    without = set(cases) if figure.name == "regions" else windowless | by_score
    assert empty == without


def test_hostile_tokens_and_ids_are_drawn(tmp_path: Path) -> None:
    tokens = ["$\\alpha", "^{_$", "\x1b[0m", "\u202e", "漢", "\t", "\r\n", "", "𝔘", "_x", "<b>", "a" * 99] * 6
    sample = Planted(tokens, [0.3] * len(tokens), [2, 0] * (len(tokens) // 2))
    dataset = planted(tmp_path / "d", [sample], {"source_id": [HOSTILE * 5]}, name=HOSTILE * 3)
    for name in ("lowest_window", "windows_of_sample"):
        draw_figure(BY_NAME[name], [dataset], tmp_path)
        shown = "".join(t.get_text() for t in texts(drawn(BY_NAME[name], [dataset])))
        assert "\\x1b" in shown or name == "windows_of_sample"  # whose texts are names alone
        assert "$" in shown
        assert {c for c in shown if not c.isprintable()} <= set("\n\u2009")


@given(st.text(max_size=300), st.integers(8, 60))
def test_plain_text_is_short_and_in_the_font(text: str, width: int) -> None:
    shown = plain(text, width)
    assert len(shown) <= width + 1
    assert {ord(c) for c in shown} <= _drawable("DejaVu Sans")
    assert not shown.startswith("_")
    assert all(c.isprintable() or c == "\u2009" or c.isspace() for c in shown)
    assert "\n" not in shown
    assert {ord(c) for c in plain_token(text)} <= _drawable("DejaVu Sans Mono")


def test_an_unscored_or_empty_dataset_is_one_line(tmp_path: Path) -> None:
    unscored = plant(tmp_path / "unscored", [Planted(["a"], None, [0])], skip_scoring=True)
    empty = plant(tmp_path / "empty", [])
    for path, said in ((unscored, "has no scores"), (empty, "holds no sample")):
        with pytest.raises(DatasetError, match=said):
            draw_figure(BY_NAME["density"], open_datasets([path]), tmp_path)
    assert draw_figure(BY_NAME["funnel"], open_datasets([unscored]), tmp_path)["left"][-1] == 1
    command = [sys.executable, "-m", "analysis.figures.density", str(unscored), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "--skip-scoring" in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_funnel_balances(tmp_path: Path, two: list[Dataset]) -> None:
    frame = draw_figure(BY_NAME["funnel"], two[:1], tmp_path)
    rows = {f"{stage} {reason}": (n, left) for _, stage, reason, n, left in frame.iter_rows()}
    assert rows["read broken_json"] == (1, 6)
    assert rows["accepted "] == (5, 5)
    assert frame["rows"].sum() == two[0].manifest["counts"]["read"] == 7


def test_nothing_to_draw_is_one_line_and_an_empty_dataset_is_left_out_beside_another(tmp_path: Path) -> None:
    tiny = planted(tmp_path / "tiny", [Planted(["a"], [0.5], [2])])
    with pytest.raises(DatasetError, match="nothing to draw"):
        draw_figure(BY_NAME["lowest_window"], [tiny], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    other = replace(planted(tmp_path / "other", random_samples()), name="other")
    assert set(draw_figure(BY_NAME["lowest_window"], [tiny, other], tmp_path / "out")["dataset"]) == {"other"}


@pytest.mark.parametrize("category", [[0] * 70, [2] * 70])
def test_a_number_that_does_not_exist_is_a_dash(tmp_path: Path, category: list[int]) -> None:
    """One class alone, all samples alike: neither a distance nor a correlation."""
    dataset = planted(tmp_path / "d", [Planted(["a"] * 70, [0.5] * 70, category) for _ in range(3)])
    for figure in FIGURES:
        if len(figure.data(dataset)):
            words = " ".join(t.get_text() for t in texts(drawn(figure, [dataset])))
            assert "nan" not in words.lower().replace(dataset.name, ""), figure.name
            assert ("–" in words) == (figure.name in ("density", "weights", "models")), figure.name
