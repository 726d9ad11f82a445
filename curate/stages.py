"""The stages of a build, as one list: each a pure function from frame to frame that adds columns to its rows.

    read -> redact -> extract -> parse -> license -> [judge: filters, compile, contamination, execute, duplicates]
        -> tokenise -> score -> label -> weigh -> [regions] -> write

Up to parse the stages measure, and the filters (`curate.filters`) that need no more are judged in a pass of their own;
those of a later stage run right behind it. A stage depends on nothing but its rows,
the options that it declares and the model; that is what its key is made of (`curate.keys`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from curate.align import CharLabels, token_labels
from curate.config import BuildConfig
from curate.filters import FILTERS, Filter, actions
from curate.frames import Refused, each_row, flag
from curate.measure import CHAR_LABELS, code_blocks, extract_rows, license_rows, parse_rows, redact_rows
from curate.score_stage import score_rows
from curate.tokens import Encoder, Untokenisable
from curate.weights import weigh

if TYPE_CHECKING:
    from curate.model import ModelFiles
    from curate.previous import PreviousScores
    from curate.score import Scorer

__all__ = [
    "JUDGED_EARLY",
    "MODEL_STAGES",
    "PARSE_STAGES",
    "STAGE_ORDER",
    "Context",
    "Stage",
    "asked_of_model",
    "measured",
    "reweighed",
    "run_filters",
    "run_stages",
]


class Context:
    """What stages share: the configuration, and the model and tokenizer, loaded when first asked for."""

    def __init__(
        self,
        config: BuildConfig,
        scorer: Scorer | None = None,
        done: Callable[[int, int], None] = lambda samples, tokens: None,
    ) -> None:
        self.config = config
        self.done = done
        self.previous: PreviousScores | None = None
        self._scorer = scorer

    @cached_property
    def files(self) -> ModelFiles:
        from curate.model import locate_model

        return locate_model(self.config.model)

    @cached_property
    def encoder(self) -> Encoder:
        return Encoder(self.files.load_tokenizer(), self.config.context)

    @cached_property
    def reference(self) -> ModelFiles | None:
        """The second model, where one is asked for; raises ModelError where it reads other tokens than the first."""
        from curate.reference import locate_reference

        return locate_reference(self.config.reference, self.encoder.tokenizer) if self.config.reference else None

    def scorer_identity(self) -> dict[str, object]:
        """Arithmetic and kind of device, known before the model is loaded."""
        from curate.score import ModelScorer

        return self._scorer.identity() if self._scorer else ModelScorer.identity_of(self.config)

    @cached_property
    def scorer(self) -> Scorer:
        from curate.score import ModelScorer

        return self._scorer or ModelScorer(self.files, self.config, self.reference)


@dataclass(frozen=True)
class Stage:
    """One step of a build.

    `version` is raised when its code starts to give other results; `options` are the fields it reads.
    """

    name: str
    version: int
    options: tuple[str, ...]
    run: Callable[[pl.DataFrame, Context], pl.DataFrame]


def _tokenise(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    encoder = context.encoder

    def compute(row: dict[str, Any]) -> dict[str, Any]:
        try:
            sample = encoder.encode(row["messages"], code_blocks(row))
        except Untokenisable as error:
            raise Refused(error.reason, error.detail) from error
        return {name: value if isinstance(value, int) else pl.Series(value) for name, value in vars(sample).items()}

    lists = {name: pl.List(pl.Int32()) for name in ("input_ids", "char_start", "char_end")}
    return each_row(frame, "tokenise", ["messages", "blocks"], compute, {**lists, "prompt_tokens": pl.Int32()})


def _array(values: Any, dtype: Any) -> Any:
    return np.asarray(values, dtype=dtype)


def _label(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    def compute(row: dict[str, Any]) -> dict[str, Any]:
        chars = CharLabels(**{
            name: np.frombuffer(row[f"char_{name}"], dtype=bool if name in {"statement", "in_code"} else np.uint8)
            for name in CHAR_LABELS
        })  # fmt: skip
        tokens = token_labels(
            row["response"], chars, _array(row["char_start"], np.int32), _array(row["char_end"], np.int32)
        )
        return {name: pl.Series(value) for name, value in vars(tokens).items()}

    schema: dict[str, pl.DataType] = {
        "category": pl.List(pl.UInt8()), "statement": pl.List(pl.Boolean()), "index_distance": pl.List(pl.UInt8()),
        "location": pl.List(pl.UInt8()), "in_code": pl.List(pl.Boolean()),
    }  # fmt: skip
    return each_row(
        frame,
        "label",
        ["response", "char_start", "char_end", *(f"char_{name}" for name in CHAR_LABELS)],
        compute,
        schema,
    )


def _weigh(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    def compute(row: dict[str, Any]) -> dict[str, Any] | None:
        if row["logprob"] is None:
            return None
        token_weights, weight = weigh(
            _array(row["logprob"], np.float16),
            _array(row["location"], np.uint8),
            _array(row["in_code"], bool),
            context.config,
        )
        return {
            "token_weight": pl.Series(token_weights),
            "sample_weight": weight.weight,
            "min_window_confidence": weight.min_confidence,
            "min_window_start": weight.min_start,
        }

    schema: dict[str, pl.DataType] = {
        "token_weight": pl.List(pl.Float32()), "sample_weight": pl.Float32(), "min_window_confidence": pl.Float32(),
        "min_window_start": pl.Int32(),
    }  # fmt: skip
    return each_row(frame, "weigh", ["logprob", "location", "in_code"], compute, schema)


PARSE_STAGES: tuple[Stage, ...] = (
    Stage("redact", 1, ("redact",), redact_rows),
    Stage("extract", 3, (), extract_rows),
    Stage("parse", 2, (), parse_rows),
    Stage("license", 1, (), license_rows),
)
"""Measure each row by itself, in a pool of processes; no model and no threshold."""

MODEL_STAGES: tuple[Stage, ...] = (
    Stage("tokenise", 1, ("context",), _tokenise),
    Stage("score", 1, ("skip_scoring", "batch_tokens", "topk", "entropy_top20"), score_rows),
    Stage("label", 1, (), _label),
    Stage("weigh", 1, ("tau", "lambda_", "window", "region_scope", "launch_scope", "device_functions"), _weigh),
)
"""Run shard by shard in the process that holds the model, on the rows that the filters and duplicates have left."""

JUDGED_EARLY = ("read", *(stage.name for stage in PARSE_STAGES))
"""Stages whose filters are judged on the measured rows, before any model; the others' run right behind their stage."""


STAGE_ORDER = (*JUDGED_EARLY, "compile", "contamination", "execute", "duplicates", *(s.name for s in MODEL_STAGES))
"""Every stage that may refuse a row; those in the middle compare rows with each other or with what stands outside."""


def run_stages(stages: Sequence[Stage], frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Runs stages in order."""
    for stage in stages:
        frame = stage.run(frame, context)
        if stage.name not in JUDGED_EARLY:
            frame = run_filters([stage.name], frame, context.config)
    return frame


def measured(config: BuildConfig, frame: pl.DataFrame) -> pl.DataFrame:
    """Runs the stages of the parse pass, in a process that knows nothing but the configuration."""
    return run_stages(PARSE_STAGES, frame, Context(config))


def asked_of_model(frame: pl.DataFrame) -> int:
    """How many rows of an annotated shard the stages of the model were asked for."""
    return int((frame["stage"].is_null() | frame["stage"].is_in([s.name for s in MODEL_STAGES])).sum())


def run_filters(after: Sequence[str], frame: pl.DataFrame, config: BuildConfig) -> pl.DataFrame:
    """Judges the rows that are not refused yet by the filters that stand behind the named stages, in their order."""
    chosen = actions(config.filter)
    for test in (f for f in FILTERS if f.after in after):
        action = chosen[test.reason]
        if action == "refuse":
            frame = each_row(frame, test.after, test.needs, partial(_refuse, test, config), {})
        elif action == "mark":
            judged = each_row(frame, test.after, test.needs, partial(_detail, test, config), {"found": pl.String()})
            frame = flag(judged.drop("found"), test.reason, judged["found"])
    return frame


def _refuse(test: Filter, config: BuildConfig, row: dict[str, Any]) -> None:
    detail = test.judge(row, config)
    if detail is not None:
        raise Refused(test.reason, detail)


def _detail(test: Filter, config: BuildConfig, row: dict[str, Any]) -> dict[str, Any]:
    return {"found": test.judge(row, config)}


def reweighed(samples: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Accepted rows of a finished dataset with the weights of another configuration."""
    open_rows = samples.with_row_index("row").with_columns(
        pl.col("row").cast(pl.Int64), *(pl.lit(None, pl.String).alias(name) for name in ("stage", "reason", "detail"))
    )
    return _weigh(open_rows, context)
