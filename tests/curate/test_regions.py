"""Regions: which tokens they hold, the node around them, and that a build writes the same ones whatever came before."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import KERNEL, fenced, kernel, pair
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.align import paint, token_labels
from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.extract import extract_cuda
from curate.regions import NeutralMean, find_regions, region_id, region_rows, token_runs
from curate.schema import REGIONS
from curate.score import StubScorer
from curate.store import connect, read_part
from curate.syntax import label
from curate.taxonomy import Category, Location

Write = Callable[..., Path]


def sample(response: str, unsure: dict[str, float], token: str = r"\s*\w+|\s*[^\w\s]|\s+") -> pl.DataFrame:
    """A frame of one sample, tokens by a pattern, labelled as a build does; confidence 0.9 but for the tokens of
    `unsure`, which are compared without white space."""
    spans = [m.span() for m in re.finditer(token, response)]
    starts, ends = (np.array(x, np.int32) for x in zip(*spans, strict=True))
    blocks = extract_cuda(response)
    labels = token_labels(response, paint(len(response), [(b, label(b.text)) for b in blocks]), starts, ends)
    confidence = [unsure.get(response[a:b].strip(), 0.9) for a, b in spans]
    lists = {k: [pl.Series(v)] for k, v in vars(labels).items()}
    rows = [
        {
            **vars(b),
            "starts": None if b.starts is None else b.starts.tolist(),
            "ends": None if b.ends is None else b.ends.tolist(),
        }
        for b in blocks
    ]
    return pl.DataFrame({
        "row": [0], "sample_id": ["s"], "response": [response], "char_start": [starts.tolist()], "char_end": [ends.tolist()],
        "logprob": [pl.Series(np.log(confidence).astype(np.float16))], **lists, "blocks": [rows],
        **{name: pl.Series([None], dtype=pl.String) for name in ("stage", "reason", "detail")},
    })  # fmt: skip


def regions(frame: pl.DataFrame, mean: float = 0.5, gap: int = 2) -> list[dict[str, Any]]:
    found = find_regions(frame, mean, gap)
    assert found["reason"].null_count() == len(found), found["detail"].to_list()
    return region_rows(found).to_dicts()


def test_a_planted_region_and_its_node() -> None:
    response = fenced()
    (found,) = regions(sample(response, {"threadIdx": 0.25, "x": 0.75}))
    assert found["text"] == " threadIdx"
    assert response[found["node_start"] : found["node_end"]] == "threadIdx"
    assert (found["node_type"], found["tokens"]) == ("identifier", 1)
    assert found["category"] == Category.THREAD_INDEX
    assert found["location"] == Location.KERNEL
    assert found["mean_confidence"] == pytest.approx(0.25, abs=1e-3)
    assert found["region_id"] == region_id("s", found["first_token"])
    assert response[found["char_start"] : found["char_end"]] == found["text"]


def test_gaps_are_merged_up_to_the_limit() -> None:
    """`threadIdx . x`: the two names are unsure, the dot between is a gap of one."""
    frame = sample(fenced(KERNEL.replace("threadIdx.x;", "threadIdx.yy;")), {"threadIdx": 0.2, "yy": 0.4})
    (found,) = regions(frame)
    assert (found["text"], found["node_type"], found["tokens"]) == (" threadIdx.yy", "field_expression", 3)
    assert found["mean_confidence"] == pytest.approx((0.2 + 0.9 + 0.4) / 3, abs=1e-3)
    assert found["min_confidence"] == pytest.approx(0.2, abs=1e-3)
    assert [r["text"] for r in regions(frame, gap=0)] == [" threadIdx", "yy"]


def test_a_token_at_the_mean_and_a_neutral_one_are_in_no_region() -> None:
    frame = sample(fenced(), {"threadIdx": 0.5, "float": 0.1, "Here": 0.1})
    assert regions(frame, mean=float(np.exp(np.float64(np.float16(np.log(0.5)))))) == []
    assert len(regions(frame, mean=0.51)) == 1


def test_no_region_crosses_from_one_block_into_the_next() -> None:
    unsure = {"__global__": 0.1, "}": 0.1, "__syncthreads": 0.1, "(": 0.1, ")": 0.1, ";": 0.1}
    response = "```cuda\n__global__ void k() { __syncthreads();}\n```\n\n```cuda\n__global__ void l() {}\n```\n"
    texts = [r["text"].strip() for r in regions(sample(response, unsure), gap=50)]
    assert len(texts) == 2
    assert texts[0].startswith("__global__ void k")
    assert texts[1].startswith("__global__")


def test_a_region_in_an_escaped_python_string() -> None:
    """Nodes are found in the code without its escapes, and told in the response's characters."""
    code = "__global__ void k(float *é) {\\n\\t\\tint i = blockIdx.x * 4 +\\n\\tthreadIdx.x;\\n\\té[i] = 0; }\\n"
    response = f'```python\nimport torch\nsrc = "{code}"\nm = load_inline("m", "", src)\n```\n'
    (found,) = regions(sample(response, {"threadIdx": 0.1, "tthreadIdx": 0.1, "blockIdx": 0.1}), gap=9)
    assert found["node_type"] == "binary_expression"
    assert response[found["node_start"] : found["node_end"]] == "blockIdx.x * 4 +\\n\\tthreadIdx.x"
    assert found["text"] == " blockIdx.x * 4 +\\n\\tthreadIdx"


def test_a_node_that_ends_in_an_escape_has_all_of_it() -> None:
    """`\\x78` spells `x`: one character of the code, four of the response."""
    code = "__global__ void k(float *p) { p[threadIdx.\\x78] = 0; }\\n"
    response = f'```python\nimport torch\nsrc = "{code}"\nm = load_inline("m", "", src)\n```\n'
    (found,) = regions(sample(response, {"threadIdx": 0.1, "x78": 0.1}))
    assert response[found["node_start"] : found["node_end"]] == r"threadIdx.\x78"
    assert found["node_type"] == "field_expression"


def test_the_majority_names_category_and_location() -> None:
    frame = sample(fenced(), {"<": 0.1, "grid": 0.1, ",": 0.1, "block": 0.1, ">": 0.1})
    launch = next(r for r in regions(frame) if "<<<" in r["text"])
    assert (launch["category"], launch["location"]) == (Category.LAUNCH, Location.LAUNCH)
    assert (launch["text"], launch["node_type"]) == ("<<<grid, block>>>", "kernel_call_syntax")


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2)), max_size=60), st.integers(0, 4))
def test_runs_are_maximal_and_hold_every_low_token(tokens: list[tuple[bool, int]], gap: int) -> None:
    low = np.array([t[0] for t in tokens], bool)
    group = np.sort(np.array([t[1] for t in tokens], np.int64))
    runs = token_runs(low, group, gap)
    covered = {i for a, b in runs for i in range(a, b + 1)}
    assert set(np.flatnonzero(low).tolist()) <= covered
    for a, b in runs:
        assert low[a]
        assert low[b]
        assert group[a] == group[b]
        longest = max((len(g) for g in "".join("x" if x else " " for x in low[a : b + 1]).split("x")), default=0)
        assert longest <= gap
    for (_, b), (a, _) in itertools.pairwise(runs):
        assert a - b - 1 > gap or group[a] != group[b]


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([KERNEL, "#define T threadIdx.x\n__global__ void é(int *p) { p[T] = __launch_bounds__(3); 🙂 }\n"]),
    st.sampled_from([r"[\s\S]", r"[\s\S]{1,3}", r"[\s\S]{1,9}", r"\s*\w+|\W"]),
    st.integers(0, 5),
    st.randoms(use_true_random=False),
)
def test_spans_hold_for_any_tokens(code: str, token: str, gap: int, random: Any) -> None:
    response = fenced(code)
    frame = sample(response, {}, token)
    starts, ends = frame["char_start"][0].to_list(), frame["char_end"][0].to_list()
    values = [random.random() + 1e-3 for _ in starts]
    frame = frame.with_columns(logprob=pl.Series([pl.Series(np.log(values).astype(np.float16))]))
    chosen = set()
    for r in regions(frame, 0.5, gap):
        assert (r["char_start"], r["char_end"]) == (starts[r["first_token"]], ends[r["last_token"]])
        assert r["tokens"] == r["last_token"] - r["first_token"] + 1
        assert r["min_confidence"] <= r["mean_confidence"]
        assert r["min_confidence"] < 0.5
        assert r["category"] > 0
        block = frame["blocks"][0][0]
        first = max(r["char_start"] + len(r["text"]) - len(r["text"].lstrip()), block["start"])
        last = min(r["char_start"] + len(r["text"].rstrip()), block["end"])
        if r["text"].strip() and first < last:
            assert r["node_start"] <= first < last <= r["node_end"]
        chosen |= set(range(r["first_token"], r["last_token"] + 1))
    low = [
        i
        for i, (v, c, k) in enumerate(
            zip(
                np.exp(frame["logprob"][0].to_numpy().astype(float)),
                frame["category"][0],
                frame["in_code"][0],
                strict=True,
            )
        )
        if v < 0.5 and c and k
    ]
    assert set(low) <= chosen


def test_the_neutral_mean_is_exact_whatever_the_shards() -> None:
    random = np.random.default_rng(0)
    logprob = np.log(random.beta(2, 0.6, 5000)).astype(np.float16)
    category, in_code = random.integers(0, 3, 5000), random.random(5000) < 0.7
    means = []
    for size in (7, 100, 5000):
        mean = NeutralMean()
        cuts = [slice(i, i + size) for i in range(0, 5000, size)]
        order = random.permutation(len(cuts))
        for part in (cuts[i] for i in order):
            lists = {"logprob": logprob[part], "category": category[part].astype(np.uint8), "in_code": in_code[part]}
            mean.add(pl.DataFrame({k: [pl.Series(v)] for k, v in lists.items()}))
        means.append(mean.value)
        assert mean.tokens == ((category == 0) & in_code).sum()
    chosen = logprob[(category == 0) & in_code].astype(float)
    assert means[0] == means[1] == means[2]
    assert means[0] == pytest.approx(math.fsum(map(math.exp, chosen)) / len(chosen), rel=1e-15)
    assert NeutralMean().value is None


def build(model: Path, out: Path, source: Path, **more: Any) -> dict[str, Any]:
    settings = BuildConfig(source=(str(source),), out=out, model=str(model), **{"jobs": 1, "shard_rows": 3, **more})
    return build_dataset(settings, None if more.get("skip_scoring") else StubScorer())


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.name != "build.log.json"
    }


def test_a_build_writes_the_regions_of_its_samples(tmp_path: Path, model_folder: Path, write_rows: Write) -> None:
    out = tmp_path / "out"
    manifest = build(model_folder, out, write_rows([*(pair(n) for n in range(7)), pair(1), "{"]))
    frame = pl.concat(read_part(p) for p in sorted((out / "regions").iterdir()))
    assert frame.columns == [c.name for c in REGIONS]
    assert manifest["regions"]["found"] == len(frame) > 7
    assert manifest["regions"]["failed"] == 0
    assert frame["region_id"].n_unique() == len(frame)
    connection = connect(out)
    query = "select avg(confidence), count(*) from tokens where in_code and not sensitive"
    mean, count = connection.execute(query).fetchone()
    assert manifest["regions"]["neutral_mean"] == pytest.approx(mean, rel=1e-6)
    assert manifest["regions"]["neutral_tokens"] == count
    query = """
        select count(*) filter (r.region_id is null), count(distinct region_id), count(distinct (sample_id, pos))
        from (from tokens where in_code and sensitive and confidence < $mean) t
        left join regions r on r.sample_id = t.sample_id and t.pos between r.first_token and r.last_token
    """
    sure = connection.execute(query.replace("sample_id, pos", "t.sample_id, pos"), {"mean": mean}).fetchone()
    assert sure[:2] == (0, len(frame))
    names = {row[0] for row in connection.execute("select distinct category from regions").fetchall()}
    assert "thread_index" in names
    assert names <= {c.name.lower() for c in Category}


@pytest.mark.parametrize("change", [{}, {"region_gap": 0}, {"tau": 0.3}, {"max_length": 400}, {"jobs": 2}])
def test_a_changed_build_ends_as_a_fresh_one(
    tmp_path: Path, model_folder: Path, write_rows: Write, change: dict[str, Any]
) -> None:
    source = write_rows([pair(n, "".join(kernel(n + 50 * m) for m in range(1 + n % 2))) for n in range(7)])
    first = build(model_folder, tmp_path / "out", source)
    second = build(model_folder, tmp_path / "out", source, **change)
    build(model_folder, tmp_path / "fresh", source, **change)
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")
    if "max_length" in change:  # other samples, another mean: every part of the regions must follow
        assert 0 < second["counts"]["accepted"] < first["counts"]["accepted"]
        assert second["regions"]["neutral_mean"] != first["regions"]["neutral_mean"]
    if "region_gap" in change:
        assert second["regions"]["found"] > first["regions"]["found"]


def test_a_build_killed_among_its_regions_ends_as_a_whole_one(
    tmp_path: Path, model_folder: Path, write_rows: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    from curate import regions

    source = write_rows([pair(n) for n in range(7)])
    whole, calls = regions.find_regions, []

    def stops(*args: Any, **more: Any) -> pl.DataFrame:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(*args, **more)

    monkeypatch.setattr(regions, "find_regions", stops)
    with pytest.raises(KeyboardInterrupt):
        build(model_folder, tmp_path / "halted", source)
    monkeypatch.undo()
    assert not (tmp_path / "halted" / "manifest.json").exists()
    build(model_folder, tmp_path / "halted", source)
    build(model_folder, tmp_path / "whole", source)
    assert contents(tmp_path / "halted") == contents(tmp_path / "whole")


def test_without_scores_the_table_is_empty(tmp_path: Path, model_folder: Path, write_rows: Write) -> None:
    manifest = build(model_folder, tmp_path / "out", write_rows([pair(1)]), skip_scoring=True)
    assert manifest["regions"] == {"neutral_mean": None, "neutral_tokens": 0, "found": 0, "failed": 0}
    assert connect(tmp_path / "out").execute("select count(*) from regions").fetchone() == (0,)
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["findings"] is None
