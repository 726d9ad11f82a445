"""Is the answer a kernel that does the work: planted flaws, near misses, and hostile text."""

from __future__ import annotations

import pytest

from curate.checks import CHECKS, Flaw, find_flaws
from curate.extract import extract_cuda
from curate.syntax import label_parsed, parse_cuda
from tests.curate.planted_kernels import NEAR_MISSES, PLANTED
from tests.pace import processor_time


def flaws(response: str, prompt: str = "") -> list[Flaw]:
    blocks = extract_cuda(response)
    parsed = [parse_cuda(block.text) for block in blocks]
    return find_flaws(response, prompt, blocks, parsed, [label_parsed(p) for p in parsed])


@pytest.mark.parametrize(("reason", "prompt", "response"), [p[1:] for p in PLANTED], ids=[p[0] for p in PLANTED])
def test_a_planted_flaw_is_found_and_no_other(reason: str, prompt: str, response: str) -> None:
    assert [flaw.reason for flaw in flaws(response, prompt)] == [reason]


@pytest.mark.parametrize(("prompt", "response"), [n[2:] for n in NEAR_MISSES], ids=[n[0] for n in NEAR_MISSES])
def test_a_near_miss_passes(prompt: str, response: str) -> None:
    assert flaws(response, prompt) == []


def test_near_misses_hold_a_kernel() -> None:
    for name, _, _, response in NEAR_MISSES:
        assert sum(len(label_parsed(parse_cuda(b.text)).kernels) for b in extract_cuda(response)) > 0, name


def test_every_reason_is_planted_and_nearly_missed() -> None:
    reasons = {reason for reason, _ in CHECKS}
    assert {p[1] for p in PLANTED} == reasons
    assert {n[1] for n in NEAR_MISSES} == reasons


def test_details_hold_no_text_of_the_row() -> None:
    for name, _, prompt, response in PLANTED:
        for flaw in flaws(response, prompt):
            assert 0 < len(flaw.detail) < 300, name
            assert "\n" not in flaw.detail
            assert "out[i]" not in flaw.detail


@pytest.mark.parametrize(
    ("code", "kernels"),
    [
        ("// __global__ void k(float* x) { x[0] = 1; }\nint f() { return 1; }", ()),
        ('const char* s = "__global__ void k(float* x) { x[0] = 1; }";\nint f() { return 1; }', ()),
        ('const char* s = R"(\n__global__ void k(float* x) { x[0] = 1; }\n)";', ()),
        ("#define KERNEL __global__ void\nKERNEL k(float* x) { x[0] = 1; }", ("k",)),
        ("#define GLOBAL __global__\nGLOBAL void k(float* x) { x[0] = 1; }", ("k",)),
        ('#define KERNEL extern "C" __global__ void\nKERNEL k(float* x) { x[0] = 1; }', ("k",)),
        ("#define DEFINE(name) __global__ void name##_kernel(float* x) { x[0] = 1; }\nDEFINE(add)", ("name___kernel",)),
    ],
)
def test_what_counts_as_a_kernel(code: str, kernels: tuple[str, ...]) -> None:
    assert label_parsed(parse_cuda(code)).kernels == kernels


_HEAD = "__global__ void k(const float* in, float* out) { out[0] = in[0]; }\n"


@pytest.mark.parametrize(
    "response",
    [
        "",
        "```cuda\n" + _HEAD + "{" * 10_000 + "\n```",
        "```cuda\n" + _HEAD + "void f() { " + "a(" * 5_000 + ")" * 5_000 + "; }\n```",
        "```cuda\n" + _HEAD + "void f() { " + "at::matmul(a, b); if (x) { k<<<1, 1>>>(a, b); return; }" * 3_000 + "}\n```",
        "```cuda\n__global__ void k(const float* in, float* out) { float a = 0;" + "a = a + a;" * 10_000 + "out[0] = a; }\n```",
        "```cuda\n__global__ void k(const float* in, float* out) { out[0] = " + "1 + " * 8_000 + "1; }\n```",
        "```python\nimport torch\ndef f(x):\n    " + "[" * 10_000 + "\n```",
        "```python\nimport torch\ns = '''" + _HEAD + "'''\ne = load_inline(cuda_sources=s)\nclass M(nn.Module):\n  def forward(self, x):\n"
        + "    try:\n      e.k(x)\n    except E:\n      pass\n    torch.relu(x)\n" * 2_000 + "\n```",
        "```python\nimport torch\ndef f(x):\n  return x" + ".relu()" * 10_000 + "\n```",
        "```python\nimport torch\ns = '''" + _HEAD + "'''\ne = load_inline(cuda_sources=s)\nclass M(nn.Module):\n  def forward(self, x):\n"
        + "    self.a = self.b\n    self.a(x)\n" * 4_000 + "\n```",
        "```python\nimport torch\n@@@ class def ( import lambda\n```",
        "\ud800```cuda\n" + _HEAD + "\udc00\n```",
    ],
)  # fmt: skip
def test_hostile_text_takes_no_more_than_linear_time(response: str) -> None:
    blocks = extract_cuda(response)
    parsed = [parse_cuda(block.text) for block in blocks]
    labels = [label_parsed(p) for p in parsed]
    with processor_time(5):
        find_flaws(response, response, blocks, parsed, labels)
