"""From the values of a row to its turns: (role, content) up to the answer, or the reason why there are none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["BadRow", "Turns", "as_text", "split_turns", "turns_of"]

_ROLES = {"human": "user", "user": "user", "prompter": "user", "instruction": "user", "gpt": "assistant",
          "assistant": "assistant", "chatgpt": "assistant", "bot": "assistant", "model": "assistant", "ai": "assistant",
          "system": "system", "developer": "system"}  # fmt: skip

Turns = tuple[tuple[str, str], ...]


class BadRow(Exception):
    """Internal: this row cannot be read. Never leaves the package."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True)
class Conversation:
    """The turns up to the answer, and what was cut off behind it."""

    turns: Turns
    prompt: str
    response: str
    note: str


def as_text(value: object, what: str, missing: str) -> str:
    """A column's value as text; absent or null is the reason `missing`, anything else that is no text `wrong_type`."""
    if value is None:
        raise BadRow(missing, f"{what} is absent or null")
    if not isinstance(value, str):
        raise BadRow("wrong_type", f"{what} holds {type(value).__name__}, not text")
    return value


def turns_of(value: object, what: str) -> Turns:
    """Turns from a list of messages (role and content, or from and value), also as JSON text; content may be a list
    of parts.
    """
    if value is None:
        raise BadRow("missing_prompt", f"{what} is absent or null")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise BadRow("wrong_type", f"{what} holds text that is no JSON list of messages") from None
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise BadRow("wrong_type", f"{what} holds {type(value).__name__}, not a list of messages")
    return tuple(_turn(message, f"{what}[{i}]") for i, message in enumerate(value))


def _turn(message: object, what: str) -> tuple[str, str]:
    if not isinstance(message, Mapping):
        raise BadRow("wrong_type", f"{what} holds {type(message).__name__}, not a message")
    role = message.get("role", message.get("from"))
    if not isinstance(role, str):
        raise BadRow("wrong_type", f"{what} has no role")
    role = _ROLES.get(role.strip().lower(), role.strip().lower())
    content = message.get("content", message.get("value"))
    if isinstance(content, Sequence) and not isinstance(content, str):
        parts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
        if not all(isinstance(part, str) for part in parts):
            raise BadRow("wrong_type", f"{what} holds a part that is no text")
        content = "".join(str(part) for part in parts)
    missing = "missing_response" if role == "assistant" else "missing_prompt"
    if content is None and role not in ("user", "assistant"):
        content = ""
    return role, as_text(content, f"content of {what}", missing)


def split_turns(turns: Turns) -> Conversation:
    """The turns up to the last answer, with the user turn before it as the prompt."""
    last = max((i for i, (role, _) in enumerate(turns) if role == "assistant"), default=-1)
    if last < 0:
        raise BadRow("no_assistant_turn", f"none of {len(turns)} turns is the assistant's")
    user = max((i for i, (role, _) in enumerate(turns[:last]) if role == "user"), default=-1)
    if user < 0:
        raise BadRow("missing_prompt", "no user turn comes before the answer")
    cut = len(turns) - last - 1
    note = f"{cut} turn{'s' if cut > 1 else ''} after the last answer left out" if cut else ""
    kept = turns[: last + 1]
    for role, content in kept:
        _check(role, content)
    return Conversation(kept, turns[user][1], turns[last][1], note)


def _check(role: str, content: str) -> None:
    if "\0" in content or "\0" in role:
        raise BadRow("nul_character", f"at character {content.find(chr(0))} of a turn of {role!r}")
    try:
        (role + content).encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadRow(
            "lone_surrogate", f"at character {max(0, error.start - len(role))} of a turn of {role!a}"
        ) from None
