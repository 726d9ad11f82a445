"""The files of a benchmark -> its tasks: prompt, Python reference and CUDA reference of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from curate.errors import SourceError
from curate.sources.files import shown
from curate.sources.hub import HUB, hub_values
from curate.sources.streams import kind_of
from curate.sources.tables import table_values

__all__ = ["Task", "load_tasks"]


@dataclass(frozen=True)
class Task:
    """One task. `group`: tasks that say the same in several ways (levels of detail, programming models) share it."""

    benchmark: str
    id: str
    group: str
    prompts: tuple[str, ...]
    code: tuple[str, ...]


@dataclass(frozen=True)
class _Preset:
    """A published benchmark, known by its columns."""

    name: str
    needs: tuple[str, ...]
    id: tuple[str, ...]
    group: tuple[str, ...]
    prompts: tuple[str, ...] = ()
    code: tuple[str, ...] = ()


_PRESETS = (
    _Preset("KernelBench", ("code", "level", "problem_id"), ("level", "problem_id"), ("name",), code=("code",)),
    _Preset(
        "CUDABench",
        ("task_name", "level1_prompt", "bench.cu"),
        ("id",),
        ("task_name",),
        ("level1_prompt", "level2_prompt", "level3_prompt"),
        ("bench.cu",),
    ),
    _Preset("ComputeEval", ("task_id", "prompt", "declaration", "test"), ("task_id",), ("task_id",), ("prompt",)),
    _Preset(
        "ParEval",
        ("name", "problem_type", "parallelism_model", "prompt"),
        ("name", "parallelism_model"),
        ("name",),
        ("prompt",),
    ),
)
_PROMPTS = (
    *("prompt", "instruction", "question", "problem", "problem statement", "description", "task_description"),
    *("text", "input", "level1_prompt", "level2_prompt", "level3_prompt"),
)
_CODE = (
    *("code", "ref_code", "reference", "reference_code", "ref_arch_src", "pytorch_code", "pytorch_code_module"),
    *(
        "python_code",
        "cuda_code",
        "solution",
        "canonical_solution",
        "custom_code",
        "completion",
        "response",
        "bench.cu",
    ),
)
_IDS = ("task_id", "id", "problem_id", "name", "task_name", "op_name")
_TABLES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
_TEXTS = (".py", ".cu", ".cuh")
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+(?:@[^:/]+)?(?::[\w.-]+)?")
_MAX_TEXT = 2**24


def load_tasks(spec: str) -> Iterator[Task]:
    """The tasks of a benchmark: a .jsonl, .json, .csv, .tsv or .parquet file, a .py, .cu or .cuh file, a folder of
    these, or `hf://USER/NAME[/CONFIG][@REVISION][:SPLIT]` (all splits where none is named); USER/NAME alone is a
    dataset of the Hub, where there is no such folder and it does not end like a file.

    KernelBench, CUDABench, ComputeEval and ParEval are known by their columns; of any other table the columns that
    usually hold prompts and code are used. Raises SourceError, in one line, for what cannot be read and for a table
    without any of these columns. A row without text is left out.
    """
    if spec.startswith(HUB):
        yield from _tasks(hub_values(spec), spec, spec.removeprefix(HUB).split("@")[0].split(":")[0].split("/")[-1])
        return
    if _HUB_ID.fullmatch(spec) and not _is_path(spec):
        yield from load_tasks(HUB + spec)
        return
    path = Path(spec)
    try:
        if path.is_dir():
            files = sorted(f for f in path.rglob("*") if f.is_file() and kind_of(f.name)[0] in (*_TABLES, *_TEXTS))
        elif path.is_file():
            files = [path]
        else:
            raise SourceError(f"--against {shown(path)}: is not there; name a file, a folder or {HUB}USER/NAME.")
        if not files:
            raise SourceError(f"--against {shown(path)}: holds no {', '.join((*_TABLES, *_TEXTS))} file.")
        for file in files:
            kind, packed = kind_of(file.name)
            if kind in _TEXTS and not packed:
                yield from _file(file, path)
            elif kind in _TABLES and not (packed and kind == ".parquet"):
                yield from _tasks(table_values(file), shown(file), file.name.split(".")[0])
            else:
                accepted = ", ".join((*_TABLES, *_TEXTS))
                raise SourceError(f"--against {shown(file)}: unknown kind of file; accepted are {accepted}.")
    except OSError as error:
        raise SourceError(f"--against {shown(path)}: cannot be read ({error.strerror}).") from None
    except ValueError as error:  # a NUL character in the name
        raise SourceError(f"--against {spec[:200]!a}: cannot be read ({error}).") from None


def _is_path(spec: str) -> bool:
    path = Path(spec)
    return path.exists() or path.parent.is_dir() or kind_of(path.name)[0] in (*_TABLES, *_TEXTS)


def _file(file: Path, root: Path) -> Iterator[Task]:
    if file.stat().st_size <= _MAX_TEXT:
        name = file.name if file == root else file.relative_to(root).as_posix()
        text = file.read_bytes().decode("utf-8", "replace")
        yield Task(root.resolve().name, shown(name), name, (), (text,))


def _tasks(values: Iterable[object], where: str, stem: str) -> Iterator[Task]:
    known, rows = False, 0
    seen: set[str] = set()
    for position, value in enumerate(values, start=1):
        if not isinstance(value, Mapping):
            continue
        rows += 1
        seen.update(list(value)[: max(0, 40 - len(seen))])
        preset = next((p for p in _PRESETS if all(column in value for column in p.needs)), None)
        if preset is None:
            preset = _generic(value, stem)
        known = known or bool(preset.prompts or preset.code)
        prompts = tuple(text for column in preset.prompts if (text := _text(value.get(column))))
        code = tuple(text for column in preset.code if (text := _text(value.get(column))))
        if prompts or code:
            parts = [str(value[c]) for c in preset.id if isinstance(value.get(c), str | int)]
            number = " ".join("/".join(parts).split()) or str(position)  # a line: it goes into details of refusals
            group = "/".join(str(value.get(c)) for c in preset.group) if preset.group else number
            yield Task(preset.name, number[:200].encode("utf-8", "replace").decode(), group, prompts, code)
    if not known:
        found = ", ".join(ascii(column)[1:-1][:60] for column in sorted(map(str, seen))[:20]) or "none at all"
        raise SourceError(
            f"--against {where}: none of its columns ({found}) is known to hold a task's prompt "
            f"({', '.join(_PROMPTS)}) "
            f"or code ({', '.join(_CODE)}); rename the right one to prompt or code."
            if rows
            else f"--against {where}: holds no rows."
        )


def _generic(value: Mapping[str, object], stem: str) -> _Preset:
    lower = {str(column).lower(): str(column) for column in value}
    own = next((lower[c] for c in _IDS if c in lower and isinstance(value[lower[c]], str | int)), None)
    level = lower.get("level_id") or lower.get("level")
    return _Preset(
        stem,
        (),
        tuple(c for c in (level, own) if c is not None) if own else (),
        (),
        tuple(lower[c] for c in _PROMPTS if c in lower),
        tuple(lower[c] for c in _CODE if c in lower),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) and value.strip() else ""
