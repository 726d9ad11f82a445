"""Instruction/answer pairs from files: every input row becomes one Row, good or bad."""

from __future__ import annotations

from curate.sources.opening import BUNDLED, open_sources
from curate.sources.reasons import READ_REASONS
from curate.sources.spec import SourceSpec, parse_spec, spec_text
from curate.sources.types import Row, Source

__all__ = ["BUNDLED", "READ_REASONS", "Row", "Source", "SourceSpec", "open_sources", "parse_spec", "spec_text"]
