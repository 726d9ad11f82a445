"""Is a text CUDA C++, Python, or neither: decided by how much of it each grammar understands, not by words in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Literal

import tree_sitter_cuda
import tree_sitter_python
from tree_sitter import Language, Node, Parser, Tree

from curate.syntax.bounded import parse_bounded

__all__ = [
    "CPP_HEADS",
    "ENOUGH",
    "Code",
    "has_cuda",
    "language_of",
    "parse_cuda",
    "parse_python",
    "preorder",
    "understood",
]

Code = Literal["cuda", "python"]

ENOUGH = 0.6
"""The share of a text that a grammar must understand: prose stays well below, even truncated code above."""

_LANGUAGES: dict[Code, Language] = {
    "cuda": Language(tree_sitter_cuda.language()),
    "python": Language(tree_sitter_python.language()),
}

_CUDA_PROOFS = frozenset(
    (
        *("function_definition", "declaration", "template_declaration", "field_declaration", "type_definition"),
        *("struct_specifier", "class_specifier", "enum_specifier", "alias_declaration", "using_declaration"),
        *("namespace_definition", "linkage_specification", "for_statement", "while_statement"),
        *("if_statement", "return_statement", "preproc_include", "preproc_def", "preproc_function_def", "preproc_call"),
        *("preproc_if", "preproc_ifdef", "kernel_call_syntax", "assignment_expression", "call_expression"),
    )
)
_PYTHON_DEFINITIONS = frozenset(
    ("function_definition", "class_definition", "decorated_definition", "import_statement", "import_from_statement")
)
_PYTHON_STATEMENTS = frozenset(
    (
        *("assignment", "call", "return_statement", "for_statement", "while_statement", "if_statement"),
        *("with_statement", "try_statement"),
    )
)
_PROOFS: dict[Code, frozenset[str]] = {"cuda": _CUDA_PROOFS, "python": _PYTHON_DEFINITIONS | _PYTHON_STATEMENTS}
"""Nodes that prose does not give: understood, and a proof that the text is code of this language."""
_PLAIN: dict[Code, frozenset[str]] = {
    "cuda": frozenset(("comment", "compound_statement", "expression_statement")),
    "python": frozenset(("comment", "string")),
}
"""Nodes that are understood but prove nothing: JSON is a compound statement."""
_SOUND: dict[Code, frozenset[str]] = {"cuda": _CUDA_PROOFS | _PLAIN["cuda"], "python": _PYTHON_DEFINITIONS}
"""Nodes that are understood even inside an ERROR. C++ is full of assignments and calls that Python can read, so those
are not.
"""

_CUDA_NODES = frozenset(
    (
        *("__global__", "__device__", "__shared__", "__constant__", "__managed__"),
        *("launch_bounds", "kernel_call_syntax"),
    )
)
_CUDA_NAMES = frozenset(("threadIdx", "blockIdx", "blockDim", "gridDim", "__syncthreads", "__syncwarp"))
_CUDA_WORDS = (*(_CUDA_NODES | _CUDA_NAMES) - {"launch_bounds", "kernel_call_syntax"}, "__launch_bounds__", "<<<")


_UNKNOWN, _GOOD, _ERROR = range(3)

_MAX_INDENTS = 100  # Python itself stops at 100
_LEADING_BLANKS = re.compile(rb"^[ \t\f]+", re.MULTILINE)


@cache
def _parser(code: Code) -> Parser:
    return Parser(_LANGUAGES[code])


def _source(text: str) -> bytes:
    """UTF-8, a lone surrogate as one question mark: the number of characters stays."""
    return text.encode("utf-8", "replace")


def parse_cuda(text: str) -> Tree:
    """The tree of CUDA C++; offsets are bytes of the UTF-8 text."""
    return _tree("cuda", _source(text))


def _tree(code: Code, source: bytes) -> Tree:
    """What a grammar cannot take in linear time it is not asked to read: it sees blanks."""
    parser = _parser(code)
    tree = parse_bounded(parser, source)
    if tree is None:
        return parser.parse(b" " * len(source))
    # A text with errors is often not of this language, and then its nodes are asked for little.
    return tree if tree.root_node.has_error else parser.parse(source, tree)


@lru_cache(2)
def parse_python(text: str) -> Tree:
    """The tree of Python; offsets are bytes of the UTF-8 text. The last trees are kept: several stages read one module.

    Text indented deeper than any program is parsed without its indentation: the grammar's scanner keeps a stack of
    indents of fixed size, and takes the process along when it overflows.
    """
    source = _source(text)
    if _deepest_indent(source) > _MAX_INDENTS:
        source = _LEADING_BLANKS.sub(lambda blanks: b"\n" * len(blanks[0]), source)
    return _tree("python", source)


def _deepest_indent(source: bytes) -> int:
    """How many indents are open at once at most, as a Python scanner counts them."""
    stack, deepest = [0], 0
    for line in source.split(b"\n"):
        if bare := line.lstrip(b" \t\f\r"):
            width = len(line) - len(bare)
            while stack and stack[-1] > width:
                stack.pop()
            if not stack or stack[-1] < width:
                stack.append(width)
            deepest = max(deepest, len(stack))
    return deepest


def preorder(root: Node, into: Callable[[Node], bool] = lambda node: True) -> Iterator[tuple[Node, int]]:
    """(node, depth) in document order; the children of a node are visited when `into(node)` holds.

    A cursor rather than a query: the query engine takes time quadratic in the depth of the tree, and a megabyte of
    opening brackets is a valid answer."""
    cursor = root.walk()
    depth = 0
    while (node := cursor.node) is not None:
        yield node, depth
        if into(node) and cursor.goto_first_child():
            depth += 1
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return
            depth -= 1


def understood(tree: Tree, code: Code) -> float:
    """The share of the text, blanks at its ends aside, that lies in a declaration, a statement or the like: 0 to 1.

    A missing token costs a byte (a statement without its semicolon is rather Python). A byte counts by its innermost
    node: inside an ERROR it does not, but a whole function inside an ERROR (what is left of a truncated file) does. 0
    where no node proves that it is this language at all."""
    proofs, sound, plain = _PROOFS[code], _SOUND[code], _PLAIN[code]
    good, proven, settled = 0, False, False

    def unsettled(_: Node) -> bool:
        return not settled

    states = [_UNKNOWN]  # states[d + 1]: of the node at depth d on the way to the current one
    for node, depth in preorder(tree.root_node, unsettled):
        kind, above = node.type, states[depth]
        if node.is_error:
            state = _ERROR
        elif above == _GOOD or kind in sound or (above != _ERROR and (kind in proofs or kind in plain)):
            state = _GOOD
        else:
            state = above
        good += ((state == _GOOD) - (above == _GOOD)) * (node.end_byte - node.start_byte) - node.is_missing
        proven = proven or (state == _GOOD and kind in proofs and node.is_named)
        settled = state == _GOOD and not node.has_error and (proven or kind == "comment")  # nothing changes below
        del states[depth + 1 :]
        states.append(state)
    total = len((tree.root_node.text or b"").strip())
    return max(0.0, min(1.0, good / total)) if proven and total else 0.0


_PARSE: dict[Code, Callable[[str], Tree]] = {"cuda": parse_cuda, "python": parse_python}
_CLEARLY = 0.2
"""How much more the other grammar must understand before it overrules a hint."""
CPP_HEADS = (
    "/*", "//", "#include", "#pragma", "#ifndef", "#define", "template<", "template <", "extern ", "__global__",
    "__device__",
)  # fmt: skip
"""How a file of C++ begins, and none of Python."""
_TRIPLE_QUOTES = ('"""', "'''")


def language_of(text: str, hint: Code | None = None, enough: float = ENOUGH) -> Code | None:
    """The language whose grammar understands more of the text; None where neither understands `enough` of it.

    A `hint` (what the fence says) holds unless the other grammar does clearly better. Text that begins as C++ does
    needs no more than the hint; and a CUDA construct in the tree of C++ is as good as a hint, where no quotes of
    Python's can be around it.
    """
    if not text.strip():
        return None
    if hint == "cuda" and text.lstrip().startswith(CPP_HEADS):
        return hint
    first: Code = hint or "cuda"
    tree = _PARSE[first](text)
    share = understood(tree, first)
    if hint is None and share >= enough and not any(quotes in text for quotes in _TRIPLE_QUOTES) and _holds_cuda(tree):
        hint = "cuda"
    # Where no share of the other grammar (1 at most) could change the answer, it is not asked: a grammar spends most of
    # its time on the repair of what is not its language.
    if share >= enough and (1.0 - share < _CLEARLY if hint else share == 1.0):
        return first
    other: Code = "python" if first == "cuda" else "cuda"
    others_share = understood(_PARSE[other](text), other)
    if hint is not None and share >= enough and others_share - share < _CLEARLY:
        return hint
    best, most = (other, others_share) if others_share > share else (first, share)
    return best if most >= enough else None


def has_cuda(text: str) -> bool:
    """Whether the text is code by the C++ grammar and holds a CUDA construct as a node (prose about one is not)."""
    if not any(word in text for word in _CUDA_WORDS):
        return False
    tree = parse_cuda(text)
    return understood(tree, "cuda") >= ENOUGH and _holds_cuda(tree)


def _holds_cuda(tree: Tree) -> bool:
    return any(_is_cuda(node) for node, _ in preorder(tree.root_node))


def _is_cuda(node: Node) -> bool:
    return node.type in _CUDA_NODES or (
        node.type == "identifier" and (node.text or b"").decode("utf-8", "replace") in _CUDA_NAMES
    )
