"""The engine `ray` on a cluster of two processors: the bytes of the local engine, whatever dies on the way."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import ray_workers
from conftest import fenced, pair
from test_build import contents, mixed_rows

from curate import cluster, cluster_start, cluster_work
from curate.build import run
from curate.cluster_start import Connection
from curate.cluster_work import Place, as_error, rows_file
from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.errors import CusetError, DatasetError, ModelError, OptionError
from curate.frames import frame_of
from curate.parts import Parts
from curate.score import StubScorer
from curate.sources import Row
from curate.store import write_frame

Write = Callable[..., Path]
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray warns of its own settings, in threads of its own


@pytest.fixture(scope="module")
def two_processors() -> Iterator[None]:
    """A cluster that the builds of this module find running; its processes can import what these tests can."""
    pytest.importorskip("ray.data")
    here = Path(__file__).parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_start, "cores", lambda: 2)
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, (here.parents[1], here.parent, here))))
        patch.setenv("OMP_NUM_THREADS", "1")
        connection = Connection(None)
        connection.open()
        yield
        connection.close()


@pytest.fixture
def config(two_processors: None, model_folder: Path) -> Callable[..., BuildConfig]:
    def make(source: Path, out: Path, **more: Any) -> BuildConfig:
        options = {"engine": "ray", "shard_rows": 3, "jobs": 1 if more.get("engine") == "local" else 2, **more}
        return BuildConfig(source=(str(source),), out=out, model=str(model_folder), **options)

    return make


Make = Callable[..., BuildConfig]


def test_every_byte_is_the_local_engines_whoever_is_killed(
    config: Make, write_rows: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row on which a stage raises is among them."""
    source, traps = write_rows(mixed_rows()), [tmp_path / "kill-worker", tmp_path / "kill-actor"]
    faulty = ray_workers.Faulty(traps[1])
    monkeypatch.setattr(cluster, "measure_shard", ray_workers.parse_killed_once)
    for engine in ("local", "ray"):
        manifest = build_dataset(config(source, tmp_path / engine, engine=engine, max_length=2000), faulty)
        assert manifest["counts"]["failed"] == 2, "one in each shard from which rows are scored"
        assert manifest["counts"]["accepted"] == 3
        for trap in traps:
            assert not trap.exists(), "nobody was killed"
            trap.touch()
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")
    assert {name.split("/")[0] for name in contents(tmp_path / "ray")} >= {"samples", "rejected", "regions"}


def test_it_goes_on_by_shards_after_an_error_and_takes_scores_over(
    config: Make, write_rows: Write, tmp_path: Path
) -> None:
    source, trap, out = write_rows([pair(n) for n in range(12)]), tmp_path / "trap", tmp_path / "ray"
    trap.touch()
    halting = ray_workers.Halting(trap, shards=2)
    with pytest.raises(ModelError, match=r"^a sample of 9 tokens does not fit$"):
        build_dataset(config(source, out), halting)
    standing = {part: part.stat().st_mtime_ns for part in out.glob("samples/*.parquet")}
    assert 0 < len(standing) < 4
    trap.unlink()
    build_dataset(config(source, out), halting)
    assert {part: part.stat().st_mtime_ns for part in standing} == standing
    trap.touch()
    build_dataset(config(source, out, tau=0.3), ray_workers.Halting(trap))  # which would raise if it were asked
    build_dataset(config(source, tmp_path / "local", engine="local", tau=0.3), StubScorer())
    assert contents(out) == contents(tmp_path / "local")


CHILD = """
import signal, sys
from pathlib import Path
from curate import BuildConfig, build_dataset
from curate.console import main
from ray_workers import Slow

def run(arguments):
    source, out, model, address = arguments
    build_dataset(BuildConfig(source=(source,), out=Path(out), model=model, shard_rows=3, jobs=2, compile=False,
                              engine="ray", ray_address=address), Slow())

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's job in the background ignores
main(run)
"""


def test_a_stopped_build_at_an_address_goes_on_and_ends_with_the_same_bytes(
    config: Make, write_rows: Write, model_folder: Path, tmp_path: Path
) -> None:
    import ray

    source, out = write_rows([pair(n) for n in range(15)]), tmp_path / "ray"
    address = ray.get_runtime_context().gcs_address
    arguments = [sys.executable, "-c", CHILD, *map(str, (source, out, model_folder, address))]
    standing: dict[Path, int] = {}
    for sent, code in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
        child = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 120
        while child.poll() is None and len(list(out.glob("refused/*.parquet"))) <= len(standing):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        child.send_signal(sent)
        said, complaint = child.communicate(timeout=60)
        assert (child.returncode, said) == (code, ""), complaint
        if sent == signal.SIGINT:
            assert complaint.splitlines()[-1].startswith("interrupted; what is done is kept"), complaint
            assert len(complaint.splitlines()) < 8, complaint
        assert {part: part.stat().st_mtime_ns for part in standing} == standing, "what stands is not done again"
        standing = {part: part.stat().st_mtime_ns for part in out.glob("refused/*.parquet")}
        assert 0 < len(standing) < 5
    build_dataset(config(source, out, compile=False), StubScorer())
    build_dataset(config(source, tmp_path / "local", engine="local", compile=False), StubScorer())
    assert contents(out) == contents(tmp_path / "local")


def test_a_model_scores_within_a_step_of_float16(config: Make, write_rows: Write, tmp_path: Path) -> None:
    source = write_rows(mixed_rows())
    frames = []
    for engine in ("local", "ray"):
        build_dataset(config(source, tmp_path / engine, engine=engine, max_length=2000))
        frames.append(pl.read_parquet(tmp_path / engine / "samples" / "*.parquet"))
    local, there = frames
    same = ["sample_id", "input_ids", "prompt_tokens", "category", "location", "flags"]
    assert local.select(same).equals(there.select(same))
    a, b = (np.concatenate([np.array(x, np.float16) for x in f["logprob"]]) for f in frames)
    assert (np.abs(a.astype(float) - b.astype(float)) <= np.spacing(np.abs(a)).astype(float)).all()


def test_a_model_that_cannot_be_loaded_is_told_before_the_first_row(
    config: Make, write_rows: Write, model_folder: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in model_folder.iterdir():
        (broken / file.name).write_bytes(b"x" if file.suffix == ".safetensors" else file.read_bytes())
    options = config(write_rows([pair(1)]), tmp_path / "out")
    with pytest.raises(ModelError, match=r"on \S+: --model broken: cannot load the weights"):
        build_dataset(BuildConfig(**{**vars(options), "model": str(broken)}))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "other", "error", "says"),
    [
        ("introduce", ray_workers.another_model, ModelError, "the (model|tokenizer) is not the same"),
        ("look_around", ray_workers.blind, DatasetError, "node7 of the cluster cannot write there"),
        ("look_around", ray_workers.outdated, OptionError, "node7 has polars 0.1"),
    ],
)
def test_machines_that_differ_are_refused(
    config: Make, write_rows: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, other: Any,
    error: type[CusetError], says: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(cluster, name, other)
    with pytest.raises(error, match=says):
        build_dataset(config(write_rows([pair(1)]), tmp_path / "out"), StubScorer())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"actors": 3}, "--actors 3: the cluster has 2 processors"),
        ({"actors": 2, "actor_gpus": 1.0}, "--actors 2 with --actor-gpus 1: the cluster has 0 GPUs"),
    ],
)
def test_what_the_cluster_has_not_is_refused(
    config: Make, write_rows: Write, tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(OptionError, match=says):
        build_dataset(config(write_rows([pair(1)]), tmp_path / "out", **options), StubScorer())
    assert not (tmp_path / "out").exists()


# -- without a cluster --------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Of a build of which a process has the shard 0."""
    folders = {name: tmp_path / name for name in ("parsed", "verdicts", "previous", "scratch")}
    for folder in folders.values():
        folder.mkdir()
    return Place(Parts(tmp_path / "out"), **folders)


FIRST = {"number": np.array([0])}


def test_a_row_of_which_processes_die_costs_that_row_alone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_work, "measured", ray_workers.measure_deadly)
    prompts = ("p", ray_workers.DEADLY, "p")
    rows = [Row("s", str(n), n, prompt=prompt, response=fenced()) for n, prompt in enumerate(prompts)]
    write_frame(frame_of(rows, 0), rows_file(place.scratch, 0))
    for _ in range(2):  # two processes that died of it
        place.attempt("parse", 0)
    answer = cluster_work.measure_shard(FIRST, BuildConfig(), place)
    assert (answer["rows"][0], answer["error"][0]) == (3, b"")
    parsed = pl.read_parquet(place.parsed / "000000.parquet")
    assert parsed["reason"].to_list() == [None, "failed", None]
    assert parsed["detail"].to_list() == [None, "its process died", None]
    assert parsed["kernels"].to_list() == [1, None, 1]
    assert not list(place.scratch.glob("attempt-*"))


def test_a_shard_of_which_actors_die_is_told_and_not_tried_for_ever(place: Place, model_folder: Path) -> None:
    actor = cluster_work.Annotate(BuildConfig(model=str(model_folder), device="cpu"), StubScorer(), place, 1)
    for _ in range(3):
        place.attempt("annotate", 0)
    error = as_error(actor(FIRST)["error"][0])
    assert isinstance(error, ModelError)
    assert str(error).startswith("the process that scores has died 3 times over shard 0 (out of memory?)")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ray_address": "head:6379"}, "--ray-address: goes with --engine ray"),
        ({"actors": 2}, "--actors: goes with --engine ray"),
        ({"actor_gpus": 0.5}, "--actor-gpus: goes with --engine ray"),
        ({"engine": "ray", "actors": 0}, "--actors 0: must lie between 1 and 4096"),
        ({"engine": "ray", "actor_gpus": 2.0}, "--actor-gpus 2.0: must lie between 0 and 1"),
        ({"engine": "ray", "ray_address": "head"}, "--ray-address head: give HOST:PORT"),
        ({"engine": "ray", "ray_address": "ray://head:10001"}, "give HOST:PORT"),
        (
            {"engine": "ray", "device": "cuda:1"},
            "--device cuda:1: --engine ray scores on the GPUs that --actor-gpus takes",
        ),
        ({"engine": "ray", "device": "cpu", "actor_gpus": 1.0}, "--device cpu: --engine ray"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        BuildConfig(**options)


def refused(arguments: list[str], tmp_path: Path, model_folder: Path, write_rows: Write) -> str:
    """What the command says; it leaves no folder behind."""
    common = ["--source", str(write_rows([pair(1)])), "--out", str(tmp_path / "out"), "--model", str(model_folder)]
    with pytest.raises(OptionError) as caught:
        run([*common, "--engine", "ray", *arguments])
    assert not (tmp_path / "out").exists()
    return str(caught.value)


def test_without_ray_the_remedy_is_told(
    tmp_path: Path, model_folder: Path, write_rows: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_start, "find_spec", lambda name: None)
    said = refused([], tmp_path, model_folder, write_rows)
    assert said == "--engine ray: Ray is not installed: pip install cuset[ray]"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "nobody answers there (Connection refused)"),
        (b"", "who answers there is not a Ray cluster"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "who answers there is not a Ray cluster"),
    ],
)
def test_an_address_where_no_cluster_is_is_told_within_seconds(
    tmp_path: Path, model_folder: Path, write_rows: Write, monkeypatch: pytest.MonkeyPatch, answer: bytes | None,
    says: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(cluster_start, "_SECONDS", 0.2)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{server.getsockname()[1]}"
        if answer is not None:
            server.listen()

            def serve() -> None:
                with server.accept()[0] as connection:
                    connection.sendall(answer)
                    connection.recv(1000)
                    connection.recv(1000)

            threading.Thread(target=serve, daemon=True).start()
        said = refused(["--ray-address", address], tmp_path, model_folder, write_rows)
    assert said.startswith(f"--ray-address {address}: {says}")
    assert "ray start --head" in said


def test_a_host_that_no_one_knows_is_told(tmp_path: Path, model_folder: Path, write_rows: Write) -> None:
    said = refused(["--ray-address", "no-such-host.invalid:6379"], tmp_path, model_folder, write_rows)
    assert said.startswith("--ray-address no-such-host.invalid:6379: nobody answers there")
