"""One sweep over the captures of a tree in source order: its statements, its variables, and its values.

A stack holds the nodes that are open, a symbol table the names that are in scope (function, block, loop header; an
inner declaration shadows an outer one, and a thread-index builtin as well: the `blockDim` of host code is a variable).
What follows from it, which values an index reaches, is `curate/syntax/defuse.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from curate.syntax.queries import Captured

__all__ = ["Span", "Statement", "Sweep", "Value", "sweep"]

Span = tuple[int, int]

# the order of nodes of one span, outermost first
_KINDS = [
    "waive.statement", "waive.block", "scope.function", "body", "header", "scope", "statement", "type", "config",
    "boundary_guard", "value", "define", "object", "memory_space", "launch", "arithmetic", "carry", "declared",
    "declared.pointer", "declared.array", "parameter", "assigned", "assigned.field", "thread_index", "block", "use",
]  # fmt: skip
(
    _WAIVE_STATEMENT, _WAIVE_BLOCK, _FUNCTION, _BODY, _HEADER, _SCOPE, _STATEMENT, _TYPE, _CONFIG, _CONDITION,
    _VALUE, _DEFINE, _OBJECT, _MARK_MEMORY, _MARK_LAUNCH, _ARITHMETIC, _CARRY, _DECLARED, _POINTER, _ARRAY,
    _PARAMETER, _ASSIGNED, _ASSIGNED_FIELD, _BUILTIN, _BLOCK, _USE,
) = range(len(_KINDS))  # fmt: skip

_NAMING = (_DECLARED, _POINTER, _ARRAY, _PARAMETER, _ASSIGNED)
_KIND_BITS = (len(_KINDS) - 1).bit_length()

_COUNTS = frozenset(
    b"auto bool char short int long unsigned signed size_t ssize_t ptrdiff_t uint dim3 cudaLaunchConfig_t "
    b"int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t uint3 int3 index_t".split()
)
"""Types of a variable that can feed an index or a launch; a name of several words counts when all of them do."""

_BUILTIN_NAME = re.compile(rb"(?:threadIdx|blockIdx|blockDim|gridDim|clusterIdx|clusterDim|warpSize)\b")


@dataclass(eq=False, slots=True)
class Statement:
    """A simple statement, or the header of a compound one up to its closing parenthesis."""

    start: int
    end: int
    header: bool = False
    marked: bool = False
    """It holds a thread index, a memory-space declaration, or a launch."""


@dataclass(eq=False, slots=True)
class Value:
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


# (end, statement, value, mention, arithmetic, definition, number of declarations outside; -1 when no scope)
_Frame = tuple[int, int, Value | None, Value | None, Value | None, Value | None, int]


class Sweep:
    """`statements`; `values`, `conditions`, `indices` (arithmetic), `configs` (launches): expressions by role;
    `tokens`: (start, end, variable) of every name that is known; `builtins`: spans; and of each variable whether it
    is a count (`counts`) and declared inside a function (`local`).
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.statements: list[Statement] = []
        self.values: list[Value] = []  # definitions
        self.conditions: list[Value] = []
        self.indices: list[Value] = []
        self.configs: list[Value] = []
        self.tokens: list[tuple[int, int, int]] = []  # (start, end, variable)
        self.builtins: list[Span] = []
        self.counts: list[bool] = []  # per variable
        self.local: list[bool] = []
        self.symbols: dict[bytes, list[int]] = {}
        self.declarations: list[bytes] = []
        self.functions: list[int] = []  # ends of those that were entered; some may be behind

    def declare(self, start: int, end: int, count: bool, local: bool) -> int:
        name = self.data[start:end]
        variable = len(self.counts)
        self.counts.append(count)
        self.local.append(local)
        self.symbols.setdefault(name, []).append(variable)
        self.declarations.append(name)
        self.tokens.append((start, end, variable))
        return variable

    def in_function(self, at: int) -> bool:
        while self.functions and self.functions[-1] <= at:
            self.functions.pop()
        return bool(self.functions)

    def is_shadowed(self, start: int) -> bool:
        """Whether the builtin at `start` is a variable of that name: `dim3 blockDim(256);` in host code. One that is
        declared outside functions (in a fragment of host code) hides no builtin inside one.
        """
        name = _BUILTIN_NAME.match(self.data, start)
        known = self.symbols.get(name[0], []) if name else []
        return len(known) > 0 and (self.local[known[-1]] or not self.in_function(start))

    def leave(self, outside: int) -> None:
        while len(self.declarations) > outside:
            self.symbols[self.declarations.pop()].pop()

    def run(self, events: Iterable[tuple[int, int, int]]) -> None:
        data, symbols, tokens = self.data, self.symbols, self.tokens
        stack: list[_Frame] = [(1 << 62, -1, None, None, None, None, 0)]
        waived_statement = waived_block = (-1, -1)
        named = -1  # start of the identifier that was declared or assigned last
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
                    arithmetic = Value(start, end)
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
                count_type = _is_count(data[start : min(end, start + 64)])
            elif kind == _DEFINE:
                definition = Value(start, end, statement)
                self.values.append(definition)
                stack.append((end, statement, value, mention, None, definition, -1))
            elif kind == _VALUE:
                stack.append((end, statement, definition, definition, None, None, -1))
            elif kind in (_DECLARED, _POINTER, _ARRAY):
                if start == named:
                    continue
                named = start
                variable = self.declare(start, end, count_type and kind == _DECLARED, self.in_function(start))
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
                if self.in_function(start) and self.functions[-1] == stack[-1][0]:
                    self.declare(start, end, False, True)
            elif kind in (_SCOPE, _FUNCTION):
                if kind == _FUNCTION:
                    self.in_function(start)  # leaves those that are behind
                    self.functions.append(end)
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
                if start == named or self.is_shadowed(start):
                    continue
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
                condition = Value(start, end)
                self.conditions.append(condition)
                stack.append((end, statement, condition, None, None, None, -1))
            elif kind == _CONFIG:
                config = Value(start, end)
                self.configs.append(config)
                stack.append((end, statement, config, config, None, None, -1))
            elif kind == _OBJECT:
                stack.append((end, statement, None, None, None, None, -1))
            elif kind == _WAIVE_STATEMENT:
                waived_statement = (start, end)
            elif kind == _WAIVE_BLOCK:
                waived_block = (start, end)


@lru_cache(1 << 12)
def _is_count(type_name: bytes) -> bool:
    return all(word in _COUNTS for word in type_name.replace(b"std::", b"").split())


def _events(data: bytes, captured: Captured) -> Iterable[tuple[int, int, int]]:
    """Captured nodes as (start, end, kind), outer before inner; without the names that nothing here declares."""
    spans = [captured[name] for name in _KINDS]
    known = {data[start:end] for kind in _NAMING for start, end in spans[kind].tolist()}
    spans[_USE] = spans[_USE][[data[start:end] in known for start, end in spans[_USE].tolist()]]
    both = np.concatenate(spans)
    kinds = np.repeat(np.arange(len(_KINDS)), [len(span) for span in spans])
    # one number to sort by start, then by end from behind, then by kind
    size = len(data) + 1
    keys = np.sort(((both[:, 0] * size + (size - both[:, 1])) << _KIND_BITS) + kinds)
    starts, ends = np.divmod(keys >> _KIND_BITS, size)
    kinds = keys & (1 << _KIND_BITS) - 1
    return zip(starts.tolist(), (size - ends).tolist(), kinds.tolist(), strict=True)


def sweep(data: bytes, captured: Captured) -> Sweep:
    """The sweep over the captures of one tree; offsets are bytes of the file `data`."""
    found = Sweep(data)
    found.run(_events(data, captured))
    return found
