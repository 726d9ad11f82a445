"""Fenced blocks: every tag, every kind of fence, exact offsets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.extract import CodeBlock, extract_cuda

KERNEL = """\
__global__ void add(float *a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] += 1;
}
"""
HOST = '#include <cstdio>\nint main() {\n  printf("%d", 1);\n  return 0;\n}\n'
MODULE = (
    "import torch\nfrom torch import nn\n\nclass Net(nn.Module):\n    def forward(self, x):\n        return x + 1\n"
)


def only(response: str) -> CodeBlock:
    blocks = extract_cuda(response)
    assert len(blocks) == 1, blocks
    return blocks[0]


@pytest.mark.parametrize(
    "tag", ["cuda", "CUDA", "cpp", "c++", "cu", "C", "", "CUDA C++", 'C++ title="add.cu"', "{.cuda}", "text"]
)
def test_every_tag_of_c_family_and_none(tag: str) -> None:
    response = f"Here it is:\n\n```{tag}\n{KERNEL}```\nDone."
    block = only(response)
    assert block.text == KERNEL
    assert response[block.start : block.end] == KERNEL
    assert (block.kind, block.starts) == ("fence", None)
    assert block.tag == tag.lower().strip("{}").lstrip(".")


@pytest.mark.parametrize("tag", ["bash", "json", "rust", "ptx", "yaml", "diff", "makefile"])
def test_fence_of_another_language_gives_no_block(tag: str) -> None:
    assert extract_cuda(f"```{tag}\n{KERNEL}```\n") == []


@pytest.mark.parametrize(
    "content",
    [MODULE, "nvcc -O3 add.cu -o add\n./add\n", '{"a": 1, "b": [1, 2]}\n', "Result: 3.14\nPASSED\n", "\n  \n"],
    ids=["python", "shell", "json", "output", "blank"],
)
def test_untagged_fence_that_is_no_cpp_gives_no_block(content: str) -> None:
    assert extract_cuda(f"Text.\n```\n{content}```\n") == []


def test_host_code_is_a_block_and_order_is_kept() -> None:
    response = f"First\n```cpp\n{HOST}```\nthen\n~~~cuda\n{KERNEL}~~~\n"
    blocks = extract_cuda(response)
    assert [b.text for b in blocks] == [HOST, KERNEL]
    assert blocks[0].end <= blocks[1].start


def test_longer_fence_holds_shorter_ones() -> None:
    code = f"/*\n```\nnot the end\n```\n*/\n{KERNEL}"
    assert only(f"````cuda\n{code}````\nafter").text == code


def test_markdown_fence_is_looked_into() -> None:
    assert only(f"````markdown\n# Title\n```cuda\n{KERNEL}```\n````\n").text == KERNEL


def test_tilde_fence_is_not_closed_by_backticks() -> None:
    code = f"// ```\n{KERNEL}"
    assert only(f"~~~cuda\n```\n{code}~~~\n").text == f"```\n{code}"


def test_unclosed_fence_runs_to_the_end() -> None:
    response = f"Here:\n```cuda\n{KERNEL}"
    assert only(response).end == len(response)


def test_backtick_in_info_string_opens_nothing() -> None:
    assert extract_cuda(f"```cuda `x` says it all, and here is a line that follows it.\n{KERNEL}") == []


def test_fence_in_a_list_whose_code_is_not_indented() -> None:
    """A CommonMark parser would end this fence at its first line of code."""
    block = only(f"1. The kernel:\n   ```cuda\n{KERNEL}   ```\n2. ```cpp is not a fence\n")
    assert block.text == KERNEL


def test_fence_after_a_tag_line() -> None:
    assert only(f"<answer>\n```cuda\n{KERNEL}```\n</answer>").text == KERNEL


def test_block_quote_markers_are_left_out() -> None:
    response = "> See:\n> ```cuda\n" + "".join(f"> {line}\n" for line in KERNEL.splitlines()) + "> ```\n"
    block = only(response)
    assert block.text == KERNEL
    starts, ends = block.char_ranges()
    assert "".join(response[s:e] for s, e in zip(starts, ends, strict=True)) == KERNEL


@pytest.mark.parametrize("newline", ["\r\n", "\r", "\n"])
def test_line_ends_stay_as_they_are(newline: str) -> None:
    response = f"Überschrift\n```cuda\n{KERNEL}```\n".replace("\n", newline)
    block = only(response)
    assert block.text == KERNEL.replace("\n", newline)
    assert response[block.start : block.end] == block.text


@pytest.mark.parametrize("name", ["think", "thinking", "reasoning", "THINK"])
def test_thoughts_are_left_out(name: str) -> None:
    thought = KERNEL.replace("add", "draft")
    response = f"<{name}>\n```cuda\n{thought}```\n</{name}>\n```cuda\n{KERNEL}```\n"
    assert only(response).text == KERNEL
    assert response[only(response).start :].startswith(KERNEL)


def test_thought_without_end_hides_the_rest() -> None:
    assert extract_cuda(f"<think>\nLet me see.\n```cuda\n{KERNEL}```\n") == []


def test_closing_tag_alone_hides_what_comes_before() -> None:
    assert only(f"Let me see.\n```cuda\n{KERNEL}```\n</think>\n```cuda\n{HOST}```\n").text == HOST


def test_nested_and_bar_tags() -> None:
    inner = f"```cuda\n{KERNEL}```\n"
    assert extract_cuda(f"<think>\n<think>\nx\n</think>\n{inner}</think>\nNo code.") == []
    assert extract_cuda(f"<|begin_of_thought|>\n{inner}<|end_of_thought|>\nNo code.") == []


def test_tag_inside_a_line_is_no_thought() -> None:
    assert only(f"Models write <think> first.\n```cuda\n{KERNEL}```\n").text == KERNEL


PIECES = st.sampled_from(
    [
        "```",
        "````",
        "~~~",
        "cuda",
        "\n",
        "\r\n",
        KERNEL,
        MODULE,
        "> ",
        "- ",
        "<think>",
        "</think>",
        's = """',
        '"""',
        "é",
        "\\n",
        "\0",
    ]
)


@settings(max_examples=300)
@given(st.lists(PIECES, max_size=30).map("".join) | st.text())
def test_blocks_stay_inside_and_never_overlap(response: str) -> None:
    last = 0
    for block in extract_cuda(response):
        assert last <= block.start < block.end <= len(response)
        last = block.end
        starts, ends = block.char_ranges()
        assert len(starts) == len(ends) == len(block.text)
        assert starts[0] == block.start
        assert ends[-1] == block.end
        assert (starts < ends).all()
        assert (ends[:-1] <= starts[1:]).all()
        if block.starts is None:
            assert block.text == response[block.start : block.end]
