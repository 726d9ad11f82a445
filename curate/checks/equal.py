"""Is the answer the reference of the prompt, given back?"""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from curate.checks.cuda_code import bare_name, preorder
from curate.checks.python_code import python_sources, read_python
from curate.checks.types import Answer
from curate.extract import extract_cuda
from curate.extract.language import parse_cuda

__all__ = ["equals_reference"]

_RENAMED = {b"ModelNew": b"Model"}
"""Tasks of the KernelBench form ask for the module under this other name."""
_WHOLE = frozenset(("string_literal", "raw_string_literal", "char_literal", "string", "concatenated_string"))


def equals_reference(answer: Answer) -> str | None:
    """The code of the answer is that of the prompt, token by token; comments, docstrings and white space aside.

    CUDA is compared where the answer's CUDA is all of its code, Python module by module; a class that is only renamed
    from `Model` to `ModelNew` is the same.
    """
    if answer.python:
        own = [_tokens(module.root) for module in answer.python]
        defined = {name for module in answer.python for name in module.classes}
        defined |= {function.name for module in answer.python for function in module.functions}
        if not defined or any(name.removesuffix("New") not in answer.prompt for name in defined):
            return None
        given = [_tokens(read_python(text).root) for text in _python_of(answer.prompt)]
    else:
        names = {bare_name(name) for found in answer.labels for name in found.kernels}
        names |= {f.name for f in answer.cuda.of_kind("host") if not f.binds}
        if not names or any(name not in answer.prompt for name in names):
            return None
        own = [_tokens(part.main.root) for part in answer.parsed]
        given = [_tokens(parse_cuda(block.text).root_node) for block in extract_cuda(answer.prompt)]
    own = [tokens for tokens in own if tokens]
    if own and given and all(tokens in given for tokens in own):
        return f"tokens {sum(len(tokens) for tokens in own)}, all those of the prompt's code"
    return None


def _python_of(prompt: str) -> Iterator[str]:
    yield from python_sources(prompt, extract_cuda(prompt))


def _tokens(root: Node) -> tuple[bytes, ...]:
    """The leaves of a tree, strings whole."""
    found: list[bytes] = []
    until = -1
    for node, _ in preorder(root):
        if node.start_byte < until or node.type == "comment" or node.end_byte == node.start_byte:
            continue
        if node.type in _WHOLE:
            until = node.end_byte
            parent = node.parent
            if parent is None or parent.type != "expression_statement" or parent.named_child_count != 1:
                found.append(node.text or b"")
        elif not node.child_count:
            text = (node.text or b"").strip()
            if text:
                found.append(_RENAMED.get(text, text))
    return tuple(found)
