"""Everything that cuset raises on purpose.

    CusetError
    ├── OptionError     an option, or a combination of options, that cannot work
    ├── SourceError     a file or folder that cannot be read, or whose columns are unknown
    ├── ModelError      a model or tokenizer that cannot be loaded or cannot be used
    ├── DatasetError    a folder that is no finished annotated dataset, or may not be overwritten
    ├── TrainingError   a training run that cannot go on
    └── HubError        the Hub, which refuses, fails or cannot be reached

A command prints the message as one line and exits with code 2. A bad *row* never raises: it becomes a reason (see
`curate.filters`), and the row is kept in rejected/.
"""

from __future__ import annotations

__all__ = [
    "CusetError",
    "DatasetError",
    "HubError",
    "ModelError",
    "OptionError",
    "SourceError",
    "TrainingError",
    "first_line",
]


class CusetError(Exception):
    """The message is one line: what is wrong, where (file, row, option), and the remedy."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class OptionError(CusetError):
    """An option, or a combination of options, that cannot work."""


class SourceError(CusetError):
    """A file or folder that cannot be read, or whose columns are unknown."""


class ModelError(CusetError):
    """A model or tokenizer that cannot be loaded, or that cannot be used for scoring."""


class DatasetError(CusetError):
    """A folder that is no finished annotated dataset, or that may not be overwritten."""


class TrainingError(CusetError):
    """A training run that cannot go on."""


class HubError(CusetError):
    """The Hub, which refuses, fails or cannot be reached."""


def first_line(error: BaseException, longest: int = 300) -> str:
    """What an error of a library says, for a message of ours; its type where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:longest]
