"""Labels of a code text, character by character: category, statement, index distance, location.

Rules of `category`:

- The smallest construct wins: spans are painted from the outermost to the innermost. Two constructs of the very same
  span: the later category. Comments, strings and character literals are neutral, the PTX text of an `asm` statement
  apart.
- A call (synchronisation, atomic, runtime API, intrinsic, ...) is labelled whole: name, parentheses and arguments,
  where no smaller construct stands inside. So `atomicAdd(&s[threadIdx.x], 1)` is an atomic with a thread index in it.
- A type (`float4`, `__half`, `cudaStream_t`) is labelled as its name alone, a qualifier as its keyword alone.
- A declaration of category 4, and of `dim3`, is labelled from its first word to the semicolon.
- A launch: the chevrons with what they hold. The kernel's name and arguments stay neutral: they are ordinary
  expressions, and `location` has them.
- A guard is the condition of `if`, `while`, `do`, `for` or `?:` with the parentheses that `if` and `while` put round
  it.
- An index expression is the largest arithmetic expression that holds a builtin: `blockIdx.x * blockDim.x +
  threadIdx.x`.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64, UInt8
from numpy import ndarray as Array

from curate.syntax.defuse import Flow, trace
from curate.syntax.functions import Functions, find_functions, merge
from curate.syntax.locations import paint_locations
from curate.syntax.parse import Parsed, parse_cuda
from curate.syntax.queries import DEVICE_ONLY, Captured, capture, no_collection
from curate.syntax.statements import paint_statements
from curate.syntax.types import CodeLabels
from curate.taxonomy import CATEGORIES, NOT_DERIVED, Category

__all__ = ["label", "label_parsed", "paint"]

_FROM_FLOW = (Category.NEUTRAL, Category.THREAD_INDEX, Category.BOUNDARY_GUARD)
"""What a query alone cannot tell: whether a name is the builtin, whether an index reaches a condition."""


def label(code: str) -> CodeLabels:
    """Labels a text of n characters. Never raises; text that is no CUDA is all neutral. Linear in n, up to a sort."""
    return label_parsed(parse_cuda(code))


@no_collection()
def label_parsed(parsed: Parsed) -> CodeLabels:
    """`label` of a text that is parsed already."""
    captured = capture(parsed)
    functions = find_functions(parsed, captured)
    device_code = functions.device_code
    for part in captured:
        _keep_device_only(part, device_code)
    flows = [trace(parsed.data, part) for part in captured]
    neutral = np.concatenate([part["neutral"] for part in captured])
    size = len(parsed.data)

    distance = np.full(size, NOT_DERIVED, np.uint8)
    for flow in flows:
        for start, end, steps in flow.derived:
            distance[start:end] = steps
    errors, kernel_bytes = _errors(captured, functions)
    return CodeLabels(
        category=_characters(parsed, _categories(parsed, captured, flows, neutral)),
        statement=_characters(parsed, paint_statements(parsed.data, flows, neutral)),
        index_distance=_characters(parsed, distance),
        location=_characters(parsed, paint_locations(size, captured, functions, flows)),
        kernels=tuple(name for _, name in functions.kernels),
        device_functions=tuple(name for _, name in functions.device),
        launches=sum(
            len({(start, end) for name in ("launch_chevrons", "launch_call") for start, end in part[name].tolist()})
            for part in captured
        ),
        error_bytes=errors,
        kernel_bytes=kernel_bytes,
    )


def _characters(parsed: Parsed, values: Array) -> Array:
    """(bytes,) -> (characters,): the value at the first byte of each character."""
    return values if parsed.leads is None else values[parsed.leads]


def _keep_device_only(part: Captured, device_code: Int64[Array, "k 2"]) -> None:
    """Moves captures that count in device code only to their category, or drops them."""
    for name in [name for name in part.spans if name.endswith(DEVICE_ONLY)]:
        spans = part.spans.pop(name)
        position = np.searchsorted(device_code[:, 0], spans[:, 0], side="right") - 1
        inside = position >= 0
        inside[inside] = spans[inside, 0] < device_code[position[inside], 1]
        base = name.removesuffix(DEVICE_ONLY)
        part.spans[base] = np.concatenate([part[base], spans[inside]])


def _categories(
    parsed: Parsed, captured: list[Captured], flows: list[Flow], neutral: Int64[Array, "k 2"]
) -> UInt8[Array, "b"]:
    spans: list[Int64[Array, "k 2"]] = [neutral]
    labels: list[int] = [int(Category.NEUTRAL)]
    for part in captured:
        for category in Category:
            if category == Category.LOOP_DIRECTIVE:
                part.spans["loop_directive"] = _without_line_end(parsed.data, part["loop_directive"])
            if category not in _FROM_FLOW and len(found := part[CATEGORIES[category]]):
                spans.append(found)
                labels.append(int(category))
    for flow in flows:
        for pairs, category in (
            (flow.builtins, Category.THREAD_INDEX),
            (flow.indices, Category.THREAD_INDEX),
            (flow.guards, Category.BOUNDARY_GUARD),
        ):
            spans.append(np.array(pairs, np.int64).reshape(-1, 2))
            labels.append(int(category))
    blanks = [(blank.start, blank.end) for blank in parsed.blanks if blank.qualifier]
    spans.append(np.array(blanks, np.int64).reshape(-1, 2))
    labels.append(int(Category.QUALIFIER))
    values = np.repeat(np.array(labels, np.uint8), [len(span) for span in spans])
    return paint(len(parsed.data), np.concatenate(spans), values)


def _without_line_end(data: bytes, spans: Int64[Array, "k 2"]) -> Int64[Array, "k 2"]:
    """The grammar gives a directive the line break behind it."""
    return np.array([(s, s + len(data[s:e].rstrip())) for s, e in spans.tolist()], np.int64).reshape(-1, 2)


def paint(size: int, spans: Int64[Array, "k 2"], values: UInt8[Array, "k"]) -> UInt8[Array, "size"]:
    """(size,) values of the innermost span that covers each position, 0 where none does.

    Spans nest or are disjoint. Of two equal spans the one with the higher value counts as the inner one. A stack
    over the spans in source order, so the cost does not grow with the depth of nesting.
    """
    order = np.lexsort((values, -spans[:, 1], spans[:, 0]))
    starts, ends, inner = spans[order, 0].tolist(), spans[order, 1].tolist(), values[order].tolist()
    cuts, runs = [0], [0]  # run i holds from cuts[i]
    stack = [(size, 0)]
    for start, end, value in zip(starts, ends, inner, strict=True):
        while stack[-1][0] <= start and len(stack) > 1:
            closed, _ = stack.pop()
            cuts.append(closed)
            runs.append(stack[-1][1])
        cuts.append(start)
        runs.append(value)
        stack.append((min(end, stack[-1][0]), value))
    while len(stack) > 1:
        closed, _ = stack.pop()
        cuts.append(closed)
        runs.append(stack[-1][1])
    bounds = np.array([*cuts, size], np.int64)
    return np.repeat(np.array(runs, np.uint8), bounds[1:] - bounds[:-1])


def _errors(captured: list[Captured], functions: Functions) -> tuple[int, int]:
    """(bytes under ERROR nodes inside kernels, bytes of kernels); a missing token counts one byte, a broken kernel
    all of its own.
    """
    kernels = merge([span for span, _ in functions.kernels])
    wrong = [(s, e) for part in captured for s, e in part["error"].tolist()]
    wrong += [(s, s + 1) for part in captured for s in part["missing"][:, 0].tolist()]
    errors = merge(wrong + list(functions.broken))
    total = sum(_overlap(errors, start, end) for start, end in kernels.tolist()) if len(errors) else 0
    return total, int((kernels[:, 1] - kernels[:, 0]).sum())


def _overlap(spans: Int64[Array, "k 2"], start: int, end: int) -> int:
    first, last = np.searchsorted(spans[:, 1], start, side="right"), np.searchsorted(spans[:, 0], end, side="left")
    return int(np.clip(np.minimum(spans[first:last, 1], end) - np.maximum(spans[first:last, 0], start), 0, None).sum())
