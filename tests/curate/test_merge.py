"""Joining finished datasets: copies across them, regions and counts anew, and what is refused in one line."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import KERNEL, kernel, pair, train_tokenizer
from publish_helpers import edit_manifest

from curate import merge as command
from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.errors import CusetError, DatasetError, OptionError
from curate.folder import OutFolder
from curate.merge import MergeConfig, merge
from curate.query import run as query
from curate.reweigh import ReweighConfig, reweigh
from curate.score import ModelScorer, StubScorer
from curate.store import connect, part_files, read_manifest

Make = Callable[..., Path]


def contents(folder: Path) -> dict[str, bytes]:
    files = (p for p in folder.rglob("*") if p.is_file() and p.name not in {"build.log.json", "lock"})
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def table(folder: Path, name: str) -> pl.DataFrame:
    return pl.concat(pl.read_parquet(part) for part in part_files(folder / name))


def built(folder: Path, model: Path, name: str, rows: list[Any], scorer: Any = None, **options: Any) -> Path:
    source = folder / f"{name}.jsonl"
    source.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    settings = {"jobs": 1, "shard_rows": 3, "model": str(model), **options}
    build_dataset(BuildConfig(source=(str(source),), out=folder / name, **settings), scorer or StubScorer())
    return folder / name


RENAMED = kernel(1).replace("scale1", "another")
NEAR = kernel(2).replace("cudaDeviceSynchronize();\n", "cudaDeviceSynchronize();\n    cudaGetLastError();\n")
A_ROWS = [pair(0), pair(1), "{cut", pair(2), pair(3), pair(4)]
B_ROWS = [pair(5), pair(0), pair(70, RENAMED), pair(71, NEAR), {"prompt": "p", "response": "none"}, pair(6), pair(4)]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> dict[str, Path]:
    """Two datasets that share rows, and one of all their rows."""
    folder = tmp_path_factory.mktemp("merge")
    options = {"compile": False, "near_duplicate": 0.6}
    return {
        "a": built(folder, model_folder, "a", A_ROWS, **options),
        "b": built(folder, model_folder, "b", B_ROWS, **options),
        "both": built(folder, model_folder, "both", [*A_ROWS, *B_ROWS], **options),
    }


@pytest.fixture
def a(datasets: dict[str, Path]) -> Path:
    return datasets["a"]


@pytest.fixture
def b(datasets: dict[str, Path]) -> Path:
    return datasets["b"]


def test_copies_across_both_are_found_and_everything_common_is_made_anew(
    tmp_path: Path, datasets: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModelScorer, "__init__", lambda *x: pytest.fail("a model was loaded"))
    out = tmp_path / "out"
    merged = merge(MergeConfig((datasets["a"], datasets["b"]), out, jobs=1))
    whole = read_manifest(datasets["both"])
    assert merged["counts"] == whole["counts"]
    assert merged["counts"]["read"] == len(A_ROWS) + len(B_ROWS)
    copies = table(out, "rejected").filter(stage="duplicates")
    reasons = dict(copies.select("id", "reason").iter_rows())
    assert reasons == {"7": "exact_duplicate", "8": "renamed_code", "9": "near_duplicate", "12": "exact_duplicate"}
    identity = dict(table(out, "samples").select("prompt", "sample_id").iter_rows())
    details = dict(copies.select("id", "detail").iter_rows())
    assert details["7"] == f"of {identity[pair(0)['prompt']]}, row 0"
    assert details["8"] == f"of {identity[pair(1)['prompt']]}, similarity 1.000"
    assert details["9"].startswith(f"of {identity[pair(2)['prompt']]}, similarity 0.")
    assert merged["regions"] == whole["regions"]
    assert merged["findings"] == whole["findings"]
    columns = ("id", "stage", "reason", "detail")
    assert table(out, "rejected").select(columns).equals(table(datasets["both"], "rejected").select(columns))
    texts = ("id", "evidence", "prompt", "response", "raw")
    assert table(out, "refused").select(texts).equals(table(datasets["both"], "refused").select(texts))
    same = pl.exclude("source", "source_id")
    assert table(out, "samples").select(same).equals(table(datasets["both"], "samples").select(same))
    assert table(out, "regions").equals(table(datasets["both"], "regions"))


def test_the_better_copy_stays_wherever_it_is(tmp_path: Path, a: Path, b: Path) -> None:
    merge(MergeConfig((b, a), tmp_path / "out", jobs=1))
    rejected = table(tmp_path / "out", "rejected")
    assert set(rejected.filter(stage="duplicates")["id"]) == {"2", "3", "7", "12"}
    assert rejected.filter(id="9").row(0, named=True)["reason"] == "broken_json"  # the third row of the second dataset
    kept = table(tmp_path / "out", "samples").filter(prompt=pair(1)["prompt"])
    assert kept["source"].to_list() == ["a.jsonl"]


def test_manifest_and_card_name_both_and_the_folder_works_like_any_other(
    tmp_path: Path, a: Path, b: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert command.run([str(a), str(b), "--out", str(out), "--jobs", "1"]) == 0
    assert "renamed_code" in capsys.readouterr().out
    manifest = read_manifest(out)
    assert [source["name"] for source in manifest["sources"]] == ["a.jsonl", "b.jsonl"]
    assert [part["read"] for part in manifest["merged"]] == [len(A_ROWS), len(B_ROWS)]
    assert {name: rows["accepted"] for name, rows in manifest["rows"].items()} == {"a.jsonl": 5, "b.jsonl": 2}
    card = (out / "README.md").read_text()
    assert "a.jsonl" in card
    assert "b.jsonl" in card
    assert str(tmp_path) not in card + (out / "manifest.json").read_text()
    assert query([str(out), "select count(*) from tokens"]) == 0
    before = table(out, "samples")
    after = reweigh(ReweighConfig(out, tau=0.7))
    assert after["merged"] == manifest["merged"]
    assert after["config"]["tau"] == 0.7
    assert not before["token_weight"].equals(table(out, "samples")["token_weight"])


def test_a_merged_dataset_can_be_merged_again(tmp_path: Path, a: Path, b: Path, model_folder: Path) -> None:
    third = built(tmp_path, model_folder, "third", [pair(6), pair(9)], compile=False, near_duplicate=0.6)
    merge(MergeConfig((a, b), tmp_path / "two", jobs=1))
    in_turn = merge(MergeConfig((tmp_path / "two", third), tmp_path / "in turn", jobs=1))
    at_once = merge(MergeConfig((a, b, third), tmp_path / "at once", jobs=1))
    assert in_turn["counts"] == at_once["counts"]
    assert table(tmp_path / "in turn", "samples").equals(table(tmp_path / "at once", "samples"))
    assert table(tmp_path / "in turn", "rejected").equals(table(tmp_path / "at once", "rejected"))


def test_sources_of_one_name_and_other_rows_are_told_apart(tmp_path: Path, model_folder: Path) -> None:
    for n in (1, 2):
        (tmp_path / str(n)).mkdir()
        built(tmp_path / str(n), model_folder, "same", [pair(n), "{cut"], compile=False)
    merged = merge(MergeConfig((tmp_path / "1" / "same", tmp_path / "2" / "same"), tmp_path / "out", jobs=1))
    first, second = (source["name"] for source in merged["sources"])
    assert (first, second[:12]) == ("same.jsonl", "same.jsonl (")
    assert table(tmp_path / "out", "samples")["source"].to_list() == [first, second]
    assert table(tmp_path / "out", "rejected")["source"].to_list() == [first, second]
    assert {name: rows["accepted"] for name, rows in merged["rows"].items()} == {first: 1, second: 1}


def test_without_the_refused_texts_the_reasons_are_still_there(tmp_path: Path, a: Path, b: Path) -> None:
    fetched = tmp_path / "fetched"
    shutil.copytree(a, fetched, ignore=shutil.ignore_patterns("refused", ".cuset"))
    merge(MergeConfig((fetched, b), tmp_path / "out", jobs=1))
    merge(MergeConfig((a, b), tmp_path / "whole", jobs=1))
    assert table(tmp_path / "out", "rejected").equals(table(tmp_path / "whole", "rejected"))
    texts = table(tmp_path / "out", "refused")
    assert texts.filter(id="2")["raw"].to_list() == [None]
    assert texts["id"].equals(table(tmp_path / "out", "rejected")["id"])


# -- killed, locked, in the way -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["write_frame", "write_part", "write_regions", "write_log", "write_manifest"])
@pytest.mark.parametrize("calls", [1, 3])
def test_stopped_anywhere_it_goes_on_and_ends_with_the_same_bytes(
    tmp_path: Path, a: Path, b: Path, monkeypatch: pytest.MonkeyPatch, name: str, calls: int
) -> None:
    merge(MergeConfig((a, b), tmp_path / "whole", jobs=1))
    real, left = getattr(command, name), [calls]

    def interrupted(*arguments: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(command, name, interrupted)
    config = MergeConfig((a, b), tmp_path / "out", jobs=1)
    try:
        merge(config)
        assert calls > 1  # called once alone
    except KeyboardInterrupt:
        with pytest.raises(DatasetError, match="not ended"):
            connect(tmp_path / "out")
    monkeypatch.undo()
    merge(config)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_killed_at_random_moments_it_ends_with_the_same_bytes(tmp_path: Path, a: Path, b: Path) -> None:
    arguments = [sys.executable, "-m", "curate.merge", str(a), str(b), "--jobs", "1", "--out"]
    began = time.monotonic()
    subprocess.run([*arguments, str(tmp_path / "whole")], check=True, capture_output=True)
    seconds, draw, killed = time.monotonic() - began, random.Random(3), 0
    for _ in range(4):
        child = subprocess.Popen(
            [*arguments, str(tmp_path / "out")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while child.poll() is None and not (tmp_path / "out" / ".cuset" / "plan.json").exists():
            time.sleep(0.01)  # until it is at work
        time.sleep(draw.uniform(0, seconds / 3))
        child.kill()
        killed += child.wait() != 0
        for part in (tmp_path / "out").rglob("*.parquet"):
            assert part.read_bytes()[-4:] == b"PAR1", "a part under its own name is whole"
    assert killed > 0
    subprocess.run([*arguments, str(tmp_path / "out")], check=True, capture_output=True)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert not list((tmp_path / "out").rglob("*.tmp"))


def test_what_stands_is_not_written_again_and_nothing_else_overwritten(
    tmp_path: Path, a: Path, b: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    merge(MergeConfig((a, b), out, jobs=1))
    before = contents(out)
    with pytest.raises(DatasetError, match="--overwrite"):
        merge(MergeConfig((b, a), out, jobs=1))
    monkeypatch.setattr(command, "write_part", lambda *x: pytest.fail("written again"))
    merge(MergeConfig((a, b), out, jobs=1))
    assert contents(out) == before
    monkeypatch.undo()
    merge(MergeConfig((b, a), out, jobs=1, overwrite=True))
    assert contents(out) != before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(DatasetError, match="other files"):
        merge(MergeConfig((a, b), tmp_path / "mine", jobs=1, overwrite=True))
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_two_at_once_in_one_folder_are_kept_apart(tmp_path: Path, a: Path, b: Path) -> None:
    with OutFolder(tmp_path / "out").locked(), pytest.raises(DatasetError, match="another build"):
        merge(MergeConfig((a, b), tmp_path / "out", jobs=1))


def test_an_input_that_changes_meanwhile_makes_no_dataset(
    tmp_path: Path, a: Path, b: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving = tmp_path / "moving"
    shutil.copytree(a, moving)
    real = command.write_regions

    def changed(*arguments: Any) -> Any:
        reweigh(ReweighConfig(moving, tau=0.9))
        return real(*arguments)

    monkeypatch.setattr(command, "write_regions", changed)
    with pytest.raises(DatasetError, match="has changed"):
        merge(MergeConfig((moving, b), tmp_path / "out", jobs=1))
    assert not (tmp_path / "out" / "manifest.json").exists()


# -- what does not fit together -----------------------------------------------------------------------------------


def refusal(*paths: Path, out: Path) -> str:
    """What is said; the inputs are as before and nothing is at `out`."""
    before = [contents(path) for path in paths if path.is_dir()]
    with pytest.raises(CusetError) as error:
        command.run([*map(str, paths), "--out", str(out), "--jobs", "1"])
    said = str(error.value)
    assert "\n" not in said
    assert [contents(path) for path in paths if path.is_dir()] == before
    assert out in paths or not out.exists()
    return said


def edited(a: Path, to: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """A copy of a dataset whose manifest says something else."""
    shutil.copytree(a, to)
    manifest = json.loads((to / "manifest.json").read_text())
    change(manifest)
    (to / "manifest.json").write_text(json.dumps(manifest))
    return to


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m["config"].update(tau=0.3), ["--tau is 0.3", "0.1"]),
        (lambda m: m["config"].update({"lambda": 2.0}), ["--lambda is 2.0", "1.0"]),
        (lambda m: m["config"].update(filter=["too_long=mark"]), ["--filter is too_long=mark", "empty"]),
        (lambda m: m["config"].update(topk=5), ["--topk is 5", "not given"]),
        (lambda m: m["config"].update(redact=False), ["--redact is False", "True"]),
        (lambda m: m["model"].update(sha256="0" * 64, name="other"), ["--model", "name other", "tiny-llama"]),
        (lambda m: m["tokenizer"].update(template_sha256="1" * 64), ["the tokenizer", "template_sha256 1111"]),
        (lambda m: m["scorer"].update(dtype="bfloat16"), ["arithmetic", "bfloat16", "stub"]),
        (lambda m: m.update(against={"tasks": {"X": 1}, "sha256": "2" * 64}), ["--against", "not given"]),
        (lambda m: m.update(format_version=99), ["format 99"]),
        (lambda m: m["counts"].update(read=99), ["its manifest says 99"]),
        (lambda m: m.pop("config"), ["manifest.json: damaged"]),
    ],
)
def test_what_differs_is_named_with_both_values(
    tmp_path: Path, a: Path, b: Path, change: Callable[[dict[str, Any]], Any], words: list[str]
) -> None:
    other = edited(b, tmp_path / "other", change)
    said = refusal(a, other, out=tmp_path / "out")
    for word in (str(other), *words):
        assert word in said


def test_the_same_weights_under_another_name_are_one_model(tmp_path: Path, a: Path, b: Path) -> None:
    other = edited(b, tmp_path / "other", lambda m: m["model"].update(name="elsewhere", revision="x"))
    assert merge(MergeConfig((a, other), tmp_path / "out", jobs=1))["model"] == read_manifest(a)["model"]


def test_another_tokenizer_is_refused(tmp_path: Path, a: Path, model_folder: Path) -> None:
    folder = tmp_path / "tiny-llama"
    shutil.copytree(model_folder, folder)
    train_tokenizer((KERNEL, kernel(3)), 390).save_pretrained(folder)
    other = built(tmp_path, folder, "other", [pair(8)], compile=False, near_duplicate=0.6)
    assert "the tokenizer is sha256" in refusal(a, other, out=tmp_path / "out")


def test_places_that_cannot_be_merged_are_one_line(tmp_path: Path, a: Path, b: Path) -> None:
    out = tmp_path / "out"
    assert "no such folder" in refusal(a, tmp_path / "nowhere", out=out)
    (tmp_path / "empty").mkdir()
    assert "no manifest.json" in refusal(a, tmp_path / "empty", out=out)
    unfinished = tmp_path / "unfinished"
    shutil.copytree(a, unfinished)
    (unfinished / "manifest.json").unlink()
    assert "not ended" in refusal(a, unfinished, out=out)
    assert "named twice" in refusal(a, a.parent / "x" / ".." / "a", out=out)
    assert "one of the datasets" in refusal(a, b, out=b)
    assert "inside each other" in refusal(a, b, out=a / "samples" / "merged")
    assert "nothing to merge it with" in refusal(a, out=out)
    with pytest.raises(OptionError, match="--out"):
        command.run([str(a), str(b)])
    with pytest.raises(OptionError, match="--jobs 0"):
        command.run([str(a), str(b), "--out", str(out), "--jobs", "0"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.update(sources=None), "damaged"),
        (lambda m: m["sources"].append({"kind": "jsonl"}), "damaged"),
        (lambda m: m["config"].update(shard_rows="x"), "damaged"),
        (lambda m: m["config"].update(shards="x"), "damaged"),
        (lambda m: m["counts"].pop("read"), "damaged"),
        (lambda m: m.update(model="x"), "damaged"),
        (lambda m: m.update(compilers=7), "damaged"),
        (lambda m: m.update(reference={"sha256": "0"}), "damaged"),
        (lambda m: m.pop("versions"), "damaged"),
        (lambda m: m.pop("files"), "names no files, as an older cuset wrote it"),
        (lambda m: m["files"][0].update(path=None), "files that are not there according to manifest.json: None"),
    ],
)
def test_a_manifest_that_no_build_wrote_is_one_line(
    tmp_path: Path, a: Path, b: Path, change: Callable[[dict[str, Any]], Any], words: str
) -> None:
    assert words in refusal(a, edited(b, tmp_path / "other", change), out=tmp_path / "out")


def test_parts_that_are_not_those_of_the_build_are_refused(tmp_path: Path, a: Path, b: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    shutil.copytree(b, other)
    first, second = part_files(other / "samples")[:2]
    whole = first.read_bytes(), second.read_bytes()
    first.write_bytes(whole[1])
    second.write_bytes(whole[0])
    assert "have other contents according to manifest.json: samples/part-00000.parquet" in refusal(a, other, out=out)
    first.write_bytes(b"PAR1")
    second.write_bytes(whole[1])
    assert "have other contents" in refusal(a, other, out=out)
    first.unlink()
    assert "are not there" in refusal(a, other, out=out)
    first.write_bytes(whole[0])
    shutil.copy(second, other / "samples" / "part-00007.parquet")
    assert "are not of this build" in refusal(a, other, out=out)


def test_parts_of_other_columns_or_damaged_pages_are_refused(tmp_path: Path, a: Path, b: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    shutil.copytree(b, other)
    first = part_files(other / "samples")[0]
    content = first.read_bytes()
    pl.read_parquet(first).drop("rank").write_parquet(first)
    edit_manifest(other)  # so that these are the files that it names
    assert f"{first}: other columns" in refusal(a, other, out=out)
    first.write_bytes(content)
    edit_manifest(other)
    refused = part_files(other / "refused")[-1]  # which the manifest does not name
    content = refused.read_bytes()
    refused.write_bytes(content[:4] + b"\xff" * 200 + content[204:])
    with pytest.raises(DatasetError) as error:
        merge(MergeConfig((a, other), out, jobs=1))
    assert str(error.value).startswith(f"{refused}: damaged (")
    assert not (out / "manifest.json").exists()
    refused.write_bytes(content)
    merge(MergeConfig((a, other), out, jobs=1))


def test_parts_of_a_build_have_to_be_all_there_and_once(tmp_path: Path, a: Path, b: Path) -> None:
    out = tmp_path / "out"

    def part(number: int, name: str, shards: int = 3, **more: Any) -> Path:
        options = {"shards": shards, "shard": number, **more}
        return edited(a, tmp_path / name, lambda m: m["config"].update(options))

    zero, one, two = (part(n, str(n)) for n in range(3))
    assert "--shard 1 of --shards 3 is missing" in refusal(zero, two, out=out)
    assert "--shard 1, 2 of --shards 3 is missing" in refusal(zero, out=out)
    twice = part(1, "twice")
    said = refusal(zero, one, two, twice, out=out)
    assert "--shard 1 is there twice" in said
    assert str(one) in said
    assert "part 1 of 4, but others are parts of 3" in refusal(zero, part(1, "four", 4), two, out=out)
    assert "no part of a build" in refusal(zero, one, two, b, out=out)
    assert "--limit is 2" in refusal(zero, one, part(2, "limited", limit=2), out=out)
    assert "--shard-rows is 9" in refusal(zero, one, part(2, "rows", shard_rows=9), out=out)
    foreign = edited(b, tmp_path / "foreign", lambda m: m["config"].update(shards=3, shard=2))
    assert "other sources" in refusal(zero, one, foreign, out=out)
