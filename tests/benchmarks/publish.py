"""Publishing against a raw upload of the same bytes, to the same Hub on loopback: about six minutes on idle cores."""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.utils import disable_progress_bars

from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.manifest import file_sha256
from curate.publish import PublishConfig, prepare, publish
from curate.publishing import looked
from curate.publishing.figures import card_figures
from curate.publishing.files import PublishedFile
from curate.publishing.hub import Target, publish_files
from curate.score import StubScorer
from curate.store import read_manifest
from tests.benchmarks.figures import Figure, timed
from tests.benchmarks.generated import write_pairs

sys.path.insert(0, str(Path(__file__).parents[1] / "curate"))

from hub_server import serving

__all__ = ["measure"]

_ROWS = 16_000
_FILES, _BYTES = 64, 1_000_000  # to send; what is in them is of no meaning to a transfer
_LINE = 12_500_000.0  # bytes a second of a line of 100 Mbit/s
_TIMES = 3


def measure() -> list[Figure]:
    """The two transfers take turns, each to a Hub of its own, and the middle one of each counts. The raw upload is
    `HfApi.upload_folder`. Then a dataset, checks included: the first time, and after a dry run."""
    disable_progress_bars()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        files = _random_files(folder / "raw")
        figures = []
        for words, line in (("loopback", None), ("100 Mbit/s", _LINE)):
            ours, theirs = _in_turn(
                lambda line=line: _ours(files, line), lambda line=line: _theirs(folder / "raw", line)
            )
            rates = [_FILES * _BYTES / seconds / 1e6 for seconds in (ours, theirs)]
            figures += [
                Figure(f"our transfer, {words}", rates[0], "MB/s", f"{_FILES} files of 1 MB: one commit and a tag"),
                Figure("upload_folder", rates[1], "MB/s", "the same files: one commit"),
                Figure("time of ours over upload_folder", ours / theirs, "x"),
            ]
        return [*figures, *_dataset(folder)]


def _dataset(folder: Path) -> list[Figure]:
    """The raw upload sends the files that a publication holds; both draw no figure, since a report is there."""
    out, report = folder / "out", folder / "report"
    write_pairs(_ROWS, folder / "pairs.jsonl")
    build_dataset(
        BuildConfig(source=(str(folder / "pairs.jsonl"),), license="CC0-1.0", out=out, compile=False), StubScorer()
    )
    manifest = read_manifest(out)
    drawing, drawn = timed(lambda: card_figures(out, manifest))
    report.mkdir()
    for name, png in drawn.items():
        (report / f"{name}.png").write_bytes(png)
    with patch.object(looked, "cache_folder", lambda: folder / "cache"):
        first, prepared = timed(lambda: prepare(PublishConfig(out, "user/ours", dry_run=True, report=report)))
        assert not prepared.problems, prepared.problems
        for file in prepared.files:
            (folder / "sent" / file.name).parent.mkdir(parents=True, exist_ok=True)
            content = file.content if isinstance(file.content, bytes) else file.content.read_bytes()
            (folder / "sent" / file.name).write_bytes(content)
        again, _ = timed(lambda: prepare(PublishConfig(out, "user/ours", report=report)))
        ours, theirs = _in_turn(
            lambda: _timed_on_a_hub(_LINE, lambda: publish(PublishConfig(out, "user/ours", report=report))),
            lambda: _theirs(folder / "sent", _LINE),
        )
    megabytes = sum(file.size for file in prepared.files) / 1e6
    note = f"{megabytes:.1f} MB, {_ROWS} rows"
    return [
        Figure("checks and card, the first time", megabytes / first, "MB/s", note),
        Figure("... after a dry run", megabytes / again, "MB/s", "what it looked into is kept by hash"),
        Figure("whole command after a dry run over upload_folder", ours / theirs, "x", "100 Mbit/s, the same files"),
        Figure("figures of the card, without a report", drawing, "s", "two processes"),
    ]


def _random_files(folder: Path) -> list[PublishedFile]:
    draw = random.Random(0)
    files = []
    for n in range(_FILES):
        path = folder / "samples" / f"part-{n:05}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draw.randbytes(_BYTES))
        files.append(PublishedFile(f"samples/{path.name}", path, _BYTES, file_sha256(path)))
    return files


def _in_turn(*ways: Callable[[], float]) -> list[float]:
    seconds: list[list[float]] = [[] for _ in ways]
    for n in range(_TIMES):
        for at in range(len(ways)):
            way = (at + n) % len(ways)
            seconds[way].append(ways[way]())
    return [statistics.median(of) for of in seconds]


def _timed_on_a_hub(line: float | None, work: Callable[[], object]) -> float:
    with (
        serving() as hub,
        patch.multiple(constants, ENDPOINT=hub.url, HF_HUB_OFFLINE=False, HF_HUB_DISABLE_XET=True),
        patch.dict(os.environ, {"HF_TOKEN": hub.writer}),
    ):
        hub.bytes_per_second = line
        hub.create("dataset", "user/ours")
        return timed(work)[0]


def _ours(files: list[PublishedFile], line: float | None) -> float:
    return _timed_on_a_hub(line, lambda: publish_files(Target("user/ours"), files, "manifest-0", "a state"))


def _theirs(folder: Path, line: float | None) -> float:
    def work() -> object:
        api = huggingface_hub.HfApi()
        return api.upload_folder(repo_id="user/ours", repo_type="dataset", folder_path=folder, commit_message="raw")

    return _timed_on_a_hub(line, work)
