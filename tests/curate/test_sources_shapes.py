"""Every shape that published sets have, the user's own map, and one-line errors for the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curate.errors import OptionError, SourceError
from curate.sources import READ_REASONS, Row, open_sources

TURNS = (("user", "Q"), ("assistant", "A"))
MODULE = "import torch\nclass Model(torch.nn.Module): ...\n"


def read(tmp_path: Path, *rows: Any, column_map: str | None = None) -> list[Row]:
    path = tmp_path / "set.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (source,) = open_sources([str(path)], column_map, None)
    return list(source.rows())


def one(tmp_path: Path, row: Any, column_map: str | None = None) -> Row:
    (found,) = read(tmp_path, row, column_map=column_map)
    return found


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Q", "response": "A"},
        {"prompt": "Q", "completion": "A"},
        {"prompts": "Q", "responses": "A"},
        {"prompts": ["Q"], "responses": ["A"]},
        {"question": "Q", "answer": "A"},
        {"instruction": "Q", "input": "", "output": "A"},
        {"instruction": "Q", "output": "A"},
        {"problem statement": "Q", "solution": "A", "language": "Cuda"},
        {"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]},
        {"messages": json.dumps([{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}])},
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "Q"}]},
                {"role": "assistant", "content": "A"},
            ]
        },
        {"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]},
        {"prompt": [{"role": "user", "content": "Q"}], "completion": [{"role": "assistant", "content": "A"}]},
    ],
    ids=lambda row: "+".join(row),
)
def test_shape_without_template(tmp_path: Path, row: dict[str, Any]) -> None:
    found = one(tmp_path, row)
    assert (found.messages, found.prompt, found.response) == (TURNS, "Q", "A")
    assert (found.reason, found.synthetic_prompt, found.source_id, found.raw) == (None, False, "1", "")


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ({"ref_code": MODULE, "custom_code": "A"}, "CUDA"),
        ({"PyTorch_Code_Module": MODULE, "CUDA_Code": "A"}, "CUDA"),
        ({"pytorch_code": MODULE, "generated_code": "A"}, "CUDA"),
        ({"python_code": MODULE, "triton_code": "A"}, "Triton"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else None,
)
def test_module_gets_an_instruction_around_it(tmp_path: Path, row: dict[str, Any], word: str) -> None:
    found = one(tmp_path, row)
    assert found.prompt.startswith(f"Write a {word} kernel")
    assert f"```python\n{MODULE}```" in found.prompt
    assert (found.response, found.synthetic_prompt) == ("A", False)


def test_alpaca_input_is_appended(tmp_path: Path) -> None:
    assert one(tmp_path, {"instruction": "Q", "input": "the data", "output": "A"}).prompt == "Q\n\nthe data"


def test_generated_thought_goes_before_the_code(tmp_path: Path) -> None:
    found = one(tmp_path, {"pytorch_code": MODULE, "generated_think": "hm", "generated_code": "A"})
    assert found.response == "<think>\nhm\n</think>\n\nA"


def test_other_language_is_a_reason(tmp_path: Path) -> None:
    rows = [{"problem statement": "Q", "solution": "A", "language": word} for word in ("Cuda", "Python")]
    assert [row.reason for row in read(tmp_path, *rows)] == [None, "other_language"]


def test_many_turns_end_at_the_last_answer(tmp_path: Path) -> None:
    turns = [
        ("system", "S"),
        ("user", "Q1"),
        ("assistant", "A1"),
        ("user", "Q2"),
        ("assistant", "A2"),
        ("user", "thanks"),
    ]
    found = one(tmp_path, {"messages": [{"role": role, "content": content} for role, content in turns]})
    assert found.messages == tuple(turns[:5])
    assert (found.prompt, found.response) == ("Q2", "A2")
    assert found.detail == "1 turn after the last answer left out"


def test_system_column_becomes_the_first_turn(tmp_path: Path) -> None:
    conversation = [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]
    assert one(tmp_path, {"system": "S", "conversations": conversation}).messages == (("system", "S"), *TURNS)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": None, "response": "A"}, "missing_prompt"),
        ({"response": "A"}, "missing_prompt"),
        ({"prompt": "Q", "response": None}, "missing_response"),
        ({"prompt": "Q"}, "missing_response"),
        ({"prompt": 3, "response": "A"}, "wrong_type"),
        ({"prompt": "Q", "response": {"a": 1}}, "wrong_type"),
        ({"prompt": "Q\0", "response": "A"}, "nul_character"),
        ({"prompt": "Q", "response": "A\ud800"}, "lone_surrogate"),
        (["Q", "A"], "not_an_object"),
        (7, "not_an_object"),
    ],
)
def test_bad_row_next_to_a_good_one(tmp_path: Path, row: Any, reason: str) -> None:
    good, bad = read(tmp_path, {"prompt": "Q", "response": "A"}, row)
    assert good.reason is None
    assert (bad.reason, bad.position, bad.messages, bad.response) == (reason, 2, (), "")
    assert reason in READ_REASONS
    assert bad.detail
    assert json.loads(bad.raw.encode("utf-8")) is not None


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        ([], "no_assistant_turn"),
        ([("user", "Q")], "no_assistant_turn"),
        ([("assistant", "A")], "missing_prompt"),
        ([("system", "S"), ("assistant", "A")], "missing_prompt"),
        ([("user", "Q"), ("assistant", None)], "missing_response"),
        ([("user", None), ("assistant", "A")], "missing_prompt"),
        ([("user", "Q"), ("assistant", 5)], "wrong_type"),
        ([(None, "Q"), ("assistant", "A")], "wrong_type"),
    ],
)
def test_bad_conversation(tmp_path: Path, turns: list[tuple[Any, Any]], reason: str) -> None:
    row = {"messages": [{"role": role, "content": content} for role, content in turns]}
    assert one(tmp_path, row).reason == reason


@pytest.mark.parametrize("value", ["no json", 5, {"role": "user"}, ["text"], "[" * 100_000])
def test_messages_of_the_wrong_type(tmp_path: Path, value: Any) -> None:
    assert one(tmp_path, {"messages": value}).reason == "wrong_type"


def test_blank_texts_are_left_to_the_filters(tmp_path: Path) -> None:
    found = one(tmp_path, {"prompt": "", "response": "  "})
    assert (found.reason, found.prompt, found.response) == (None, "", "  ")


@pytest.mark.parametrize(
    ("columns", "source_id"),
    [
        ({"id": "row-7"}, "row-7"),
        ({"Task_ID": 7}, "7"),
        ({"task_id": 7, "level_id": 2}, "2/7"),
        ({"name": "add", "id": 3}, "3"),
        ({"id": None}, "1"),
        ({"id": ""}, "1"),
        ({"id": True}, "1"),
        ({}, "1"),
    ],
)
def test_own_id_else_the_line(tmp_path: Path, columns: dict[str, Any], source_id: str) -> None:
    assert one(tmp_path, {"prompt": "Q", "response": "A", **columns}).source_id == source_id


def test_column_whose_values_repeat_is_no_id(tmp_path: Path) -> None:
    rows = [{"task_id": 5, "name": name, "prompt": "Q", "response": "A"} for name in ("a", "b")]
    assert [row.source_id for row in read(tmp_path, *rows)] == ["a", "b"]
    rows[1]["name"] = "a"
    assert [row.source_id for row in read(tmp_path, *rows)] == ["1", "2"]


@pytest.mark.parametrize("column", ["license", "licence", "spdx", "License"])
def test_own_license_wins_over_the_option(tmp_path: Path, column: str) -> None:
    path = tmp_path / "set.jsonl"
    rows = [{"prompt": "Q", "response": "A", column: value} for value in ("MIT", None, "", ["MIT", "BSD-2-Clause"])]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (source,) = open_sources([str(path)], None, "CC-BY-4.0")
    assert [row.license for row in source.rows()] == ["MIT", "CC-BY-4.0", "CC-BY-4.0", "MIT, BSD-2-Clause"]


def test_map_overrides_the_presets(tmp_path: Path) -> None:
    row = {"prompt": "no", "response": "no", "the task": "Q", "code": "A", "key": "k1", "terms": "MIT"}
    found = one(tmp_path, row, "prompt=the task,response=code, id=key,license=terms")
    assert (found.messages, found.source_id, found.license) == (TURNS, "k1", "MIT")


def test_map_of_messages(tmp_path: Path) -> None:
    row = {"chat": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]}
    assert one(tmp_path, row, "messages=chat").messages == TURNS


@pytest.mark.parametrize(
    ("column_map", "words"),
    [
        ("prompt=task,response=code", ["task", "prompt, response"]),
        ("prompt=prompt", ["both"]),
        ("messages=prompt,prompt=prompt,response=response", ["not both"]),
        ("prompt", ["'prompt'", "KEY=COLUMN"]),
        ("question=prompt", ["question", "prompt, response, messages, id, license"]),
        ("prompt=prompt,prompt=response", ["twice"]),
        ("", ["empty"]),
    ],
)
def test_bad_map_names_what_is_wrong(tmp_path: Path, column_map: str, words: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        one(tmp_path, {"prompt": "Q", "response": "A"}, column_map)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_unknown_shape_names_columns_nearest_preset_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        one(tmp_path, {"instructions": "Q", "outputs": "A"})
    message = str(caught.value)
    assert "\n" not in message
    for word in (
        "set.jsonl",
        "instructions, outputs",
        "alpaca (instruction, output)",
        "--map prompt=COLUMN,response=COLUMN",
    ):
        assert word in message


def test_shape_is_the_one_that_most_rows_have(tmp_path: Path) -> None:
    rows = [{"messages": "x"}] + [{"prompt": "Q", "response": "A"}] * 3
    assert [row.reason for row in read(tmp_path, *rows)] == ["missing_prompt", None, None, None]


@pytest.mark.parametrize(
    ("prompt", "response", "rows", "told"),
    [
        ("__global__ void k() {}", "Write a kernel.", 5, True),
        ("__global__ void k() {}", "Write a kernel.", 4, False),
        ("Write a kernel.", "__global__ void k() {}", 5, False),
        ("__global__ void k() {}", "__global__ void faster() {}", 5, False),
        ("Write a kernel.", "I cannot.", 5, False),
    ],
)
def test_swapped_columns_are_told_and_read_as_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, prompt: str, response: str, rows: int, told: bool
) -> None:
    found = read(tmp_path, *[{"prompt": prompt, "response": response}] * rows)
    assert [(row.prompt, row.response, row.reason) for row in found] == [(prompt, response, None)] * rows
    said = [record.getMessage() for record in caplog.records if "swapped" in record.getMessage()]
    assert [line.endswith("if they are swapped: --map prompt=response,response=prompt") for line in said] == [
        True
    ] * told


def test_ids_that_come_twice_further_down_keep_both_rows(tmp_path: Path) -> None:
    rows = [{"id": f"r{i % 300}", "prompt": f"Q{i}", "response": "A"} for i in range(400)]
    found = read(tmp_path, *rows)
    assert [row.prompt for row in found] == [f"Q{i}" for i in range(400)]
    assert found[0].source_id == found[300].source_id == "r0"
    assert [row.position for row in found] == list(range(1, 401))


@pytest.mark.parametrize(
    ("prompt", "response"),
    [([["Q"]], [["A"]]), ([[]], "A"), (["Q", ["Q"]], ["A", "A"]), ("Q", [["A"], ["B"]]), ([{"a": [1]}], ["A"])],
)
def test_nested_lists_are_a_reason(tmp_path: Path, prompt: Any, response: Any) -> None:
    good, bad = read(tmp_path, {"prompt": "Q", "response": "A"}, {"prompt": prompt, "response": response})
    assert (good.reason, bad.reason, bad.response) == (None, "wrong_type", "")
