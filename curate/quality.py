"""Figures of an answer that say how much of it is code worth learning: measured here, judged by filters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from tree_sitter import Node, Query, QueryCursor

from curate.extract import CodeBlock
from curate.syntax.parse import Parsed, language
from curate.syntax.queries import MAX_OPEN_MATCHES, MAX_TREE_DEPTH

__all__ = ["TABLE_NUMBERS", "Quality", "measure_quality"]

TABLE_NUMBERS = 64
"""Numbers from which on a list of them is a table."""

_NUMBERS = frozenset(("number_literal", "char_literal", "true", "false"))
_NO_TEXT = frozenset("{}()[];, \t\r\f\v")


@dataclass(frozen=True)
class Quality:
    """`code_chars`: characters of CUDA code. `longest_line`: its characters, line break aside. Shares, 0 to 1, are 0
    where there is nothing to divide: `comment_share` and `number_table_share` of the code's bytes,
    `repeated_line_share` of its lines that are more than brackets, `non_ascii_share` of the response's characters.
    """

    code_chars: int
    comment_share: float
    longest_line: int
    number_table_share: float
    repeated_line_share: float
    non_ascii_share: float


def measure_quality(response: str, blocks: Sequence[CodeBlock], parsed: Sequence[Parsed]) -> Quality:
    """Measures an answer; `parsed[i]` is the syntax tree of `blocks[i]`. Linear in the length of the answer.

    A number table is a braced list of at least TABLE_NUMBERS literals, and of lists of such, and of nothing else. A
    line is repeated when the same line, white space at its ends aside, stands before it in the code of the answer.
    """
    size = sum(len(p.data) for p in parsed)
    comments = tables = 0
    for part in parsed:
        found = _captured(part)
        comments += sum(node.end_byte - node.start_byte for node in found.get("comment", ()))
        tables += sum(end - start for start, end in _tables(found.get("list", ())))
    lines = [line.strip() for block in blocks for line in block.text.split("\n")]
    told = [line for line in lines if not _NO_TEXT.issuperset(line)]
    return Quality(
        code_chars=sum(len(block.text) for block in blocks),
        comment_share=_share(comments, size),
        longest_line=max((len(line.rstrip("\r")) for block in blocks for line in block.text.split("\n")), default=0),
        number_table_share=_share(tables, size),
        repeated_line_share=_share(len(told) - len(set(told)), len(told)),
        non_ascii_share=_share(0 if response.isascii() else sum(c > "\x7f" for c in response), len(response)),
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


@cache
def _query() -> Query:
    return Query(language(), "(comment) @comment (initializer_list) @list")


def _captured(parsed: Parsed) -> dict[str, list[Node]]:
    cursor = QueryCursor(_query(), match_limit=MAX_OPEN_MATCHES)
    cursor.set_max_start_depth(MAX_TREE_DEPTH)
    return cursor.captures(parsed.main.root)


def _tables(lists: Sequence[Node]) -> Iterator[tuple[int, int]]:
    """Bytes of the outermost lists that are tables. Inner lists are counted before the ones around them."""
    counts: dict[int, int] = {}  # numbers of a list by its node; 0 where it holds anything else
    for node in sorted(lists, key=lambda n: (-n.start_byte, n.end_byte)):
        total = 0
        for child in node.named_children:
            if child.type == "comment":
                continue
            own = counts.get(child.id, 0) if child.type == "initializer_list" else int(_is_number(child))
            if not own:
                total = 0
                break
            total += own
        counts[node.id] = total
    reached = 0
    for node in sorted(lists, key=lambda n: (n.start_byte, -n.end_byte)):
        if node.start_byte >= reached and counts[node.id] >= TABLE_NUMBERS:
            reached = node.end_byte
            yield node.start_byte, node.end_byte


def _is_number(node: Node) -> bool:
    if node.type == "unary_expression" and node.named_child_count == 1:
        node = node.named_children[0]
    return node.type in _NUMBERS
