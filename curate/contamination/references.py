"""Benchmarks that a corpus is compared with, and the comparison of one row."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from curate.contamination.benchmarks import Task, load_tasks
from curate.contamination.classes import class_hashes
from curate.contamination.words import LEAST, ngrams
from curate.duplicates import THRESHOLD, Fingerprint, fingerprint, similarity
from curate.extract import extract_cuda
from curate.syntax import label_parsed, parse_cuda

__all__ = ["OVERLAP", "Match", "References", "load_references"]

OVERLAP = 0.5
"""The share of a task's own n-grams in a row from which on the row counts as contaminated."""
_TEMPLATE_TASKS, _TEMPLATE_SHARE = 3, 0.02
_SHOWN = 300


@dataclass(frozen=True)
class Match:
    """Why a row is contaminated.

    `method`: class (a Python class of the task, equal but for docstrings, comments, layout and class names), code (CUDA
    that is a near-duplicate of the task's, `score` its similarity) or prompt (`score` the share of the task's own
    n-grams). `evidence`: the class's name in the row, or the longest passage of shared words.
    """

    benchmark: str
    task_id: str
    method: str
    score: float
    evidence: str


@dataclass(frozen=True)
class References:
    """Tasks by what gives them away. Pickles; memory grows with the benchmarks (about 15 kB a task), not the corpus."""

    tasks: tuple[tuple[str, str], ...]
    """(benchmark, task id)"""
    grams: dict[int, tuple[int, ...]]
    """Tasks by the hash of an n-gram of their own; templates of the benchmark are left out."""
    sizes: dict[int, int]
    """Own n-grams of a task."""
    classes: dict[bytes, int]
    prints: tuple[tuple[int, Fingerprint], ...]
    bands: dict[int, tuple[int, ...]]
    """Places in `prints` by band hash."""

    def identity(self) -> dict[str, object]:
        """What the manifest says of them: tasks by benchmark, and a hash of what rows are compared with."""
        content = [self.tasks, sorted(self.grams), sorted(self.sizes.items()), sorted(self.classes.items())]
        digest = hashlib.sha256(repr([*content, [p.code_hash for _, p in self.prints]]).encode()).hexdigest()
        return {"tasks": dict(sorted(Counter(benchmark for benchmark, _ in self.tasks).items())), "sha256": digest}

    def match(
        self, prompt: str, response: str, code: Fingerprint | None = None, threshold: float = THRESHOLD
    ) -> Match | None:
        """The strongest match of a row, or None. `code` is the fingerprint of the row's CUDA. Never raises; linear."""
        found = [*self._classes(prompt), *self._classes(response), *self._code(code, threshold)]
        found += self._prompts(f"{prompt}\n{response}")
        return max(found, key=lambda match: (match.score, match.method, match.benchmark, match.task_id), default=None)

    def _classes(self, text: str) -> Iterable[Match]:
        for digest, name in class_hashes(text) if self.classes else ():
            if (task := self.classes.get(digest)) is not None:
                yield Match(*self.tasks[task], "class", 1.0, f"class {name}")

    def _code(self, code: Fingerprint | None, threshold: float) -> Iterable[Match]:
        if code is None or not self.prints:
            return
        places = {p for band in np.frombuffer(code.bands, "<u8").tolist() for p in self.bands.get(band, ())}
        for place in sorted(places):
            task, reference = self.prints[place]
            score = similarity(code, reference)
            if score >= threshold:
                same = "the same code" if score == 1.0 else f"code {score:.0%} alike"
                yield Match(*self.tasks[task], "code", score, same)

    def _prompts(self, text: str) -> Iterable[Match]:
        if not self.grams:
            return
        found = dict(ngrams(text, self.grams))
        hits = Counter(task for value in found for task in self.grams[value])
        for task, count in hits.items():
            size = self.sizes[task]
            if size >= LEAST and count / size >= OVERLAP:
                evidence = _passage([gram for value, gram in found.items() if task in self.grams[value]])
                yield Match(*self.tasks[task], "prompt", count / size, evidence)


def _passage(grams: list[str]) -> str:
    """The longest run of overlapping n-grams as one text, in the order of the row."""
    best: list[str] = []
    run: list[str] = []
    for gram in grams:
        parts = gram.split(" ")
        run = [*run, parts[-1]] if run[1 - len(parts) :] == parts[:-1] else parts
        best = max(best, run, key=len)
        if len(best) >= _SHOWN:
            break
    return " ".join(best)[:_SHOWN]


def _sizes(grams: dict[int, tuple[int, ...]]) -> dict[int, int]:
    return dict(Counter(task for tasks in grams.values() for task in tasks))


def load_references(specs: Sequence[str]) -> References:
    """The benchmarks that `specs` name (`curate.contamination.benchmarks.load_tasks`), ready to compare rows with.

    An n-gram that stands in at least 3 tasks of a benchmark and in 2 % of them is its template ("The signature of the
    function is ...") and counts for none; tasks of one group count once. Raises SourceError.
    """
    return _prepared([task for spec in specs for task in load_tasks(spec)])


def _prepared(tasks: Sequence[Task]) -> References:
    groups: dict[str, set[str]] = defaultdict(set)
    holders: dict[int, set[tuple[str, str]]] = defaultdict(set)
    owners: dict[int, set[int]] = defaultdict(set)
    classes: dict[bytes, int] = {}
    prints: list[tuple[int, Fingerprint]] = []
    for number, task in enumerate(tasks):
        groups[task.benchmark].add(task.group)
        for value, _ in ngrams("\n".join(task.prompts)):
            holders[value].add((task.benchmark, task.group))
            owners[value].add(number)
        for text in (*task.code, *task.prompts):
            for digest, _ in class_hashes(text):
                classes.setdefault(digest, number)
        for text in task.code:
            parsed = [parse_cuda(block.text) for block in extract_cuda(text)]
            labels = [label_parsed(p) for p in parsed]
            known = fingerprint(list(zip(parsed, labels, strict=True))) if any(x.kernels for x in labels) else None
            if known is not None:
                prints.append((number, known))
    limits = {name: max(_TEMPLATE_TASKS, _TEMPLATE_SHARE * len(found)) for name, found in groups.items()}
    grams: dict[int, tuple[int, ...]] = {}
    for value, held in holders.items():
        per = Counter(benchmark for benchmark, _ in held)
        own = tuple(n for n in sorted(owners[value]) if per[tasks[n].benchmark] < limits[tasks[n].benchmark])
        if own:
            grams[value] = own
    bands: dict[int, list[int]] = defaultdict(list)
    for place, (_, known) in enumerate(prints):
        for band in np.frombuffer(known.bands, "<u8").tolist():
            bands[band].append(place)
    return References(
        tuple((task.benchmark, task.id) for task in tasks),
        grams,
        _sizes(grams),
        classes,
        tuple(prints),
        {band: tuple(places) for band, places in bands.items()},
    )
