"""Figures: what they draw equals an independent count, and every text in them is text, inside and apart."""

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

import matplotlib.style
import numpy as np
import polars as pl
import pytest
from conftest import kernel, pair
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text
from planted_dataset import FRAMES, Planted, plant
from scipy import stats

from analysis.dataset import Dataset, open_datasets
from analysis.figures import FIGURES, NAMES
from analysis.figures.base import STYLE, Figure, draw_figure
from analysis.figures.drawing import _drawable, plain, plain_token
from analysis.figures.models import parameters
from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.errors import DatasetError
from curate.schema import REGIONS, SAMPLES
from curate.score import StubScorer
from curate.store import read_part, write_part
from curate.taxonomy import CATEGORIES, Location

BY_NAME = {figure.name: figure for figure in FIGURES}
HOSTILE = "_$\\frac{x$ <b>&amp; 漢\u202e\x1b[31m --> %s{0}"


def built(folder: Path, model: Path, write_rows: Callable[..., Path], **options: Any) -> Path:
    rows = [pair(n, "".join(kernel(10 * n + m) for m in range(3))) for n in range(5)]
    source = write_rows([*rows, "{cut", rows[0]])
    config = BuildConfig(source=(str(source),), out=folder, model=str(model), jobs=1, compile=False, **options)
    build_dataset(config, StubScorer())
    return folder


def planted(
    folder: Path, samples: Sequence[Planted], columns: dict[str, list[Any]] | None = None, name: str = "m"
) -> Dataset:
    """A planted dataset with the options that masks and weights need, and other values in columns of `samples`."""
    plant(folder, samples, name)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["config"] |= {"tau": 0.1, "lambda": 1.0, "window": 256, "launch_scope": "setup", "device_functions": True}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    if columns:
        part = folder / "samples" / "part-000000.parquet"
        frame = read_part(part)
        new = [pl.Series(c, values, FRAMES["samples"][c]) for c, values in columns.items()]
        write_part(frame.with_columns(new), SAMPLES, part)
    return open_datasets([folder])[0]


def random_samples(number: int = 12, length: int = 150, seed: int = 1) -> list[Planted]:
    draw = np.random.default_rng(seed)
    samples = []
    for _ in range(number):
        size = int(draw.integers(40, length))
        category = draw.choice([0, 0, 0, 2, 5, 8], size)
        confidence = draw.beta(1, 1, size)
        samples.append(
            Planted(
                tokens=["ab "] * size, confidence=confidence.tolist(), category=category.tolist(),
                statement=(draw.random(size) < 0.3).tolist(), in_code=(draw.random(size) < 0.9).tolist(),
            )
        )  # fmt: skip
    return samples


def stored(sample: Planted) -> list[float]:
    """The confidences as the dataset has them, through float16."""
    assert sample.confidence is not None
    return [math.exp(np.float16(math.log(c))) for c in sample.confidence]


def tokens_of(samples: Sequence[Planted]) -> list[tuple[float, int, bool]]:
    """(confidence, category, statement) of the code tokens."""
    return [
        (c, k, s)
        for sample in samples
        for c, k, s, code in zip(stored(sample), sample.category, sample.statement or [], sample.in_code or [], strict=True)
        if code
    ]  # fmt: skip


def texts(canvas: Canvas) -> list[Text]:
    """The texts that are drawn: of ticks those in the range of their axis."""
    axes = [axis for ax in axes_of(canvas) for axis in (ax.xaxis, ax.yaxis)]
    ticks = {
        id(t): axis
        for axis in axes
        for tick in (*axis.majorTicks, *axis.minorTicks)
        for t in (tick.label1, tick.label2)
    }
    in_range = {id(tick.label1) for axis in axes for tick in axis._update_ticks()}
    every = [t for t in canvas.findobj(Text) if t.get_visible() and t.get_text().strip()]
    return [t for t in every if id(t) not in ticks or id(t) in in_range]


def axes_of(canvas: Canvas) -> list[Axes]:
    return canvas.findobj(Axes)


def shown(labels: Sequence[Text]) -> bool:
    return any(t.get_visible() and t.get_text() for t in labels)


def drawn(figure: Figure, datasets: Sequence[Dataset]) -> Canvas:
    frame = pl.concat([figure.data(d).select(pl.lit(d.name).alias("dataset"), pl.all()) for d in datasets])
    with matplotlib.style.context(STYLE):
        canvas = figure.draw(frame)
        FigureCanvasAgg(canvas).draw()
    return canvas


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


def test_density_is_the_count_of_the_tokens(tmp_path: Path) -> None:
    samples = random_samples()
    frame = draw_figure(BY_NAME["density"], [planted(tmp_path / "d", samples)], tmp_path)
    tokens = tokens_of(samples)
    for labels, chosen in (("statement", [s for *_, s in tokens]), ("category", [k > 0 for _, k, _ in tokens])):
        by_class = {
            kind: [c for (c, *_), s in zip(tokens, chosen, strict=True) if s == (kind == "sensitive")]
            for kind in ("sensitive", "neutral")
        }
        distance = stats.ks_2samp(by_class["sensitive"], by_class["neutral"]).statistic
        u = stats.mannwhitneyu(by_class["sensitive"], by_class["neutral"]).statistic
        delta = 2 * u / len(by_class["sensitive"]) / len(by_class["neutral"]) - 1
        for kind, values in by_class.items():
            part = frame.filter((pl.col("labels") == labels) & (pl.col("class") == kind))
            assert part["tokens"].to_list() == np.histogram(values, bins=40, range=(0, 1))[0].tolist()
            assert (part["density"] / 40).sum() == pytest.approx(1)
            assert part["mean"][0] == pytest.approx(np.mean(values), abs=1e-6)
            assert part["ks_d"][0] == pytest.approx(distance)
            assert part["cliffs_delta"][0] == pytest.approx(delta)


def test_categories_are_counted_and_sorted_by_their_mean(tmp_path: Path) -> None:
    samples = random_samples()
    frame = draw_figure(BY_NAME["categories"], [planted(tmp_path / "d", samples)], tmp_path)
    tokens = tokens_of(samples)
    means = {}
    for name, part in frame.group_by("category", maintain_order=True):
        values = [c for c, k, _ in tokens if CATEGORIES[k] == name[0]]
        assert part["tokens"].to_list() == np.histogram(values, bins=25, range=(0, 1))[0].tolist()
        means[name[0]] = part["mean"][0]
        assert part["mean"][0] == pytest.approx(np.mean(values), abs=1e-6)
        assert part["mean_low"][0] < part["mean"][0] < part["mean_high"][0]
    assert list(means) == sorted(means, key=lambda name: means[name])
    assert set(means) == {"neutral", "thread_index", "synchronisation", "launch"}


def test_low_windows_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    samples = random_samples()
    frame = draw_figure(BY_NAME["low_windows"], [planted(tmp_path / "d", samples)], tmp_path)
    threshold = np.mean([c for c, _, s in tokens_of(samples) if not s])
    for length in (16, 64):
        windows = low = touching = above = with_window = with_low = every_touching = 0
        for sample in samples:
            tokens = tokens_of([sample])
            share = np.mean([s for *_, s in tokens])
            here = [tokens[i : i + length] for i in range(len(tokens) - length + 1)]
            lows = [w for w in here if np.mean([c for c, *_ in w]) < threshold]
            windows, low = windows + len(here), low + len(lows)
            with_window, with_low = with_window + bool(here), with_low + bool(lows)
            every_touching += sum(any(s for *_, s in w) for w in here)
            touching += sum(any(s for *_, s in w) for w in lows)
            above += sum(np.mean([s for *_, s in w]) > share for w in lows)
        part = frame.filter((pl.col("labels") == "statement") & (pl.col("length") == length))
        rows = {row["measure"]: row for row in part.iter_rows(named=True)}
        assert (rows["samples"]["windows"], rows["samples"]["low_windows"]) == (windows, low)
        assert 0 < low < windows
        assert rows["samples"]["share"] == pytest.approx(with_low / with_window)
        assert rows["touching"]["share"] == pytest.approx(touching / low)
        assert rows["touching"]["base"] == pytest.approx(every_touching / windows)
        assert rows["above"]["share"] == pytest.approx(above / low)
        assert rows["above"]["share_low"] <= rows["above"]["share"] <= rows["above"]["share_high"]


def test_the_lowest_window_is_that_of_a_plain_loop(tmp_path: Path) -> None:
    samples = random_samples()
    dataset = planted(tmp_path / "d", samples)
    frame = draw_figure(BY_NAME["lowest_window"], [dataset], tmp_path)
    every = [
        (np.mean([c for c, *_ in tokens[i : i + 64]]), n, i)
        for n, tokens in enumerate(tokens_of([s]) for s in samples)
        for i in range(len(tokens) - 63)
    ]
    mean, number, start = min(every)
    window = tokens_of([samples[number]])[start : start + 64]
    assert frame["confidence"].to_list() == pytest.approx([c for c, *_ in window], abs=1e-6)
    assert frame["statement"].to_list() == [s for *_, s in window]
    along = draw_figure(BY_NAME["windows_of_sample"], [dataset], tmp_path)
    assert along["window_mean"].min() == pytest.approx(mean, abs=1e-6)
    assert along["lowest"].to_list().index(True) == start
    assert along["window_mean"].null_count() == 63


@pytest.mark.parametrize("lambda_", [0.0, 0.5])
def test_masks_keep_what_the_equations_say(tmp_path: Path, lambda_: float) -> None:
    samples = random_samples()
    draw = np.random.default_rng(2)
    locations = [draw.choice(len(Location), len(s.category)).tolist() for s in samples]
    dataset = planted(tmp_path / "d", samples, {"location": locations})
    dataset.manifest["config"] |= {"lambda": lambda_, "launch_scope": "expr", "device_functions": False}
    frame = draw_figure(BY_NAME["masks"], [dataset], tmp_path)
    for row in frame.iter_rows(named=True):
        tokens = [
            (c > row["tau"], place in (Location.KERNEL, Location.LAUNCH) and lambda_ > 0)
            for sample, places in zip(samples, locations, strict=True)
            for c, k, place, code in zip(stored(sample), sample.category, places, sample.in_code or [], strict=True)
            if (CATEGORIES[k] if code else "outside code") == row["category"]
        ]
        assert row["tokens"] == len(tokens) > 0
        assert row["kept_by_confidence"] == pytest.approx(np.mean([kept for kept, _ in tokens]))
        assert row["kept"] == pytest.approx(np.mean([kept or inside for kept, inside in tokens]))
        assert row["mean_weight"] == pytest.approx(np.mean([kept + lambda_ * inside for kept, inside in tokens]))
    assert set(frame["tau"]) == {0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9}


def test_weights_are_those_of_the_samples(tmp_path: Path) -> None:
    samples = random_samples()
    weights = np.random.default_rng(3).random(len(samples)).astype(np.float32).tolist()
    dataset = planted(tmp_path / "d", samples, {"sample_weight": weights})
    frame = draw_figure(BY_NAME["weights"], [dataset], tmp_path)
    lengths = [len(s.category) for s in samples]
    assert frame["weight"].to_list() == weights
    assert frame["response_tokens"].to_list() == lengths
    assert frame["spearman"][0] == pytest.approx(stats.spearmanr(weights, lengths).statistic)


def test_regions_lift_is_the_share_in_regions_over_the_share_in_all(tmp_path: Path) -> None:
    category = [2, 2, 2, 2, 5, 0, 5, 8]
    dataset = planted(tmp_path / "d", [Planted(["a"] * 8, [0.5] * 8, category) for _ in range(4)])
    region = dict.fromkeys(FRAMES["regions"]) | {"first_token": 3, "last_token": 6}
    rows = [region | {"sample_id": f"{n:032x}"} for n in range(4)]
    write_part(pl.DataFrame(rows, schema=FRAMES["regions"]), REGIONS, tmp_path / "d" / "regions" / "part-0.parquet")
    frame = draw_figure(BY_NAME["regions"], [dataset], tmp_path)
    lift = dict(frame.select("category", "lift").iter_rows())
    assert lift == pytest.approx({"launch": 0, "thread_index": (1 / 3) / (4 / 7), "synchronisation": (2 / 3) / (2 / 7)})
    assert frame["lift_low"].to_list() == pytest.approx(frame["lift"].to_list())  # all samples are alike


def test_models_are_told_apart_with_their_gap(tmp_path: Path) -> None:
    datasets = [
        planted(tmp_path / n, [Planted(["a"] * 4, [high, high, 0.5, 0.5], [2, 2, 0, 0]) for _ in range(3)], name=n)
        for n, high in (("big-7B", 0.75), ("small-135M", 0.25))
    ]
    frame = draw_figure(BY_NAME["models"], datasets, tmp_path)
    assert frame["gap"].to_list() == pytest.approx([0.25, 0.25, -0.25, -0.25], abs=2e-3)
    assert frame["parameters"].unique().sort().to_list() == [135e6, 7e9]
    with pytest.raises(DatasetError, match="two or more"):
        draw_figure(BY_NAME["models"], datasets[:1], tmp_path)


@pytest.mark.parametrize(
    ("name", "size"),
    [("Qwen2.5-Coder-0.5B-Instruct", 5e8), ("SmolLM2-135M-Instruct (GGUF Q4_1)", 135e6), ("code-model", None),
     ("x8Bit", None), ("Phi-3.8b", 3.8e9), ("", None)],
)  # fmt: skip
def test_parameters_are_read_from_a_name(name: str, size: float | None) -> None:
    assert parameters(name) == size


def test_position_means_follow_the_twentieths(tmp_path: Path) -> None:
    rising = [(i + 0.5) / 40 for i in range(40)]
    dataset = planted(tmp_path / "d", [Planted(["a"] * 40, rising, [0, 2] * 20) for _ in range(3)])
    frame = draw_figure(BY_NAME["position"], [dataset], tmp_path)
    for kind, first in (("neutral", 0), ("sensitive", 1)):
        part = frame.filter((pl.col("labels") == "category") & (pl.col("class") == kind))
        assert part["mean"].to_list() == pytest.approx(rising[first::2], abs=2e-3)
        assert part["tokens"].to_list() == [3] * 20


def test_the_funnel_balances(tmp_path: Path, two: list[Dataset]) -> None:
    frame = draw_figure(BY_NAME["funnel"], two[:1], tmp_path)
    rows = {f"{stage} {reason}": (n, left) for _, stage, reason, n, left in frame.iter_rows()}
    assert rows["read broken_json"] == (1, 6)
    assert rows["accepted "] == (5, 5)
    assert frame["rows"].sum() == two[0].manifest["counts"]["read"] == 7


def test_entropy_and_rank_are_medians(tmp_path: Path) -> None:
    samples = [Planted(["a"] * 5, [0.12] * 5, [0] * 5)]
    dataset = planted(tmp_path / "d", samples, {"entropy": [[1, 2, 3, 4, 9]], "rank": [[1, 7, 3, 5, 2]]})
    row = draw_figure(BY_NAME["rank_entropy"], [dataset], tmp_path).row(0, named=True)
    assert (row["entropy_50"], row["rank_50"], row["tokens"], row["class"]) == (3, 3, 5, "neutral")
    assert row["confidence_from"] == pytest.approx(0.1)


@pytest.mark.parametrize("figure", FIGURES, ids=NAMES)
def test_what_is_missing_is_one_line_or_left_out(tmp_path: Path, figure: Figure) -> None:
    """Only neutral tokens, one token a sample, no score at all: a picture, or a DatasetError of one line."""
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
        try:
            draw_figure(figure, [dataset, dataset] if figure.needs_several else [dataset], tmp_path / "out")
        except DatasetError:
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
