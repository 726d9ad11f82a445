"""Which calls of a function run together with the kernel, and which instead of it.

One rule for Python and C++, since both grammars name the nodes alike. An operator in an arm of a branch that does not
reach the kernel is an alternative to it when the arm leaves the function (`if not x.is_cuda: return conv(x)`) or when
a sister arm reaches the kernel (`if fast: kernel() else: conv()`); so is one behind a branch that runs the kernel and
leaves (`if x.is_cuda: return kernel(x)` / `return conv(x)`). What stands in a handler of exceptions is judged by
`curate.checks.fallback`. All else runs together with the kernel: the main path.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

from tree_sitter import Node

__all__ = ["MAX_OPERATORS", "Path", "is_handler", "leaves"]

MAX_OPERATORS = 200
"""Operators of a function that are looked at: each costs a walk up the tree."""

_DEEPEST = 1_000
_BRANCHES = frozenset(("if_statement", "conditional_expression", "switch_statement", "match_statement"))
_HANDLERS = frozenset(("except_clause", "except_group_clause", "catch_clause"))
_PREPROCESSOR = frozenset(("preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif", "preproc_elifdef"))
_EXITS = frozenset(("return_statement", "raise_statement", "throw_statement", "co_return_statement"))
_WRAPPERS = frozenset(("block", "compound_statement", "else_clause", "elif_clause", "case_clause", "case_statement",
                       "except_clause", "catch_clause"))  # fmt: skip
_INNER = {"try_statement": "body", "with_statement": "body", "if_statement": "consequence"}


def is_handler(node: Node) -> bool:
    return node.type in _HANDLERS


class Path:
    """The main path of one function; `kernels`: the nodes that run a kernel, in order."""

    def __init__(self, function: Node, kernels: Sequence[Node]) -> None:
        self.function = function
        self._kernels = kernels[:MAX_OPERATORS]
        self.starts = sorted(node.start_byte for node in kernels)

    @cached_property
    def _exits(self) -> dict[int, int]:
        """By the node of a block: the byte behind the first statement in it that runs the kernel and leaves."""
        found: dict[int, int] = {}
        for kernel in self._kernels:
            chain = list(self._upwards(kernel))
            for (arm, above), (_, around) in pairwise(chain):
                if is_handler(above):
                    break
                if above.type == "if_statement" and arm.type != "else_clause" and leaves(arm):
                    found[around.id] = min(above.end_byte, found.get(around.id, above.end_byte))
        return found

    def includes(self, node: Node) -> bool:
        """Whether the node runs together with the kernel, or anything runs at all where there is no kernel."""
        if not self.starts:
            return not any(is_handler(above) for _, above in self._upwards(node))
        for below, above in self._upwards(node):
            if is_handler(above) or above.type in _PREPROCESSOR:
                return False
            if above.type in _BRANCHES and self._is_alternative(below, above):
                return False
            left = self._exits.get(above.id)
            if left is not None and left <= node.start_byte:
                return False
        return True

    def _upwards(self, node: Node) -> Iterator[tuple[Node, Node]]:
        """(node, node above) from `node` up to the function. Found from above: `Node.parent` searches the tree."""
        chain = [self.function]
        while chain[-1] != node and len(chain) < _DEEPEST:
            below = chain[-1].child_with_descendant(node)
            if below is None:
                break
            chain.append(below)
        for above, below in zip(reversed(chain[:-1]), reversed(chain[1:]), strict=True):
            yield below, above

    def _runs(self, node: Node) -> bool:
        at = bisect_left(self.starts, node.start_byte)
        return at < len(self.starts) and self.starts[at] < node.end_byte

    def _is_alternative(self, arm: Node, branch: Node) -> bool:
        if self._runs(arm):
            # an `else` that holds both: the arms inside it were looked at on the way up
            return False
        condition = branch.child_by_field_name("condition")
        if condition is not None and condition == arm:
            return False
        return leaves(arm) or self._runs(branch)


def leaves(arm: Node) -> bool:
    """The last statement of the arm leaves the function; of a nested branch its first arm, of `try` its body."""
    for _ in range(32):
        if arm.type in _EXITS:
            return True
        inner = arm.child_by_field_name(_INNER[arm.type]) if arm.type in _INNER else None
        if inner is None and arm.type in _WRAPPERS:
            inside = [child for child in arm.named_children if child.type != "comment"]
            inner = inside[-1] if inside else None
        if inner is None:
            return False
        arm = inner
    return False
