"""Every piece of CUDA C++ in an answer, in order, with a map back to the answer's characters."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool
from numpy import ndarray as Array

from curate.extract.fences import Fence, fences
from curate.extract.language import CPP_HEADS, ENOUGH, Code, has_cuda, language_of
from curate.extract.python_strings import cuda_strings
from curate.extract.thinking import blanked, thought_ranges
from curate.extract.types import CodeBlock

__all__ = ["extract_cuda"]

_CUDA_TAGS = frozenset(
    (
        *("cuda", "cu", "cuh", "cuda-cpp", "cuda_cpp", "cuda-c++", "cudacpp", "cuda-c", "nvcc"),
        *("cpp", "c++", "cxx", "cc", "c", "h", "hpp", "hxx"),
    )
)
_PYTHON_TAGS = frozenset(
    ("python", "py", "python3", "python2", "ipython", "pycon", "pytorch", "torch", "triton", "numba", "cupy")
)
_NESTING_TAGS = frozenset(("markdown", "md", "mdx", "answer"))
_UNKNOWN_TAGS = frozenset(
    ("", "code", "text", "txt", "plaintext", "plain", "kernel", "source", "src", "file", "output")
)
"""Tags that say nothing about the language: the content decides. Any other tag names another language."""
_MAX_NESTING = 4
_CODE_HEADS = (*CPP_HEADS, '"""', "import ", "from ")
_CLEAN = 0.95
"""The share that the grammar must understand before an answer with fences is taken for one source file."""
_MOSTLY = 0.9
"""Likewise for an answer without fences that does not begin like a source file: prose around code is no code."""


def extract_cuda(response: str) -> list[CodeBlock]:
    """The blocks of CUDA C++ (host code included) in an answer, in order, never overlapping; [] where there is none.

    Looked for in fenced blocks and in the string literals of Python code, or, in an answer without fences, in the
    whole. Reasoning traces are left out. Never raises, whatever the text; linear in its length.
    """
    thoughts = thought_ranges(response)
    if not thoughts:
        return _of_visible(response)
    thought = np.zeros(len(response), dtype=bool)
    for start, end in thoughts:
        thought[start:end] = True
    found = (_without(thought, response, block) for block in _of_visible(blanked(response, thoughts)))
    return [block for block in found if block is not None]


def _of_visible(text: str) -> list[CodeBlock]:
    fenced = list(fences(text))
    begins_as_code = text.lstrip().startswith(_CODE_HEADS)
    if not fenced:
        found = _of_whole(text, ENOUGH if begins_as_code else _MOSTLY)
        if not found and text.lstrip().startswith(CPP_HEADS) and has_cuda(text):
            return [CodeBlock("whole", "", 0, len(text), text)]  # code so broken that its filters should see it
        return found
    if begins_as_code and (whole := _of_whole(text, _CLEAN)):
        return whole  # a source file with fences in its comments
    blocks: list[CodeBlock] = []
    stack = [(fence, 1) for fence in reversed(fenced)]
    while stack:
        fence, depth = stack.pop()
        tag = _tag(fence.info)
        inner = list(fences(text, fence.start, fence.end)) if depth < _MAX_NESTING and _may_nest(fence, tag) else []
        if inner:
            stack.extend((f, depth + 1) for f in reversed(inner))
        else:
            blocks.extend(_of_fence(text, fence, tag))
    return blocks


def _without(thought: Bool[Array, " chars"], response: str, block: CodeBlock) -> CodeBlock | None:
    """The block without its characters that are thought, and without the blanks that they leave at its start."""
    starts, ends = block.char_ranges()
    kept = np.flatnonzero(~thought[starts])
    if len(kept) == len(starts):
        return block
    text = "".join(block.text[i] for i in kept)
    blank = len(text) - len(text.lstrip())
    text, starts, ends = text[blank:], starts[kept[blank:]], ends[kept[blank:]]
    if not text:
        return None
    start, end = int(starts[0]), int(ends[-1])
    if text == response[start:end]:
        return CodeBlock(block.kind, block.tag, start, end, text)
    return CodeBlock(block.kind, block.tag, start, end, text, starts, ends)


def _of_fence(text: str, fence: Fence, tag: str) -> list[CodeBlock]:
    code = "".join(text[start:end] for start, end in fence.lines)
    word = tag.split()[0] if tag else ""
    hint: Code | None = "cuda" if word in _CUDA_TAGS else "python" if word in _PYTHON_TAGS else None
    if hint is None and word not in _UNKNOWN_TAGS:
        return []
    language = language_of(code, hint)
    if (language or hint) == "python":  # Python that is broken is still searched
        return cuda_strings(text, fence.start, fence.end) if not fence.quoted else []
    if not code.strip() or (language is None and hint != "cuda"):
        return []
    if not fence.quoted:
        return [CodeBlock("fence", tag, fence.start, fence.end, code)]
    starts = np.concatenate([np.arange(start, end, dtype=np.int32) for start, end in fence.lines])
    return [CodeBlock("fence", tag, fence.start, fence.end, code, starts, starts + 1)]


def _of_whole(text: str, enough: float) -> list[CodeBlock]:
    """The answer is code itself, without fences."""
    language = language_of(text, enough=enough)
    if language == "python":
        return cuda_strings(text)
    return [CodeBlock("whole", "", 0, len(text), text)] if language == "cuda" else []


def _tag(info: str) -> str:
    """The info string in lower case, without the braces of `{.cuda}`."""
    return info.strip().strip("{}").lstrip(".").strip().lower()


def _may_nest(fence: Fence, tag: str) -> bool:
    return not fence.quoted and (tag.split()[0] if tag else "") in (_NESTING_TAGS | _UNKNOWN_TAGS)
