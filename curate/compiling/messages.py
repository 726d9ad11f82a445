"""What compilers say: errors, figures of kernels, and a log that names nothing of this machine."""

from __future__ import annotations

import re
from dataclasses import dataclass

from curate.compiling.types import KernelUse

__all__ = ["Message", "clean_log", "errors_of", "kernel_name", "kernel_uses", "printable"]

_ERROR = re.compile(r"^(?P<where>[^\s(][^(\n]*)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<what>.*)$")
_PTXAS = re.compile(r"^ptxas .*?; (?:error|fatal)\s*: (?P<what>.*)$")
_FATAL = re.compile(r"^(?P<where>[^\s:][^:\n]*):(?P<line>\d+):\d+: (?:fatal )?error: (?P<what>.*)$")
_OTHER = re.compile(
    r"^(?:ptxas|nvrtc|nvcc|cc1plus|cudafe\+\+|cicc)\b\s*:?\s*(?:error|fatal|fatal error)\s*:\s*(?P<what>.*)$"
)
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_SPILLS = re.compile(r"(\d+) bytes spill stores")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")
_PATH = re.compile(r"(?<![\w)\]/.])/(?:[\w.+@~-]+/)+(?=[\w.+-])")
_CONTROL = re.compile(
    r"[^\n\t\x20-\x7e\xa0-\u200a\u2010-\u2027\u202f-\u205f\u3000-\ud7ff\ue000-\ufeff\uff00-\U0010ffff]"
)
_NOISE = re.compile(r"^(?:ptxas info|ptxas {2,}\.|\s*\^\s*$|\s*$|\d+ errors? detected|Remark:)")
_MAX_LINES, _MAX_LINE, _MAX_LOG = 12, 300, 2000


@dataclass(frozen=True)
class Message:
    """One error: the file as the compiler names it ("" for the assembler's), its line from 1, and what is wrong."""

    where: str
    line: int
    what: str


def errors_of(log: str) -> list[Message]:
    """The errors of NVRTC, nvcc, its host preprocessor and ptxas, in order; at most 200."""
    found: list[Message] = []
    for line in log[:1_000_000].split("\n"):
        line = line.rstrip("\r")[:2000]
        if match := _ERROR.match(line) or _FATAL.match(line):
            found.append(Message(match["where"], int(match["line"][:9]), match["what"]))
        elif match := _PTXAS.match(line) or _OTHER.match(line):
            found.append(Message("", 0, match["what"]))
        if len(found) >= 200:
            break
    return found


def printable(text: str) -> str:
    """Folders of this machine removed from file names; control and bidirectional characters as question marks."""
    return _CONTROL.sub("?", _PATH.sub("", text))


def clean_log(log: str) -> str:
    """The first lines, without ptxas' figures, folders of this machine and control characters."""
    lines = []
    for line in log[:200_000].split("\n"):
        if _NOISE.match(line):
            continue
        line = printable(line.rstrip()[: 4 * _MAX_LINE])
        lines.append(line if len(line) <= _MAX_LINE else line[:_MAX_LINE] + " ...")
        if len(lines) == _MAX_LINES:
            break
    return "\n".join(lines)[:_MAX_LOG]


def kernel_uses(log: str) -> tuple[KernelUse, ...]:
    """What ptxas -v reports of every kernel, by name."""
    uses: list[KernelUse] = []
    entry = function = ""
    spilled = 0
    for line in log.split("\n"):
        if match := _ENTRY.search(line):
            entry, spilled = match[1], 0
        elif match := _PROPERTIES.search(line):
            function = match[1]
        elif (match := _SPILLS.search(line)) and function == entry:
            spilled = int(match[1])
        if entry and (match := _USED.search(line)):
            shared = _SHARED.search(line)
            uses.append(KernelUse(kernel_name(entry), int(match[1]), int(shared[1]) if shared else 0, spilled))
            entry = ""
    return tuple(sorted(uses, key=lambda use: (use.name, use.registers, use.shared_bytes, use.spill_bytes)))


def kernel_name(symbol: str) -> str:
    """The bare name in a mangled one (Itanium ABI: every part is preceded by its length), namespaces left out."""
    if not symbol.startswith("_Z"):
        return symbol
    at = 3 if symbol[2:3] == "N" else 2
    name = ""
    while match := re.compile(r"\d+").match(symbol, at):
        end = match.end() + int(match[0][:6])
        name, at = symbol[match.end() : end], end
        if symbol[2:3] != "N":
            break
        if symbol[at : at + 1] == "I":  # template arguments: they end the name
            break
    return name or symbol
