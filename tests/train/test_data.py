"""Annotated samples as batches: the one shift, truncation, packing, the held-out split."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from curate.config import BuildConfig
from curate.errors import DatasetError, OptionError
from tests.train.annotated import Planted, annotate, planted
from train.data import Sample, SampleSet, collate, pack
from train.inputs.portions import DataConfig, hold_out, open_data

LISTS = ("token_weight", "logprob", "category", "location", "in_code", "entropy_top20", "ref_logprob")
END = 2


def opened(path: Path, columns: tuple[str, ...] = LISTS, **options: Any) -> SampleSet:
    return open_data(DataConfig((path,), **{"held_out": 0.0, **options}), columns).train


def batches_by_sample(data: SampleSet) -> dict[str, dict[str, Any]]:
    """What a batch holds of each sample, one row of the set to a batch."""
    found: dict[str, dict[str, Any]] = {}
    for number in range(len(data)):
        batch = collate([data[number]])
        starts = [*torch.nonzero(batch["position_ids"][0] == 0).flatten().tolist(), batch["input_ids"].shape[1]]
        for i, sample_id in enumerate(batch["sample_ids"]):
            mine, here = batch["sample_index"] == i, slice(starts[i], starts[i + 1])
            found[sample_id] = {
                "input_ids": batch["input_ids"][0, here], "position_ids": batch["position_ids"][0, here],
                "logit_index": batch["logit_index"][mine] - starts[i], "targets": batch["targets"][mine],
                "weight": batch["sample_weight"][i], **{name: batch[name][mine] for name in data.columns},
            }  # fmt: skip
    return found


def assert_equal(one: dict[str, dict[str, Any]], other: dict[str, dict[str, Any]]) -> None:
    assert one.keys() == other.keys()
    for sample_id, values in one.items():
        for name, value in values.items():
            assert torch.equal(value, other[sample_id][name]), (sample_id, name)


def test_a_batch_is_one_row_with_the_shift_made_once(tmp_path: Path) -> None:
    samples = [
        Planted([10, 11, END], prompt=[5, 6], logprob=[-0.5, -3.0, -0.25], category=[0, 3, 0], location=[0, 1, 3],
                in_code=[False, True, True], sample_weight=0.75, entropy_top20=[0.5, 1.5, 0.0], ref_logprob=[-1.0, -2.0, -4.0]),
        Planted([20, END], prompt=[7], sample_weight=0.25),
    ]  # fmt: skip
    data = opened(annotate(tmp_path / "data", samples))
    batch = collate([data[0], data[1]])
    assert batch["input_ids"].tolist() == [[5, 6, 10, 11, END, 7, 20, END]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 4, 0, 1, 2]]
    # the last token of the prompt predicts the first of the response, and the last but one the end of the turn
    assert batch["logit_index"].tolist() == [1, 2, 3, 5, 6]
    assert batch["targets"].tolist() == [10, 11, END, 20, END]
    assert batch["sample_index"].tolist() == [0, 0, 0, 1, 1]
    assert batch["sample_weight"].tolist() == [0.75, 0.25]
    assert batch["token_weight"].tolist() == [1, 1, 2, 1, 1]  # e^-3 lies below tau = 0.1; lambda is 1
    assert batch["logprob"].tolist() == [-0.5, -3.0, -0.25, *[float(np.float16(np.log(0.5)))] * 2]
    assert batch["category"].tolist() == [0, 3, 0, 0, 0]
    assert batch["location"].tolist() == [0, 1, 3, 0, 0]
    assert batch["in_code"].tolist() == [False, True, True, True, True]
    assert batch["entropy_top20"].tolist() == [0.5, 1.5, 0.0, 1.0, 1.0]
    assert batch["ref_logprob"].tolist() == [-1, -2, -4, -1, -1]
    assert len(set(batch["sample_ids"])) == 2
    assert {name: batch[name].dtype for name in LISTS} == {
        "token_weight": torch.float32, "logprob": torch.float32, "category": torch.uint8, "location": torch.uint8,
        "in_code": torch.bool, "entropy_top20": torch.float32, "ref_logprob": torch.float32,
    }  # fmt: skip


def test_targets_are_the_tokens_after_their_logits(tmp_path: Path) -> None:
    data = opened(annotate(tmp_path / "data", planted(30)))
    batch = collate([data[n] for n in range(30)])
    ids, at = batch["input_ids"][0], batch["logit_index"]
    assert torch.equal(batch["targets"], ids[at + 1])
    assert torch.equal(batch["position_ids"][0, at + 1], batch["position_ids"][0, at] + 1)  # of the same sample
    assert len(batch["targets"]) == data.supervised_tokens
    assert len(ids) == data.tokens


def test_every_list_is_cut_at_the_same_token(tmp_path: Path) -> None:
    path = annotate(tmp_path / "data", planted(40, prompt=(2, 6), response=(4, 24)))
    whole, cut = batches_by_sample(opened(path)), batches_by_sample(opened(path, max_length=10))
    assert whole.keys() == cut.keys()
    for sample_id, its in cut.items():
        full, kept = whole[sample_id], len(its["targets"])
        prompt = len(full["input_ids"]) - len(full["targets"])
        assert len(its["input_ids"]) == min(10, len(full["input_ids"])) == prompt + kept
        assert torch.equal(its["input_ids"], full["input_ids"][: prompt + kept])
        for name in ("targets", "logit_index", *LISTS):
            assert torch.equal(its[name], full[name][:kept]), name
        assert its["weight"] == full["weight"]


def test_samples_without_a_response_left_are_dropped_counted_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    samples = [
        Planted([4, 5, END], prompt=range(3, 11), sample_id="prompt-of-8"),
        Planted([4, 5, END], prompt=range(3, 10), sample_id="prompt-of-7"),
        Planted([4, 5, END], prompt=range(3, 8), sample_id="whole"),
    ]
    with caplog.at_level(logging.WARNING):
        data = open_data(DataConfig((annotate(tmp_path / "data", samples),), max_length=8, held_out=0), LISTS)
    assert data.dropped == ("prompt-of-8",)
    assert data.truncated == 1
    assert "dropped 1 of 3 samples" in caplog.text
    assert "prompt-of-8" in caplog.text
    assert "cut 1 of 3 samples" in caplog.text
    kept = batches_by_sample(data.train)
    assert kept["prompt-of-7"]["targets"].tolist() == [4]
    assert kept["whole"]["targets"].tolist() == [4, 5, END]
    assert kept.keys() == {"prompt-of-7", "whole"}


def test_all_samples_longer_than_the_limit(tmp_path: Path) -> None:
    path = annotate(tmp_path / "data", [Planted([4, END], prompt=range(3, 3 + n)) for n in (9, 12)])
    with pytest.raises(DatasetError, match=r"--max-length 8: no sample is left to train on.* give 10 or more"):
        opened(path, max_length=8)


def test_held_out_samples_that_the_limit_takes_all_away(tmp_path: Path) -> None:
    samples = [Planted([4, END], prompt=range(3, 3 + n), sample_id=f"prompt-of-{n}") for n in (2, 9)]
    path = annotate(tmp_path / "data", samples)
    seed = next(s for s in range(100) if hold_out(["prompt-of-2", "prompt-of-9"], 0.5, s).tolist() == [False, True])
    with pytest.raises(DatasetError, match="no sample is left to evaluate on"):
        opened(path, max_length=8, held_out=0.5, split_seed=seed)


@pytest.mark.parametrize("options", [{"max_length": 1}, {"max_length": 2**63}, {"held_out": 1.0}, {"held_out": -0.1}])
def test_values_that_cannot_work(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="--"):
        DataConfig((Path("data"),), **options)


def test_packed_rows_hold_what_separate_rows_hold(tmp_path: Path) -> None:
    path = annotate(tmp_path / "data", planted(60, seed=3))
    packed = opened(path, max_length=40, packing=True)
    assert len(packed) < 60 / 1.5
    assert max(len(packed[n]) for n in range(len(packed))) > 1
    assert max(collate([packed[n]])["input_ids"].shape[1] for n in range(len(packed))) <= 40
    assert_equal(batches_by_sample(packed), batches_by_sample(opened(path, max_length=40)))


def test_positions_start_again_in_every_packed_sample(tmp_path: Path) -> None:
    data = opened(annotate(tmp_path / "data", planted(60, seed=3)), max_length=100, packing=True)
    row = data[0]
    expected = [n for sample in row for n in range(len(sample.input_ids))]
    assert len(row) > 1
    assert collate([row])["position_ids"].tolist() == [expected]
    assert "attention_mask" not in collate([row])


def naive_first_fit(lengths: list[int], capacity: int) -> list[list[int]]:
    bins: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lambda n: -lengths[n]):
        for chosen in bins:
            if sum(lengths[n] for n in chosen) + lengths[number] <= capacity:
                chosen.append(number)
                break
        else:
            bins.append([number])
    return [sorted(chosen) for chosen in bins]


@given(st.lists(st.integers(1, 32), max_size=60))
def test_packing_is_first_fit_decreasing(lengths: list[int]) -> None:
    assert pack(np.array(lengths, dtype=np.int64), 32) == naive_first_fit(lengths, 32)


def test_packing_a_hundred_thousand_samples_fills_the_bins() -> None:
    lengths = np.random.default_rng(0).integers(10, 900, 100_000)
    bins = pack(lengths, 4096)
    assert sorted(n for chosen in bins for n in chosen) == list(range(100_000))
    assert len(bins) <= 1.01 * lengths.sum() / 4096


def test_the_held_out_split_depends_on_ids_and_seed_alone() -> None:
    ids = [f"sample {n}" for n in range(200)]
    held = dict(zip(ids, hold_out(ids, 0.1, 0), strict=True))
    assert sum(held.values()) == 20
    backwards = hold_out(ids[::-1], 0.1, 0)
    assert [held[i] for i in ids[::-1]] == backwards.tolist()
    assert held != dict(zip(ids, hold_out(ids, 0.1, 1), strict=True))
    assert hold_out(ids, 0, 0).sum() == 0
    assert hold_out(ids, 0.001, 0).sum() == 1
    # a larger share holds out the same samples and more; a sample that comes twice is on one side
    assert all(hold_out(ids, 0.3, 0)[[held[i] for i in ids]])
    twice = hold_out([*ids, *ids], 0.1, 0)
    assert twice[:200].tolist() == twice[200:].tolist() == list(held.values())


def test_no_sample_is_both_trained_and_held_out_whatever_the_limit(tmp_path: Path) -> None:
    path = annotate(tmp_path / "data", planted(50))
    sides = []
    for max_length in (8, 4096):
        data = open_data(DataConfig((path,), max_length=max_length, held_out=0.2), ())
        assert data.held_out is not None
        train, held = (set(batches_by_sample(s)) for s in (data.train, data.held_out))
        assert not train & held
        assert len(train) + len(held) + len(data.dropped) == 50
        sides.append(held)
    assert len(sides[1]) == 10
    assert sides[0] <= sides[1]


def test_a_share_that_leaves_nothing_to_train_on(tmp_path: Path) -> None:
    path = annotate(tmp_path / "data", planted(1))
    with pytest.raises(DatasetError, match=r"--held-out 0\.5: leaves none of 1 samples"):
        opened(path, held_out=0.5)


def test_several_datasets_come_one_after_another(tmp_path: Path) -> None:
    parts = [planted(5, seed=1), planted(7, seed=2)]
    for n, sample in enumerate(parts[1]):
        sample.sample_id = f"second {n}"
    paths = tuple(annotate(tmp_path / str(n), samples) for n, samples in enumerate(parts))
    both = open_data(DataConfig(paths, held_out=0), LISTS).train
    assert both.samples == 12
    assert_equal(batches_by_sample(both), batches_by_sample(opened(paths[0])) | batches_by_sample(opened(paths[1])))


def test_samples_survive_the_way_to_another_process(tmp_path: Path) -> None:
    data = opened(annotate(tmp_path / "data", planted(9, seed=4), part=4))
    copy = pickle.loads(pickle.dumps(data))
    assert_equal(batches_by_sample(copy), batches_by_sample(data))


def test_the_mean_weight_is_that_of_the_samples_trained_on(tmp_path: Path) -> None:
    samples = [Planted([4, END], prompt=[3] * n, sample_weight=w) for n, w in ((1, 0.25), (1, 0.75), (9, 1.0))]
    data = opened(annotate(tmp_path / "data", samples), max_length=8)
    assert data.mean_sample_weight == 0.5


def test_without_scores_every_sample_weighs_one(tmp_path: Path) -> None:
    path = annotate(tmp_path / "data", planted(4), config=BuildConfig(skip_scoring=True))
    data = open_data(DataConfig((path,), held_out=0), ["category"], need_scores=False).train
    assert collate([data[n] for n in range(4)])["sample_weight"].tolist() == [1, 1, 1, 1]


def test_the_loader_of_torch_gives_these_batches(tmp_path: Path) -> None:
    data = opened(annotate(tmp_path / "data", planted(6)))
    loader: Any = torch.utils.data.DataLoader(data, batch_size=4, collate_fn=collate)
    found = list(loader)
    assert [len(batch["sample_ids"]) for batch in found] == [4, 2]
    first: list[list[Sample]] = [data[n] for n in range(4)]
    assert torch.equal(found[0]["targets"], collate(first)["targets"])
