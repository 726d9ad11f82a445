"""Rendering and tokenising: ids, extents and offsets with planted answers, for several kinds of tokenizers and
templates."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import CHAT_TEMPLATE, KERNEL, fenced, train_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.errors import ModelError
from curate.extract import extract_cuda
from curate.tokens import Encoder, TokenisedSample, Untokenisable


def chat(response: str, prompt: str = "Scale a vector.") -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]


def covered(sample: TokenisedSample, response: str) -> str:
    """The response put together again from the spans of its tokens; characters that are split count once."""
    out, at = "", 0
    for a, b in zip(sample.char_start, sample.char_end, strict=True):
        if a >= 0:
            assert a <= at, "a gap between tokens"
            out += response[max(a, at) : b]
            at = max(at, int(b))
    return out


def test_ids_are_those_of_one_plain_pass(tokenizer: Any) -> None:
    messages = chat(fenced())
    sample = Encoder(tokenizer, "chat").encode(messages, [])
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    plain = tokenizer(text, add_special_tokens=False)["input_ids"]
    end_of_turn = len(plain) - plain[::-1].index(2)
    assert sample.input_ids.tolist() == plain[:end_of_turn]
    assert tokenizer.decode(sample.input_ids[: sample.prompt_tokens].tolist()).endswith("<|im_start|>assistant\n")


def test_the_end_of_turn_token_is_the_last_and_covers_no_character(tokenizer: Any) -> None:
    sample = Encoder(tokenizer, "chat").encode(chat(fenced()), [])
    assert tokenizer.convert_ids_to_tokens(int(sample.input_ids[-1])) == "<|im_end|>"
    assert (sample.char_start[-1], sample.char_end[-1]) == (-1, -1)
    assert (sample.char_start[:-1] >= 0).all()


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=80))
def test_spans_tile_any_response(text: str) -> None:
    tokenizer = (
        train_tokenizer() if not hasattr(test_spans_tile_any_response, "kept") else test_spans_tile_any_response.kept
    )
    test_spans_tile_any_response.kept = tokenizer
    if any(0xF0000 <= ord(c) <= 0xFFFFD for c in text):
        with pytest.raises(Untokenisable):
            Encoder(tokenizer, "chat").encode(chat(text), [])
        return
    sample = Encoder(tokenizer, "chat").encode(chat(text), [])
    assert covered(sample, text) == text
    assert len(sample.char_start) == len(sample.input_ids) - sample.prompt_tokens
    assert (
        tokenizer.decode(sample.input_ids[sample.prompt_tokens : -1].tolist(), clean_up_tokenization_spaces=False)
        == text
    )


def test_a_character_split_over_tokens_is_covered_by_each(tokenizer: Any) -> None:
    response = "a🎉b"  # four bytes, none merged in this vocabulary
    sample = Encoder(tokenizer, "chat").encode(chat(response), [])
    spans = [response[a:b] for a, b in zip(sample.char_start, sample.char_end, strict=True) if a >= 0]
    assert spans == ["a", "🎉", "🎉", "🎉", "🎉", "b"]


def test_a_special_tokens_spelling_in_the_corpus_stays_text(tokenizer: Any) -> None:
    response, prompt = fenced("// <|im_end|> <|endoftext|>\n" + KERNEL), "What is <|im_start|>?"
    sample = Encoder(tokenizer, "chat").encode(chat(response, prompt), [])
    specials = [int(i) for i in sample.input_ids if int(i) in {0, 1, 2}]
    assert specials == [1, 2, 1, 2]  # the template's own, and no other
    assert covered(sample, response) == response
    assert "What is <|im_start|>?" in tokenizer.decode(sample.input_ids.tolist())


def test_white_space_left_out_of_offsets_is_given_to_the_next_token() -> None:
    from tokenizers import processors

    tokenizer = train_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    response = fenced()
    assert covered(Encoder(tokenizer, "chat").encode(chat(response), []), response) == response


def test_raw_context_is_the_code_alone_after_the_start_token(tokenizer: Any) -> None:
    response = fenced()
    encoder = Encoder(tokenizer, "raw")
    sample = encoder.encode(chat(response), extract_cuda(response))
    assert encoder.start_token == "<|endoftext|>"  # not the bos_token, which opens a turn
    assert tokenizer.decode(sample.input_ids.tolist()) == "<|endoftext|>" + KERNEL
    assert sample.prompt_tokens == 1
    assert "".join(response[a:b] for a, b in zip(sample.char_start, sample.char_end, strict=True)) == KERNEL


def test_raw_context_maps_escapes_back_to_the_response(tokenizer: Any) -> None:
    code = KERNEL.replace("\n", "\\n")
    response = f'src = "{code}"\nmod = load_inline(name="m", cpp_sources="", cuda_sources=src)\n'
    sample = Encoder(tokenizer, "raw").encode(chat(response), extract_cuda(response))
    assert tokenizer.decode(sample.input_ids[1:].tolist()) == KERNEL
    assert "".join(response[a:b] for a, b in zip(sample.char_start, sample.char_end, strict=True)) == code


def test_a_model_without_template_gets_the_plain_one() -> None:
    tokenizer = train_tokenizer()
    tokenizer.chat_template = None
    encoder = Encoder(tokenizer, "chat")
    sample = encoder.encode(chat("answer"), [])
    assert (
        tokenizer.decode(sample.input_ids.tolist()) == "### User:\nScale a vector.\n\n### Assistant:\nanswer<|im_end|>"
    )
    assert encoder.identity()["template"] == "plain"


def test_a_template_that_writes_no_end_gets_the_end_token() -> None:
    tokenizer = train_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    sample = Encoder(tokenizer, "chat").encode(chat("answer"), [])
    assert int(sample.input_ids[-1]) == tokenizer.eos_token_id


def test_a_template_that_moves_a_reasoning_trace_has_its_say() -> None:
    """Templates such as Qwen3's take `<think>` out of the content and write it in a form of their own."""
    tokenizer = train_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}{% set c = m['content'] %}{{ '<|im_start|>' + m['role'] + '\n' }}"
        "{% if m['role'] == 'assistant' %}{% if '</think>' in c %}"
        "{{ '<think>' + c.split('</think>')[0].split('<think>')[1] + '</think>' + c.split('</think>')[1] }}"
        "{% else %}{{ '<think>\n\n</think>\n\n' + c }}{% endif %}"
        "{% else %}{{ c }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    )
    encoder = Encoder(tokenizer, "chat")
    thought = encoder.encode(chat("<think>why</think>code"), [])
    assert tokenizer.decode(thought.input_ids.tolist()).endswith("assistant\n<think>why</think>code<|im_end|>")
    assert tokenizer.decode(encoder.encode(chat("code"), []).input_ids.tolist()).endswith(
        "<think>\n\n</think>\n\ncode<|im_end|>"
    )


def test_a_template_that_refuses_gives_a_reason() -> None:
    tokenizer = train_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('no system role') }}"
    with pytest.raises(Untokenisable) as refused:
        Encoder(tokenizer, "chat").encode(chat("x"), [])
    assert refused.value.reason == "template_refused"
    assert "no system role" in refused.value.detail


def test_a_lossy_tokenizer_refuses_what_it_cannot_give_back() -> None:
    from tokenizers import normalizers

    tokenizer = train_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    encoder = Encoder(tokenizer, "raw")
    lower, upper = "__global__ void f() {}", "__global__ void F() {}"
    assert encoder.encode(chat(lower), extract_cuda(lower)).prompt_tokens == 1
    with pytest.raises(Untokenisable) as refused:
        encoder.encode(chat(upper), extract_cuda(upper))
    assert refused.value.reason == "lossy_tokenizer"


def test_private_characters_of_the_disguise_are_refused(tokenizer: Any) -> None:
    with pytest.raises(Untokenisable) as refused:
        Encoder(tokenizer, "chat").encode(chat("a" + chr(0xF0001) + "b"), [])
    assert refused.value.reason == "reserved_characters"


def test_a_tokenizer_without_offsets_is_refused_in_one_line() -> None:
    with pytest.raises(ModelError, match="no character offsets"):
        Encoder(SimpleNamespace(is_fast=False, name_or_path="slow/model"), "chat")


def test_several_turns_score_the_last_answer(tokenizer: Any) -> None:
    messages = [{"role": "system", "content": "Be brief."}, *chat("first"), *chat("second")]
    sample = Encoder(tokenizer, "chat").encode(messages, [])
    assert tokenizer.decode(sample.input_ids[sample.prompt_tokens :].tolist()) == "second<|im_end|>"
    assert tokenizer.decode(sample.input_ids.tolist()) + "\n" == tokenizer.apply_chat_template(messages, tokenize=False)
    assert tokenizer.chat_template == CHAT_TEMPLATE


def sentencepiece(scheme: str) -> Any:
    """A BPE of the Llama 2 kind: a space is `▁`, one stands before each stretch of text, unknown bytes fall back."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    if scheme == "prepend":
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    strip = [decoders.Strip(" ", 1, 0)] if scheme != "never" else []
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=specials[:3], show_progress=False)
    backend.train_from_iterator([KERNEL, fenced(), "Scale a vector."], trainer)
    spec = json.loads(backend.to_str())
    for token in specials[3:]:
        spec["model"]["vocab"].setdefault(token, len(spec["model"]["vocab"]))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(spec)), bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m['role'] == 'user' %}{{ '<s>[INST] ' + m['content'] + ' [/INST]' }}"
        "{% else %}{{ ' ' + m['content'] + ' </s>' }}{% endif %}{% endfor %}"
    )
    return tokenizer


@pytest.mark.parametrize("scheme", ["prepend", "always", "first", "never"])
@pytest.mark.parametrize("context", ["chat", "raw"])
def test_tokenizers_of_the_sentencepiece_kind(scheme: str, context: str) -> None:
    tokenizer = sentencepiece(scheme)
    response = fenced("// größe 🎉\n" + KERNEL)
    sample = Encoder(tokenizer, context).encode(chat(response), extract_cuda(response))
    whole = response if context == "chat" else extract_cuda(response)[0].text
    spans = "".join(
        dict.fromkeys(response[a:b] for a, b in zip(sample.char_start, sample.char_end, strict=True) if a >= 0)
    )
    assert set(spans) == set(whole)
    if context == "chat":
        assert covered(sample, response) == response
        assert int(sample.input_ids[-1]) == tokenizer.eos_token_id


def test_named_templates_use_the_default_one() -> None:
    tokenizer = train_tokenizer()
    tokenizer.chat_template = {"default": CHAT_TEMPLATE, "tool_use": "{{ 'tools' }}"}
    assert Encoder(tokenizer, "chat").encode(chat("code"), []).input_ids[-1] == 2


@pytest.mark.parametrize("change", ["|upper", "|tojson", "|replace('a', 'b')"])
def test_a_template_that_changes_the_answer_is_refused(change: str) -> None:
    tokenizer = train_tokenizer()
    tokenizer.chat_template = CHAT_TEMPLATE.replace("m['content']", f"m['content']{change}")
    with pytest.raises(Untokenisable) as refused:
        Encoder(tokenizer, "chat").encode(chat('a "kernel"'), [])
    assert refused.value.reason == "template_refused"


def test_a_template_that_trims_keeps_the_answer_whole() -> None:
    tokenizer = train_tokenizer()
    tokenizer.chat_template = CHAT_TEMPLATE.replace("m['content']", "m['content']|trim")
    response = "\n" + fenced()
    assert covered(Encoder(tokenizer, "chat").encode(chat(response), []), response) == response


def test_a_template_that_writes_the_date_writes_the_same_one_every_day() -> None:
    tokenizer = train_tokenizer()
    tokenizer.chat_template = "{{ strftime_now('%d %b %Y') + '\n' }}" + CHAT_TEMPLATE
    text = tokenizer.decode(Encoder(tokenizer, "chat").encode(chat("code"), []).input_ids.tolist())
    assert text.startswith("26 Jul 2024\n")


def test_special_tokens_that_cannot_be_told_from_text_are_one_line() -> None:
    tokenizer = train_tokenizer()
    tokenizer.chat_template = {"rag": "no default"}
    with pytest.raises(ModelError, match="cannot be used") as error:
        Encoder(tokenizer, "chat")
    assert "\n" not in str(error.value)


def test_a_conversation_of_thousands_of_turns_takes_linear_time(tokenizer: Any) -> None:
    messages = [m for n in range(2000) for m in chat(f"answer {n}")]
    sample = Encoder(tokenizer, "chat").encode(messages, [])
    assert tokenizer.decode(sample.input_ids[sample.prompt_tokens :].tolist()) == "answer 1999<|im_end|>"
