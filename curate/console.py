"""What every command shares: options from the command line or a YAML file, one-line errors, text that is safe to
print."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import sys
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import TypeVar

import tyro
import yaml
from rich.console import Console

from curate.errors import CusetError, OptionError

__all__ = ["main", "parse_options", "printable", "stderr"]

Config = TypeVar("Config")

stderr = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
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

    `--config FILE.yaml` gives further ones; an option given beside it wins.     Raises OptionError, in one line, for an
    unknown option, a value of another type, or a file that cannot be read.
    """
    arguments = list(arguments)
    at = next((n for n, a in enumerate(arguments) if a == "--config" or a.startswith("--config=")), None)
    if at is not None:
        _, equals, file = arguments.pop(at).partition("=")
        if not equals and at == len(arguments):
            raise OptionError("--config: give a YAML file")
        file = file if equals else arguments.pop(at)
        given = {a.partition("=")[0].replace("_", "-").replace("--no-", "--") for a in arguments}
        arguments = [*_from_yaml(Path(file), given), *arguments]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(config, args=arguments, prog=f"python -m {command}")
    except SystemExit as end:
        if not end.code:
            raise
        words = " ".join(
            re.sub(r"[\u2500-\u257f]+", " ", said.getvalue()).split()
        )  # tyro draws a box around its message
        raise OptionError(
            f"{words.removeprefix('Parsing error').removeprefix('Unrecognized options').strip()}"
        ) from None


def _from_yaml(file: Path, given: Set[str]) -> list[str]:
    """The options of a YAML file as command-line arguments, so that both are checked alike; `given` ones are left
    out."""
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise OptionError(f"--config {file}: {error}") from error
    if not isinstance(values, dict):
        raise OptionError(f"--config {file}: must be a mapping of options, such as `tau: 0.1`")
    arguments = []
    for key, value in values.items():
        option = f"--{str(key).replace('_', '-')}"
        if option in given or value is None:
            continue
        if isinstance(value, bool):
            arguments.append(option if value else option.replace("--", "--no-", 1))
        else:
            for one in value if isinstance(value, list) else [value]:
                arguments += [option, str(one)]
    return arguments


def main(run: Callable[[Sequence[str]], int]) -> None:
    """Runs a command: a known error is one line on standard error and exit code 2, an interrupt exit code 130."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for noisy in ("httpx", "httpx2", "huggingface_hub", "datasets"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    try:
        code = run(sys.argv[1:])
    except CusetError as error:
        stderr.print(f"error: {printable(str(error))}")
        code = 2
    except KeyboardInterrupt:
        stderr.print("interrupted")
        code = _INTERRUPTED
    except BrokenPipeError:  # the reader of our output has had enough
        sys.stderr.close()
        code = 0
    sys.exit(code)
