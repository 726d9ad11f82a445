"""The text behind --source: a path, a Hub dataset or the word `bundled`, and behind a `?` options of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from curate.errors import OptionError
from curate.sources.files import shown
from curate.sources.streams import kind_of

__all__ = ["SourceSpec", "parse_spec", "spec_text"]

_OPTIONS = ("map", "license")


@dataclass(frozen=True)
class SourceSpec:
    """A source's place, and those of the build's options that it has for itself."""

    place: str
    map: str | None = None
    license: str | None = None

    @property
    def own(self) -> dict[str, object]:
        """The options that were given, for the fingerprint."""
        return {name: value for name in _OPTIONS if (value := getattr(self, name)) is not None}

    @property
    def stem(self) -> str:
        """A name for an output folder: the last part of the place, without suffixes or revision."""
        if self.place.startswith("hf://"):
            parts = self.place.split("/")
            return re.split("[@:]", parts[3])[0] if len(parts) > 3 else ""
        name = Path(self.place).resolve().name
        kind, packed = kind_of(name)
        return name[: len(name) - len(packed) - len(kind)] or name


def parse_spec(spec: str) -> SourceSpec:
    """`PLACE` or `PLACE?map=prompt=COL,response=COL&license=ID`; %26 stands for an & in a value, %25 for a %.

    A file or folder whose own name is the whole text is just that. Raises OptionError for an unknown option, one
    that is given twice, and one without a value.
    """
    place, mark, options = spec.rpartition("?")
    if not mark or _exists(spec):
        return SourceSpec(spec)
    found: dict[str, str] = {}
    for part in options.split("&"):
        name, _, value = part.partition("=")
        if name not in _OPTIONS or name in found or not value:
            raise OptionError(
                f"--source {shown(spec)[:200]}: {shown(part)[:80]!r} is none of "
                f"{' and '.join(f'{option}=...' for option in _OPTIONS)}, each once, with & between them"
            )
        found[name] = unquote(value)
    return SourceSpec(place, **found)


def spec_text(item: Mapping[object, object]) -> str:
    """The same as one text, from a mapping of a YAML file: path, and optionally map (a text or a mapping) and license.

    Raises OptionError.
    """
    path = item.get("path")
    unknown = [str(key) for key in item if key not in ("path", *_OPTIONS)]
    if unknown or not isinstance(path, str):
        wrong = f"{unknown[0]!a} is unknown" if unknown else "path is missing or no text"
        raise OptionError(f"a source that is a mapping has path, map and license: {wrong}")
    options = []
    for name in _OPTIONS:
        value = item.get(name)
        if isinstance(value, Mapping):
            value = ",".join(f"{key}={column}" for key, column in value.items())
        if value is not None:
            options.append(f"{name}={quote(str(value), safe='=,/ :.')}")
    return f"{path}?{'&'.join(options)}" if options else path


def _exists(spec: str) -> bool:
    try:
        return Path(spec).exists()
    except (OSError, ValueError):  # too long, or a NUL character
        return False
