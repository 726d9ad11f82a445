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
from conftest import pair
from test_build import contents, mixed_rows

from curate import cluster, cluster_start, driver
from curate.build import run
from curate.cluster_start import Connection
from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.errors import CusetError, DatasetError, ModelError, OptionError
from curate.score import StubScorer

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


def test_every_byte_is_the_local_engines_that_of_a_poisoned_row_too(
    config: Make, write_rows: Write, tmp_path: Path
) -> None:
    source = write_rows(mixed_rows())
    for engine in ("local", "ray"):
        manifest = build_dataset(
            config(source, tmp_path / engine, engine=engine, max_length=2000), ray_workers.Faulty()
        )
        assert manifest["counts"]["failed"] == 3, "one in each shard from which rows are scored"
        assert manifest["counts"]["accepted"] == 2
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")
    assert {name.split("/")[0] for name in contents(tmp_path / "ray")} >= {"samples", "rejected", "regions"}


def test_a_killed_worker_costs_no_row(
    config: Make, write_rows: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_rows([pair(n) for n in range(7)])
    build_dataset(config(source, tmp_path / "local", engine="local"), StubScorer())
    monkeypatch.setattr(cluster, "measure_shard", ray_workers.parse_deadly)
    (tmp_path / "once").touch()
    build_dataset(config(source, tmp_path / "ray"), StubScorer())
    assert not (tmp_path / "once").exists(), "nobody was killed"
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")


def test_a_row_whose_process_always_dies_costs_that_row_alone(
    config: Make, write_rows: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [pair(n) for n in range(5)]
    rows[3]["prompt"] = ray_workers.DEADLY
    source = write_rows(rows)
    monkeypatch.setattr(cluster, "measure_shard", ray_workers.parse_deadly)
    build_dataset(config(source, tmp_path / "ray"), StubScorer())
    refused = pl.read_parquet(tmp_path / "ray" / "rejected" / "*.parquet")
    assert refused.select("id", "stage", "reason", "detail").rows() == [("3", "parse", "failed", "its process died")]
    monkeypatch.setattr(driver, "measured", ray_workers.measure_deadly)
    build_dataset(config(source, tmp_path / "local", engine="local", jobs=2), StubScorer())
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")


def test_a_killed_actor_costs_no_row_and_one_that_always_dies_is_told(
    config: Make, write_rows: Write, tmp_path: Path
) -> None:
    source = write_rows([pair(n) for n in range(7)])
    build_dataset(config(source, tmp_path / "local", engine="local"), StubScorer())
    trap = tmp_path / "trap"
    trap.touch()
    with pytest.raises(ModelError, match=r"has died 3 times over shard \d+ \(out of memory\?\): what is done is kept"):
        build_dataset(config(source, tmp_path / "ray"), ray_workers.Mortal(trap, once=False))
    assert not list((tmp_path / "ray" / ".cuset").glob("cluster-*"))
    build_dataset(config(source, tmp_path / "ray"), ray_workers.Mortal(trap, once=True))
    assert not trap.exists(), "nobody was killed"
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")


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
    unwilling = ray_workers.Halting(trap)
    for tau in (0.1, 0.3):
        build_dataset(config(source, tmp_path / f"local-{tau}", engine="local", tau=tau), StubScorer())
        build_dataset(config(source, out, tau=tau), unwilling)  # which would raise if it were asked
        assert contents(out) == contents(tmp_path / f"local-{tau}")


CHILD = """
import sys
from pathlib import Path
from curate import BuildConfig, build_dataset
from curate.console import main
from ray_workers import Slow

def run(arguments):
    source, out, model, address = arguments
    build_dataset(BuildConfig(source=(source,), out=Path(out), model=model, shard_rows=3, jobs=2, compile=False,
                              engine="ray", ray_address=address), Slow())

main(run)
"""


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_a_stopped_build_at_an_address_goes_on_and_ends_with_the_same_bytes(
    config: Make, write_rows: Write, model_folder: Path, tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    import ray

    source, out = write_rows([pair(n) for n in range(12)]), tmp_path / "ray"
    address = ray.get_runtime_context().gcs_address
    arguments = [sys.executable, "-c", CHILD, *map(str, (source, out, model_folder, address))]
    child = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while child.poll() is None and not list(out.glob("samples/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(sent)
    said, complaint = child.communicate(timeout=60)
    assert (child.returncode, said) == (code, ""), complaint
    if sent == signal.SIGINT:
        assert complaint.splitlines()[-1].startswith("interrupted; what is done is kept"), complaint
        assert len(complaint.splitlines()) < 8, complaint
    standing = {part: part.stat().st_mtime_ns for part in out.glob("samples/*.parquet")}
    assert 0 < len(standing) < 4
    build_dataset(config(source, out, compile=False), StubScorer())
    build_dataset(config(source, tmp_path / "local", engine="local", compile=False), StubScorer())
    assert {part: part.stat().st_mtime_ns for part in standing}.items() >= dict(list(standing.items())[:1]).items()
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
