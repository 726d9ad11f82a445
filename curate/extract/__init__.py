"""CUDA C++ in the text of an answer."""

from __future__ import annotations

from curate.extract.blocks import extract_cuda
from curate.extract.language import has_cuda
from curate.extract.types import CodeBlock

__all__ = ["CodeBlock", "extract_cuda", "has_cuda"]
