"""The card (README.md) of a tuned model: what it was made of, what it is good for, how to load it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from curate.card import escape_markdown
from train.reports.metrics import CLASSES

__all__ = ["model_card"]


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
        for token_class in CLASSES:
            key = "eval_nll" if token_class == "all" else f"eval_nll_{token_class}"
            found = (results[when].get(key) for when in ("before", "after"))
            cells = ["-" if value is None else f"{value:.4f}" for value in found]
            number = f"{results['held_out_tokens'][token_class]:.0f}"
            lines.append(f"| {' | '.join([token_class.replace('_', ' '), number, *cells])} |")
        lines += ["", "It says how likely the reference answers are, not whether generated kernels work."]
    return "\n".join(lines).rstrip() + "\n"
