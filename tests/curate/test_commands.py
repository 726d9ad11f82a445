"""The commands as a user meets them: output, one-line errors, exit codes, help. In process, by each command's `run`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from conftest import fenced, pair

from curate import build as build_command
from curate import inspect as inspect_command
from curate import query as query_command
from curate.config import BuildConfig
from curate.console import parse_options, printable
from curate.driver import build_dataset
from curate.errors import CusetError, OptionError

Write = Callable[..., Path]
HOSTILE = "\x1b[2J\x1b]0;owned\x07 [bold]markup[/bold] </script>"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    rows = [
        pair(1, id="first"),
        pair(2, id="second"),
        {
            "id": "odd",
            "prompt": HOSTILE,
            "response": fenced(f"// {HOSTILE}\n" + pair(3)["response"].split("```")[1][5:]),
        },
    ]
    rows.append({"id": "bad", "prompt": HOSTILE, "response": "nothing here " + HOSTILE})
    source = folder / "rows.jsonl"
    source.write_text("\n".join(map(json.dumps, rows)))
    arguments = ["--source", str(source), "--out", str(folder / "out"), "--model", str(model_folder), "--jobs", "1"]
    assert build_command.run(arguments) == 0
    return folder / "out"


def fails(command: list[str]) -> str:
    """Runs `python -m ...`; it must end with code 2 and one line of error, and returns the line."""
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")
    return line


def test_build_prints_funnel_findings_and_place(
    model_folder: Path, write_rows: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_rows([pair(1), "{broken"])
    assert (
        build_command.run(
            ["--source", str(source), "--out", str(tmp_path / "o"), "--model", str(model_folder), "--jobs", "1"]
        )
        == 0
    )
    printed = capsys.readouterr().out
    for text in ("Funnel", "broken_json", "accepted", "mean confidence, sensitive", str(tmp_path / "o")):
        assert text in printed


def test_query_prints_a_table_csv_json_and_parquet(
    dataset: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    sql = "select source_id, kernels from samples order by source_id"
    assert query_command.run([str(dataset), sql]) == 0
    assert b"first" in capfdbinary.readouterr().out
    query_command.run([str(dataset), sql, "--csv"])
    assert capfdbinary.readouterr().out == b"source_id,kernels\nfirst,1\nodd,1\nsecond,1\n"
    query_command.run([str(dataset), sql, "--json"])
    assert json.loads(capfdbinary.readouterr().out)[0] == {"source_id": "first", "kernels": 1}
    query_command.run([str(dataset), sql, "--parquet", str(tmp_path / "r.parquet")])
    assert pq.read_table(tmp_path / "r.parquet").to_pydict() == {
        "source_id": ["first", "odd", "second"],
        "kernels": [1, 1, 1],
    }


def test_a_long_result_says_that_it_was_cut(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query_command.run([str(dataset), "select pos from tokens", "--rows", "5"])
    assert "the first 5 rows" in capsys.readouterr().out


def test_no_control_character_of_the_corpus_reaches_the_terminal(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query_command.run([str(dataset), "select prompt, response from samples"])
    for arguments in (["odd"], ["bad"], ["odd", "--tokens"]):
        inspect_command.run([str(dataset), *arguments])
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "\x07" not in printed
    assert "[bold]markup[/bold]" in printed


def test_printable_keeps_text_and_spells_out_controls() -> None:
    assert printable("größe 汉字 🎉\t\n") == "größe 汉字 🎉\t\n"
    assert printable("\x1b[31m\x00\x9b\r\u202e") == "\\x1b[31m\\x00\\x9b\\r\\u202e"


def test_inspect_shows_a_sample_by_any_of_its_names(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    identity = pl.read_parquet(dataset / "samples" / "*.parquet").filter(source_id="first")["sample_id"][0]
    for name in ("first", identity, identity[:10]):
        inspect_command.run([str(dataset), name])
        printed = capsys.readouterr().out
        assert "blockIdx.x * blockDim.x + threadIdx.x" in printed
        assert "thread_index" in printed
        assert identity in printed


def test_inspect_says_why_a_row_was_refused_and_shows_it(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inspect_command.run([str(dataset), "bad"])
    printed = capsys.readouterr().out
    assert "no_cuda" in printed
    assert "nothing here" in printed


def test_inspect_names_the_row_that_its_source_calls_like_another(
    write_rows: Write, model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without ids a row is called by its line, from 1; a refused one by its number, from 0."""
    source = write_rows([pair(1), {"prompt": "p", "response": "second"}, {"prompt": "p", "response": "third"}, pair(4)])
    out = tmp_path / "out"
    build_dataset(BuildConfig(source=(str(source),), out=out, model=str(model_folder), skip_scoring=True))
    first = pl.read_parquet(out / "samples" / "*.parquet").filter(source_id="1")["sample_id"][0]
    said = []
    for name in ("1", "2", "3"):
        inspect_command.run([str(out), name])
        said.append(capsys.readouterr().out)
    assert "row 1, in rows.jsonl called 2, was refused" in said[0]
    assert f"rows.jsonl calls another row 1: its id is {first}" in said[0]
    assert "row 2, in rows.jsonl called 3, was refused" in said[1]
    assert "rows.jsonl calls another row 2: its id is 1" in said[1]
    assert "another" not in said[2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--tau", "2"], "--tau 2.0: must lie between 0 and 1"),
        (["--lambda", "-1"], "--lambda -1.0"),
        (["--window", "0"], "--window 0"),
        (["--tau", "many"], "could not convert string to float"),
        (["--taw", "0.1"], "--taw"),
        (["--context", "poem"], "chat"),
        (["--config", "/not/there.yaml"], "/not/there.yaml"),
        (["--config"], "YAML"),
    ],
)
def test_a_wrong_option_is_one_line(arguments: list[str], says: str) -> None:
    with pytest.raises(CusetError, match=says) as error:
        build_command.run(arguments)
    assert "\n" not in str(error.value)


def test_a_config_file_gives_options_and_the_command_line_wins(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("source: [a.jsonl, b.jsonl]\ntau: 0.2\nlambda: 2\nskip_scoring: true\ndevice-functions: false\n")
    config = parse_options(BuildConfig, ["--config", str(file), "--tau", "0.5"], "curate.build")
    assert (config.source, config.tau, config.lambda_, config.skip_scoring, config.device_functions) == (
        ("a.jsonl", "b.jsonl"),
        0.5,
        2.0,
        True,
        False,
    )
    assert parse_options(BuildConfig, [f"--config={file}", "--source", "c"], "curate.build").source == ("c",)
    file.write_text("tau: [")
    with pytest.raises(OptionError, match="--config"):
        parse_options(BuildConfig, ["--config", str(file)], "curate.build")
    file.write_text("taw: 1\n")
    with pytest.raises(OptionError, match="taw"):
        parse_options(BuildConfig, ["--config", str(file)], "curate.build")


@pytest.mark.parametrize("command", ["curate.build", "curate.query", "curate.inspect"])
def test_every_command_has_help(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", command, "--help"], capture_output=True, text=True, timeout=120, check=True
    )
    assert f"python -m {command}" in done.stdout
    assert done.stderr == ""


def test_errors_of_a_real_process_are_one_line_and_code_2(tmp_path: Path, dataset: Path) -> None:
    assert "/not/there" in fails(["curate.build", "--source", "/not/there.jsonl", "--out", str(tmp_path / "o")])
    assert "no manifest.json" in fails(["curate.query", str(tmp_path), "select 1"])
    assert "syntax error" in fails(["curate.query", str(dataset), "selec"])
    assert "no sample or refused row" in fails(["curate.inspect", str(dataset), "nobody"])
    assert "--taw" in fails(["curate.build", "--taw", "1"])


def test_csv_and_json_hold_every_type(dataset: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    for sql in (
        "from samples",
        "select * from manifest",
        "select {'a': [1]} s, 'x'::blob b, interval 1 day i, 'infinity'::date d",
    ):
        assert query_command.run([str(dataset), sql, "--csv"]) == 0
        assert len(capfdbinary.readouterr().out) > 10
        assert query_command.run([str(dataset), sql + " -- a comment", "--json"]) == 0
        assert json.loads(capfdbinary.readouterr().out)


@pytest.mark.parametrize("table", ["samples", "rejected"])
@pytest.mark.parametrize("content", [b"", b"garbage", None])
def test_a_damaged_dataset_is_one_line(dataset: Path, tmp_path: Path, table: str, content: bytes | None) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    part = copy / table / "part-00000.parquet"
    if content is None:
        shutil.rmtree(part.parent)
    else:
        part.write_bytes(content)
    for command in (query_command, inspect_command):
        with pytest.raises(CusetError) as error:
            command.run([str(copy), "select * from samples"])
        assert "\n" not in str(error.value)


def test_text_is_never_turned_into_emoji(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query_command.run([str(dataset), "select 'a?b:x:c' as t"])
    assert "a?b:x:c" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        "tau: 2024-13-45",
        "tau: !!int abc",
        "limit: " + "9" * 5000,
        "source: " + "[" * 3000,
        'license: "\\ud800"',
        "tau: true",
        "- tau",
        "tau: {a: 1}",
        'out: "a\\0b"',
    ],
)
def test_a_config_file_of_nonsense_is_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(CusetError) as error:
        parse_options(BuildConfig, ["--config", str(file)], "curate.build")
    assert "\n" not in str(error.value)
    assert "c.yaml" in str(error.value)
