"""CUDA in Python's string literals: which strings count, and the way back from each character."""

from __future__ import annotations

import ast
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.extract import CodeBlock, extract_cuda
from curate.extract.language import parse_python, preorder
from curate.extract.literals import CharIndex, Undone, undo

KERNEL = "__global__ void k(float *a) {\n  a[threadIdx.x] = 1.0f;\n}\n"
HOST = "#include <torch/extension.h>\nint twice(int x) { return 2 * x; }\n"


def blocks_of(code: str) -> list[CodeBlock]:
    return extract_cuda(f"Use this module.\n```python\n{code}```\n")


def undone(literal: str) -> Undone | None:
    """The value of a literal that stands after `x = `."""
    root = parse_python(literal).root_node
    strings = [node for node, _ in preorder(root, lambda n: n.type != "string") if node.type == "string"]
    return undo(literal, strings, CharIndex(literal))


@pytest.mark.parametrize("quote", ['"""', "'''"])
@pytest.mark.parametrize("prefix", ["", "r", "R", "u"])
def test_triple_quoted_source(prefix: str, quote: str) -> None:
    code = (
        f"import torch\nsource = {prefix}{quote}\n{KERNEL}{quote}\nmod = load_inline(name='k', cuda_sources=source)\n"
    )
    (block,) = blocks_of(code)
    assert (block.kind, block.tag, block.text, block.starts) == ("python_string", "source", "\n" + KERNEL, None)


def test_escaped_single_line_string_maps_back() -> None:
    literal = '"' + KERNEL.replace("\n", "\\n") + '"'
    response = f"import cupy\nk = cupy.RawKernel({literal}, 'k')\n"
    (block,) = extract_cuda(response)
    assert block.text == KERNEL
    starts, ends = block.char_ranges()
    for character, start, end in zip(block.text, starts, ends, strict=True):
        assert response[start:end] == ("\\n" if character == "\n" else character)


def test_implicit_concatenation_and_plus() -> None:
    lines = KERNEL.splitlines(keepends=True)
    implicit = "(" + "\n  ".join(repr(line) for line in lines) + ")"
    plus = " + ".join(repr(line) for line in lines)
    for expression in (implicit, plus):
        (block,) = blocks_of(f"import cupy\nsrc = {expression}\n")
        assert (block.text, block.tag) == (KERNEL, "src")


def test_f_string_braces_and_interpolations() -> None:
    body = "{{ __shared__ float s[{N}]; a[{N * 2}] = {N:.3f}; g({h(1)}); }}"
    code = f'import x\nN = 4\nsrc = f"""__global__ void k(float *a) {body}"""\n'
    (block,) = blocks_of(code)
    assert block.text == "__global__ void k(float *a) { __shared__ float s[N]; a[N * 2] = N; g(_); }"
    starts, ends = block.char_ranges()
    response = f"Use this module.\n```python\n{code}```\n"
    brace = block.text.index("{")
    assert response[starts[brace] : ends[brace]] == "{{"
    placeholder = block.text.index("_)")
    assert response[starts[placeholder] : ends[placeholder]] == "{h(1)}"


def test_host_sources_count_only_where_they_are_used() -> None:
    code = f"import torch\nhost = '''{HOST}'''\nother = '''{HOST}'''\ncode = '''{KERNEL}'''\n"
    assert [b.tag for b in blocks_of(code)] == ["code"]
    used = code + "mod = torch.utils.cpp_extension.load_inline('k', cpp_sources=[host], cuda_sources=code)\n"
    assert [b.tag for b in blocks_of(used)] == ["host", "code"]
    by_position = code + "mod = load_inline('k', host, code)\n"
    assert [b.tag for b in blocks_of(by_position)] == ["host", "code"]
    through = code + "full = host + tail\nmod = load_inline('k', cpp_sources=full)\n"
    assert [b.tag for b in blocks_of(through)] == ["host", "code"]


def test_string_given_directly_is_named_by_its_argument() -> None:
    (block,) = blocks_of(f"mod = load_inline(name='k', cuda_sources=['''{KERNEL}'''], functions=['k'])\n")
    assert block.tag == "cuda_sources"


def test_method_on_a_literal() -> None:
    (block,) = blocks_of(f"import x\nsrc = '''{KERNEL}'''.replace('k', 'q')\n")
    assert (block.text, block.tag) == (KERNEL, "src")


@pytest.mark.parametrize(
    "code",
    [
        f'def f():\n    """{KERNEL}"""\n    return 1\n',
        'note = "The __global__ kernel is launched with <<<grid, block>>> and reads threadIdx.x."\n',
        f"data = rb'''{KERNEL}'''\n",
        "name = 'threadIdx.x'\n",
        f"# {KERNEL.splitlines()[0]}\nx = 1\n",
    ],
    ids=["docstring", "prose", "bytes", "fragment", "comment"],
)
def test_what_is_no_cuda_source(code: str) -> None:
    assert blocks_of(f"import torch\n{code}") == []


def test_whole_answer_is_a_python_module() -> None:
    (block,) = extract_cuda(f"import torch\nsrc = '''{KERNEL}'''\n")
    assert (block.kind, block.text) == ("python_string", KERNEL)


def test_text_before_the_module_may_hold_wide_characters() -> None:
    response = f"Größe 𝔘\n```python\nimport x\nä = '''{KERNEL}''' # é\nsrc = '''// ü\n{KERNEL}'''\n```\n"
    assert [response[b.start : b.end] for b in extract_cuda(response)] == [KERNEL, f"// ü\n{KERNEL}"]


@pytest.mark.parametrize(
    ("literal", "value", "spans"),
    [
        (r'"a\x41b"', "aAb", [(1, 2), (2, 6), (6, 7)]),
        (r'"\u00e9\U0001F600"', "é😀", [(1, 7), (7, 17)]),
        (r'"\N{BULLET}\101\0"', "•A\0", [(1, 11), (11, 15), (15, 17)]),
        ('"a\\\nb"', "ab", [(1, 2), (4, 5)]),
        (r'"\q\\"', "\\q\\", [(1, 2), (2, 3), (3, 5)]),
        (r'r"\n"', "\\n", [(2, 3), (3, 4)]),
        (r'r"\\"', "\\\\", [(2, 3), (3, 4)]),
        ('"""a\r\nb"""', "a\nb", [(3, 4), (4, 6), (6, 7)]),
        (r'"\ud800"', "\ufffd", [(1, 7)]),
        ("f'{{x}}'", "{x}", [(2, 4), (4, 5), (5, 7)]),
    ],
)
def test_each_escape(literal: str, value: str, spans: list[tuple[int, int]]) -> None:
    result = undone(literal)
    assert result is not None
    assert result.text == value
    assert list(zip(result.starts.tolist(), result.ends.tolist(), strict=True)) == spans


ESCAPES = st.sampled_from(
    [
        "\\n",
        "\\\\",
        '\\"',
        "\\'",
        "\\x41",
        "\\u00e9",
        "\\N{BULLET}",
        "\\7",
        "\\012",
        "\\\n",
        "\\\r\n",
        "\\t",
        "\\q",
        "\\U0001F600",
    ]
)
PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\\\"'\0\r\n"), min_size=1, max_size=5)


@given(
    prefix=st.sampled_from(["", "r", "u"]),
    quote=st.sampled_from(['"', "'", '"""', "'''"]),
    pieces=st.lists(ESCAPES | PLAIN, min_size=1, max_size=12),
    newlines=st.booleans(),
)
def test_value_is_pythons_and_plain_characters_stand_where_the_map_says(
    prefix: str, quote: str, pieces: list[str], newlines: bool
) -> None:
    body = ("\n" if newlines and len(quote) == 3 else "").join(pieces)
    literal = f"{prefix}{quote}{body}{quote}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unknown escape is only a warning in Python
        expected = ast.literal_eval(literal)
    result = undone(literal)
    assert (result.text if result is not None else "") == expected
    if result is not None:
        assert (result.starts < result.ends).all()
        assert (result.ends[:-1] <= result.starts[1:]).all()
        for character, start, end in zip(result.text, result.starts, result.ends, strict=True):
            if end - start == 1:
                assert literal[start:end] == character
            else:
                assert literal[start] in "\\\r"
