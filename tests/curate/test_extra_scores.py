"""Scores that are stored only when asked for, and a GPU that is too small for a batch."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from conftest import KERNEL, pair, train_tokenizer

from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.errors import DatasetError, ModelError, OptionError
from curate.model import locate_model
from curate.schema import EXTRA_SCORES, SAMPLES
from curate.score import ModelScorer, TokenScores
from curate.statistics import entropy_of_top, most_probable
from curate.store import connect

Write = Callable[..., Path]
NAMES = [c.name for c in EXTRA_SCORES]


def test_the_most_probable_of_planted_values_fall_and_equal_ones_stand_by_id() -> None:
    logprobs = torch.tensor([[0.1, 0.3, 0.1, 0.5], [0.25, 0.25, 0.25, 0.25]]).log()
    ids, values = most_probable(logprobs, 4)
    assert ids.tolist() == [[3, 1, 0, 2], [0, 1, 2, 3]]
    assert values.exp()[0].tolist() == pytest.approx([0.5, 0.3, 0.1, 0.1])
    assert most_probable(logprobs[:1], 2)[0].tolist() == [[3, 1]]


def test_the_entropy_of_the_top_is_that_of_the_renormalised_probabilities() -> None:
    top = torch.tensor([[0.4, 0.2, 0.2], [0.1, 0.1, 0.1], [0.5, 0.0, 0.0]]).log()
    half, quarter = 0.5 * np.log(2), 0.25 * np.log(4)
    assert entropy_of_top(top).tolist() == pytest.approx([half + 2 * quarter, np.log(3), 0.0], abs=1e-6)


def random_samples(vocabulary: int, *lengths: int) -> list[tuple[np.ndarray, int]]:
    draw = np.random.default_rng(1)
    return [(draw.integers(3, vocabulary, n).astype(np.int32), max(1, n // 3)) for n in lengths]


@pytest.fixture(scope="module")
def reference_folder(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    """The same tokenizer, other weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    folder = tmp_path_factory.mktemp("reference") / "other-llama"
    shutil.copytree(model_folder, folder)
    LlamaForCausalLM(LlamaConfig.from_pretrained(folder)).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("batch_tokens", [1, 10_000])
def test_extra_scores_equal_a_plain_loop(
    model_folder: Path, reference_folder: Path, batch_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("curate.causal._CHUNK_VALUES", 7 * 400)  # so that the figures come from several chunks
    config = BuildConfig(topk=5, entropy_top20=True, reference="stands beside", batch_tokens=batch_tokens)
    scorer = ModelScorer(locate_model(str(model_folder)), config, locate_model(str(reference_folder)))
    assert scorer.reference is not None
    batch = random_samples(scorer.causal.vocabulary, 40, 9, 40)
    for (ids, prompt), scores in zip(batch, scorer.score(batch), strict=True):
        with torch.inference_mode():
            logp, ref = (
                m.model(torch.from_numpy(ids.astype(np.int64))[None]).logits[0].double().log_softmax(-1).numpy()
                for m in (scorer.causal, scorer.reference)
            )
        where = np.arange(prompt - 1, len(ids) - 1)
        order = np.argsort(-logp[where], axis=1)
        falling = np.take_along_axis(logp[where], order, axis=1)
        assert scores.topk_ids is not None
        assert scores.topk_ids.tolist() == order[:, :5].tolist()
        np.testing.assert_allclose(scores.topk_logprob, falling[:, :5], atol=1e-4)
        top = np.exp(falling[:, :20]) / np.exp(falling[:, :20]).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(scores.entropy_top20, -(top * np.log(top)).sum(axis=1), atol=1e-4)
        np.testing.assert_allclose(scores.ref_logprob, ref[where, ids[prompt:]], atol=1e-4)


def test_nothing_more_is_computed_than_asked_for(model_folder: Path) -> None:
    (scores,) = ModelScorer(locate_model(str(model_folder)), BuildConfig()).score(random_samples(300, 12))
    assert [getattr(scores, name) for name in NAMES] == [None] * 4


ASKED: dict[str, Any] = {"topk": 3, "entropy_top20": True}


def settings(model_folder: Path, out: Path, source: Path, **more: Any) -> BuildConfig:
    return BuildConfig(source=(str(source),), out=out, model=str(model_folder), jobs=1, shard_rows=2, **more)


def table(folder: Path, query: str) -> pl.DataFrame:
    frame = pl.from_arrow(connect(folder).sql(query).to_arrow_table())
    assert isinstance(frame, pl.DataFrame)
    return frame


@pytest.mark.parametrize(
    ("asked", "names"), [({}, []), ({"topk": 3}, NAMES[:2]), ({"entropy_top20": True}, NAMES[2:3])]
)
def test_columns_are_there_when_asked_for(
    tmp_path: Path, model_folder: Path, write_rows: Write, asked: dict[str, Any], names: list[str]
) -> None:
    source = write_rows([*(pair(n) for n in range(3)), "{", "{"])  # the last shard has no sample
    build_dataset(settings(model_folder, tmp_path / "out", source, **asked))
    frame = pl.read_parquet(tmp_path / "out" / "samples" / "*.parquet")
    assert frame.columns == [c.name for c in SAMPLES] + names
    view = table(tmp_path / "out", "select * from tokens")
    assert [name for name in view.columns if name in NAMES] == names
    card = (tmp_path / "out" / "README.md").read_text()
    assert [name for name in NAMES if f"| `{name}` |" in card] == names


def test_a_build_with_a_reference_stores_what_a_build_with_that_model_stores(
    tmp_path: Path, model_folder: Path, reference_folder: Path, write_rows: Write
) -> None:
    source = write_rows([pair(n) for n in range(3)])
    manifest = build_dataset(
        settings(model_folder, tmp_path / "both", source, reference=str(reference_folder), **ASKED)
    )
    build_dataset(settings(reference_folder, tmp_path / "other", source))
    both, other = (pl.read_parquet(tmp_path / name / "samples" / "*.parquet") for name in ("both", "other"))
    assert both["ref_logprob"].to_list() == other["logprob"].to_list()
    assert both["logprob"].to_list() != other["logprob"].to_list()
    assert manifest["reference"] == locate_model(str(reference_folder)).identity()
    assert str(reference_folder.parent) not in (tmp_path / "both" / "manifest.json").read_text()
    for row in both.iter_rows(named=True):
        own, top, rank = (np.array(row[name]) for name in ("logprob", "topk_logprob", "rank"))
        assert top.shape == (len(own), 3)
        first = rank == 1
        assert (own[first] == top[first, 0]).all()
        assert (own[rank > 3] <= top[rank > 3, 2]).all()
    tokens = table(tmp_path / "both", "select * from tokens order by sample_id, pos")
    expected = both.sort("sample_id").select("topk_ids", "ref_logprob").explode("topk_ids", "ref_logprob")
    assert tokens["topk_ids"].to_list() == expected["topk_ids"].to_list()
    assert tokens["ref_logprob"].to_list() == expected["ref_logprob"].to_list()
    assert tokens["topk_logprob"].dtype == pl.List(pl.Float32)


class Counting:
    """The model's scorer, counting the samples that it is asked for."""

    def __init__(self, config: BuildConfig) -> None:
        reference = None if config.reference is None else locate_model(config.reference)
        self.inner, self.scored = ModelScorer(locate_model(config.model), config, reference), 0

    def identity(self) -> dict[str, object]:
        return self.inner.identity()

    def score(self, samples: Sequence[Any], done: Any) -> list[TokenScores]:
        self.scored += len(samples)
        return self.inner.score(samples, done)


def contents(folder: Path) -> dict[str, bytes]:
    files = (p for p in folder.rglob("*") if p.is_file() and p.name != "build.log.json")
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


@pytest.mark.parametrize("change", [{"tau": 0.3}, {"max_error_share": 0.0}, {}])
def test_extra_scores_are_taken_over_with_the_bytes_of_a_fresh_build(
    tmp_path: Path, model_folder: Path, reference_folder: Path, write_rows: Write, change: dict[str, Any]
) -> None:
    source = write_rows([pair(n) for n in range(5)])
    asked = {**ASKED, "reference": str(reference_folder)}
    build_dataset(settings(model_folder, tmp_path / "out", source, **asked))
    again = settings(model_folder, tmp_path / "out", source, **asked, **change)
    scorer = Counting(again)
    build_dataset(again, scorer)
    assert scorer.scored == 0
    build_dataset(settings(model_folder, tmp_path / "fresh", source, **asked, **change))
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


@pytest.mark.parametrize("other", [{"topk": 2}, {"entropy_top20": True}, {"reference": "model"}])
def test_other_extra_scores_are_other_scores(
    tmp_path: Path, model_folder: Path, write_rows: Write, other: dict[str, Any]
) -> None:
    source = write_rows([pair(n) for n in range(2)])
    if "reference" in other:
        other = {"reference": str(model_folder)}
    build_dataset(settings(model_folder, tmp_path / "out", source))
    with pytest.raises(DatasetError, match="--overwrite"):
        build_dataset(settings(model_folder, tmp_path / "out", source, **other))
    build_dataset(settings(model_folder, tmp_path / "out", source, overwrite=True, **other))
    build_dataset(settings(model_folder, tmp_path / "fresh", source, **other))
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_a_reference_that_reads_other_tokens_is_refused_before_the_folder_is_touched(
    tmp_path: Path, model_folder: Path, write_rows: Write
) -> None:
    shutil.copytree(model_folder, tmp_path / "stranger")
    train_tokenizer((KERNEL * 2, "x = y; z"), vocabulary=320).save_pretrained(tmp_path / "stranger")
    with pytest.raises(ModelError, match="--reference stranger: its tokenizer is not that of --model") as error:
        build_dataset(
            settings(model_folder, tmp_path / "out", write_rows([pair(1)]), reference=str(tmp_path / "stranger"))
        )
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_reference_that_is_not_there_is_named_by_its_option(
    tmp_path: Path, model_folder: Path, write_rows: Write
) -> None:
    with pytest.raises(ModelError, match=r"^--reference \./not-there"):
        build_dataset(settings(model_folder, tmp_path / "out", write_rows([pair(1)]), reference="./not-there"))


def test_options_that_cannot_work_are_refused(model_folder: Path) -> None:
    for asked in ({"topk": 1}, {"entropy_top20": True}, {"reference": "x"}):
        with pytest.raises(OptionError, match="--skip-scoring"):
            BuildConfig(skip_scoring=True, **asked)
    with pytest.raises(OptionError, match="--topk 0"):
        BuildConfig(topk=0)
    with pytest.raises(OptionError, match=r"--topk 5000: .* tokens"):
        ModelScorer(locate_model(str(model_folder)), BuildConfig(topk=5000))


class TooSmall(ModelScorer):
    """A device that holds `room` tokens, padding included, in one pass."""

    room = 0

    def _forward(self, batch: Sequence[Any]) -> list[TokenScores]:
        size = len(batch) * max(len(ids) for ids, _ in batch)
        self.passes = [*getattr(self, "passes", []), (len(batch), size <= self.room)]
        if size > self.room:
            raise torch.OutOfMemoryError("planted")
        return super()._forward(batch)


def test_a_batch_that_does_not_fit_is_halved_and_the_order_kept(model_folder: Path) -> None:
    scorer = TooSmall(locate_model(str(model_folder)), BuildConfig(batch_tokens=10_000))
    scorer.room = 120
    batch = random_samples(scorer.causal.vocabulary, 10, 60, 30, 59, 20)
    seen: list[tuple[int, int]] = []
    scores = scorer.score(batch, lambda rows, tokens: seen.append((rows, tokens)))
    assert scorer.passes == [(5, False), (3, False), (2, True), (1, True), (2, True)]
    alone = ModelScorer(locate_model(str(model_folder)), BuildConfig())
    for sample, own in zip(batch, scores, strict=True):
        np.testing.assert_allclose(own.logprob, alone.score([sample])[0].logprob, atol=1e-5)
    assert seen == [(5, sum(len(ids) - prompt for ids, prompt in batch))]


def test_one_sample_that_does_not_fit_is_one_line(model_folder: Path) -> None:
    scorer = TooSmall(locate_model(str(model_folder)), BuildConfig())
    scorer.room = 20
    with pytest.raises(ModelError, match="a sample of 21 tokens does not fit") as error:
        scorer.score(random_samples(300, 21, 5))
    assert "\n" not in str(error.value)
