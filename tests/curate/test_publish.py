"""Publishing: what the Hub holds afterwards, and what a second publication changes of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from hub_server import Hub, Repository
from publish_helpers import NAME, build, edit_manifest, hub_for_this_process

from curate import publish as publish_command
from curate.errors import DatasetError, HubError, OptionError
from curate.manifest import manifest_tag
from curate.publish import PublishConfig, publish
from curate.publishing.hub import Outcome


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    return build(model_folder, tmp_path_factory.mktemp("publish") / "out", skip_scoring=True)


@pytest.fixture
def copy(dataset: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(dataset, tmp_path / "copy"))


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with hub_for_this_process(tmp_path) as hub:
        yield hub


def published(path: Path, **more: object) -> Outcome:
    _, outcome = publish(PublishConfig(path, NAME, **more))
    assert outcome is not None
    return outcome


def repository(hub: Hub) -> Repository:
    return hub.repositories["dataset", NAME]


def data_of(path: Path) -> dict[str, bytes]:
    """The files of the folder that have to be public as they are."""
    names = [*path.glob("*/part-*.parquet"), path / "manifest.json", path / "build.log.json"]
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in names if p.parent.name != "refused"}


def data_on(hub: Hub, revision: str = "main") -> dict[str, bytes]:
    files = repository(hub).files(revision)
    return {name: content for name, content in files.items() if name not in ("README.md", ".gitattributes")}


def test_the_hub_holds_the_public_files_in_one_commit_under_the_tag(dataset: Path, hub: Hub) -> None:
    (dataset / "samples" / "part-00009.parquet.tmp").write_bytes(b"half")
    outcome = published(dataset)
    (dataset / "samples" / "part-00009.parquet.tmp").unlink()
    there = repository(hub)
    assert data_on(hub) == data_of(dataset)
    assert len(list(dataset.glob("samples/*.parquet"))) > 1
    assert there.branches == {"main": outcome.commit}
    assert there.tags == {manifest_tag(dataset): outcome.commit}
    (first,) = [name for name, parent in there.parents.items() if parent is None]
    assert there.parents == {first: None, outcome.commit: first}
    assert ".gitattributes" in there.files()
    assert not there.private
    assert sum(request.startswith("POST /api/datasets/user/kernels/commit") for request in hub.requests) == 1


def test_publishing_the_same_again_does_nothing(dataset: Path, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert publish_command.run([str(dataset), "--repo", NAME]) == 0
    said = capsys.readouterr().out
    assert "published 1" in said
    assert f"tag {manifest_tag(dataset)}" in said
    before = dict(repository(hub).branches)
    hub.requests.clear()
    assert publish_command.run([str(dataset), "--repo", NAME]) == 0
    assert capsys.readouterr().out.startswith("nothing to do: ")
    assert repository(hub).branches == before
    assert {request.split()[0] for request in hub.requests} == {"GET"}


def test_other_columns_and_fewer_parts_leave_nothing_stale(
    dataset: Path, hub: Hub, tmp_path: Path, model_folder: Path
) -> None:
    there = hub.create("dataset", NAME)
    old = build(model_folder, tmp_path / "old", shard_rows=1)
    published(old)
    main = there.trees[there.branches["main"]]
    foreign = {"LICENSE": b"terms", "samples/notes.txt": b"mine", "raw/part-00000.parquet": b"mine"}
    stale = {"refused/part-00000.parquet": b"never meant to be there", "dataset_infos.json": b"{}"}
    there.commit("main", {**main, **{n: there.add(c) for n, c in {**foreign, **stale}.items()}}, "by hand")
    by_hand = there.branches["main"]
    assert len(list(old.glob("samples/*"))) > len(list(dataset.glob("samples/*")))

    outcome = published(dataset)
    assert {n: c for n, c in data_on(hub).items() if n not in foreign} == data_of(dataset)
    assert {n: there.files()[n] for n in foreign} == foreign
    assert {"refused/part-00000.parquet", "dataset_infos.json", "figures/density.png"} < set(outcome.change.delete)
    assert there.parents[outcome.commit] == by_hand
    assert data_on(hub, manifest_tag(old)).keys() >= data_of(old).keys()
    card = there.files()["README.md"].decode()
    assert "config_name: regions" not in card
    assert "config_name: regions" in there.files(manifest_tag(old))["README.md"].decode()


def test_a_lost_tag_is_set_without_another_commit(dataset: Path, hub: Hub) -> None:
    hub.fail("POST .*/tag/", 403)
    with pytest.raises(HubError):
        published(dataset)
    there = repository(hub)
    assert (len(there.trees), there.tags) == (2, {})
    outcome = published(dataset)
    assert not outcome.change
    assert (len(there.trees), there.tags) == (2, {manifest_tag(dataset): outcome.commit})


def test_the_tag_of_the_same_data_stays_where_it_is(
    dataset: Path, hub: Hub, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = published(dataset)
    edit_manifest(copy, lambda manifest: manifest.update(note="another"))
    other = published(copy)
    capsys.readouterr()
    assert publish_command.run([str(dataset), "--repo", NAME]) == 0
    said = capsys.readouterr().out
    assert f"the tag stands at {first.commit[:12]}, which holds the same data" in said
    there = repository(hub)
    assert there.tags == {manifest_tag(dataset): first.commit, manifest_tag(copy): other.commit}
    assert data_on(hub) == data_of(dataset)


def test_the_tag_of_other_files_is_not_moved(dataset: Path, hub: Hub) -> None:
    there = hub.create("dataset", NAME)
    there.tags[manifest_tag(dataset)] = first = there.branches["main"]
    there.commit("main", {}, "emptied")
    with pytest.raises(HubError, match=f"tag {manifest_tag(dataset)} stands at commit {first[:12]}, which holds other"):
        published(dataset)
    assert there.files() == {}


def test_somebody_elses_commit_in_between_is_not_written_over(dataset: Path, hub: Hub) -> None:
    there = hub.create("dataset", NAME)

    def meanwhile() -> None:
        there.commit("main", {"theirs.txt": there.add(b"theirs")}, "theirs")

    hub.fail("POST .*/commit/", meanwhile)
    with pytest.raises(HubError, match="somebody else has changed it in the meantime"):
        published(dataset)
    assert there.files() == {"theirs.txt": b"theirs"}
    assert there.tags == {}
    published(dataset)
    assert there.files()["theirs.txt"] == b"theirs"
    assert data_of(dataset).items() <= data_on(hub).items()


def test_another_branch(dataset: Path, hub: Hub) -> None:
    there = hub.create("dataset", NAME)
    main = there.branches["main"]
    outcome = published(dataset, revision="draft/one")
    assert there.branches == {"main": main, "draft/one": outcome.commit}
    assert data_on(hub, "draft/one") == data_of(dataset)
    for revision, words in (
        (manifest_tag(dataset), "a tag of user/kernels; give the name of a branch"),
        ("refs/pr/3", "none of that name"),
    ):
        with pytest.raises(HubError, match=words):
            published(dataset, revision=revision)
    with pytest.raises(OptionError, match="a commit cannot be changed"):
        published(dataset, revision=outcome.commit)


def test_private_is_never_public(dataset: Path, hub: Hub) -> None:
    published(dataset, private=True)
    assert repository(hub).private
    published(dataset)
    assert repository(hub).private, "what is private stays so"
    repository(hub).private = False
    with pytest.raises(HubError, match="public already"):
        published(dataset, private=True)


def test_large_files_in_parts(dataset: Path, hub: Hub) -> None:
    hub.multipart_from, hub.part_bytes = 3000, 1024
    published(dataset)
    assert data_on(hub) == data_of(dataset)
    assert any(request.endswith("/3") for request in hub.requests if request.startswith("PUT"))


def test_a_gitignore_of_the_repository_leaves_no_part_out(dataset: Path, hub: Hub) -> None:
    there = hub.create("dataset", NAME)
    there.commit("main", {".gitignore": there.add(b"*.parquet\n*.json\n")}, "ignore")
    published(dataset)
    assert {n: c for n, c in data_on(hub).items() if n != ".gitignore"} == data_of(dataset)


def test_a_build_that_is_writing_is_waited_for(copy: Path, hub: Hub) -> None:
    with FileLock(copy / ".cuset" / "lock"), pytest.raises(DatasetError, match="a build is writing there"):
        published(copy)
    assert hub.requests == []
    shutil.rmtree(copy / ".cuset")
    published(copy)
    assert not (copy / ".cuset").exists()


def test_a_dry_run_shows_everything_without_network(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (dataset / "notes.txt").write_text("mine")
    try:
        assert publish_command.run([str(dataset), "--repo", NAME, "--dry-run"]) == 0
    finally:
        (dataset / "notes.txt").unlink()
    said = capsys.readouterr().out
    for name, content in data_of(dataset).items():
        assert f"{len(content):,}  {name}\n" in said
    for name in (".cuset/", "refused/", "notes.txt"):
        assert f"not published  {name}\n" in said
    assert "README.md" in said
    assert "# CUDA answers, annotated token by token" in said
    assert said.endswith("no problems: this can be published\n")


def test_a_dry_run_lists_every_problem(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit_manifest(copy, lambda m: (m["counts"].update(accepted=9), m["regions"].update(found=7), m.update(sources=[])))
    with pytest.raises(DatasetError, match=r"\d problems forbid to publish it"):
        publish_command.run([str(copy), "--repo", NAME, "--dry-run"])
    problems = [line for line in capsys.readouterr().out.splitlines() if line.startswith("problem: ")]
    assert len(problems) >= 3
    with pytest.raises(DatasetError, match=r"cannot be published: .*\(\d more: --dry-run lists them\)"):
        publish(PublishConfig(copy, NAME))


def test_the_manifest_names_every_public_file(dataset: Path) -> None:
    listed = {entry["path"]: entry["bytes"] for entry in json.loads((dataset / "manifest.json").read_text())["files"]}
    assert listed == {n: len(c) for n, c in data_of(dataset).items() if n.endswith(".parquet")}
