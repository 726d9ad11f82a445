"""What a check takes and gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tree_sitter import Tree

from curate.checks.cuda_code import CudaCode, read_cuda
from curate.checks.python_code import PythonCode, python_trees, read_python
from curate.extract import CodeBlock
from curate.syntax import CodeLabels, Parsed

__all__ = ["Answer", "Flaw"]


@dataclass(frozen=True)
class Flaw:
    """Why an answer is no kernel that does the work. `detail`: names and figures alone, no text of the row."""

    reason: str
    detail: str


@dataclass(frozen=True, eq=False)
class Answer:
    """An answer with the trees that the build has of it: `parsed[i]` and `labels[i]` belong to `blocks[i]`."""

    response: str
    prompt: str
    blocks: Sequence[CodeBlock]
    parsed: Sequence[Parsed]
    labels: Sequence[CodeLabels]

    @cached_property
    def cuda(self) -> CudaCode:
        return read_cuda(self.parsed, self.labels)

    @cached_property
    def python(self) -> tuple[PythonCode, ...]:
        """The Python modules of the answer, reasoning traces aside."""
        return tuple(read_python(tree) for tree in self.python_trees)

    @cached_property
    def python_trees(self) -> tuple[Tree, ...]:
        return tuple(python_trees(self.response, self.blocks))

    @cached_property
    def kernel_count(self) -> int:
        return sum(len(found.kernels) for found in self.labels)
