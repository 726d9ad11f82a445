"""Prompt and response as the token ids that a model reads, and where every token stands in the response.

The text is rendered by the model's own chat template and tokenised once, as one text. The response is found by
construction: the template is rendered around stand-ins, so that it is known to the character which part of the text it
wrote itself. Only those parts may hold special tokens; the spelling of one inside a corpus (`<|im_end|>` in a comment)
stays text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int32, Int64
from numpy import ndarray as Array
from tokenizers import Tokenizer

from curate.errors import ModelError
from curate.extract import CodeBlock
from curate.model import tokenizer_hash
from curate.offsets import Piece, tiled, to_response

__all__ = ["PLAIN_TEMPLATE", "Encoder", "TokenisedSample", "Untokenisable"]

PLAIN_TEMPLATE = (
    "{% for m in messages %}{{ '### ' + m['role'] | capitalize + ':\n' + m['content'] }}"
    "{% if m['role'] == 'assistant' and eos_token %}{{ eos_token }}{% endif %}{{ '\n\n' }}{% endfor %}"
)
"""The template of a model that has none."""

_PRIVATE = 0xF0000  # plane 15: private use, in no corpus by agreement of Unicode
_PAD = chr(0xFFFFD)
_FIXED_DATE = "{% macro strftime_now(format) %}26 Jul 2024{% endmacro %}"
"""Put before a template that writes today's date, so that a build can be made again on another day."""
_CONTROL = re.compile(r"<[|｜][^<>]+[|｜]>")
"""Spelled so, an added token steers the model even where its file does not call it special: DeepSeek's `<｜User｜>`
opens a turn. `<think>`, which answers hold and templates read, is none of these."""
_PLANE_15 = re.compile(f"[{chr(_PRIVATE)}-{_PAD}]")


class Untokenisable(Exception):
    """A sample that this tokenizer or template cannot take: (reason, detail) of its rejection."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True, eq=False)
class TokenisedSample:
    """N token ids, of which the last T = N - prompt_tokens belong to the response, the end-of-turn token among them.

    `char_start`, `char_end`: the characters of the response that each of the T tokens covers, -1 for tokens of the
    template. A character that is split over several tokens is covered by each of them.
    """

    input_ids: Int32[Array, "N"]
    prompt_tokens: int
    char_start: Int32[Array, "T"]
    char_end: Int32[Array, "T"]


class Encoder:
    """Renders and tokenises samples for one model.

    Raises ModelError for a tokenizer without offsets (not backed by the `tokenizers` library).
    """

    def __init__(self, tokenizer: Any, context: str) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ModelError(
                f"the tokenizer of {tokenizer.name_or_path} has no character offsets:"
                " give a model with a tokenizer.json (a 'fast' tokenizer)"
            )
        self.tokenizer = tokenizer
        self.context = context
        try:
            self.template = tokenizer.get_chat_template() if tokenizer.chat_template else PLAIN_TEMPLATE
            self.template.encode("utf-8")
            self._program = self.template
            if "strftime_now" in self.template:
                self._program = _FIXED_DATE + self.template
            self._specials = {
                t.content: i
                for i, t in tokenizer.added_tokens_decoder.items()
                if t.special or _CONTROL.fullmatch(t.content)
            }
            self._special_ids = frozenset(self._specials.values())
            self._disguise = {
                text: (chr(_PRIVATE + n) + _PAD * len(text))[: len(text)] for n, text in enumerate(self._specials)
            }
            self._backend = self._disguised(tokenizer.backend_tokenizer)
        except Exception as error:  # files of a tokenizer may hold anything
            said = (str(error).splitlines() or [""])[0][:200]
            raise ModelError(
                f"the tokenizer of {tokenizer.name_or_path} cannot be used ({type(error).__name__}: {said});"
                " give another model, or mend its tokenizer files"
            ) from error
        self.start_token = self._start_token() if context == "raw" else self._own_start()

    def identity(self) -> dict[str, object]:
        """What the manifest says of tokenizer and template."""
        return {
            "sha256": tokenizer_hash(self.tokenizer),
            "template_sha256": hashlib.sha256(self.template.encode("utf-8")).hexdigest(),
            "template": "the model's" if self.tokenizer.chat_template else "plain",
            "start_token": self.start_token,
            "end_token": self.tokenizer.eos_token,
        }

    def _disguised(self, backend: Tokenizer) -> Tokenizer:
        """The same tokenizer with every special token spelled in private characters of the same number.

        A template's part of the text is respelled alike before tokenising, so that the ids and offsets are those of
        the plain spelling, while the plain spelling itself, met in the corpus, is no special token any more.
        """
        spec = json.loads(backend.to_str())
        for added in spec["added_tokens"]:
            added["content"] = self._disguise.get(added["content"], added["content"])
        model = spec["model"]
        if isinstance(model.get("vocab"), dict):
            model["vocab"] = {self._disguise.get(k, k): v for k, v in model["vocab"].items()}
        elif isinstance(model.get("vocab"), list):
            model["vocab"] = [[self._disguise.get(k, k), score] for k, score in model["vocab"]]
        if model.get("unk_token") in self._disguise:
            model["unk_token"] = self._disguise[model["unk_token"]]
        spec["post_processor"] = None  # it adds special tokens, and may trim offsets
        spec["truncation"] = spec["padding"] = None
        return Tokenizer.from_str(json.dumps(spec))

    def _start_token(self) -> str:
        """What stands before a text without a chat: what the tokenizer itself puts there, else the separator of
        documents.

        A tokenizer may name a start token that is none: SmolLM2's `bos_token` is `<|im_start|>`, which opens a turn of
        its chat. `<|endoftext|>`, where the vocabulary has it, has stood between the documents of the model's
        training.
        """
        own = self.tokenizer("", add_special_tokens=True)["input_ids"]
        if own and own[0] != self.tokenizer.eos_token_id:
            return str(self.tokenizer.convert_ids_to_tokens(own[0]))
        for candidate in ("<|endoftext|>", self.tokenizer.bos_token, self.tokenizer.eos_token):
            if candidate in self._specials:
                return str(candidate)
        raise ModelError(
            f"the tokenizer of {self.tokenizer.name_or_path} has no special token that could start a text:"
            " score with --context chat"
        )

    def _chat_pieces(self, messages: Sequence[dict[str, str]]) -> list[Piece]:
        """The rendered conversation, cut where the contents stand.

        The earlier turns are rendered as stand-ins. So is the answer, unless the template, given the answer itself,
        writes it out whole in one place: a template that parses a reasoning trace (Qwen3) or trims white space then
        has its say.
        """
        response = messages[-1]["content"]
        salt = next(n for n in range(len(response) + 1) if f"⟪{n}⟫" not in response)
        slots = [f"⟪{salt}⟫{n}⟪{salt}⟫" for n in range(len(messages))]
        text = self._rendered(messages, slots[:-1], response)
        if text.count(response) == 1:
            text = text.replace(response, slots[-1])
        elif response.strip() in text:
            text = self._rendered(messages, slots[:-1], slots[-1])
        else:
            raise Untokenisable("template_refused", "the template changes the answer")
        if text.count(slots[-1]) != 1:
            raise Untokenisable("template_refused", f"the template shows the answer {text.count(slots[-1])} times")
        pieces = [Piece(self.start_token, True)]
        # Cut at the slots: template, number of a slot, template, number of a slot, ..., template.
        for place, part in enumerate(re.split(f"⟪{salt}⟫(\\d+)⟪{salt}⟫", text)):
            if place % 2 == 0:
                pieces.append(Piece(part, True))
            elif int(part) == len(messages) - 1:
                where = np.arange(len(response), dtype=np.int32)
                pieces.append(Piece(response, False, where, where + 1))
            else:
                pieces.append(Piece(messages[int(part)]["content"], False))
        return pieces

    def _rendered(self, messages: Sequence[dict[str, str]], before: Sequence[str], answer: str) -> str:
        """The template's text with other contents put in; raises Untokenisable where the template refuses.

        A template that writes today's date gets the same day every time, so that a build can be made again.
        """
        turns = [{"role": m["role"], "content": c} for m, c in zip(messages, [*before, answer], strict=True)]
        try:
            return str(self.tokenizer.apply_chat_template(turns, chat_template=self._program, tokenize=False))
        except Exception as error:  # a template is the model's own program: it may refuse roles or orders in any way
            raise Untokenisable("template_refused", f"{type(error).__name__}: {error}") from error

    def _own_start(self) -> str:
        """What the tokenizer puts before a plain template; a model's own template writes it where it belongs."""
        if self.tokenizer.chat_template:
            return ""
        own = self.tokenizer("", add_special_tokens=True)["input_ids"]
        return self._start_token() if own and own[0] != self.tokenizer.eos_token_id else ""

    def _raw_pieces(self, blocks: Iterable[CodeBlock]) -> list[Piece]:
        """The code alone after the start token; several blocks are set apart by an empty line."""
        pieces = [Piece(self.start_token, True)]
        for n, block in enumerate(blocks):
            if n:
                pieces.append(Piece("\n\n", True))
            pieces.append(Piece(block.text, False, *block.char_ranges()))
        return pieces

    def encode(self, messages: Sequence[dict[str, str]], blocks: Sequence[CodeBlock]) -> TokenisedSample:
        """Tokens of a sample: of its conversation (context chat), or of its code alone (context raw).

        Raises Untokenisable: `template_refused`, `lossy_tokenizer` (decoding the ids does not give the text back),
        `reserved_characters` (the text holds the private characters that special tokens are disguised with).
        """
        pieces = self._chat_pieces(messages) if self.context == "chat" else self._raw_pieces(blocks)
        plain = "".join(p.text for p in pieces)
        if any(not p.from_template and _PLANE_15.search(p.text) for p in pieces):
            raise Untokenisable("reserved_characters", "private-use characters of plane 15")
        encoding = self._backend.encode("".join(self._respelled(p) for p in pieces), add_special_tokens=False)
        ids = np.array(encoding.ids, dtype=np.int32)
        offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
        starts, ends = tiled(offsets)
        first_char, last_char = self._response_extent(pieces)
        inside = np.flatnonzero((ends > first_char) & (starts < last_char) & (ends > starts))
        if len(inside) == 0:
            raise Untokenisable("lossy_tokenizer", "no token covers the response")
        first, last = int(inside[0]), int(inside[-1])
        spans = np.stack([starts, ends], axis=1)[: last + 1]
        self._check(ids[: last + 1], spans, first, plain)
        if self.context == "chat":
            last = self._end_of_turn(ids, last)
            if last == len(ids):
                ids = np.append(ids, np.int32(self.tokenizer.eos_token_id))
                starts, ends = np.append(starts, len(plain)), np.append(ends, len(plain))
        ids, starts, ends = ids[: last + 1], starts[: last + 1], ends[: last + 1]
        char_start, char_end = to_response(pieces, starts[first:], ends[first:])
        return TokenisedSample(ids, first, char_start, char_end)

    def _respelled(self, piece: Piece) -> str:
        text = piece.text
        if piece.from_template:
            for plain in sorted(self._disguise, key=len, reverse=True):
                text = text.replace(plain, self._disguise[plain])
        return text

    @staticmethod
    def _response_extent(pieces: Sequence[Piece]) -> tuple[int, int]:
        """Where the characters of the response begin and end in the rendered text."""
        at, first, last = 0, -1, 0
        for piece in pieces:
            if piece.starts is not None:
                first = at if first < 0 else first
                last = at + len(piece.text)
            at += len(piece.text)
        return first, last

    def _end_of_turn(self, ids: Int32[Array, "N"], last: int) -> int:
        """Index of the special token that ends the turn; len(ids): the template writes none, the end-of-text token is
        put there."""
        after = [i for i in range(last + 1, len(ids)) if int(ids[i]) in self._special_ids]
        if after:
            return after[0]
        return len(ids) if self.tokenizer.eos_token_id is not None else last

    def _check(self, ids: Int32[Array, "N"], spans: Int64[Array, "N 2"], first: int, plain: str) -> None:
        """The ids give the text back, and no special token stands inside the response.

        Compared between special tokens: a tokenizer of the SentencePiece kind puts a space before each stretch of text
        and takes it away when it decodes, which may as well be a space of the text.
        """
        special = np.isin(ids, list(self._special_ids))
        if special[first:].any():
            raise Untokenisable("lossy_tokenizer", "a special token stands inside the response")
        for stretch in np.split(np.arange(len(ids)), np.flatnonzero(np.diff(special)) + 1):
            if len(stretch) == 0 or special[stretch[0]]:
                continue
            decoded = self.tokenizer.decode(
                ids[stretch].tolist(), skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
            start, end = int(spans[stretch[0], 0]), int(spans[stretch[-1], 1])
            if plain[start:end] not in (decoded, " " + decoded):
                where = f"characters {start} to {end}"
                raise Untokenisable("lossy_tokenizer", f"decoding the ids does not give {where} back")
