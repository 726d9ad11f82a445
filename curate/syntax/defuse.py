"""Def-use over the captures of one tree: what a thread index reaches, and what feeds an index or a launch.

One sweep over the captured nodes in source order, with a stack of those that are open, a symbol table, and for every
value the variables in it. Names are resolved by scope (function, block, loop header; an inner declaration shadows an
outer one). Within a variable the analysis is flow-insensitive: one assignment from an index makes every use of the
variable derived. Its rules:

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
from dataclasses import dataclass, field

import numpy as np

from curate.syntax.queries import Captured
from curate.taxonomy import NOT_DERIVED

__all__ = ["Flow", "Statement", "trace"]

Span = tuple[int, int]
MAX_DISTANCE = NOT_DERIVED - 1

# the order of nodes of one span, outermost first
_KINDS = [
    "waive.statement", "waive.block", "body", "header", "scope.function", "scope", "statement", "type", "config",
    "boundary_guard", "value", "define", "object", "memory_space", "launch", "thread_index", "arithmetic", "carry",
    "block", "declared", "declared.pointer", "declared.array", "parameter", "assigned", "assigned.field", "use",
]  # fmt: skip
(
    _WAIVE_STATEMENT, _WAIVE_BLOCK, _BODY, _HEADER, _FUNCTION, _SCOPE, _STATEMENT, _TYPE, _CONFIG, _CONDITION,
    _VALUE, _DEFINE, _OBJECT, _MARK_MEMORY, _MARK_LAUNCH, _BUILTIN, _ARITHMETIC, _CARRY, _BLOCK, _DECLARED,
    _POINTER, _ARRAY, _PARAMETER, _ASSIGNED, _ASSIGNED_FIELD, _USE,
) = range(len(_KINDS))  # fmt: skip

_COUNTS = frozenset(
    b"auto bool char short int long unsigned signed size_t ssize_t ptrdiff_t uint dim3 cudaLaunchConfig_t "
    b"int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t uint3 int3 index_t".split()
)
"""Types of a variable that can feed an index or a launch; a name of several words counts when all of them do."""


@dataclass(eq=False)
class Statement:
    """A simple statement, or the header of a compound one up to its closing parenthesis."""

    start: int
    end: int
    header: bool = False
    marked: bool = False
    """It holds a thread index, a memory-space declaration, or a launch."""


@dataclass(eq=False)
class _Value:
    """An expression whose operands are collected: what is assigned, a condition, an index expression, a launch
    configuration.
    """

    start: int
    end: int
    statement: int = -1
    variable: int = -1
    builtin: bool = False
    of_field: bool = False
    operands: list[int] = field(default_factory=list)
    mentioned: list[int] = field(default_factory=list)
    """Operands, and also the variables inside calls and subscripts."""


@dataclass(eq=False)
class Flow:
    """What def-use found in one tree; all offsets are bytes of the file.

    `derived`: (start, end, distance) of every builtin and of every identifier that an index reaches. `indices`: the
    largest arithmetic expressions that hold a builtin. `guards`: conditions on index-derived values. `feeds_index`,
    `feeds_launch`: positions in `statements` of declarations and assignments of counts (integers, dim3) that an
    index expression or a launch configuration is computed from; `local` those inside a function.
    """

    derived: list[tuple[int, int, int]]
    indices: list[Span]
    guards: list[Span]
    statements: list[Statement]
    feeds_index: set[int]
    feeds_launch: set[int]
    local: set[int]


# (end, statement, value, mention, arithmetic, definition, number of declarations outside; -1 when no scope)
_Frame = tuple[int, int, _Value | None, _Value | None, _Value | None, _Value | None, int]


class _Sweep:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.statements: list[Statement] = []
        self.values: list[_Value] = []  # definitions
        self.conditions: list[_Value] = []
        self.indices: list[_Value] = []
        self.configs: list[_Value] = []
        self.tokens: list[tuple[int, int, int]] = []  # (start, end, variable)
        self.builtins: list[Span] = []
        self.counts: list[bool] = []  # per variable
        self.local: list[bool] = []
        self.symbols: dict[bytes, list[int]] = {}
        self.declarations: list[bytes] = []

    def declare(self, start: int, end: int, count: bool, local: bool) -> int:
        name = self.data[start:end]
        variable = len(self.counts)
        self.counts.append(count)
        self.local.append(local)
        self.symbols.setdefault(name, []).append(variable)
        self.declarations.append(name)
        self.tokens.append((start, end, variable))
        return variable

    def leave(self, outside: int) -> None:
        while len(self.declarations) > outside:
            self.symbols[self.declarations.pop()].pop()

    def run(self, events: Iterable[tuple[int, int, int]]) -> None:
        data, symbols, tokens = self.data, self.symbols, self.tokens
        stack: list[_Frame] = [(1 << 62, -1, None, None, None, None, 0)]
        waived_statement = waived_block = (-1, -1)
        named = -1  # start of the identifier that was declared or assigned last
        functions: list[int] = []  # ends of the open functions
        count_type = False
        for start, end, kind in events:
            while stack[-1][0] <= start:
                outside = stack.pop()[6]
                if outside >= 0:
                    self.leave(outside)
            _, statement, value, mention, arithmetic, definition, _ = stack[-1]
            if kind == _USE:
                if start == named:
                    continue
                known = symbols.get(data[start:end])
                if known:
                    variable = known[-1]
                    tokens.append((start, end, variable))
                    if value is not None:
                        value.operands.append(variable)
                    if mention is not None:
                        mention.mentioned.append(variable)
                    if arithmetic is not None:
                        arithmetic.mentioned.append(variable)
            elif kind == _ARITHMETIC:
                if arithmetic is None:
                    arithmetic = _Value(start, end)
                    self.indices.append(arithmetic)
                stack.append((end, statement, value, mention, arithmetic, None, -1))
            elif kind == _BLOCK:
                if (start, end) != waived_block:
                    stack.append((end, statement, None, mention, None, None, -1))
            elif kind == _CARRY:
                stack.append((end, statement, value, mention, None, None, -1))
            elif kind == _STATEMENT:
                if (start, end) != waived_statement:
                    self.statements.append(Statement(start, end))
                    stack.append((end, len(self.statements) - 1, None, None, None, None, -1))
                count_type = False
            elif kind == _TYPE:
                count_type = all(word in _COUNTS for word in _words(data[start : min(end, start + 64)]))
            elif kind == _DEFINE:
                definition = _Value(start, end, statement)
                self.values.append(definition)
                stack.append((end, statement, value, mention, None, definition, -1))
            elif kind == _VALUE:
                stack.append((end, statement, definition, definition, None, None, -1))
            elif kind in (_DECLARED, _POINTER, _ARRAY):
                if start == named:
                    continue
                named = start
                local = bool(functions) and functions[-1] > start
                variable = self.declare(start, end, count_type and kind == _DECLARED, local)
                if definition is not None and kind != _ARRAY:
                    definition.variable = variable
            elif kind in (_ASSIGNED, _ASSIGNED_FIELD):
                named = start
                known = symbols.get(data[start:end])
                if known:
                    tokens.append((start, end, known[-1]))
                elif kind == _ASSIGNED:
                    self.declare(start, end, False, True)
                    known = symbols[data[start:end]]
                if definition is not None and known:
                    definition.variable = known[-1]
                    definition.of_field = kind == _ASSIGNED_FIELD
            elif kind == _PARAMETER:
                # only where a body follows: the parameters of a prototype name nothing
                named = start
                if functions and functions[-1] == stack[-1][0]:
                    self.declare(start, end, False, True)
            elif kind in (_SCOPE, _FUNCTION):
                if kind == _FUNCTION:
                    while functions and functions[-1] <= start:
                        functions.pop()
                    functions.append(end)
                    statement = -1
                if data[start : start + 1] == b"{":
                    statement = -1
                stack.append((end, statement, None, None, None, None, len(self.declarations)))
            elif kind == _HEADER:
                self.statements.append(Statement(start, end, header=True))
                stack.append((end, len(self.statements) - 1, None, None, None, None, -1))
            elif kind == _BODY:
                if statement >= 0 and self.statements[statement].header and start < self.statements[statement].end:
                    self.statements[statement].end = start
                stack.append((end, -1, None, None, None, None, -1))
            elif kind == _BUILTIN:
                self.builtins.append((start, end))
                if value is not None:
                    value.builtin = True
                if arithmetic is not None:
                    arithmetic.builtin = True
                if statement >= 0:
                    self.statements[statement].marked = True
            elif kind in (_MARK_MEMORY, _MARK_LAUNCH):
                if statement >= 0:
                    self.statements[statement].marked = True
            elif kind == _CONDITION:
                condition = _Value(start, end)
                self.conditions.append(condition)
                stack.append((end, statement, condition, None, None, None, -1))
            elif kind == _CONFIG:
                config = _Value(start, end)
                self.configs.append(config)
                stack.append((end, statement, config, config, None, None, -1))
            elif kind == _OBJECT:
                stack.append((end, statement, None, None, None, None, -1))
            elif kind == _WAIVE_STATEMENT:
                waived_statement = (start, end)
            elif kind == _WAIVE_BLOCK:
                waived_block = (start, end)

    def distances(self) -> list[int]:
        """Of every variable: steps from a builtin, NOT_DERIVED when no index reaches it. Breadth-first, so the
        smallest.
        """
        distance = [NOT_DERIVED] * len(self.counts)
        reaches: dict[int, list[int]] = {}
        frontier = []
        for value in self.values:
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

    def feeding(self, consumers: Iterable[_Value]) -> set[int]:
        """Statements that define the counts from which the consumers are computed, directly or through other counts."""
        definitions: dict[int, list[_Value]] = {}
        for value in self.values:
            if value.variable >= 0 and self.counts[value.variable]:
                definitions.setdefault(value.variable, []).append(value)
        pending = [variable for consumer in consumers for variable in consumer.mentioned]
        seen: set[int] = set()
        found: set[int] = set()
        while pending:
            variable = pending.pop()
            if variable in seen:
                continue
            seen.add(variable)
            for value in definitions.get(variable, ()):
                if value.statement >= 0 and not self.statements[value.statement].header:
                    found.add(value.statement)
                    pending += value.mentioned
        return found


def _words(name: bytes) -> list[bytes]:
    return name.replace(b"std::", b"").split()


def _events(captured: Captured) -> Iterable[tuple[int, int, int]]:
    """Captured nodes as (start, end, kind), outer before inner."""
    spans = [captured[name] for name in _KINDS]
    kinds = np.repeat(np.arange(len(_KINDS)), [len(span) for span in spans])
    both = np.concatenate(spans)
    order = np.lexsort((kinds, -both[:, 1], both[:, 0]))
    return zip(both[order, 0].tolist(), both[order, 1].tolist(), kinds[order].tolist(), strict=True)


def trace(data: bytes, captured: Captured) -> Flow:
    """Def-use of one tree over the bytes of the file."""
    sweep = _Sweep(data)
    sweep.run(_events(captured))
    distance = sweep.distances()
    derived = [(start, end, 0) for start, end in sweep.builtins]
    derived += [(s, e, distance[v]) for s, e, v in sweep.tokens if distance[v] != NOT_DERIVED]
    indices = [value for value in sweep.indices if value.builtin]
    guards = [
        (value.start, value.end)
        for value in sweep.conditions
        if value.builtin or any(distance[operand] != NOT_DERIVED for operand in value.operands)
    ]
    launch = sweep.feeding(sweep.configs)
    return Flow(
        derived=derived,
        indices=[(value.start, value.end) for value in indices],
        guards=guards,
        statements=sweep.statements,
        feeds_index=sweep.feeding(indices),
        feeds_launch=launch,
        local={v.statement for v in sweep.values if v.variable >= 0 and sweep.local[v.variable]} & launch,
    )
