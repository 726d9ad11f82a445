"""The licence of a row: names, headers, precedence, and the allow-list; by planted statements and near misses."""

from __future__ import annotations

import pytest

from curate.config import BuildConfig
from curate.errors import OptionError
from curate.licences import ALLOWED, is_allowed, needs_attribution, parse_option_license, resolve_license, spdx
from tests.pace import processor_time

KERNEL = "__global__ void add(float *a) { a[threadIdx.x] += 1.0f; }\n"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        *[(name, "Apache-2.0") for name in ("apache-2.0", "Apache 2.0", "Apache License, Version 2.0", "Apache-2", "ASL 2.0", "https://www.apache.org/licenses/LICENSE-2.0", "http://www.apache.org/licenses/LICENSE-2.0.txt")],
        *[(name, "MIT") for name in ("mit", "MIT License", "The MIT License (MIT)", "MIT licence", "https://opensource.org/licenses/MIT", "License :: OSI Approved :: MIT License", "['mit']")],
        *[(name, "BSD-3-Clause") for name in ("bsd-3-clause", "BSD 3-Clause", 'BSD 3-Clause "New" or "Revised" License', "3-clause BSD", "BSD")],
        *[(name, "CC-BY-4.0") for name in ("cc-by-4.0", "CC BY 4.0", "Creative Commons Attribution 4.0 International", "https://creativecommons.org/licenses/by/4.0/")],
        *[(name, "GPL-3.0-only") for name in ("gpl-3.0", "GPLv3", "GNU General Public License v3.0")],
        ("CC-BY-NC-4.0", "CC-BY-NC-4.0"),
        ("GPL v2+", "GPL-2.0-or-later"),
        ("Boost Software License 1.0", "BSL-1.0"),
        ("mit or apache-2.0", "MIT OR Apache-2.0"),
        ("MIT/Apache-2.0", "MIT OR Apache-2.0"),
        ("MIT, Apache-2.0", "MIT AND Apache-2.0"),
        ("apache-2.0 with llvm-exception", "Apache-2.0 WITH LLVM-exception"),
        ("LicenseRef-NvidiaProprietary", "LicenseRef-NvidiaProprietary"),
    ],
)  # fmt: skip
def test_names_of_licences(written: str, expected: str) -> None:
    assert spdx(written)[0] == expected


@pytest.mark.parametrize(
    "written",
    ["other", "MIT OR Whatever", "MIT AND", "MIT ISC", "AND", "LLVM-exception", "MIT WITH GPL-3.0", "not MIT", "license",
     "free for research, ask MIT", "llama3.1", "Public Domain", "All rights reserved", "MIT; DROP TABLE", "((", "\x00",
     "Similar to the MIT License, but you may not sell it", "v2.0", "MIT\ud800", "🙂", "Foo-1.0", "2.0"],
)  # fmt: skip
def test_what_names_no_licence_is_unknown_with_a_note(written: str) -> None:
    expression, note = spdx(written)
    assert expression is None
    assert note
    note.encode("utf-8")


def test_a_vague_name_is_marked() -> None:
    assert "BSD-3-Clause" in spdx("BSD")[1]
    assert spdx("BSD-3-Clause")[1] == ""


@pytest.mark.parametrize(
    "text",
    ["(" * 200 + "MIT" + ")" * 200, "(" * 499, "MIT OR " * 70 + "MIT", "(MIT OR (ISC AND " * 29, "MIT," * 124, "/" * 500,
     "-" * 500, "v" * 500, "the " * 125, "x" * 5_000_000, "MIT OR " * 700_000, "( " * 1_000_000],
)  # fmt: skip
def test_hostile_statements_end_quickly(text: str) -> None:
    with processor_time(1):
        resolve_license(text, KERNEL, [KERNEL])
        is_allowed(text)


@pytest.mark.parametrize(
    ("row", "fill", "expected", "origin"),
    [
        ("mit", "Apache-2.0", "MIT", "row"),
        (None, "Apache-2.0", "Apache-2.0", "source"),
        ("", "Apache-2.0", "Apache-2.0", "source"),
        (" Unknown ", "Apache-2.0", "Apache-2.0", "source"),
        ("NOASSERTION", None, None, None),
        (None, None, None, None),
        ("other", "Apache-2.0", None, "row"),  # it has a licence, and nobody may give it another
        ("my own terms", "Apache-2.0", None, "row"),
    ],
)
def test_who_says_it(row: str | None, fill: str | None, expected: str | None, origin: str | None) -> None:
    found = resolve_license(row, KERNEL, [KERNEL], fill)
    assert (found.expression, found.origin) == (expected, origin)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("// SPDX-License-Identifier: BSD-3-Clause\r\n" + KERNEL, "BSD-3-Clause"),
        ("/*\n * SPDX-License-Identifier: MIT OR Apache-2.0 */\n" + KERNEL, "MIT OR Apache-2.0"),
        ("/* é SPDX-License-Identifier: ISC */" + KERNEL, "ISC"),
        (KERNEL + "\n// SPDX-License-Identifier: Apache 2.0", "Apache-2.0"),
        ("// SPDX-License-Identifier: MIT\n// SPDX-License-Identifier: MIT\n" + KERNEL, "MIT"),
        (
            "// SPDX-License-Identifier: MIT\n" + KERNEL + "// SPDX-License-Identifier: GPL-2.0\n",
            "GPL-2.0-only AND MIT",
        ),
        (
            "// SPDX-License-Identifier: MIT OR ISC\n// SPDX-License-Identifier: Zlib\n" + KERNEL,
            "(MIT OR ISC) AND Zlib",
        ),
        ("// SPDX-License-Identifier: LicenseRef-NvidiaProprietary\n" + KERNEL, "LicenseRef-NvidiaProprietary"),
        ("// SPDX-License-Identifier: whatever we like\n" + KERNEL, None),
        ("// SPDX-License-Identifier: MIT\n// SPDX-License-Identifier: ???\n" + KERNEL, None),
    ],
)
def test_headers_in_comments_win(code: str, expected: str | None) -> None:
    found = resolve_license("CC-BY-4.0", code, [code], "0BSD")
    assert (found.expression, found.origin) == (expected, "header")


@pytest.mark.parametrize(
    "code",
    [
        'const char *s = "// SPDX-License-Identifier: MIT";\n' + KERNEL,
        'const char *s = R"(\n// SPDX-License-Identifier: MIT\n)";\n' + KERNEL,
        "// the SPDX licence identifier is MIT\n" + KERNEL,
    ],
)
def test_headers_outside_comments_do_not_count(code: str) -> None:
    assert resolve_license("ISC", code, [code]).expression == "ISC"


def test_header_of_the_python_module_around_a_kernel_string() -> None:
    text = f'# SPDX-License-Identifier: MIT\n# Copyright (c) 2021 Ada\nimport torch\nsource = """\n{KERNEL}"""\n'
    for answer in (text, f"Here:\n```python\n{text}```\n"):
        found = resolve_license("ISC", answer, [KERNEL])
        assert (found.expression, found.origin, found.attribution) == ("MIT", "header", ("Copyright (c) 2021 Ada",))


def test_attribution_is_the_copyright_lines_of_comments() -> None:
    code = (
        "/*\n * Copyright (c) 2021 NAME and others. \n * SPDX-FileCopyrightText: Copyright (c) 2022 NVIDIA CORPORATION\n"
        " * THE COPYRIGHT HOLDERS ARE NOT LIABLE. This copyright notice shall stay.\n * Copyright Notice: none\n */\n"
        "// © 2020 Zoë\n// copyright  2019   B.\n// (c) 2018 C\n// f(c) 2018\n// Copyright Ada Lovelace\n"
        '// Copyright (c) 2021 NAME and others.\nconst char *s = "Copyright (c) 1999 Nobody";\n' + KERNEL
    )
    expected = (
        "Copyright (c) 2021 NAME and others.",
        "Copyright (c) 2022 NVIDIA CORPORATION",
        "© 2020 Zoë",
        "copyright 2019 B.",
        "(c) 2018 C",
        "Copyright Ada Lovelace",
    )
    assert resolve_license("MIT", code, [code]).attribution == expected
    assert resolve_license(None, code, [code]).attribution == expected
    assert resolve_license("CC0-1.0", code, [code]).attribution == ()
    assert resolve_license("CC0-1.0 AND MIT", code, [code]).attribution == expected


def test_attribution_is_bounded() -> None:
    code = "".join(f"// Copyright (c) {n} {'x' * 500}\n" for n in range(1000, 3000)) + KERNEL
    lines = resolve_license("MIT", code, [code]).attribution
    assert len(lines) == 20
    assert max(map(len, lines)) == 200


def test_a_megabyte_of_headers_is_read_in_linear_time() -> None:
    for line in (
        "// SPDX-License-Identifier: MIT\n",
        "// copyright (c)\n",
        "/* " + "copyright " * 5 + "*/ int x;\n",
        "{ // (c) 2020\n",
    ):
        code = line * (1_000_000 // len(line))
        with processor_time(4):
            resolve_license(None, code, [code])


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        *[(entry, True) for entry in ALLOWED],
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR GPL-3.0-only) AND ISC", True),
        ("(MIT OR ISC) AND (GPL-3.0-only OR AGPL-3.0-only)", False),
        ("MIT OR ISC AND GPL-3.0-only", True),  # AND binds closer
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("CC-BY-SA-4.0", False),
        ("CC-BY-NC-4.0", False),
        ("LicenseRef-MyOwn", False),
        ("garbage here", False),
        (None, False),
    ],
)  # fmt: skip
def test_default_allow_list(expression: str | None, allowed: bool) -> None:
    assert is_allowed(expression) is allowed


def test_own_allow_list() -> None:
    assert is_allowed("GPL-3.0-only", ["gpl-3.0"])
    assert is_allowed("LicenseRef-House AND MIT", ["LicenseRef-House", "MIT"])
    assert not is_allowed("Apache-2.0", ["Apache-2.0 WITH LLVM-exception"])
    assert is_allowed("Apache-2.0 WITH LLVM-exception", ["Apache-2.0"])
    assert not is_allowed("MIT", [])


def test_which_licences_ask_for_a_notice() -> None:
    assert [needs_attribution(e) for e in ("MIT", "CC0-1.0", "CC0-1.0 OR 0BSD", "CC0-1.0 AND ISC")] == [
        True,
        False,
        False,
        True,
    ]


def test_option() -> None:
    assert parse_option_license("apache 2.0") == "Apache-2.0"
    with pytest.raises(OptionError, match=r"--license Foo: no SPDX licence; write .*Apache-2\.0"):
        parse_option_license("Foo")
    with pytest.raises(OptionError) as error:
        parse_option_license("x\n" * 100_000)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("entry", ["MIT OR Apache-2.0", "MIT AND ISC", "mit, apache-2.0"])
def test_an_entry_of_the_allow_list_is_one_licence(entry: str) -> None:
    """An expression would be no symbol of any row's own: it would refuse MIT, and everything else."""
    with pytest.raises(OptionError, match=r"--allow-license .*name one licence"):
        BuildConfig(allow_license=(entry,))
    assert BuildConfig(allow_license=("MIT", "GPL-2.0-only WITH Classpath-exception-2.0")).allow_license
