"""The acceptance of curation: a corpus of planted faults and near misses through whole builds, compilers included."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import curate.judge
from curate.compiling import CompileResult
from curate.compiling.nvrtc import nvrtc_version
from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.extract import extract_cuda
from curate.filters import COMPARED, FILTERS
from curate.tokens import Encoder
from tests.curate.planted_rows import (
    COMPILER_REASONS,
    OPTIONS,
    PlantedRow,
    cuda,
    near_misses,
    planted_rows,
    program,
    write_inputs,
)

COMPILING = bool(nvrtc_version())
REASONS = {f.reason for f in FILTERS} | set(COMPARED) | {"exact_duplicate"}
PLANTED = [row for row in planted_rows() if COMPILING or row.reason not in COMPILER_REASONS]
NEAR = near_misses()
EXPECTED = {row.name: row.reason for row in PLANTED}


@dataclass
class Built:
    """A finished build. `reasons`: of the refused rows, by their ids."""

    manifest: dict[str, Any]
    samples: pl.DataFrame
    rejected: pl.DataFrame

    @property
    def accepted(self) -> set[str]:
        return set(self.samples["source_id"])

    @property
    def reasons(self) -> dict[str, str]:
        return dict(self.rejected.select("source_id", "reason").iter_rows())

    @property
    def flags(self) -> dict[str, dict[str, str]]:
        flags = self.samples.select("source_id", "flags").iter_rows()
        return {name: {flag["reason"]: flag["detail"] for flag in found} for name, found in flags}


@dataclass
class Corpus:
    """Builds planted rows in a folder; what compilers said in the first build is remembered for the others."""

    folder: Path
    model: Path
    max_length: int
    compiled: dict[tuple[str, ...], CompileResult]

    def build(self, name: str, rows: Sequence[PlantedRow], **options: Any) -> Built:
        folder = self.folder / name
        folder.mkdir()
        given = {**OPTIONS, **write_inputs(folder, list(rows)), "compile": COMPILING, "max_length": self.max_length}
        config = BuildConfig(out=folder / "out", model=str(self.model), **{**given, "jobs": 1, **options})
        manifest = build_dataset(config)
        samples, rejected = (pl.read_parquet(folder / "out" / table / "*.parquet") for table in ("samples", "rejected"))
        assert manifest["counts"]["read"] == len(rows) == len(samples) + len(rejected)
        assert manifest["counts"]["failed"] == 0
        return Built(manifest, samples, rejected)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any, model_folder: Path) -> Corpus:
    longest = next(row for row in NEAR if row.name == "as-long-as-allowed")
    turns = [{"role": "user", "content": longest.prompt}, {"role": "assistant", "content": longest.response}]
    ids = Encoder(tokenizer, "chat").encode(turns, extract_cuda(longest.response)).input_ids
    return Corpus(tmp_path_factory.mktemp("planted"), model_folder, len(ids), {})


@pytest.fixture(scope="module")
def first(corpus: Corpus) -> Built:
    """All rows, compiled by compilers."""
    check_all = curate.judge.check_all

    def remembering(sources, *settings):
        asked: dict[int, tuple[str, ...]] = {}

        def noted():
            for row, blocks in sources:
                asked[row] = tuple(blocks)
                yield row, blocks

        for row, result in check_all(noted(), *settings):
            corpus.compiled[asked[row]] = result
            yield row, result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curate.judge, "check_all", remembering)
        return corpus.build("first", [*NEAR, *PLANTED], jobs=2)


@pytest.fixture
def again(first: Built, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """The same corpus without compilers: a text that they have not seen counts as skipped."""

    def remembered(sources, *settings):
        return ((row, corpus.compiled.get(tuple(blocks), CompileResult("skipped"))) for row, blocks in sources)

    monkeypatch.setattr(curate.judge, "check_all", remembered)
    return corpus


def test_every_reason_is_planted_and_nearly_missed() -> None:
    assert {row.reason for row in planted_rows()} == REASONS
    assert {row.reason for row in NEAR} == REASONS
    assert len(NEAR) >= len(planted_rows()) >= 40
    names = [row.name for row in (*planted_rows(), *NEAR)]
    assert len(names) == len(set(names))


@pytest.mark.compiles
def test_precision_and_recall_are_one_for_every_reason(first: Built) -> None:
    given = first.reasons
    print(f"\n{'reason':24}{'planted':>8}{'refused':>8}{'precision':>10}{'recall':>8}")
    right, planted, refused = (
        Counter(reason for name, reason in given.items() if EXPECTED.get(name) == reason),
        Counter(EXPECTED.values()),
        Counter(given.values()),
    )
    for reason in sorted(planted | refused):
        precision, recall = right[reason] / max(1, refused[reason]), right[reason] / max(1, planted[reason])
        print(f"{reason:24}{planted[reason]:8}{refused[reason]:8}{precision:10.3f}{recall:8.3f}")
    print(f"{'all':24}{planted.total():8}{refused.total():8}", end="")
    print(f"{right.total() / refused.total():10.3f}{right.total() / planted.total():8.3f}")
    assert {name: reason for name, reason in given.items() if EXPECTED.get(name) != reason} == {}
    assert given == EXPECTED
    assert first.accepted == {row.name for row in NEAR}


@pytest.mark.compiles
def test_rows_are_conserved(first: Built) -> None:
    counts = first.manifest["counts"]
    by_reason = Counter({r: n for reasons in counts["refused"].values() for r, n in reasons.items()})
    assert counts["read"] == counts["accepted"] + by_reason.total() + counts["failed"] == len(NEAR) + len(PLANTED)
    assert by_reason == Counter(EXPECTED.values())
    assert counts["rejected"] == by_reason.total()


@pytest.mark.compiles
def test_near_misses_carry_no_flag_and_details_say_figures(first: Built) -> None:
    assert {name: flags for name, flags in first.flags.items() if flags} == {}
    assert first.rejected["detail"].str.len_chars().min() > 0
    assert first.rejected["detail"].str.len_chars().max() <= 300
    assert not first.rejected["detail"].str.contains("\n").any()


@pytest.mark.compiles
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_order_and_jobs_change_nothing(again: Corpus, first: Built, seed: int, jobs: int) -> None:
    """Which of two equal rows comes first is the one thing that order decides, so rows are told apart by content."""
    rows = [*NEAR, *PLANTED]
    random.Random(seed).shuffle(rows)
    content = {row.name: json.dumps([row.prompt, row.response.replace("bob@", "ann@")]) for row in rows}
    expected = sorted((content[name], reason) for name, reason in first.reasons.items())
    built = again.build(f"shuffled-{seed}-{jobs}", rows, jobs=jobs, shard_rows=64)
    assert sorted(built.samples["sample_id"]) == sorted(first.samples["sample_id"])
    assert sorted((content[name], reason) for name, reason in built.reasons.items()) == expected


@pytest.mark.compiles
def test_a_copy_of_a_refused_row_is_kept(again: Corpus) -> None:
    """The better of two copies by every measure of their code, but refused for a reason of its own."""
    bad = [
        PlantedRow("wrong", "marked_incorrect", "Do it.", cuda(program(0)), {"correct": False}),
        PlantedRow("gpl", "license_not_allowed", "Do it.", cuda(program(1)), {"license": "GPL-3.0-only"}),
        PlantedRow("unlicensed", "unknown_license", "Do it.", cuda(program(2)), {"license": None}),
        PlantedRow("fails", "execution_failed", "Do it.", cuda(program(3, "program fails"))),
        PlantedRow("hangs", "execution_timeout", "Do it.", cuda(program(4, "program hangs"))),
        PlantedRow("repeats", "equals_reference", cuda(program(5)), cuda(program(5))),
        PlantedRow("talks", "too_long", "Do it, word by word. " * 800, cuda(program(6))),
        PlantedRow("talks-too", "too_long", "Do it word by word, yes. " * 800, cuda(f"// at length\n{program(6)}")),
    ]
    good = [
        PlantedRow(f"copy-{k}", "", "Do it again.", cuda(f"// it works like this, and is longer\n{program(k)}"))
        for k in range(7)
    ]
    built = again.build("copies", [*bad, *good])
    assert built.reasons == {row.name: row.reason for row in bad}
    assert built.accepted == {row.name for row in good}


@pytest.mark.compiles
def test_marked_rows_stay_with_flag_and_detail(again: Corpus) -> None:
    kept = [row for row in PLANTED if row.reason != "exact_duplicate"]
    marks = tuple(f"{reason}=mark" for reason in sorted(REASONS - {"exact_duplicate"}))
    built = again.build("marked", [*NEAR, *PLANTED], filter=marks)
    assert set(built.reasons.values()) == {"exact_duplicate"}
    flags = built.flags
    # a row without code says nothing of the benchmarks' or of others', and copies of bad rows are found as such too
    assert [row.name for row in kept if not flags.get(row.name, {}).get(row.reason)] == []


@pytest.mark.compiles
def test_what_is_off_is_accepted(again: Corpus) -> None:
    off = tuple(f"{reason}=off" for reason in sorted(REASONS - {"exact_duplicate"}))
    built = again.build("off", [*NEAR, *PLANTED], filter=off)
    assert set(built.reasons.values()) == {"exact_duplicate"}
    assert all(flags == {} for flags in built.flags.values())
