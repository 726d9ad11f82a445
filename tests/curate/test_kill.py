"""A build killed at random moments, again and again, ends with the bytes of one that was not."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from conftest import pair
from killed_build import build, command, finish, start

from curate.errors import ModelError
from curate.model import locate_model
from curate.sources import open_sources

KILLS = 5


def contents(folder: Path) -> dict[str, bytes]:
    files = (p for p in folder.rglob("*") if p.is_file() and p.name not in {"build.log.json", "lock"})
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> tuple[Path, dict[str, bytes], float]:
    """(source, bytes of the dataset, seconds that its build takes)."""
    folder = tmp_path_factory.mktemp("kill")
    source = folder / "rows.jsonl"
    source.write_text("\n".join([*(json.dumps(pair(n)) for n in range(11)), '{"cut', json.dumps(pair(3))]))
    finish(start(build, source, folder / "warm", model_folder))  # until the libraries are loaded
    began = time.monotonic()
    finish(start(build, source, folder / "out", model_folder))
    return source, contents(folder / "out"), time.monotonic() - began


@pytest.mark.parametrize("seed", range(5))
def test_killed_at_random_moments_it_ends_with_the_same_bytes(
    undisturbed: tuple[Path, dict[str, bytes], float], tmp_path: Path, model_folder: Path, seed: int
) -> None:
    source, whole, seconds = undisturbed
    draw = random.Random(seed)
    ended = 0
    for _ in range(KILLS):
        child = start(build, source, tmp_path / "out", model_folder)
        time.sleep(draw.uniform(0, seconds))
        ended += child.exitcode is not None
        child.kill()
        child.join()
        for part in (tmp_path / "out").rglob("*.parquet"):
            assert part.read_bytes()[-4:] == b"PAR1", "a part under its own name is whole"
    assert ended < KILLS
    finish(start(build, source, tmp_path / "out", model_folder))
    assert contents(tmp_path / "out") == whole
    assert not list((tmp_path / "out").rglob("*.tmp"))


def test_killed_while_the_embedded_model_scores_it_ends_with_the_same_bytes(tmp_path: Path) -> None:
    """With the command and the model that users have, where the stub above stands in for the model."""
    try:
        locate_model("embedded")
    except ModelError as error:
        pytest.skip(f"needs the embedded model: {error}")
    rows = [row for row in open_sources(["bundled"])[0].rows() if "__global__" in row.response]
    rows.sort(key=lambda row: len(row.response))
    source = tmp_path / "rows.jsonl"
    source.write_text("\n".join(json.dumps({"prompt": r.prompt, "response": r.response}) for r in rows[:3]))

    def begin(out: Path) -> BaseProcess:
        options = ["--source", source, "--out", out, "--model", "embedded", "--shard-rows", "1", "--jobs", "1"]
        child = start(command, [str(option) for option in options])
        while child.exitcode is None and not list(out.glob(".cuset/parsed-*/*.parquet")):
            time.sleep(0.01)  # until the rows are parsed
        return child

    child, began = begin(tmp_path / "whole"), time.monotonic()
    finish(child)
    seconds = time.monotonic() - began
    whole, out, draw = contents(tmp_path / "whole"), tmp_path / "out", random.Random(1)
    killed = 0
    for parts in (0, 1):  # somewhere in the first sample, and somewhere behind it
        child = begin(out)
        while child.exitcode is None and len(list(out.glob("samples/*.parquet"))) < parts:
            time.sleep(0.01)
        time.sleep(draw.uniform(0, seconds / 4))
        killed += child.exitcode is None
        child.kill()
        child.join()
    assert killed > 0, "killed too late to show anything"
    finish(begin(out))
    assert len(list(out.glob("samples/*.parquet"))) == 3
    assert contents(out) == whole
    assert not list(out.rglob("*.tmp"))


def test_no_worker_outlives_a_killed_build(
    undisturbed: tuple[Path, dict[str, bytes], float], tmp_path: Path, model_folder: Path
) -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("needs /proc to see other processes")
    mark = f"CUSET_TEST_MARK={tmp_path}"

    def alive() -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    options = ["--source", undisturbed[0], "--out", tmp_path / "out", "--model", model_folder, "--jobs", 2]
    child = subprocess.Popen(
        [sys.executable, "-m", "curate.build", *map(str, options)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "CUSET_TEST_MARK": str(tmp_path)},
    )
    deadline = time.monotonic() + 60
    while len(alive()) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(alive()) >= 3
    child.kill()
    child.wait()
    while alive() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert alive() == []
