"""Secrets and e-mail addresses in the turns of a row, replaced by placeholders of the same kind before anything else
reads them.

A secret becomes a word such as `REDACTED_GITHUB_TOKEN_1`, an address `redacted-1@example.com`: a string literal stays
one, a comment stays one, and code parses as before. Numbers count by kind in the order of finding over all turns of a
row, the same value always gets the same number, and nothing of the value goes into its placeholder.

Redacting twice changes nothing. Places that overlap are replaced as one, so that no part of a secret is left beside the
placeholder of another; a placeholder is never part of a secret; and since a placeholder can still bring something to
light (a line gets short enough to be searched), every text is searched until nothing more is found.

E-mail addresses are replaced wherever they are text: comments, string literals and prose alike, since the prompt of a
source file is made of its comments. Python code is the one place where `@` is an operator, so there only comments and
strings are searched. Addresses of the domains that are kept for examples stay, and so does `git@host`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from curate.comments import python_code
from curate.secret_patterns import Found, find_secrets

__all__ = ["Redacted", "Redaction", "find_private", "redact"]

EMAIL = "email"

_DOMAIN = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,6}([A-Za-z]{2,12})(?![\w@(\[-]|\.\w)", re.ASCII
)
_LOCAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._%+-]*\Z", re.ASCII)
_MAX_LOCAL = 64
_ESCAPED = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
_RESERVED = re.compile(r"(?:.*\.)?example\.(?:com|net|org|edu)|.*\.(?:example|test|invalid|localhost)", re.IGNORECASE)
_TOP_LEVEL = re.compile(
    r"[a-z]{2}|com|org|net|edu|gov|mil|int|info|biz|name|pro|aero|coop|jobs|mobi|museum|cat|dev|app|tech|cloud|online|site"
    r"|xyz|email|science|academy|university|institute|systems|solutions|company|software|studio|digital|agency|group"
)
"""What an address can end in, any country among it."""
_USERINFO = re.compile(r"://[^\s/@]*\Z")
_PLACEHOLDER = re.compile(r"REDACTED_[A-Z][A-Z_]{0,40}_\d+|redacted-\d+@example\.com", re.ASCII)
_MAX_PASSES = 6  # two do for nearly every text with a secret, the second of which finds nothing


@dataclass(frozen=True)
class Redacted:
    """A placeholder: characters [start, end) of the redacted text of message `message`."""

    message: int
    start: int
    end: int
    kind: str


@dataclass(frozen=True)
class Redaction:
    """`messages`: the turns with placeholders, roles as they were. `counts`: replaced places by kind, sorted by kind;
    empty when nothing was found. `spans`: every placeholder, in order."""

    messages: tuple[tuple[str, str], ...]
    counts: dict[str, int]
    spans: tuple[Redacted, ...]


def redact(messages: Sequence[tuple[str, str]]) -> Redaction:
    """Replaces the secrets and e-mail addresses in the contents of (role, content) turns; never raises.

    Linear in the text. Messages in which nothing is found are returned as they are. A message in which there is no end
    of findings (none is known) becomes one placeholder.
    """
    names = _Names(messages)
    spans: list[Redacted] = []
    turns = []
    for n, (role, content) in enumerate(messages):
        places: list[Found] = []
        passes = 0
        while found := find_private(content):
            passes += 1
            if passes == _MAX_PASSES:
                found, places = [Found(0, len(content), found[0].kind)], []
            content, places = _replaced(content, found, places, names)
        spans += (Redacted(n, place.start, place.end, place.kind) for place in places)
        turns.append((role, content))
    counts = Counter(span.kind for span in spans)
    return Redaction(tuple(turns), dict(sorted(counts.items())), tuple(spans))


class _Names:
    """The placeholder of every value, none of them one that the messages hold already."""

    def __init__(self, messages: Sequence[tuple[str, str]]) -> None:
        self._taken = {
            found for _, content in messages if "edacted" in content.lower() for found in _PLACEHOLDER.findall(content)
        }
        self._names: dict[tuple[str, str], str] = {}
        self._numbers: Counter[str] = Counter()

    def of(self, kind: str, value: str) -> str:
        key = (kind, value.lower() if kind == EMAIL else value)
        while key not in self._names:
            self._numbers[kind] += 1
            name = _placeholder(kind, self._numbers[kind])
            if name not in self._taken:
                self._names[key] = name
        return self._names[key]


def _replaced(text: str, found: Sequence[Found], places: Sequence[Found], names: _Names) -> tuple[str, list[Found]]:
    """The text with placeholders for what was found, and all of its places: those it had (`places`; none is among what
    was found) and the new ones."""
    pieces: list[str] = []
    moved: list[Found] = []
    at = length = 0  # up to where the text is done, and how long it has become
    new = set(found)
    for one in sorted([*found, *places]):
        value = text[one.start : one.end]
        name = names.of(one.kind, value) if one in new else value
        pieces += (text[at : one.start], name)
        length += one.start - at + len(name)
        moved.append(Found(length - len(name), length, one.kind))
        at = one.end
    return "".join((*pieces, text[at:])), moved


def _placeholder(kind: str, number: int) -> str:
    return f"redacted-{number}@example.com" if kind == EMAIL else f"REDACTED_{kind.upper()}_{number}"


def find_private(text: str) -> list[Found]:
    """Secrets and e-mail addresses of a text, which have to be replaced: in order, without overlaps and outside every
    placeholder. Never raises; linear in the text."""
    found = _united([*find_secrets(text), *_addresses(text)])
    marks = [mark.span() for mark in _PLACEHOLDER.finditer(text)] if found else []
    return [part for one in found for part in _outside(one, marks) if part.kind != EMAIL or text[part.start] != "@"]


def _united(found: Iterable[Found]) -> list[Found]:
    """What overlaps as one, of the kind of the longest; an address only where no secret is part of it."""
    kept: list[Found] = []
    for one in sorted(found, key=lambda f: (f.start, -f.end)):
        if kept and one.start < kept[-1].end:
            last = kept[-1]
            kind = max(last, one, key=lambda f: (f.kind != EMAIL, f.end - f.start)).kind
            kept[-1] = Found(last.start, max(last.end, one.end), kind)
        else:
            kept.append(one)
    return kept


def _outside(one: Found, marks: Sequence[tuple[int, int]]) -> Iterator[Found]:
    """The parts of it that are in none of the ranges `marks`, which are in order."""
    at = one.start
    n = max(0, bisect_right(marks, (at, at)) - 1)
    while n < len(marks) and marks[n][0] < one.end:
        start, end = marks[n]
        if at < start:
            yield Found(at, start, one.kind)
        at = max(at, end)
        n += 1
    if at < one.end:
        yield Found(at, one.end, one.kind)


def _addresses(text: str) -> list[Found]:
    found = []
    at = text.find("@")
    while at >= 0:
        one = _address(text, at)
        if one is not None:
            found.append(one)
        at = text.find("@", at + 1)
    if not found:
        return []
    operators = python_code(text, [one.start for one in found])
    return [one for one in found if one.start not in operators]


def _address(text: str, at: int) -> Found | None:
    """The address around the @ at `at`, if it is one."""
    domain = _DOMAIN.match(text, at + 1)
    if domain is None or not _is_top_level(domain[1]) or _RESERVED.fullmatch(text, at + 1, domain.end()):
        return None
    local = _LOCAL.search(text, max(0, at - _MAX_LOCAL), at)
    if local is None or at - local.start() == _MAX_LOCAL:
        return None
    start = local.start()
    if text[start] in "nrtabfv0" and _ESCAPED.search(text, max(0, start - 64), start):
        start += 1  # the n of a written \n
    name = text[start:at]
    if not name or name[-1] == "." or name.lower() == "git" or not re.search("[A-Za-z]", name):
        return None
    if _USERINFO.search(text, max(0, start - 100), start):  # of a URL
        return None
    return Found(start, domain.end(), EMAIL)


def _is_top_level(label: str) -> bool:
    """Whether an address can end in this: `q@k.transpose` and `x@w.mT` are products."""
    return (label.islower() or label.isupper()) and _TOP_LEVEL.fullmatch(label.lower()) is not None
