"""The study of objectives with a tiny model: what it runs, keeps and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curate.errors import CusetError, DatasetError, OptionError
from tests.train.annotated import annotate, planted
from train import compare, sft
from train.compare import CompareConfig
from train.inputs.run import make_trainer

SMALL = ("--accumulation", "2", "--held-out", "0.4", "--epochs", "1", "--learning-rate", "0.01")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    return annotate(tmp_path_factory.mktemp("data") / "data", planted(12, seed=3), tokenizer=tokenizer)


def words(data: Path, model: Path, out: Path, *more: str) -> list[str]:
    return [*map(str, ("--data", data, "--model", model, "--out", out)), *SMALL, *more]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, data: Path, model_folder: Path) -> Path:
    out = tmp_path_factory.mktemp("study") / "out"
    more = ("--objectives", "sft,dft,cuset,cuset:weight=none:lambda=2", "--seeds", "0,1")
    assert compare.run(words(data, model_folder, out, *more)) == 0
    return out


def run_file(out: Path, name: str) -> Path:
    """The file of a run, such as sft-0; its name ends with a hash of the objective's options."""
    (found,) = (out / "runs").glob(f"{name}-????????.json")
    return found


def rows_of(out: Path) -> dict[tuple[str, str], dict[str, Any]]:
    return {(r["objective"], r["class"]): r for r in json.loads((out / "comparison.json").read_text())["rows"]}


def test_every_objective_and_seed_is_a_run(study: Path) -> None:
    found = {path.stem[:-9] for path in (study / "runs").glob("*.json")}
    names = ("sft", "dft", "cuset", "cuset_weight_none_lambda_2")
    assert found == {"untuned-0", *(f"{name}-{seed}" for name in names for seed in (0, 1))}
    contents = [json.loads(path.read_text()) for path in (study / "runs").glob("*.json")]
    assert len({tuple(c["sample_ids"]) for c in contents}) == 1
    assert len({json.dumps(c["nll"]) for c in contents}) == 9
    own = json.loads(run_file(study, "cuset_weight_none_lambda_2-1").read_text())["objective"]
    assert (own["weight"], own["lambda_"], own["tau"]) == ("none", 2.0, 0.1)


def test_a_run_of_a_study_is_that_of_the_training_command(
    study: Path, data: Path, model_folder: Path, tmp_path: Path
) -> None:
    sft.run(words(data, model_folder, tmp_path / "alone", "--objective", "dft", "--seed", "1"))
    alone = json.loads((tmp_path / "alone" / "results.json").read_text())
    run = json.loads(run_file(study, "dft-1").read_text())
    number = sum(tokens[0] for tokens in run["tokens"])
    assert sum(nll[0] for nll in run["nll"]) / number == pytest.approx(alone["after"]["eval_nll"], rel=1e-12)
    assert rows_of(study)["untuned", "all"]["nll"] == pytest.approx(alone["before"]["eval_nll"], rel=1e-6)


def test_numbers_are_the_same_in_every_file(study: Path) -> None:
    rows = rows_of(study)
    table = pl.read_csv(study / "comparison.csv")
    assert len(table) == len(rows) == 5 * 4
    for line in table.iter_rows(named=True):
        assert line == rows[line["objective"], line["class"]]
    markdown = (study / "comparison.md").read_text()
    assert f"{rows['cuset', 'sensitive']['nll']:.4f}" in markdown
    assert f"{rows['cuset', 'sensitive']['against']:+.4f}" in markdown
    assert "not functional correctness" in " ".join(markdown.split())
    assert (study / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert b"</svg>" in (study / "comparison.svg").read_bytes()


def test_what_is_done_is_not_done_again(
    study: Path, data: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More objectives may be asked for later; a run that was killed is made again and gives the same."""
    made: list[tuple[str, int]] = []
    plain = compare._one_run

    def counted(config: Any, *rest: Any, **more: Any) -> Any:
        made.append((config.objective, config.seed))
        return plain(config, *rest, **more)

    monkeypatch.setattr(compare, "_one_run", counted)
    before = json.loads(run_file(study, "sft-0").read_text())
    run_file(study, "sft-0").unlink()
    more = ("--objectives", "sft,dft,cuset,cuset:weight=none:lambda=2,profit", "--seeds", "0,1")
    compare.run(words(data, model_folder, study, *more))
    assert sorted(made) == [("profit", 0), ("profit", 1), ("sft", 0)]
    again = json.loads(run_file(study, "sft-0").read_text())
    assert {**again, "seconds": 0} == {**before, "seconds": 0}


def test_a_study_of_other_options_is_not_gone_on_with(study: Path, data: Path, model_folder: Path) -> None:
    with pytest.raises(OptionError, match="learning_rate"):
        compare.run([*words(data, model_folder, study)[:-2], "--learning-rate", "0.02"])


def test_a_variant_may_turn_a_flag_off(data: Path) -> None:
    (found,) = compare._variants(
        CompareConfig(data=(data,), objectives="cuset:device-functions=false:lambda=2")
    ).values()
    assert not found.device_functions
    assert found.lambda_ == 2


def test_runs_of_variants_that_differ_in_one_character_are_two_files() -> None:
    names = {compare._file_name(f"cuset:lambda={v}", 0, {"lambda_": float(v)}) for v in ("1e-1", "1e+1")}
    assert len(names) == 2


def test_a_study_of_objectives_that_store_no_columns(
    data: Path, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The untuned model is judged with the columns that the objectives asked for, not with those of cuset."""
    asked: list[str] = []

    def stopped(config: Any, inputs: Any, out: Path, *, train: bool) -> Any:
        asked.append(config.objective)
        return make_trainer(inputs, config, out, save_strategy="no", eval_on_start=False).held_out_sums()

    monkeypatch.setattr(compare, "_one_run", stopped)
    assert compare.run(words(data, model_folder, tmp_path / "out", "--objectives", "dft", "--seeds", "0")) == 0
    assert asked == ["dft", "dft"]


def test_another_tau_makes_those_runs_anew(
    study: Path, data: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name: path.read_bytes() for path in (study / "runs").glob("*.json")}
    made: list[float] = []

    def stopped(config: Any, *rest: Any, **more: Any) -> Any:
        made.append(config.tau)
        raise KeyboardInterrupt

    monkeypatch.setattr(compare, "_one_run", stopped)
    with pytest.raises(KeyboardInterrupt):
        compare.run(words(data, model_folder, study, "--objectives", "sft,cuset", "--seeds", "0", "--tau", "0.3"))
    assert made == [0.3]
    assert {path.name: path.read_bytes() for path in (study / "runs").glob("*.json")} == before


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--objectives", "sft,nothing"), "nothing"),
        (("--objectives", "sft,sft"), "twice"),
        (("--objectives", "cuset:out=/etc"), "NAME:OPTION=VALUE"),
        (("--objectives", "cuset:tau=high"), "tau"),
        (("--objectives", "cuset:objective=sft"), "objective stands there twice"),
        (("--objectives", "cuset:lambda=1:lambda=2"), "lambda stands there twice"),
        (("--objectives", "eaft,dft:normalize=weights"), "normalize"),
        (("--seeds", "0,a"), "whole numbers"),
        (("--seeds", "-1"), "seed"),
        (("--seeds", "1,1"), "twice"),
        (("--held-out", "0"), "--held-out"),
        (("--objectives", "sft,asft", "--tuning", "full"), "asft"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_made(
    data: Path, model_folder: Path, tmp_path: Path, more: tuple[str, ...], said: str
) -> None:
    with pytest.raises(CusetError, match=said):
        compare.run(words(data, model_folder, tmp_path / "out", *more))
    assert not (tmp_path / "out").exists()


def test_a_study_inside_a_dataset(data: Path, model_folder: Path) -> None:
    with pytest.raises(OptionError, match="lies inside the dataset"):
        compare.run(words(data, model_folder, data / "samples" / "study"))
    assert not (data / "samples" / "study").exists()


def test_a_folder_that_is_no_study_is_left_alone(data: Path, model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(OptionError, match="no study"):
        compare.run(words(data, model_folder, tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_a_damaged_run_is_named(study: Path, data: Path, model_folder: Path, tmp_path: Path) -> None:
    path = run_file(study, "dft-1")
    before = path.read_bytes()
    try:
        for damaged in (before[:100], json.dumps({**json.loads(before), "nll": []}).encode(), b"[]"):
            path.write_bytes(damaged)
            with pytest.raises(DatasetError, match=r"dft-1-.*\.json: damaged"):
                compare.run(words(data, model_folder, study, "--objectives", "sft,dft", "--seeds", "0,1"))
    finally:
        path.write_bytes(before)
