"""What happens to the rows that a filter finds: refused, marked or let through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import KERNEL, fenced, pair

from curate import BuildConfig, build_dataset
from curate.config import BuildConfig as Config
from curate.console import parse_options
from curate.errors import OptionError
from curate.filters import actions

Rows = Callable[..., Path]
BROKEN = KERNEL.replace("x[i] *= a;", "] ] ( ) x[ = = i *) { ; a a a ] ] [ ( ; % % @ @ # (")


@pytest.fixture
def build(write_rows: Rows, tmp_path: Path, model_folder: Path) -> Callable[..., tuple[pl.DataFrame, pl.DataFrame]]:
    def built(rows: list[dict[str, Any]], **options: Any) -> tuple[pl.DataFrame, pl.DataFrame]:
        source = write_rows(rows)
        options = {"license": "MIT", "jobs": 1, **options}
        config = BuildConfig(source=(str(source),), out=tmp_path / "out", model=str(model_folder), **options)
        build_dataset(config)
        read = (pl.read_parquet(tmp_path / "out" / table / "*.parquet") for table in ("samples", "rejected"))
        samples, rejected = read
        assert len(samples) + len(rejected) == len(rows)
        return samples, rejected

    return built


ROWS = [
    pair(0, id="good", correct=True),
    pair(1, id="wrong", correct=False),
    pair(2, id="wrong-too", correct="False"),
    pair(3, id="unsaid", correct=None),
    pair(4, BROKEN, id="broken", correct=True),
    {"prompt": "Say hello.", "response": fenced("int f() { return 1; }\n", "cpp"), "id": "host", "correct": 1},
]


def test_refused_by_default(build: Callable[..., Any]) -> None:
    samples, rejected = build(ROWS, skip_scoring=True)
    assert samples["source_id"].to_list() == ["good", "unsaid"]
    assert samples["correct"].to_list() == [True, None]
    assert samples["flags"].to_list() == [[], []]
    reasons = dict(rejected.select("source_id", "reason").iter_rows())
    assert reasons == {
        "wrong": "marked_incorrect",
        "wrong-too": "marked_incorrect",
        "broken": "kernel_syntax_errors",
        "host": "no_cuda",
    }


def test_marked_rows_keep_their_flags(build: Callable[..., Any]) -> None:
    choices = ("marked_incorrect=mark", "kernel_syntax_errors=mark", "too_long=mark", "no_cuda=off", "no_kernel=mark")
    samples, rejected = build(ROWS, skip_scoring=True, filter=choices, max_length=200)
    assert rejected.is_empty()
    flags = {
        row["source_id"]: [flag["reason"] for flag in row["flags"] if flag["reason"] != "too_long"]
        for row in samples.iter_rows(named=True)
    }
    assert flags == {
        "good": [], "wrong": ["marked_incorrect"], "wrong-too": ["marked_incorrect"], "unsaid": [],
        "broken": ["kernel_syntax_errors"], "host": ["no_kernel"],
    }  # fmt: skip
    details = dict(samples.explode("flags").unnest("flags").select("reason", "detail").drop_nulls().iter_rows())
    assert details["too_long"].endswith("tokens, 200 allowed")
    assert details["marked_incorrect"] == "its source says so"


def test_a_changed_choice_is_a_build_of_its_own(build: Callable[..., Any]) -> None:
    assert len(build(ROWS)[0]) == 2
    samples, _ = build(ROWS, filter=("marked_incorrect=off",))  # in the same folder, scores taken over
    assert samples["source_id"].to_list() == ["good", "wrong", "wrong-too", "unsaid"]
    assert samples["flags"].list.len().sum() == 0


@pytest.mark.parametrize(
    ("choice", "said"), [("nonsense=mark", "no such reason"), ("too_long", "write too_long="), ("too_long=on", "write")]
)
def test_wrong_choices_are_refused(choice: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        actions([choice])


def test_choices_from_yaml(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("filter: {too_long: off, no_kernel: mark}\n")
    config = parse_options(Config, ["--config", str(file)], "curate.build")
    assert config.filter == ("too_long=off", "no_kernel=mark")
    file.write_text("filter: [too_long=off]\n")
    assert parse_options(Config, ["--config", str(file)], "curate.build").filter == ("too_long=off",)
