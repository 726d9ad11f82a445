"""The numbers behind the paper's claims on one dataset, each with an interval by samples, and the verdicts."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from analysis.bootstrap import DRAWS, SHIFTS
from analysis.controls import CONTROLS, Controlled, control_tokens
from analysis.dataset import LABELS, Dataset
from analysis.measures import (
    RULES,
    CategoryFinding,
    OverlapFinding,
    TokenFinding,
    WindowFinding,
    category_findings,
    overlap_findings,
    token_finding,
    window_finding,
)
from analysis.verdicts import NOTES, Verdict, token_verdicts, window_verdicts
from analysis.windows import windows_by_sample

__all__ = ["Findings", "find", "plain"]

_Row = TokenFinding | CategoryFinding | OverlapFinding | WindowFinding


@dataclass(frozen=True)
class Findings:
    """All of one dataset. `missing`: what could not be computed, and why, one sentence each; `notes`: how to read the
    rest."""

    dataset: str
    model: str
    context: str
    samples: int
    scored_samples: int
    code_tokens: int
    unscored_tokens: int
    draws: int
    seed: int
    tokens: tuple[TokenFinding, ...] = ()
    categories: tuple[CategoryFinding, ...] = ()
    overlap: tuple[OverlapFinding, ...] = ()
    windows: tuple[WindowFinding, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> str:
        """One JSON object; what does not exist is null, never NaN."""
        return json.dumps(plain(asdict(self)), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def to_csv(self) -> str:
        """One line a number: section, dataset, labels, control, name, number, low, high, paper, verdict."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(
            ["section", "dataset", "labels", "control", "name", "number", "low", "high", "paper", "verdict"]
        )
        for v in self.verdicts:
            row = [v.claim, v.number, v.low, v.high, v.paper, v.verdict]
            writer.writerow(["verdict", self.dataset, v.labels, v.control, *map(_cell, row)])
        sections: dict[str, Sequence[_Row]] = {
            "tokens": self.tokens,
            "category": self.categories,
            "overlap": self.overlap,
            "windows": self.windows,
        }
        for section, rows in sections.items():
            for name, labels, control, number, low, high in _long(rows):
                row = [name, number, low, high, None, None]
                writer.writerow([section, self.dataset, labels, control, *map(_cell, row)])
        return out.getvalue()


def find(dataset: Dataset, draws: int = DRAWS, seed: int = 0) -> Findings:
    """The findings of a dataset; intervals and tests from `draws` draws, the same for the same seed.

    Never fails for want of data: `missing` says what is not there. Raises DatasetError where the files are damaged.
    """
    head: dict[str, Any] = {
        "dataset": dataset.name,
        "model": dataset.model,
        "context": str(dataset.manifest["config"].get("context", "")),
        "samples": dataset.samples,
        "draws": draws,
        "seed": seed,
    }
    if not dataset.scored:
        why = "no sample" if not dataset.samples else "no scores: it was built with --skip-scoring"
        return Findings(
            **head, scored_samples=0, code_tokens=0, unscored_tokens=0, missing=(f"The dataset has {why}.",)
        )
    controlled = control_tokens(dataset, min(draws, SHIFTS), seed)
    tokens = tuple(token_finding(controlled, labels, control, draws, seed) for labels in LABELS for control in CONTROLS)
    plain = {t.labels: t for t in tokens if t.control == "none"}
    thresholds = {labels: t.neutral_mean for labels, t in plain.items()}
    counted = windows_by_sample(dataset, thresholds)
    windows = tuple(
        window_finding(counted[labels], labels, rule, thresholds[labels], draws=draws, seed=seed)
        for labels in LABELS
        for rule in RULES
    )
    verdicts = [v for t in tokens for v in token_verdicts(t)]
    verdicts += [v for w in windows for v in window_verdicts(w)]
    first = plain["statement"]
    return Findings(
        **head,
        scored_samples=controlled.samples,
        code_tokens=first.sensitive_tokens + first.neutral_tokens,
        unscored_tokens=controlled.unscored,
        tokens=tokens,
        categories=tuple(category_findings(controlled, draws, seed)),
        overlap=tuple(overlap_findings(controlled, draws, seed)),
        windows=windows,
        verdicts=tuple(verdicts),
        missing=tuple(_missing(dataset, tokens, windows, controlled)),
        notes=NOTES,
    )


def _missing(
    dataset: Dataset, tokens: Sequence[TokenFinding], windows: Sequence[WindowFinding], c: Controlled
) -> Iterable[str]:
    if c.samples < dataset.samples:
        yield f"{dataset.samples - c.samples} samples have no scores and are left out."
    if c.unscored:
        yield f"{c.unscored} code tokens have a score that is not a number and are left out."
    said: set[str] = set()  # label sets without a class: no control brings it back
    for t in tokens:
        absent = [
            name for name, n in (("sensitive", t.sensitive_tokens), ("neutral", t.neutral_tokens)) if not n
        ]  # fmt: skip
        if absent and t.labels not in said:
            under = "" if t.control == "none" else f" under the control {t.control}"
            which = f"No {absent[0]}" if len(absent) == 1 else "Neither a sensitive nor a neutral"
            yield f"{which} code token by {t.labels} labels{under}: nothing to compare."
            if t.control == "none":
                said.add(t.labels)
    for w in windows:
        if w.rule == "touching" and not w.windows:
            yield f"No sample has a window of {w.length} scored code tokens: no low windows ({w.labels} labels)."
        elif w.rule == "touching" and not w.low_windows and not math.isnan(w.threshold):
            yield f"No window is low by {w.labels} labels: no share of low windows."


def plain(value: Any) -> Any:
    """The value with None for what is not finite."""
    if isinstance(value, dict):
        return {name: plain(v) for name, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(value: object) -> object:
    return "" if value is None or (isinstance(value, float) and not math.isfinite(value)) else value


def _long(
    rows: Sequence[_Row],
) -> Iterator[tuple[object, ...]]:
    """(name, labels, control, number, low, high) of every number."""
    for row in rows:
        values = {f.name: getattr(row, f.name) for f in fields(row)}
        labels = values.pop("labels", values.pop("sensitive_by", "category"))
        control = values.pop("control", values.pop("rule", values.pop("category", "")))
        for name, number in values.items():
            if not name.endswith(("_low", "_high")) or f"{name.rpartition('_')[0]}" not in values:
                yield name, labels, control, number, values.get(f"{name}_low"), values.get(f"{name}_high")
