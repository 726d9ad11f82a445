"""The build as a whole: conservation, the dataset's form, sameness of bytes whatever the jobs or interruptions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from conftest import fenced, kernel, pair
from dying_rows import dies_on_row_4

from curate import parts
from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.errors import DatasetError
from curate.folder import OutFolder
from curate.frames import each_row
from curate.model import locate_model
from curate.pool import in_order
from curate.schema import SAMPLES, TOKEN_LISTS
from curate.score import ModelScorer, StubScorer
from curate.store import connect
from curate.weights import weigh

Write = Callable[..., Path]


def config(model_folder: Path, out: Path, *sources: Path, **more: Any) -> BuildConfig:
    return BuildConfig(source=tuple(map(str, sources)), out=out, model=str(model_folder), **{"jobs": 1, **more})


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a dataset but the log."""
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.name != "build.log.json"
    }


def mixed_rows() -> list[dict[str, Any] | str]:
    """Good rows and one of each kind of bad one, with the reason in `expect`."""
    return [
        *[pair(n) for n in range(5)],
        '{"prompt": "cut',
        {**pair(0), "expect": "exact_duplicate"},
        {"prompt": " \n", "response": fenced()},
        {"prompt": "p", "response": "\t"},
        {"prompt": None, "response": "x"},
        {"prompt": "p", "response": "No code here."},
        {"prompt": "p", "response": fenced("int main() { return 0; }\n", "cpp")},
        {"prompt": "p", "response": fenced("__device__ float f(float x) { return x * x; }\n")},
        {
            "prompt": "p",
            "response": fenced("__global__ void k(float *x) { x[ = = ) 3 +; ( ] ) ; x } else ( ( { ;; ) = 4 = 5\n"),
        },
        {"prompt": "p", "response": fenced("".join(map(kernel, range(100, 130))))},
    ]


EXPECTED = {
    ("read", "broken_json"): 1, ("read", "empty_prompt"): 1, ("read", "empty_response"): 1, ("read", "missing_prompt"):
    1, ("parse", "no_cuda"): 2, ("parse", "no_kernel"): 1, ("parse", "kernel_syntax_errors"): 1, ("duplicates",
    "exact_duplicate"): 1, ("tokenise", "too_long"): 1,
}  # fmt: skip


def test_every_row_is_accepted_or_refused_for_its_reason(tmp_path: Path, model_folder: Path, write_rows: Write) -> None:
    rows = mixed_rows()
    manifest = build_dataset(
        config(model_folder, tmp_path / "out", write_rows(rows), max_length=2000, shard_rows=4), StubScorer()
    )
    counts = manifest["counts"]
    assert {
        (stage, reason): n for stage, reasons in counts["refused"].items() for reason, n in reasons.items()
    } == EXPECTED
    assert (counts["read"], counts["accepted"], counts["failed"]) == (len(rows), 5, 0)
    rejected = pl.read_parquet(tmp_path / "out" / "rejected" / "*.parquet")
    assert sorted(rejected["id"].cast(int)) == list(range(5, len(rows)))
    refused = pl.read_parquet(tmp_path / "out" / "refused" / "*.parquet")
    assert refused.filter(reason="broken_json")["raw"][0].strip() == '{"prompt": "cut'
    assert refused.filter(reason="no_kernel")["response"][0].count("__device__") == 1
    assert not set(rejected.columns) & {"prompt", "response", "raw"}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    """A small dataset scored by the tiny model."""
    folder = tmp_path_factory.mktemp("dataset")
    source = folder / "rows.jsonl"
    source.write_text("\n".join(json.dumps(pair(n, license="CC0-1.0")) for n in range(7)) + '\n{"prompt": "cut')
    build_dataset(config(model_folder, folder / "out", source, shard_rows=3))
    return folder / "out"


def test_lists_have_the_length_of_the_response(dataset: Path) -> None:
    frame = pl.read_parquet(dataset / "samples" / "*.parquet")
    assert frame.columns == [c.name for c in SAMPLES]
    assert len(frame) == 7
    expected = frame["input_ids"].list.len().cast(int) - frame["prompt_tokens"]
    for name in TOKEN_LISTS:
        assert (frame[name].list.len() == expected).all(), name
    assert frame["logprob"].dtype == pl.List(pl.Float16)


def test_stored_scores_are_the_models_within_half_a_float16_step(dataset: Path, model_folder: Path) -> None:
    scorer = ModelScorer(locate_model(str(model_folder)), BuildConfig())
    for row in pl.read_parquet(dataset / "samples" / "*.parquet").iter_rows(named=True):
        exact = scorer.score([(np.array(row["input_ids"], np.int32), row["prompt_tokens"])])[0]
        stored = np.array(row["logprob"], np.float16)
        half_step = np.abs(np.spacing(exact.logprob.astype(np.float16)).astype(np.float64)) / 2
        assert (np.abs(stored.astype(np.float64) - exact.logprob) <= half_step + 1e-6).all()
        assert row["rank"] == exact.rank.tolist()


def test_weights_follow_from_the_stored_values(dataset: Path) -> None:
    for row in pl.read_parquet(dataset / "samples" / "*.parquet").iter_rows(named=True):
        m, w = weigh(
            np.array(row["logprob"], np.float16),
            np.array(row["location"], np.uint8),
            np.array(row["in_code"]),
            BuildConfig(),
        )
        assert row["token_weight"] == m.tolist()
        assert row["sample_weight"] == pytest.approx(w.weight, abs=1e-6)
        assert row["min_window_start"] == w.min_start


def test_opens_with_datasets_and_with_plain_duckdb(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import datasets

    loaded = datasets.load_dataset(str(dataset), cache_dir=str(tmp_path))
    (split,) = loaded.values()
    assert split["sample_id"] == pl.read_parquet(dataset / "samples" / "*.parquet")["sample_id"].to_list()
    assert split.features["logprob"].feature.dtype == "float16"
    refused = datasets.load_dataset(str(dataset), "rejected", cache_dir=str(tmp_path))
    assert next(iter(refused.values()))["reason"] == ["broken_json"]
    found = duckdb.sql(f"select count(*), sum(len(logprob)) from '{dataset}/samples/*.parquet'").fetchall()
    assert found == [(7, sum(map(len, split["logprob"])))]


def test_views_agree_with_the_lists(dataset: Path) -> None:
    connection = connect(dataset)
    frame = pl.read_parquet(dataset / "samples" / "*.parquet")
    count, mean = connection.execute("select count(*), avg(confidence) from tokens").fetchone()
    logprob = np.concatenate([np.array(x, np.float16) for x in frame["logprob"]]).astype(np.float64)
    assert count == len(logprob)
    assert mean == pytest.approx(np.exp(logprob).mean(), rel=1e-5)
    first = frame.row(0, named=True)
    tokens = connection.execute(
        "select token, category, location from tokens where sample_id = ? order by pos", [first["sample_id"]]
    ).fetchall()
    assert "".join(t[0] or "" for t in tokens) == first["response"]
    assert any("threadIdx" in (t[0] or "") or t[1] == "thread_index" for t in tokens)
    assert {t[2] for t in tokens} == {"none", "kernel", "launch", "launch_setup"}


def test_windows_are_full_windows_over_code(dataset: Path) -> None:
    connection = connect(dataset)
    row = pl.read_parquet(dataset / "samples" / "*.parquet").row(0, named=True)
    code = np.flatnonzero(row["in_code"])
    confidence = np.exp(np.array(row["logprob"], np.float16).astype(np.float64))[code]
    sensitive = (np.array(row["category"]) > 0)[code]
    windows = connection.execute(
        "select start, confidence, category_tokens from windows(16) where sample_id = ? order by start",
        [row["sample_id"]],
    ).fetchall()
    assert len(windows) == len(code) - 15
    for k, (start, mean, tokens) in enumerate(windows):
        assert start == code[k]
        assert mean == pytest.approx(confidence[k : k + 16].mean(), rel=1e-5)
        assert tokens == sensitive[k : k + 16].sum()


def test_jobs_and_a_second_run_change_no_byte(tmp_path: Path, model_folder: Path, write_rows: Write) -> None:
    source = write_rows(mixed_rows())
    for n, jobs in enumerate((1, 2, 2)):
        build_dataset(config(model_folder, tmp_path / str(n), source, max_length=2000, shard_rows=3, jobs=jobs))
    assert contents(tmp_path / "0") == contents(tmp_path / "1") == contents(tmp_path / "2")
    assert "manifest.json" in contents(tmp_path / "0")


class Stopper:
    """A scorer that is interrupted before its n-th shard."""

    def __init__(self, shards: int) -> None:
        self.left, self.inner = shards, StubScorer()

    def identity(self) -> dict[str, object]:
        return self.inner.identity()

    def score(self, samples: Sequence[Any], done: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return self.inner.score(samples, done)


def test_an_interrupted_build_goes_on_and_ends_with_the_same_bytes(
    tmp_path: Path, model_folder: Path, write_rows: Write
) -> None:
    source = write_rows([pair(n) for n in range(9)])
    build_dataset(config(model_folder, tmp_path / "whole", source, shard_rows=2), StubScorer())
    halted = config(model_folder, tmp_path / "halted", source, shard_rows=2)
    for shards in (0, 2, 1):
        with pytest.raises(KeyboardInterrupt):
            build_dataset(halted, Stopper(shards))
        with pytest.raises(DatasetError, match="not ended"):
            connect(tmp_path / "halted")
    build_dataset(halted, StubScorer())
    assert contents(tmp_path / "halted") == contents(tmp_path / "whole")


class Counting(StubScorer):
    """Counts the samples that it is asked to score."""

    def __init__(self) -> None:
        self.scored = 0

    def score(self, samples: Sequence[Any], done: Any) -> Any:
        self.scored += len(samples)
        return super().score(samples, done)


@pytest.mark.parametrize("change", [{"tau": 0.3}, {"window": 8}, {"max_error_share": 0.0}, {"max_length": 100}, {}])
@pytest.mark.parametrize("halted", [False, True])
def test_changed_options_score_nothing_again_and_give_the_bytes_of_a_fresh_build(
    tmp_path: Path, model_folder: Path, write_rows: Write, change: dict[str, Any], halted: bool
) -> None:
    source = write_rows([*(pair(n) for n in range(7)), "{", pair(3)])
    out, fresh = tmp_path / "out", tmp_path / "fresh"
    if halted:
        with pytest.raises(KeyboardInterrupt):
            build_dataset(config(model_folder, out, source, shard_rows=2), Stopper(2))
    else:
        build_dataset(config(model_folder, out, source, shard_rows=2), StubScorer())
    scorer = Counting()
    build_dataset(config(model_folder, out, source, shard_rows=2, **change), scorer)
    build_dataset(config(model_folder, fresh, source, shard_rows=2, **change), StubScorer())
    assert contents(out) == contents(fresh)
    assert scorer.scored == (3 if halted and change != {"max_length": 100} else 0)


def test_another_model_or_source_needs_overwrite(tmp_path: Path, model_folder: Path, write_rows: Write) -> None:
    source, other = write_rows([pair(n) for n in range(4)]), write_rows([pair(n) for n in range(5)], "other.jsonl")
    out = tmp_path / "out"
    build_dataset(config(model_folder, out, source), StubScorer())
    for settings in ({"context": "raw"}, {"limit": 2}):
        with pytest.raises(DatasetError, match="--overwrite"):
            build_dataset(config(model_folder, out, source, **settings), StubScorer())
    with pytest.raises(DatasetError, match="--overwrite"):
        build_dataset(config(model_folder, out, other), StubScorer())
    build_dataset(config(model_folder, out, other, overwrite=True), StubScorer())
    build_dataset(config(model_folder, tmp_path / "fresh", other), StubScorer())
    assert contents(out) == contents(tmp_path / "fresh")


def test_two_builds_in_one_folder_are_kept_apart(tmp_path: Path, model_folder: Path, write_rows: Write) -> None:
    settings = config(model_folder, tmp_path / "out", write_rows([pair(1)]))
    with OutFolder(tmp_path / "out").locked(), pytest.raises(DatasetError, match="another build"):
        build_dataset(settings, StubScorer())
    build_dataset(settings, StubScorer())


def test_a_row_whose_process_dies_costs_that_row_alone(tmp_path: Path) -> None:
    frame = pl.DataFrame({"row": [0, 1, 2]}, schema_overrides={"row": pl.Int64}).with_columns(
        pl.lit(None, pl.String).alias(name) for name in ("stage", "reason", "detail")
    )
    shards = [(n, frame.with_columns(row=pl.col("row") + 3 * n)) for n in range(3)]
    done = dict(in_order(dies_on_row_4, iter(shards), jobs=2))
    assert list(done) == [0, 1, 2]
    reasons = [reason for part in done.values() for reason in part["reason"]]
    assert reasons == [None] * 4 + ["failed"] + [None] * 4


def test_a_row_that_breaks_a_stage_takes_no_other_along() -> None:
    def compute(row: dict[str, Any]) -> dict[str, Any]:
        if row["row"] == 1:
            raise RecursionError("too deep")
        return {"twice": 2 * row["row"]}

    frame = pl.DataFrame(
        {"row": [0, 1, 2], "stage": [None] * 3, "reason": [None] * 3, "detail": [None] * 3},
        schema_overrides=dict.fromkeys(("stage", "reason", "detail"), pl.String),
    )
    result = each_row(frame, "parse", [], compute, {"twice": pl.Int64()})
    assert result["twice"].to_list() == [0, None, 4]
    assert result.row(1, named=True)["reason"] == "failed"
    assert result["detail"].to_list() == [None, "RecursionError", None]


def test_a_build_that_does_not_balance_is_no_dataset(
    tmp_path: Path, model_folder: Path, write_rows: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_one = parts._tables
    monkeypatch.setattr(
        parts,
        "_tables",
        lambda frame: {k: v.head(max(0, len(v) - (k == "samples"))) for k, v in lose_one(frame).items()},
    )
    with pytest.raises(Exception, match="does not balance: 3 rows read, 2 accepted"):
        build_dataset(config(model_folder, tmp_path / "out", write_rows([pair(n) for n in range(3)])), StubScorer())
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_skip_scoring_leaves_the_models_columns_null(tmp_path: Path, model_folder: Path, write_rows: Write) -> None:
    manifest = build_dataset(config(model_folder, tmp_path / "out", write_rows([pair(1), pair(2)]), skip_scoring=True))
    frame = pl.read_parquet(tmp_path / "out" / "samples" / "*.parquet")
    for name in ("logprob", "entropy", "rank", "token_weight", "sample_weight", "min_window_confidence"):
        assert frame[name].null_count() == 2, name
    assert frame["category"].list.max().min() > 0
    assert manifest["findings"] is None
    assert connect(tmp_path / "out").execute("select count(*), count(confidence) from tokens").fetchone()[1] == 0


def test_a_score_that_is_no_number_is_a_reason(tmp_path: Path, model_folder: Path, write_rows: Write) -> None:
    class Broken(StubScorer):
        def score(self, samples: Sequence[Any], done: Any = None) -> Any:
            scores = super().score(samples)
            scores[0].logprob[3] = np.nan
            return scores

    manifest = build_dataset(config(model_folder, tmp_path / "out", write_rows([pair(1), pair(2)])), Broken())
    assert manifest["counts"]["refused"] == {"score": {"non_finite_score": 1}}
    assert manifest["counts"]["accepted"] == 1


def test_the_manifest_names_no_path_of_the_machine(dataset: Path) -> None:
    text = (dataset / "manifest.json").read_text()
    manifest = json.loads(text)
    assert str(dataset.parent) not in text
    assert manifest["sources"][0]["name"] == "rows.jsonl"
    assert set(manifest["findings"]) == {"statement", "category"}
    assert manifest["config"]["lambda"] == 1.0


def test_findings_equal_numpy_over_the_same_tokens(dataset: Path) -> None:
    found = json.loads((dataset / "manifest.json").read_text())["findings"]
    frame = pl.read_parquet(dataset / "samples" / "*.parquet")
    confidence, code, statement, low, windows = [], [], [], 0, 0
    for row in frame.iter_rows(named=True):
        confidence.append(np.exp(np.array(row["logprob"], np.float16).astype(np.float64)))
        code.append(np.array(row["in_code"]))
        statement.append(np.array(row["statement"]))
    every, inside, marked = map(np.concatenate, (confidence, code, statement))
    neutral = every[inside & ~marked].mean()
    assert found["statement"]["sensitive_mean"] == pytest.approx(every[inside & marked].mean(), rel=1e-5)
    assert found["statement"]["neutral_mean"] == pytest.approx(neutral, rel=1e-5)
    for c, i in zip(confidence, code, strict=True):
        means = np.convolve(c[i], np.ones(64) / 64, mode="valid")
        low, windows = low + int((means < neutral).sum()), windows + len(means)
    assert (found["statement"]["windows"], found["statement"]["low_windows"]) == (windows, low)
