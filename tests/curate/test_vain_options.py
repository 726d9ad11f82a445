"""Options and machines with which every row would come to the same: an error before, or a warning behind, not silence."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from conftest import fenced, pair

from curate.compiling import NO_COMPILER, CompileResult
from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.errors import OptionError

Write = Callable[..., Path]
PROGRAM = pair(1)["response"].split("```")[1].partition("\n")[2] + "int main() { return 0; }\n"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"execute": "no-such-command-cuset {}"}, "no program no-such-command-cuset"),
        ({"execute": "./check.sh"}, "./check.sh is relative"),
        ({"execute": "sh -c 'open"}, "cannot be split"),
        ({"execute": ""}, "is empty"),
        ({"arch": ("sm_90", "sm_99999")}, "--arch sm_99999"),
    ],
)
def test_an_option_that_would_refuse_every_row_is_an_error(
    write_rows: Write, model_folder: Path, tmp_path: Path, options: dict[str, object], says: str
) -> None:
    source = write_rows([pair(1)])
    config = BuildConfig(source=(str(source),), out=tmp_path / "out", model=str(model_folder), **options)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=says):
        build_dataset(config)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("command", "warned"), [("sh -c 'nvcc-cuset-none $0'", True), ("sh -c 'grep -q \"return 4\" $0'", False)]
)
def test_programs_that_all_fail_are_a_warning_and_say_their_exit_code(
    write_rows: Write, model_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, command: str, warned: bool
) -> None:
    programs = {name: PROGRAM.replace("return 0", f"return {name}") for name in "347"}
    rows = [{"id": name, "prompt": name, "response": fenced(code)} for name, code in programs.items()]
    source = write_rows(rows)
    config = BuildConfig(
        source=(str(source),), out=tmp_path / "out", model=str(model_folder), skip_scoring=True, compile=False,
        execute=command, filter=("near_duplicate=off",),
    )  # fmt: skip
    with caplog.at_level(logging.WARNING, "curate.judge"):
        build_dataset(config)
    assert [f"none of {len(rows)} programs passed" in message for message in caplog.messages] == [True] * warned
    refused = pl.read_parquet(tmp_path / "out" / "refused" / "*.parquet")
    code = "exit code 127" if warned else "exit code 1"
    assert {text.split("\n")[0] for text in refused["evidence"]} == {code}
    assert len(refused) == (3 if warned else 2)


def test_a_corrected_script_is_run_again(write_rows: Write, model_folder: Path, tmp_path: Path) -> None:
    source, script, ran = write_rows([pair(1, PROGRAM)]), tmp_path / "check.sh", tmp_path / "ran"
    config = BuildConfig(
        source=(str(source),), out=tmp_path / "out", model=str(model_folder), skip_scoring=True, compile=False,
        execute=f"sh {script}",
    )  # fmt: skip
    accepted = []
    for code in (1, 1, 0):
        script.write_text(f"echo >> {ran}\nexit {code}\n")
        build_dataset(config)
        accepted.append(len(pl.read_parquet(tmp_path / "out" / "samples" / "*.parquet")))
    assert accepted == [0, 0, 1]
    assert len(ran.read_text().splitlines()) == 2  # an unchanged script has been asked already


@pytest.mark.parametrize("there", [True, False])
def test_a_machine_without_compiler_says_so(
    write_rows: Write, model_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch, there: bool,
) -> None:  # fmt: skip
    result = CompileResult("ok", "nvcc 1.0") if there else CompileResult("skipped", log=f"{NO_COMPILER}: none")
    monkeypatch.setattr("curate.judge.check_all", lambda sources, *_: ((row, result) for row, _ in sources))
    source = write_rows([pair(1), pair(2)])
    config = BuildConfig(source=(str(source),), out=tmp_path / "out", model=str(model_folder), skip_scoring=True)
    with caplog.at_level(logging.WARNING, "curate.judge"):
        build_dataset(config)
    assert ["were not compiled" in message for message in caplog.messages] == [True] * (not there)
    assert all(message.startswith("2 answers") for message in caplog.messages)
