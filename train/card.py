"""The card (README.md) of a tuned model: what it was made of, what it is good for, how to load it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from curate.card import escape_markdown
from train.metrics import CLASSES

__all__ = ["model_card"]


def model_card(record: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    """Markdown with the Hub's front matter, out of training.json and results.json."""
    run = record["run"]
    lora = run["tuning"] == "lora"
    base = run["model"]["name"].partition(" (")[0]
    head = ["library_name: " + ("peft" if lora else "transformers"), "pipeline_tag: text-generation"]
    head += ["tags:", "- cuda", f"- {run['objective']}", *(["- lora"] if lora else [])]
    if base.count("/") == 1:
        head.insert(0, f"base_model: {json.dumps(base)}")
    plain = escape_markdown(base)
    what = f"a LoRA adapter (rank {run['lora_r']}) for" if lora else "all parameters of"
    lines = ["---", *head, "---", "", f"# {plain}, tuned with {run['objective']}", ""]
    lines += [
        f"Made by `python -m train.sft` of cuset: {what} {escape_markdown(run['model']['name'])}, {results['steps']} steps over"
    ]
    lines += [
        f"{run['samples']} annotated samples ({', '.join(map(escape_markdown, record['data']))}). `training.json` holds all options.",
        "",
    ]
    if results["before"] and results["after"]:
        lines += [f"Negative log-likelihood of {run['held_out_samples']} held-out samples, nats a token:", ""]
        lines += ["| tokens | number | before | after |", "|---|---|---|---|"]
        for name in CLASSES:
            key = "eval_nll" if name == "all" else f"eval_nll_{name}"
            found = (results[when].get(key) for when in ("before", "after"))
            cells = ["-" if value is None else f"{value:.4f}" for value in found]
            number = f"{results['held_out_tokens'][name]:.0f}"
            lines.append(f"| {' | '.join([name.replace('_', ' '), number, *cells])} |")
        lines += ["", "It says how likely the reference answers are, not whether generated kernels work."]
    return "\n".join(lines).rstrip() + "\n"
