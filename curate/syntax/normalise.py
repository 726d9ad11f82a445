"""Blanks what the CUDA grammar cannot take, without moving a byte.

tree-sitter-cuda 0.21.2 knows `__global__`, `__shared__` and `<<<...>>>`, but an attribute macro such as
`__align__(16)` breaks the declaration that holds it, and `[=] __device__ (int i)` the lambda. Each such piece is
overwritten with spaces of the same length in bytes, so every offset in the tree is an offset into the original.
Comments, strings and raw strings are never touched. What is blanked and is itself a construct of the taxonomy is
remembered (`Blank`), and labelled from there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np
from jaxtyping import Int8
from numpy import ndarray as Array

__all__ = ["SKIPPED", "Blank", "Role", "closing_bracket", "join_pasted", "normalise"]

Role = Literal["", "kernel", "device"]


@dataclass(frozen=True)
class Blank:
    """Bytes [start, end) of the original that were overwritten with spaces.

    `qualifier`: it counts as an execution qualifier (category 1). `role`: it makes the function or the lambda beside
    it a kernel or a device function, as `__global__` or `__device__` would.
    """

    start: int
    end: int
    qualifier: bool = False
    role: Role = ""


SKIPPED = (
    rb"/(?:/(?:[^\\\n]+|\\(?:\r\n|.))*|\*.*?(?:\*/|\Z))"
    rb'|[uULR](?<!\w[uULR])(?:(?<=R)|(?<=u)8R|(?<!R)R)"(?P<delimiter>[^()\\\s"]{0,16})\(.*?(?:\)(?P=delimiter)"|\Z)'
    rb'|"(?:[^"\\\n]+|\\(?:\r\n|.))*"?'
    rb"|[.\d](?<![\w.][.\d])(?:(?<=\d)|(?=\d))[\w.]*(?:'[\w.]+)+"
    rb"|'(?:[^'\\\n]|\\.)*'"
)
"""Comments, strings and numbers with digit separators, for a pattern compiled with DOTALL. An unterminated
one runs to the end of the line or the text, so that a scan stays linear. Every alternative begins with a character,
never with an assertion: most places are then left at a glance."""

_WITH_ARGUMENTS: dict[bytes, bool] = {  # name: whether it counts as an execution qualifier
    b"__align__": False,
    b"__attribute__": False,
    b"__declspec": False,
    b"__launch_bounds__": True,
    b"__cluster_dims__": True,
    b"__block_size__": True,
    b"__maxnreg__": True,
    b"C10_LAUNCH_BOUNDS_0": True,
    b"C10_LAUNCH_BOUNDS_1": True,
    b"C10_LAUNCH_BOUNDS_2": True,
}
_BARE: dict[bytes, Role] = {
    b"__inline_hint__": "",
    # the qualifiers of libraries whose headers an answer does not carry
    b"C10_HOST_DEVICE": "device",
    b"C10_DEVICE": "device",
    b"C10_HOST": "",
    b"CUTLASS_DEVICE": "device",
    b"CUTLASS_HOST_DEVICE": "device",
    b"CUTE_DEVICE": "device",
    b"CUTE_HOST_DEVICE": "device",
    b"DS_D_INLINE": "device",
    b"DS_HD_INLINE": "device",
    b"EIGEN_DEVICE_FUNC": "device",
    b"_CCCL_DEVICE": "device",
    b"_CCCL_HOST_DEVICE": "device",
}
_ALIAS = re.compile(
    rb"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+"
    rb"((?:(?:__(?:global|device|host|forceinline|noinline|inline)__|static|inline)\b[ \t]*)+"
    rb"|(?:extern[ \t]*\"C\"[ \t]*)?__global__[ \t]+void[ \t]*)"
    rb"(?=\r?$|//|/\*)",
    re.MULTILINE,
)
_LAMBDA = (
    rb"\](?P<gap>\s{0,64})(?P<lambda>__(?:device|host|global)__(?:\s{1,64}__(?:device|host|global)__)*)(?=\s{0,64}[({])"
)
_DIRECTIVE = rb"#[ \t]*(?:define|undef|ifdef|ifndef)[ \t]+\w+"
_BRACKETS = re.compile(SKIPPED + rb"|(?P<bracket>[()\[\]{}])", re.DOTALL)
_STEP = np.zeros(256, np.int8)
_STEP[list(b"([{")] = 1
_STEP[list(b")]}")] = -1
_BLANKABLE = re.compile(rb"[^\n\r]")
MAX_DEPTH = 256
"""Nesting of brackets beyond which text is blanked: compilers stop there too (clang's -fbracket-depth), and the time of
a query grows with the square of the depth.
"""
_REACH = 4096  # bytes after a name in which its argument list must close


def normalise(data: bytes) -> tuple[bytes, tuple[Blank, ...]]:
    """UTF-8 text -> (bytes to parse, what was blanked, by start). Same length, and the same line breaks."""
    data = _without_depths(data.replace(b"\0", b" "))
    bare = dict(_BARE)
    for name, body in _ALIAS.findall(data) if b"define" in data else ():
        if name not in bare:
            bare[name] = "kernel" if b"__global__" in body else "device" if b"__device__" in body else ""
    present = [name for name in (*bare, *_WITH_ARGUMENTS) if name in data]
    has_lambda = re.search(_LAMBDA, data) is not None
    if not present and not has_lambda:
        return data, ()
    pattern = re.compile(b"|".join([SKIPPED, _DIRECTIVE, _LAMBDA, *_words(present)]), re.DOTALL)
    blanks = tuple(_blanks(data, pattern, bare))
    out = bytearray(data)
    for blank in blanks:
        out[blank.start : blank.end] = _BLANKABLE.sub(b" ", data[blank.start : blank.end])
    return bytes(out), blanks


def _words(names: Iterable[bytes]) -> Iterator[bytes]:
    """A pattern for all the names that begin with the same character, as words of their own."""
    for first, alike in groupby(sorted(names), lambda name: name[:1]):
        yield first + rb"(?<!\w" + first + rb")(?:" + b"|".join(re.escape(name[1:]) for name in alike) + rb")\b"


def _without_depths(data: bytes) -> bytes:
    """The text with everything inside more than MAX_DEPTH brackets blanked."""
    if data.count(b"{") + data.count(b"(") + data.count(b"[") <= MAX_DEPTH:
        return data
    codes = np.frombuffer(data, np.uint8)
    if _highest(_STEP[codes]) <= MAX_DEPTH:
        return data
    # exactly now, without the brackets in comments and strings
    steps = np.zeros(len(data) + 1, np.int32)
    for match in _BRACKETS.finditer(data):
        if match["bracket"]:
            steps[match.start()] = _STEP[data[match.start()]]
    # a closing bracket at depth 0 does not count
    depth = np.cumsum(steps[:-1])
    depth = depth - np.minimum(np.minimum.accumulate(depth), 0)
    depth = np.maximum(depth, np.concatenate([[0], depth[:-1]]))  # a closing bracket is as deep as its opening one
    out = codes.copy()
    out[(depth > MAX_DEPTH) & (codes != ord("\n")) & (codes != ord("\r"))] = ord(" ")
    return out.tobytes()


def _highest(steps: Int8[Array, "b"]) -> int:
    depth = np.cumsum(steps, dtype=np.int32)
    return int((depth - np.minimum(np.minimum.accumulate(depth), 0)).max(initial=0))


def _blanks(data: bytes, pattern: re.Pattern[bytes], bare: dict[bytes, Role]) -> Iterator[Blank]:
    end = 0
    for match in pattern.finditer(data):
        if match.start() < end:  # inside the argument list that was blanked before
            continue
        if match["lambda"]:
            role: Role = "device" if b"__device__" in match["lambda"] else ""
            yield Blank(match.start("lambda"), match.end("lambda"), qualifier=True, role=role)
        elif (name := match[0]) in bare:
            yield Blank(match.start(), match.end(), qualifier=True, role=bare[name])
        elif name in _WITH_ARGUMENTS:
            opening = _skip_space(data, match.end())
            closing = (
                closing_bracket(data, opening, min(len(data), opening + _REACH))
                if data[opening : opening + 1] == b"("
                else -1
            )
            end = closing if closing > 0 else match.end()
            yield Blank(match.start(), end, qualifier=_WITH_ARGUMENTS[name])


def _skip_space(data: bytes, at: int) -> int:
    while data[at : at + 1].isspace():
        at += 1
    return at


def closing_bracket(data: bytes, opening: int, limit: int) -> int:
    """End (exclusive) of the bracket pair that opens at `opening`; -1 when it does not close before `limit`."""
    depth = 0
    for match in _BRACKETS.finditer(data, opening, limit):
        if match["bracket"]:
            depth += 1 if match["bracket"] in b"([{" else -1
            if depth <= 0:
                return match.end()
    return -1


_PASTE = re.compile(SKIPPED + rb"|(?P<paste>\s*\#\#\s*)|(?P<hash>\#@?)|(?P<join>\\\r?\n)", re.DOTALL)


def join_pasted(body: bytes) -> bytes:
    """The body of a `#define`, same length, readable as code: `a ## b` becomes one identifier, `#a` loses its `#`."""

    def replacement(match: re.Match[bytes]) -> bytes:
        if match["paste"]:
            return b"_" * len(match[0]) if b"\n" not in match[0] else b" " * len(match[0])
        if match["hash"] or match["join"]:
            return b" " * len(match[0])
        return match[0]

    return _PASTE.sub(replacement, body) if b"#" in body or b"\\" in body else body
