"""The paper's label set: whole statements tied to a thread index, a memory space or a launch.

Marked are the innermost whole statements that hold a construct of category 2, 4 or 8, and the declarations and
assignments of counts that feed an index expression or a launch configuration (`int warp_size = 32;`, `int blocks =
(n + 255) / 256;`), directly or through other counts. Of a compound statement (`if`, `for`, `while`, `switch`) only
the header is marked, from its keyword to the closing parenthesis, and only when the construct stands in the header
itself; `do` has its condition marked. A loop's header is not marked for merely declaring a counter that an index
expression uses. The signature of a kernel, conditions without a builtin in them, and accesses to shared arrays stay
unmarked (arXiv 2606.16231, figure 2a). Comments inside a marked statement stay unmarked.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray as Array

from curate.syntax.defuse import Flow

__all__ = ["paint_statements"]


def paint_statements(data: bytes, flows: list[Flow], comments: Int64[Array, "k 2"]) -> Bool[Array, "b"]:
    """(bytes,) whether a byte stands in a marked statement; `comments`: spans that never do (strings are part of a
    statement).
    """
    marked = np.zeros(len(data), bool)
    for flow in flows:
        fed = flow.feeds_index | flow.feeds_launch
        for index, statement in enumerate(flow.statements):
            if statement.marked or index in fed:
                end = statement.end
                while end > statement.start and data[end - 1 : end].isspace():
                    end -= 1
                marked[statement.start : end] = True
    for start, end in comments.tolist():
        if data[start : start + 1] == b"/":
            marked[start:end] = False
    return marked
