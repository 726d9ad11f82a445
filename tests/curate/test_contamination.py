"""Rows that a benchmark's tasks have got into are found; rows of the same kind of work are not."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.contamination import Match, References, load_references
from curate.contamination.benchmarks import load_tasks
from curate.contamination.classes import class_hashes
from curate.duplicates import Fingerprint, fingerprint
from curate.errors import SourceError
from curate.sources import hub
from curate.syntax import label_parsed, parse_cuda
from tests.pace import processor_time

MODULE = '''
import torch
import torch.nn as nn

class Model(nn.Module):
    """A gated block."""

    def __init__(self, width):
        super(Model, self).__init__()
        self.gate = nn.Linear(width, width)  # learns what passes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (B, width)"""
        if x.dim() == 1:
            x = x.unsqueeze(0)
        return torch.sigmoid(self.gate(x)) * x

width = 512
'''
DRESSED = """
from torch import nn
import torch

width = 64  # another size

class GatedBlock(nn.Module):
    # no docstring here
    def __init__( self, width ):
        super(GatedBlock, self).__init__()
        self.gate = nn.Linear(
            width, width)
    def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.dim() == 1:
                    x = x.unsqueeze( 0 )
            return torch.sigmoid(self.gate(x)) * x
"""
KERNEL = """
__global__ void histogram(const unsigned char *data, int *bins, int n) {
    __shared__ int local[256];
    for (int b = threadIdx.x; b < 256; b += blockDim.x) local[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local[data[i]], 1);
    __syncthreads();
    for (int b = threadIdx.x; b < 256; b += blockDim.x) atomicAdd(&bins[b], local[b]);
}
"""
TEMPLATE = "Write a CUDA kernel for the task below. The launch uses at least as many threads as there are elements. "
TASKS = [
    "Given the heights of a row of water columns, compute for each column the volume that stays after a drain opens at the left end.",
    "Count for every town on a ring road the towns that can be reached in fewer than seven steps without paying a toll twice.",
    "Merge overlapping time slots of a booking table and write the start of each merged slot together with its total length.",
    "Rotate a gray image by a quarter turn in place while swapping each pair of neighbouring rows whose sums are both odd.",
]


def write(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return str(path)


def code_of(text: str) -> Fingerprint:
    parsed = parse_cuda(text)
    found = fingerprint([(parsed, label_parsed(parsed))])
    assert found is not None
    return found


@pytest.fixture
def prompts(tmp_path: Path) -> References:
    rows = [
        {"task_id": f"T/{n}", "prompt": TEMPLATE + task, "declaration": "", "test": ""} for n, task in enumerate(TASKS)
    ]
    return load_references([write(tmp_path / "problems.jsonl", rows)])


def test_prompt_is_found_inside_another_text(prompts: References) -> None:
    prompt = f"You are an expert.\n\n> {TASKS[1].upper()}\n\nThink first."
    found = prompts.match(prompt, "int x;")
    assert found is not None
    assert (found.benchmark, found.task_id, found.method) == ("ComputeEval", "T/1", "prompt")
    assert found.score > 0.7
    assert found.evidence.startswith("count for every town on a ring road")
    edited = TASKS[1].replace("every town", "every single town")
    assert (m := prompts.match(edited, "")) is not None
    assert m.task_id == "T/1"
    assert prompts.match("Explain.", f"// {TASKS[1]}\n__global__ void k();") is not None  # in the answer as well


def test_score_is_the_share_of_the_tasks_own_ngrams(prompts: References) -> None:
    own = TEMPLATE.split()[-7:] + TASKS[1].split()  # n-grams that touch the task
    assert prompts.sizes[1] == len(own) - 7
    half = " ".join(TASKS[1].split()[:16])
    expected = (16 - 7) / prompts.sizes[1]
    assert expected < 0.5
    assert prompts.match(half, "") is None
    more = " ".join(TASKS[1].split()[:21])
    found = prompts.match(more, "")
    assert found is not None
    assert found.score == pytest.approx((21 - 7) / prompts.sizes[1])


NEAR_MISSES = [
    TEMPLATE + "Given the temperatures of a row of cells, compute for each cell the mean of its neighbours.",
    TEMPLATE,
    "Count for every node of a graph the nodes that can be reached in fewer than seven steps.",
    "",
]


@pytest.mark.parametrize("prompt", NEAR_MISSES)
def test_prompt_of_the_same_kind_is_kept(prompts: References, prompt: str) -> None:
    assert prompts.match(prompt, KERNEL) is None


def test_class_is_found_in_other_clothes(tmp_path: Path) -> None:
    rows = [{"code": MODULE, "level": 2, "problem_id": 7, "name": "7_Gate"}]
    references = load_references([write(tmp_path / "kb.jsonl", rows)])
    expected = Match("KernelBench", "2/7", "class", 1.0, "class GatedBlock")
    assert references.match(f"Speed this up:\n\n```python\n{DRESSED}```\nThanks.", "") == expected
    assert references.match(f"Speed this up, as class work:\n{DRESSED}", "") == expected
    assert references.match("", DRESSED) == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.sigmoid", "torch.tanh"), ("* x", "+ x"), ("self.gate = nn.Linear(width, width)", "self.gate = nn.Linear(width, 1)"),
        ("            x = x.unsqueeze(0)\n        return", "            x = x.unsqueeze(0)\n            return"),
    ],
)  # fmt: skip
def test_class_that_does_something_else_is_kept(tmp_path: Path, old: str, new: str) -> None:
    references = load_references([write(tmp_path / "kb.jsonl", [{"code": MODULE, "level": 1, "problem_id": 1}])])
    changed = MODULE.replace(old, new)
    assert changed != MODULE
    assert references.match(f"```python\n{changed}```", "") is None
    assert references.match(f"```python\n{MODULE}```", "") is not None


def test_trivial_class_says_nothing() -> None:
    assert not list(class_hashes("class Net(Module):\n    def forward(self, x):\n        return x\n"))


def test_code_is_found_by_near_duplicate(tmp_path: Path) -> None:
    references = load_references([write(tmp_path / "set.jsonl", [{"id": 5, "reference": KERNEL}])])
    twin = KERNEL.replace("local", "counts").replace("histogram", "hist256").replace("data", "src")
    found = references.match("Count bytes.", twin, code_of(twin))
    assert found == Match("set", "5", "code", 1.0, "the same code")
    other = KERNEL.replace("atomicAdd(&local[data[i]], 1)", "atomicMax(&local[data[i]], i)")
    assert references.match("Count bytes.", other, code_of(other)) is None


def test_references_pickle(prompts: References) -> None:
    again = pickle.loads(pickle.dumps(prompts))
    assert again.match(TASKS[2], "") == prompts.match(TASKS[2], "")
    assert again.match(TASKS[2], "") is not None


def test_kinds_of_files_and_folders(tmp_path: Path) -> None:
    pareval = [
        {"name": f"{n}_x", "problem_type": "t", "parallelism_model": m, "prompt": f"/* {task} */"}
        for n, task in enumerate(TASKS)
        for m in ("cuda", "hip", "omp", "serial")
    ]
    (tmp_path / "prompts.json").write_text(json.dumps(pareval))
    cudabench = {"id": 3, "task_name": "fill", "level1_prompt": TASKS[0], "level2_prompt": TASKS[0], "level3_prompt": TASKS[0], "bench.cu": KERNEL}  # fmt: skip
    with gzip.open(tmp_path / "bench.jsonl.gz", "wt") as file:
        file.write(json.dumps(cudabench) + "\n")
    folder = tmp_path / "tasks" / "level1"
    folder.mkdir(parents=True)
    (folder / "1_gate.py").write_text(MODULE)
    (folder / "k.cu").write_text(KERNEL)
    found = load_references([str(tmp_path / "prompts.json")]).match(TASKS[3], "")
    assert found is not None  # four programming models of one task are no template
    assert (found.benchmark, found.task_id) == ("ParEval", "3_x/serial")
    bench = load_references([str(tmp_path / "bench.jsonl.gz")])
    assert (m := bench.match(TASKS[0], "")) is not None
    assert (m.benchmark, m.task_id, m.method) == ("CUDABench", "3", "prompt")
    assert (m := bench.match("", KERNEL, code_of(KERNEL))) is not None
    assert m.method == "code"
    files = load_references([str(tmp_path / "tasks")])
    assert (m := files.match("", DRESSED)) is not None
    assert (m.benchmark, m.task_id) == ("tasks", "level1/1_gate.py")
    assert (m := files.match("", KERNEL, code_of(KERNEL))) is not None
    assert m.task_id == "level1/k.cu"


def test_dataset_of_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every split, when none is named: a benchmark keeps its levels in splits."""
    folder = tmp_path / "set"
    folder.mkdir()
    for level in (1, 2):
        write(folder / f"level_{level}-00000-of-00001.jsonl", [{"code": MODULE.replace("sigmoid", ("tanh", "relu")[level - 1]), "level": level, "problem_id": 4}])  # fmt: skip
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n"
        + "".join(f"  - split: level_{n}\n    path: level_{n}-00000-of-00001.jsonl\n" for n in (1, 2)) + "---\n"
    )  # fmt: skip
    monkeypatch.setattr(hub, "_location", lambda repository: str(folder))
    monkeypatch.setattr(hub, "_commit", lambda repository, revision: None)
    found = load_references(["hf://USER/KB"])
    assert found.tasks == (("KernelBench", "1/4"), ("KernelBench", "2/4"))
    assert (m := found.match("", MODULE.replace("sigmoid", "relu"))) is not None
    assert m.task_id == "2/4"
    monkeypatch.chdir(tmp_path)
    assert load_references(["USER/KB"]).tasks == found.tasks
    (tmp_path / "USER").mkdir()
    with pytest.raises(SourceError, match="--against USER/KB: is not there"):
        load_references(["USER/KB"])


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("other.jsonl", '{"foo": 1, "bar": "x"}\n', "none of its columns (bar, foo)"),
        ("empty.jsonl", "[1]\n[2]\n", "holds no rows"),
        ("broken.json", "{", "broken JSON"),
        ("set.docx", "x", "unknown kind of file"),
        ("empty", None, "holds no .jsonl"),
    ],
)
def test_unusable_benchmark_is_one_line(tmp_path: Path, name: str, content: str | None, says: str) -> None:
    path = tmp_path / name
    if content is None:
        path.mkdir()
    else:
        path.write_text(content)
    with pytest.raises(SourceError) as raised:
        load_references([str(path)])
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
    with pytest.raises(SourceError, match="is not there"):
        load_references([str(tmp_path / "nowhere.jsonl")])


@given(st.text(max_size=200) | st.from_regex(r"(class \w+[:(]\s*){1,9}", fullmatch=True))
@settings(max_examples=80, deadline=None)
def test_no_text_raises(text: str) -> None:
    for digest, name in class_hashes(text):
        assert len(digest) == 16
        assert name


def test_large_and_hostile_texts_are_quick() -> None:
    with processor_time(20):
        for text in (
            "class A" * 100_000,
            "class A:\n" + " " * 9 + "(" * 300_000,
            "class A:\n x = 1\n" * 40_000,
            "a b " * 200_000,
        ):
            list(class_hashes(text))


def test_the_name_of_a_task_is_one_line(tmp_path: Path) -> None:
    """It goes into details of refusals, and from there to terminals and tables."""
    file = tmp_path / "b.jsonl"
    file.write_text(json.dumps({"task_id": "a\n# b\r\n\u2028c", "prompt": "words"}))
    assert [task.id for task in load_tasks(str(file))] == ["a # b c"]
