"""Columns of an annotated dataset: their Arrow types, meaning and unit.

The order here is the order in the files.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa

__all__ = [
    "EXTRA_SCORES",
    "FORMAT_VERSION",
    "PUBLIC_TABLES",
    "REFUSED",
    "REGIONS",
    "REJECTED",
    "SAMPLES",
    "SHARD_TABLES",
    "TABLES",
    "TOKEN_LISTS",
    "Column",
    "arrow_schema",
    "table_columns",
]

FORMAT_VERSION = 1
"""Raised when a column changes its meaning; a reader refuses what it does not know."""


@dataclass(frozen=True)
class Column:
    """One column: its type, and its meaning with unit in one sentence."""

    name: str
    type: pa.DataType
    meaning: str


_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_FLAGS = pa.list_(pa.struct([("reason", pa.string()), ("detail", pa.string())]))
_REDACTIONS = pa.list_(pa.struct([("kind", pa.string()), ("count", pa.int32())]))
_SPANS = pa.list_(pa.struct([("start", pa.int32()), ("end", pa.int32())]))

_TOKENS = (
    Column(
        "char_start",
        pa.list_(pa.int32()),
        "first character of the response that the token covers; -1: a token of the template",
    ),
    Column("char_end", pa.list_(pa.int32()), "end of those characters, exclusive; -1: a token of the template"),
    Column("logprob", pa.list_(pa.float16()), "natural logarithm of the probability that the model gives to the token"),
    Column("entropy", pa.list_(pa.float16()), "entropy of the model's distribution at the token, in nats"),
    Column("rank", pa.list_(pa.int32()), "rank of the token among the model's choices; 1: the most probable"),
    Column("category", pa.list_(pa.uint8()), "number of the CUDA-sensitive category; 0: neutral; names below"),
    Column("statement", pa.list_(pa.bool_()), "inside a whole statement of the paper's narrower label set"),
    Column(
        "index_distance",
        pa.list_(pa.uint8()),
        "def-use steps from a thread index; 0: the index itself; 255: not derived",
    ),
    Column("location", pa.list_(pa.uint8()), "0 none, 1 kernel, 2 device function, 3 launch, 4 set-up of a launch"),
    Column("in_code", pa.list_(pa.bool_()), "inside the CUDA code of the response (code_spans)"),
    Column("token_weight", pa.list_(pa.float32()), "M of equation (4), without the sample weight"),
)
TOKEN_LISTS: tuple[str, ...] = tuple(c.name for c in _TOKENS)
"""Lists of equal length: len(input_ids) - prompt_tokens, one value a response token."""

EXTRA_SCORES: tuple[Column, ...] = (
    Column(
        "topk_ids", pa.list_(pa.list_(pa.int32())), "ids of the most probable tokens at the token, falling (--topk)"
    ),
    Column("topk_logprob", pa.list_(pa.list_(pa.float16())), "natural logarithm of the probabilities of topk_ids"),
    Column(
        "entropy_top20",
        pa.list_(pa.float16()),
        "entropy of the 20 most probable tokens, renormalised, in nats (--entropy-top20)",
    ),
    Column("ref_logprob", pa.list_(pa.float16()), "logprob of the same token under the reference model (--reference)"),
)
"""Further token lists, in the files only when a build asks for them."""

SAMPLES: tuple[Column, ...] = (
    Column("sample_id", pa.string(), "SHA-256 of the messages, first 32 hexadecimal digits"),
    Column("source", pa.string(), "name of the source"),
    Column("source_id", pa.string(), "the row's own id, else its line or path in the source"),
    Column("source_revision", pa.string(), "revision of the source, where it has one"),
    Column("license", pa.string(), "SPDX expression, where known: of the code's own headers, the row or the source"),
    Column("attribution", pa.list_(pa.string()), "copyright lines of the code, kept as its licence asks"),
    Column("redactions", _REDACTIONS, "secrets and addresses that placeholders stand for, by kind"),
    Column("correct", pa.bool_(), "the source's own verdict on the answer, where it has one"),
    Column("flags", _FLAGS, "what filters found in it that only mark: reason, and figures behind it"),
    Column(
        "synthetic_prompt", pa.bool_(), "the instruction was made from a source file, not written by a person or model"
    ),
    Column("messages", _MESSAGES, "the conversation, up to the answer and with it"),
    Column("prompt", pa.string(), "the last turn of the user before the answer"),
    Column("response", pa.string(), "the answer: the last turn of the assistant"),
    Column("code_spans", _SPANS, "characters of the response that are CUDA code, ends exclusive"),
    Column("kernels", pa.int32(), "definitions of `__global__` functions"),
    Column("device_functions", pa.int32(), "definitions of `__device__` functions"),
    Column("launches", pa.int32(), "kernel launches"),
    Column("error_share", pa.float32(), "share of the kernels' bytes that the grammar takes for errors"),
    Column("code_chars", pa.int32(), "characters of the CUDA code"),
    Column("comment_share", pa.float32(), "share of the code's bytes in comments"),
    Column("longest_line", pa.int32(), "characters of the longest line of code"),
    Column("number_table_share", pa.float32(), "share of the code's bytes in tables of numbers"),
    Column("repeated_line_share", pa.float32(), "share of the lines of code that stand before in it"),
    Column("non_ascii_share", pa.float32(), "share of the response's characters that are not ASCII"),
    Column(
        "compile_status",
        pa.string(),
        "device code under the compiler: ok, skipped (nobody could judge), timeout, error, refused (reaches for files)",
    ),
    Column("compile_engine", pa.string(), "nvrtc or nvcc with its version, both, or none"),
    Column("compile_arch", pa.string(), "architectures that it compiles for; of another status the one that says so"),
    Column("compile_log", pa.string(), "first lines of what the compiler said, or why it was not asked"),
    Column("kernel_names", pa.list_(pa.string()), "names of the kernels, in order"),
    Column("registers", pa.list_(pa.int32()), "registers a thread of each kernel; null where it was not compiled"),
    Column("shared_bytes", pa.list_(pa.int32()), "static shared memory a block of each kernel, in bytes"),
    Column("spill_bytes", pa.list_(pa.int32()), "registers of each kernel that were spilled to local memory, in bytes"),
    Column("execute_status", pa.string(), "pass, fail or timeout of the command that ran it (--execute)"),
    Column("execute_output", pa.string(), "the end of what that command wrote"),
    Column("input_ids", pa.list_(pa.int32()), "token ids of prompt and response, end-of-turn token included"),
    Column("prompt_tokens", pa.int32(), "how many of them stand before the response"),
    Column("sample_weight", pa.float32(), "w of equation (8)"),
    Column("min_window_confidence", pa.float32(), "C of equation (7)"),
    Column("min_window_start", pa.int32(), "first token of that window, counted in response tokens"),
    *_TOKENS,
)

REJECTED: tuple[Column, ...] = (
    Column("id", pa.string(), "number of the row in the order of reading, from 0"),
    Column("source", pa.string(), "name of the source"),
    Column("source_id", pa.string(), "the row's own id, else its line or path in the source"),
    Column("stage", pa.string(), "the stage that refused it"),
    Column(
        "reason", pa.string(), "why, in one word of curate.filters or curate.sources; failed: the stage raised an error"
    ),
    Column("detail", pa.string(), "figures behind the reason; no text of the row"),
)

REFUSED: tuple[Column, ...] = (
    *REJECTED,
    Column("evidence", pa.string(), "what shows it: words of the compiler, the passage or class of a benchmark"),
    Column("prompt", pa.string(), "the prompt, where the row was read"),
    Column("response", pa.string(), "the response, where the row was read"),
    Column("raw", pa.string(), "the row as it stood in the source, where it could not be read"),
)
"""The refused texts: local evidence, never published."""

REGIONS: tuple[Column, ...] = (
    Column("region_id", pa.string(), "SHA-256 of sample_id and first_token, first 32 hexadecimal digits"),
    Column("sample_id", pa.string(), "the sample that it stands in"),
    Column("first_token", pa.int32(), "its first token, counted in response tokens from 0"),
    Column("last_token", pa.int32(), "its last token, inclusive"),
    Column("char_start", pa.int32(), "first character of the response that its tokens cover"),
    Column("char_end", pa.int32(), "end of those characters, exclusive"),
    Column("node_start", pa.int32(), "first character of the smallest syntax node around it, in the response"),
    Column("node_end", pa.int32(), "end of that node, exclusive"),
    Column("category", pa.uint8(), "number of the category of most of its sensitive tokens; names below"),
    Column("node_type", pa.string(), "type of that node in tree-sitter-cuda; brackets count for what they belong to"),
    Column(
        "mean_confidence", pa.float32(), "mean probability that the model gives to its tokens, merged gaps included"
    ),
    Column("min_confidence", pa.float32(), "lowest probability among them"),
    Column("tokens", pa.int32(), "its length in tokens, merged gaps included"),
    Column("text", pa.string(), "those characters of the response"),
    Column("location", pa.uint8(), "number of the location of most of its tokens; names below"),
)
"""Low-confidence CUDA-sensitive regions (`curate.regions`)."""

SHARD_TABLES: dict[str, tuple[Column, ...]] = {"samples": SAMPLES, "rejected": REJECTED, "refused": REFUSED}
"""The tables that the rows of a shard go to."""

TABLES: dict[str, tuple[Column, ...]] = {**SHARD_TABLES, "regions": REGIONS}
"""The tables of a dataset, each a folder of parts."""

PUBLIC_TABLES: tuple[str, ...] = ("samples", "regions", "rejected")
"""Those that a dataset is published with."""


def table_columns(table: str, extra_scores: Collection[str] = ()) -> tuple[Column, ...]:
    """The columns of a table in a build that asks for these extra scores."""
    extra = tuple(c for c in EXTRA_SCORES if c.name in extra_scores) if table == "samples" else ()
    return TABLES[table] + extra


def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """The Arrow schema of a table of these columns."""
    return pa.schema([(c.name, c.type) for c in columns])
