"""Is the answer the reference of the prompt, given back?"""

from __future__ import annotations

import re

from tree_sitter import Node

from curate.checks.cuda_code import bare_name
from curate.checks.python_code import python_trees
from curate.checks.types import Answer
from curate.extract import extract_cuda
from curate.extract.language import parse_cuda, preorder

__all__ = ["equals_reference"]

_WORD = re.compile(r"\w+")
_RENAMED = {b"ModelNew": b"Model"}
"""Tasks of the KernelBench form ask for the module under this other name."""
_WHOLE = frozenset(("string_literal", "raw_string_literal", "char_literal", "string", "concatenated_string"))


def equals_reference(answer: Answer) -> str | None:
    """The code of the answer is that of the prompt, token by token; comments, docstrings and white space aside.

    Python is compared where the answer holds a module, CUDA elsewhere; a class that is only renamed from `Model` to
    `ModelNew` is the same. Answers without a kernel are left to other reasons.
    """
    if not answer.kernel_count:
        return None
    prompt = answer.prompt
    words = set(_WORD.findall(prompt))  # spares the parsing of nearly every prompt
    if answer.python:
        for module in answer.python:
            defined = {*module.classes, *(function.name for function in module.functions)}
            if any(name.removesuffix("New") not in words for names in (defined, module.names) for name in names):
                return None
        own = [_tokens(module.root) for module in answer.python]
        given = [_tokens(tree.root_node) for tree in python_trees(prompt, extract_cuda(prompt))]
    else:
        names = {bare_name(name) for found in answer.labels for name in found.kernels} | answer.cuda.names
        if any(name not in words for name in names if name.isidentifier()):
            return None
        own = [_tokens(part.main.root) for part in answer.parsed]
        given = [_tokens(parse_cuda(block.text).root_node) for block in extract_cuda(prompt)]
    own = [tokens for tokens in own if tokens]
    if own and given and all(tokens in given for tokens in own):
        return f"tokens {sum(len(tokens) for tokens in own)}, all those of the prompt's code"
    return None


def _tokens(root: Node) -> tuple[bytes, ...]:
    """The leaves of a tree, strings whole."""
    found: list[bytes] = []
    until = -1
    alone = [False]  # by depth: the node there is a statement of one expression
    for node, depth in preorder(root):
        alone[depth + 1 :] = [node.type == "expression_statement" and node.named_child_count == 1]
        if node.start_byte < until or node.type == "comment" or node.end_byte == node.start_byte:
            continue
        if node.type in _WHOLE:
            until = node.end_byte
            if not alone[depth]:
                found.append(node.text or b"")
        elif not node.child_count:
            text = (node.text or b"").strip()
            if text:
                found.append(_RENAMED.get(text, text))
    return tuple(found)
