"""`python -m train.sft`: an annotated dataset and a model in, a tuned model or adapter out.

training.json   the run's options, dataset, model and versions: what --resume compares
checkpoint-N/   weights (of LoRA: the adapter alone), optimiser, schedule, random numbers, log
results.json    held-out nll by class of token, before and after
and the tuned model or adapter itself, with its tokenizer
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError, OfflineModeIsEnabled
from huggingface_hub.utils import validate_repo_id
from rich.console import Console

from curate.console import main, parse_options, printable
from curate.errors import OptionError, TrainingError, first_line
from curate.store import replace_file
from train.inputs.arguments import check_tracker, processes, training_arguments
from train.inputs.checkpoints import newest_checkpoint
from train.inputs.dataset import occupied, refuse_inside
from train.inputs.run import Inputs, RunConfig, bfloat16, changed_since, make_trainer, open_inputs, with_recipe
from train.reports.card import model_card, results_table
from train.reports.metrics import CLASSES
from train.reports.plan import plan

if TYPE_CHECKING:
    from train.trainer import CusetTrainer

__all__ = ["SftConfig", "run"]

log = logging.getLogger(__name__)

_RECORD, _RESULTS = "training.json", "results.json"


@dataclass(frozen=True, kw_only=True)
class SftConfig(RunConfig):
    """Tune a causal model on an annotated dataset with CuSeT or one of its rivals.

    `--config FILE.yaml` reads options from a file, `--recipe NAME` from one that comes with the package (cpu, paper);
    those given beside it win. Several processes: torchrun --nproc-per-node N -m train.sft ...
    """

    out: Path | None = None
    """Folder of the tuned model and its checkpoints; must not exist, but with --resume."""
    resume: bool = False
    """Go on from the last checkpoint in --out."""
    dry_run: bool = False
    """Say what the run would do (steps, tokens, memory), and stop."""
    report_to: Literal["none", "tensorboard", "wandb", "trackio"] = "none"
    """Where figures go beside standard error."""
    save_limit: int = 2
    """Checkpoints that are kept, the newest."""
    push_to_hub: str | None = None
    """Push the result to this Hub repository (USER/NAME), private unless it exists."""

    def __post_init__(self) -> None:
        """Raises OptionError for values that cannot work."""
        RunConfig.__post_init__(self)
        if self.save_limit < 1:
            raise OptionError(f"--save-limit {self.save_limit}: must be at least 1, for --resume to have one")


def run(arguments: Sequence[str]) -> int:
    """Trains; prints held-out nll before and after, and where the result is."""
    config = parse_options(SftConfig, with_recipe(arguments), "train.sft")
    console = Console(emoji=False, highlight=False, soft_wrap=not sys.stdout.isatty())
    check_tracker(config.report_to)
    _check_repository(config.push_to_hub)
    if config.out is None and not config.dry_run:
        raise OptionError("--out: give the folder of the tuned model")
    first = int(os.environ.get("RANK", "0")) == 0
    if config.out is not None and first and not config.dry_run:
        _check_out(config.out, config.resume)
        refuse_inside(config.out, config.data)
    inputs = open_inputs(config)
    if config.dry_run:
        training_arguments(config, config.out or Path("out"), bf16=bfloat16(config), evaluate=False)  # for its checks
        if first:
            console.print(plan(inputs, config))
        return 0
    assert config.out is not None
    record = _record(config, inputs)
    checkpoint = _checkpoint(config.out, record) if config.resume else None
    trainer = _trainer(config, inputs, config.out, resumed=checkpoint is not None)
    if first:
        config.out.mkdir(parents=True, exist_ok=True)
        replace_file(config.out / _RECORD, json.dumps(record, indent=2, sort_keys=True).encode())
    results = _train(trainer, checkpoint)
    trainer.save_model(str(config.out))
    if first:
        replace_file(config.out / _RESULTS, json.dumps(results, indent=2).encode())
        replace_file(config.out / "README.md", model_card(record, results).encode())
        if results["before"]:
            console.print(results_table(results))
        console.print(printable(str(config.out)), markup=False)
    if config.push_to_hub is not None:
        trainer.push_to_hub()
    return 0


def _check_out(out: Path, resume: bool) -> None:
    if occupied(out) and not resume:
        raise OptionError(f"--out {out}: exists; --resume goes on with it, or give another folder")
    if resume and not (out / _RECORD).is_file():
        raise OptionError(f"--resume: {out} holds no {_RECORD}, so no run to go on with; leave --resume out")
    nearest = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise OptionError(f"--out {out}: cannot write in {nearest}; give another folder")


def _check_repository(name: str | None) -> None:
    try:
        if name is not None:
            validate_repo_id(name)
    except HFValidationError as error:
        raise OptionError(f"--push-to-hub {name}: no name of a repository (USER/NAME): {str(error)[:200]}") from error


def _record(config: SftConfig, inputs: Inputs) -> dict[str, Any]:
    """What training.json holds: under `run` all that makes it another run."""
    names = ("cuset", "torch", "transformers", "peft", "accelerate", "datasets")
    return {
        "format_version": 1,
        "run": {**inputs.identity(config), "processes": processes()},
        "data": [path.resolve().name for path in config.data],
        "options": {field: str(getattr(config, field)) for field in ("report_to", "save_limit", "push_to_hub")},
        "dropped_samples": list(inputs.data.dropped),
        "truncated_samples": inputs.data.truncated,
        "versions": {name: version(name) for name in names},
    }


def _checkpoint(out: Path, record: dict[str, Any]) -> Path | None:
    """The newest whole checkpoint of this very run; raises OptionError where the folder holds another run."""
    remedy = ", so nobody can tell which run it was; start another"
    if changed := changed_since(out / _RECORD, record["run"], remedy, under="run"):
        words = [f"{n} was {json.dumps(then)[:80]}, is {json.dumps(now)[:80]}" for n, (then, now) in changed.items()]
        what = "; ".join(words[:3])
        raise OptionError(f"--resume: {out} holds another run: {what}; give the same options, or another --out")
    checkpoint = newest_checkpoint(out)
    if checkpoint is None:
        log.info("--resume: no whole checkpoint in %s yet, so the run starts again", out)
    return checkpoint


def _trainer(config: SftConfig, inputs: Inputs, out: Path, *, resumed: bool) -> CusetTrainer:
    from train.reports.reporting_trainer import LogLines

    more: dict[str, Any] = {"report_to": config.report_to, "save_total_limit": config.save_limit}
    if resumed:
        more["eval_on_start"] = False
    if config.push_to_hub is not None:
        more |= {
            "push_to_hub": True, "hub_model_id": config.push_to_hub, "hub_strategy": "end", "hub_private_repo": True,
        }  # fmt: skip
    try:
        return make_trainer(inputs, config, out, callbacks=[LogLines()], **more)
    except (HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled, ConnectionError) as error:
        raise OptionError(
            f"--push-to-hub {config.push_to_hub}: the Hub refuses ({first_line(error, 200)}); hf auth login, or leave"
            " it out"
        ) from error


def _train(trainer: CusetTrainer, checkpoint: Path | None) -> dict[str, Any]:
    """Trains to the end; held-out figures at the start and at the end, NaN as None."""
    try:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        last = [line["step"] for line in trainer.state.log_history if "eval_nll" in line][-1:]
        late = trainer.args.load_best_model_at_end or last != [trainer.state.global_step]
        # a finished run that is resumed has its figures in the checkpoint, but not the number of tokens
        if trainer.eval_dataset is not None and (late or trainer.held_out is None):
            trainer.evaluate()
    except torch.OutOfMemoryError as error:
        raise TrainingError(
            f"step {trainer.state.global_step + 1}: the GPU's memory does not suffice ({str(error).split('.')[0]}):"
            " lower --batch-size (and raise --accumulation) or --max-length, or shard with --training fsdp=true"
        ) from error
    kept = ("eval_nll", "eval_loss", "step")
    judged = [
        {name: v if math.isfinite(v) else None for name, v in line.items() if name.startswith(kept)}
        for line in trainer.state.log_history
        if "eval_nll" in line
    ]
    held_out = trainer.held_out
    return {
        "steps": trainer.state.global_step,
        "before": judged[0] if judged else None,
        "after": judged[-1] if judged else None,
        "held_out_tokens": dict(zip(CLASSES, held_out.tokens.sum(axis=0).tolist(), strict=True)) if held_out else None,
    }


if __name__ == "__main__":
    main(run)
