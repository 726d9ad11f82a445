"""Secrets and addresses: planted ones of every kind, near misses of CUDA and Python, and texts that take long.

The planted tokens are put together at run time, so that no file of the repository holds one.
"""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curate.extract.language import parse_cuda
from curate.redaction import Redaction, redact
from tests.pace import processor_time

ALNUM = "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA1bC2dE3fG4hI5jK6lM7nO8pQ9rS0tU1vW2xY3zA4bC5dE6fG7h"


def _b64(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


JWT = ".".join([_b64({"alg": "HS256"}), _b64({"sub": "1234"}), ALNUM[:43]])
KEY_LINES = [ALNUM[:64]] * 3
PEM = "\n".join(["-----BEGIN RSA PRIVATE " + "KEY-----", *KEY_LINES, "-----END RSA PRIVATE " + "KEY-----"])

SECRETS = {
    "aws_access_key": "AKIA" + "Q2W3E4R5T6Y7U2I3",
    "github_token": "ghp_" + ALNUM[:36],
    "gitlab_token": "glpat-" + ALNUM[:20],
    "hugging_face_token": "hf_" + ALNUM[:34],
    "nvidia_api_key": "nvapi-" + ALNUM[:64],
    "google_api_key": "AIza" + ALNUM[:35],
    "npm_token": "npm_" + ALNUM[:36],
    "openai_api_key": "sk-proj-" + ALNUM[:20] + "T3BlbkFJ" + ALNUM[:20] + "_tail-9",
    "anthropic_api_key": "sk-ant-api03-" + ALNUM[:60],
    "slack_token": "xoxb-" + "123456789012-123456789012-" + ALNUM[:24],
    "stripe_access_key": "sk_live_" + ALNUM[:24],
    "sendgrid_api_key": "SG." + ALNUM[:22] + "." + ALNUM[:43],
    "telegram_bot_token": "123456789:" + ALNUM[:35],
    "pypi_token": "pypi-AgEIcHlwaS5vcmc" + ALNUM[:72],
    "json_web_token": JWT,
    "private_key": PEM,
    "twilio_api_key": "SK" + ALNUM[:32].lower(),
    "discord_token": "M" + ALNUM[:23] + "." + ALNUM[:6] + "." + ALNUM[:27],
    "mailchimp_key": ALNUM[:32].lower() + "-us12",
    "square_oauth_secret": "sq0csp-" + ALNUM[:43],
}
OPENAI_INTO_KEY = '-----BEGIN PRIVATE KEY-----"' + SECRETS["openai_api_key"] + PEM
"""The end of a token takes the beginning of a key along."""
BEHIND_A_LONG_TOKEN = JWT + "." * 300 + 'password = "x9K2mQ7vLp4Z"'
"""The line is not searched for passwords until the token is gone."""


def _text(content: str) -> str:
    return redact([("assistant", content)]).messages[0][1]


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize(
    "around", ['const char *k = "{}";', "// {}\nint x;", "export K={}", "use {}, then", 'f("a\\n{}\\n")', "{}"]
)
def test_planted_secrets(kind: str, around: str) -> None:
    before, _, after = around.partition("{}")
    found = redact([("assistant", before + SECRETS[kind] + after)])
    placeholder = f"REDACTED_{kind.upper()}_1"
    assert found.messages == (("assistant", before + placeholder + after),)
    assert found.counts == {kind: 1}
    span = found.spans[0]
    assert (span.message, span.start, span.end, span.kind) == (0, len(before), len(before) + len(placeholder), kind)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('password = "x9K2mQ7vLp4Z"', 'password = "REDACTED_PASSWORD_1"'),
        ('f("x9K2mQ7vLp4Z"), password = "x9K2mQ7vLp4Z"', 'f("REDACTED_PASSWORD_1"), password = "REDACTED_PASSWORD_1"'),
        (f"login('github_pat_{ALNUM[:22]}_{ALNUM[:59]}')", "login('REDACTED_GITHUB_TOKEN_1')"),
        ("AC" + ALNUM[:32].lower(), "REDACTED_TWILIO_API_KEY_1"),
        (OPENAI_INTO_KEY, '-----BEGIN PRIVATE KEY-----"REDACTED_PRIVATE_KEY_1'),
        (f"git clone ghp_{ALNUM[:36]}@lab.org/a", "git clone REDACTED_GITHUB_TOKEN_1/a"),
        (f"hf_{ALNUM[:10]}REDACTED_A_1 ghp_{ALNUM[:36]}REDACTED_B_2", f"hf_{ALNUM[:10]}REDACTED_A_1 REDACTED_GITHUB_TOKEN_1REDACTED_B_2"),
        ("REDACTED_A_1@lab.org REDACTED_A_1b@lab.org", "REDACTED_A_1@lab.org REDACTED_A_1redacted-1@example.com"),
        ("'api_key': 'x9K2-mQ7v-Lp4Z'", "'api_key': 'REDACTED_PASSWORD_1'"),
        ("git clone https://me:x9K2mQ7v@host.org/a", "git clone https://me:REDACTED_BASIC_AUTH_1@host.org/a"),
        (f'aws_secret_key = "{ALNUM[:40]}"', 'aws_secret_key = "REDACTED_AWS_SECRET_KEY_1"'),
        (f"AccountKey={(ALNUM * 2)[:86]}==;", "AccountKey=REDACTED_AZURE_STORAGE_KEY_1;"),
        ('"' + PEM.replace("\n", '\\n"\n"') + '\\n"', '"REDACTED_PRIVATE_KEY_1\\n"'),
        ("x = '" + PEM.rpartition("\n")[0].replace("\n", "\\n") + "'", "x = 'REDACTED_PRIVATE_KEY_1'"),
        ("// mail: a.b+c@lab.uni-x.edu.", "// mail: redacted-1@example.com."),
        ("/* <Ada@Lovelace.ORG>, mailto:b@x.io */", "/* <redacted-1@example.com>, mailto:redacted-2@example.com */"),
        ('printf("by:\\nada@lab.org\\n");', 'printf("by:\\nredacted-1@example.com\\n");'),
        ("#define MAIL ada@lab.org", "#define MAIL redacted-1@example.com"),
        ("Write to ada@lab.org or ADA@lab.org, b@x.de", "Write to redacted-1@example.com or redacted-1@example.com, redacted-2@example.com"),
        ("# é by ada@lab.org\nimport torch\n\ndef f(a, b):\n    return a@b.net\n", "# é by redacted-1@example.com\nimport torch\n\ndef f(a, b):\n    return a@b.net\n"),
        ('```python\nimport torch\ns = """// ada@lab.org\n"""\ny = x@m.net\n```', '```python\nimport torch\ns = """// redacted-1@example.com\n"""\ny = x@m.net\n```'),
    ],
)  # fmt: skip
def test_what_it_becomes(text: str, expected: str) -> None:
    assert _text(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "constexpr uint64_t golden = 0x9E3779B97F4A7C15ULL; // 2^64 / phi",
        "__constant__ uint32_t T[] = {" + ", ".join(f"0x{n * 2654435761 % 2**32:08x}" for n in range(300)) + "};",
        'const char *sha = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";',
        'assert(md5("password") == "5f4dcc3b5aa765d61d8327deb882cf99");',
        'password_hash = "5f4dcc3b5aa765d61d8327deb882cf99"',
        'const char *alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";',
        "id = '123e4567-e89b-12d3-a456-426614174000'  # secret",
        "password = getpass()", 'password = os.environ["DB_PASSWORD_1234"]', 'password = ""', 'pwd = "hunter2"',
        'api_key = "YOUR-API-KEY-HERE-1"', 'api_key = "<api_key_0123456>"', 'token = "${HF_TOKEN_0123}"',
        'secret_key_kernel<<<1, 2>>>("block_reduce_16")', '__global__ void crackPassword(const char *pwd = "abc") {}',
        "__global__ void ASIANMONTECARLOPATHS(float *ASIAN) {}", "AKIAIOSFODNN7" + "EXAMPLE",
        "hf_attention_forward_kernel_with_rotary_embedding_v2", "hf_" + "model" * 8, "ghp_kernel", "sk-learn", "sk_live_paths",
        "blob = '" + base64.b64encode(bytes(range(256)) * 8).decode() + "'",
        'if (line == "-----BEGIN RSA PRIVATE ' + 'KEY-----") state = KEY;', "eyJhbGciOiJIUzI1NiJ9", "eyJ.eyJ.eyJ",
        'asm volatile("{ .reg .pred p; @p bra DONE; @%p1 ld.global.v4.u32 {%0,%1,%2,%3}, [%4+16]; }" :: "r"(x));',
        "C = A@B.T", "y = q@k.transpose(-2, -1)", "z = (x@w.mT).to(dev)", "x@w.to(device)", "x@w.io[0]", "1@2.de",
        "@torch.jit.script\ndef f(x):\n    return x@model.net\n", "```python\n@triton.jit\ndef f(x):\n    y = x@self.io\n```",
        "git@github.com:NVIDIA/cutlass.git", "https://user@host.com/a", "https://user:password@host.com/", "a@b", "@ada.com",
        "user@example.com, me@my.example.org, x@y.test", "b@c.cuh", "kernel@2x.png", "int main() { return 0; }", "",
        "nvcc -arch=sm_90 -O3 --expt-relaxed-constexpr kernel.cu -o " + "a" * 40, "12345678:kernel", "\ud800@\x00.com",
    ],
)  # fmt: skip
def test_near_misses_stay_as_they_are(text: str) -> None:
    found = redact([("user", text)])
    assert found.messages == (("user", text),)
    assert found.counts == {}
    assert found.spans == ()


def test_numbers_hold_over_all_turns() -> None:
    first, second = "hf_" + ALNUM[:34], "hf_" + ALNUM[1:35]
    messages = [
        ("system", f"{second} ada@lab.org"),
        ("user", f"{first} {second}"),
        ("assistant", f"// {first} ada@lab.org bob@lab.org"),
    ]
    found = redact(messages)
    assert found.messages == (
        ("system", "REDACTED_HUGGING_FACE_TOKEN_1 redacted-1@example.com"),
        ("user", "REDACTED_HUGGING_FACE_TOKEN_2 REDACTED_HUGGING_FACE_TOKEN_1"),
        ("assistant", "// REDACTED_HUGGING_FACE_TOKEN_2 redacted-1@example.com redacted-2@example.com"),
    )
    assert found.counts == {"email": 3, "hugging_face_token": 4}
    for span in found.spans:
        assert found.messages[span.message][1][span.start : span.end].lower().startswith("redacted")


def test_what_a_placeholder_brings_to_light_is_found() -> None:
    found = redact([("user", BEHIND_A_LONG_TOKEN)])
    expected = "REDACTED_JSON_WEB_TOKEN_1" + "." * 300 + 'password = "REDACTED_PASSWORD_1"'
    assert found.messages == (("user", expected),)
    assert found.counts == {"json_web_token": 1, "password": 1}
    assert [expected[span.start : span.end] for span in found.spans] == [
        "REDACTED_JSON_WEB_TOKEN_1",
        "REDACTED_PASSWORD_1",
    ]


def test_a_text_without_end_of_findings_becomes_one_placeholder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("curate.redaction._MAX_PASSES", 2)
    found = redact([("user", BEHIND_A_LONG_TOKEN), ("assistant", "int x;")])
    assert found.messages == (("user", "REDACTED_PASSWORD_1"), ("assistant", "int x;"))
    assert found.counts == {"password": 1}


def test_redacting_again_changes_nothing_and_numbers_do_not_collide() -> None:
    messages = [
        (
            "user",
            " ".join([*SECRETS.values(), "ada@lab.org", 'password = "x9K2mQ7vLp4Z"', "https://me:x9K2mQ7v@host.org"]),
        )
    ]
    once = redact(messages)
    assert sum(once.counts.values()) == len(SECRETS) + 3
    again = redact(once.messages)
    assert (again.messages, again.counts) == (once.messages, {})
    later = redact([*once.messages, ("assistant", "bob@lab.org ghp_" + ALNUM[2:38])])
    assert later.messages[1][1] == "redacted-2@example.com REDACTED_GITHUB_TOKEN_2"


def test_code_still_parses() -> None:
    code = (
        "".join(
            f'// author {i}: dev{i}@lab.org\nconst char *k{i} = "{secret}";\n'
            for i, secret in enumerate(s for s in SECRETS.values() if "\n" not in s)
        )
        + "__global__ void f(float *a) { a[0] = 1; }\n"
    )
    redacted = _text(code)
    before, after = parse_cuda(code).root_node, parse_cuda(redacted).root_node
    assert not after.has_error
    assert [n.type for n in after.children] == [n.type for n in before.children]
    assert "lab.org" not in redacted


PIECES = st.sampled_from(
    [
        '"',
        "\\n",
        "\n",
        " ",
        "@",
        ".com",
        "ada",
        "://",
        ":",
        "é",
        "x" * 70,
        "\ud800",
        "REDACTED_EMAIL_1",
        "redacted-1@example.com",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        *SECRETS.values(),
        "AIza" + ALNUM[:13],  # what a placeholder could make a token of
        "github_pat_" + ALNUM[:20],
        "ghp_" + ALNUM[:16],
        'password = "',
        "x9K2mQ7vLp4Z",
        "." * 300,
        "@lab.org",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(PIECES, max_size=12).map("".join), max_size=3))
@example([OPENAI_INTO_KEY.rpartition("\n")[0]])
@example([OPENAI_INTO_KEY])
@example([BEHIND_A_LONG_TOKEN])
@example(["AIza" + ALNUM[:13] + PEM, "github_pat_" + ALNUM[:20] + PEM])
def test_any_mixture(texts: list[str]) -> None:
    """What stands outside the placeholders is the text itself, in order, and a second pass finds nothing new."""
    found = redact([("user", text) for text in texts])
    for n, (text, (_, redacted)) in enumerate(zip(texts, found.messages, strict=True)):
        at, rest = 0, 0
        for span in (s for s in found.spans if s.message == n):
            kept = redacted[at : span.start]
            assert text.startswith(kept, rest) if at == 0 else kept in text[rest:]
            rest = text.index(kept, rest) + len(kept)
            at = span.end
        assert text.endswith(redacted[at:])
    assert redact(found.messages) == Redaction(found.messages, {}, ())


@pytest.mark.parametrize(
    "unit",
    ["a", "@", "a@", "a@b.", "a@b.de ", "a@b.de\n", "eyJ", "eyJ=", "eyJ.", "eyJa.", "sk-T3BlbkFJ", "sk-", "sk-a=", "ghp_", "ghp_" + "a1" * 18,
     "xoxb-1-", "://", "://a:", "://a:b@", "aws", "awskey", "awskey'", "secret", "secret=", 'secret="', "pwd='a1", "'", "-----BEGIN PRIVATE KEY",
     "-----BEGIN PRIVATE KEY-----\n" + "A" * 60, "-----END PRIVATE KEY-----", "\\", "\\n", "`", "```\n", "12345678:", "AC", "glpat-", "pypi-AgEIcHlwaS5vcmc",
     "0x9E3779B9, ", "https://hooks.slack.com/services/Ta/B", "SG.", "nvapi-", "REDACTED_A_1 ", "REDACTED_A_1", "REDACTED_A", "ghp_" + "a1" * 18 + "REDACTED_A_1 ", "pwd='x9K2mQ7vLp4Z'"],
)  # fmt: skip
def test_time_is_linear(unit: str) -> None:
    text = unit * (300_000 // len(unit))
    with processor_time(6):
        redact([("user", text)])


def test_time_is_linear_where_python_has_to_be_parsed() -> None:
    with processor_time(6):
        redact([("user", "def f(a@b.de):\n" * 5_000)])
