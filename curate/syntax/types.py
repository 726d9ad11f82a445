"""What the syntax tree says about one piece of code, character by character."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, UInt8
from numpy import ndarray as Array

__all__ = ["CodeLabels"]


@dataclass(frozen=True, eq=False)
class CodeLabels:
    """Labels of the n characters of a code text, and the facts that filters judge.

    `category`: `curate.taxonomy.Category`, the smallest construct wins, 0 neutral. `statement`: inside a whole
    statement of the paper's label set. `index_distance`: def-use steps from a thread-index builtin (0 the builtin,
    255 not derived), on the identifiers that carry the taint. `location`: `curate.taxonomy.Location`.
    """

    category: UInt8[Array, "n"]
    statement: Bool[Array, "n"]
    index_distance: UInt8[Array, "n"]
    location: UInt8[Array, "n"]
    kernels: tuple[str, ...]
    """Names of the `__global__` functions that are defined (a declaration alone does not count), in order."""
    device_functions: tuple[str, ...]
    launches: int
    error_bytes: int
    """Bytes under ERROR or MISSING nodes inside kernels."""
    kernel_bytes: int
    """Bytes of all kernel definitions."""
