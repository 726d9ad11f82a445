"""Secrets and e-mail addresses in the turns of a row, replaced by placeholders of the same kind before anything else
reads them.

A secret becomes a word such as `REDACTED_GITHUB_TOKEN_1`, an address `redacted-1@example.com`: a string literal stays
one, a comment stays one, and code parses as before. Numbers count by kind in order of appearance over all turns of a
row, the same value always gets the same number, and nothing of the value goes into its placeholder. Redacting twice
changes nothing.

E-mail addresses are replaced wherever they are text: comments, string literals and prose alike, since the prompt of a
source file is made of its comments. Python code is the one place where `@` is an operator, so there only comments and
strings are searched. Addresses of the domains that are kept for examples stay, and so does `git@host`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from curate.comments import python_code
from curate.secret_patterns import Found, find_secrets

__all__ = ["Redacted", "Redaction", "redact"]

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
_PLACEHOLDER = re.compile(r"\b(?:REDACTED_[A-Z][A-Z_]*_\d+|redacted-\d+@example\.com)\b")


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

    Linear in the text. Messages in which nothing is found are returned as they are.
    """
    taken = {
        found for _, content in messages if "edacted" in content.lower() for found in _PLACEHOLDER.findall(content)
    }
    names: dict[tuple[str, str], str] = {}
    numbers: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    spans: list[Redacted] = []
    turns = []
    for n, (role, content) in enumerate(messages):
        pieces: list[str] = []
        at = length = 0
        for found in _all(content):
            value = content[found.start : found.end]
            key = (found.kind, value.lower() if found.kind == EMAIL else value)
            while key not in names:
                numbers[found.kind] += 1
                name = _placeholder(found.kind, numbers[found.kind])
                if name not in taken:
                    names[key] = name
            before = content[at : found.start]
            start = length + len(before)
            length = start + len(names[key])
            pieces += (before, names[key])
            spans.append(Redacted(n, start, length, found.kind))
            counts[found.kind] += 1
            at = found.end
        turns.append((role, "".join((*pieces, content[at:])) if pieces else content))
    return Redaction(tuple(turns), dict(sorted(counts.items())), tuple(spans))


def _placeholder(kind: str, number: int) -> str:
    return f"redacted-{number}@example.com" if kind == EMAIL else f"REDACTED_{kind.upper()}_{number}"


def _all(text: str) -> list[Found]:
    """Secrets and addresses in order; what a secret covers is no address."""
    secrets = find_secrets(text)
    starts = [secret.start for secret in secrets]

    def is_free(address: Found) -> bool:
        before = bisect_left(starts, address.end) - 1
        return before < 0 or secrets[before].end <= address.start

    return sorted([*secrets, *filter(is_free, _addresses(text))])


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
