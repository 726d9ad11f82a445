"""Secrets by their shape: the patterns of `detect-secrets`, and a few that it lacks, with exact places in a text.

Its scanner is not used: it works line by line under global settings, gives values without places, cuts some of them
short (a JSON web token without its signature), and may ask the network whether a secret works. Nor are its detectors
of high entropy, of IP addresses and of passwords by prefix: tables of constants, hashes and PTX are full of what they
look for. What follows a token's first or last character must not be part of a longer word, so that a blob of base64
holds no tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from detect_secrets.filters.heuristic import is_potential_uuid, is_sequential_string, is_templated_secret
from detect_secrets.plugins.aws import AWSKeyDetector
from detect_secrets.plugins.basic_auth import BasicAuthDetector
from detect_secrets.plugins.discord import DiscordBotTokenDetector
from detect_secrets.plugins.github_token import GitHubTokenDetector
from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
from detect_secrets.plugins.high_entropy_strings import Base64HighEntropyString
from detect_secrets.plugins.jwt import JwtTokenDetector
from detect_secrets.plugins.keyword import KeywordDetector
from detect_secrets.plugins.mailchimp import MailchimpDetector
from detect_secrets.plugins.openai import OpenAIDetector
from detect_secrets.plugins.private_key import PrivateKeyDetector
from detect_secrets.plugins.pypi_token import PypiTokenDetector
from detect_secrets.plugins.sendgrid import SendGridDetector
from detect_secrets.plugins.slack import SlackDetector
from detect_secrets.plugins.square_oauth import SquareOAuthDetector
from detect_secrets.plugins.stripe import StripeDetector
from detect_secrets.plugins.telegram_token import TelegramBotTokenDetector
from detect_secrets.plugins.twilio import TwilioKeyDetector

__all__ = ["Found", "find_secrets"]


@dataclass(frozen=True, order=True)
class Found:
    """A secret `text[start:end]`; `kind` in lower case with underscores."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True)
class _Shape:
    """`hint`: a part of every such secret, without which the text is not searched. `tail`: whether a token that goes on
    is a longer token (`grows`) or none at all (`exact`). `group`: the part of the match that is secret. `words`: one of
    these is in the case-folded text wherever the hint is, or nothing where that would save no time."""

    kind: str
    hint: re.Pattern[str]
    patterns: tuple[re.Pattern[str], ...]
    tail: Literal["grows", "exact"] = "grows"
    group: int = 0
    words: tuple[str, ...] = ()


def _shape(
    kind: str,
    hint: str,
    patterns: object,
    tail: Literal["grows", "exact"] = "grows",
    group: int = 0,
    words: tuple[str, ...] = (),
) -> _Shape:
    compiled = patterns if isinstance(patterns, list | tuple) else (patterns,)
    return _Shape(kind, re.compile(hint), tuple(re.compile(p) for p in compiled), tail, group, words)


_SHAPES: tuple[_Shape, ...] = (
    _shape("aws_access_key", "A3T|ABIA|ACCA|AKIA|ASIA", AWSKeyDetector.denylist[0], "exact"),
    _shape("aws_secret_key", "(?i:aws)", AWSKeyDetector.denylist[1], "exact", group=1, words=("aws",)),
    _shape("azure_storage_key", "AccountKey=", r"(?<=AccountKey=)[A-Za-z0-9+/=]{88}", "exact"),
    _shape("basic_auth", "://", BasicAuthDetector.denylist, group=1),
    _shape("discord_token", r"\.[\w-]{6}\.", DiscordBotTokenDetector.denylist, "exact"),
    _shape("github_token", "gh[opsur]_", GitHubTokenDetector.denylist),
    _shape("github_token", "github_pat_", r"github_pat_\w{36,255}"),
    _shape("gitlab_token", "gl[a-z]{2,5}-|GR1348941", GitLabTokenDetector.denylist),
    _shape("hugging_face_token", "hf_", r"hf_[A-Za-z0-9]{34,}", "exact"),
    _shape("mailchimp_key", r"-us\d", MailchimpDetector.denylist, "exact"),
    _shape("npm_token", "npm_", r"npm_[A-Za-z0-9]{36}", "exact"),
    _shape("nvidia_api_key", "nvapi-", r"nvapi-[\w-]{60,80}"),
    _shape("google_api_key", "AIza", r"AIza[\w-]{35}", "exact"),
    _shape("anthropic_api_key", "sk-ant-", r"sk-ant-[a-z0-9]{3,12}-[\w-]{40,200}"),
    _shape("pypi_token", "pypi-", PypiTokenDetector.denylist),
    _shape("sendgrid_api_key", r"SG\.", SendGridDetector.denylist, "exact"),
    _shape("slack_token", "(?i:xox|hooks)", SlackDetector.denylist, words=("xox", "hooks")),
    _shape("square_oauth_secret", "sq0csp-", SquareOAuthDetector.denylist, "exact"),
    _shape("stripe_access_key", "k_live_", StripeDetector.denylist),
    _shape("telegram_bot_token", r"\d:", TelegramBotTokenDetector.denylist, "exact"),
    _shape("twilio_api_key", "AC|SK", TwilioKeyDetector.denylist, "exact"),
)

_NEEDS_DIGIT = frozenset({"aws_access_key", "aws_secret_key", "hugging_face_token", "twilio_api_key", "npm_token",
                          "github_token", "gitlab_token", "nvidia_api_key", "google_api_key"})  # fmt: skip
"""Kinds whose shape a long word can have (ASIANMONTECARLOPATHS); a random token without any digit is one of thousands
at the least."""
_REST = re.compile(r"[\w-]*", re.ASCII)
_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\[nrtabfv0]\Z")
_MASKED = re.compile(r"(.)\1{7}|\.\.\.|\*\*\*", re.DOTALL)
_PLACEHOLDER = re.compile(
    r"(?i)example|placeholder|redacted|change_?me|your[_-]|<|\$\{|\{\{|dummy|sample|insert|replace[_-]|test[_-]?key|secret|password|token"
)

_RUN = re.compile(r"[A-Za-z0-9_=.+/-]*", re.ASCII)
_MAX_RUN = 8192
_JWT = JwtTokenDetector()
_JWT_SHAPE = re.compile(r"eyJ[A-Za-z0-9_=-]+\.[A-Za-z0-9_=-]+(?:\.[A-Za-z0-9_=-]*)?")

_KEY_BEGIN = re.compile(
    "-----(?:BEGIN ENCRYPTED PRIVATE KEY|"
    + "|".join(p.pattern for p in PrivateKeyDetector.denylist if p.pattern.startswith("BEGIN"))
    + ")"
)
_KEY_LEAD = re.compile(r"-{0,5}(?:\\[rn]|[\s\"',])*")
_KEY_BODY = re.compile(r"(?:(?:\\[rn]|[\s\"',])*[A-Za-z0-9+/=]{16,})+")
_KEY_END = re.compile(r"-----END[A-Z0-9 ]{0,40}KEY(?: BLOCK)?-----")
_KEY_LINE = 32  # characters of base64 that a key has on a line at the least
_MAX_KEY = 20_000

_KEYWORDS = KeywordDetector()
_KEYWORD_WORDS = ("key", "pass", "pwd", "secret", "contrase")
_KEYWORD = re.compile(f"(?i){'|'.join(_KEYWORD_WORDS)}")
_MAX_KEYWORD_LINE = 400
_ENTROPY = Base64HighEntropyString()
_MIN_PASSWORD, _MIN_ENTROPY = 12, 3.0  # characters; bits a character, of which prose and names in code have fewer


def find_secrets(text: str) -> list[Found]:
    """Every secret in a text, in order of their starts, the longer first; two may overlap, or be the same place under
    two kinds. Linear in the text; asks no network, keeps no state."""
    found = [*_private_keys(text), *_web_tokens(text), *_openai_keys(text)]
    folded = text.casefold()
    for shape in _SHAPES:
        if (not shape.words or _any_of(shape.words, folded)) and shape.hint.search(text):
            found.extend(_of_shape(text, shape))
    if _any_of(_KEYWORD_WORDS, folded):
        found.extend(_passwords(text))
    return sorted(found, key=lambda f: (f.start, -f.end))


def _any_of(words: tuple[str, ...], folded: str) -> bool:
    """Whether one of the words is in a case-folded text: some forty times as fast as a pattern that ignores case."""
    return any(word in folded for word in words)


def _of_shape(text: str, shape: _Shape) -> Iterator[Found]:
    for pattern in shape.patterns:
        at = 0
        while (match := pattern.search(text, at)) is not None:
            at = max(match.end(), at + 1)
            start, end = match.span(shape.group)
            rest = _REST.match(text, end)
            longer = rest.end() if rest else end
            if shape.group == 0:
                if _inside_word(text, start) or (shape.tail == "exact" and longer > end):
                    at = max(at, longer)
                    continue
                end = longer
                at = max(at, end)
            value = text[start:end]
            if _is_placeholder(value, shape.kind) or (shape.kind in _NEEDS_DIGIT and not any(map(str.isdigit, value))):
                continue
            yield Found(start, end, shape.kind)


def _inside_word(text: str, at: int) -> bool:
    """Whether a word goes on over `at` from the left; the n of a written \\n is no part of one."""
    if at == 0 or not (text[at - 1].isalnum() or text[at - 1] in "_-+"):
        return False
    return _ESCAPE.search(text, max(0, at - 64), at) is None


def _is_placeholder(value: str, kind: str) -> bool:
    if kind == "basic_auth":
        lower = value.lower()
        return (
            lower.startswith(("redacted_", "$", "%", "<"))
            or lower.strip("xX*.") == ""
            or lower in ("pass", "passwd", "password", "pwd", "secret", "token", "pw", "user_password", "your_password")
        )
    return "EXAMPLE" in value or _MASKED.search(value) is not None


def _starts(text: str, anchor: str) -> Iterator[tuple[int, int]]:
    """(start, end) of the runs of token characters at `anchor`; each run once, however often it holds the anchor."""
    at = text.find(anchor)
    while at >= 0:
        run = _RUN.match(text, at)
        end = run.end() if run else at + 1
        if _inside_word(text, at):
            end = at + 1
        else:
            yield at, min(end, at + _MAX_RUN)
        at = text.find(anchor, max(end, at + 1))


def _web_tokens(text: str) -> Iterator[Found]:
    for start, end in _starts(text, "eyJ"):
        token = _JWT_SHAPE.match(text, start, end)
        if token is not None and _JWT.is_formally_valid(".".join(token[0].split(".")[:2])):
            yield Found(start, token.end(), "json_web_token")


def _openai_keys(text: str) -> Iterator[Found]:
    if "T3BlbkFJ" not in text:
        return
    for start, end in _starts(text, "sk-"):
        key = OpenAIDetector.denylist[0].match(text, start, end)
        rest = _REST.match(text, key.end()) if key is not None else None
        if rest is not None:
            yield Found(start, rest.end(), "openai_api_key")


def _private_keys(text: str) -> Iterator[Found]:
    """From the first line to the last, in a file or over the string literals that hold the lines; the first line
    alone (a program that looks for it) is no key."""
    if "PRIVATE KEY" not in text:
        return
    at, ending = 0, _KEY_END.search(text)
    while (head := _KEY_BEGIN.search(text, at)) is not None:
        at = head.end()
        if ending is not None and ending.start() < at:
            ending = _KEY_END.search(text, at)
        if ending is not None and _is_key_between(text, at, ending.start()):
            at = ending.end()
        else:  # cut off, or none
            lead = _KEY_LEAD.match(text, at)
            body = _KEY_BODY.match(text, lead.end() if lead is not None else at)
            if body is None or len(body[0]) < 2 * _KEY_LINE:
                continue
            at = body.end()
        yield Found(head.start(), at, "private_key")


def _is_key_between(text: str, start: int, end: int) -> bool:
    return (
        end - start <= _MAX_KEY
        and text.find("-----BEGIN", start, end) < 0
        and re.search(rf"[A-Za-z0-9+/=]{{{_KEY_LINE}}}", text[start:end]) is not None
    )


def _passwords(text: str) -> Iterator[Found]:
    """Quoted values of variables that are named like a secret, where the value looks random, wherever in the line."""
    at = 0
    for line in text.splitlines(keepends=True):
        if (
            len(line) <= _MAX_KEYWORD_LINE
            and _any_of(_KEYWORD_WORDS, line.casefold())
            and _KEYWORD.search(line)  # folding makes more of some letters than a pattern that ignores case
        ):
            for value in _KEYWORDS.analyze_string(line.rstrip("\r\n")):
                if _looks_random(value):  # all its places in the line: the detector does not say which it read
                    for place in re.finditer(re.escape(value), line):
                        yield Found(at + place.start(), at + place.end(), "password")
        at += len(line)


def _looks_random(value: str) -> bool:
    return (
        len(value) >= _MIN_PASSWORD
        and value.isascii()
        and not re.search(r"[\s\\()]", value)
        and any(map(str.isdigit, value))
        and any(map(str.isalpha, value))
        and not re.fullmatch(r"[0-9a-fA-F]+", value)  # a hash, or the known answer of a test
        and not _PLACEHOLDER.search(value)
        and not _MASKED.search(value)
        and not is_potential_uuid(value)
        and not is_sequential_string(value)
        and not is_templated_secret(value)
        and not re.fullmatch(r"[A-Za-z]+(?:[_.-][A-Za-z]+)*[_.-]?\d{0,3}", value)  # a name
        and _ENTROPY.calculate_shannon_entropy(value) >= _MIN_ENTROPY
    )
