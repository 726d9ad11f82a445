"""Two builds of one corpus: planted masks and ranks, and two tokenizers against a plain loop over characters."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.alignment import char_owner, word_logprob
from analysis.compare import compare, run
from analysis.dataset import open_datasets
from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.errors import DatasetError, OptionError
from curate.score import StubScorer
from tests.analysis.planted_dataset import Planted, plant
from tests.conftest import pair, train_tokenizer


def planted(path: Path, samples: list[Planted], name: str, weights: list[float] | None = None) -> Path:
    from curate.schema import SAMPLES
    from curate.store import part_files, read_part, write_part

    plant(path, samples, name)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["config"]["tau"] = 0.1
    (path / "manifest.json").write_text(json.dumps(manifest))
    if weights:
        import polars as pl

        (part,) = part_files(path / "samples")
        write_part(read_part(part).with_columns(pl.Series("sample_weight", weights, pl.Float32)), SAMPLES, part)
    return path


def test_planted_masks_words_and_weights(tmp_path: Path) -> None:
    # 12 samples "aaaa bb cc": A has "aaaa", " bb", " cc"; B has "aa", "aa", " bb c", "c"
    first = [Planted(["aaaa", " bb", " cc"], [0.9, 0.05, 0.5], [1, 0, 0]) for _ in range(12)]
    second = [Planted(["aa", "aa", " bb c", "c"], [0.9, 0.05, 0.5, 0.5], [1, 1, 0, 0]) for _ in range(12)]
    paths = [
        planted(tmp_path / "a", first, "one", [0.5] * 12),
        planted(tmp_path / "b", second, "two", [0.5] * 7 + [0.9, 0.3] + [0.5] * 3),
    ]
    found = compare(*open_datasets(paths), top=3, draws=100)
    every = found.agreement["all"]
    assert (found.common, every.characters) == (12, 120)
    # kept by A: aaaa, not " bb", " cc" = 7 of 10; by B: the first two and the last six = 8 of 10; equal 2 + 3
    assert every.kept_a == pytest.approx(0.7)
    assert every.kept_b == pytest.approx(0.8)
    assert every.equal.value == every.equal.low == pytest.approx(0.5)
    chance = 0.7 * 0.8 + 0.3 * 0.2
    assert every.kappa.value == pytest.approx((0.5 - chance) / (1 - chance))
    assert found.agreement["category"].equal.value == pytest.approx(0.5)
    assert found.agreement["neutral"].characters == 72
    # words by A: aaaa 0.9, cc 0.5, bb 0.05; by B: bb 0.5, cc 0.5 * 0.5, aaaa 0.9 * 0.05
    assert found.words == 36
    assert found.word_rank_within.value == pytest.approx(-1)
    assert [(m.sample_id[-1], round(m.weight_b - m.weight_a, 3)) for m in found.moved[:2]] == [("7", 0.4), ("8", -0.2)]


def test_a_dataset_agrees_with_itself(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    samples = [Planted(["int ", "x", "=1;"] * 9, random.uniform(0.02, 1, 27), [1, 0, 0] * 9) for _ in range(12)]
    paths = [planted(tmp_path / name, samples, name) for name in ("a", "b")]
    found = compare(*open_datasets(paths), draws=100)
    for number in (found.agreement["code"].equal, found.agreement["code"].kappa, found.word_rank):
        assert (number.value, number.low, number.high) == pytest.approx((1, 1, 1))
    assert json.loads(found.to_json())["weight_rank"] is None  # all weights are the same


def test_independent_scores_do_not_agree_beyond_chance(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    paths = []
    for name in ("a", "b"):
        samples = [Planted(["ab "] * 200, random.choice([0.05, 0.3, 0.6], 200), [0] * 200) for _ in range(20)]
        paths.append(planted(tmp_path / name, samples, name))
    found = compare(*open_datasets(paths), draws=400)
    for number in (found.agreement["all"].kappa, found.word_rank):
        assert abs(number.value) < 0.05
        assert number.low < 0 < number.high


@pytest.fixture
def builds(tmp_path: Path, model_folder: Path, write_rows: Callable[..., Path]) -> list[Path]:
    """Two StubScorer builds of the same rows with two tokenizers."""
    source = write_rows([pair(n) | {"id": f"row-{n}"} for n in range(6)])
    other = tmp_path / "other-model"
    shutil.copytree(model_folder, other)
    train_tokenizer(vocabulary=300).save_pretrained(other)
    paths = []
    for name, model in (("a", model_folder), ("b", other)):
        config = BuildConfig(source=(str(source),), out=tmp_path / name, model=str(model), jobs=1, tau=0.6)
        build_dataset(config, StubScorer())
        paths.append(tmp_path / name)
    return paths


def test_two_tokenizers_against_a_loop_over_characters(builds: list[Path], capsys: Any) -> None:
    datasets = open_datasets(builds)
    columns = "sample_id, response, char_start, char_end, logprob"
    a, b = ({r["sample_id"]: r for r in d.query(f"SELECT {columns} FROM samples").to_dicts()} for d in datasets)
    assert [r["char_start"] for r in a.values()] != [b[i]["char_start"] for i in a]
    kept: list[tuple[bool, bool]] = []
    for name, row in a.items():
        for at in range(len(row["response"])):
            both = []
            for one in (row, b[name]):
                tokens = zip(one["char_start"], one["char_end"], one["logprob"], strict=True)
                both.append(next(p > np.log(0.6) for start, end, p in tokens if start <= at < end))
            kept.append((both[0], both[1]))
    found = compare(*datasets, draws=100)
    assert found.common == 6
    assert found.agreement["all"].characters == len(kept)
    assert found.agreement["all"].equal.value == pytest.approx(np.mean([x == y for x, y in kept]))
    assert found.agreement["all"].kept_b == pytest.approx(np.mean([y for _, y in kept]))
    assert run([*map(str, builds), "--draws", "100", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["agreement"]["all"]["characters"] == len(kept)
    assert run([*map(str, builds), "--draws", "100"]) == 0
    printed = capsys.readouterr().out
    assert "row-0" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_characters_and_words_of_odd_tokens() -> None:
    start, end = np.array([0, 1, 1, -1, 2]), np.array([1, 2, 2, -1, 5])  # two tokens share a character
    assert char_owner(start, end, 6).tolist() == [0, 1, 4, 4, 4, -1]
    assert char_owner(np.array([]), np.array([]), 2).tolist() == [-1, -1]
    words = np.array([[0, 1], [1, 3], [5, 6]])
    scores = np.array([-1, -2, -4, np.nan, -8], np.float16)
    np.testing.assert_allclose(word_logprob(words, start, end, scores), [-1, -14, np.nan])
    scores[1] = np.nan
    np.testing.assert_allclose(word_logprob(words, start, end, scores), [-1, np.nan, np.nan])


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    one = [Planted(["a b"], [0.5], [0])]
    scored = planted(tmp_path / "scored", one, "x")
    bare = plant(tmp_path / "bare", [Planted(["a b"], None, [0])], "y", skip_scoring=True)
    with pytest.raises(DatasetError, match="no scores"):
        compare(*open_datasets([scored, bare]))
    empty = planted(tmp_path / "empty", [], "z")
    with pytest.raises(DatasetError, match="no scores"):
        compare(*open_datasets([scored, empty]))
    with pytest.raises(DatasetError, match="no such folder"):
        run([str(scored), str(tmp_path / "none")])
    with pytest.raises(OptionError, match="--draws"):
        run([str(scored), str(scored), "--draws", "3"])
