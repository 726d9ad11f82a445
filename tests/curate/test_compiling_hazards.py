"""Source that reaches for files of the machine is recognised in every spelling; ordinary source is not."""

from __future__ import annotations

import pytest

from curate.compiling.hazards import hazard
from tests.pace import processor_time

KERNEL = "__global__ void k(float *a) { a[0] = 1; }\n"
OUTSIDE = [
    '#include "/etc/passwd"',
    "#include </etc/passwd>",
    '#include "/dev/stdin"',
    '#include "../secret.h"',
    '#include "a/../../secret.h"',
    "  #  include\t</etc/passwd>",
    "%:include </etc/passwd>",
    "??=include </etc/passwd>",
    '#inc\\\nlude "/etc/passwd"',
    '#inc\\  \n\\\r\nlude "/etc/passwd"',
    '#inc??/\nlude "/etc/passwd"',
    '#include \\\n"/etc/passwd"',
    '#/* a\n b */include/**/"/etc/passwd"',
    '/* a */ # /**/ include "/etc/passwd"',
    '/* a\n */ #include "/etc/passwd"',
    "#define HEADER </etc/passwd>\n#include HEADER",
    "#define Q(x) #x\n#include Q(/etc/passwd)",
    '#include_next "stdio.h"',
    "#include_next <stdio.h>",
    '#import "/etc/passwd"',
    '#embed "/etc/passwd"',
    '#embed "x"',
    '#line 1 "/etc/passwd"',
    '# 1 "/etc/passwd"',
    '# 1 "/etc/passwd" 2',
    '#define F "/etc/passwd"\n#line 1 F',
    '#if __has_include("/etc/passwd")\n#endif',
    "#if __has_include(</home/ada/.ssh/id>)\n#endif",
    "#if __has_include(HEADER)\n#endif",
    '#if __has_embed("/etc/passwd")\n#endif',
    '#pragma GCC dependency "/etc/passwd"',
    '#pragma GCC pch_preprocess "/tmp/x.gch"',
    '_Pragma("GCC dependency \\"/etc/passwd\\"")',
    '__global__ void a() { asm(".incbin \\"/etc/passwd\\""); }',
    '__global__ void a() { asm(".inc" "bin \\"/etc/passwd\\""); }',
    'int x = 1; /* #if */\n#if 1\n#include "/etc/passwd"\n#endif',
    '#include "/etc/passwd',
    "#include <a\\b>",
]
HARMLESS = [
    "#include <cuda_runtime.h>\n#include <cooperative_groups/reduce.h>\n# include <cuda/barrier>",
    '#include "helpers.cuh"',
    '// see #include "/etc/passwd"',
    'const char *s = "#include </etc/passwd>";',
    "#if __has_include(<cuda/barrier>)\n#endif",
    '#if defined(__has_include) && __has_include("x.h")\n#endif',
    "#ifdef __has_include\n#endif",
    "#define __has_include_x 1",
    '#line 7\n#line 7 "block1.cu"\n# 3 "block1.cu" 1 3',
    "#pragma unroll\n#pragma once\n#pragma nv_diag_suppress 177\n#pragma GCC unroll 4",
    '_Pragma("unroll 4")',
    "#define STR(x) #x\n#define PASTE(a, b) a ## b",
    "a = b / c; // #1 of the list\nint included = 1;",
    'asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(s), "l"(g));',
    "/* a list:\n * #include what you use\n */",
]


@pytest.mark.parametrize("code", OUTSIDE)
def test_files_outside(code: str) -> None:
    assert hazard(f"{KERNEL}{code}\n{KERNEL}")
    assert hazard(code)


@pytest.mark.parametrize("code", HARMLESS)
def test_ordinary_source(code: str) -> None:
    assert hazard(f"{KERNEL}{code}\n{KERNEL}") == ""


@pytest.mark.parametrize(
    "piece",
    [
        "#/*",
        "#",
        "# ",
        "__has_include(",
        "??=",
        "\\\n",
        "#include <a>\n",
        "/*",
        "_Pragma(",
        "#line ",
        '"',
        "#\\\n",
        "*/#",
        "%:",
    ],
)
def test_a_megabyte_of_anything_takes_no_time(piece: str) -> None:
    with processor_time(5):
        hazard(piece * (1_000_000 // len(piece)))
