"""Bare source files: the instruction that is written for them, and files that are no text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from curate.errors import SourceError
from curate.sources import Row, open_sources
from curate.sources.instruction import instruction_for, spdx_license

KERNEL = (
    "__global__ void add(const float *a, float *b, int n) {\n  int i = threadIdx.x;\n  if (i < n) b[i] += a[i];\n}\n"
)
SIGNATURE = "__global__ void add(const float *a, float *b, int n);"
LICENCE = "// Copyright 2024 Someone\n// SPDX-License-Identifier: Apache-2.0\n"


def rows_of(path: Path) -> list[Row]:
    (source,) = open_sources([str(path)], None, None)
    return list(source.rows())


def described(text: str) -> str:
    """The description in the instruction for a file."""
    prompt = instruction_for(text, "x.cu")
    assert prompt.startswith("Write CUDA C++ source code that matches this description.\n\n")
    return prompt.partition("\n\n")[2]


@pytest.mark.parametrize(
    "comment",
    [
        "// Adds a to b, element by element.\n",
        "/* Adds a to b, element by element. */\n",
        "/**\n * Adds a to b, element by element.\n */\n",
        "/// Adds a to b, element by element.\n",
        "//====================\n// Adds a to b, element by element.\n//====================\n",
        "/* Adds a to b, element by element.\r\n */\r\n",
    ],
)
@pytest.mark.parametrize("head", ["", "template <typename T>\n", 'extern "C" '])
def test_comment_above_the_kernel(comment: str, head: str) -> None:
    text = f"{LICENCE}\n#include <cuda.h>\n\n{comment}{head}{KERNEL}"
    assert described(text) == "Adds a to b, element by element."


def test_comment_of_several_lines_and_a_blank_line_between() -> None:
    above = "// Something else entirely, far above.\n\n#include <cuda.h>\n"
    text = f"{above}// Adds a to b.\n//\n// One thread an element.\n{KERNEL}"
    assert described(text) == "Adds a to b.\n\nOne thread an element."


def test_head_comment_after_the_licence() -> None:
    text = f"{LICENCE}\n/* Vector addition, the simplest of kernels. */\n#include <cuda.h>\n\n{KERNEL}"
    assert described(text) == "Vector addition, the simplest of kernels."


@pytest.mark.parametrize("comment", ["", LICENCE, "// clang-format off\n", "// kernel\n", "//-------- --- --- ----\n"])
def test_signature_where_no_comment_says_anything(comment: str) -> None:
    prompt = instruction_for(f"{comment}{KERNEL}", "x.cu")
    assert f"```cuda\n{SIGNATURE}\n```" in prompt


def test_signature_keeps_the_template_head() -> None:
    assert f"```cuda\ntemplate <typename T> {SIGNATURE}\n```" in instruction_for(
        f"template <typename T>\n{KERNEL}", "x.cu"
    )


def test_name_where_there_is_no_kernel() -> None:
    assert "`utils.cuh`" in instruction_for("#pragma once\nint f();\n", "utils.cuh")


@pytest.mark.parametrize(
    ("header", "licence"),
    [
        (LICENCE, "Apache-2.0"),
        ("/* SPDX-License-Identifier: MIT OR Apache-2.0 */", "MIT OR Apache-2.0"),
        ("// SPDX-License-Identifier: BSD-3-Clause\r\n", "BSD-3-Clause"),
        ("// MIT licence\n", None),
    ],
)
def test_spdx_header(header: str, licence: str | None) -> None:
    assert spdx_license(header + KERNEL) == licence


def test_folder_is_read_in_order_with_its_licences(tmp_path: Path) -> None:
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "b.cu").write_text(LICENCE + KERNEL)
    (tmp_path / "src" / "deep" / "a.CUH").write_text(KERNEL)
    (tmp_path / "src" / "notes.txt").write_text("x")
    (source,) = open_sources([str(tmp_path / "src")], None, "MIT")
    rows = list(source.rows())
    assert source.name == "src"
    assert [(row.source_id, row.license) for row in rows] == [("b.cu", "Apache-2.0"), ("deep/a.CUH", "MIT")]
    assert all(row.synthetic_prompt and row.reason is None for row in rows)
    assert rows[1].messages == (("user", rows[1].prompt), ("assistant", KERNEL))


def test_fingerprint_changes_with_content_and_names(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text(KERNEL)
    (tmp_path / "b.cu").write_text(KERNEL)
    (source,) = open_sources([str(tmp_path)], None, None)
    before = source.fingerprint()
    assert before["bytes"] == 2 * len(KERNEL)
    (tmp_path / "b.cu").rename(tmp_path / "c.cu")
    (source,) = open_sources([str(tmp_path)], None, None)
    assert source.fingerprint()["sha256"] != before["sha256"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"// caf\xe9\n" + KERNEL.encode(), "not_utf8"),
        (b"// a\0b\n" + KERNEL.encode(), "nul_character"),
        (bytes(range(256)) * 20, "binary_file"),
        (b"\0" * 500, "binary_file"),
        (KERNEL.encode("utf-16"), "binary_file"),
        (b"", None),
        (b"\xef\xbb\xbf" + KERNEL.encode(), None),
    ],
)
def test_what_is_no_text(tmp_path: Path, data: bytes, reason: str | None) -> None:
    (tmp_path / "bad.cu").write_bytes(data)
    (tmp_path / "good.cu").write_text(KERNEL)
    bad, good = rows_of(tmp_path)
    assert (bad.reason, good.reason) == (reason, None)
    assert bad.raw.encode("utf-8") or reason is None
    if reason is None:
        assert not bad.response.startswith("\ufeff")


def test_links(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "secret.cu").write_text(KERNEL)
    (tmp_path / "in" / "a.cu").write_text(KERNEL)
    (tmp_path / "in" / "b.cu").symlink_to(tmp_path / "secret.cu")
    (tmp_path / "in" / "c.cu").symlink_to(tmp_path / "nowhere.cu")
    (tmp_path / "in" / "d").symlink_to(tmp_path / "out", target_is_directory=True)
    (tmp_path / "in" / "e.cu").symlink_to("a.cu")
    (tmp_path / "in" / "f").symlink_to(".", target_is_directory=True)
    (tmp_path / "in" / "g.cu").symlink_to("g.cu")
    os.mkfifo(tmp_path / "in" / "h.cu")
    found = {row.source_id: row.reason for row in rows_of(tmp_path / "in")}
    outside = "symlink_outside"
    assert found == {"a.cu": None, "b.cu": outside, "c.cu": outside, "d": outside, "e.cu": None, "g.cu": "unreadable",
                     "h.cu": "unreadable"}  # fmt: skip
    (source,) = open_sources([str(tmp_path / "in")], None, None)
    assert source.fingerprint()["bytes"] == 2 * len(KERNEL)


def test_file_name_that_is_no_utf8(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / os.fsdecode(b"k\xff.cu")).write_text(KERNEL)
    (row,) = rows_of(folder)
    assert row.source_id == "k\ufffd.cu"
    assert row.reason is None
    row.prompt.encode("utf-8")


def test_single_file(tmp_path: Path) -> None:
    (tmp_path / "add.cu").write_text(KERNEL)
    (source,) = open_sources([str(tmp_path / "add.cu")], None, None)
    assert source.name == "add.cu"
    assert source.fingerprint()["kind"] == "code_file"
    assert [row.response for row in source.rows()] == [KERNEL]


def test_empty_file_by_name_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "add.cu").touch()
    with pytest.raises(SourceError, match=r"add\.cu is empty"):
        rows_of(tmp_path / "add.cu")


@pytest.mark.parametrize(
    "text", ["//\n" * 50_000 + KERNEL, "{" * 100_000, "namespace a {" * 20_000 + KERNEL, 'extern "C" {' * 5000 + KERNEL]
)
def test_hostile_file_gets_an_instruction(text: str) -> None:
    assert instruction_for(text, "x.cu").startswith("Write ")
