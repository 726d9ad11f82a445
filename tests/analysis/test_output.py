"""Reports, figures and pages are written whole or not at all, never into a dataset, never over what is not theirs."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from planted_dataset import Planted, plant

from analysis import report, view
from analysis.figures import FIGURES
from analysis.figures.base import run_figure
from analysis.output import staged_file, staged_folder
from curate.errors import OptionError

FUNNEL = next(figure for figure in FIGURES if figure.name == "funnel")


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    samples = [Planted(["int ", "x", ";"] * 30, [0.9, 0.5, 0.7] * 30, [1, 0, 0] * 30) for _ in range(3)]
    return plant(tmp_path / "data", samples)


@pytest.fixture
def one_figure() -> Iterator[None]:
    """Reports draw a single picture: drawing takes longer than all else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("analysis.figures.FIGURES", (FUNNEL,))
        yield


def state(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_failure_leaves_the_old_report(
    dataset: Path, tmp_path: Path, one_figure: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "data-report"
    assert report.run([str(dataset), "--draws", "100"]) == 0
    (out / "notes.txt").write_text("mine")
    before = state(out)
    for error in (KeyboardInterrupt(), OSError(28, "No space left on device"), RuntimeError("a defect")):

        def fails(*a: object, error: BaseException = error) -> str:
            raise error

        monkeypatch.setattr(report, "render_report", fails)  # the last step; figures and numbers are written
        with pytest.raises(OptionError if isinstance(error, OSError) else type(error)) as caught:
            report.run([str(dataset), "--draws", "101"])
        if isinstance(error, OSError):
            assert str(caught.value).startswith(f"--out {out}: cannot write there (No space left on device)")
        assert state(out) == before
    monkeypatch.undo()
    assert report.run([str(dataset), "--draws", "101"]) == 0
    after = state(out)
    assert set(after) == set(before)
    assert after["notes.txt"] == b"mine"
    assert after["index.html"] != before["index.html"]


def test_a_new_report_appears_whole_or_not_at_all(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "deep" / "new"
    monkeypatch.setattr(report, "render_report", lambda *a: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        report.run([str(dataset), "--out", str(out), "--draws", "100"])
    assert list(out.parent.iterdir()) == []


def _small_files() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


@pytest.mark.parametrize("module", ["report", "view"])
def test_a_full_disk_is_one_line(dataset: Path, tmp_path: Path, module: str) -> None:
    """A limit on the size of files stands in for the disk."""
    out = tmp_path / ("full" if module == "report" else "full.html")
    command = [sys.executable, "-m", f"analysis.{module}", str(dataset), "--out", str(out)]
    ended = subprocess.run(command, capture_output=True, text=True, preexec_fn=_small_files)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr == f"error: --out {out}: cannot write there (File too large); give another place\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data"]


def test_a_killed_report_leaves_the_old_one(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    report.run([str(dataset), "--out", str(out), "--draws", "100"])
    before = state(out)
    running = subprocess.Popen([sys.executable, "-m", "analysis.report", str(dataset), "--out", str(out)])
    end = time.monotonic() + 60
    while not list(out.glob(".writing-*/density.png")) and time.monotonic() < end and running.poll() is None:
        time.sleep(0.02)
    running.kill()
    assert running.wait() == -signal.SIGKILL
    assert {name: text for name, text in state(out).items() if not name.startswith(".writing-")} == before


def test_nothing_is_written_into_a_dataset(
    dataset: Path, tmp_path: Path, one_figure: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = plant(tmp_path / "other", [])
    begun = tmp_path / "begun"
    (begun / ".cuset").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(other, target_is_directory=True)
    before = state(tmp_path)
    for place in (dataset, other / "new", other / "samples" / "x", begun / "r", link / "r"):
        monkeypatch.setattr(sys, "argv", ["figure", str(dataset), "--out", str(place)])
        with pytest.raises(OptionError, match="lies in the dataset"):
            report.run([str(dataset), "--out", str(place)])
        with pytest.raises(OptionError, match="lies in the dataset"):
            view.run([str(dataset), "--out", str(place / "view.html")])
        with pytest.raises(SystemExit, match="2"):
            run_figure(FUNNEL)
    monkeypatch.chdir(dataset)
    with pytest.raises(OptionError, match="lies in the dataset"):
        view.run(["."])
    assert report.run([".", "--draws", "100"]) == 0  # beside it
    assert {k: v for k, v in state(tmp_path).items() if not k.startswith("data-report")} == before


def test_other_files_are_not_written_over(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "index.html").write_text("<p>my own page")
    (mine / "funnel.csv").write_text("a,b\n")
    before = state(mine)
    with pytest.raises(OptionError, match="holds other files and no report"):
        report.run([str(dataset), "--out", str(mine)])
    with pytest.raises(OptionError, match="no page of this program"):
        view.run([str(dataset), "--out", str(mine / "index.html")])
    with pytest.raises(OptionError, match="no page of this program"):
        view.run([str(dataset), "--out", os.devnull])
    monkeypatch.setattr(sys, "argv", ["figure", str(dataset), "--out", str(mine)])
    with pytest.raises(SystemExit, match="2"):
        run_figure(FUNNEL)
    assert "funnel.csv in it is none of this program" in capsys.readouterr().err
    assert state(mine) == before
    for file in (mine / "index.html", mine / "funnel.csv"):
        with pytest.raises(OptionError, match=r"cannot write there|is a file"):
            report.run([str(dataset), "--out", str(file / "r")])
    (tmp_path / "empty").mkdir()
    assert report.run([str(dataset), "--out", str(tmp_path / "empty"), "--draws", "100"]) == 0
    assert view.run([str(dataset), "--out", str(tmp_path / "empty" / "view.html")]) == 0
    assert view.run([str(dataset), "--out", str(tmp_path / "empty" / "view.html")]) == 0  # our own
    with pytest.raises(OptionError, match=r"no page of this program"):
        view.run([str(dataset), "--out", str(tmp_path / "empty" / "findings.json")])


def test_a_figure_is_drawn_again_over_itself(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["figure", str(dataset), "--out", str(tmp_path / "f")])
    for _ in range(2):
        with pytest.raises(SystemExit, match="0"):
            run_figure(FUNNEL)
    assert sorted(p.name for p in (tmp_path / "f").iterdir()) == ["funnel.csv", "funnel.png", "funnel.svg"]
    assert b"cuset analysis.figures.funnel" in (tmp_path / "f" / "funnel.svg").read_bytes()


def test_a_folder_in_the_way_is_one_line_and_nothing_is_moved(tmp_path: Path) -> None:
    (tmp_path / "b.txt").mkdir()

    def write() -> None:
        with staged_folder(tmp_path) as stage:
            (stage / "a.txt").write_text("1")
            (stage / "b.txt").write_text("2")

    with pytest.raises(OptionError, match=r"b\.txt in it is a folder"):
        write()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b.txt"]


def test_files_are_readable_as_others_are(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    with staged_folder(tmp_path / "new") as stage:
        (stage / "a").write_text("")
    with staged_file(tmp_path / "page.html") as file:
        file.write_text("")
    mode = (tmp_path / "plain").stat().st_mode
    assert (tmp_path / "page.html").stat().st_mode == (tmp_path / "new" / "a").stat().st_mode == mode
    (tmp_path / "folder").mkdir()
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "folder").stat().st_mode
