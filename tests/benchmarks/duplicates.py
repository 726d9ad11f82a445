"""Near-duplicates in 20,000 documents of 2 kB with 4,000 planted copies: found, CPU seconds, memory; beside datatrove.

datatrove runs in an environment of its own, named by CUSET_DATATROVE (a Python with
`pip install 'datatrove[processing]' orjson spacy`).
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from tests.benchmarks.figures import Figure

__all__ = ["corpus", "measure"]

DOCUMENTS, COPIES = 20_000, 4_000
_BATCH = 1000
_NAMES = (
    *("data", "index", "value", "total", "left", "right", "count", "limit", "weight", "offset"),
    *("result", "stride", "buffer", "cell", "input", "output", "scale", "bias", "row", "column"),
    *("depth", "width", "height", "first", "last", "step", "level", "sample", "state", "delta"),
    *("alpha", "beta", "gamma", "theta", "node", "edge", "link", "slot", "mark"),
)
_CALLS = ("sqrtf", "expf", "fabsf", "sinf", "cosf", "logf", "tanhf", "rsqrtf")


def corpus(documents: int = DOCUMENTS, copies: int = COPIES, seed: int = 7) -> Iterator[tuple[int, int | None, str]]:
    """(number, number of the original that it copies, code), `copies` of them reformatted and renamed, one a cluster."""
    rng = random.Random(seed)
    sources = rng.sample(range(documents - copies), copies)
    originals: dict[int, str] = {}
    wanted = set(sources)
    for number in range(documents - copies):
        code = _document(rng)
        if number in wanted:
            originals[number] = code
        yield number, None, code
    for n, source in enumerate(sources):
        yield documents - copies + n, source, _copy(originals[source], rng, edited=n % 2 == 1)


def _document(rng: random.Random) -> str:
    names = [f"{a}_{rng.randrange(100)}" for a in rng.sample(_NAMES, 15)]
    x, y, n, i, *others = names
    lines = [
        f"__global__ void {others[0]}(const float *{x}, float *{y}, int {n}) {{",
        f"    int {i} = blockIdx.x * blockDim.x + threadIdx.x;",
        f"    if ({i} >= {n}) return;  // nothing left",
    ]
    known = [x]
    for name in others[1:]:
        a, b = rng.choice(known), rng.choice(known)
        a, b = (f"{v}[{i} {rng.choice('+-*')} {rng.randrange(64)}]" if v == x else v for v in (a, b))
        lines.append(f"    float {name} = {rng.choice(_CALLS)}({a} {rng.choice('+-*/')} {rng.randrange(1000) / 8}f);")
        lines.append(
            f"    for (int k = 0; k < {rng.randrange(2, 99)}; ++k) {name} {rng.choice('+-*')}= {b} {rng.choice('+-*/')} k;"
        )
        lines.append(
            f"    {y}[{i}] {rng.choice('+-*')}= {name} {rng.choice('+-*/')} {rng.choice(known[1:] or [name])};"
        )
        known.append(name)
    lines += [
        "}", "", f"void run(float *{x}, float *{y}, int {n}) {{",
        f"    {others[0]}<<<({n} + {32 * rng.randrange(1, 33)} - 1) / 256, {32 * rng.randrange(1, 33)}>>>({x}, {y}, {n});",
        "    cudaDeviceSynchronize();", "}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _copy(code: str, rng: random.Random, edited: bool) -> str:
    """Other names, other white space, other comments; and in half of them one number of the launch."""
    old = sorted(set(re.findall(r"\b[a-z]+_\d+\b", code)))
    names = {name: f"{word}_{rng.randrange(100)}" for name, word in zip(old, rng.sample(_NAMES, len(old)), strict=True)}
    code = re.sub(r"\b[a-z]+_\d+\b", lambda m: names[m[0]], code)
    if edited:
        code = re.sub(r"(\d+)>>>", lambda m: f"{int(m[1]) + 32}>>>", code)
    return "// a copy\n" + code.replace("    ", "\t").replace(") {", ")\n{").replace(
        "  // nothing left", "\n\t/* done */"
    )


def _frame(rows: list[tuple[int, str]], seconds: dict[str, float]) -> pl.DataFrame:
    from curate.duplicates import FINGERPRINT
    from curate.duplicates.fingerprint import fingerprint_tokens
    from curate.duplicates.tokens import code_tokens
    from curate.syntax import label_parsed, parse_cuda

    began = time.process_time()
    parsed = [parse_cuda(code) for _, code in rows]
    blocks = [[(p, label_parsed(p))] for p in parsed]
    middle = time.process_time()
    tokens = [code_tokens(b) for b in blocks]
    walked = time.process_time()
    prints = [fingerprint_tokens(t) for t in tokens]
    ended = time.process_time()
    seconds["parse"] += middle - began
    seconds["walk"] += walked - middle
    seconds["sign"] += ended - walked
    return pl.DataFrame(
        [{"row": n, "sample_id": f"{n:08d}", "code_bytes": len(code), **vars(p)} for (n, code), p in zip(rows, prints, strict=True)],
        {"row": pl.Int64(), "sample_id": pl.String(), "code_bytes": pl.Int64(), **FINGERPRINT},
    ).with_columns(compile_status=pl.lit(None, pl.String), error_share=pl.lit(0.0), license=pl.lit("MIT"))  # fmt: skip


def _work(folder: Path) -> dict[str, float]:
    """Runs in a process of its own, so that its peak memory is nobody else's."""
    from curate.duplicates import find_duplicates

    seconds = {"parse": 0.0, "walk": 0.0, "sign": 0.0}
    planted: dict[int, int] = {}
    size, paths = 0, []
    batch: list[tuple[int, str]] = []

    def flush() -> None:
        paths.append(folder / f"{len(paths)}.parquet")
        _frame(batch, seconds).write_parquet(paths[-1])
        batch.clear()

    for number, source, code in corpus():
        size += len(code)
        if source is not None:
            planted[number] = source
        batch.append((number, code))
        if len(batch) == _BATCH:
            flush()
    if batch:
        flush()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    database = folder / "index.duckdb"
    found = pl.concat(find_duplicates((pl.read_parquet(p) for p in paths), database))
    seconds["search"] = time.process_time() - began
    clusters = {frozenset(pair) for pair in found.select("row", "kept_row").iter_rows()}
    return {
        **seconds,
        "found": len(clusters & {frozenset(pair) for pair in planted.items()}),
        "others": len(clusters - {frozenset(pair) for pair in planted.items()}),
        "memory": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        "index": (database.stat().st_size + database.with_suffix(".sketches").stat().st_size) / 2**20,
        "kilobytes": size / DOCUMENTS / 1000,
    }


_DATATROVE = """
import json, resource, sys, time
from pathlib import Path
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers.jsonl import JsonlWriter
from loguru import logger
logger.remove()
root = Path(sys.argv[1])
config = MinhashConfig(num_buckets=40, hashes_per_bucket=8, n_grams=7)
steps = [
    ([JsonlReader(str(root / "in")), MinhashDedupSignature(str(root / "sig"), config=config)], 1),
    ([MinhashDedupBuckets(str(root / "sig"), str(root / "buckets"), config=config)], 40),
    ([MinhashDedupCluster(str(root / "buckets"), str(root / "ids"), config=config)], 1),
    ([JsonlReader(str(root / "in")), MinhashDedupFilter(str(root / "ids")), JsonlWriter(str(root / "out"), compression=None)], 1),
]
for n, (pipeline, tasks) in enumerate(steps):
    LocalPipelineExecutor(pipeline=pipeline, tasks=tasks, workers=1, logging_dir=str(root / f"log{n}"), skip_completed=False).run()
used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
kept = {json.loads(line)["id"] for file in (root / "out").glob("*.jsonl") for line in file.open()}
print(json.dumps({"cpu": sum(u.ru_utime + u.ru_stime for u in used), "kept": sorted(kept)}))
"""


def _datatrove(python: str, folder: Path) -> Figure:
    """The same documents as texts, with the same bands: what a general framework sees is the text."""
    (folder / "in").mkdir(parents=True)
    planted = {}
    with (folder / "in" / "rows.jsonl").open("w") as file:
        for number, source, code in corpus():
            file.write(json.dumps({"id": str(number), "text": code}) + "\n")
            if source is not None:
                planted[number] = source
    done = subprocess.run([python, "-c", _DATATROVE, str(folder)], capture_output=True, text=True, timeout=1800)
    if done.returncode:
        return Figure("datatrove", 0.0, "s", f"failed: {done.stderr.strip().splitlines()[-1][:80]}")
    result = json.loads(done.stdout.strip().splitlines()[-1])
    kept = {int(n) for n in result["kept"]}
    found = sum(not (copy in kept and source in kept) for copy, source in planted.items())
    return Figure(
        "datatrove, on the texts",
        result["cpu"],
        "CPU s",
        f"{found} of {len(planted)} copies, {DOCUMENTS - len(kept)} rows dropped",
    )


def measure() -> list[Figure]:
    """CPU seconds of one process; the parse is what labels need in any case."""
    with tempfile.TemporaryDirectory() as temporary:
        script = f"import json, pathlib, tests.benchmarks.duplicates as d; print(json.dumps(d._work(pathlib.Path({temporary!r}))))"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        f = json.loads(done.stdout)
        figures = [
            Figure("planted copies found", f["found"], f"of {COPIES}", f"{f['others']:.0f} other pairs; {DOCUMENTS} documents of {f['kilobytes']:.1f} kB"),
            Figure("near-duplicate stage", f["sign"] + f["search"], "CPU s", f"signatures {f['sign']:.1f}, index and clusters {f['search']:.1f}"),
            Figure("before it: parse and labels", f["parse"], "CPU s", f"tokens off the tree {f['walk']:.1f} s more"),
            Figure("peak memory of the search", f["memory"], "MiB", f"beyond the process before; on disk {f['index']:.0f} MiB"),
        ]  # fmt: skip
        python = os.environ.get("CUSET_DATATROVE")
        if python:
            figures.append(_datatrove(python, Path(temporary) / "datatrove"))
        else:
            figures.append(
                Figure(
                    "datatrove",
                    0.0,
                    "s",
                    "not run: set CUSET_DATATROVE to a Python that has it (the module's docstring says how)",
                )
            )
    return figures
