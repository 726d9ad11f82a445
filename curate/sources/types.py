"""What reading hands on: one Row for every input row, good or bad, from a Source that can be named in a manifest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Row", "Source"]


@dataclass(frozen=True)
class Row:
    """One input row. A row that could not be read carries a `reason` of `READ_REASONS`, and empty texts."""

    source: str
    """The source's name."""
    source_id: str
    """The row's own id, else its 1-based line or row number; the path inside the folder for a source file."""
    position: int
    """1-based line (JSONL), row (JSON, Parquet) or file number: unique in a source, where an id may not be."""
    source_revision: str | None = None
    license: str | None = None
    messages: tuple[tuple[str, str], ...] = ()
    """(role, content) up to and including the last assistant turn."""
    prompt: str = ""
    """The last user turn before the answer."""
    response: str = ""
    """The last assistant turn."""
    synthetic_prompt: bool = False
    """The whole instruction was written by this program, because the source is a bare source file."""
    correct: bool | None = None
    """The source's own verdict on the answer (its tests, say), where it has one."""
    reason: str | None = None
    detail: str = ""
    """For a bad row what exactly is wrong; for a good one what was left out, if anything."""
    raw: str = ""
    """Text of a row that could not be read, safe to encode as UTF-8: evidence that stays on this machine."""


class Source(Protocol):
    """Something rows come from. Reading streams: memory does not grow with the number of rows (JSON arrays
    excepted).
    """

    @property
    def name(self) -> str:
        """Stable, free of machine paths, unique in a build."""

    def fingerprint(self) -> dict[str, object]:
        """name, kind, bytes, sha256 (of the Hub: revision): what the manifest keeps to know this input again."""

    def rows(self) -> Iterator[Row]:
        """One Row for every input row, in order. Raises SourceError where the file itself breaks off."""
