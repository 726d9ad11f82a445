"""The patterns of the query files, arranged so that the query engine has little to do.

Most categories ask the same of the tree, say the name of a call, and differ in the names. Given to the engine as they
stand in the files, every node is tried by every category, and the names are compared one pattern after another, which
takes longer than the parse. So the patterns are sorted by *shape*: what is left of a pattern without its predicates and
the names of its captures. Each shape is matched once, and what its texts mean is looked up (`Shape.names_of`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

__all__ = ["Shape", "shapes"]

_STRING = r'"(?:[^"\\]|\\.)*"'
_COMMENT = re.compile(rf"({_STRING})|;[^\n]*")
_BRACKET = re.compile(rf"{_STRING}|[()\[\]]")
_CAPTURE = re.compile(rf"{_STRING}|@(?P<name>[\w.]+)")
_PREDICATE = re.compile(rf"\(#(any-of|eq|match)\? @(\w+)((?: {_STRING})+)\)")
_NODE = re.compile(rf"(?!\(MISSING)(?:\(\w+\)|{_STRING}|\[(?:{_STRING} ?)+\]) @c0")

_KNOWN = 1 << 12
"""Texts whose names each shape remembers: identifiers repeat."""

Names = tuple[str, ...]
Tests = list[tuple[str, Callable[[str], bool]]]
"""Captures, and what the text of each must be."""


@dataclass(eq=False)
class Shape:
    """What several patterns ask of the tree.

    `text`: the pattern to match. Its captures are `captures`, and those that begin with an underscore, which serve
    predicates alone. `always`: the names of the captures in each pattern without predicates, in the order of
    `captures`; `rules` those in each of the others.
    """

    text: str
    captures: tuple[str, ...]
    always: list[Names] = field(default_factory=list)
    rules: list[tuple[Names, Tests]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names_of = lru_cache(_KNOWN)(self._names_of)

    @property
    def is_node(self) -> bool:
        """Whether a single node is asked for, whatever stands around it."""
        return _NODE.fullmatch(self.text) is not None

    @cached_property
    def tested(self) -> tuple[str, ...]:
        """Captures whose texts tell the rules apart."""
        return tuple(dict.fromkeys(capture for _, tests in self.rules for capture, _ in tests))

    def _names_of(self, *texts: bytes) -> list[Names]:
        """The names of the captures in each pattern that these texts of the captures `tested` fulfil."""
        given = {capture: text.decode("utf-8", "replace") for capture, text in zip(self.tested, texts, strict=True)}
        return [names for names, tests in self.rules if all(test(given[capture]) for capture, test in tests)]


def shapes(queries: Iterable[str]) -> list[Shape]:
    """The patterns of the query files by shape.

    Predicates are left to the engine where they are of a kind that is not known here, and where no other pattern has
    the shape: the engine compares one name faster than it hands a match over.
    """
    found = [_shape_of(pattern) for query in queries for pattern in _patterns(query)]
    count = Counter(bare for _, bare, _ in found)
    known: dict[str, Shape] = {}
    for whole, bare, names in found:
        alone = count[bare] == 1
        text = whole if alone else bare
        shape = known.setdefault(text, Shape(text, tuple(capture for capture in names if capture[0] != "_")))
        own = tuple(names[capture] for capture in shape.captures)
        if tests := [] if alone else [(capture, _test(*rest)) for *rest, capture in _predicates(whole)]:
            shape.rules.append((own, tests))
        else:
            shape.always.append(own)
    return list(known.values())


def _patterns(text: str) -> Iterator[str]:
    """The patterns of a query file on one line each, without comments."""
    line = _line(_COMMENT.sub(lambda found: found[1] or "", text))
    depth = begin = 0
    for found in _BRACKET.finditer(line):
        if depth == 0 and found[0] not in ")]" and found.start() > begin:  # its captures stand behind a pattern
            yield line[begin : found.start()].strip()
            begin = found.start()
        depth += (found[0] in "([") - (found[0] in ")]")
    yield line[begin:]


def _line(text: str) -> str:
    """Without line breaks and the blanks that mean nothing; those inside strings stay."""
    pieces = re.split(rf"({_STRING})", text)
    pieces[::2] = [re.sub(r"(?<=[(\[]) | (?=[)\]])", "", re.sub(r"\s+", " ", piece)) for piece in pieces[::2]]
    return "".join(pieces).strip()


def _shape_of(pattern: str) -> tuple[str, str, dict[str, str]]:
    """The pattern under other names of its captures, the same without its predicates, and the names as they were."""
    given: dict[str, str] = {}

    def rename(found: re.Match[str]) -> str:
        name = found["name"]
        return (
            found[0] if name is None else "@" + given.setdefault(name, f"{'_' if name[0] == '_' else 'c'}{len(given)}")
        )

    whole = _CAPTURE.sub(rename, pattern)
    bare = _line(_PREDICATE.sub("", whole))
    if bare.startswith("((") and _NODE.fullmatch(bare[1:-1]):
        bare = bare[1:-1]  # brackets that held the predicate
    return whole, bare, {capture: name for name, capture in given.items()}


def _predicates(pattern: str) -> Iterator[tuple[str, str, str]]:
    """(kind, quoted strings, capture) of each predicate that is known here."""
    for kind, capture, quoted in _PREDICATE.findall(pattern):
        yield kind, quoted, capture


def _test(kind: str, quoted: str) -> Callable[[str], bool]:
    values = [re.sub(r"\\(.)", r"\1", string[1:-1]) for string in re.findall(_STRING, quoted)]
    if kind == "match":
        search = re.compile(values[0]).search
        return lambda text: search(text) is not None
    return frozenset(values).__contains__
