"""The rows that figures draw equal plain loops over planted datasets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from figure_helpers import BY_NAME, drawn, planted, random_samples, stored, texts, tokens_of
from planted_dataset import FRAMES, Planted
from scipy import stats

from analysis.figures.base import draw_figure
from analysis.figures.models import named_size
from curate.errors import DatasetError
from curate.schema import REGIONS
from curate.store import write_part
from curate.taxonomy import CATEGORIES, Location


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
    planned = np.random.default_rng(3).random(len(samples)).astype(np.float32).tolist()
    dataset = planted(tmp_path / "d", samples, {"sample_weight": planned})
    frame = draw_figure(BY_NAME["weights"], [dataset], tmp_path)
    lengths = [len(s.category) for s in samples]
    assert frame["weight"].to_list() == planned
    assert frame["response_tokens"].to_list() == lengths
    assert frame["spearman"][0] == pytest.approx(stats.spearmanr(planned, lengths).statistic)


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
    assert named_size(name) == size


def test_position_means_follow_the_twentieths(tmp_path: Path) -> None:
    rising = [(i + 0.5) / 40 for i in range(40)]
    dataset = planted(tmp_path / "d", [Planted(["a"] * 40, rising, [0, 2] * 20) for _ in range(3)])
    frame = draw_figure(BY_NAME["position"], [dataset], tmp_path)
    for kind, first in (("neutral", 0), ("sensitive", 1)):
        part = frame.filter((pl.col("labels") == "category") & (pl.col("class") == kind))
        assert part["mean"].to_list() == pytest.approx(rising[first::2], abs=2e-3)
        assert part["tokens"].to_list() == [3] * 20


def test_entropy_and_rank_are_medians(tmp_path: Path) -> None:
    samples = [Planted(["a"] * 5, [0.12] * 5, [0] * 5)]
    dataset = planted(tmp_path / "d", samples, {"entropy": [[1, 2, 3, 4, 9]], "rank": [[1, 7, 3, 5, 2]]})
    row = draw_figure(BY_NAME["rank_entropy"], [dataset], tmp_path).row(0, named=True)
    assert (row["entropy_50"], row["rank_50"], row["tokens"], row["class"]) == (3, 3, 5, "neutral")
    assert row["confidence_from"] == pytest.approx(0.1)


def test_the_size_is_that_of_the_manifest_and_the_name_s_only_without_one(tmp_path: Path) -> None:
    """A build counts the parameters; earlier builds, and models of an unknown kind, have none in the manifest."""
    for number, (counted, name, size, known_by) in enumerate(
        [(134_515_008, "m-7B", 134_515_008, "manifest"), (None, "m-7B", 7e9, "name"), (None, "m", None, "")]
    ):
        dataset = planted(tmp_path / str(number), random_samples(3), name=name)
        dataset.manifest["model"]["parameters"] = counted
        rows = BY_NAME["models"].data(dataset, 100, 0)
        assert rows["parameters"].to_list() == [size] * 2
        assert rows["size_from"].to_list() == [known_by] * 2
        del dataset.manifest["model"]["parameters"]
        assert BY_NAME["models"].data(dataset, 100, 0)["parameters"][0] == named_size(name)
        words = {t.get_text().partition("\n")[2] for t in texts(drawn(BY_NAME["models"], [dataset]))}
        assert ("7 B, by its name" in words) == (name == "m-7B")
        assert ("size not known" in words) == (name == "m")
        assert "8 B" in words
