"""What the viewer puts into its file, and its command, without a browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from view_helpers import stored

from analysis import view
from analysis.dataset import Dataset
from curate.errors import DatasetError, OptionError
from curate.score import StubScorer

pytest_plugins = ["view_fixtures"]


def test_ids_choose_samples(dataset: Dataset) -> None:
    rows = stored(dataset)
    chosen = view.view_data(dataset, ["third", rows[0]["sample_id"][:8], "third"])["samples"]
    assert [s["source_id"] for s in chosen] == ["third", "first"]
    assert len(view.view_data(dataset, limit=2)["samples"]) == 2
    with pytest.raises(DatasetError, match="no sample 'nowhere'"):
        view.view_data(dataset, ["nowhere"])
    with pytest.raises(DatasetError, match="several samples begin with ''"):
        view.view_data(dataset, [""])


def test_a_tokenizer_spells_what_the_dataset_does_not_hold(dataset: Dataset, model_folder: Path) -> None:
    data = view.view_data(dataset, tokenizer=model_folder / "tokenizer.json")
    from tokenizers import Tokenizer

    backend = Tokenizer.from_file(str(model_folder / "tokenizer.json"))
    assert data["vocabulary"][5] == backend.decode([5])
    with pytest.raises(OptionError, match="cannot be read"):
        view.view_data(dataset, tokenizer=model_folder / "none.json")


def test_the_command_and_its_errors(
    dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str], build: Callable[..., Dataset]
) -> None:
    out = tmp_path / "new" / "view.html"
    assert view.run([str(dataset.path), "--out", str(out), "--limit", "1"]) == 0
    said = capsys.readouterr()
    assert said.out == f"{out}\n"
    assert said.err == "the first 1 of 3 samples; --limit N shows more\n"
    first = out.read_bytes()
    view.run([str(dataset.path), "--out", str(out), "--limit", "1"])
    assert out.read_bytes() == first
    with pytest.raises(DatasetError, match="no such folder"):
        view.run([str(tmp_path / "nothing")])
    with pytest.raises(OptionError, match="is a folder"):
        view.run([str(dataset.path), "--out", str(tmp_path)])
    with pytest.raises(OptionError, match="1 or more"):
        view.run([str(dataset.path), "--limit", "0"])
    empty = build("empty", StubScorer(), max_length=2)
    with pytest.raises(DatasetError, match="has no sample to show"):
        view.run([str(empty.path), "--out", str(out)])
