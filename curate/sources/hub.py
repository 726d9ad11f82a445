"""Datasets of the Hugging Face Hub as sources: streamed by `datasets`, pinned to a commit, no code of theirs run."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from curate.errors import CusetError, OptionError, SourceError
from curate.sources.shapes import Shape, choose_shape, peeked
from curate.sources.tables import read_row, warn_if_swapped
from curate.sources.types import Row

__all__ = ["HUB", "HubSource", "hub_values", "open_hub"]

HUB = "hf://"
_SPEC = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:/([^@:]+))?(?:@([^:]+))?(?::([\w.-]+))?")
_PEEK_ROWS = 200
_TIMEOUT = 20


@dataclass(frozen=True)
class HubSource:
    """One split of one configuration of a dataset, at one commit."""

    name: str
    repository: str
    config: str
    split: str
    commit: str
    shape: Shape
    license: str | None = None

    def fingerprint(self) -> dict[str, object]:
        """name, kind, revision (the commit, which stands for the content), configuration, split."""
        where = {"repository": self.repository, "configuration": self.config, "split": self.split}
        return {"name": self.name, "kind": "hub", "revision": self.commit, **where}

    def rows(self) -> Iterator[Row]:
        """One Row for every row of the split; its revision is the commit, unless a column of the row names another.

        Raises SourceError where the connection breaks off, or a file of the dataset is damaged.
        """
        position = 0
        with _one_line(self.name, lambda: f" after row {position}"):
            table = _stream(self.repository, self.config, self.split, self.commit)
            if table.column_names:  # images and the like are not even decoded
                table = table.select_columns([name for name in table.column_names if name in self.shape.columns])
            for position, value in enumerate(table, start=1):
                yield read_row(self.name, self.shape, position, value, self.license, self.commit)


def open_hub(spec: str, mapping: Mapping[str, str], license: str | None) -> HubSource:
    """The source that `hf://USER/NAME[/CONFIG][@REVISION][:SPLIT]` names.

    Without CONFIG the only one, or `default`; without REVISION the newest; without SPLIT the only one, or `train`.
    Raises OptionError for a spec that is none, SourceError for a dataset that cannot be found, reached or read.
    """
    with _one_line(spec):
        repository, config, commit, wanted, splits = _looked_up(spec)
        split = _choice(spec, "split", wanted, splits, "train", ":SPLIT")
        table = _stream(repository, config, split, commit)
        first = list(islice(table, _PEEK_ROWS))
    if not first:
        raise SourceError(f"{spec} holds no rows.")
    name = f"{repository}:{split}" if config == "default" else f"{repository}/{config}:{split}"
    shape = choose_shape([peeked(row) for row in first], spec, mapping)
    warn_if_swapped(spec, shape, first)
    return HubSource(name, repository, config, split, commit, shape, license)


def hub_values(spec: str) -> Iterator[object]:
    """The rows of a dataset as they are, whatever its columns: of one split, or of all where the spec names none.

    Raises as `open_hub` does.
    """
    with _one_line(spec):
        repository, config, commit, wanted, splits = _looked_up(spec)
        for split in [_choice(spec, "split", wanted, splits, "", ":SPLIT")] if wanted else splits:
            yield from _stream(repository, config, split, commit)


def _looked_up(spec: str) -> tuple[str, str, str, str | None, list[str]]:
    """(repository, configuration, commit, split that is asked for, splits that are there)"""
    found = _SPEC.fullmatch(spec)
    if found is None:
        raise OptionError(f"{spec[:200]!a}: write it as hf://USER/NAME[/CONFIG][@REVISION][:SPLIT]")
    import datasets

    repository, config, revision, split = found.groups()
    commit = _commit(repository, revision)
    where = _location(repository)
    configs = datasets.get_dataset_config_names(where, revision=commit)
    config = _choice(spec, "configuration", config, configs, "default", "/CONFIG")
    return repository, config, commit, split, datasets.get_dataset_split_names(where, config, revision=commit)


def _choice(spec: str, what: str, wanted: str | None, found: list[str], usual: str, how: str) -> str:
    if wanted is None and len(found) == 1:
        return found[0]
    choice = wanted or usual
    if choice not in found:
        listing = ", ".join(ascii(name[:60])[1:-1] for name in found[:20])
        wrong = f"has no {what} {choice!a}" if wanted else f"has several {what}s"
        raise SourceError(f"{spec} {wrong}; name one with {how}: {listing}.")
    return choice


def _commit(repository: str, revision: str | None) -> str:
    from huggingface_hub import HfApi

    return str(HfApi().dataset_info(repository, revision=revision, timeout=_TIMEOUT).sha)


def _location(repository: str) -> str:
    return repository


def _stream(repository: str, config: str, split: str, commit: str) -> Any:
    import datasets

    # trust_remote_code is never passed: a dataset that needs a script of its own is an error
    return datasets.load_dataset(_location(repository), config, split=split, revision=commit, streaming=True)


@contextmanager
def _one_line(name: str, where: Callable[[], str] = str) -> Iterator[None]:
    """Whatever `datasets`, the Hub's client and their readers raise becomes one line."""
    log = logging.getLogger("datasets")
    level = log.level
    log.setLevel(logging.CRITICAL)  # it would print what is raised here, in lines of its own
    try:
        yield
    except CusetError:
        raise
    except Exception as error:
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

        if isinstance(error, GatedRepoError):
            said = "it is gated: ask for access on its page, and log in with `hf auth login`"
        elif isinstance(error, RevisionNotFoundError):
            said = "it has no such revision"
        elif isinstance(error, RepositoryNotFoundError):
            said = "there is no such dataset, or it is private: check the name, or log in with `hf auth login`"
        else:
            reason = (str(error).strip().splitlines() or [""])[0][:200]
            said = f"{type(error).__name__}: {reason}; check the network, or download it and name the folder"
        raise SourceError(f"{name}: cannot be read{where()} ({said}).") from None
    finally:
        log.setLevel(level)
