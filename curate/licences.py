"""The licence of a row as an SPDX expression, who has to be named for it, and whether an allow-list lets it through.

An `SPDX-License-Identifier` in a comment of the code wins over the row's own field, which wins over what the user says
of the source. Nothing is guessed from prose: what names no licence for certain is unknown, with a note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal

from license_expression import LicenseSymbol, LicenseWithExceptionSymbol, Licensing, get_spdx_licensing

from curate.comments import comments_about
from curate.errors import OptionError
from curate.license_names import ALIASES, NOTHING, VAGUE

__all__ = [
    "ALLOWED",
    "License",
    "is_allowed",
    "needs_attribution",
    "parse_option_license",
    "resolve_license",
    "says_nothing",
    "spdx",
]

ALLOWED: tuple[str, ...] = (
    *("MIT", "MIT-0", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "ISC"),
    *("Zlib", "BSL-1.0", "Unlicense", "CC0-1.0", "NCSA", "PSF-2.0", "Python-2.0", "CC-BY-3.0", "CC-BY-4.0"),
)
"""Allowed unless the user says otherwise: permissive licences, and CC-BY, whose attribution is kept with the row."""

_NO_NOTICE = frozenset({"CC0-1.0", "Unlicense", "0BSD", "MIT-0", "WTFPL", "PDDL-1.0"})
_MAX_LENGTH = 500  # characters of a statement; the longest expressions of real files have about 150
_MAX_HEADERS = 16
_MAX_EXPRESSION = 2000  # of several headers together
_MAX_LINES, _MAX_LINE = 20, 200  # of attribution

_LICENSE_REF = re.compile(r"(?:DocumentRef-[A-Za-z0-9.-]+:)?LicenseRef-[A-Za-z0-9.-]+", re.ASCII)
_ABOUT = re.compile(rb"SPDX-License-Identifier:|copyright|\(c\)[ \t]*\d{4}|\xc2\xa9", re.IGNORECASE)
_HEADER = re.compile(r"SPDX-License-Identifier:[ \t]*([^\r\n]*)", re.IGNORECASE)
_NAMED = re.compile(
    r"(?:SPDX-FileCopyrightText:[ \t]*)?"
    r"((?:copyright[ \t]*(?:\(c\)|©|:?[ \t]*\d{4})|(?:\(c\)|©)[ \t]*(?:copyright\b|\d{4})|copyright(?-i:[ \t]+[A-Z])"
    r"(?!otice|older|wner|aw\b))[^\r\n]*)",
    re.IGNORECASE,
)
_MARKS = " \t/*#!;%-<>|\"'"
_NOISE = re.compile(r"[\s_,\"'()]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


@dataclass(frozen=True)
class License:
    """`expression`: SPDX, None where unknown. `origin`: where the statement that decides stands (also one that cannot
    be read); None where nobody says anything. `attribution`: the copyright lines of the code, where the licence asks
    for them or is unknown. `note`: what was unclear; holds at most 60 characters of the row's own text."""

    expression: str | None
    origin: Literal["header", "row", "source"] | None = None
    attribution: tuple[str, ...] = ()
    note: str = ""


def resolve_license(row_field: str | None, response: str, cuda: Sequence[str] = (), fill: str | None = None) -> License:
    """The licence of one row; never raises.

    `row_field`: what the row's column says. `cuda`: the texts of the CUDA blocks of `response`; their comments, and
    those of Python code in the response, are searched for headers and copyright lines. `fill`: what the user says of
    the source; used where the row says nothing, not where it says something that cannot be read. Several headers hold
    all at once (AND); one that cannot be read makes the whole unknown.
    """
    comments = list(comments_about(_ABOUT, cuda, response))
    headers = _headers(comments)
    origin: Literal["header", "row", "source"] | None = None
    expression, note = None, ""
    if headers:
        origin = "header"
        expression, note = _all_of(headers)
    elif row_field is not None and not says_nothing(row_field):
        origin = "row"
        expression, note = spdx(row_field)
    elif fill is not None:
        origin = "source"
        expression, note = spdx(fill)
    named = _attribution(comments) if expression is None or needs_attribution(expression) else ()
    return License(expression, origin, named, note)


def spdx(text: str) -> tuple[str | None, str]:
    """(SPDX expression or None, note) of what somebody wrote: an expression, a usual name of a licence, a Hub id, an
    address, or a list of these (all of which hold). Never raises; linear in the text."""
    text = text.strip()
    if len(text) > _MAX_LENGTH:
        return None, f"the licence is a text of {len(text)} characters"
    found = _statement(text)
    if found is None:
        return None, f"no SPDX licence: '{_shown(text)}'"
    return found, VAGUE.get(_plain(text), "")


def parse_option_license(text: str, option: str = "--license") -> str:
    """The value of an option as an SPDX expression. Raises OptionError for one that names no licence."""
    expression, _ = spdx(text)
    if expression is None:
        raise OptionError(
            f"{option} {_shown(text)}: no SPDX licence; write an identifier of https://spdx.org/licenses such as "
            "Apache-2.0, an expression such as 'MIT OR Apache-2.0', or LicenseRef-NAME for a licence that has none"
        )
    return expression


def is_allowed(expression: str | None, allow_list: Iterable[str] = ALLOWED) -> bool:
    """Whether the allow-list lets an SPDX expression through: of OR any side, of AND every side. A licence WITH an
    exception has to be listed as such, or without it, since an exception only gives further rights. Unknown is not
    allowed."""
    if expression is None:
        return False
    return _holds(expression, frozenset(key for entry in allow_list if (key := spdx(entry)[0]) is not None))


def needs_attribution(expression: str) -> bool:
    """Whether any licence in the expression asks to keep its copyright notice."""
    parsed = _parsed(expression)
    return parsed is None or any(str(symbol) not in _NO_NOTICE for symbol in _licensing().license_symbols(parsed))


@cache
def _licensing() -> Licensing:
    return get_spdx_licensing()


@cache
def _identifiers() -> dict[str, str]:
    """Identifiers in plain form -> as SPDX writes them; exceptions are no licences."""
    known = _licensing().known_symbols
    return {_plain(key): key for key, symbol in known.items() if not symbol.is_exception}


@lru_cache(4096)
def _holds(expression: str, allowed: frozenset[str]) -> bool:
    parsed = _parsed(expression)
    return parsed is not None and _evaluate(
        parsed,
        lambda symbol: (
            str(symbol) in allowed
            or (isinstance(symbol, LicenseWithExceptionSymbol) and str(symbol.license_symbol) in allowed)
        ),
    )


def _evaluate(node: Any, holds: Callable[[Any], bool]) -> bool:
    """Truth of an expression; as deep as its parentheses, which its length bounds."""
    if isinstance(node, LicenseSymbol | LicenseWithExceptionSymbol):
        return holds(node)
    sides = (_evaluate(side, holds) for side in node.args)
    return any(sides) if isinstance(node, _licensing().OR) else all(sides)


def _parsed(expression: str) -> Any | None:
    """The expression as a tree when it is SPDX through and through, else None."""
    if len(expression) > _MAX_EXPRESSION:
        return None
    try:
        parsed = _licensing().parse(expression, validate=False, strict=False)
        if parsed is None or not all(_is_known(symbol) for symbol in parsed.symbols):
            return None
        return parsed
    except Exception:  # the library has several kinds of error, bare ones among them, for what is no expression
        return None


def _is_known(symbol: Any) -> bool:
    if isinstance(symbol, LicenseWithExceptionSymbol):
        return _is_known(symbol.license_symbol) and (
            symbol.exception_symbol.is_exception and symbol.exception_symbol.key in _licensing().known_symbols
        )
    if symbol.key in _licensing().known_symbols:
        return not symbol.is_exception
    return _LICENSE_REF.fullmatch(symbol.key) is not None


def says_nothing(text: str) -> bool:
    """Whether a row's field is there but empty: `unknown`, `none`, `NOASSERTION` and the like."""
    text = text.strip()
    return len(text) <= _MAX_LENGTH and _plain(text) in NOTHING


def _plain(text: str) -> str:
    """A name without what people write differently: case, blanks, quotes, 'the', 'license', 'version'."""
    words = _NOISE.sub("-", text.strip().lower()).strip("-.")
    words = re.sub(r"-?\b(?:the|licen[cs]e|licensed|under|version)\b-?", "-", words)
    return re.sub(r"-+", "-", re.sub(r"(?<![a-z])v\.?(?=\d)|(?<=pl)-?v\.?(?=\d)", "", words)).strip("-.")


def _one(text: str) -> str | None:
    """The licence that one name, identifier or address stands for."""
    name = text.rsplit("::", 1)[-1].strip()
    address = re.sub(r"^https?://(?:www\.)?|/(?:legalcode|deed)?(?:\.[a-z]+)?$|\.(?:txt|html|php)$", "", name.lower())
    plain = _plain(name)
    if plain in NOTHING:
        return None
    known = ALIASES.get(address) or ALIASES.get(plain) or _identifiers().get(plain)
    if known is None and "/" in address:
        place, _, last = address.rpartition("/")
        if place in ("opensource.org/licenses", "opensource.org/license", "spdx.org/licenses"):
            known = _identifiers().get(_plain(last))
    parsed = _parsed(known or name)
    return None if parsed is None else str(parsed)


def _statement(text: str) -> str | None:
    if not text:
        return None
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1].strip()
    if (one := _one(text)) is not None:
        return one
    for separator, joined in ((r"\s*[,;]\s*", " AND "), (r"\s*/\s*", " OR ")):
        parts = [part.strip(" \t\"'") for part in re.split(separator, text)]
        if len(parts) > 1 and all(parts):
            known = [_one(part) for part in parts]
            if all(known):
                return _joined([part for part in known if part is not None], joined)
    return None


def _joined(expressions: Sequence[str], operator: str) -> str:
    distinct = list(dict.fromkeys(expressions))
    return distinct[0] if len(distinct) == 1 else operator.join(f"({e})" if " " in e else e for e in distinct)


def _headers(comments: Iterable[str]) -> list[str]:
    found = (match[1] for comment in comments for match in _HEADER.finditer(comment))
    distinct = dict.fromkeys(text.split("*/")[0].split("-->")[0].strip(_MARKS) for text in found)
    return list(distinct)


def _all_of(headers: Sequence[str]) -> tuple[str | None, str]:
    if len(headers) > _MAX_HEADERS:
        return None, f"{len(headers)} different SPDX headers"
    found = [spdx(header) for header in headers]
    unread = next((note for expression, note in found if expression is None), None)
    if unread is not None:
        return None, f"SPDX header: {unread}"
    distinct = sorted({expression for expression, _ in found if expression is not None})
    several = f"{len(distinct)} SPDX headers: all of them hold" if len(distinct) > 1 else ""
    parsed = _parsed(_joined(distinct, " AND "))
    return (str(parsed), several or found[0][1]) if parsed is not None else (None, "SPDX headers of great length")


def _attribution(comments: Iterable[str]) -> tuple[str, ...]:
    """Distinct copyright lines of the comments, in order; at most 20 of at most 200 characters."""
    lines: dict[str, None] = {}
    for comment in comments:
        for line in re.split(r"[\r\n]+", comment):
            named = _NAMED.match(line[:1000].strip(_MARKS))
            if named is not None:
                notice = " ".join(_CONTROL.sub(" ", named[1].split("*/")[0]).strip(_MARKS).split())
                lines[notice[:_MAX_LINE].rstrip()] = None
                if len(lines) == _MAX_LINES:
                    return tuple(lines)
    return tuple(lines)


def _shown(text: str) -> str:
    plain = _CONTROL.sub(" ", text[:61].strip())
    return plain if len(text) <= 60 else plain[:57] + "..."
