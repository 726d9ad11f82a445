"""A `transformers.Trainer` that owns the denominator of the loss, and stops on a loss that is no number.

The model's forward gives the *sum* of the weighted losses of a micro-batch (`train.head`). It is divided here, once, by
the objective's denominator summed over all micro-batches of the step and all ranks: a mean of each micro-batch would
weigh tokens of short batches up. Ranks average their gradients, so the loss is multiplied by their number.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch

from curate.errors import TrainingError
from curate.manifest import listed
from train.data import EpochSampler, blank_batch
from train.reports.reporting_trainer import ReportingTrainer

__all__ = ["CusetTrainer"]


class CusetTrainer(ReportingTrainer):
    """Trains a model that `train.head.attach_head` has prepared, on batches of `train.data`.

    `objective` and `neutral_mean` as in `ReportingTrainer`. Raises TrainingError on a loss or gradient that is not
    finite, before the parameters move.
    """

    loss_is_scaled_for_ga = True  # by compute_loss

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        plugin = getattr(self.accelerator.state, "fsdp_plugin", None)
        if plugin is not None and plugin.mixed_precision_policy is not None:  # FSDP casts what a forward gets, too
            policy, names = plugin.mixed_precision_policy, ("cast_root_forward_inputs", "cast_forward_inputs")
            off = {name: False for name in names if hasattr(policy, name)}
            plugin.mixed_precision_policy = dataclasses.replace(policy, **off)
        self._collate = self.data_collator
        self.data_collator = self._collate_filled
        self._step_ids: list[str] = []

    # ---- batches ----

    def _collate_filled(self, items: Sequence[Any]) -> dict[str, Any]:
        if items:
            return dict(self._collate(list(items)))
        data: Any = self.train_dataset if self.train_dataset is not None else self.eval_dataset
        return blank_batch(self._collate([data[0]]))

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
            self.note(outputs, batch, ids)
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
        return (
            f"step {self.state.global_step + 1}: the {what} is not finite on sample {listed(ids)}; the parameters are"
            " as before the step: lower --learning-rate, or take the sample out, and --resume from the last checkpoint"
        )
