"""The results of a run for people: the table on a terminal, and the card (README.md) of the tuned model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from curate.card import escape_markdown
from train.reports.metrics import CLASSES, nll_name

__all__ = ["model_card", "results_table"]


def results_table(results: Mapping[str, Any]) -> Table:
    """nll of held-out tokens, which says how likely the reference is, not whether generated code works."""
    table = Table(title="Held-out nll (nats a token; 95 % intervals by samples)", box=None, title_justify="left")
    for name in ("tokens", "number", "before", "after"):
        table.add_column(name, justify="left" if name == "tokens" else "right")
    for row in _rows(results, intervals=True):
        table.add_row(*row)
    return table


def _rows(results: Mapping[str, Any], *, intervals: bool) -> Iterator[list[str]]:
    """Of each class: its name, the number of its tokens, nll before and after."""
    for token_class in CLASSES:
        name = f"eval_{nll_name(token_class)}"
        cells = []
        for line in (results["before"], results["after"]):
            value, low, high = (line.get(name + end) for end in ("", "_from", "_to"))
            interval = "" if low is None or high is None or not intervals else f" [{low:.4f}, {high:.4f}]"
            cells.append("-" if value is None else f"{value:.4f}{interval}")
        yield [token_class.replace("_", " "), f"{results['held_out_tokens'][token_class]:.0f}", *cells]


def model_card(record: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    """Markdown with the Hub's front matter, out of training.json and results.json; names are escaped."""
    run = record["run"]
    lora = run["tuning"] == "lora"
    base = run["model"]["name"].partition(" (")[0]
    on_hub = re.fullmatch(r"[\w.-]+/[\w.-]+", base) is not None
    head = ["library_name: " + ("peft" if lora else "transformers"), "pipeline_tag: text-generation"]
    head += ["tags:", "- cuda", f"- {run['objective']}", *(["- lora"] if lora else [])]
    if on_hub:
        head.insert(0, f"base_model: {json.dumps(base)}")
    name, data = escape_markdown(run["model"]["name"]), ", ".join(map(escape_markdown, record["data"]))
    what = f"a LoRA adapter (rank {run['lora_r']}) for" if lora else "all parameters of"
    load = "AutoModelForCausalLM.from_pretrained(FOLDER)"
    if lora:
        model = f'AutoModelForCausalLM.from_pretrained("{base if on_hub else "BASE"}")'
        load = f"PeftModel.from_pretrained({model}, FOLDER)"
    lines = ["---", *head, "---", "", f"# {escape_markdown(base)}, tuned with {run['objective']}", ""]
    lines += [f"Made by `python -m train.sft` of cuset: {what} {name}, {results['steps']} steps over"]
    lines += [f"{run['samples']} annotated samples ({data}). `training.json` holds all options.", ""]
    lines += [f"Load it with `{load}`, where FOLDER is this one.", ""]
    if results["before"] and results["after"]:
        lines += [f"Negative log-likelihood of {run['held_out_samples']} held-out samples, nats a token:", ""]
        lines += ["| tokens | number | before | after |", "|---|---|---|---|"]
        lines += [f"| {' | '.join(row)} |" for row in _rows(results, intervals=False)]
        lines += ["", "It says how likely the reference answers are, not whether generated kernels work."]
    return "\n".join(lines).rstrip() + "\n"
