"""The bundled corpus holds what its card says, and every flawed row has the fault that it is there for."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from curate.extract import extract_cuda
from curate.filters import COMPARED, FILTERS
from curate.sources import READ_REASONS
from curate.syntax import label, parse_cuda
from curate.taxonomy import CATEGORIES

DATA = Path(__file__).resolve().parent.parent / "data"
CARD = (DATA / "README.md").read_text(encoding="utf-8")


def lines(name: str) -> list[str]:
    return (DATA / "corpus" / name).read_text(encoding="utf-8").splitlines()


def load_verify() -> ModuleType:
    spec = importlib.util.spec_from_file_location("data_verify", DATA / "verify.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


verify = load_verify()
PAIRS: list[dict[str, str]] = [json.loads(line) for line in lines("pairs.jsonl")]
COUNTS = Counter(kind for pair in PAIRS for kind in verify.kinds(pair["prompt"], pair["response"]))


def test_the_card_gives_the_counts() -> None:
    table = {kind: int(number) for number, kind in re.findall(r"^ *(\d+) (.+)$", CARD, re.MULTILINE)}
    assert table.pop("pairs") == len(PAIRS)
    assert table == COUNTS


def test_every_row_is_complete_and_no_two_are_alike() -> None:
    for pair in PAIRS:
        assert set(pair) == {"id", "prompt", "response", "license"}
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", pair["id"])
        assert pair["prompt"].strip()
        assert pair["license"] == "CC0-1.0"
    assert len({pair["id"] for pair in PAIRS}) == len(PAIRS)
    assert len({" ".join(pair["prompt"].lower().split()) for pair in PAIRS}) == len(PAIRS)
    assert len({pair["response"] for pair in PAIRS}) == len(PAIRS)


def test_the_mix_is_wide_enough() -> None:
    assert len(PAIRS) >= 40
    assert COUNTS["complete program"] * 3 >= len(PAIRS)
    assert COUNTS["Python module with load_inline"] >= 5
    assert COUNTS["reasoning trace"] >= 6
    assert COUNTS["bare code"] >= 3
    assert COUNTS["multi-byte characters"] >= 2
    assert {kind for kind in COUNTS if kind.startswith("fence tagged")} == {
        "fence tagged cuda", "fence tagged cpp", "fence tagged c++", "fence tagged with nothing",
    }  # fmt: skip


@pytest.mark.parametrize("category", CATEGORIES[1:])
def test_every_category_is_touched_by_several_pairs(category: str) -> None:
    assert COUNTS[f"category {category}"] >= 4


@pytest.mark.parametrize("pair", PAIRS, ids=[pair["id"] for pair in PAIRS])
def test_every_answer_defines_a_kernel_without_syntax_errors(pair: dict[str, str]) -> None:
    labels = [label(block.text) for block in extract_cuda(pair["response"])]
    assert any(found.kernels for found in labels)
    assert sum(found.error_bytes for found in labels) == 0


def returns_of_main(code: str) -> list[str]:
    """The values of the return statements of `main`, in order."""
    found, stack = (
        [],
        [node for node in parse_cuda(code).main.root.named_children if b" main(" in (node.text or b"")[:9]],
    )
    while stack:
        node = stack.pop()
        if node.type == "return_statement":
            found.append((node.text or b"").decode().removeprefix("return").strip(" ;"))
        stack.extend(reversed(node.named_children))
    return found


def test_every_complete_program_reports_a_mismatch() -> None:
    programs = [block.text for pair in PAIRS for block in extract_cuda(pair["response"]) if verify.has_main(block.text)]
    assert len(programs) == COUNTS["complete program"]
    for code in programs:
        *earlier, last = returns_of_main(code)
        constant = last.replace("_", "").isalnum()  # 0, EXIT_SUCCESS
        assert not constant or {"1", "EXIT_FAILURE"} & set(earlier), code


# flawed.jsonl

FLAWED = lines("flawed.jsonl")
UNPARSED = {1: "broken_json", 2: "broken_json", 3: "not_an_object"}
"""Line number -> reason, where the line cannot say it itself."""


def flawed_rows() -> dict[str, dict[str, Any]]:
    """The lines that are objects, by id."""
    rows = [json.loads(line) for number, line in enumerate(FLAWED, start=1) if number not in UNPARSED]
    return {row["id"]: row for row in rows}


ROWS = flawed_rows()


def rows_with(reason: str) -> list[dict[str, Any]]:
    found = [row for row in ROWS.values() if row["expect"] == reason]
    assert found, reason
    return found


def test_flawed_has_lines_with_known_reasons() -> None:
    assert len(FLAWED) == 31
    assert len(ROWS) == 28
    known = set(READ_REASONS) | {one.reason for one in FILTERS} | {*COMPARED, "exact_duplicate"}
    reasons = Counter([*UNPARSED.values(), *(row["expect"] for row in ROWS.values())])
    assert set(reasons) <= known
    for reason, number in reasons.items():
        assert f"| `{reason}` | {number} |" in CARD
    assert not {row["id"] for row in ROWS.values()} & {pair["id"] for pair in PAIRS}


def test_the_unreadable_lines_are_unreadable() -> None:
    for number, reason in UNPARSED.items():
        if reason == "broken_json":
            with pytest.raises(json.JSONDecodeError):
                json.loads(FLAWED[number - 1])
        else:
            assert not isinstance(json.loads(FLAWED[number - 1]), dict)


def test_the_columns_have_the_fault_that_is_expected() -> None:
    assert all(not isinstance(row["response"], str | None) for row in rows_with("wrong_type"))
    assert all(row["prompt"] is None for row in rows_with("missing_prompt"))
    assert all("response" not in row for row in rows_with("missing_response"))
    assert all(not row["prompt"].strip() and row["prompt"] for row in rows_with("empty_prompt"))
    assert all(not row["response"].strip() and row["response"] for row in rows_with("empty_response"))
    assert all("\0" in row["response"] for row in rows_with("nul_character"))
    for row in rows_with("lone_surrogate"):
        with pytest.raises(UnicodeEncodeError):
            row["response"].encode()


def test_the_code_has_the_fault_that_is_expected() -> None:
    for row in rows_with("no_cuda"):
        assert not any(label(block.text).category.any() for block in extract_cuda(row["response"]))
    for row in rows_with("no_kernel"):
        labels = [label(block.text) for block in extract_cuda(row["response"])]
        assert any(found.category.any() for found in labels)
        assert not any(found.kernels for found in labels)
    for row in rows_with("kernel_syntax_errors"):
        (found,) = [label(block.text) for block in extract_cuda(row["response"])]
        assert found.error_bytes > 0.5 * found.kernel_bytes > 0


def test_the_duplicate_repeats_a_pair_and_the_long_row_is_long_for_any_tokenizer() -> None:
    texts = {(pair["prompt"], pair["response"]) for pair in PAIRS}
    assert [(row["prompt"], str(row.get("response"))) in texts for row in ROWS.values()] == [
        row["expect"] == "exact_duplicate" for row in ROWS.values()
    ]
    for row in rows_with("too_long"):
        assert len(re.findall(r"\d+|\w+|[.;,]", row["prompt"])) > 4096
        assert len(json.dumps(row)) < 40_000


# compilation


def test_a_unit_that_does_not_compile_is_reported() -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    good = verify.Unit("good", "slice", "__global__ void k(int* x) { *x = 1; }\n")
    bad = verify.Unit("bad", "slice", "__global__ void k(int* x) { *x = undeclared; }\n")
    unused = verify.Unit("warned", "program", "int main() { int unused = 1; return 0; }\n")
    assert verify.compile_unit(good, "sm_90", 60) is None
    assert "undeclared" in verify.compile_unit(bad, "sm_90", 60)
    assert "unused" in verify.compile_unit(unused, "sm_90", 60)


def test_an_include_from_outside_is_refused_before_the_compiler_sees_it() -> None:
    for path in ('"/etc/passwd"', "<../../secret.h>"):
        message = verify.compile_unit(verify.Unit("x", "slice", f"#include {path}\n"), "sm_90", 60)
        assert "not compiled" in message


def test_without_nvcc_there_is_a_clear_message(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("PATH", "")
    assert verify.main() == 0
    assert "nvcc is not on the PATH" in capsys.readouterr().out


def test_a_file_without_rows_is_an_error(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.jsonl").write_text('{"id": "a"}\n')
    monkeypatch.setattr(verify.shutil, "which", lambda name: name)
    assert verify.main((tmp_path / "bad.jsonl",)) == 2
    assert "bad.jsonl:1" in capsys.readouterr().err


SAMPLE = ("matmul-wmma", "atomic-float-minmax-macro", "reduce-template-operators", "black-scholes-load-inline",
          "bias-relu-load-inline", "argmax-zh", "float4-scale-copy")  # fmt: skip
"""Quick to compile, and each of another form; `python data/verify.py` does all of them."""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_compiles(name: str) -> None:
    (response,) = [pair["response"] for pair in PAIRS if pair["id"] == name]
    work = list(verify.units(name, response))
    assert [unit.kind for unit in work if unit.kind == "slice"]
    assert {unit.name: verify.compile_unit(unit, "sm_90", 60) for unit in work} == {unit.name: None for unit in work}
