"""Datasets that cannot be trained on: one line that says what and what to do, before anything is trained."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import KERNEL, pair, train_tokenizer

from curate import reweigh
from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.errors import CusetError, DatasetError, ModelError, OptionError
from curate.store import read_manifest
from tests.train.annotated import EXTRA, Planted, annotate, planted
from train.inputs.dataset import open_annotated

LISTS = ("token_weight", "logprob", "category", "location", "in_code")
NAN = float("nan")


def good(n: int = 6) -> list[Planted]:
    return [Planted([4, 5, 2], sample_id=f"good {i}") for i in range(n)]


def message(path: Path | Sequence[Path], columns: Sequence[str] = LISTS, **options: Any) -> str:
    with pytest.raises(CusetError) as raised:
        open_annotated([path] if isinstance(path, Path) else path, columns, **options)
    said = str(raised.value)
    assert "\n" not in said
    assert len(said) < 500
    return said


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> Path:
    part = path / "samples" / "part-000000.parquet"
    pq.write_table(change(pq.read_table(part)), part)
    return path


BAD_SAMPLES = {
    "logprob one too few": (Planted([4, 5, 2], logprob=[-1, -1]), "another number of logprob values"),
    "logprob one too many": (Planted([4, 5, 2], logprob=[-1] * 4), "another number of logprob values"),
    "token_weight one too few": (Planted([4, 5, 2], token_weight=[1, 1]), "another number of token_weight values"),
    "category one too many": (Planted([4, 5, 2], category=[0] * 4), "another number of category values"),
    "in_code one too few": (Planted([4, 5, 2], in_code=[True] * 2), "another number of in_code values"),
    "NaN among the masks": (Planted([4, 5, 2], token_weight=[1, NAN, 1]), "value in token_weight that is none"),
    "NaN first among the masks": (Planted([4, 5, 2], token_weight=[NAN, 1, 1]), "value in token_weight that is none"),
    "negative mask": (Planted([4, 5, 2], token_weight=[1, 1, -1]), "value in token_weight that is none"),
    "infinite mask": (Planted([4, 5, 2], token_weight=[1, 1, float("inf")]), "value in token_weight that is none"),
    "NaN among the log-probabilities": (Planted([4, 5, 2], logprob=[-1, -1, NAN]), "value in logprob that is none"),
    "NaN as weight": (Planted([4, 5, 2], sample_weight=NAN), "sample_weight that is not between 0 and 1"),
    "weight above 1": (Planted([4, 5, 2], sample_weight=1.5), "sample_weight that is not between 0 and 1"),
    "no prompt": (Planted([4, 5, 2], prompt=[]), "has no token of prompt"),
    "no response": (Planted([]), "has no response token"),
    "negative id": (Planted([4, -5, 2]), "value in input_ids that is none"),
}  # fmt: skip


@pytest.mark.parametrize(("bad", "expected"), BAD_SAMPLES.values(), ids=BAD_SAMPLES.keys())
def test_a_bad_sample_is_named(tmp_path: Path, bad: Planted, expected: str) -> None:
    bad.sample_id = "the bad one"
    path = annotate(tmp_path / "data", [*good(), bad, *good(1)], part=4)
    said = message(path)
    assert expected in said
    assert f"{path}: sample the bad one" in said
    assert "build the dataset again" in said


def test_the_last_value_of_the_last_sample_is_looked_at(tmp_path: Path) -> None:
    path = annotate(tmp_path / "data", [*good(5), Planted([4, 2], token_weight=[1, NAN], sample_id="last")], part=2)
    assert "sample last" in message(path)


@pytest.mark.parametrize("column", ["category", "in_code", "logprob"])
def test_a_null_in_a_list_and_a_null_list(tmp_path: Path, column: str) -> None:
    def with_lists(change: Callable[[list[Any]], list[Any]]) -> Callable[[pa.Table], pa.Table]:
        def changed(table: pa.Table) -> pa.Table:
            at = table.column_names.index(column)
            return table.set_column(at, column, pa.array(change(table[column].to_pylist()), table.schema.types[at]))

        return changed

    value = with_lists(lambda lists: [lists[0], [lists[1][0], None, lists[1][2]], *lists[2:]])
    none = with_lists(lambda lists: [*lists[:-1], None])
    said = message(rewrite(annotate(tmp_path / "a", good()), value))
    assert f"sample good 1 holds a value in {column} that is none" in said
    said = message(rewrite(annotate(tmp_path / "b", good()), none))
    assert f"sample good 5 has another number of {column}" in said


def test_scored_by_another_tokenizer(tmp_path: Path, tokenizer: Any) -> None:
    path = annotate(tmp_path / "data", good(), tokenizer=tokenizer)
    assert len(open_annotated([path], LISTS, tokenizer=tokenizer).samples) == 6
    other = train_tokenizer((KERNEL, "other words"), vocabulary=300)
    said = message(path, tokenizer=other)
    assert "its token ids are those of the tokenizer of planted" in said
    assert "--model" in said


def test_a_tokenizer_that_cannot_be_compared(tmp_path: Path) -> None:
    class Slow:
        name_or_path = "slow"

    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        open_annotated([annotate(tmp_path / "data", good())], LISTS, tokenizer=Slow())


def test_more_tokens_than_the_model_embeds(tmp_path: Path) -> None:
    path = annotate(tmp_path / "data", [*good(), Planted([4, 99, 2])])
    assert len(open_annotated([path], LISTS, embeddings=100).samples) == 7
    with pytest.raises(ModelError, match="holds token id 99, but the model embeds 99"):
        open_annotated([path], LISTS, embeddings=99)


def test_an_unfinished_build(tmp_path: Path) -> None:
    path = annotate(tmp_path / "data", good())
    (path / "manifest.json").unlink()
    (path / ".cuset").mkdir()
    assert "run the same build again" in message(path)


def test_no_folder_no_dataset_another_format_a_damaged_manifest(tmp_path: Path) -> None:
    assert "no such folder" in message(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    assert "no manifest.json" in message(tmp_path / "empty")
    path = annotate(tmp_path / "data", good())
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | {"format_version": 0}))
    assert "format 0" in message(path)
    del manifest["tokenizer"]
    (path / "manifest.json").write_text(json.dumps(manifest))
    assert "damaged (no 'tokenizer')" in message(path)
    assert "no dataset" in message([])


def test_a_dataset_without_a_sample(tmp_path: Path) -> None:
    assert "holds no sample" in message(annotate(tmp_path / "data", []))


@pytest.mark.parametrize(("column", "option"), [("entropy_top20", "--entropy-top20"), ("ref_logprob", "--reference")])
def test_a_column_that_the_build_was_not_asked_for(tmp_path: Path, column: str, option: str) -> None:
    without = [name for name in EXTRA if name != column]
    path = annotate(tmp_path / "data", good(), extra=without)
    assert len(open_annotated([path], (*LISTS, *without)).samples) == 6
    said = message(path, (*LISTS, column))
    assert f"has no {column}" in said
    assert f"build it again with {option}" in said


def test_a_column_that_no_build_has(tmp_path: Path) -> None:
    path = annotate(tmp_path / "data", good())
    with pytest.raises(OptionError, match="no token list is named loss"):
        open_annotated([path], ["loss"])


@pytest.mark.parametrize("need_scores", [True, False])
def test_a_dataset_without_scores(tmp_path: Path, need_scores: bool) -> None:
    path = annotate(tmp_path / "data", good(), config=BuildConfig(skip_scoring=True))
    assert "built with --skip-scoring, so it has no logprob, token_weight" in message(path, need_scores=need_scores)
    if need_scores:
        assert "built with --skip-scoring, so it has no sample_weight" in message(path, ["category"])
    else:
        assert len(open_annotated([path], ["category"], need_scores=False).samples) == 6


def test_a_missing_column_and_one_of_another_type(tmp_path: Path) -> None:
    path = rewrite(annotate(tmp_path / "a", good()), lambda table: table.drop_columns("location"))
    assert "column location is missing" in message(path)

    def wider(table: pa.Table) -> pa.Table:
        at = table.column_names.index("token_weight")
        return table.set_column(at, "token_weight", table["token_weight"].cast(pa.list_(pa.float64())))

    assert "column token_weight holds list<" in message(rewrite(annotate(tmp_path / "b", good()), wider))


def test_a_part_that_is_missing_or_too_much(tmp_path: Path) -> None:
    path = annotate(tmp_path / "data", good(), part=3)
    shutil.copy(path / "samples" / "part-000001.parquet", path / "samples" / "part-000002.parquet")
    assert "samples/ holds 9 samples, by the manifest it should be 6" in message(path)
    for n in (1, 2):
        (path / "samples" / f"part-00000{n}.parquet").unlink()
    assert "samples/ holds 3 samples" in message(path)
    shutil.rmtree(path / "samples")
    assert "samples/ holds 0 samples" in message(path)


def test_a_cut_file_and_one_that_is_no_parquet(tmp_path: Path) -> None:
    path = annotate(tmp_path / "data", good())
    part = path / "samples" / "part-000000.parquet"
    whole = part.read_bytes()
    for content in (whole[: len(whole) // 2], b"no parquet", b""):
        part.write_bytes(content)
        said = message(path)
        assert f"{part}: cannot be read" in said
        assert "build the dataset again" in said


def test_a_file_that_is_damaged_inside(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = annotate(tmp_path / "data", planted(30))
    part = path / "samples" / "part-000000.parquet"
    file = pq.ParquetFile(part)
    at = next(c for c in range(file.metadata.num_columns) if file.schema.column(c).path.startswith("input_ids"))
    column = file.metadata.row_group(0).column(at)
    file.close()
    start, content = column.data_page_offset, bytearray(part.read_bytes())
    content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    part.write_bytes(content)
    said = message(path)
    assert "samples/ cannot be read" in said
    assert "build the dataset again" in said
    assert capfd.readouterr() == ("", "")


def test_masks_of_several_datasets_must_be_of_one_kind(tmp_path: Path) -> None:
    paths = [annotate(tmp_path / "a", good()), annotate(tmp_path / "b", good(), config=BuildConfig(tau=0.3))]
    said = message(paths)
    assert "weighed with tau 0.3" in said
    assert f"python -m curate.reweigh {paths[1]} --tau 0.1" in said


def test_token_ids_of_several_datasets_must_be_of_one_tokenizer(tmp_path: Path, tokenizer: Any) -> None:
    a, b = annotate(tmp_path / "a", planted(3), tokenizer=tokenizer), annotate(tmp_path / "b", planted(3))
    with pytest.raises(DatasetError, match="those of another tokenizer"):
        open_annotated([a, b], [])


@pytest.mark.parametrize(
    "change",
    [{"regions": "x"}, {"regions": {"neutral_mean": "x", "neutral_tokens": 1}}, {"regions": {"neutral_mean": 0.5}},
     {"config": {"skip_scoring": False}}, {"config": []}],
)  # fmt: skip
def test_a_manifest_with_values_that_are_none(tmp_path: Path, change: dict[str, Any]) -> None:
    path = annotate(tmp_path / "data", planted(3))
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | change))
    with pytest.raises(DatasetError, match=r"manifest\.json: damaged \((no '|values of another type)"):
        open_annotated([path], [])


@pytest.mark.parametrize("name", ["a b", "a[b]c", "a*b?", ".hidden", "ünï→", "c#d%20", "{x}", "e,f'g\""])
def test_a_path_of_any_characters(tmp_path: Path, name: str) -> None:
    path = annotate(tmp_path / name, good())
    assert open_annotated([path], LISTS).samples["sample_id"][:] == [f"good {n}" for n in range(6)]


def test_a_path_that_datasets_would_misread(tmp_path: Path) -> None:
    assert "rename the folder" in message(annotate(tmp_path / "a::b", good()))


def test_the_samples_are_mapped_from_the_cache_with_the_columns_asked_for(tmp_path: Path) -> None:
    path = annotate(tmp_path / "data", good(), part=4)
    samples = open_annotated([path], ["category"]).samples
    assert set(samples.column_names) == {"sample_id", "input_ids", "prompt_tokens", "sample_weight", "category"}
    assert samples.cache_files
    assert samples.cache_files[0]["filename"].startswith(str(datasets.config.HF_DATASETS_CACHE))


def test_what_a_build_writes_opens_and_follows_a_reweighing(
    tmp_path: Path, model_folder: Path, tokenizer: Any, write_rows: Callable[..., Path]
) -> None:
    rows = write_rows([pair(n) for n in range(5)])
    config = BuildConfig(
        source=(str(rows),), model=str(model_folder), jobs=1, entropy_top20=True, out=tmp_path / "out"
    )  # fmt: skip
    build_dataset(config)
    loaded = _tokenizer_of(model_folder)
    columns = (*LISTS, "entropy_top20", "entropy", "rank", "statement", "index_distance", "char_start", "char_end")
    opened = open_annotated([tmp_path / "out"], columns, tokenizer=loaded, embeddings=len(loaded))
    assert len(opened.samples) == read_manifest(tmp_path / "out")["counts"]["accepted"] == 5
    assert "another" in message(tmp_path / "out", tokenizer=train_tokenizer(vocabulary=300))
    assert reweigh.run([str(tmp_path / "out"), "--lambda", "7"]) == 0
    weights = open_annotated([tmp_path / "out"], columns).samples.with_format("numpy")["token_weight"]
    assert max(np.max(w) for w in weights) >= 7


def _tokenizer_of(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "file" / "cache"))
    assert f"{tmp_path / 'file' / 'cache'} (HF_DATASETS_CACHE)" in message(annotate(tmp_path / "data", good()))
