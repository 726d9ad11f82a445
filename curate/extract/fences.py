"""Fenced code blocks of an answer, with exact character offsets.

A line scanner of our own rather than a Markdown parser, for three reasons. A CommonMark parser ends a fence inside a
list item at the first line that is indented less than the item; models often indent the fence and not the code, which
would lose the kernel and turn the closing fence into an opening one. It takes a fence after a line such as `<answer>`
for raw HTML. And it normalises line ends and NUL characters, so that offsets would have to be mapped back. The rest
follows CommonMark: a fence is three or more backticks or tildes, ends with at least as many of the same, a backtick
fence has no backtick in its info string, and a fence that is never closed runs to the end of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Fence", "fences"]

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_MARK = re.compile("```|~~~")
_QUOTE = re.compile(r"[ \t]*(?:>[ \t]?)+")
_OPEN = re.compile(r"[ \t]*(?:(?:[-+]|\d{1,9}[.)])[ \t]+)?(?P<fence>`{3,}|~{3,})(?P<info>[^\r\n]*)")
_CLOSE = re.compile(r"[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?:\r\n|\r|\n|\Z)")


@dataclass(frozen=True)
class Fence:
    """A fenced block: `info` as written, and the (start, end) characters of its text: of each line where it is quoted,
    to leave the markers out, and else of any number of lines."""

    info: str
    lines: tuple[tuple[int, int], ...]
    closed: bool
    quoted: bool

    @property
    def start(self) -> int:
        """The first character of the content."""
        return self.lines[0][0]

    @property
    def end(self) -> int:
        """One past the last character of the content."""
        return self.lines[-1][1]


def fences(text: str, start: int = 0, end: int | None = None) -> Iterator[Fence]:
    """Every fenced block in `text[start:end]` that has content, in order; linear in the length of the text."""
    end = len(text) if end is None else end
    opening: str | None = None
    info = ""
    quoted = False
    lines: list[tuple[int, int]] = []
    at = start
    while at < end:
        if opening is None or not quoted:  # a line without a mark opens and closes nothing
            mark = _MARK.search(text, at, end)
            line = end if mark is None else max(text.rfind(stop, at, mark.start()) + 1 for stop in "\r\n")
            if line > at:
                if opening is not None:
                    lines.append((at, line))
                at = line
                continue
        found = _LINE.match(text, at, end)
        stop = found.end() if found is not None else end
        if opening is None:
            quote = _QUOTE.match(text, at, stop)
            head = _OPEN.match(text, quote.end() if quote else at, stop)
            if head is not None and not (head["fence"][0] == "`" and "`" in head["info"]):
                opening, info, quoted, lines = head["fence"], head["info"].strip(), quote is not None, []
        else:
            quote = _QUOTE.match(text, at, stop) if quoted else None
            if quoted and quote is None and text[at:stop].strip():  # the quotation is over, and its fence with it
                if lines:
                    yield Fence(info, tuple(lines), False, quoted)
                opening = None
                continue
            body = quote.end() if quote else at
            tail = _CLOSE.match(text, body, stop)
            if tail is not None and tail["fence"].startswith(opening):
                if lines:
                    yield Fence(info, tuple(lines), True, quoted)
                opening = None
            else:
                lines.append((body, stop))
        at = stop
    if opening is not None and lines:
        yield Fence(info, tuple(lines), False, quoted)
