"""What a compiler shall never see: source that names files outside its own include folders.

A compiler opens the files that its input names, and quotes them in its messages: `#include "/etc/passwd"`, or `#line 1
"/etc/passwd"` before an error. So every directive that names a file must name it literally, relative and without
`..`, whatever spelling hides it: line continuations, digraphs, trigraphs, comments between the words. The names of
headers that are built from macros are refused as well, since they can be anything.
"""

from __future__ import annotations

import re
from bisect import bisect_left

__all__ = ["hazard"]

_SPLICE = re.compile(r"\\[ \t\v\f\r]*\n")
_TRIGRAPHS = {f"??{code}": meant for code, meant in zip("=/'()!<>-", "#\\^[]|{}~", strict=True)}
_HASH = re.compile(r"#|%:")
_BLANK = re.compile(r"[ \t\v\f\r]*")
_WORD = re.compile(r"[A-Za-z_]\w*|\d+")
_NAMED = frozenset(("include", "include_next", "import", "embed"))
_FILE = re.compile(r"""<([^<>"\n]*)>|"([^<>"\n]*)\"""")
_PLAIN = re.compile(r"(?!.*\.\.)[\w+-][\w./+-]*\Z")
_LINE_RULE = re.compile(r"""\d+[ \t]*(?:"([^"\n]*)"[\d \t]*)?(?://.*|/\*.*)?\Z""")
_PROBE = re.compile(r"\b__has_(?:include|include_next|embed)\b")
_PROBED = re.compile(r"""\s*\(?\s*(?:<([^<>"\n]*)>|"([^<>"\n]*)")""")
_OPENING_PRAGMA = re.compile(r"GCC[ \t]+(?:dependency|pch_preprocess)\b|include_alias\b|hdrstop\b|comment\b")
_PRAGMA_OPERATOR = re.compile(r"\b_Pragma\b|\b__pragma\b")
_BUILT_ASSEMBLY = re.compile(r'["\s\\]+')
_LINE_LIMIT = 4096


def hazard(code: str) -> str:
    """Why the code must not be compiled, "" when nothing speaks against it. Linear in its length.

    Strings and comments are searched like code: what looks like a directive in them is harmless only when it names
    nothing outside.
    """
    code = code.replace("\r\n", "\n").replace("\r", "\n")
    found = _scan(_SPLICE.sub("", code))
    if not found and "??" in code:
        for trigraph, character in _TRIGRAPHS.items():
            code = code.replace(trigraph, character)
        found = _scan(_SPLICE.sub("", code))
    return found


def _scan(text: str) -> str:
    closings = [match.start() for match in re.finditer(r"\*/", text)]
    for match in _HASH.finditer(text):
        if not _begins_line(text, match.start()):
            continue
        at = _skip(text, match.end(), closings)
        word = _WORD.match(text, at)
        if word is None:
            continue
        rest = _rest(text, _skip(text, word.end(), closings))
        if found := _directive(word[0], rest):
            return found
    for match in _PROBE.finditer(text):
        probed = _PROBED.match(text, match.end(), match.end() + _LINE_LIMIT)
        if probed is not None and _PLAIN.match(probed[1] or probed[2] or "") is None:
            return f"{match[0]} of a file outside the compiler's own folders"
        if probed is None and text[match.end() : match.end() + 200].lstrip().startswith("("):
            return f"{match[0]} of a name that is made by a macro"
    for match in _PRAGMA_OPERATOR.finditer(text):
        argument = _BUILT_ASSEMBLY.sub(" ", text[match.end() : match.end() + 200]).lstrip(" (LuU8R")
        if _OPENING_PRAGMA.match(argument):
            return "a pragma that opens a file"
    if re.search(r"\.\s*incbin", _BUILT_ASSEMBLY.sub("", text), re.IGNORECASE):
        return ".incbin in assembly"
    return ""


def _directive(word: str, rest: str) -> str:
    if word in _NAMED:
        file = _FILE.match(rest)
        if file is None:
            return f"#{word} of a name that is made by a macro"
        if _PLAIN.match(file[1] or file[2] or "") is None:
            return f"#{word} of a file outside the compiler's own folders"
        return f"#{word}" if word in ("include_next", "embed") else ""
    if word == "line" or word.isdigit():
        rule = _LINE_RULE.match(rest.strip() if word == "line" else f"{word} {rest.strip()}")
        if rule is None:
            return "#line of a name that is made by a macro"
        if rule[1] and _PLAIN.match(rule[1]) is None:
            return "#line names a file outside the compiler's own folders"
    if word == "pragma" and _OPENING_PRAGMA.match(rest):
        return "a pragma that opens a file"
    return ""


def _begins_line(text: str, at: int) -> bool:
    """Whether nothing stands before it on its line but blanks and, perhaps, the end of a comment."""
    before = at - 1
    while before >= 0 and text[before] in " \t\v\f":
        before -= 1
    return before < 0 or text[before] == "\n" or (text[before] == "/" and before > 0 and text[before - 1] == "*")


def _skip(text: str, at: int, closings: list[int]) -> int:
    """Behind blanks and comments; `closings`: where every `*/` stands."""
    while True:
        blank = _BLANK.match(text, at)
        at = blank.end() if blank else at
        if not text.startswith("/*", at):
            return at
        position = bisect_left(closings, at + 2)
        if position == len(closings):
            return at
        at = closings[position] + 2


def _rest(text: str, at: int) -> str:
    end = text.find("\n", at, at + _LINE_LIMIT)
    return text[at : at + _LINE_LIMIT if end < 0 else end]
