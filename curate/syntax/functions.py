"""Kernels and device functions: their spans, names, and how much of a kernel was not understood."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64
from numpy import ndarray as Array
from tree_sitter import Node

from curate.syntax.normalise import SKIPPED
from curate.syntax.parse import Parsed
from curate.syntax.queries import Captured

__all__ = ["Functions", "find_functions", "merge"]

Span = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Functions:
    """Definitions by kind, in source order; spans are bytes of the file with the template header or `extern "C"`
    included.

    `broken`: kernels that exist only as a `__global__` token under an ERROR node. They are among `kernels`, and all
    their bytes are errors.
    """

    kernels: tuple[tuple[Span, str], ...]
    device: tuple[tuple[Span, str], ...]
    lambdas: tuple[Span, ...]
    broken: tuple[Span, ...]

    @property
    def device_code(self) -> Int64[Array, "k 2"]:
        """Merged spans of everything that runs on the device, (k, 2)."""
        return merge([span for span, _ in (*self.kernels, *self.device)] + list(self.lambdas))


def merge(spans: list[Span]) -> Int64[Array, "k 2"]:
    """Union of spans as disjoint ones by start, (k, 2)."""
    merged: list[list[int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return np.array(merged, np.int64).reshape(-1, 2)


def find_functions(parsed: Parsed, captured: list[Captured]) -> Functions:
    kernels: dict[Span, str] = {}
    device: dict[Span, str] = {}
    lambdas: list[Span] = []
    # `__global__` tokens that belong to no definition and no prototype, with the end of the text that they stand in
    loose: list[tuple[int, int]] = []
    for position, part in enumerate(captured):
        roles = {"kernel": part.functions.get("kernel", []), "device": part.functions.get("device_function", [])}
        if position == 0:
            roles = {role: list(nodes) for role, nodes in roles.items()}
            for start, end, node, role in _beside_blanks(parsed, part):
                if node.type == "lambda_expression":
                    lambdas.append((start, end))
                else:
                    roles[role].append((start, end, node))
        outer = {"kernel": part["kernel.outer"], "device": part["device_function.outer"]}
        for role, found in (("kernel", kernels), ("device", device)):
            # a template header or `extern "C"` ends where its function ends, and begins before it
            headers = {end: start for start, end in outer[role][::-1].tolist()}
            for start, end, node in roles[role]:
                found[(min(headers.get(end, start), start), end)] = function_name(node)
        ends = part["macro.body"] if position else np.array([(0, len(parsed.data))])
        loose += [(token, int(ends[ends[:, 0] <= token][-1, 1])) for token in _loose_tokens(part)]
    inside = merge(list(kernels))
    broken = []
    reached = 0
    tokens = sorted(set(loose))
    for index, (token, limit) in enumerate(tokens):
        position = int(np.searchsorted(inside[:, 0], token, side="right")) - 1
        if token < reached or (position >= 0 and token < inside[position, 1]):
            continue
        if index + 1 < len(tokens):
            limit = min(limit, tokens[index + 1][0])
        body = _broken_body(parsed.data, token, limit)
        if body is not None:
            end, name = body
            broken.append((token, end))
            kernels[(token, end)] = name
            reached = end
    for span in kernels:
        device.pop(span, None)
    return Functions(
        tuple(sorted(kernels.items())), tuple(sorted(device.items())), tuple(sorted(lambdas)), tuple(broken)
    )


def function_name(node: Node) -> str:
    """Name in the declarator of a function definition; empty when it has none (a lambda, broken code)."""
    declarator = node.child_by_field_name("declarator")
    for _ in range(16):  # pointer and reference declarators around the function's own
        if declarator is None or declarator.type in ("function_declarator", "operator_cast"):
            break
        declarator = declarator.child_by_field_name("declarator") or next(
            (child for child in declarator.named_children if child.type.endswith("declarator")), None
        )
    if declarator is None:
        return ""
    name = declarator.child_by_field_name("declarator") or declarator
    return " ".join((name.text or b"").decode(errors="replace").split())


def _beside_blanks(parsed: Parsed, part: Captured) -> Iterator[tuple[int, int, Node, str]]:
    """Functions and lambdas whose qualifier was blanked, with the role that it gave them."""
    with_role = [blank for blank in parsed.blanks if blank.role]
    nodes = sorted(part.functions.get("scope.function", []) if with_role else [], key=lambda found: found[:2])
    starts = [start for start, _, _ in nodes]
    for blank in with_role:
        # either the function begins right after the blank, or it is the innermost one that begins before and has its
        # body after it
        after = bisect_left(starts, blank.end)
        if after < len(nodes) and not parsed.data[blank.end : starts[after]].strip():
            yield (*nodes[after], blank.role)
            continue
        for start, end, node in reversed(nodes[max(0, after - 8) : bisect_right(starts, blank.start)]):
            body = node.child_by_field_name("body")
            if body is not None and blank.end <= body.start_byte:
                yield start, end, node, blank.role
                break


def _loose_tokens(part: Captured) -> list[int]:
    prototypes = set(part["global.prototype"][:, 0].tolist())
    return [start for start in part["global"][:, 0].tolist() if start not in prototypes]


_SCAN = re.compile(
    SKIPPED + rb"|(?P<open>\{)|(?P<close>\})|(?P<stop>;)|(?P<name>\b[A-Za-z_]\w*)(?P<call>\s*\()?", re.DOTALL
)


def _broken_body(data: bytes, token: int, limit: int) -> tuple[int, str] | None:
    """(end, name) of a kernel that the parser gave up on, by its brackets; None for a prototype or a loose mention."""
    depth = 0
    name = ""
    for match in _SCAN.finditer(data, token, limit):
        if match["open"]:
            depth += 1
        elif match["close"]:
            depth -= 1
            if depth <= 0:
                return match.end(), name
        elif match["stop"] and depth == 0:
            return None
        elif match["call"] and not name and depth == 0:
            name = match["name"].decode(errors="replace")
    return (limit, name) if depth > 0 else None
