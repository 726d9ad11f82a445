"""What a run needs, opened and checked once: options, data, tokenizer, objective; and a fresh model as often as wanted.

`train.sft` does one run, `train.compare` many on the same data: the data is read once (`open_inputs`), the model's
weights again for each run (`fresh_model`).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
import tyro

from curate.console import check_ranges, take_option
from curate.errors import DatasetError, OptionError, first_line
from curate.model import ModelFiles, locate_model
from curate.store import read_manifest
from train.data import collate
from train.head import attach_head, check_head
from train.inputs.arguments import processes, training_arguments
from train.inputs.dataset import neutral_mean_of
from train.inputs.portions import DataConfig, TrainingData, open_data
from train.objective_options import ObjectiveConfig
from train.objectives import Objective, make_objective
from train.reports.metrics import CLASS_COLUMNS

if TYPE_CHECKING:
    from train.trainer import CusetTrainer

__all__ = ["Inputs", "RunConfig", "fresh_model", "make_trainer", "open_inputs", "recipe_file", "with_recipe"]

_RECIPES = Path(__file__).parent.parent / "recipes"

_FREE = frozenset({"data", "model", "out", "resume", "dry_run", "report_to", "push_to_hub", "save_limit"})
_FREE_ARGUMENTS = ("save_", "logging_", "hub_", "report_", "run_name", "project")
"""Options and arguments of the Trainer that make no other run."""

_RANGES: dict[str, tuple[float, float]] = {
    "learning_rate": (0, 10), "epochs": (0, 1e6), "max_steps": (1, 2**40), "batch_size": (1, 2**20),
    "seed": (0, 2**32 - 1), "accumulation": (1, 2**20), "lora_r": (1, 2**16), "lora_alpha": (0, 1e6),
    "lora_dropout": (0, 1),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RunConfig(ObjectiveConfig, DataConfig):
    """What is trained, on what, towards what, and how; `train.sft` and `train.compare` share it."""

    data: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """Folder of an annotated dataset (--out of curate.build); give it again for several."""
    model: str = "embedded"
    """The model to tune: `embedded` (SmolLM2-135M-Instruct), a Hub id (`USER/NAME` or `USER/NAME@REVISION`), or a
    folder. Its tokenizer must be the dataset's."""
    tuning: Literal["lora", "full"] = "lora"
    """Train a LoRA adapter, of which alone checkpoints are made, or every parameter."""
    lora_r: int = 8
    """Rank of the adapter's matrices."""
    lora_alpha: float = 16
    """The adapter's output is scaled by alpha / r."""
    lora_dropout: float = 0.05
    """Dropout before the adapter's matrices."""
    lora_targets: str = "all-linear"
    """Modules that get an adapter: all-linear (all but the head), or names with commas between them."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic; auto: float32 on a CPU, bfloat16 on a GPU. Trained parameters are kept in float32 either way."""
    attention: str | None = None
    """Implementation of attention, such as flash_attention_2; without it, what transformers chooses."""
    learning_rate: float = 1e-4
    """At its highest; the schedule is linear unless --training lr_scheduler_type=... says otherwise."""
    epochs: float = 3.0
    """Passes over the samples."""
    max_steps: int | None = None
    """Steps, in place of --epochs."""
    batch_size: int = 1
    """Samples (with --packing: rows of packed samples) in a forward pass of each process."""
    accumulation: int = 8
    """Forward passes of each process in a step."""
    checkpointing: bool = True
    """Compute activations again in the backward pass, for memory."""
    seed: int = 0
    """Of the adapter's first values, the order of the samples, and dropout."""
    training: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """NAME=VALUE: any further argument of transformers.TrainingArguments, such as warmup_steps=0.03,
    fsdp=true, deepspeed=FILE.json, eval_steps=50. In a YAML file: a mapping."""

    def __post_init__(self) -> None:
        """Raises OptionError for values that cannot work."""
        DataConfig.__post_init__(self)
        check_ranges(self, _RANGES)
        if not self.data:
            raise OptionError("--data: give the folder of an annotated dataset (python -m curate.build makes one)")


@dataclass(frozen=True, eq=False)
class Inputs:
    """Model files, tokenizer and data of a run, opened and checked."""

    files: ModelFiles
    tokenizer: Any
    data: TrainingData

    def objective(self, config: ObjectiveConfig) -> Objective:
        """The objective of these options, with the mean w of the samples that are trained on; raises OptionError where
        the dataset was weighed with others."""
        return make_objective(config, self.data.train.mean_sample_weight, self.data.manifests[0]["config"])

    def identity(self, config: RunConfig) -> dict[str, Any]:
        """What makes one run another: its options but for where things lie and what is reported, and its inputs; no
        path of the machine."""
        options = {name: value for name, value in dataclasses.asdict(config).items() if name not in _FREE}
        options["training"] = sorted(word for word in config.training if not word.startswith(_FREE_ARGUMENTS))
        manifests = [hashlib.sha256(json.dumps(m, sort_keys=True).encode()).hexdigest() for m in self.data.manifests]
        held = self.data.held_out
        return json.loads(json.dumps(options, default=str)) | {
            "model": self.files.identity(), "datasets": manifests, "samples": self.data.train.samples,
            "held_out_samples": held.samples if held is not None else 0,
        }  # fmt: skip


def recipe_file(name: str) -> Path:
    """The YAML file of a recipe that comes with the package; raises OptionError."""
    names = sorted(path.stem for path in _RECIPES.glob("*.yaml"))
    if name not in names:
        raise OptionError(f"--recipe {name}: there are {', '.join(names)}; --config FILE.yaml takes one of your own")
    return _RECIPES / f"{name}.yaml"


def with_recipe(arguments: Sequence[str]) -> list[str]:
    """`--recipe NAME` becomes `--config` with its file."""
    words = list(arguments)
    name = take_option(words, "--recipe")
    if name is None:
        return words
    if any(word.partition("=")[0] == "--config" for word in words):
        raise OptionError("--recipe and --config: give one of them")
    return [*words, "--config", str(recipe_file(name))]


def open_inputs(config: RunConfig, objectives: Sequence[ObjectiveConfig] | None = None) -> Inputs:
    """Opens the tokenizer and the data with the columns of `objectives` (without: of the run's own).

    Raises a CusetError for anything that would stop the run later.
    """
    wanted = [make_objective(one, 0.5) for one in objectives or [config]]
    if config.tuning == "full" and any(one.kl for one in wanted):
        raise OptionError(
            "--objective asft: its reference is the base model with the adapter off, and --tuning full has none; train"
            " with LoRA"
        )
    files = locate_model(config.model)
    tokenizer = files.load_tokenizer()
    tokenizer.name_or_path = files.name  # for messages: no path of a cache
    columns = {*CLASS_COLUMNS, *(name for one in wanted for name in one.columns)}
    if not any("logprob" in one.columns for one in wanted) and not all(map(_scored, config.data)):
        columns.discard("logprob")  # for figures alone
    data = open_data(
        config, sorted(columns), tokenizer=tokenizer, embeddings=files.load_config().vocab_size,
        need_scores=any(map(_stored_weight, wanted)),
    )  # fmt: skip
    for one in objectives or [config]:
        make_objective(one, 0.5, data.manifests[0]["config"])
    return Inputs(files, tokenizer, data)


def _scored(path: Path) -> bool:
    return not read_manifest(path).get("config", {}).get("skip_scoring")


def _stored_weight(objective: Objective) -> bool:
    """Whether the objective multiplies by the stored w, equation (8), or by its mean."""
    config = objective.config
    region = config.weight == "region" and config.confidence == "precomputed"
    return config.objective == "cuset" and (region or config.weight == "constant")


def bfloat16(config: RunConfig) -> bool:
    """Whether the run computes in bfloat16."""
    return config.dtype == "bfloat16" or (config.dtype == "auto" and torch.cuda.is_available())


def fresh_model(inputs: Inputs, config: RunConfig, objective: Objective, *, meta: bool = False) -> Any:
    """The model with its head for the objective and, for LoRA, an adapter drawn from the seed; on the CPU.

    Parameters that are trained are float32; under LoRA in bfloat16 arithmetic the frozen ones are bfloat16. `meta`:
    shapes without values.
    """
    from transformers import AutoModelForCausalLM, set_seed

    dtype = torch.bfloat16 if config.tuning == "lora" and bfloat16(config) else torch.float32
    if meta:
        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(inputs.files.load_config(), dtype=dtype)
    else:
        model = inputs.files.load_model(dtype, "cpu")
    if config.attention is not None:
        try:
            model.set_attn_implementation(config.attention)
        except (ImportError, ValueError) as error:
            raise OptionError(f"--attention {config.attention}: {first_line(error)}") from error
    attach_head(model, objective)
    if config.tuning == "full":
        return model
    set_seed(config.seed)
    return _adapted(model, inputs.files, config, meta=meta)


def _adapted(model: Any, files: ModelFiles, config: RunConfig, *, meta: bool) -> Any:
    from peft import LoraConfig, get_peft_model

    targets = [name.strip() for name in config.lora_targets.split(",") if name.strip()]
    modules = [name for name, _ in model.named_modules()]
    for target in targets if targets != ["all-linear"] else []:
        # peft itself is content with one name that it finds
        if not any(name == target or name.endswith(f".{target}") for name in modules):
            raise OptionError(
                f"--lora-targets {config.lora_targets[:200]}: the model has no module {target[:80]}; give all-linear"
                " alone, or names such as q_proj,v_proj"
            )
    lora = LoraConfig(
        r=config.lora_r, lora_alpha=config.lora_alpha, lora_dropout=config.lora_dropout, task_type="CAUSAL_LM",  # type: ignore[arg-type]
        target_modules=targets[0] if targets == ["all-linear"] else targets,
        revision=files.revision,
    )  # fmt: skip
    # what adapter_config.json and the card name; of a folder no path of the machine
    model.name_or_path = model.config._name_or_path = files.path if files.revision else files.name.partition(" (")[0]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old names in transformers; of an adapter on the head, refused below
            adapted: Any = get_peft_model(model, lora, low_cpu_mem_usage=meta)
    except ValueError as error:
        said = " ".join(str(error).split())[:300]
        raise OptionError(f"--lora-targets {config.lora_targets[:200]}: {said}") from error
    check_head(model)
    # the vocabulary stays as it is: peft need not ask the Hub whether it has grown
    adapted.save_pretrained = functools.partial(adapted.save_pretrained, save_embedding_layers=False)
    return adapted


def make_trainer(
    inputs: Inputs, config: RunConfig, out: Path, *, callbacks: Sequence[Any] = (), **more: Any
) -> CusetTrainer:
    """A trainer of a fresh model; `more` are TrainingArguments that win over the options."""
    from transformers import PrinterCallback
    from transformers.utils import logging as transformers_logging

    from train.trainer import CusetTrainer

    held_out = inputs.data.held_out
    arguments = training_arguments(config, out, bf16=bfloat16(config), evaluate=held_out is not None, **more)
    objective = inputs.objective(config)
    transformers_logging.disable_progress_bar()  # of writing weights
    trainer = CusetTrainer(
        model=fresh_model(inputs, config, objective), args=arguments, objective=objective, data_collator=collate,
        train_dataset=inputs.data.train, eval_dataset=held_out, processing_class=inputs.tokenizer,
        neutral_mean=neutral_mean_of(inputs.data.manifests), callbacks=list(callbacks),
    )  # fmt: skip
    if trainer.accelerator.num_processes != processes():
        raise OptionError(f"{processes()} processes run, but {trainer.accelerator.num_processes} would train together")
    trainer.remove_callback(PrinterCallback)  # standard output is for results
    return trainer


def changed_since(
    record: Path, now: Mapping[str, Any], remedy: str, under: str | None = None
) -> dict[str, tuple[Any, Any]]:
    """What was otherwise when a folder's record was written: (then, now) of each name.

    `under`: the entry of the record that is compared. Raises DatasetError, with the remedy, for a damaged one.
    """
    try:
        content = json.loads(record.read_text(encoding="utf-8"))
        before = dict(content if under is None else content[under])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DatasetError(f"{record}: damaged{remedy}") from error
    pairs = {name: (before.get(name), now.get(name)) for name in sorted({*before, *now})}
    return {name: (then, today) for name, (then, today) in pairs.items() if then != today}
