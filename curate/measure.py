"""The stages of the parse pass: each measures a row by itself, without a model and without a threshold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from curate.align import paint
from curate.checks import find_flaws
from curate.duplicates import FINGERPRINT, fingerprint
from curate.executing import has_main
from curate.extract import CodeBlock, extract_cuda
from curate.frames import FLAGS, ROWS, Refused, each_row, sample_id
from curate.licences import resolve_license
from curate.quality import measure_quality
from curate.syntax import label_parsed, parse_cuda

if TYPE_CHECKING:
    from curate.stages import Context

__all__ = ["CHAR_LABELS", "code_blocks", "extract_rows", "license_rows", "parse_rows", "redact_rows"]

_BLOCKS = pl.List(
    pl.Struct({
        "kind": pl.String(), "tag": pl.String(), "start": pl.Int32(), "end": pl.Int32(), "text": pl.String(),
        "starts": pl.List(pl.Int32()), "ends": pl.List(pl.Int32()),
    })
)  # fmt: skip
_SPANS = pl.List(pl.Struct({"start": pl.Int32(), "end": pl.Int32()}))


_REDACTED: dict[str, pl.DataType] = {name: ROWS[name] for name in ("sample_id", "messages", "prompt", "response")}
_COUNTS = pl.List(pl.Struct({"kind": pl.String(), "count": pl.Int32()}))


def redact_rows(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Secrets and e-mail addresses become placeholders before anything else reads the texts (`curate.redaction`)."""
    from curate.redaction import redact  # slow to import, and needed in the processes that parse alone

    def compute(row: dict[str, Any]) -> dict[str, Any]:
        found = redact([(turn["role"], turn["content"]) for turn in row["messages"]])
        if not found.counts:
            return {"redactions": []}
        return {
            "redactions": [{"kind": kind, "count": count} for kind, count in found.counts.items()],
            "new_sample_id": sample_id(found.messages),
            "new_messages": [{"role": role, "content": content} for role, content in found.messages],
            "new_prompt": next(content for role, content in reversed(found.messages[:-1]) if role == "user"),
            "new_response": found.messages[-1][1],
        }

    schema = {"redactions": _COUNTS, **{f"new_{name}": dtype for name, dtype in _REDACTED.items()}}
    if not context.config.redact:
        return frame.with_columns(pl.lit([], dtype=_COUNTS).alias("redactions"))
    frame = each_row(frame, "redact", ["messages"], compute, schema)
    return frame.with_columns(pl.coalesce(f"new_{name}", name).alias(name) for name in _REDACTED).drop(
        f"new_{name}" for name in _REDACTED
    )


def extract_rows(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Finds the CUDA code of the response."""

    def compute(row: dict[str, Any]) -> dict[str, Any]:
        blocks = extract_cuda(row["response"])
        return {
            "blocks": [
                {
                    **vars(b),
                    "starts": None if b.starts is None else b.starts.tolist(),
                    "ends": None if b.ends is None else b.ends.tolist(),
                }
                for b in blocks
            ],
            "code_spans": [{"start": b.start, "end": b.end} for b in blocks],
        }

    return each_row(frame, "extract", ["response"], compute, {"blocks": _BLOCKS, "code_spans": _SPANS})


def code_blocks(row: Mapping[str, Any]) -> list[CodeBlock]:
    """The column `blocks` of a row as extraction made it."""

    def array(values: list[int] | None) -> Any:
        return None if values is None else np.array(values, dtype=np.int32)

    return [CodeBlock(**{**b, "starts": array(b["starts"]), "ends": array(b["ends"])}) for b in row["blocks"]]


CHAR_LABELS = ("category", "statement", "index_distance", "location", "in_code")


def parse_rows(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Labels the characters of the response, one byte each, and measures what filters and later passes judge."""

    def compute(row: dict[str, Any]) -> dict[str, Any]:
        blocks = code_blocks(row)
        parsed = [parse_cuda(b.text) for b in blocks]
        if any(p.given_up for p in parsed):
            raise Refused("unparsable", "the grammar takes more than linear time to repair its errors")
        labels = [label_parsed(p) for p in parsed]
        painted = paint(len(row["response"]), zip(blocks, labels, strict=True))
        kernel_bytes = sum(x.kernel_bytes for x in labels)
        flaws = find_flaws(row["response"], row["prompt"], blocks, parsed, labels)
        prints = fingerprint(list(zip(parsed, labels, strict=True)))
        return {
            "kernels": sum(len(x.kernels) for x in labels),
            "device_functions": sum(len(x.device_functions) for x in labels),
            "launches": sum(x.launches for x in labels),
            "error_share": sum(x.error_bytes for x in labels) / kernel_bytes if kernel_bytes else 0.0,
            "kernel_names": [name for x in labels for name in x.kernels],
            "has_main": [has_main(p) for p in parsed],
            "flaws": [vars(flaw) for flaw in flaws],
            **vars(measure_quality(row["response"], blocks, parsed)),
            **(vars(prints) if prints else {}),
            **{f"char_{name}": getattr(painted, name).tobytes() for name in CHAR_LABELS},
        }

    schema: dict[str, pl.DataType] = {
        "kernels": pl.Int32(), "device_functions": pl.Int32(), "launches": pl.Int32(), "error_share": pl.Float32(),
        "kernel_names": pl.List(pl.String()), "has_main": pl.List(pl.Boolean()), "flaws": FLAGS,
        "code_chars": pl.Int32(), "comment_share": pl.Float32(), "longest_line": pl.Int32(),
        "number_table_share": pl.Float32(), "repeated_line_share": pl.Float32(), "non_ascii_share": pl.Float32(),
        **FINGERPRINT, **{f"char_{name}": pl.Binary() for name in CHAR_LABELS},
    }  # fmt: skip
    return each_row(frame, "parse", ["prompt", "response", "blocks"], compute, schema)


def license_rows(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    """The licence as an SPDX expression, of which a header in the code has the last word (`curate.licences`)."""

    def compute(row: dict[str, Any]) -> dict[str, Any]:
        found = resolve_license(row["license"], row["response"], [block["text"] for block in row["blocks"]])
        return {"license": found.expression, "attribution": list(found.attribution), "license_note": found.note}

    schema: dict[str, pl.DataType] = {
        "license": pl.String(), "attribution": pl.List(pl.String()), "license_note": pl.String(),
    }  # fmt: skip
    return each_row(frame, "license", ["license", "response", "blocks"], compute, schema)
