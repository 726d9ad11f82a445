"""Datasets of the Hub: a local folder stands in for the repository, read by the same calls, without network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curate.errors import OptionError, SourceError
from curate.sources import Row, Source, hub, open_sources

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIGS = """---
configs:
- config_name: small
  data_files: [{split: train, path: small.jsonl}]
- config_name: large
  data_files: [{split: valid, path: large.jsonl}, {split: test, path: large.jsonl}]
---
"""


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def pairs(count: int, **extra: Any) -> str:
    return lines(*({"id": f"r{i}", "prompt": f"Q{i}", "response": f"A{i}", **extra} for i in range(count)))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that USER/NAME leads to."""
    folder = tmp_path / "repository"
    folder.mkdir()
    asked: list[tuple[str, str | None]] = []
    monkeypatch.setattr(hub, "_location", lambda name: str(folder))
    monkeypatch.setattr(hub, "_commit", lambda name, revision: asked.append((name, revision)) or COMMIT)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return folder


def opened(spec: str, column_map: str | None = None) -> tuple[Source, list[Row]]:
    (source,) = open_sources([spec], column_map, "MIT")
    return source, list(source.rows())


def test_rows_carry_the_commit(repository: Path) -> None:
    (repository / "train.jsonl").write_text(pairs(3))
    (repository / "test.jsonl").write_text(pairs(1))
    source, rows = opened("hf://someone/some-set")
    assert source.name == "someone/some-set:train"
    assert [(row.source_id, row.position, row.prompt, row.response) for row in rows] == [
        (f"r{i}", i + 1, f"Q{i}", f"A{i}") for i in range(3)
    ]
    assert {(row.source_revision, row.license, row.source, row.reason) for row in rows} == {
        (COMMIT, "MIT", source.name, None)
    }
    assert source.fingerprint() == {
        "name": "someone/some-set:train",
        "kind": "hub",
        "revision": COMMIT,
        "repository": "someone/some-set",
        "configuration": "default",
        "split": "train",
    }


def test_shape_by_features_of_the_only_split(repository: Path) -> None:
    turns = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]
    (repository / "test.jsonl").write_text(lines({"messages": turns, "other": 1}, {"messages": None, "other": 2}))
    _, rows = opened("hf://someone/some-set")
    assert [(row.response, row.reason) for row in rows] == [("A", None), ("", "missing_prompt")]


def test_configurations(repository: Path) -> None:
    (repository / "README.md").write_text(CONFIGS)
    (repository / "small.jsonl").write_text(pairs(1))
    (repository / "large.jsonl").write_text(pairs(4))
    source, rows = opened("hf://someone/some-set/small")
    assert (source.name, len(rows)) == ("someone/some-set/small:train", 1)
    source, rows = opened("hf://someone/some-set/large@main:valid")
    assert (source.name, len(rows)) == ("someone/some-set/large:valid", 4)
    for spec, words in (
        ("", ["several configurations", "/CONFIG", "small, large"]),
        ("/huge", ["no configuration 'huge'", "small, large"]),
        ("/large", ["several splits", ":SPLIT", "valid, test"]),
        ("/large:train", ["no split 'train'", "valid, test"]),
    ):
        with pytest.raises(SourceError) as caught:
            opened(f"hf://someone/some-set{spec}")
        for word in words:
            assert word in str(caught.value)


def test_revision_of_the_row_wins_over_the_commit(repository: Path) -> None:
    (repository / "train.jsonl").write_text(pairs(1, commit="abc"))
    assert [row.source_revision for row in opened("hf://someone/some-set")[1]] == ["abc"]


def test_map_and_unknown_shape(repository: Path) -> None:
    (repository / "train.jsonl").write_text(lines({"task": "Q", "code": "A"}))
    with pytest.raises(SourceError, match=r"code, task.*--map"):
        opened("hf://someone/some-set")
    assert [row.response for row in opened("hf://someone/some-set", "prompt=task,response=code")[1]] == ["A"]


def test_the_revision_asked_for_is_the_one_resolved(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(hub, "_commit", lambda name, revision: asked.append((name, revision)) or COMMIT)
    (repository / "train.jsonl").write_text(pairs(1))
    opened("hf://someone/some-set@refs/pr/3:train")
    assert asked == [("someone/some-set", "refs/pr/3")]


def test_a_script_in_the_repository_is_not_run(repository: Path) -> None:
    (repository / "repository.py").write_text(f"open({str(repository / 'ran')!r}, 'w')\n")
    (repository / "train.jsonl").write_text(pairs(1))
    with pytest.raises(SourceError, match="scripts are no longer supported"):
        opened("hf://someone/some-set")
    assert not (repository / "ran").exists()


def test_break_in_the_middle_names_the_row(repository: Path) -> None:
    (repository / "train.jsonl").write_text(pairs(3000, more="x" * 5000) + "{broken\n" + pairs(3))
    (source,) = open_sources(["hf://someone/some-set"], None, None)
    with pytest.raises(SourceError, match=r"someone/some-set:train: cannot be read after row \d+") as caught:
        list(source.rows())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("spec", ["hf://", "hf://name", "hf://a/b@", "hf://a/b:", "hf:///a/b"])
def test_spec_that_is_none(spec: str) -> None:
    with pytest.raises(OptionError, match="hf://USER/NAME"):
        open_sources([spec], None, None)


def test_no_network_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    closed = huggingface_hub.HfApi(endpoint="http://127.0.0.1:9")  # nothing listens on the discard port
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: closed)
    with pytest.raises(SourceError, match=r"hf://someone/some-set: cannot be read .*network") as caught:
        open_sources(["hf://someone/some-set"], None, None)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (404, "RepoNotFound", "no such dataset"),
        (404, "RevisionNotFound", "no such revision"),
        (403, "GatedRepo", "gated"),
    ],
)
def test_what_the_hub_refuses(monkeypatch: pytest.MonkeyPatch, status: int, code: str, words: str) -> None:
    """A server on this machine answers as the Hub does."""
    import http.server
    import threading

    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)

    class Refuse(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Refuse) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        api = huggingface_hub.HfApi(endpoint=f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api)
        try:
            with pytest.raises(SourceError, match=words):
                open_sources(["hf://someone/some-set@x"], None, None)
        finally:
            server.shutdown()
