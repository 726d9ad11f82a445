"""Which characters of an answer are a reasoning trace, and so no part of what is taught as code."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["blanked", "thought_ranges"]

_TAG = re.compile(r"<(?P<slash>/?)(?P<name>think|thinking|thought|reasoning)>", re.IGNORECASE)
_BAR_TAG = re.compile(r"<\|(?P<side>begin|end)_of_thought\|>", re.IGNORECASE)
_NOT_NEWLINE = re.compile(r"[^\r\n]+")


def thought_ranges(response: str) -> list[tuple[int, int]]:
    """(start, end) of every reasoning trace, tags included, in order and disjoint.

    A tag that is never closed makes the rest a thought (a truncated trace). A closing tag without an opening one
    makes all before it a thought: chat templates often put the opening tag into the prompt. An opening tag counts
    only where it starts a line, so that prose or code which mentions one is left alone; inside a trace, further
    opening tags of its name nest."""
    tags: list[tuple[int, int, str, bool]] = []  # start, end, name, opens
    tags += [(m.start(), m.end(), m["name"].lower(), not m["slash"]) for m in _TAG.finditer(response)]
    tags += [(m.start(), m.end(), "bar", m["side"].lower() == "begin") for m in _BAR_TAG.finditer(response)]
    tags.sort()
    ranges: list[tuple[int, int]] = []
    opened: tuple[int, str] | None = None
    depth = 0
    for start, end, name, opens in tags:
        if opened is None:
            if opens and _starts_a_line(response, start):
                opened, depth = (start, name), 1
            elif not opens and not ranges:
                ranges.append((0, end))
        elif name == opened[1]:
            depth += 1 if opens and _starts_a_line(response, start) else 0 if opens else -1
            if depth == 0:
                ranges.append((opened[0], end))
                opened = None
    if opened is not None:
        ranges.append((opened[0], len(response)))
    return ranges


def blanked(response: str, ranges: Sequence[tuple[int, int]]) -> str:
    """The answer at its own length, every character of the ranges a space (line ends stay: offsets and lines agree)."""
    pieces: list[str] = []
    last = 0
    for start, end in ranges:
        pieces += [response[last:start], _NOT_NEWLINE.sub(lambda m: " " * len(m[0]), response[start:end])]
        last = end
    return "".join([*pieces, response[last:]])


def _starts_a_line(text: str, at: int) -> bool:
    """Only blanks (fewer than 80, so that one long line of tags stays cheap) stand between the start of the line and
    `at`.
    """
    before = text[max(0, at - 80) : at]
    line = before[max(before.rfind("\n"), before.rfind("\r")) + 1 :]
    return not line.strip() and len(line) < 80
