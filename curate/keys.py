"""What a stage's results depend on, as a hash: two builds with the same key have the same rows behind that stage."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from curate.config import BuildConfig
from curate.filters import COMPARED, FILTERS, actions
from curate.schema import FORMAT_VERSION
from curate.stages import JUDGED_EARLY, MODEL_STAGES, PARSE_STAGES

__all__ = ["INPUTS", "plan_of", "scores_key", "stage_keys"]


def _hash(spec: object) -> str:
    return hashlib.sha256(json.dumps(spec, sort_keys=True, default=str).encode()).hexdigest()[:16]


_REGIONS_VERSION = 1
_READ_OPTIONS = ("map", "license", "limit")
_JUDGE_OPTIONS = ("compile", "arch", "compile_seconds", "execute_seconds", "near_duplicate")
INPUTS = ("sources", "model", "tokenizer", "scorer", "reference", "compilers", "against", "execute", "merged")
"""What beside its options a build starts from, where it has it; the manifest says each."""
_MODELS = ("model", "tokenizer", "scorer", "reference")


def stage_keys(config: BuildConfig, inputs: Mapping[str, Any]) -> dict[str, str]:
    """A key for every stage: hash of its options, its code version, its filters and the key before it.

    `inputs` is what a build starts from (INPUTS): fingerprints of the sources, identity of models and scorer. The
    thresholds of the early filters are left out of the parse pass, which does not know them, and come in behind it.
    """
    some = [config.options("shards", "shard")] if config.shards is not None else []
    merged = [inputs["merged"]] if "merged" in inputs else []
    keys = {"read": _hash([inputs["sources"], config.options(*_READ_OPTIONS), *some, *merged])}
    before = keys["read"]
    for stage in PARSE_STAGES:
        before = keys[stage.name] = _hash([stage.name, stage.version, config.options(*stage.options), before])
    compared = [*(inputs.get(name) for name in ("compilers", "against", "execute")), config.options(*_JUDGE_OPTIONS)]
    before = keys["judge"] = _hash([_filter_options((*JUDGED_EARLY, "compile", "execute"), config), compared, before])
    models = {name: inputs.get(name) for name in _MODELS}
    for stage in MODEL_STAGES:
        own = [stage.name, stage.version, config.options(*stage.options), _filter_options([stage.name], config)]
        before = keys[stage.name] = _hash([own, models, before])
    keys["regions"] = _hash(["regions", _REGIONS_VERSION, config.options("region_gap"), before])
    return keys


def scores_key(config: BuildConfig, inputs: Mapping[str, Any]) -> str:
    """What the scores of one row depend on, whichever rows stand beside it: models, tokenizer, context, arithmetic."""
    models = {name: inputs.get(name) for name in _MODELS}
    steps = [(s.name, s.version, config.options(*s.options)) for s in MODEL_STAGES if s.name in ("tokenise", "score")]
    return _hash([models, steps, [s.version for s in PARSE_STAGES]])


def plan_of(config: BuildConfig, inputs: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, str]:
    """What a folder is opened with (`curate.folder`): what is built, over which sources, with which scores."""
    return {
        "format_version": str(FORMAT_VERSION),
        "build": f"{keys['regions']}-{config.shard_rows}",
        "sources": keys["read"],
        "scores": scores_key(config, inputs),
    }


def _filter_options(after: Sequence[str], config: BuildConfig) -> list[object]:
    chosen = actions(config.filter)
    found = [(f.reason, chosen[f.reason], config.options(*f.options)) for f in FILTERS if f.after in after]
    return [*found, *((reason, chosen[reason]) for reason in COMPARED if "execute" in after)]
