"""What training logs and evaluation finds, by class of token. Nothing here changes what is trained."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import TrainerCallback
from transformers.trainer_utils import EvalLoopOutput

from curate.errors import TrainingError
from curate.manifest import listed
from train.inputs.checked_trainer import CheckedTrainer
from train.objectives import Objective, TokenStatistics
from train.reports.metrics import CLASSES, HeldOut, class_sums, nll_name

__all__ = ["LogLines", "ReportingTrainer"]

log = logging.getLogger(__name__)


class _Clock(TrainerCallback):
    """Seconds spent in steps; evaluations and saves are not among them."""

    def __init__(self) -> None:
        self.seconds, self._begun = 0.0, 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._begun = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds += time.perf_counter() - self._begun


class LogLines(TrainerCallback):
    """A line for each log of the Trainer, on the first process."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        shown = ("loss", "nll", "kept_share", "mean_w", "tokens_per_second", "eval_nll", "eval_loss")
        found = [f"{n} {logs[n]:.4g}" for n in shown if n in (logs or {})]
        if state.is_world_process_zero and found:
            log.info("step %d/%d  %s", state.global_step, state.max_steps, "  ".join(found))
        if state.is_world_process_zero and (logs or {}).get("kept_share") == 0:
            log.warning(
                "step %d: no token since the line before has a weight, so that nothing is learned: look at the data's"
                " sample_weight and token_weight, and at the objective's mask",
                state.global_step,
            )


class ReportingTrainer(CheckedTrainer):
    """`objective`: what is minimised. `neutral_mean`: mean confidence of the dataset's neutral code tokens, the bound
    of the class low_confidence.
    """

    objective: Objective
    neutral_mean: float | None
    held_out: HeldOut | None = None
    """What the last evaluation found."""

    def __init__(self, *args: Any, objective: Objective, neutral_mean: float | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.objective = objective
        self.neutral_mean = neutral_mean
        self._clock = _Clock()
        self.add_callback(self._clock)
        self._judged: list[tuple[Sequence[str], Any, float, float]] = []
        """Of each batch of an evaluation: sample ids, their sums of classes, loss, denominator."""
        self._forget()

    def _forget(self) -> None:
        """Sums since the last log: nll and tokens of each class, tokens with a weight, w, samples, tokens read."""
        self._noted = torch.zeros(2 * len(CLASSES) + 4, dtype=torch.float64, device=self.args.device)
        self._clock.seconds = 0.0

    def note(self, outputs: Mapping[str, Any], batch: Mapping[str, Any], ids: Sequence[str]) -> None:
        """Adds a micro-batch to what the next log says; `ids`: its samples."""
        if not ids:
            return
        classes = class_sums(outputs["nll"], batch, self.neutral_mean).sum(dim=1)
        statistics = TokenStatistics(outputs["nll"], outputs["probability"], outputs.get("entropy_top20"))
        kept, weight = (outputs["weights"] > 0).sum(), self.objective.sample_weights(statistics, batch).sum()
        sizes = torch.tensor([len(ids), batch["input_ids"].numel()], device=kept.device)
        self._noted += torch.cat([classes.flatten(), torch.stack([kept.double(), weight.double()]), sizes.double()])

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds to a training step's line: nll (unweighted, nats a token) of each class, share of tokens with a weight,
        mean w of the samples, tokens a second (prompts among them)."""
        if "loss" in logs:
            *classes, kept, weight, samples, read = self.accelerator.reduce(self._noted, "sum").tolist()
            nll, tokens = classes[: len(CLASSES)], classes[len(CLASSES) :]
            logs |= {nll_name(name): n / t for name, n, t in zip(CLASSES, nll, tokens, strict=True) if t}
            logs |= {"kept_share": kept / max(tokens[0], 1), "mean_w": weight / max(samples, 1)}
            logs["tokens_per_second"] = read / max(self._clock.seconds, 1e-9)
            self._forget()
        super().log(logs, start_time)

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """None of the Trainer's own: `train.reports.card` has written one."""

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
                raise TrainingError(
                    f"step {self.state.global_step}: the nll of held-out sample {listed(inputs['sample_ids'])} is not a"
                    " number: the model's weights are damaged, or training has run away; lower --learning-rate"
                )
            loss, denominator = float(outputs["loss"]), self.objective.denominator(inputs)
            self._judged.append((inputs["sample_ids"], sums.numpy(), loss, denominator))
        return None, None, None

    def evaluation_loop(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> EvalLoopOutput:
        """nll of each class over the held-out samples with intervals by samples (`_from`, `_to`), and the weighted
        loss."""
        self._judged = []
        kwargs["metric_key_prefix"] = metric_key_prefix
        with torch.random.fork_rng(devices=[]):  # a loader draws a number: dropout must not depend on how often we look
            output = super().evaluation_loop(*args, **kwargs)
        ids, sums, losses, denominators = zip(*gather_object(self._judged), strict=True)
        self.held_out = HeldOut.of(list(zip(ids, sums, strict=True)))
        figures = {"loss": math.fsum(losses) / max(math.fsum(denominators), 1e-30)}
        intervals = self.held_out.intervals()
        for token_class, mean in self.held_out.means().items():
            name = nll_name(token_class)
            figures |= {name: mean, f"{name}_from": intervals[token_class][0], f"{name}_to": intervals[token_class][1]}
        output.metrics.update({f"{metric_key_prefix}_{key}": value for key, value in figures.items()})  # type: ignore[union-attr]
        return output

    def held_out_sums(self) -> HeldOut:
        """Evaluates; sums of each held-out sample, the same on every rank."""
        self.evaluate()
        assert self.held_out is not None
        return self.held_out
