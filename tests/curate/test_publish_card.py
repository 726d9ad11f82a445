"""The card of a published dataset: what the Hub and `datasets` read of it, and that the tables load as they were."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq
import pytest
import yaml
from conftest import pair
from hub_server import serving
from huggingface_hub import DatasetCard
from publish_helpers import NAME, build, environment, hub_for_this_process, run_python

from curate.publish import PublishConfig, prepare, publish
from curate.publishing.features import size_category
from curate.store import part_files

ROWS = [*(pair(n, license="MIT") for n in range(4)), {"prompt": "p", "response": "No code."}]
HOSTILE = "a|b<img src=x onerror=alert(1)>](javascript:1)---.jsonl"


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    """With every column that a build can make but `ref_logprob`, from the tiny model."""
    out = tmp_path_factory.mktemp("card") / "out"
    return build(model_folder, out, ROWS, stub=False, topk=3, entropy_top20=True)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    return build(model_folder, tmp_path_factory.mktemp("plain") / "out", ROWS, skip_scoring=True)


@pytest.fixture(scope="module")
def card(scored: Path) -> str:
    return prepare(PublishConfig(scored, NAME, language=("en",))).card


def head(card: str) -> dict[str, Any]:
    return dict(DatasetCard(card).data.to_dict())


def test_the_head_is_that_of_the_files(scored: Path, card: str) -> None:
    found = head(card)
    assert found["license"] == "mit"
    assert found["language"] == ["en", "code"]
    assert found["size_categories"] == ["n<1K"]
    assert [c["config_name"] for c in found["configs"] if c.get("default")] == ["samples"]
    infos = {info["config_name"]: info for info in found["dataset_info"]}
    assert infos.keys() == {c["config_name"] for c in found["configs"]} == {"samples", "regions", "rejected"}
    for table, info in infos.items():
        parts = part_files(scored / table)
        tables = [pq.read_table(part) for part in parts]
        assert datasets.Features._from_yaml_list(info["features"]) == datasets.Features.from_arrow_schema(
            tables[0].schema
        )
        (split,) = info["splits"]
        assert split == {
            "name": "train",
            "num_bytes": sum(t.nbytes for t in tables),
            "num_examples": sum(map(len, tables)),
        }
        assert info["download_size"] == sum(part.stat().st_size for part in parts)
    names = [feature["name"] for feature in infos["samples"]["features"]]
    assert {"topk_ids", "topk_logprob", "entropy_top20"} < set(names)


def test_other_files_make_another_head(plain: Path) -> None:
    found = head(prepare(PublishConfig(plain, NAME)).card)
    infos = {info["config_name"]: info for info in found["dataset_info"]}
    assert infos.keys() == {c["config_name"] for c in found["configs"]} == {"samples", "rejected"}
    assert not {"topk_ids", "entropy_top20"} & {feature["name"] for feature in infos["samples"]["features"]}
    assert found["language"] == ["code"]


def test_it_says_what_a_reader_needs(scored: Path, card: str) -> None:
    prepared = prepare(PublishConfig(scored, NAME))
    for title in (
        "Load",
        "Funnel",
        "Sources",
        "How it was made",
        "What the scores say",
        "Columns",
        "Codes",
        "Limits",
        "Citation",
    ):
        assert f"\n## {title}\n" in card
    assert f'datasets.load_dataset("{NAME}", revision="{prepared.tag}")' in card
    assert f"FROM 'hf://datasets/{NAME}@{prepared.tag}/samples/*.parquet'" in card
    assert f'polars.read_parquet("hf://datasets/{NAME}@{prepared.tag}/samples/*.parquet")' in card
    assert "FOLDER" not in card
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", card)
    assert pictures == ["figures/density.png", "figures/categories.png"]
    files = {file.name: file.content for file in prepared.files}
    for picture in pictures:
        content = files[picture]
        assert isinstance(content, bytes)
        assert content.startswith(b"\x89PNG")
        assert len(content) < 300_000
    manifest = json.loads((scored / "manifest.json").read_text())
    for known in (manifest["model"]["name"], manifest["tokenizer"]["sha256"], manifest["sources"][0]["sha256"]):
        assert known in card


def test_figures_are_drawn_while_builds_are_kept_away(scored: Path, tmp_path: Path) -> None:
    prepared, _ = publish(PublishConfig(scored, NAME, dry_run=True))
    assert prepared.problems == []
    assert {f.name for f in prepared.files} >= {"figures/density.png", "figures/categories.png"}


def test_figures_of_a_report_are_taken_as_they_are(scored: Path, tmp_path: Path) -> None:
    from curate.errors import OptionError

    for name in ("density", "categories"):
        (tmp_path / f"{name}.png").write_bytes(b"\x89PNG " + name.encode())
    files = {f.name: f.content for f in prepare(PublishConfig(scored, NAME, report=tmp_path)).files}
    assert files["figures/density.png"] == b"\x89PNG density"
    (tmp_path / "density.png").unlink()
    with pytest.raises(OptionError, match=r"--report .*density\.png; give the folder"):
        prepare(PublishConfig(scored, NAME, report=tmp_path))


def test_the_hub_finds_the_card_valid(scored: Path, plain: Path, card: str, tmp_path: Path) -> None:
    with hub_for_this_process(tmp_path):
        for text in (card, prepare(PublishConfig(plain, NAME)).card):
            DatasetCard(text).validate()
        with pytest.raises(ValueError, match="license"):
            DatasetCard(card.replace("license: mit", "license: nonsense")).validate()


def test_hostile_names_stay_text(model_folder: Path, tmp_path: Path) -> None:
    rows = [pair(0, license="MIT"), pair(1, license="LicenseRef-odd")]
    path = build(
        model_folder,
        tmp_path / HOSTILE.removesuffix(".jsonl"),
        rows,
        skip_scoring=True,
        allow_license=("MIT", "LicenseRef-odd"),
    )
    text = prepare(PublishConfig(path, NAME)).card
    for piece in ("<img", "](javascript", "a|b"):
        assert piece not in text
    assert text.count("\n---\n") == 1
    assert yaml.safe_load(text.split("\n---\n")[0])["license"] == ["mit", "other"]


@pytest.mark.parametrize(
    ("rows", "word"),
    [(0, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (99_999, "10K<n<100K"), (1_000_000, "1M<n<10M"), (10**12, "n>1T")],
)
def test_the_hubs_words_for_numbers(rows: int, word: str) -> None:
    assert size_category(rows) == word


LOAD = """
import json, sys
import datasets
from datasets.utils.logging import disable_progress_bar

disable_progress_bar()
folder, name, revision, *tables = sys.argv[1:]
for table in tables:
    here = datasets.load_dataset(folder, table)
    there = datasets.load_dataset(name, table, revision=revision)
    assert list(here) == list(there) == ["train"]
    here, there = here["train"], there["train"]
    assert here.features == there.features, table
    assert here.data.table.equals(there.data.table), table
    flow = datasets.load_dataset(name, table, revision=revision, streaming=True)["train"]
    assert flow.features == there.features, table
    rows = list(flow)
    assert rows == there.to_list(), table
    told = datasets.load_dataset_builder(name, table, revision=revision).info
    assert told.features == there.features and told.splits["train"].num_examples == len(rows)
    print(table, len(rows), len(there.features))
assert datasets.get_dataset_config_names(name, revision=revision) == tables
default = datasets.load_dataset(name, revision=revision)["train"]
assert default.column_names[0] == "sample_id"
"""


def test_folder_and_hub_load_alike_before_and_after_other_columns(scored: Path, plain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "one"
    with serving() as hub:
        env = environment(hub, tmp_path, HF_DATASETS_CACHE=str(tmp_path / "cache"))
        tags = []
        with hub_for_this_process(tmp_path) as own:
            own.repositories = hub.repositories  # one state, published here and read from there
            for path in (scored, plain):
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(path, folder)
                prepared, _ = publish(PublishConfig(folder, NAME))
                tags.append(prepared.tag)
                tables = [t for t in ("samples", "regions", "rejected") if t != "regions" or path == scored]
                said = run_python(LOAD, env, str(folder), NAME, "main", *tables)
                wide = [line.split()[2] for line in said.splitlines() if line.startswith("samples")]
                assert wide == ["53" if path == scored else "50"]
        said = run_python(LOAD, env, str(scored), NAME, tags[0], "samples", "regions", "rejected")
        assert said.startswith("samples 4 53")


def test_a_build_over_another_is_loaded_as_it_is(model_folder: Path, tmp_path: Path) -> None:
    """`datasets` must not give out the copy that it keeps of the one before, whose tables and columns are the same."""
    from datasets import load_dataset

    for n in range(2):
        rows = [pair(10 * n + k, license="MIT") for k in range(2)]
        path = build(model_folder, tmp_path / "out", rows, overwrite=True)
        loaded = load_dataset(str(path), "samples", cache_dir=str(tmp_path / "cache"))["train"]
        assert loaded["prompt"] == [row["prompt"] for row in rows]
