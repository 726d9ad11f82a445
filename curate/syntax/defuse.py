"""Def-use in one tree: what a thread index reaches, and what feeds an index or a launch.

It stands on one sweep over the captures (`curate/syntax/sweep.py`), which resolves names by scope. Within a variable
the analysis is flow-insensitive: one assignment from an index makes every use of the variable derived. Its rules:

- A builtin has distance 0; a variable that is initialised or assigned from an expression has 1 + the smallest
  distance in it.
- Arithmetic, comparison, casts, `min`/`max` and the branches of `?:` pass a value on. A subscript, a dereference and
  any other call do not: `a[i]` is the value stored there, not an index, and closure over loads would taint
  everything. `&a[i]` and `a + i` are addresses made of the index, and derived. The condition of `?:` chooses a value
  and does not enter it.
- Parameters start clean: nothing travels from one function into another, nor through a field of a struct.

Cost: linear in the number of captures, plus their sort.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from curate.syntax.queries import Captured
from curate.syntax.sweep import Span, Statement, Sweep, Value, sweep
from curate.taxonomy import NOT_DERIVED

__all__ = ["Flow", "trace"]

MAX_DISTANCE = NOT_DERIVED - 1


@dataclass(eq=False)
class Flow:
    """What def-use found in one tree; all offsets are bytes of the file.

    `derived`: (start, end, distance) of every builtin and of every identifier that an index reaches. `builtins`: the
    thread-index builtins, group ranks among them, without variables of the same name. `indices`: the largest
    arithmetic expressions that hold a builtin. `guards`: conditions on index-derived values. `feeds_index`,
    `feeds_launch`: positions in `statements` of declarations and assignments of counts (integers, dim3) that an index
    expression or a launch configuration is computed from; `local` those of `feeds_launch` inside a function.
    """

    derived: list[tuple[int, int, int]]
    builtins: list[Span]
    indices: list[Span]
    guards: list[Span]
    statements: list[Statement]
    feeds_index: set[int]
    feeds_launch: set[int]
    local: set[int]


def _distances(found: Sweep) -> list[int]:
    """Of every variable: steps from a builtin, NOT_DERIVED when no index reaches it. Breadth-first, so the
    smallest.
    """
    distance = [NOT_DERIVED] * len(found.counts)
    reaches: dict[int, list[int]] = {}
    frontier = []
    for value in found.values:
        if value.variable < 0 or value.of_field:
            continue
        if value.builtin:
            frontier.append(value.variable)
        for operand in value.operands:
            reaches.setdefault(operand, []).append(value.variable)
    steps = 1
    while frontier:
        following: list[int] = []
        for variable in frontier:
            if distance[variable] == NOT_DERIVED:
                distance[variable] = min(steps, MAX_DISTANCE)
                following += reaches.get(variable, ())
        frontier = following
        steps += 1
    return distance


def _feeding(found: Sweep, consumers: Iterable[Value]) -> set[int]:
    """Statements that define the counts from which the consumers are computed, directly or through other counts."""
    definitions: dict[int, list[Value]] = {}
    for value in found.values:
        if value.variable >= 0 and found.counts[value.variable]:
            definitions.setdefault(value.variable, []).append(value)
    pending = [variable for consumer in consumers for variable in consumer.mentioned]
    seen: set[int] = set()
    feeding: set[int] = set()
    while pending:
        variable = pending.pop()
        if variable in seen:
            continue
        seen.add(variable)
        for value in definitions.get(variable, ()):
            if value.statement >= 0 and not found.statements[value.statement].header:
                feeding.add(value.statement)
                pending += value.mentioned
    return feeding


def trace(data: bytes, captured: Captured) -> Flow:
    """Def-use of one tree over the bytes of the file."""
    found = sweep(data, captured)
    distance = _distances(found)
    derived = [(start, end, 0) for start, end in found.builtins]
    derived += [(s, e, distance[v]) for s, e, v in found.tokens if distance[v] != NOT_DERIVED]
    indices = [value for value in found.indices if value.builtin]
    guards = [
        (value.start, value.end)
        for value in found.conditions
        if value.builtin or any(distance[operand] != NOT_DERIVED for operand in value.operands)
    ]
    launch = _feeding(found, found.configs)
    return Flow(
        derived=derived,
        builtins=found.builtins,
        indices=[(value.start, value.end) for value in indices],
        guards=guards,
        statements=found.statements,
        feeds_index=_feeding(found, indices),
        feeds_launch=launch,
        local={v.statement for v in found.values if v.variable >= 0 and found.local[v.variable]} & launch,
    )
