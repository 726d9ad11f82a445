"""Publishing against a raw upload of the same bytes, to the same Hub on loopback: about two minutes on idle cores."""

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
from curate.publishing.checks import check_dataset
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

_ROWS = 1_000
_FILES, _BYTES = 64, 1_000_000  # to send; what is in them is of no meaning to a transfer
_LINE = 12_500_000.0  # bytes a second of a line of 100 Mbit/s
_TIMES = 3


def measure() -> list[Figure]:
    """The two transfers take turns, each to a Hub of its own, and the middle one of each counts. The raw upload is
    `HfApi.upload_folder`. What comes before our transfer is a figure of its own."""
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
        return [*figures, *_before(folder)]


def _before(folder: Path) -> list[Figure]:
    write_pairs(_ROWS, folder / "pairs.jsonl")
    config = BuildConfig(
        source=(str(folder / "pairs.jsonl"),), license="CC0-1.0", out=folder / "out", compile=False, shard_rows=128
    )
    build_dataset(config, StubScorer())
    manifest = read_manifest(folder / "out")
    seconds, checked = timed(lambda: check_dataset(folder / "out", manifest))
    assert not checked.problems, checked.problems
    drawing, _ = timed(lambda: card_figures(folder / "out", manifest))
    megabytes = sum(entry["bytes"] for entry in manifest["files"]) / 1e6
    return [
        Figure("checks before it", megabytes / seconds, "MB/s", f"{megabytes:.1f} MB of parts, {_ROWS} rows"),
        Figure("figures of the card", drawing, "s", "two processes"),
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
