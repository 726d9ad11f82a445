"""A `transformers.Trainer` that owns the denominator of the loss, reports nll by class of token, and stops on a loss
that is no number.

The model's forward gives the *sum* of the weighted losses of a micro-batch (`train.head`). It is divided here, once, by
the objective's denominator summed over all micro-batches of the step and all ranks: a mean of each micro-batch would
weigh tokens of short batches up. Ranks average their gradients, so the loss is multiplied by their number.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import TrainerCallback
from transformers.trainer_utils import EvalLoopOutput

from curate.errors import TrainingError
from train.inputs.checked_trainer import CheckedTrainer
from train.metrics import CLASSES, HeldOut, class_sums
from train.objectives import Objective, TokenStatistics
from train.sampling import EpochSampler, Filled, blank_batch

__all__ = ["CusetTrainer"]

_NAMED = 5
"""Sample ids in a message at most."""


class _Clock(TrainerCallback):
    """Seconds spent in steps; evaluations and saves are not among them."""

    def __init__(self) -> None:
        self.seconds, self._begun = 0.0, 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._begun = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds += time.perf_counter() - self._begun


class CusetTrainer(CheckedTrainer):
    """Trains a model that `train.head.attach_head` has prepared, on batches of `train.data`.

    `neutral_mean`: mean confidence of the dataset's neutral code tokens, the bound of the class low_confidence.
    Raises TrainingError on a loss or gradient that is not finite, before the parameters move.
    """

    loss_is_scaled_for_ga = True  # by compute_loss
    objective: Objective
    neutral_mean: float | None
    held_out: HeldOut | None
    """What the last evaluation found."""

    def __init__(self, *args: Any, objective: Objective, neutral_mean: float | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.objective = objective
        self.neutral_mean = neutral_mean
        self.held_out = None
        plugin = getattr(self.accelerator.state, "fsdp_plugin", None)
        if plugin is not None and plugin.mixed_precision_policy is not None:  # FSDP casts what a forward gets, too
            policy, names = plugin.mixed_precision_policy, ("cast_root_forward_inputs", "cast_forward_inputs")
            off = {name: False for name in names if hasattr(policy, name)}
            plugin.mixed_precision_policy = dataclasses.replace(policy, **off)
        self._clock = _Clock()
        self.add_callback(self._clock)
        self._collate = self.data_collator
        self.data_collator = self._collate_filled
        self._parts: list[tuple[list[str], Any]] = []
        self._eval_loss = (0.0, 0.0)
        self._step_ids: list[str] = []
        self._forget()

    # ---- batches ----

    def _collate_filled(self, items: Sequence[Any]) -> dict[str, Any]:
        there = [item for item in items if item is not None]
        if there:
            return dict(self._collate(there))
        data: Any = self.train_dataset if self.train_dataset is not None else self.eval_dataset
        return blank_batch(self._collate([data[0]]))

    def _get_dataloader(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        return super()._get_dataloader(Filled(dataset), *args, **kwargs)

    def _get_train_sampler(self, train_dataset: Any = None) -> EpochSampler:
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        multiple = self.args.world_size * self._train_batch_size
        return EpochSampler(train_dataset, multiple, seed=seed, epoch=lambda: int(self.state.epoch or 0))

    def _get_eval_sampler(self, eval_dataset: Any) -> EpochSampler:
        return EpochSampler(eval_dataset, self.args.world_size * self.args.eval_batch_size, seed=None)

    def _prepare_input(self, data: Any) -> Any:
        """Without the cast to the model's dtype that DeepSpeed's batches get: masks are made of these values."""
        return data.to(self.args.device) if isinstance(data, torch.Tensor) else super()._prepare_input(data)

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Nothing where --max-steps is reached already: `Trainer` would take one step more of a resumed run."""
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)

    # ---- loss ----

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> torch.Tensor:
        """The denominator of a step: the objective's, over all its micro-batches and all ranks."""
        filled = [batch for batch in batch_samples if batch["sample_ids"]]
        self._step_ids = [one for batch in filled for one in batch["sample_ids"]]
        local = math.fsum(self.objective.denominator(batch) for batch in filled)
        total: torch.Tensor = self.accelerator.gather(torch.tensor([local], dtype=torch.float32, device=device))
        return total.sum()

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The micro-batch's part of the step's loss, times the number of ranks."""
        batch = dict(inputs)
        ids = batch.pop("sample_ids")
        outputs = model(**batch)
        ranks = 1 if num_items_in_batch is None else self.accelerator.num_processes
        denominator = self.objective.denominator(inputs) if num_items_in_batch is None else num_items_in_batch
        # a step that supervises nothing: 0 / 1
        loss = outputs["loss"] * (ranks / torch.as_tensor(denominator).clamp_min(1e-30).to(outputs["loss"]))
        if model.training:
            self._note(outputs, batch, ids)
        return (loss, outputs) if return_outputs else loss

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        loss = super().training_step(model, inputs, num_items_in_batch)
        if not torch.isfinite(loss):  # after the backward pass, so that a GPU does not wait for this in between
            raise TrainingError(self._unusable("loss", inputs["sample_ids"]))
        return loss

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm)
        scaled = getattr(self.accelerator, "scaler", None) is not None  # float16: such steps are left out by the scaler
        if not scaled and not torch.isfinite(torch.as_tensor(norm)):
            raise TrainingError(self._unusable("gradient", self._step_ids))
        return norm

    def _unusable(self, what: str, ids: Sequence[str]) -> str:
        named = ", ".join(ids[:_NAMED]) + (f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else "")
        return (
            f"step {self.state.global_step + 1}: the {what} is not finite on sample {named}; the parameters are as"
            " before the step: lower --learning-rate, or take the sample out, and --resume from the last checkpoint"
        )

    # ---- figures ----

    def _forget(self) -> None:
        self._classes: torch.Tensor | None = None
        self._counts: torch.Tensor | None = None
        self._clock.seconds = 0.0

    def _note(self, outputs: Mapping[str, Any], batch: Mapping[str, Any], ids: Sequence[str]) -> None:
        if self._classes is None or self._counts is None:
            self._classes = torch.zeros(2, len(CLASSES), dtype=torch.float64, device=outputs["nll"].device)
            self._counts = torch.zeros(4, dtype=torch.float64, device=outputs["nll"].device)
        if not ids:
            return
        self._classes += class_sums(outputs["nll"], batch, self.neutral_mean).sum(dim=1)
        statistics = TokenStatistics(outputs["nll"], outputs["probability"], outputs.get("entropy_top20"))
        kept, weight = (outputs["weights"] > 0).sum(), self.objective.sample_weights(statistics, batch).sum()
        sizes = torch.tensor([len(ids), batch["input_ids"].numel()], device=kept.device)
        self._counts += torch.cat([torch.stack([kept.double(), weight.double()]), sizes.double()])

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds to a training step's line: nll (unweighted, nats a token) of each class, share of tokens with a weight,
        mean w of the samples, tokens a second (prompts among them)."""
        if "loss" in logs and self._classes is not None and self._counts is not None:
            sums = self.accelerator.reduce(torch.cat([self._classes.flatten(), self._counts]), "sum").tolist()
            k = len(CLASSES)
            for name, nll, tokens in zip(CLASSES, sums[:k], sums[k : 2 * k], strict=True):
                if tokens:
                    logs["nll" if name == "all" else f"nll_{name}"] = nll / tokens
            kept, weight, samples, read = sums[2 * k :]
            logs["kept_share"] = kept / max(sums[k], 1)
            logs["mean_w"] = weight / max(samples, 1)
            logs["tokens_per_second"] = read / max(self._clock.seconds, 1e-9)
            self._forget()
        super().log(logs, start_time)

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """None of the Trainer's own: `train.reports.card` has written one."""

    # ---- evaluation ----

    def prediction_step(
        self, model: Any, inputs: Any, prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[None, None, None]:
        """Notes the sums of a batch; the loop of `Trainer` gets nothing to gather."""
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            _, outputs = self.compute_loss(model, inputs, return_outputs=True)
        if inputs["sample_ids"]:
            sums = class_sums(outputs["nll"], inputs, self.neutral_mean).cpu()
            if sums.isnan().any():
                named = ", ".join(inputs["sample_ids"][:_NAMED])
                raise TrainingError(
                    f"step {self.state.global_step}: the nll of held-out sample {named} is not a number: the model's"
                    " weights are damaged, or training has run away; lower --learning-rate"
                )
            self._parts.append((list(inputs["sample_ids"]), sums.numpy()))
            loss, denominator = self._eval_loss
            self._eval_loss = (loss + float(outputs["loss"]), denominator + float(self.objective.denominator(inputs)))
        return None, None, None

    def evaluation_loop(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> EvalLoopOutput:
        """nll of each class over the held-out samples with intervals by samples (`_from`, `_to`), and the weighted
        loss."""
        self._parts, self._eval_loss = [], (0.0, 0.0)
        kwargs["metric_key_prefix"] = metric_key_prefix
        with torch.random.fork_rng(devices=[]):  # a loader draws a number: dropout must not depend on how often we look
            output = super().evaluation_loop(*args, **kwargs)
        self.held_out = HeldOut.of(gather_object(self._parts))
        losses = gather_object([self._eval_loss])
        figures = {"loss": sum(part for part, _ in losses) / max(sum(part for _, part in losses), 1e-30)}
        intervals = self.held_out.intervals()
        for name, mean in self.held_out.means().items():
            key = "nll" if name == "all" else f"nll_{name}"
            figures |= {key: mean, f"{key}_from": intervals[name][0], f"{key}_to": intervals[name][1]}
        output.metrics.update({f"{metric_key_prefix}_{key}": value for key, value in figures.items()})  # type: ignore[union-attr]
        return output

    def held_out_sums(self, data: Any = None) -> HeldOut:
        """Evaluates; sums of each held-out sample, the same on every rank."""
        self.evaluate(data)
        assert self.held_out is not None
        return self.held_out
