"""What a token is made of, by the characters of the response that it covers: for the controls of the analysis.

The syntax tree is not in a dataset, and parsing again would take longer than everything else that the analysis does.
Comments, literals and keywords show without one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["token_kinds"]

_KEYWORDS = (
    "alignas|alignof|asm|auto|bool|break|case|catch|char|char16_t|char32_t|class|concept|const|const_cast|"
    "consteval|constexpr|continue|decltype|default|delete|do|double|dynamic_cast|else|enum|explicit|export|"
    "extern|float|for|friend|goto|if|inline|int|long|mutable|namespace|new|noexcept|operator|private|protected|"
    "public|register|reinterpret_cast|requires|return|short|signed|sizeof|static|static_assert|static_cast|"
    "struct|switch|template|this|throw|try|typedef|typeid|typename|union|unsigned|using|virtual|void|volatile|"
    "wchar_t|while|__global__|__device__|__host__|__shared__|__constant__|__managed__|__restrict__|__restrict|"
    "__launch_bounds__|__forceinline__|__noinline__|__inline__|__grid_constant__"
)

_LEXEMES = re.compile(
    r"""
    (?P<comment> //(?:[^\n\\]|\\.)*+ | /\*.*?(?:\*/|\Z) )
    | (?P<literal> \bR"(?P<mark>[^()\\\s]{0,16})\(.*?(?:\)(?P=mark)"|\Z) | "(?:[^"\\\n]|\\.)*+"? | '(?:[^'\\\n]|\\.)++'
        | \b\d(?:[\w.]|'(?=\w))*+ )
    | (?P<keyword> \b(?:KEYWORDS)\b | ^[ \t]*+\#[ \t]*+\w++ )
    """.replace("KEYWORDS", _KEYWORDS),
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
"""Everything that is neither identifier, operator nor white space. What is never closed ends with the line or text."""

_ASCII_WORD = np.array([chr(c).isalnum() or c == ord("_") for c in range(128)])


def token_kinds(
    responses: Sequence[str],
    code_spans: Sequence[Sequence[tuple[int, int]]],
    sample: NDArray[np.int64],
    char_start: NDArray[np.int64],
    char_end: NDArray[np.int64],
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """(T,) each, for tokens of several responses: whether a token

    - begins a word, or has none: it does not go on with an identifier or a number that an earlier token began;
    - has a character of an identifier or a literal, comments and keywords (those of CUDA too) being neither;
    - has a letter, a digit or an underscore: it is not only punctuation and white space.

    `sample` (T,): the response that a token belongs to, rising. `char_start`, `char_end`: its characters there, -1 for
    a token of the template, which begins nothing and has nothing. A token that covers characters of the token before
    it, one of the bytes of a character, goes on with it.
    """
    lengths = np.array([len(text) for text in responses], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    characters = np.frombuffer("".join(responses).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    word = _word_characters(characters)
    named = word.copy()
    for text, spans, offset in zip(responses, code_spans, offsets[:-1].tolist(), strict=True):
        for span in spans:
            for found in _LEXEMES.finditer(text, *span):
                named[offset + found.start() : offset + found.end()] = found.lastgroup in ("literal", "mark")
    covers = (char_start >= 0) & (char_end > char_start) & (char_end <= lengths[sample])
    start = np.where(covers, char_start + offsets[sample], 0)
    end = np.where(covers, char_end + offsets[sample], 0)
    padded = np.concatenate([[False], word, [False]])  # word[i] at i + 1
    goes_on = padded[start] & padded[start + 1] & (start > offsets[sample])
    goes_on[1:] |= (start[1:] < end[:-1]) & (sample[1:] == sample[:-1])
    return covers & ~goes_on, _any_in(named, start, end), _any_in(word, start, end)


def _word_characters(characters: NDArray[np.uint32]) -> NDArray[np.bool_]:
    word = _ASCII_WORD[np.minimum(characters, 127)]
    beyond = characters > 127
    if beyond.any():
        kinds, which = np.unique(characters[beyond], return_inverse=True)
        word[beyond] = np.array([chr(c).isalnum() for c in kinds.tolist()])[which]
    return word


def _any_in(marked: NDArray[np.bool_], start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.bool_]:
    before = np.concatenate([[0], np.cumsum(marked)])
    return np.asarray(before[end] > before[start])
