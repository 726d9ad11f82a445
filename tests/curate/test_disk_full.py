"""A disk that is really full: a tmpfs of a few kilobytes in a name space of its own, enlarged step by step."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import pair

from curate.config import BuildConfig
from curate.driver import build_dataset

NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")

CHILD = """
import contextlib, io, json, os, shutil, subprocess, sys
from pathlib import Path
from curate import build
from curate.console import main, stderr

if __name__ == "__main__":
    disk, copy, steps, *options = sys.argv[1:]
    report = []
    for n, (size, files) in enumerate(json.loads(steps)):
        how = f"{'remount,' if n else ''}size={size}k,nr_inodes={files}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", how, "tmpfs", disk], check=True)
        sys.argv = ["build", "--out", f"{disk}/out", *options]
        said, told = io.StringIO(), io.StringIO()
        stderr.file = told
        with contextlib.redirect_stdout(said):
            try:
                main(build.run)
            except SystemExit as end:
                code = end.code
        lines = [line for line in told.getvalue().splitlines() if line.startswith("error: ")]
        report.append({"size": size, "files": files, "code": code, "out": said.getvalue(), "lines": lines, "told": told.getvalue(),
                       "manifest": Path(disk, "out", "manifest.json").exists()})
        if code == 0:
            break
    if Path(disk, "out").exists():
        shutil.copytree(f"{disk}/out", copy)
    print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> tuple[list[str], dict[str, bytes]]:
    """Options of a build, and the bytes that it makes where there is room."""
    folder = tmp_path_factory.mktemp("room")
    (folder / "rows.jsonl").write_text("".join(json.dumps(pair(n)) + "\n" for n in range(7)) + "{\n")
    settings: dict[str, Any] = {"model": str(model_folder), "jobs": 1, "shard_rows": 2}
    build_dataset(BuildConfig(source=(str(folder / "rows.jsonl"),), out=folder / "out", **settings))
    options = ["--source", str(folder / "rows.jsonl"), "--model", str(model_folder), "--jobs", "1", "--shard-rows", "2"]
    return options, contents(folder / "out")


def contents(folder: Path) -> dict[str, bytes]:
    files = (p for p in folder.rglob("*") if p.is_file() and p.name not in {"build.log.json", "lock"})
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def built_on_a_small_disk(tmp_path: Path, steps: list[tuple[int, int]], options: list[str]) -> list[dict[str, Any]]:
    """Runs the same command on a disk of each size (KiB, files) until it succeeds; gives what each run ended with."""
    if shutil.which("unshare") is None:
        pytest.skip("needs the command unshare")
    disk = tmp_path / "disk"
    disk.mkdir()
    probe = subprocess.run(
        [*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if probe.returncode:
        pytest.skip(f"a disk of our own cannot be mounted here: {probe.stderr.strip()[:100]}")
    (tmp_path / "child.py").write_text(CHILD)
    arguments = [str(disk), str(tmp_path / "copy"), json.dumps(steps), *options]
    done = subprocess.run(
        [*NAMESPACE, sys.executable, str(tmp_path / "child.py"), *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report: list[dict[str, Any]] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize(
    ("steps", "times"),
    [
        ([*((size, 10_000) for size in range(4, 250, 16)), (10_000, 10_000)], 8),
        ([*((10_000, files) for files in range(2, 30, 5)), (10_000, 10_000)], 3),
    ],
    ids=["bytes", "files"],
)
def test_a_full_disk_is_one_line_and_the_same_command_goes_on(
    tmp_path: Path, undisturbed: tuple[list[str], dict[str, bytes]], steps: list[tuple[int, int]], times: int
) -> None:
    options, whole = undisturbed
    *full, last = built_on_a_small_disk(tmp_path, steps, options)
    assert len(full) >= times, "the disk was full at too few moments of the build to show much"
    for end in full:
        assert (end["code"], end["out"], end["manifest"]) == (2, "", False), end
        (line,) = end["lines"]
        assert "disk/out: cannot write there (No space left on device)" in line, end
        assert "run the same command again" in line
        assert "Traceback" not in end["told"]
    assert last["code"] == 0, last
    assert contents(tmp_path / "copy") == whole
    assert not list((tmp_path / "copy").rglob("*.tmp"))
