"""`python -m train.compare --data DIR --objectives sft,dft,profit,cuset --seeds 0,1,2`: a study of objectives.

Every run starts from the same model; those of one seed see the same samples in the same order; all are judged on the
same held-out samples, by nll a token of each class (`train.reports.metrics`), with intervals over seeds and samples
(`train.reports.study`).

    runs/              the sums of each run that is done, by which an interrupted study goes on
    comparison.json    every number, comparison.csv the same as a table, comparison.md for a report
    comparison.png     the differences, comparison.svg too
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markdown import Markdown

from curate.console import main, parse_options, printable
from curate.errors import DatasetError, OptionError
from curate.store import replace_file
from train.inputs.arguments import processes
from train.inputs.dataset import occupied, refuse_inside
from train.inputs.run import Inputs, RunConfig, changed_since, make_trainer, open_inputs, with_recipe
from train.objective_options import ObjectiveConfig
from train.reports.metrics import CLASSES, HeldOut
from train.reports.study import Row, study_rows
from train.reports.study_report import NOTE, draw, markdown, table

__all__ = ["CompareConfig", "run"]

log = logging.getLogger(__name__)

_OBJECTIVE = tuple(f.name for f in dataclasses.fields(ObjectiveConfig))
_PER_RUN = frozenset({*_OBJECTIVE, "seed", "objectives", "seeds"})
"""Options by which the runs of one study differ: each run's file has its own."""


@dataclass(frozen=True, kw_only=True)
class CompareConfig(RunConfig):
    """Train one model towards several objectives from several seeds, and compare them on held-out samples.

    The options of an objective hold for all that have them; `cuset:weight=none:mask=conf` sets them for one. More
    objectives or seeds may be asked for later: what is done is not done again.
    """

    out: Path | None = None
    """Folder of the study."""
    objectives: str = "sft,dft,profit,cuset"
    """Names with commas between them; the others are compared with the first. NAME:OPTION=VALUE for an ablation."""
    seeds: str = "0,1,2"
    """Whole numbers with commas between them; each is a run of every objective."""


def run(arguments: Sequence[str]) -> int:
    """Trains what is not trained yet; prints the table and where the study is."""
    config = parse_options(CompareConfig, with_recipe(arguments), "train.compare")
    if config.out is None:
        raise OptionError("--out: give the folder of the study")
    if processes() > 1:
        raise OptionError("train.compare runs in one process; start it without torchrun")
    variants, seeds = _variants(config), _seeds(config.seeds)
    refuse_inside(config.out, config.data)
    inputs = open_inputs(config, list(variants.values()))
    if inputs.data.held_out is None:
        raise OptionError("--held-out 0: a study needs samples to judge by; give a share such as 0.2")
    _open_study(config.out, config, inputs)
    rows = _rows(_finish_runs(config, inputs, variants, seeds), list(variants), seeds)
    _write(config.out, rows, seeds, inputs)
    console = Console(emoji=False, highlight=False, width=None if sys.stdout.isatty() else 130)
    console.print(table(rows))
    console.print(Markdown(NOTE))
    console.print(printable(str(config.out)), markup=False)
    return 0


def _variants(config: CompareConfig) -> dict[str, CompareConfig]:
    """What each name in --objectives asks for."""
    found: dict[str, CompareConfig] = {}
    for word in (part.strip() for part in config.objectives.split(",")):
        name, *settings = word.split(":")
        options, given = ["--objective", name], ["objective"]
        for setting in settings:
            option, equals, value = setting.partition("=")
            field = option.replace("-", "_").replace("lambda", "lambda_")
            if not equals or field not in _OBJECTIVE:
                raise OptionError(f"--objectives {word}: write NAME:OPTION=VALUE, with options of objectives")
            if field in given:
                raise OptionError(f"--objectives {word}: {option} stands there twice")
            given.append(field)
            flag = f"--{option.replace('_', '-')}"
            truth = {"true": [flag], "false": [flag.replace("--", "--no-", 1)]}
            options += truth.get(value.lower(), [flag, value])
        if word in found:
            raise OptionError(f"--objectives: {word} stands there twice")
        parsed = parse_options(ObjectiveConfig, options, "train.compare")
        own = {field: getattr(parsed, field) for field in given}
        found[word] = dataclasses.replace(config, **own)
    return found


def _seeds(text: str) -> list[int]:
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise OptionError(f"--seeds {text}: must be whole numbers with commas between them, such as 0,1,2") from None
    if len(set(seeds)) < len(seeds):
        raise OptionError(f"--seeds {text}: a seed stands there twice")
    if not all(0 <= seed < 2**32 for seed in seeds):
        raise OptionError(f"--seeds {text}: must lie between 0 and {2**32 - 1}")
    return seeds


def _open_study(out: Path, config: CompareConfig, inputs: Inputs) -> None:
    """Makes the folder, or refuses one that holds something else."""
    record = {name: value for name, value in inputs.identity(config).items() if name not in _PER_RUN}
    path = out / "study.json"
    if path.is_file():
        if changed := changed_since(path, record, "; give another --out"):
            raise OptionError(f"--out {out}: holds a study with other {', '.join(changed)}; give another folder")
        return
    if occupied(out):
        raise OptionError(f"--out {out}: exists and is no study; give another folder")
    try:
        (out / "runs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"--out {out}: cannot write there ({error.strerror}); give another folder") from error
    replace_file(path, json.dumps(record, indent=2, sort_keys=True).encode())


def _finish_runs(
    config: CompareConfig, inputs: Inputs, variants: Mapping[str, CompareConfig], seeds: Sequence[int]
) -> dict[tuple[str, int], HeldOut]:
    """The held-out sums of every run, and under ("untuned", 0) of the model as it was."""
    plan: list[tuple[str, int, CompareConfig | None]] = [("untuned", 0, None)]
    # by seeds first: an interrupted study has all objectives of the seeds that are done
    plan += [(name, seed, dataclasses.replace(own, seed=seed)) for seed in seeds for name, own in variants.items()]
    assert config.out is not None
    done = {}
    for number, (name, seed, own) in enumerate(plan):
        objective = {} if own is None else {field: getattr(own, field) for field in _OBJECTIVE}
        path = config.out / "runs" / _file_name(name, seed, objective)
        result = _stored(path, objective)
        if result is None:
            began = time.monotonic()
            # the figures of the untuned model are the same whatever is asked of it; the columns are those of a variant
            result = _one_run(own or next(iter(variants.values())), inputs, path.parent, train=own is not None)
            seconds, mean = time.monotonic() - began, result.means()["all"]
            content = {
                "objective": objective, "seed": seed, "seconds": seconds, "classes": CLASSES,
                "sample_ids": result.sample_ids, "nll": result.nll.tolist(), "tokens": result.tokens.tolist(),
            }  # fmt: skip
            replace_file(path, json.dumps(content).encode())
            which = f"{number}/{len(plan) - 1}  {name}, seed {seed}"
            log.info("%s: held-out nll %.4f  (%.0f s)", which, mean, seconds)
        done[name, seed] = result
    return done


def _file_name(variant: str, seed: int, objective: Mapping[str, Any]) -> str:
    """Another file for other options of the objective, so that nothing that is done is lost."""
    options = hashlib.sha256(json.dumps(objective, sort_keys=True).encode()).hexdigest()[:8]
    plain = "".join(c if c.isalnum() or c in "._" else "_" for c in variant)
    return f"{plain[:100]}-{seed}-{options}.json"


def _stored(path: Path, objective: Mapping[str, Any]) -> HeldOut | None:
    """The sums of a run that is done; None for one that is not, or that had other options."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["objective"] != json.loads(json.dumps(objective)) or content["classes"] != list(CLASSES):
            return None
        sums = [np.array(content[name], dtype=np.float64) for name in ("nll", "tokens")]
        if any(found.shape != (len(content["sample_ids"]), len(CLASSES)) for found in sums):
            raise ValueError("sums of another shape")
        return HeldOut(tuple(content["sample_ids"]), *sums)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DatasetError(f"{path}: damaged; remove it, and that run is made again") from error


def _one_run(config: CompareConfig, inputs: Inputs, out: Path, *, train: bool) -> HeldOut:
    trainer = make_trainer(inputs, config, out, save_strategy="no", eval_strategy="no", eval_on_start=False)
    if train:
        trainer.train()
    return trainer.held_out_sums()


def _rows(done: Mapping[tuple[str, int], HeldOut], names: Sequence[str], seeds: Sequence[int]) -> list[Row]:
    untuned = done["untuned", 0]
    if any(result.sample_ids != untuned.sample_ids for result in done.values()):
        raise DatasetError("the runs were judged on unlike samples; remove runs/ of the study, and start it again")
    sums = {name: np.stack([done[name, seed].nll for seed in seeds]) for name in names}
    return study_rows(sums, untuned.nll, untuned.tokens, CLASSES)


def _write(out: Path, rows: Sequence[Row], seeds: Sequence[int], inputs: Inputs) -> None:
    import polars as pl

    held_out = inputs.data.held_out
    assert held_out is not None
    plain = [_plain(row) for row in rows]
    content = {
        "seeds": list(seeds), "train_samples": inputs.data.train.samples, "held_out_samples": held_out.samples,
        "unit": "nats a token", "note": NOTE, "rows": plain,
    }  # fmt: skip
    replace_file(out / "comparison.json", json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False).encode())
    replace_file(out / "comparison.csv", pl.DataFrame(plain, infer_schema_length=None).write_csv().encode())
    replace_file(out / "comparison.md", (markdown(rows) + f"\n{NOTE}\n").encode())
    for kind, picture in draw(rows).items():
        replace_file(out / f"comparison.{kind}", picture)


def _plain(row: Row) -> dict[str, Any]:
    """A flat record; what does not exist is None."""
    cells: dict[str, Any] = {"objective": row.objective, "class": row.token_class, "tokens": row.tokens}
    for name in ("nll", "difference", "against"):
        found = getattr(row, name)
        for column, end in ((name, "value"), (f"{name}_low", "low"), (f"{name}_high", "high")):
            number = getattr(found, end, math.nan)
            cells[column] = number if math.isfinite(number) else None
    return cells


if __name__ == "__main__":
    main(run)
