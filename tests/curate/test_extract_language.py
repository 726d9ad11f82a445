"""Which grammar understands a text: the shortcut for a text that one of them understands well changes no answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.extract import language
from curate.extract.language import CPP_HEADS, ENOUGH, Code, has_cuda, language_of, parse_cuda, parse_python, understood

LINES = (
    "__global__ void f(float *a) { a[threadIdx.x] = 1; }", "f<<<1, 32>>>(a);", "int x = 1;", "x = 1", "import torch",
    "def g(a):\n    return a + 1", "class M:\n    pass", "The kernel adds two numbers.", "// comment", "# comment", "}",
    "", "y = f(x)", 'source = """', "for i in range(3):\n    print(i)", "#include <cuda.h>",
)  # fmt: skip


def by_both(text: str, hint: Code | None, enough: float) -> Code | None:
    """The rule, with both grammars asked every time."""
    if not text.strip():
        return None
    if hint == "cuda" and text.lstrip().startswith(CPP_HEADS):
        return hint
    if hint is None and has_cuda(text) and '"""' not in text and understood(parse_cuda(text), "cuda") >= enough:
        hint = "cuda"
    shares: dict[Code, float] = {
        "cuda": understood(parse_cuda(text), "cuda"),
        "python": understood(parse_python(text), "python"),
    }
    best: Code = max(shares, key=lambda code: (shares[code], code == hint))
    if hint is not None and shares[hint] >= enough and shares[best] - shares[hint] < 0.2:
        return hint
    return best if shares[best] >= enough else None


@given(
    st.lists(st.sampled_from(LINES), max_size=6).map("\n".join),
    st.sampled_from((None, "cuda", "python")),
    st.sampled_from((ENOUGH, 0.9, 0.95, 0.1)),
)
def test_the_answer_is_that_of_both_grammars(text: str, hint: Code | None, enough: float) -> None:
    assert language_of(text, hint, enough) == by_both(text, hint, enough)


def test_a_well_understood_text_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str) -> None:
        raise AssertionError("parsed by the other grammar")

    monkeypatch.setitem(language._PARSE, "python", refuse)
    assert language_of(LINES[0], "cuda") == "cuda"
    monkeypatch.undo()
    monkeypatch.setitem(language._PARSE, "cuda", refuse)
    assert language_of(LINES[5], "python") == "python"


@pytest.mark.parametrize(
    ("code", "hint", "answer"),
    [
        ("#include <cstdio>\nimport torch\n", "cuda", "cuda"),
        ("template = '''\n<T>\n'''\nimport torch\nprint(template)\n", "cuda", "python"),
        ("import torch\nkernel = load(name)\n", "cuda", "python"),
        ("__global__ void f(int n) { n = threadIdx.x; }\n" * 3 + "oops", None, "cuda"),
        ('src = """\n__global__ void f(int n) { n = threadIdx.x; }\n"""\nk = load(src)\n', None, "python"),
    ],
)
def test_what_proves_a_language_by_itself(code: str, hint: Code | None, answer: Code) -> None:
    assert language_of(code, hint) == answer
