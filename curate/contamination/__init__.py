"""Rows that a benchmark's tasks have got into: by prompt, by Python class, by near-duplicate CUDA."""

from __future__ import annotations

from curate.contamination.references import Match, References, load_references

__all__ = ["Match", "References", "load_references"]
