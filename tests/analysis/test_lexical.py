"""What tokens are made of, on planted code."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.lexical import token_kinds
from tests.pace import processor_time


def kinds(*tokens: str) -> list[str]:
    """For each token the letters of what holds: b begins a word or has none, i identifier or literal, w word."""
    text = "".join(tokens)
    ends = np.cumsum([len(t) for t in tokens])
    starts = ends - [len(t) for t in tokens]
    found = token_kinds([text], [[(0, len(text))]], np.zeros(len(tokens), int), starts, ends)
    return [
        "".join(letter for letter, yes in zip("biw", flags, strict=True) if yes) for flags in zip(*found, strict=True)
    ]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (("int", " id", "x", " =", " thread", "Idx", ".x", ";", "\n"), "bw biw iw b biw iw biw b b"),
        (("__", "shared", "__", " float", " tile", "[", "25", "6", "];"), "bw w w bw biw b biw iw b"),
        (("//", " add", " one", "\n", "i", "++;"), "b bw bw b biw b"),
        (("x", " /*", " int", " y", " */", " z"), "biw b bw bw b biw"),
        (('"', "no", " //", " note", '"', " a"), "bi biw bi biw bi biw"),
        (("'", "/", "'", ",", "'", "\\'", "'"), "bi bi bi b bi bi bi"),
        (('R"', "(", '"//', ')"', " b"), "biw bi bi bi biw"),
        (("#include", " <", "cuda", ".h", ">"), "bw b biw biw b"),
        (("1", ".", "5", "f", "+", "0x", "ff"), "biw bi biw iw b biw iw"),
        (("/*", " never", " closed"), "b bw bw"),
        (("grö", "ße", " +", " 汉", "字"), "biw iw b biw iw"),
        (("interior", " format"), "biw biw"),  # `int` and `for` only begin them
        (("<<<", "grid", ",", " 1", ">>>"), "b biw b biw b"),
    ],
)  # fmt: skip
def test_planted_tokens(tokens: tuple[str, ...], expected: str) -> None:
    assert " ".join(kinds(*tokens)) == expected


def test_prose_around_the_code_is_not_searched() -> None:
    text = "It's /* if x"
    flags = token_kinds([text], [[(8, 12)]], np.zeros(2, int), np.array([8, 10]), np.array([10, 12]))
    assert [f.tolist() for f in flags] == [[True, True], [False, True], [True, True]]


def test_samples_do_not_run_into_each_other() -> None:
    begins, named, word = token_kinds(
        ["a //", "b c"],
        [[(0, 4)], [(0, 3)]],
        np.array([0, 0, 1, 1, 1]),
        np.array([0, 1, 0, 1, -1]),
        np.array([1, 4, 1, 3, -1]),
    )
    assert begins.tolist() == [True, True, True, True, False]
    assert named.tolist() == [True, False, True, True, False]
    assert word.tolist() == [True, False, True, True, False]


def test_a_character_in_several_tokens_begins_once() -> None:
    begins, *_ = token_kinds(["汉 x"], [[(0, 3)]], np.zeros(4, int), np.array([0, 0, 0, 1]), np.array([1, 1, 1, 3]))
    assert begins.tolist() == [True, False, False, True]


@given(st.text(max_size=60), st.lists(st.tuples(st.integers(-2, 70), st.integers(-2, 70)), min_size=1, max_size=20))
def test_nothing_raises(text: str, spans: list[tuple[int, int]]) -> None:
    starts, ends = (np.array(x) for x in zip(*spans, strict=True))
    for flags in token_kinds([text], [[(0, len(text))]], np.zeros(len(spans), int), starts, ends):
        assert flags.shape == (len(spans),)


@pytest.mark.parametrize("piece", ["/*", '"', "'", 'R"(', "\\", "//", "1'", "a" * 9, "#"])
def test_a_megabyte_of_anything_is_quick(piece: str) -> None:
    text = piece * (10**6 // len(piece))
    with processor_time(5):
        token_kinds([text], [[(0, len(text))]], np.zeros(1, int), np.array([0]), np.array([len(text)]))
