"""One dataset repository of the Hub, brought to hold given files by one commit, and tagged.

The state of the branch is read anew before each attempt, and the commit names it as its parent: a commit of somebody
else in between is refused by the Hub rather than mixed with ours, and ours, when its answer was lost, is found in
place rather than made twice. Until the commit a reader sees the old revision whole, since files that were sent ahead
belong to none.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationCopy,
    CommitOperationDelete,
    HfApi,
    get_token,
    set_client_factory,
)
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError
from huggingface_hub.utils import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
    validate_repo_id,
)
from huggingface_hub.utils._http import default_client_factory

from curate.errors import HubError, OptionError
from curate.publishing.failures import explained, is_passing, status_of
from curate.publishing.files import Change, PublishedFile, change

__all__ = ["Outcome", "Target", "publish_files"]

log = logging.getLogger(__name__)

Operation = CommitOperationAdd | CommitOperationCopy | CommitOperationDelete

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_BRANCH = re.compile(r"(?!.*(\.\.|//|/\.|@\{))(?![-./])[^\x00-\x20\x7f~^:?*\[\\]{1,200}")  # as git has it
_ATTEMPTS = 4
_PAUSE = 2.0  # seconds before the second attempt, twice as many before the next; the client has its own within each
_TIMEOUT = 300.0  # seconds without a byte; a commit of many files is long in the making


@dataclass(frozen=True)
class Target:
    """`name`: USER/NAME. `revision`: a branch, made from main where it is not there."""

    name: str
    private: bool = False
    revision: str = "main"

    def __post_init__(self) -> None:
        """Raises OptionError for a name that none can have."""
        if not _NAME.fullmatch(self.name) or len(self.name) > 96 or "--" in self.name or ".." in self.name:
            raise OptionError(f"--repo {self.name[:200]!a}: write it as USER/NAME")
        try:
            validate_repo_id(self.name)
        except HFValidationError as error:
            raise OptionError(f"--repo {self.name}: {error}") from None
        if not _BRANCH.fullmatch(self.revision) or self.revision.endswith((".", ".lock", "/")):
            raise OptionError(f"--revision {self.revision[:200]!a}: no name that a branch can have")
        if re.fullmatch(r"[0-9a-f]{40}", self.revision):
            raise OptionError(f"--revision {self.revision}: a commit cannot be changed; give the name of a branch")


@dataclass(frozen=True)
class Outcome:
    """`change`: what was committed; nothing where the repository held the files already. `commit`: where the branch
    stands. `tagged_elsewhere`: the commit that bears the tag, where it is another one, which holds the same data."""

    change: Change
    commit: str
    url: str
    tagged_elsewhere: str | None = None


def publish_files(target: Target, files: Sequence[PublishedFile], tag: str, message: str) -> Outcome:
    """Makes the branch hold these files, and the tag stand at it. Raises HubError, in one line, where that cannot be;
    the repository is then as it was, or as it is wanted, but never between."""
    try:
        token = get_token()
    except Exception as error:  # it may ask the network for a fresh one
        raise explained(error, target.name, None) from None
    if token is None:
        raise HubError(f"--repo {target.name}: no token; log in with `hf auth login`, or set HF_TOKEN")
    quiet = not sys.stderr.isatty() and not are_progress_bars_disabled()
    if quiet:
        disable_progress_bars()
    set_client_factory(_patient_client)
    try:
        for attempt in range(_ATTEMPTS):
            try:
                return _attempt(_Repository(target, token), files, tag, message)
            except Exception as error:
                if attempt + 1 == _ATTEMPTS or not is_passing(error):
                    raise explained(error, target.name, token) from None
                told = explained(error, target.name, token)
            pause = _PAUSE * 2**attempt
            log.warning("%s (attempt %d of %d; again in %.0f s)", told, attempt + 1, _ATTEMPTS, pause)
            time.sleep(pause)
        raise AssertionError("unreachable")
    finally:
        set_client_factory(default_client_factory)
        if quiet:
            enable_progress_bars()


def _patient_client() -> httpx2.Client:
    """The Hub's own client, which would wait for an answer without end."""
    client = default_client_factory()
    client.timeout = httpx2.Timeout(_TIMEOUT)
    return client


def _attempt(repository: _Repository, files: Sequence[PublishedFile], tag: str, message: str) -> Outcome:
    repository.check_token()
    repository.make()
    head, tags = repository.refs()
    tagged = tags.get(tag)
    to_do = change(files, repository.tree(head))
    if tagged not in (None, head) and not _same_data(files, repository.tree(tagged)):
        raise HubError(
            f"--repo {repository.target.name}: its tag {tag} stands at commit {tagged[:12]}, which holds other files;"
            " delete the tag there"
        )
    if to_do:
        head = repository.commit(to_do, head, message)
    if tagged is None:
        repository.tag(tag, head)
    return Outcome(to_do, head, repository.url(), None if tagged in (None, head) else tagged)


def _same_data(files: Sequence[PublishedFile], tree: dict[str, str]) -> bool:
    """Whether the files of a tree are those of a publication, but for the card, its figures and the log."""
    data = [file for file in files if file.name == "manifest.json" or file.name.endswith(".parquet")]
    differs = change(data, tree)
    return not differs.add and not any(name.endswith(".parquet") for name in differs.delete)


class _Repository:
    """The requests; each raises whatever the Hub's client raises."""

    def __init__(self, target: Target, token: str) -> None:
        self.target = target
        self.api = HfApi(token=token, library_name="cuset")
        self._where: dict[str, Any] = {"repo_id": target.name, "repo_type": "dataset"}

    def url(self) -> str:
        return f"{self.api.endpoint}/datasets/{self.target.name}"

    def check_token(self) -> None:
        access = self.api.whoami().get("auth", {}).get("accessToken", {})
        if access.get("role") == "read":
            raise HubError(
                f"--repo {self.target.name}: the token is read-only; make one that may write, at"
                f" {self.api.endpoint}/settings/tokens"
            )

    def make(self) -> None:
        """Creates the repository where it is not there; makes none public that was meant to be private."""
        try:
            there = self.api.repo_info(**self._where)
        except RepositoryNotFoundError:
            other = next((kind for kind in ("model", "space") if self._is_there(kind)), None)
            if other is not None:
                raise HubError(
                    f"--repo {self.target.name}: this is a {other} repository; give another name for the dataset"
                ) from None
            self.api.create_repo(**self._where, private=self.target.private or None, exist_ok=True)
            log.info("created %s%s", self.url(), " (private)" if self.target.private else "")
            return
        if self.target.private and not there.private:
            raise HubError(f"--repo {self.target.name}: it is public already; make it private in its settings first")

    def _is_there(self, kind: str) -> bool:
        return bool(self.api.repo_exists(self.target.name, repo_type=kind))

    def refs(self) -> tuple[str, dict[str, str]]:
        """(commit of the branch, commit of each tag); makes the branch where it is not there."""
        pull_request = self.target.revision.startswith("refs/pr/")
        refs = self.api.list_repo_refs(**self._where, include_pull_requests=pull_request)
        tags = {ref.name: ref.target_commit for ref in refs.tags}
        branches = {ref.name: ref.target_commit for ref in refs.branches}
        if pull_request:
            branches |= {ref.ref: ref.target_commit for ref in refs.pull_requests or ()}
        wanted = self.target.revision
        if wanted in branches:
            return branches[wanted], tags
        if wanted in tags:
            raise HubError(f"--revision {wanted}: a tag of {self.target.name}; give the name of a branch")
        if pull_request or "main" not in branches:
            raise HubError(f"--revision {wanted}: {self.target.name} has none of that name")
        self.api.create_branch(**self._where, branch=wanted, revision=branches["main"], exist_ok=True)
        return branches["main"], tags

    def tree(self, commit: str) -> dict[str, str]:
        """Path -> SHA-256 of a large file, git's name of a small one."""
        entries = self.api.list_repo_tree(**self._where, recursive=True, revision=commit)
        found = {}
        for entry in entries:
            if (blob := getattr(entry, "blob_id", None)) is not None:
                lfs = getattr(entry, "lfs", None)
                found[entry.path] = blob if lfs is None else lfs.sha256
        return found

    def commit(self, change: Change, parent: str, message: str) -> str:
        """Sends large files ahead, then one commit upon `parent`; its name."""
        additions = []
        for file in change.add:
            content = file.content if isinstance(file.content, bytes) else str(file.content)
            addition = CommitOperationAdd(file.name, content)
            addition.upload_info.sha256 = bytes.fromhex(file.sha256)  # known since the checks
            additions.append(addition)
        revision = self.target.revision
        # a .gitignore of the repository must not leave out a part of the dataset
        self.api.preupload_lfs_files(
            self.target.name, additions, repo_type="dataset", revision=revision, free_memory=False, gitignore_content=""
        )
        ignored = [addition.path_in_repo for addition in additions if getattr(addition, "_should_ignore", False)]
        if ignored:
            raise HubError(
                f"--repo {self.target.name}: its .gitignore leaves out {ignored[0]}; take that line out of it"
            )
        operations: list[Operation] = [
            *additions,
            *(CommitOperationDelete(name, is_folder=False) for name in change.delete),
        ]
        try:
            done = self.api.create_commit(
                **self._where, operations=operations, commit_message=message, revision=revision, parent_commit=parent
            )
        except ValueError as error:
            if status_of(error) is None:
                raise HubError(f"--repo {self.target.name}: {error}") from error
            raise
        return str(done.oid)

    def tag(self, name: str, commit: str) -> None:
        self.api.create_tag(**self._where, tag=name, revision=commit, exist_ok=True)
