"""What every command shares: options from the command line or a YAML file, one-line errors, text that is safe to
print."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import TypeVar, get_origin, get_type_hints

import tyro
import yaml
from rich.console import Console

from curate.errors import CusetError, OptionError

__all__ = ["OneLine", "main", "parse_options", "printable", "stderr", "take_option"]

Config = TypeVar("Config")

stderr = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
"""Progress, logs and errors; results go to standard output."""

_INTERRUPTED = 130


def printable(text: str) -> str:
    """Text of a corpus for a terminal: control characters, which could steer it, are spelled out; tabs and line ends
    stay."""
    return "".join(
        c
        if c in "\t\n" or (c.isprintable() or (c.isspace() and ord(c) > 0xA0))
        else c.encode("unicode_escape").decode()
        for c in text
    )


def parse_options(config: type[Config], arguments: Sequence[str], command: str) -> Config:
    """A dataclass from command-line options.

    `--config FILE.yaml` gives further ones; an option given beside it wins. Raises OptionError, in one line, for an
    unknown option, a value of another type, or a file that cannot be read.
    """
    arguments = list(arguments)
    if any("\0" in a or (not a.isascii() and a != a.encode("utf-8", "replace").decode()) for a in arguments):
        raise OptionError("an option holds a NUL or bytes that are not UTF-8")
    file = take_option(arguments, "--config")
    if file == "":
        raise OptionError("--config: give a YAML file")
    if file is not None:
        given = {a.partition("=")[0].replace("_", "-").replace("--no-", "--") for a in arguments}
        arguments = [*_from_yaml(Path(file), given, _lists(config)), *arguments]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(config, args=arguments, prog=f"python -m {command}")
    except SystemExit as end:
        if not end.code:
            raise
        words = said.getvalue().split("Argument helptext")[0].split("For full helptext")[0]
        words = " ".join(re.sub(r"[\u2500-\u257f]+|-{9,}", " ", words).split())  # tyro draws a box around its message
        origin = "" if file is None else f" (options of {file} among them)"
        raise OptionError(f"{words.rstrip('.')}{origin}; python -m {command} --help lists the options") from None


def take_option(arguments: list[str], option: str) -> str | None:
    """Takes an option out of a command's words; its value, empty where none follows, None where it is not there."""
    at = next((n for n, word in enumerate(arguments) if word.partition("=")[0] == option), None)
    if at is None:
        return None
    _, equals, value = arguments.pop(at).partition("=")
    return value if equals or at == len(arguments) else arguments.pop(at)


def _lists(config: type) -> Set[str]:
    """The options that take several values."""
    hints = get_type_hints(config)
    return {name.rstrip("_") for name, hint in hints.items() if get_origin(hint) in (tuple, list)}


def _from_yaml(file: Path, given: Set[str], lists: Set[str]) -> list[str]:
    """The options of a YAML file as command-line arguments, so that both are checked alike; `given` ones are left
    out. `lists`: those that take several values."""
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except Exception as error:  # YAML turns some scalars into dates and numbers, and raises whatever that raises
        raise OptionError(f"--config {file}: cannot be read ({str(error)[:200]})") from error
    if not isinstance(values, dict):
        raise OptionError(f"--config {file}: must be a mapping of options, such as `tau: 0.1`")
    arguments: list[str] = []
    for key, value in values.items():
        option = f"--{str(key).replace('_', '-')}"
        if value is None or (option in given and key != "training"):  # of that mapping the given words win singly
            continue
        if isinstance(value, dict) and key == "filter":
            words = {True: "on", False: "off"}  # YAML takes `off` for a truth value
            value = [f"{reason}={words.get(action, action)}" for reason, action in value.items()]
        if isinstance(value, dict) and key == "training":
            value = [f"{name}={one if isinstance(one, str) else json.dumps(one)}" for name, one in value.items()]
        if isinstance(value, bool):
            arguments.append(option if value else option.replace("--", "--no-", 1))
        else:
            if isinstance(value, list) and str(key).replace("-", "_") not in lists:
                raise OptionError(f"--config {file}: {key} takes one value, not a list")
            for one in value if isinstance(value, list) else [value]:
                if key == "source" and isinstance(one, dict):
                    one = _source(file, one)
                if not isinstance(one, (str, int, float)) or isinstance(one, bool):
                    raise OptionError(f"--config {file}: {key} must be a text or a number, or a list of them")
                arguments += [option, str(one)]
    if any("\0" in a or a != a.encode("utf-8", "replace").decode() for a in arguments):
        raise OptionError(f"--config {file}: an option holds a character that no option can hold")
    return arguments


def _source(file: Path, item: dict[object, object]) -> str:
    from curate.sources import spec_text

    try:
        return spec_text(item)
    except OptionError as error:
        raise OptionError(f"--config {file}: {error}") from None


class OneLine(logging.Formatter):
    """A message is one line, whatever sample ids or file names it holds."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(" ".join(record.getMessage().splitlines()))


def check_ranges(options: object, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Raises OptionError, with the option's name and its range, for a field that is given and lies outside of it."""
    for field, (low, high) in ranges.items():
        value = getattr(options, field)
        if value is not None and not low <= value <= high:
            raise OptionError(f"--{field.rstrip('_').replace('_', '-')} {value}: must lie between {low} and {high}")


def main(run: Callable[[Sequence[str]], int]) -> None:
    """Runs a command: a known error is one line on standard error and exit code 2, an interrupt exit code 130."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for noisy in ("httpx", "httpx2", "huggingface_hub", "datasets"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except CusetError as error:
        stderr.print(f"error: {printable(str(error))}")
        code = 2
    except KeyboardInterrupt:
        stderr.print(
            "interrupted; what is done is kept: run the same command again to go on (train.sft: with --resume)"
        )
        code = _INTERRUPTED
    except BrokenPipeError:  # the reader of our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        stderr.print(f"error: {printable(str(error))}")
        code = 2
    except Exception as error:
        if os.environ.get("CUSET_TRACEBACK"):
            raise
        said = (str(error).splitlines() or [""])[0][:300]
        stderr.print(printable(f"error: a defect of cuset, {type(error).__name__}: {said}"))
        stderr.print("CUSET_TRACEBACK=1 in the environment shows where")
        code = 1
    sys.exit(code)
