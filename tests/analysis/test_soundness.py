"""Damaged datasets: every command that opens one says in one line, which names the file, what is wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filelock import FileLock
from planted_dataset import Planted, plant

from analysis import compare, report, view
from analysis.dataset import open_datasets
from analysis.figures import FIGURES
from analysis.figures.base import Figure, run_figure
from curate.errors import DatasetError
from curate.schema import SAMPLES, table_columns
from curate.store import write_part

FIRST, SECOND = "samples/part-000000.parquet", "samples/part-000005.parquet"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Seven samples in two parts, which are named as a build names them: alike in every table."""
    samples = [Planted(["int ", "x", ";"] * 30, [0.9, 0.5, 0.7] * 30, [1, 0, 0] * 30) for _ in range(7)]
    path = plant(tmp_path / "data", samples, part=5)
    for table in ("regions", "rejected"):
        empty = path / table / "part-0.parquet"
        for name in (FIRST, SECOND):
            shutil.copy(empty, path / table / Path(name).name)
        empty.unlink()
    return path


def change(path: Path, key: str, value: Any) -> None:
    """Sets a key of the manifest, or takes it away (...)."""
    manifest = json.loads((path / "manifest.json").read_text())
    *way, last = key.split(".")
    place = manifest
    for name in way:
        place = place.setdefault(name, {})
    place.pop(last, None)
    if value is not ...:
        place[last] = value
    (path / "manifest.json").write_text(json.dumps(manifest))


def rewrite(part: Path, column: str, values: Any, type_: pa.DataType | None = None, row: int = 1) -> None:
    """Another value in one row of a column; or, given a type, the column in that type."""
    table = pq.read_table(part)
    at = table.schema.get_field_index(column)
    if type_ is None:
        cells = table[column].to_pylist()
        cells[row] = values(cells[row])
        table = table.set_column(at, column, pa.array(cells, table.schema.field(column).type))
    else:
        table = table.set_column(at, column, table[column].cast(type_))
    pq.write_table(table, part)


def refused(path: Path) -> str:
    with pytest.raises(DatasetError) as error:
        open_datasets([path])
    assert "\n" not in str(error.value)
    return str(error.value)


def bad_bytes(file: Path) -> None:
    """Bytes in the middle of the data, which the footer does not tell."""
    content = bytearray(file.read_bytes())
    group = pq.read_metadata(file).row_group(0)
    columns = [group.column(n) for n in range(group.num_columns)]
    at = next(c.data_page_offset for c in columns if c.path_in_schema.startswith("input_ids."))
    content[at : at + 60] = b"\xff" * 60
    file.write_bytes(content)


DAMAGE: dict[str, tuple[Callable[[Path], Any], str, str]] = {
    "truncated": (lambda p: (p / SECOND).write_bytes((p / SECOND).read_bytes()[:-40]), SECOND, "damaged"),
    "cut at the start": (lambda p: (p / FIRST).write_bytes((p / FIRST).read_bytes()[:50]), FIRST, "damaged"),
    "no bytes": (lambda p: (p / "regions/part-000000.parquet").write_bytes(b""), "regions/part-000000.parquet", "damaged"),
    "bad bytes inside": (lambda p: bad_bytes(p / FIRST), FIRST, "damaged"),
    "a part missing": (lambda p: (p / SECOND).unlink(), "samples/", "5 rows in 1 parts, but manifest.json counts 7: a part is missing (samples/part-000005.parquet)"),
    "a part too many": (lambda p: shutil.copy(p / SECOND, p / "samples/part-000010.parquet"), "part-000010.parquet", "of another build"),
    "rejected rows missing": (lambda p: change(p, "counts.rejected", 3), "rejected/", "a part is missing"),
    "a failed row missing": (lambda p: change(p, "counts.failed", 1), "rejected/", "a part is missing"),
    "regions missing": (lambda p: change(p, "regions.found", 4), "regions/", "a part is missing"),
    "a folder for a part": (lambda p: ((p / SECOND).unlink(), (p / SECOND).mkdir()), "samples/", "a part is missing"),
    "no folder": (lambda p: shutil.rmtree(p / "regions"), "regions/", "holds no Parquet file"),
    "no column": (lambda p: pq.write_table(pq.read_table(p / FIRST).drop(["rank"]), p / FIRST), FIRST, "no column rank"),
    "another type": (lambda p: rewrite(p / FIRST, "logprob", None, pa.list_(pa.float64())), FIRST, "column logprob is"),
    "a text for a number": (lambda p: rewrite(p / FIRST, "prompt_tokens", None, pa.string()), FIRST, "column prompt_tokens is string"),
    "a shorter list": (lambda p: rewrite(p / SECOND, "statement", lambda c: c[:-1]), SECOND, "row 1: statement has not one value"),
    "a longer list": (lambda p: rewrite(p / FIRST, "logprob", lambda c: [*c, c[0]]), FIRST, "row 1: logprob has not one value"),
    "fewer ids": (lambda p: rewrite(p / FIRST, "input_ids", lambda c: c[:-1]), FIRST, "has not one value a response token"),
    "a null list": (lambda p: rewrite(p / FIRST, "category", lambda c: None), FIRST, "row 1: category is null"),
    "a null inside": (lambda p: rewrite(p / FIRST, "rank", lambda c: [None, *c[1:]]), FIRST, "row 1: rank holds a null"),
    "half the scores": (lambda p: rewrite(p / FIRST, "entropy", lambda c: None), FIRST, "row 1: it has some of its scores"),
    "NaN": (lambda p: rewrite(p / FIRST, "logprob", lambda c: [*c[:-1], np.float16("nan")]), FIRST, "row 1: logprob holds a figure that is not a number"),
    "inf": (lambda p: rewrite(p / SECOND, "logprob", lambda c: [np.float16("inf"), *c[1:]]), SECOND, "row 1: logprob holds the logarithm of a probability above 1"),
    "NaN entropy": (lambda p: rewrite(p / FIRST, "entropy", lambda c: [np.float16("nan"), *c[1:]]), FIRST, "entropy holds"),
    "infinite entropy": (lambda p: rewrite(p / FIRST, "entropy", lambda c: [np.float16("inf"), *c[1:]]), FIRST, "entropy holds an infinite"),
    "an unknown category": (lambda p: rewrite(p / FIRST, "category", lambda c: [99, *c[1:]]), FIRST, "category holds a number that is not known"),
    "beyond the text": (lambda p: rewrite(p / FIRST, "char_end", lambda c: [*c[:-1], 10**6]), FIRST, "characters that the response has not"),
    "no token": (lambda p: rewrite(p / FIRST, "input_ids", lambda c: c[:2]), FIRST, "row 1: it has no response token"),
    "not JSON": (lambda p: (p / "manifest.json").write_text("{"), "manifest.json", "damaged"),
    "a list": (lambda p: (p / "manifest.json").write_text("[]"), "manifest.json", "damaged"),
    "not UTF-8": (lambda p: (p / "manifest.json").write_bytes(b"\xff{}"), "manifest.json", "damaged"),
    "another format": (lambda p: change(p, "format_version", 99), "data", "format 99"),
    "no model": (lambda p: change(p, "model", ...), "manifest.json", "no model.name"),
    "no config": (lambda p: change(p, "config", ...), "manifest.json", "no config.skip_scoring"),
    "counts of another kind": (lambda p: change(p, "counts.accepted", "7"), "manifest.json", "counts.accepted is not"),
    "refusals of another kind": (lambda p: change(p, "counts.refused", {"parse": 3}), "manifest.json", "counts.refused is not"),
    "an option of another kind": (lambda p: change(p, "config.tau", float("nan")), "manifest.json", "config.tau is not"),
    "sources of another kind": (lambda p: change(p, "sources", [{"name": "x"}]), "manifest.json", "sources is not"),
    "categories of another version": (lambda p: change(p, "categories", ["<script>alert(1)</script>"]), "manifest.json", "categories is not"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_one_line_that_names_the_file(dataset: Path, kind: str) -> None:
    damage, file, words = DAMAGE[kind]
    open_datasets([dataset])
    damage(dataset)
    said = refused(dataset)
    assert file in said
    assert words in said
    assert "<script>" not in said


def test_alternatives_of_unequal_number(dataset: Path) -> None:
    columns = table_columns("samples", ("topk_ids", "topk_logprob"))
    for name in (FIRST, SECOND):
        frame = pl.from_arrow(pq.read_table(dataset / name))
        assert isinstance(frame, pl.DataFrame)
        tokens = frame["char_start"].list.len()
        ids = pl.Series("topk_ids", [[[1, 2]] * n for n in tokens], pl.List(pl.List(pl.Int32)))
        values = pl.Series("topk_logprob", [[[-0.5, -np.inf]] * n for n in tokens], pl.List(pl.List(pl.Float16)))
        write_part(frame.with_columns(ids, values), columns, dataset / name)
    open_datasets([dataset])
    whole = (dataset / FIRST).read_bytes()
    rewrite(dataset / FIRST, "topk_ids", lambda c: [c[0][:1], *c[1:]])
    assert "row 1: topk lists differ in length" in refused(dataset)
    (dataset / FIRST).write_bytes(whole)
    rewrite(dataset / FIRST, "topk_logprob", lambda c: [[np.float16("nan")] * 2, *c[1:]])
    assert "topk holds a figure that is not a number" in refused(dataset)
    write_part(pl.from_arrow(pq.read_table(dataset / SECOND)).drop("topk_ids"), SAMPLES, dataset / FIRST)
    assert "column topk_ids is not in every part" in refused(dataset)


def test_a_dataset_that_is_being_written_has_to_wait(dataset: Path) -> None:
    (dataset / ".cuset").mkdir()
    with FileLock(dataset / ".cuset" / "lock"):
        assert "a build is writing there; wait" in refused(dataset)
        (dataset / "manifest.json").rename(dataset / "manifest.old")
        assert "a build is writing there; wait" in refused(dataset)
    assert "its build has not ended" in refused(dataset)


@pytest.mark.parametrize("name", [FIRST, "manifest.json", "samples"])
def test_what_may_not_be_read(dataset: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for permissions, which do not bind the user that tests run as in a container."""
    for function in ("open", "read_text", "iterdir"):
        real = getattr(Path, function)

        def forbidden(self: Path, *a: Any, real: Any = real, **k: Any) -> Any:
            if self == dataset / name:
                raise PermissionError(13, "Permission denied", str(self))
            return real(self, *a, **k)

        monkeypatch.setattr(Path, function, forbidden)
    assert refused(dataset) == f"{dataset / name}: cannot be read (Permission denied)"


def test_a_probability_of_zero_and_samples_without_scores_are_sound(tmp_path: Path) -> None:
    samples = [Planted(["a"] * 9, [0.0] * 9, [0] * 9), Planted(["b"] * 9, None, [0] * 9)]
    assert open_datasets([plant(tmp_path, samples)])[0].samples == 2


def test_every_command_looks(dataset: Path, tmp_path: Path) -> None:
    rewrite(dataset / FIRST, "logprob", lambda c: [*c[:-1], np.float16("nan")])
    sound = plant(tmp_path / "sound", [Planted(["a"], [0.5], [1])])
    out = ["--out", str(tmp_path / "out")]
    for run in (report.run, view.run):
        with pytest.raises(DatasetError, match=r"part-000000\.parquet: damaged"):
            run([str(dataset), *out])
    for pair in ((dataset, sound), (sound, dataset)):
        with pytest.raises(DatasetError, match=r"part-000000\.parquet: damaged"):
            compare.run([*map(str, pair)])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("module", ["report", "view", "compare", "figures.density"])
def test_of_a_real_process_it_is_one_line_and_code_2(dataset: Path, module: str) -> None:
    (dataset / FIRST).write_bytes(b"PAR1")
    given = [str(dataset)] * (2 if module == "compare" else 1)
    if module == "compare":
        given[1] = str(shutil.copytree(dataset, dataset.parent / "other"))
    ended = subprocess.run([sys.executable, "-m", f"analysis.{module}", *given], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith(f"error: {dataset / FIRST}: damaged (")


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_every_figure_command_looks(
    dataset: Path, figure: Figure, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (dataset / SECOND).unlink()
    monkeypatch.setattr(sys, "argv", ["figure", str(dataset), "--out", str(dataset.parent / "out")])
    with pytest.raises(SystemExit) as ended:
        run_figure(figure)
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert f"a part is missing ({SECOND})" in said.err
    assert not (dataset.parent / "out").exists()
