"""Which columns hold the instruction and the answer: presets for the shapes that published sets have, or the user's
own map.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from curate.errors import OptionError, SourceError
from curate.licences import says_nothing
from curate.sources import templates
from curate.sources.conversation import BadRow, Turns, as_text, turns_of

__all__ = ["ID_COLUMNS", "MAP_KEYS", "PRESETS", "Shape", "choose_shape", "parse_map", "peeked"]

Reader = Callable[[Mapping[str, object]], Turns]
MAP_KEYS = ("prompt", "response", "messages", "id", "license", "correct")

ID_COLUMNS = (
    *("id", "sample_id", "row_id", "uid", "uuid", "problem_id", "task_id"),
    *("name", "kernel_name", "entry_point", "path"),
)
"""Columns, in lower case and in order of preference, that may hold a row's own id."""
_LICENSES = ("license", "licence", "spdx", "license_spdx", "licenses")
_VERDICTS = ("correct", "is_correct", "passed", "tests_passed", "all_tests_passed")
_TRUTH = {True: True, False: False, "true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
_REVISIONS = ("source_revision", "revision", "commit", "commit_hash")


@dataclass(frozen=True)
class Shape:
    """How rows of one file are read: `required` columns decide, `optional` ones are used where present."""

    name: str
    required: tuple[str, ...]
    read: Reader
    optional: tuple[str, ...] = ()
    id: str | None = None
    license: str | None = None
    revision: str | None = None
    correct: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that reading a row looks at."""
        extra = (
            c for c in (self.id, self.license, self.revision, self.correct, _LEVEL.get(self.id or "")) if c is not None
        )
        return tuple(dict.fromkeys((*self.required, *self.optional, *extra)))

    def row_id(self, row: Mapping[str, object], position: int) -> str:
        """The row's own id as text, with its level where tasks are numbered inside levels; else its position."""
        own = row.get(self.id) if self.id else None
        if isinstance(own, bool) or not isinstance(own, str | int) or not str(own).strip():
            return str(position)
        level = row.get(_LEVEL.get(self.id or "", ""))
        text = str(own) if level is None else f"{level}/{own}"
        return text.encode("utf-8", "replace").decode("utf-8")

    def row_license(self, row: Mapping[str, object]) -> str | None:
        """What the row says of its licence, if anything; a list of them joined by commas."""
        own = row.get(self.license) if self.license else None
        if isinstance(own, Sequence) and not isinstance(own, str):
            own = ", ".join(str(item) for item in own)
        if not isinstance(own, str) or not own.strip() or says_nothing(own):
            return None
        return own.strip().encode("utf-8", "replace").decode("utf-8")

    def row_revision(self, row: Mapping[str, object]) -> str | None:
        """The revision that the row names, if it does."""
        own = row.get(self.revision) if self.revision else None
        return own.encode("utf-8", "replace").decode("utf-8") if isinstance(own, str) and own.strip() else None

    def row_correct(self, row: Mapping[str, object]) -> bool | None:
        """The source's own verdict on the answer; None where it has none, or one that is neither true nor false."""
        own = row.get(self.correct) if self.correct else None
        if isinstance(own, str):
            own = own.strip().lower()
        return _TRUTH.get(own) if isinstance(own, str | int | float) else None


_LEVEL = {"task_id": "level_id", "Task_ID": "Level_ID"}


def _pair(prompt: str, response: str, template: Callable[[str], str] = str) -> Reader:
    """Two columns, each text; or lists of messages (conversational prompt and completion), or of texts (turn by
    turn).
    """

    def read(row: Mapping[str, object]) -> Turns:
        question, answer = row.get(prompt), row.get(response)
        if isinstance(question, list) or isinstance(answer, list):
            return _listed(question, answer, prompt, response)
        text = as_text(question, f"column {prompt!r}", "missing_prompt")
        return ("user", template(text)), ("assistant", as_text(answer, f"column {response!r}", "missing_response"))

    return read


def _listed(question: object, answer: object, prompt: str, response: str) -> Turns:
    if question is None:
        raise BadRow("missing_prompt", f"column {prompt!r} is absent or null")
    if answer is None:
        raise BadRow("missing_response", f"column {response!r} is absent or null")
    questions = question if isinstance(question, list) else [{"role": "user", "content": question}]
    answers = answer if isinstance(answer, list) else [{"role": "assistant", "content": answer}]
    if all(isinstance(item, str) for item in (*questions, *answers)) and len(questions) == len(answers):
        pairs = zip(questions, answers, strict=True)
        return tuple(turn for q, a in pairs for turn in (("user", q), ("assistant", a)))
    return turns_of(questions, f"column {prompt!r}") + turns_of(answers, f"column {response!r}")


def _messages(column: str) -> Reader:
    def read(row: Mapping[str, object]) -> Turns:
        turns = turns_of(row.get(column), f"column {column!r}")
        system = row.get("system")
        if isinstance(system, str) and system.strip() and not any(role == "system" for role, _ in turns):
            turns = (("system", system), *turns)
        return turns

    return read


def _alpaca(row: Mapping[str, object]) -> Turns:
    instruction = as_text(row.get("instruction"), "column 'instruction'", "missing_prompt")
    given = row.get("input")
    given = "" if given is None else as_text(given, "column 'input'", "missing_prompt")
    prompt = f"{instruction}\n\n{given}" if given.strip() else instruction
    return ("user", prompt), ("assistant", as_text(row.get("output"), "column 'output'", "missing_response"))


def _problem(row: Mapping[str, object]) -> Turns:
    language = row.get("language")
    if isinstance(language, str) and "cuda" not in language.lower():
        raise BadRow("other_language", f"language is {language[:40]!a}")
    return _pair("problem statement", "solution")(row)


def _thinking(row: Mapping[str, object]) -> Turns:
    prompt, (role, code) = _pair("pytorch_code", "generated_code", templates.cuda_for_module)(row)
    thought = row.get("generated_think")
    if isinstance(thought, str) and thought.strip():
        trace = thought if "</think>" in thought else f"<think>\n{thought.strip()}\n</think>"
        code = f"{trace}\n\n{code}"
    return prompt, (role, code)


PRESETS: tuple[Shape, ...] = (
    Shape("messages", ("messages",), _messages("messages"), ("system",)),
    Shape("sharegpt", ("conversations",), _messages("conversations"), ("system",)),
    Shape("prompt-response", ("prompt", "response"), _pair("prompt", "response")),
    Shape("prompt-completion", ("prompt", "completion"), _pair("prompt", "completion")),
    Shape("prompts-responses", ("prompts", "responses"), _pair("prompts", "responses")),
    Shape("question-answer", ("question", "answer"), _pair("question", "answer")),
    Shape("alpaca", ("instruction", "output"), _alpaca, ("input",)),
    Shape("problem-solution", ("problem statement", "solution"), _problem, ("language",)),
    Shape("pytorch-thinking", ("pytorch_code", "generated_code"), _thinking, ("generated_think",)),
    Shape("ref-custom", ("ref_code", "custom_code"), _pair("ref_code", "custom_code", templates.cuda_for_module)),
    Shape(
        "torch-module",
        ("PyTorch_Code_Module", "CUDA_Code"),
        _pair("PyTorch_Code_Module", "CUDA_Code", templates.cuda_for_module),
    ),
    Shape("triton", ("python_code", "triton_code"), _pair("python_code", "triton_code", templates.triton_for_module)),
)
"""In order of preference where the rows of a file fit several equally well."""


def peeked(row: Mapping[str, object]) -> dict[str, object]:
    """What `choose_shape` looks at: the names of the columns, and the values of those that may be ids."""
    keep = (*ID_COLUMNS, *(level.lower() for level in _LEVEL.values()))
    return {name: value if name.lower() in keep else None for name, value in row.items()}


def choose_shape(rows: Sequence[Mapping[str, object]], where: str, mapping: Mapping[str, str]) -> Shape:
    """The shape for a file whose first rows are these (`peeked`).

    `mapping` is the user's (`parse_map`) and wins. A column holds ids when no value of it comes twice. Raises
    OptionError where the map names a column that is not there, SourceError where no preset fits; both list the columns
    found.
    """
    each = [frozenset(row) for row in rows]
    found = sorted(frozenset().union(*each))
    absent = [f"{key}={column}" for key, column in mapping.items() if column not in found]
    if absent:
        raise OptionError(f"--map {', '.join(absent)}: {where} has no such column; it has {_listing(found)}.")
    if "messages" in mapping:
        shape = Shape("map", (mapping["messages"],), _messages(mapping["messages"]))
    elif "prompt" in mapping:
        columns = (mapping["prompt"], mapping["response"])
        shape = Shape("map", columns, _pair(*columns))
    else:
        fits = [(sum(columns.issuperset(preset.required) for columns in each), -i) for i, preset in enumerate(PRESETS)]
        best, at = max(fits)
        if not best:
            raise _unknown(found, where)
        shape = PRESETS[-at]
    shape = replace(
        shape,
        license=mapping.get("license") or next(iter(_present(found, _LICENSES)), None),
        revision=next(iter(_present(found, _REVISIONS)), None),
        correct=mapping.get("correct") or next(iter(_present(found, _VERDICTS)), None),
    )
    if "id" in mapping:
        return replace(shape, id=mapping["id"])
    candidates = (replace(shape, id=column) for column in _present(found, ID_COLUMNS))
    return next((candidate for candidate in candidates if _identifies(candidate, rows)), shape)


def _identifies(shape: Shape, rows: Sequence[Mapping[str, object]]) -> bool:
    """Whether the column tells the rows apart: tasks of a benchmark, say, come many times in a set of attempts."""
    ids = [shape.row_id(row, 0) for row in rows if row.get(shape.id or "") is not None]
    return len(ids) == len(set(ids))


def parse_map(option: str | None) -> dict[str, str]:
    """`prompt=COL,response=COL` (also those of MAP_KEYS) as a dict; {} for None. Raises OptionError."""
    mapping: dict[str, str] = {}
    for part in (option or "").split(","):
        key, equals, column = part.partition("=")
        key, column = key.strip(), column.strip()
        if not part.strip():
            continue
        if not equals or not column or key not in MAP_KEYS or key in mapping:
            wrong = "is given twice" if key in mapping else f"is not KEY=COLUMN with KEY one of {', '.join(MAP_KEYS)}"
            raise OptionError(f"--map: {part.strip()!r} {wrong}.")
        mapping[key] = column
    if option is not None and not mapping:
        raise OptionError("--map is empty; write for example --map prompt=COLUMN,response=COLUMN.")
    if ("prompt" in mapping) != ("response" in mapping):
        raise OptionError("--map needs both prompt=COLUMN and response=COLUMN (or messages=COLUMN alone).")
    if "messages" in mapping and "prompt" in mapping:
        raise OptionError("--map takes messages=COLUMN or prompt=COLUMN,response=COLUMN, not both.")
    return mapping


def _unknown(found: Sequence[str], where: str) -> SourceError:
    """One line: the columns found, the preset that comes nearest, and the remedy."""

    def nearness(shape: Shape) -> float:
        return sum(_closest(column, found) for column in shape.required) / len(shape.required)

    nearest = max(PRESETS, key=nearness)
    return SourceError(
        f"{where}: no known shape has the columns {_listing(found)}; the nearest is {nearest.name} "
        f"({', '.join(nearest.required)}). Say which columns to read: --map prompt=COLUMN,response=COLUMN"
    )


def _closest(column: str, found: Sequence[str]) -> float:
    return max(
        (difflib.SequenceMatcher(None, column, other[:60].lower()).ratio() for other in found[:200]), default=0.0
    )


def _listing(columns: Sequence[str]) -> str:
    shown = ", ".join(ascii(c[:60])[1:-1] for c in columns[:20])
    return f"{shown} and {len(columns) - 20} more" if len(columns) > 20 else shown or "none at all"


def _present(found: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Those of the wanted columns that the file has, whatever the case of their letters."""
    lower = {column.lower(): column for column in reversed(found)}
    return [lower[name] for name in wanted if name in lower]
