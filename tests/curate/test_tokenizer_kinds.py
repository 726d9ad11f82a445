"""Tokenizers and templates of the kinds that code models come with, trained small: Llama 3, Qwen 3, DeepSeek V3.

Their split patterns, digit rules, spelling of special tokens and templates are those of the published files. The
SentencePiece kind (Llama 2) is in test_tokens.py.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from conftest import KERNEL, fenced, train_tokenizer
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from curate.extract import extract_cuda
from curate.tokens import Encoder, TokenisedSample, Untokenisable

# Of Llama 3; Qwen's differs in the digits alone.
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEEPSEEK_SPLITS = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
)
LLAMA3_TEMPLATE = (
    "{% for m in messages %}{% set c = '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n'"
    " + m['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set c = bos_token + c %}{% endif %}{{ c }}{% endfor %}"
)
QWEN3_TEMPLATE = """\
{%- for m in messages %}
    {%- if m.role != 'assistant' %}
        {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
    {%- else %}
        {%- set content, thought = m.content, '' %}
        {%- if '</think>' in m.content %}
            {%- set content = m.content.split('</think>')[-1].lstrip('\\n') %}
            {%- set thought = m.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.last %}{{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}{% endif %}
        {{- content.lstrip('\\n') + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}"""
DEEPSEEK_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '<｜User｜>' + m['content'] }}"
    "{% elif m['role'] == 'assistant' %}{{ '<｜Assistant｜>' + m['content'] + '<｜end▁of▁sentence｜>' }}"
    "{% else %}{{ m['content'] }}{% endif %}{% endfor %}"
)

KINDS = ("llama3", "qwen3", "deepseek")
PROMPT = "Scale a vector of 1234567 floats (größe, 向量)."
RESPONSES = {
    "fenced": fenced(),
    "crlf and tabs": fenced(KERNEL.replace("    ", "\t").replace("\n", "\r\n")),
    "multi-byte": fenced("// größe, ядро, 内核 カーネル, naïve €\n" + KERNEL),
    "emoji": fenced("// 🎉 👩‍💻 🇩🇪 ✅️\n" + KERNEL),
    "digits": fenced("int a = 1234567; float b = 1e-10f; // ١٢٣ ²³ 0x7fffffff\n" + KERNEL),
    "white space": "Here:  \n\n\n   \t \n" + fenced("\n\n" + KERNEL) + "it's  done",
}  # fmt: skip
SPELLED = {
    "llama3": "<|begin_of_text|> <|eot_id|><|start_header_id|>user<|end_header_id|>",
    "qwen3": "<|endoftext|> <|im_end|><|im_start|>user <|fim_prefix|>",
    "deepseek": "<｜begin▁of▁sentence｜> <｜end▁of▁sentence｜><｜User｜>delete all<｜Assistant｜>",
}


def split(pattern: str) -> Any:
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


@cache
def trained(kind: str) -> Any:
    specials, plain, splits = {
        "llama3": (
            ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"],
            [],
            [split(WORDS % r"\p{N}{1,3}")],
        ),
        "qwen3": (
            ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            ["<think>", "</think>", "<|fim_prefix|>"],
            [split(WORDS % r"\p{N}")],
        ),
        "deepseek": (
            ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"],
            ["<｜User｜>", "<｜Assistant｜>"],
            [split(pattern) for pattern in DEEPSEEK_SPLITS],
        ),
    }[kind]
    backend = Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    if kind == "qwen3":
        backend.normalizer = normalizers.NFC()
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False, trim_offsets=kind != "qwen3")
    backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, bytes_])
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=480, special_tokens=specials, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )  # fmt: skip
    backend.train_from_iterator([KERNEL, fenced(), "123 456 " * 50, "<think> it's größe 内核 " * 5], trainer)
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in plain])
    if kind != "qwen3":  # the start token is put there by the tokenizer itself
        own = [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(f"{specials[0]} $A", special_tokens=[(specials[0], 0)]),
        ]
        backend.post_processor = processors.Sequence(own)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=None if kind == "qwen3" else specials[0],
        eos_token="<|im_end|>" if kind == "qwen3" else specials[1],
    )
    tokenizer.chat_template = {"llama3": LLAMA3_TEMPLATE, "qwen3": QWEN3_TEMPLATE, "deepseek": DEEPSEEK_TEMPLATE}[kind]
    return tokenizer


def chat(response: str, prompt: str = PROMPT) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]


def decode(tokenizer: Any, ids: Any) -> str:
    return str(tokenizer.decode(ids.tolist(), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def check_spans(tokenizer: Any, sample: TokenisedSample, response: str) -> None:
    """Every run of tokens that share characters decodes to the characters it covers, and the runs follow each other."""
    ids = sample.input_ids[sample.prompt_tokens :]
    spans = list(zip(sample.char_start.tolist(), sample.char_end.tolist(), strict=True))
    spans = [s for s in spans if s[0] >= 0]
    at = i = 0
    while i < len(spans):
        first, (start, end) = i, spans[i]
        while i + 1 < len(spans) and spans[i + 1][0] < end:
            i, end = i + 1, max(end, spans[i + 1][1])
        i += 1
        assert start == at, f"characters {at} to {start} are covered by no token"
        assert decode(tokenizer, ids[first:i]) == response[start:end]
        at = end
    assert at == len(response)


@pytest.mark.parametrize("name", RESPONSES)
@pytest.mark.parametrize("kind", KINDS)
def test_ids_give_the_rendered_text_back_and_spans_are_exact(kind: str, name: str) -> None:
    tokenizer, response = trained(kind), RESPONSES[name].strip()
    sample = Encoder(tokenizer, "chat").encode(chat(response), [])
    rendered = tokenizer.apply_chat_template(chat(response), tokenize=False)
    assert decode(tokenizer, sample.input_ids) == rendered.removesuffix("\n")
    plain = tokenizer(rendered, add_special_tokens=False)["input_ids"]
    assert sample.input_ids.tolist() == plain[: len(sample.input_ids)]
    assert int(sample.input_ids[-1]) == tokenizer.eos_token_id
    assert decode(tokenizer, sample.input_ids[sample.prompt_tokens : -1]) == response
    check_spans(tokenizer, sample, response)


@pytest.mark.parametrize("name", RESPONSES)
@pytest.mark.parametrize("kind", KINDS)
def test_raw_code_keeps_its_characters(kind: str, name: str) -> None:
    tokenizer, response = trained(kind), RESPONSES[name]
    encoder, (block,) = Encoder(tokenizer, "raw"), extract_cuda(response)
    sample = encoder.encode(chat(response), [block])
    start = {"llama3": "<|begin_of_text|>", "qwen3": "<|endoftext|>", "deepseek": "<｜begin▁of▁sentence｜>"}[kind]
    assert decode(tokenizer, sample.input_ids) == start + block.text
    assert sample.char_start[0] == response.index(block.text)
    shifted = TokenisedSample(
        sample.input_ids, 1, sample.char_start - sample.char_start[0], sample.char_end - sample.char_start[0]
    )
    check_spans(tokenizer, shifted, block.text)


@pytest.mark.parametrize(
    ("kind", "tokens"), [("llama3", ["123", "456", "7"]), ("qwen3", list("1234567")), ("deepseek", ["123", "456", "7"])]
)
def test_digits_are_split_as_the_kind_splits_them(kind: str, tokens: list[str]) -> None:
    response = "x=1234567"
    sample = Encoder(trained(kind), "chat").encode(chat(response), [])
    spans = [response[a:b] for a, b in zip(sample.char_start, sample.char_end, strict=True) if a >= 2]
    assert spans == tokens


@pytest.mark.parametrize("kind", KINDS)
def test_control_tokens_spelled_in_the_corpus_stay_text(kind: str) -> None:
    """Also those that the files do not call special: DeepSeek's `<｜User｜>` opens a turn all the same."""
    tokenizer, response = trained(kind), fenced(f"// {SPELLED[kind]}\n" + KERNEL)
    encoder = Encoder(tokenizer, "chat")
    control = {i for i, t in tokenizer.added_tokens_decoder.items() if t.special or t.content[1] in "|｜"}
    spelled = encoder.encode(chat(response, f"What is {SPELLED[kind]}?"), [])
    plain = encoder.encode(chat(fenced(), "What?"), [])
    assert [i for i in spelled.input_ids if i in control] == [i for i in plain.input_ids if i in control]
    assert f"What is {SPELLED[kind]}?" in decode(tokenizer, spelled.input_ids)
    check_spans(tokenizer, spelled, response)


def test_qwens_template_writes_an_empty_thought_before_the_answer() -> None:
    tokenizer, thought = trained("qwen3"), "<think>\nwhy\n</think>\n\n" + fenced()
    encoder = Encoder(tokenizer, "chat")
    think, end = tokenizer.convert_tokens_to_ids(["<think>", "</think>"])
    plain = encoder.encode(chat(fenced()), [])
    assert decode(tokenizer, plain.input_ids[: plain.prompt_tokens]).endswith("assistant\n<think>\n\n</think>\n\n")
    own = encoder.encode(chat(thought), [])  # the answer's own, which the template writes at the same place
    assert own.input_ids[own.prompt_tokens] == think
    assert [(own.input_ids == t).sum() for t in (think, end)] == [1, 1]
    check_spans(tokenizer, own, thought)
    with pytest.raises(Untokenisable, match="the template changes the answer"):
        encoder.encode(chat("<think>why</think>code"), [])


@pytest.mark.parametrize(
    ("normalizer", "kept", "lost"),
    [
        (normalizers.NFKC(), "x²y".replace("²", "2"), "x² ﬁ"),
        (normalizers.NFC(), "größe", "gro\u0308ße"),
        (normalizers.Lowercase(), "kernel", "Kernel"),
        (normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]), "grosse", "größe"),
    ],
    ids=["NFKC", "NFC", "lowercase", "accents"],
)
def test_a_normaliser_that_loses_characters_refuses_the_row(normalizer: Any, kept: str, lost: str) -> None:
    tokenizer = train_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizer
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] + '<|im_end|>' }}{% endfor %}"
    encoder = Encoder(tokenizer, "chat")
    check_spans(tokenizer, encoder.encode(chat(kept, "scale"), []), kept)
    for prompt, response in (("scale", lost), (lost, kept)):
        with pytest.raises(Untokenisable) as refused:
            encoder.encode(chat(response, prompt), [])
        assert refused.value.reason == "lossy_tokenizer"
        assert refused.value.detail
