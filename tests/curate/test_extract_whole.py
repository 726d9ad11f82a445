"""Answers that are code themselves, prose that only talks about code, and hostile text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.extract import extract_cuda, has_cuda
from curate.extract.language import language_of
from tests.pace import processor_time

KERNEL = """\
__global__ void add(float *a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] += 1;
}
"""
PROSE = [
    "The __global__ qualifier marks a kernel, and __device__ code runs there.",
    "Use `k<<<grid, block>>>(a);` to launch; then call cudaDeviceSynchronize().",
    "1. Allocate with cudaMalloc(&p, n);\n2. Launch k<<<g, b>>>(p);\n3. Free(p);\nIt uses threadIdx.x, __shared__.",
    f"The kernel adds one to each element of the vector.\n\n{KERNEL}\nIt needs one thread an element.",
    "Explanation:\n- threadIdx.x: the index\n- __syncthreads(): a barrier\n",
    "Sorry, I cannot help; please try again.",
    "",
    "   \n",
]


@pytest.mark.parametrize(
    "code", [KERNEL, "#include <cuda.h>\n" + KERNEL + "int main() { add<<<1, 32>>>(0, 0); }\n", "add<<<1, 2>>>(a, n);"]
)
def test_whole_answer_is_cuda(code: str) -> None:
    (block,) = extract_cuda(code)
    assert (block.kind, block.start, block.end, block.text) == ("whole", 0, len(code), code)


@pytest.mark.parametrize("text", PROSE)
def test_prose_is_no_code(text: str) -> None:
    assert extract_cuda(text) == []


@pytest.mark.parametrize("text", [text for text in PROSE if KERNEL not in text])
def test_prose_holds_no_construct(text: str) -> None:
    assert not has_cuda(text)


def test_source_file_with_a_fence_in_its_comment_is_one_block() -> None:
    code = f"/* Adds one.\n```\nadd<<<1, 32>>>(a, n);\n```\n*/\n{KERNEL}"
    (block,) = extract_cuda(code)
    assert (block.kind, block.text) == ("whole", code)


def test_code_after_a_thought() -> None:
    response = f"<think>\nAn index is needed.\n</think>\n\n{KERNEL}"
    (block,) = extract_cuda(response)
    assert block.text == response[block.start : block.end] == KERNEL


def test_thought_in_the_middle_of_code_is_cut_out() -> None:
    response = f"{KERNEL}<think>\nNow main.\n</think>\nint main() {{ return 0; }}\n"
    (block,) = extract_cuda(response)
    assert block.text == f"{KERNEL}\nint main() {{ return 0; }}\n"
    starts, ends = block.char_ranges()
    assert "".join(response[s:e] for s, e in zip(starts, ends, strict=True)) == block.text


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (KERNEL, "cuda"),
        ("a[i] = b[i] + c[i];", "cuda"),
        ("import torch\nx = f(2)\n", "python"),
        ("print('hi')", "python"),
        (f"import torch\nsrc = '''{KERNEL * 5}'''\n", "python"),
        ('{"a": 1, "b": [1, 2]}', None),
        ("nvcc -O3 add.cu -o add\n./add", None),
        (PROSE[0], None),
    ],
)
def test_language_by_grammar(text: str, language: str | None) -> None:
    assert language_of(text) == language


def test_has_cuda_needs_a_construct() -> None:
    assert has_cuda(KERNEL)
    assert has_cuda("__device__ float g;")
    assert not has_cuda("int main() { return 0; }")
    assert not has_cuda("// __global__ in a comment\nint x = 3;")


HOSTILE = {
    "megabyte": KERNEL * 8500,
    "escaped": 'import x\ns = "' + KERNEL.replace("\n", "\\n") * 8000 + '"\n',
    "backticks": "`" * 100_000,
    "backtick lines": "```\n" * 100_000,
    "fences": f"```cuda\n{KERNEL}```\n" * 10_000,
    "braces": "```cuda\n" + "{" * 10_000 + "}" * 10_000 + "\n```",
    "open brackets": "(" * 300_000,
    "templates": "```cuda\n" + "template<" * 30_000,
    "identifier": "```cuda\nint " + "a" * 100_000 + ";\n```",
    "quotes": ">" * 300_000 + "```cuda\nx",
    "thoughts": "<think>" * 100_000 + "\n<think>" * 50_000,
    "markdown": "```markdown\n" * 20_000,
    "strings": "import x\n" + 'a = "b"\n' * 60_000,
    "sum": "import x\na = " + " + ".join(['"__global__ void k() {}"', "b"] * 10_000),
    "calls": "import x\na" + "()" * 50_000,
    "backslashes": 'import x\na = "' + "\\" * 300_000 + '"',
    "surrogates": "\ud800" * 100_000,
    "nul": "\0" * 300_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_takes_no_more_than_linear_time(name: str) -> None:
    with processor_time(60):  # the slowest, 60,000 strings, takes 7; a quadratic pass takes minutes
        extract_cuda(HOSTILE[name])


def test_every_fence_of_many_is_found() -> None:
    assert len(extract_cuda(f"```cuda\n{KERNEL}```\n" * 500)) == 500


@given(st.text(st.characters()))
def test_any_text_is_read(text: str) -> None:
    assert isinstance(extract_cuda(text), list)
    assert has_cuda(text) in (True, False)


@pytest.mark.parametrize("depth", [99, 101, 511, 3000])
def test_indentation_deeper_than_any_program_does_not_crash_the_scanner(depth: int) -> None:
    """tree-sitter-python keeps its indents in a buffer of fixed size, and kills the process when it is full."""
    text = "".join(" " * i + "if x:\n" for i in range(depth)) + " " * depth + 's = """__global__ void k() {}"""\n'
    assert [b.text for b in extract_cuda(f"```python\n{text}```\n")] in ([], ["__global__ void k() {}"])
