"""Parts of one build (`--shards N --shard I`): every row in one of them, and merged the bytes of the undivided build."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import FUNCTIONS, KERNEL, kernel, pair

from curate.build import run as build
from curate.config import BuildConfig
from curate.driver import build_dataset, default_out
from curate.errors import DatasetError, OptionError
from curate.merge import MergeConfig, merge
from curate.score import StubScorer
from curate.store import part_files, read_manifest

Write = Callable[..., Path]


def long_kernel(changed: int, comment: int) -> str:
    """Forty statements, of which so many are others; comments, which count for nothing but length, behind it."""
    lines = [
        f"    x[i] = {FUNCTIONS[n % 12]}(x[i] * {n + 2}.f) {'+-*'[n % 3]} {(7 if n < changed else 3) * n + 11}.f;\n"
        for n in range(40)
    ]
    return KERNEL.replace("    if (i < n) x[i] *= a;\n", "".join(lines)) + comment * "// longer\n"


BEST, MIDDLE, WORST = (pair(900 + n, long_kernel(6 * n, n)) for n in range(3))
"""The middle one is alike to both others, which are unlike each other: so it is refused for the best, and the worst
stays. Where the best is not there, the worst would be refused for the middle."""


def rows() -> list[dict[str, Any] | str]:
    """Good rows, copies of every kind in other runs than what they are copies of, and rows refused by themselves."""
    return [
        BEST, pair(0), MIDDLE, pair(1), pair(2), pair(3), WORST, "{cut", pair(2), pair(4), pair(5),
        {"prompt": "p", "response": "none"}, pair(50, kernel(4) + "// the same\n"), pair(1), pair(6),
        pair(51, kernel(3).replace("scale3", "another")), pair(7), pair(8, license="GPL-3.0-only"), pair(2),
    ]  # fmt: skip


@pytest.fixture
def settings(model_folder: Path, write_rows: Write) -> dict[str, Any]:
    return {"source": (str(write_rows(rows())),), "model": str(model_folder), "jobs": 1, "shard_rows": 2}


def divided(folder: Path, settings: dict[str, Any], shards: int) -> list[Path]:
    """The folders of all parts of a build."""
    folders = [folder / f"{n}-of-{shards}" for n in range(shards)]
    for n, out in enumerate(folders):
        build_dataset(BuildConfig(**settings, out=out, shards=shards, shard=n), StubScorer())
    return folders


def table(folder: Path, name: str) -> pl.DataFrame:
    return pl.concat(pl.read_parquet(part) for part in part_files(folder / name))


def files(folder: Path, name: str) -> list[bytes]:
    return [part.read_bytes() for part in part_files(folder / name)]


@pytest.mark.parametrize("shards", [3, 4])
def test_merged_they_hold_the_bytes_of_the_undivided_build(
    tmp_path: Path, settings: dict[str, Any], shards: int
) -> None:
    whole = build_dataset(BuildConfig(**settings, out=tmp_path / "whole"), StubScorer())
    assert {"exact_duplicate", "same_code", "renamed_code", "near_duplicate"} <= set(
        whole["counts"]["refused"]["duplicates"]
    )
    parts = divided(tmp_path, settings, shards)
    merged = merge(MergeConfig(tuple(reversed(parts)), tmp_path / "merged", jobs=1))
    for name in ("samples", "regions"):
        assert files(tmp_path / "merged", name) == files(tmp_path / "whole", name), name
    same = ("read", "accepted", "rejected", "failed")
    assert [merged["counts"][n] for n in same] == [whole["counts"][n] for n in same]
    assert (merged["findings"], merged["regions"]) == (whole["findings"], whole["regions"])
    ids = [(table(tmp_path / of, "rejected"))["id"].to_list() for of in ("merged", "whole")]
    assert ids[0] == ids[1]
    own = [reason for reason in table(tmp_path / "whole", "rejected")["reason"] if "dup" not in reason]
    assert [r for r in table(tmp_path / "merged", "rejected")["reason"] if "dup" not in r] == own


def test_which_near_duplicates_stay_is_decided_by_all_rows(tmp_path: Path, settings: dict[str, Any]) -> None:
    whole = build_dataset(BuildConfig(**settings, out=tmp_path / "whole"), StubScorer())
    assert whole["counts"]["refused"]["duplicates"]["near_duplicate"] == 1
    prompts = set(table(tmp_path / "whole", "samples")["prompt"])
    assert prompts & {row["prompt"] for row in (BEST, MIDDLE, WORST)} == {BEST["prompt"], WORST["prompt"]}
    parts = divided(tmp_path, settings, 2)  # rows 0, 1, 4, 5, ... and 2, 3, 6, 7, ...
    assert {MIDDLE["prompt"], WORST["prompt"]} <= set(table(parts[1], "samples")["prompt"])
    merge(MergeConfig(tuple(parts), tmp_path / "merged", jobs=1))
    assert set(table(tmp_path / "merged", "samples")["prompt"]) == prompts
    lost = table(tmp_path / "merged", "rejected").filter(reason="near_duplicate").row(0, named=True)
    kept = table(tmp_path / "merged", "samples").filter(prompt=BEST["prompt"])["sample_id"][0]
    assert (lost["id"], lost["stage"]) == ("2", "duplicates")
    assert lost["detail"].startswith(f"of {kept}, similarity 0.8")


@pytest.mark.parametrize(
    "filters",
    [
        ("near_duplicate=mark", "same_code=mark", "renamed_code=mark", "too_long=mark"),
        ("same_code=refuse", "renamed_code=mark", "near_duplicate=off"),
    ],
)
def test_marks_are_those_of_the_undivided_build(
    tmp_path: Path, settings: dict[str, Any], filters: tuple[str, ...]
) -> None:
    options = {**settings, "filter": filters, "max_length": 700}
    build_dataset(BuildConfig(**options, out=tmp_path / "whole"), StubScorer())
    flags = [flag["reason"] for row in table(tmp_path / "whole", "samples")["flags"] for flag in row]
    assert flags
    merge(MergeConfig(tuple(divided(tmp_path, options, 3)), tmp_path / "merged", jobs=1))
    assert files(tmp_path / "merged", "samples") == files(tmp_path / "whole", "samples")


def test_every_row_is_in_one_part_and_each_balances(tmp_path: Path, settings: dict[str, Any]) -> None:
    total = len(rows())
    numbers: list[int] = []
    for part in divided(tmp_path, settings, 4):
        manifest = read_manifest(part)
        counts = manifest["counts"]
        assert counts["read"] == counts["accepted"] + counts["rejected"] + counts["failed"]
        assert (manifest["config"]["shards"], manifest["config"]["shard"]) == (4, int(part.name[0]))
        refused = [int(n) for n in table(part, "rejected")["id"]]
        runs = range(int(part.name[0]) * 2, total, 8)
        own = [n for run in runs for n in range(run, min(run + 2, total))]
        assert set(refused) <= set(own)
        assert counts["read"] == len(own)
        numbers += own
    assert sorted(numbers) == list(range(total))


def test_limit_counts_the_rows_of_the_whole(tmp_path: Path, settings: dict[str, Any]) -> None:
    parts = divided(tmp_path, {**settings, "limit": 5}, 2)
    assert [read_manifest(part)["counts"]["read"] for part in parts] == [3, 2]


def test_a_part_goes_on_where_it_was_and_another_part_needs_another_folder(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    options = {**settings, "out": tmp_path / "out", "shards": 2}
    first = build_dataset(BuildConfig(**options, shard=0), StubScorer())
    assert build_dataset(BuildConfig(**options, shard=0), StubScorer()) == first
    with pytest.raises(DatasetError, match="--overwrite"):
        build_dataset(BuildConfig(**options, shard=1), StubScorer())
    assert read_manifest(tmp_path / "out") == first


def test_each_part_has_a_folder_of_its_own(settings: dict[str, Any]) -> None:
    assert default_out(BuildConfig(**settings, shards=4, shard=2)) == Path("data/build/rows-2-of-4")
    assert default_out(BuildConfig(**settings)) == Path("data/build/rows")


def test_the_card_of_a_part_says_that_it_is_one(tmp_path: Path, settings: dict[str, Any]) -> None:
    (part,) = divided(tmp_path, settings, 1)
    assert "part 0 of 1" in (part / "README.md").read_text()
    build_dataset(BuildConfig(**settings, out=tmp_path / "whole"), StubScorer())
    assert "part 0" not in (tmp_path / "whole" / "README.md").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--shards", "4"], "--shard"),
        (["--shard", "0"], "--shards"),
        (["--shards", "4", "--shard", "4"], "--shard 4"),
        (["--shards", "4", "--shard", "-1"], "--shard"),
        (["--shards", "0", "--shard", "0"], "--shards 0"),
        (["--shards", "4", "--shard", "x"], "--shard"),
    ],
)
def test_bad_numbers_are_one_line(tmp_path: Path, options: list[str], said: str) -> None:
    with pytest.raises(OptionError, match=said) as error:
        build(["--source", "bundled", "--out", str(tmp_path / "out"), *options])
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_options_of_parts_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "options.yaml"
    file.write_text(json.dumps({"shards": 3}))
    with pytest.raises(OptionError, match="--shard 3"):
        build(["--config", str(file), "--shard", "3"])
