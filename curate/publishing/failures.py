"""What the Hub's client and the network raise, as one line that never holds the token."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import httpx2
from huggingface_hub.errors import OfflineModeIsEnabled, RevisionNotFoundError

from curate.errors import CusetError, HubError

__all__ = ["explained", "is_passing", "status_of"]


_NO_ADDRESS = (httpx2.UnsupportedProtocol, httpx2.InvalidURL)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or at.__context__


def status_of(error: BaseException) -> int | None:
    """The HTTP status behind an error, where there is one."""
    for cause in _causes(error):
        status = getattr(getattr(cause, "response", None), "status_code", None)
        if status is not None:
            return int(status)
    return None


def _is_of_the_network(error: BaseException) -> bool:
    return any(isinstance(cause, (httpx2.TransportError, ConnectionError)) for cause in _causes(error))


def is_passing(error: BaseException) -> bool:
    """Whether the same request may well succeed a moment later."""
    if any(isinstance(cause, (OfflineModeIsEnabled, *_NO_ADDRESS)) for cause in _causes(error)):
        return False
    status = status_of(error)
    if status is not None:
        return status == 429 or status >= 500
    return _is_of_the_network(error)


def explained(error: BaseException, name: str, token: str | None) -> CusetError:
    """The error as one line about the repository `name`, with a remedy."""
    if isinstance(error, CusetError):
        return error
    said = _reason(error, name)
    if token:
        said = said.replace(token, "<token>")
    return HubError(f"--repo {name}: {said}")


def _reason(error: BaseException, name: str) -> str:
    number = next((n for c in _causes(error) if (n := getattr(c, "errno", None)) == errno.ENOSPC), None)
    if number is not None:
        return "no space left on this machine's disk; make room and run the same command again"
    if any(isinstance(cause, OfflineModeIsEnabled) for cause in _causes(error)):
        return "the network is switched off by HF_HUB_OFFLINE; unset it"
    if any(isinstance(cause, RevisionNotFoundError) for cause in _causes(error)):
        return "it has no such revision; give the name of a branch as --revision"
    if any(isinstance(cause, _NO_ADDRESS) for cause in _causes(error)):
        return f"HF_ENDPOINT is no address of a Hub ({_first_line(error)}); write it as https://HOST, or unset it"
    status = status_of(error)
    if status == 401:
        return "the Hub does not know the token; log in anew with `hf auth login`, or set HF_TOKEN"
    if status == 403:
        return f"the token may not write there{_server_words(error)}; use one that may, or a namespace of your own"
    if status == 404:
        return f"no such repository or namespace{_server_words(error)}"
    if status in (409, 412):
        return (
            f"somebody else has changed it in the meantime{_server_words(error)};"
            " nothing was published: look at it, and run the same command again"
        )
    if status == 429:
        return "too many requests, says the Hub; wait a few minutes and run the same command again"
    if status is not None and status >= 500:
        return f"the Hub fails (HTTP {status}); nothing is half published: run the same command again later"
    if status is not None:
        return f"the Hub refuses it, HTTP {status}{_server_words(error)}"
    if _is_of_the_network(error):
        return (
            "the Hub cannot be reached, or the connection broke off"
            f" ({_first_line(error)}); nothing is half published: run the same command again"
        )
    return f"{type(error).__name__}: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    *_, last = _causes(error)
    return next((line for cause in (last, error) for line in str(cause).strip().splitlines()), type(last).__name__)[
        :200
    ]


def _server_words(error: BaseException) -> str:
    words = next((w for c in _causes(error) if isinstance(w := getattr(c, "server_message", None), str) and w), "")
    return f" ({words.splitlines()[0][:200]})" if words else ""
