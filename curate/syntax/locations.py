"""Where a byte stands: kernel, device function, launch, launch set-up.

A kernel is the whole definition with its template header and qualifiers; a device function likewise, and so is a
`__device__` lambda. A launch is the `<<<...>>>` expression or a cudaLaunchKernel call, name and arguments included.
The set-up is every `dim3` declaration outside device code, and the integer declarations and assignments inside a
function that the grid, the block or the dynamic shared memory of a launch is computed from. Where they overlap the
first of that list wins.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray as Array

from curate.syntax.defuse import Flow
from curate.syntax.functions import Functions
from curate.syntax.queries import Captured
from curate.taxonomy import Location

__all__ = ["paint_locations"]


def paint_locations(
    size: int, captured: list[Captured], functions: Functions, flows: list[Flow]
) -> UInt8[Array, "size"]:
    """(size,) `Location` of each byte."""
    where = np.zeros(size, np.uint8)
    for part, flow in zip(captured, flows, strict=True):
        for index in flow.feeds_launch & flow.local:
            where[flow.statements[index].start : flow.statements[index].end] = Location.LAUNCH_SETUP
        for start, end in part["launch_setup"].tolist():
            where[start:end] = Location.LAUNCH_SETUP
    for part in captured:
        for start, end in part["launch_expression"].tolist():
            where[start:end] = Location.LAUNCH
    for start, end in [*functions.lambdas, *(span for span, _ in functions.device)]:
        where[start:end] = Location.DEVICE_FUNCTION
    for (start, end), _ in functions.kernels:
        where[start:end] = Location.KERNEL
    return where
