"""The Trainer: one denominator for the whole step, no leak between packed samples, figures by class of token, resuming
to the bit, and a stop before a number that is none reaches the parameters."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from curate.errors import OptionError, TrainingError
from tests.train.annotated import Planted, annotate, planted
from tests.train.runs import assert_close, options, trainer_of
from train.data import EpochSampler, blank_batch, collate
from train.inputs.run import fresh_model, open_inputs
from train.objectives import make_objective
from train.reports.metrics import CLASSES, HeldOut, class_sums
from train.reports.reporting_trainer import LogLines

SAMPLES = 8
OBJECTIVES: list[dict[str, Any]] = [
    {"objective": name} for name in ("sft", "dft", "eaft", "asft", "profit", "bft", "cuset")
]
OBJECTIVES.append({"objective": "cuset", "confidence": "online"})
NORMALISATIONS = (None, "tokens", "weights", "samples", "sample_mean")


@pytest.fixture(scope="module")
def ragged(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    """Eight samples of 3 to 40 supervised tokens."""
    return annotate(
        tmp_path_factory.mktemp("ragged") / "data", planted(SAMPLES, seed=3, response=(3, 40)), tokenizer=tokenizer
    )


@pytest.fixture(scope="module")
def whole_step(ragged: Path, model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A trainer of one step of all samples, and its inputs, for any objective."""
    objectives = [options(ragged, model_folder, **chosen) for chosen in OBJECTIVES]
    inputs = open_inputs(dataclasses.replace(objectives[0], tuning="lora"), objectives)  # which asft needs
    return trainer_of(objectives[0], tmp_path_factory.mktemp("out"), inputs), inputs


def _defined(config: Any) -> bool:
    try:
        make_objective(config, 0.5)
    except OptionError as error:
        if "--normalize weights: the weights of" not in str(error):  # refused, with a reason
            raise
        return False
    return True


def _step(trainer: Any, model: Any, micro_batches: int) -> dict[str, torch.Tensor]:
    """The gradient of a step over all samples in so many micro-batches."""
    size = SAMPLES // micro_batches
    batches = [
        collate([trainer.train_dataset[n] for n in range(start, start + size)]) for start in range(0, SAMPLES, size)
    ]
    taken, denominator = trainer.get_batch_samples(iter(batches), micro_batches, torch.device("cpu"))
    trainer.current_gradient_accumulation_steps = len(taken)
    model.zero_grad()
    for batch in taken:
        trainer.training_step(model, batch, denominator)
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("chosen", OBJECTIVES, ids=lambda c: "-".join(c.values()))
def test_a_mean_for_each_micro_batch(
    chosen: dict[str, Any], whole_step: Any, ragged: Path, model_folder: Path, tmp_path: Path
) -> None:
    trainer, inputs = whole_step
    tuning = "lora" if chosen["objective"] == "asft" else "full"
    configs = [options(ragged, model_folder, **chosen, normalize=n, tuning=tuning) for n in NORMALISATIONS]
    defined = [config for config in configs if _defined(config)]
    assert len(defined) >= 4  # all but `weights`, where the model decides them
    for config in defined:
        trainer.objective = inputs.objective(config)
        model = fresh_model(inputs, config, trainer.objective)
        whole = _step(trainer, model, 1)
        for micro_batches in (2, 4, 8):
            assert_close(_step(trainer, model, micro_batches), whole)


def test_the_last_step_of_an_epoch_has_fewer_micro_batches(ragged: Path, model_folder: Path, tmp_path: Path) -> None:
    """Accumulation 3 on 8 samples: the last step has 2; its gradient must not shrink to 2 / 3."""
    config = options(ragged, model_folder, accumulation=3, learning_rate=0.0)
    trainer = trainer_of(config, tmp_path)
    norms = _gradients_of_steps(trainer)
    assert len(norms) == 3
    order = list(EpochSampler(range(SAMPLES), 1, seed=0))[6:]
    batch = collate([trainer.train_dataset[n] for n in order])
    assert norms[-1] == pytest.approx(_plain_gradient_norm(trainer, batch), rel=1e-4)


def _gradients_of_steps(trainer: Any) -> list[float]:
    from transformers import TrainerCallback

    norms: list[float] = []

    class Note(TrainerCallback):
        def on_pre_optimizer_step(self, *_: Any, model: Any = None, **__: Any) -> None:
            norms.append(math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters())))

    trainer.add_callback(Note())
    trainer.train()
    return norms


def _plain_gradient_norm(trainer: Any, batch: dict[str, Any]) -> float:
    model = trainer.model
    model.zero_grad()
    ids = batch.pop("sample_ids")
    (model(**batch)["loss"] / len(batch["targets"])).backward()
    batch["sample_ids"] = ids
    return math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters()))


def test_packed_samples_see_each_other(ragged: Path, model_folder: Path) -> None:
    config = options(ragged, model_folder, objective="cuset")
    inputs = open_inputs(config)
    model = fresh_model(inputs, config, inputs.objective(config))
    rows = [inputs.data.train[n] for n in range(4)]
    nll, gradients = [], []
    for batches in ([collate(rows)], [collate([row]) for row in rows]):
        model.zero_grad()
        found = []
        for batch in batches:
            batch.pop("sample_ids")
            outputs = model(**batch)
            outputs["loss"].backward()
            found.append(outputs["nll"])
        nll.append(torch.cat(found))
        gradients.append({n: p.grad.clone() for n, p in model.named_parameters()})
    torch.testing.assert_close(nll[0], nll[1], rtol=1e-5, atol=1e-5)
    assert_close(gradients[0], gradients[1])


def test_the_end_of_the_turn_is_not_supervised(model_folder: Path, tokenizer: Any, tmp_path: Path) -> None:
    """A sample whose end-of-turn token alone has a weight: the loss is that token's, and it falls."""
    sample = Planted(response=[10, 11, 12, 2], logprob=np.log([0.01, 0.01, 0.01, 0.9]).tolist())
    data = annotate(tmp_path / "data", [sample], tokenizer=tokenizer)
    config = options(data, model_folder, objective="profit", epochs=4.0)
    trainer = trainer_of(config, tmp_path, logging_steps=1)
    batch = collate([trainer.train_dataset[0]])
    assert batch["targets"][-1] == tokenizer.eos_token_id
    batch.pop("sample_ids")
    with torch.no_grad():
        before = trainer.model(**batch)["nll"][-1].item()
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert losses[0] == pytest.approx(before / 4, rel=1e-5)  # / the 4 supervised tokens
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("what", ["loss", "parameters"])
def test_a_loss_that_is_no_number_goes_on(what: str, model_folder: Path, tokenizer: Any, tmp_path: Path) -> None:
    samples = [dataclasses.replace(s, sample_id=f"{n:032x}") for n, s in enumerate(planted(4, seed=5, vocabulary=290))]
    samples[2] = dataclasses.replace(samples[2], prompt=[295, 296], sample_id="b" * 32)
    data = annotate(tmp_path / "data", samples, tokenizer=tokenizer)
    trainer = trainer_of(options(data, model_folder), tmp_path)
    trainer.model.get_input_embeddings().register_forward_hook(
        lambda _, ids, output: torch.where((ids[0] == 295)[..., None], float("nan"), output)
    )
    before = [p.clone() for p in trainer.model.parameters()]
    with pytest.raises(TrainingError, match="b" * 32) as caught:
        trainer.train()
    if what == "loss":
        assert "loss is not finite" in str(caught.value)
        assert not any(f"{n:032x}" in str(caught.value) for n in range(4))
    else:
        assert all(p.isfinite().all() for p in trainer.model.parameters())
        moved = not all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))
        assert moved == (trainer.state.global_step > 0)


def test_an_epoch_that_changes_on_resuming_or_counts_a_sample_twice() -> None:
    epoch = 0
    sampler = EpochSampler(range(10), 4, seed=1, epoch=lambda: epoch)
    first = list(sampler)
    assert sorted(first) == [*range(10), 10, 10]
    assert first[-2:] == [10, 10]
    assert len(sampler) == 12
    assert first == list(EpochSampler(range(10), 4, seed=1))
    epoch = 1
    assert list(sampler) != first
    assert list(EpochSampler(range(3), 2, seed=None)) == [0, 1, 2, 3]


def test_a_blank_batch_adds_to_loss_or_figures(ragged: Path, model_folder: Path, tmp_path: Path) -> None:
    trainer = trainer_of(options(ragged, model_folder, objective="cuset", held_out=0.4), tmp_path)
    whole = collate([trainer.train_dataset[0]])
    blank = blank_batch(whole)
    assert blank["sample_ids"] == []
    assert len(blank["targets"]) == 0
    alone = trainer._get_num_items_in_batch([whole], torch.device("cpu"))
    assert torch.equal(trainer._get_num_items_in_batch([whole, blank], torch.device("cpu")), alone)
    loss = trainer.compute_loss(trainer.model, blank, num_items_in_batch=alone)
    loss.backward()  # connected to every parameter that trains, or other ranks wait
    assert loss.item() == 0
    assert all(p.grad is not None and not p.grad.any() for p in trainer.model.parameters())


def test_classes_of_tokens() -> None:
    batch = {
        "category": torch.tensor([0, 2, 2, 0, 5]), "in_code": torch.tensor([1, 1, 1, 0, 0], dtype=torch.bool),
        "logprob": torch.tensor([0.9, 0.2, 0.6, 0.1, 0.1]).log(), "sample_index": torch.tensor([0, 0, 1, 1, 1]),
        "sample_weight": torch.ones(2),
    }  # fmt: skip
    nll = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0])
    sums = class_sums(nll, batch, neutral_mean=0.5)
    assert CLASSES == ("all", "sensitive", "neutral", "low_confidence")
    assert sums[0].tolist() == [[3, 2, 1, 2], [28, 20, 0, 0]]
    assert sums[1].tolist() == [[2, 1, 1, 1], [3, 2, 0, 0]]
    assert class_sums(nll, batch, neutral_mean=None)[1, :, 3].tolist() == [0, 0]


def test_intervals_that_count_tokens_and_not_samples() -> None:
    """Ten samples of 100 equal tokens: by samples the mean is uncertain, by tokens it would not be."""
    random = np.random.default_rng(0)
    level = random.normal(2, 1, 10)
    tokens = np.full((10, 4), 100.0)
    tokens[1:, 3] = 0  # one sample alone holds the last class
    held = HeldOut(tuple(str(n) for n in range(10)), tokens * level[:, None], tokens)
    low, high = held.intervals()["all"]
    expected = 1.96 * level.std() / math.sqrt(10)
    assert (high - low) / 2 == pytest.approx(expected, rel=0.15)
    assert low < held.means()["all"] < high
    assert held.means()["all"] == pytest.approx(level.mean())
    assert all(math.isnan(x) for x in held.intervals()["low_confidence"])


def test_evaluation_equals_a_plain_loop(ragged: Path, model_folder: Path, tmp_path: Path) -> None:
    config = options(ragged, model_folder, objective="cuset", held_out=0.4, batch_size=2)
    trainer = trainer_of(config, tmp_path)
    trainer.neutral_mean = 0.5
    held = trainer.held_out_sums()
    data = trainer.eval_dataset
    assert sorted(held.sample_ids) == sorted(s.sample_id for n in range(len(data)) for s in data[n])
    nll, tokens, sensitive = 0.0, 0, 0
    for n in range(len(data)):
        batch = collate([data[n]])
        batch.pop("sample_ids")
        with torch.no_grad():
            found = trainer.model(**batch)["nll"]
        nll, tokens = nll + float(found.double().sum()), tokens + len(found)
        sensitive += int((batch["category"] > 0).sum())
    assert held.tokens.sum(axis=0)[:2].tolist() == [tokens, sensitive]
    assert held.means()["all"] == pytest.approx(nll / tokens, rel=1e-6)
    line = trainer.state.log_history[-1]
    assert line["eval_nll"] == held.means()["all"]
    assert line["eval_nll_from"] <= line["eval_nll"] <= line["eval_nll_to"]


def test_figures_of_a_step(ragged: Path, model_folder: Path, tmp_path: Path) -> None:
    config = options(ragged, model_folder, objective="cuset", batch_size=SAMPLES)
    trainer = trainer_of(config, tmp_path, logging_steps=1)
    batch = collate([trainer.train_dataset[n] for n in range(SAMPLES)])
    copy = {name: value for name, value in batch.items() if name != "sample_ids"}
    with torch.no_grad():
        outputs = trainer.model(**copy)
    trainer.train()
    line = next(line for line in trainer.state.log_history if "loss" in line)
    masks = (batch["logprob"] > math.log(0.1)).float() + (batch["location"] > 0).float()
    weights = masks * batch["sample_weight"][batch["sample_index"]]
    assert line["loss"] == pytest.approx(float((weights * outputs["nll"]).sum()) / len(weights), rel=1e-5)
    assert line["nll"] == pytest.approx(float(outputs["nll"].mean()), rel=1e-5)
    assert line["nll_sensitive"] == pytest.approx(float(outputs["nll"][batch["category"] > 0].mean()), rel=1e-5)
    assert line["kept_share"] == pytest.approx(float((weights > 0).float().mean()))
    assert line["mean_w"] == pytest.approx(float(batch["sample_weight"].mean()), rel=1e-5)
    assert line["tokens_per_second"] > 0


@pytest.mark.parametrize(("weight", "lines"), [(0.0, 1), (0.5, 0)])
def test_steps_without_any_weight_are_told(
    tokenizer: Any, model_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, weight: float, lines: int
) -> None:
    rows = [dataclasses.replace(one, sample_weight=weight) for one in planted(2)]
    data = annotate(tmp_path / "data", rows, tokenizer=tokenizer)
    config = options(data, model_folder, objective="cuset", batch_size=2)
    trainer_of(config, tmp_path / "out", logging_steps=1, callbacks=[LogLines()]).train()
    assert sum("nothing is learned" in record.getMessage() for record in caplog.records) == lines


def test_a_checkpoint_of_lora_holds_the_adapter_alone(ragged: Path, model_folder: Path, tmp_path: Path) -> None:
    from safetensors import safe_open

    trainer = trainer_of(options(ragged, model_folder, tuning="lora"), tmp_path, save_strategy="epoch")
    trainer.train()
    checkpoint = tmp_path / "checkpoint-8"
    assert not list(checkpoint.glob("model*.safetensors"))
    assert not list(checkpoint.glob("pytorch_model*"))
    with safe_open(str(checkpoint / "adapter_model.safetensors"), "pt") as file:
        names = list(file.keys())
    assert names
    assert all(".lora_A." in name or ".lora_B." in name for name in names)
    assert str(model_folder.parent) not in (checkpoint / "adapter_config.json").read_text()


def test_order_of_samples_follows_the_seed(ragged: Path, model_folder: Path, tmp_path: Path) -> None:
    inputs = open_inputs(options(ragged, model_folder))
    seen = []
    for seed in (0, 0, 1):
        trainer = trainer_of(options(ragged, model_folder, seed=seed), tmp_path, inputs)
        seen.append([batch["sample_ids"] for batch in itertools.islice(trainer.get_train_dataloader(), SAMPLES)])
    assert seen[0] == seen[1] != seen[2]
