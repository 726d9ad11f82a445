"""What extraction hands on: a piece of CUDA with a map back to the answer's characters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int32
from numpy import ndarray as Array

__all__ = ["CodeBlock"]


@dataclass(frozen=True, eq=False)
class CodeBlock:
    """One piece of CUDA C++ in an answer.

    `start`, `end`: the characters of the response that it spans (end exclusive); `text`: the code itself, with the
    escapes of a string literal undone. Where the text is the response's own (`text == response[start:end]`), `starts`
    and `ends` are None; otherwise character i of the text stands at `response[starts[i]:ends[i]]` (an escape spans
    several characters)."""

    kind: Literal["fence", "python_string", "whole"]
    tag: str
    """The info string of the fence in lower case, or the name that the string is bound to; may be empty."""
    start: int
    end: int
    text: str
    starts: Int32[Array, "n"] | None = None
    ends: Int32[Array, "n"] | None = None

    def char_ranges(self) -> tuple[Int32[Array, "n"], Int32[Array, "n"]]:
        """(starts, ends) of every character of the text in the response, the identity included."""
        if self.starts is not None and self.ends is not None:
            return self.starts, self.ends
        starts = np.arange(self.start, self.end, dtype=np.int32)
        return starts, starts + 1
