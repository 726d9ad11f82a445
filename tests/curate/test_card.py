"""The dataset card: what the Hub and `datasets` read of it, what it says, and that hostile text stays text."""

from __future__ import annotations

import copy
import html
import json
import re
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from conftest import pair
from huggingface_hub import DatasetCard
from hypothesis import given
from hypothesis import strategies as st

from curate.card import escape_markdown, render_card
from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.schema import TABLES
from curate.score import StubScorer
from curate.taxonomy import CATEGORIES, LOCATIONS

HOSTILE = "a|b<img src=x onerror=alert(1)>\n---\n# h\n[x](javascript:1) `c` **b** www.evil.example http://e.example &amp; {{ 7*7 }}"


def build(model: Path, out: Path, rows: list[Any], name: str = "rows.jsonl", **more: Any) -> dict[str, Any]:
    source = out.parent / name
    source.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
    settings = BuildConfig(source=(str(source),), out=out, model=str(model), jobs=1, **more)
    return build_dataset(settings, None if more.get("skip_scoring") else StubScorer())


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    out = tmp_path_factory.mktemp("card") / "out"
    licenses = ["CC0-1.0", "CC0-1.0", "MIT", "LicenseRef-odd", HOSTILE]
    build(
        model_folder,
        out,
        [*(pair(n, license=x) for n, x in enumerate(licenses)), "{", pair(0)],
        "a|b<img src=x>---.jsonl",
        allow_license=("CC0-1.0", "MIT", "LicenseRef-odd"),
    )
    return out


def manifest_of(dataset: Path) -> dict[str, Any]:
    return dict(json.loads((dataset / "manifest.json").read_text()))


def test_the_hub_reads_its_head(dataset: Path) -> None:
    card = DatasetCard.load(dataset / "README.md")
    head = card.data.to_dict()
    assert head["license"] == ["cc0-1.0", "mit", "other", "unknown"]
    assert head["pretty_name"] == "CUDA answers, annotated token by token"
    assert "cuda" in head["tags"]
    assert [(c["config_name"], c["data_files"], c.get("default", False)) for c in head["configs"]] == [
        ("samples", "samples/*.parquet", True),
        ("regions", "regions/*.parquet", False),
        ("rejected", "rejected/*.parquet", False),
    ]


def test_datasets_loads_every_table(dataset: Path, tmp_path: Path) -> None:
    import datasets

    for table, column in (("samples", "sample_id"), ("regions", "region_id"), ("rejected", "id")):
        (split,) = datasets.load_dataset(str(dataset), table, cache_dir=str(tmp_path)).values()
        assert len(split) > 0
        assert split[column] == pl.read_parquet(dataset / table / "*.parquet")[column].to_list()


def test_the_lines_that_it_gives_work(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own code out of our own template, run as a reader would."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    ours = {**_MANIFEST, "regions": {**_MANIFEST["regions"], "found": 1}}  # no text of a corpus is in what is run
    snippets = re.findall(r"```python\n(.*?)```", render_card(ours), re.DOTALL)
    assert [s.split()[1] for s in snippets] == ["datasets", "duckdb", "polars"]
    for snippet in snippets:
        assert len(snippet.splitlines()) <= 4
        names: dict[str, Any] = {}
        exec(snippet.replace("FOLDER", str(dataset)), names)
        rows = names["samples"]
        count = (
            len(rows["train"]) if "datasets" in snippet else len(rows.fetchall()) if "duckdb" in snippet else len(rows)
        )
        assert count == 5
    assert duckdb.sql(f"select count(*) from '{dataset}/regions/*.parquet'").fetchall()[0][0] > 0


def test_it_says_every_column_code_count_and_version(dataset: Path) -> None:
    text, manifest = (dataset / "README.md").read_text(), manifest_of(dataset)
    for table, columns in TABLES.items():
        section = text.split(f"### {table}\n")[1].split("\n#")[0]
        for column in columns:
            assert f"| `{column.name}` | `{column.type}` | {column.meaning} |" in section
    for n, name in [*enumerate(CATEGORIES), *enumerate(LOCATIONS)]:
        assert f"| {n} | {name} |" in text
    for name, version in manifest["versions"].items():
        assert f"{name} {version}" in text
    for known in (manifest["tokenizer"]["sha256"], manifest["sources"][0]["sha256"], manifest["model"]["name"]):
        assert known in text
    assert "| read | broken_json | -1 | 6 |\n| duplicates | exact_duplicate | -1 | 5 |\n| accepted | | | 5 |" in text
    assert "5 accepted, 2 refused" in text
    assert "CC0-1.0 (2), not known (1), LicenseRef-odd (1), MIT (1)" in text
    assert "region_gap 2" in text
    assert f"{manifest['regions']['neutral_mean']:.4f}" in text


def test_hostile_names_and_licences_stay_text(dataset: Path) -> None:
    text = (dataset / "README.md").read_text()
    assert "<img" not in text
    assert "](" not in text
    assert "javascript:" not in text
    assert text.count("\n---\n") == 1  # the end of the head
    assert "a|b" not in text
    assert html.escape("a|b<img") not in text
    shown = html.unescape(text)
    assert "Source a|b<img src=x>---.jsonl (jsonl" in shown
    assert "onerror" not in shown  # what names no licence is not known
    assert set(manifest_of(dataset)["rows"]) == {"a|b<img src=x>---.jsonl"}


@given(st.text(max_size=300))
def test_escaped_text_is_one_line_without_markup(text: str) -> None:
    escaped = escape_markdown(text)
    rest = re.sub(r"&#\d+;", "", escaped)
    assert not set(rest) & set("\\`*[]{}<>#|~&$@:\n\r\t\u202e\x00")
    assert escaped.splitlines() in ([escaped], [])
    assert not re.search(r"(?i)www\.", rest)
    expected = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    assert html.unescape(escaped) == (expected if len(expected) <= 120 else expected[:120] + "…")


_HOSTILE_TEXT = st.one_of(st.text(max_size=80), st.sampled_from([HOSTILE, "---", "'\"\n: - !!python/object:x", "]]>"]))


@given(_HOSTILE_TEXT, st.one_of(st.none(), _HOSTILE_TEXT), _HOSTILE_TEXT)
def test_any_text_leaves_the_structure_of_the_card_as_it_is(name: str, license: str | None, model: str) -> None:
    plain = render_card(_MANIFEST)
    manifest = copy.deepcopy(_MANIFEST)
    manifest["sources"][0]["name"] = name
    manifest["rows"] = {name: {"accepted": 3, "refused": 1, "licenses": [{"license": license, "rows": 3}]}}
    manifest["model"]["name"] = manifest["config"]["map"] = model
    card = render_card(manifest)
    assert card.count("\n") == plain.count("\n")
    for marker in ("|", "<", "](", "`", "\n#"):
        assert card.count(marker) == plain.count(marker), marker
    head = DatasetCard(card).data.to_dict()
    assert set(head) == set(DatasetCard(plain).data.to_dict())
    assert isinstance(head["license"], str)


_MANIFEST: dict[str, Any] = {
    "config": {"context": "chat", "map": "x", "region_gap": 2},
    "versions": {"cuset": "0.1.0"},
    "sources": [{"name": "rows.jsonl", "kind": "jsonl", "bytes": 1, "sha256": "00"}],
    "model": {"name": "m", "revision": None, "sha256": "00"},
    "tokenizer": {"sha256": "00", "template_sha256": "00", "template": "plain"},
    "counts": {"read": 4, "accepted": 3, "rejected": 1, "failed": 0, "refused": {"parse": {"no_cuda": 1}}},
    "rows": {"rows.jsonl": {"accepted": 3, "refused": 1, "licenses": [{"license": "MIT", "rows": 3}]}},
    "regions": {"neutral_mean": None, "neutral_tokens": 0, "found": 0, "failed": 0},
    "categories": list(CATEGORIES),
    "locations": list(LOCATIONS),
    "findings": None,
    "files": [],
}


def test_many_licences_are_cut_and_tables_without_rows_left_out() -> None:
    manifest = copy.deepcopy(_MANIFEST)
    manifest["rows"]["rows.jsonl"]["licenses"] = [{"license": f"L-{n}", "rows": 1} for n in range(40)]
    card = render_card(manifest)
    assert "L-11 (1), and 28 more" in card
    assert "L-12" not in card
    head = DatasetCard(card).data.to_dict()
    assert [c["config_name"] for c in head["configs"]] == ["samples", "rejected"]
    assert head["license"] == "other"


def test_without_scores_and_without_rows(tmp_path: Path, model_folder: Path) -> None:
    (tmp_path / "a").mkdir()
    build(model_folder, tmp_path / "a" / "out", [pair(1)], skip_scoring=True)
    text = (tmp_path / "a" / "out" / "README.md").read_text()
    assert "no model has scored them" in text
    assert [c["config_name"] for c in DatasetCard(text).data.to_dict()["configs"]] == ["samples"]
    (tmp_path / "b").mkdir()
    build(model_folder, tmp_path / "b" / "out", [{"prompt": "p", "response": "No code."}])
    assert [
        c["config_name"] for c in DatasetCard.load(tmp_path / "b" / "out" / "README.md").data.to_dict()["configs"]
    ] == ["rejected"]
