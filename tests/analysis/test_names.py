"""Folders of odd names: read, named and escaped as any other, in SQL, in HTML and on the command line."""

from __future__ import annotations

import html
import json
import shlex
import sys
from pathlib import Path

import pytest
from planted_dataset import Planted, plant

from analysis import compare, report, view
from analysis.dataset import open_datasets
from analysis.figures.base import run_figure
from analysis.figures.models import FIGURE
from curate.errors import DatasetError

NAMES = [
    "two words", "it's \"quoted\"", "<b onclick=x>bold&amp;", "100%41 #x?y=1", "*?[ab]{c}", "naïve 漢字 🚀", "-dash", "--out",
    "a=b", "$x^2$", "file:x", ":smile: [red]", "back\\slash", "~", "{{ 7 * 7 }}",
]  # fmt: skip


def planted(path: Path, model: str = "one") -> Path:
    return plant(
        path, [Planted(["int ", "x", ";"] * 30, [0.9, 0.5, 0.7] * 30, [1, 0, 0] * 30) for _ in range(3)], model
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_of_an_odd_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planted(tmp_path / name)
    planted(tmp_path / "another")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("analysis.figures.FIGURES", (FIGURE,))  # the others see no more of a name
    given = [f"./{name}/", "another"]  # as a shell completes it, and so that a dash is no option
    assert report.run([*given, "--draws", "100"]) == 0
    out = tmp_path / f"{name}-another-report"
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "<b " not in page
    assert html.escape(name, quote=False) in page.replace("&#34;", '"').replace("&#39;", "'")
    command = html.unescape(page.rpartition("<p><code>")[2].partition("</code>")[0])
    again = shlex.split(command)[3:]  # python -m analysis.report
    assert report.run(again) == 0
    assert [f["dataset"] for f in json.loads((out / "findings.json").read_text())["datasets"]] == [name, "another"]
    assert view.run([f"./{name}", "--out", "page.html"]) == 0
    assert "<b " not in Path("page.html").read_text(encoding="utf-8")
    assert compare.run([*given, "--draws", "100"]) == 0
    assert f"A: {name}, 3 samples" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["figure", *given, "--out", "f"])
    with pytest.raises(SystemExit, match="0"):
        run_figure(FIGURE)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([name, "another", out.name, "page.html", "f"])


def test_two_folders_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = [planted(tmp_path / side / "runs" / "data") for side in "ab"]
    assert [d.name for d in open_datasets(paths)] == ["a/runs/data", "b/runs/data"]
    paths = [planted(tmp_path / "c" / "data", "another model"), paths[0]]
    assert [d.name for d in open_datasets(paths)] == ["another model", "one"]


def test_one_folder_twice_is_one_line(tmp_path: Path) -> None:
    path = planted(tmp_path / "data")
    (tmp_path / "link").symlink_to(path)
    for other in (path, path / ".." / "data", tmp_path / "link"):
        with pytest.raises(DatasetError, match="given twice"):
            open_datasets([path, other])
