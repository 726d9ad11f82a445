"""Every kind of source at once, from one YAML file, with options of their own."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import conftest
import polars as pl
import pytest
import yaml
from conftest import fenced, pair
from test_sources_hub import COMMIT, repository  # noqa: F401

from curate.build import run

KINDS = (
    "jsonl", "json", "csv", "tsv", "parquet", "gz", "zst", "cu", "cuh", "folder", "tables", "zip", "tar", "tgz", "tar.zst", "hub",
)  # fmt: skip


def kernel(name: str) -> str:
    n = KINDS.index(name)
    return conftest.kernel(n).replace(f"scale{n}", f"scale_{name.replace('.', '_')}")


def line(name: str, **more: Any) -> bytes:
    return (json.dumps(pair(0, kernel(name), id=name, **more)) + "\n").encode()


def zstd(data: bytes) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def table(name: str, delimiter: str) -> str:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerows([["task", "code", "name"], ["Scale a vector.", fenced(kernel(name)), name]])
    return text.getvalue()


def tar(name: str, mode: str) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=mode) as archive:
        member = tarfile.TarInfo(f"src/{name}.cu")
        member.size = len(kernel(name).encode())
        archive.addfile(member, io.BytesIO(kernel(name).encode()))
    return data.getvalue()


@pytest.fixture
def sources(tmp_path: Path, repository: Path) -> list[Any]:  # noqa: F811
    """One sample of each kind; the broken line of the first file is refused."""
    at = tmp_path / "sources"
    at.mkdir()
    mapped = {"map": {"prompt": "task", "response": "code", "id": "name"}}
    (at / "a.jsonl").write_bytes(line("jsonl") + b"{broken\n")
    (at / "b.json").write_bytes(b"[" + line("json") + b"]")
    (at / "c.csv").write_text(table("csv", ","))
    (at / "d.tsv").write_text(table("tsv", "\t"))
    pl.DataFrame([pair(0, kernel("parquet"), id="parquet")]).write_parquet(at / "e.parquet")
    (at / "f.jsonl.gz").write_bytes(gzip.compress(line("gz")))
    (at / "g.jsonl.zst").write_bytes(zstd(line("zst")))
    (at / "cu.cu").write_text(kernel("cu"))
    (at / "cuh.cuh").write_text(kernel("cuh"))
    (at / "folder" / "deep").mkdir(parents=True)
    (at / "folder" / "deep" / "folder.cu").write_text(kernel("folder"))
    (at / "tables").mkdir()
    (at / "tables" / "one.jsonl").write_bytes(line("tables"))
    with zipfile.ZipFile(at / "i.zip", "w") as archive:
        archive.writestr("src/zip.cu", kernel("zip"))
    (at / "j.tar").write_bytes(tar("tar", "w"))
    (at / "k.tgz").write_bytes(tar("tgz", "w:gz"))
    (at / "l.tar.zst").write_bytes(zstd(tar("tar.zst", "w")))
    (repository / "train.jsonl").write_bytes(line("hub"))
    files = ["a.jsonl", "b.json", "e.parquet", "f.jsonl.gz", "g.jsonl.zst", "cu.cu", "cuh.cuh", "folder", "tables"]
    files += ["i.zip", "j.tar", "k.tgz", "l.tar.zst"]
    return [
        *(str(at / name) for name in files),
        {"path": str(at / "c.csv"), "license": "MIT", **mapped},
        {"path": str(at / "d.tsv"), **mapped},
        "hf://someone/some-set",
    ]


def test_one_build_of_every_kind(sources: list[Any], tmp_path: Path, model_folder: Path) -> None:
    config = tmp_path / "build.yaml"
    options = {"source": sources, "license": "Apache-2.0", "model": str(model_folder), "out": str(tmp_path / "out")}
    config.write_text(yaml.safe_dump({**options, "skip-scoring": True, "jobs": 1}))
    assert run(["--config", str(config)]) == 0

    samples = pl.read_parquet(tmp_path / "out" / "samples" / "*.parquet")
    assert len(samples) == len(KINDS)
    found = {kind for kind in KINDS for code in samples["response"] if f"scale_{kind.replace('.', '_')}(" in code}
    assert found == set(KINDS)
    of = {row["source_id"]: row for row in samples.iter_rows(named=True)}
    assert (of["csv"]["license"], of["tsv"]["license"]) == ("MIT", "Apache-2.0")
    assert of["hub"]["source_revision"] == COMMIT
    assert of["hub"]["source"] == "someone/some-set:train"
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert len(manifest["sources"]) == len(KINDS)
    assert manifest["counts"]["refused"] == {"read": {"broken_json": 1}}
