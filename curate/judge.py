"""The second pass of a build: which of the measured rows go on, which are refused or marked, and why.

    filters on what was measured -> compile -> compare with benchmarks -> execute -> compare with each other

Copies come last, so that no row is refused for the sake of one that is refused itself.

Judged anew in every build: what takes long (compiling, executing) has a cache of results by content. The verdicts of a
shard lie in a file of their own beside the measured rows; in memory are the copies alone.
"""

from __future__ import annotations

import logging
import shutil
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from curate.compiling import NO_COMPILER, CompileResult, CompileSettings, check_all, compilable_texts
from curate.config import BuildConfig
from curate.contamination import References
from curate.copies import Copy, find_copies, judge_copies
from curate.duplicates import FINGERPRINT, Fingerprint
from curate.executing import Runner
from curate.filters import FILTERS, actions
from curate.frames import each_row, flag, refuse
from curate.measure import code_blocks
from curate.pool import cores, in_order
from curate.progress import Reporter
from curate.stages import JUDGED_EARLY, run_filters
from curate.store import part_files, read_part, write_frame
from curate.tokens import Encoder, Untokenisable

__all__ = ["COMPILED", "Judge", "judged"]

Numbered = tuple[int, pl.DataFrame]

_log = logging.getLogger(__name__)

COMPILED: dict[str, pl.DataType] = {
    "compile_status": pl.String(), "compile_engine": pl.String(), "compile_arch": pl.String(),
    "compile_log": pl.String(), "registers": pl.List(pl.Int32()), "shared_bytes": pl.List(pl.Int32()),
    "spill_bytes": pl.List(pl.Int32()),
}  # fmt: skip
_VERDICT = ("row", "stage", "reason", "detail", "evidence", "flags", *COMPILED, "execute_status", "execute_output")
_ROUNDS = 8
"""Searches for copies at most; a second one is needed where the kept one of some copies is refused by the tokeniser."""


class Judge:
    """Judges the shards of a parse pass in `parsed`; verdicts and caches go into `folder`."""

    def __init__(
        self, config: BuildConfig, references: References | None, encoder: Encoder, parsed: Path, folder: Path
    ) -> None:
        self.config, self.references, self.encoder = config, references, encoder
        self.parsed, self.folder = part_files(parsed), folder
        self.verdicts = folder / "verdicts"
        self.left = 0
        """Rows that go on."""
        self.uncompiled = 0
        self.executed: Counter[str] = Counter()

    def run(self, reporter: Reporter) -> None:
        """Writes the verdicts of every shard."""
        shutil.rmtree(self.verdicts, ignore_errors=True)
        self.verdicts.mkdir(parents=True)
        shards: Iterable[Numbered] = self._filtered()
        if self.config.compile:
            shards = self._compiled(shards)
        if self.references is not None:
            jobs = self.config.jobs or cores()
            shards = in_order(partial(_match, self.references, self.config), iter(shards), jobs)
        for number, frame in shards:
            if self.config.execute is not None:
                frame = self._executed(self.parsed[number], frame)
            write_frame(frame.select(_VERDICT), self._path(number))
            reporter.advance(rows=len(frame))
        if self.uncompiled:
            _log.warning(
                "%d answers were not compiled: there is no nvcc on the PATH, and NVRTC (the extra `compile`) is not"
                " installed or cannot be loaded; --no-compile builds without, and without this line",
                self.uncompiled,
            )
        if self.executed and not self.executed["pass"]:
            _log.warning(
                "--execute: none of %d programs passed; if the command is at fault, correct it and build into"
                " another folder (python -m curate.inspect OUT ID shows what it said)",
                self.executed.total(),
            )
        self._find_copies()

    def verdict(self, number: int) -> pl.DataFrame:
        """A shard's verdicts, a row each."""
        return read_part(self._path(number))

    def apply(self, number: int, frame: pl.DataFrame) -> pl.DataFrame:
        """The measured rows of a shard with their verdicts."""
        return judged(frame, self.verdict(number))

    def _path(self, number: int) -> Path:
        return self.verdicts / f"{number:06d}.parquet"

    def _filtered(self) -> Iterator[Numbered]:
        early = {name for f in FILTERS if f.after in JUDGED_EARLY for name in f.needs}
        columns = {"row", "stage", "reason", "detail", "flags", *early}
        if self.config.compile:
            columns |= {"response", "blocks", "kernel_names"}
        if self.references is not None:
            columns |= {"prompt", "response", *FINGERPRINT}
        nothing = [pl.lit(None, dtype).alias(name) for name, dtype in COMPILED.items()]
        text = [pl.lit(None, pl.String).alias(name) for name in ("evidence", "execute_status", "execute_output")]
        for number, path in enumerate(self.parsed):
            frame = read_part(path, columns=sorted(columns)).with_columns(*nothing, *text)
            yield number, run_filters(JUDGED_EARLY, frame, self.config)

    def _compiled(self, shards: Iterable[Numbered]) -> Iterator[Numbered]:
        """Compiles what stands; several answers at a time, over the borders of shards."""
        archs = tuple(dict.fromkeys(self.config.arch)) or ("sm_90",)
        settings = CompileSettings(archs=archs, seconds=self.config.compile_seconds)
        waiting: deque[Numbered] = deque()

        def sources() -> Iterator[tuple[int, list[str]]]:
            for number, frame in shards:
                waiting.append((number, frame))
                standing = frame.filter(pl.col("reason").is_null()).select("row", "response", "blocks")
                for row in standing.iter_rows(named=True):
                    yield row["row"], compilable_texts(row["response"], code_blocks(row))

        found: dict[int, CompileResult] = {}
        for row, result in check_all(sources(), settings, self.folder, self.config.jobs or cores()):
            while row not in waiting[0][1]["row"]:
                yield self._with_results(*waiting.popleft(), found)
            found[row] = result
        while waiting:
            yield self._with_results(*waiting.popleft(), found)

    def _with_results(self, number: int, frame: pl.DataFrame, found: dict[int, CompileResult]) -> Numbered:
        """The frame with the columns of COMPILED, taken out of `found`, and judged by them."""

        def compute(row: dict[str, Any]) -> dict[str, Any] | None:
            result = found.pop(row["row"], None)
            if result is None:
                return None
            self.uncompiled += result.log.startswith(NO_COMPILER)
            return {
                "compile_status": result.status, "compile_engine": result.engine, "compile_arch": result.arch,
                "compile_log": result.log, **result.parallel_to(row["kernel_names"]),
            }  # fmt: skip

        frame = each_row(frame, "compile", ["kernel_names"], compute, COMPILED)
        return number, run_filters(["compile"], frame.with_columns(evidence="compile_log"), self.config)

    # -- all rows at once -------------------------------------------------------------------------------------------

    def _find_copies(self) -> None:
        """Refuses or marks the worse rows of each group of alike ones, and any second row of one sample_id."""
        copies = self._copies()
        seen: dict[str, int] = {}
        for number, path in enumerate(self.parsed):
            frame = self.verdict(number).with_columns(read_part(path, columns=["sample_id"])["sample_id"])
            frame = judge_copies(frame, copies, self.config, seen)
            write_frame(frame.select(_VERDICT), self._path(number))
            self.left += frame["reason"].null_count()
        for path in self.folder.glob("bands.*"):
            path.unlink()

    def _copies(self) -> dict[int, Copy]:
        """The row that each copy is one of.

        Rows that the tokeniser will refuse are not compared, so that they take no copy along. Tokens are counted for
        those alone that others were found to be copies of and, where one of these is refused, for its copies. A build
        of some of the rows (`--shards`) leaves to `curate.merge` what is up to all rows: near-duplicates, and copies of
        one shape where it matters whether they are renamed.
        """
        chosen = actions(self.config.filter)
        if self.config.shards is not None and chosen["same_code"] != chosen["renamed_code"]:
            return {}
        database = self.folder / "bands.duckdb"
        threshold = self.config.near_duplicate if self.config.shards is None else None
        counted: set[int] = set()
        left_out: set[int] = set()
        for _ in range(_ROUNDS):
            copies = find_copies(self._standing(left_out), database, threshold)
            kept = {kept_row for kept_row, *_ in copies.values()} - counted
            refused = self._refused_later(kept)
            if not refused:
                break
            theirs = {row for row, (kept_row, *_) in copies.items() if kept_row in refused} - counted
            left_out |= refused | self._refused_later(theirs)
            counted |= kept | theirs
        return copies

    def _refused_later(self, rows: set[int]) -> set[int]:
        """Those of the rows that are no sample or too long a one."""
        found = set()
        limit = self.config.max_length if actions(self.config.filter)["too_long"] == "refuse" else None
        for number in sorted({self.config.part_of(row) for row in rows}):
            frame = read_part(self.parsed[number], columns=["row", "messages", "blocks"])
            for row in frame.filter(pl.col("row").is_in(rows)).iter_rows(named=True):
                try:
                    tokens = len(self.encoder.encode(row["messages"], code_blocks(row)).input_ids)
                except Untokenisable:
                    found.add(row["row"])
                else:
                    if limit is not None and tokens > limit:
                        found.add(row["row"])
        return found

    def _standing(self, left_out: Collection[int]) -> Iterator[pl.DataFrame]:
        columns = ["row", "sample_id", "error_share", "license", "code_chars", *FINGERPRINT]
        for number, path in enumerate(self.parsed):
            verdict = self.verdict(number).filter(pl.col("reason").is_null()).select("row", "compile_status")
            frame = read_part(path, columns=columns).rename({"code_chars": "code_bytes"})
            yield frame.filter(~pl.col("row").is_in(left_out)).join(
                verdict, on="row", how="inner", maintain_order="left"
            )

    def _executed(self, path: Path, frame: pl.DataFrame) -> pl.DataFrame:
        """Runs the complete programs of the rows that stand, one after the other, and judges by what they come to."""
        assert self.config.execute is not None
        runner = Runner(self.config.execute, self.config.execute_seconds, self.folder / "executed")
        texts = read_part(path, columns=["row", "blocks", "has_main"])
        frame = frame.join(texts, on="row", how="left", maintain_order="left")

        def compute(row: dict[str, Any]) -> dict[str, Any] | None:
            programs = [b["text"] for b, main in zip(row["blocks"], row["has_main"], strict=True) if main]
            if len(programs) != 1:
                return None
            result = runner.run(programs[0])
            self.executed[result.status] += 1
            said = f"exit code {result.exit_code}\n" if result.status == "fail" else ""
            return {"execute_status": result.status, "execute_output": said + result.output_tail}

        columns: dict[str, pl.DataType] = {"execute_status": pl.String(), "execute_output": pl.String()}
        frame = each_row(frame, "execute", ["blocks", "has_main"], compute, columns)
        frame = frame.with_columns(evidence=pl.coalesce("execute_output", "evidence"))
        return run_filters(["execute"], frame, self.config)


def judged(frame: pl.DataFrame, verdict: pl.DataFrame) -> pl.DataFrame:
    """The measured rows of a shard with the verdicts on them, as they lie in the shard's file below `verdicts`."""
    columns = [c for c in frame.columns if c == "row" or c not in _VERDICT]
    return frame.select(columns).join(verdict, on="row", how="left", maintain_order="left")


def _match(references: References, config: BuildConfig, frame: pl.DataFrame) -> pl.DataFrame:
    """Compares the rows of a shard with the tasks of benchmarks."""
    action = actions(config.filter)["contaminated"]

    def compute(row: dict[str, Any]) -> dict[str, Any] | None:
        code = None if row["code_hash"] is None else Fingerprint(**{name: row[name] for name in FINGERPRINT})
        match = references.match(row["prompt"], row["response"], code, config.near_duplicate)
        if match is None or action == "off":
            return None
        return {
            "found": f"{match.benchmark} {match.task_id}: {match.method} {match.score:.2f}",
            "match": match.evidence,
        }

    needs = ["prompt", "response", *FINGERPRINT]
    frame = each_row(frame, "contamination", needs, compute, {"found": pl.String(), "match": pl.String()})
    frame = frame.with_columns(evidence=pl.coalesce("match", "evidence"))
    if action == "mark":
        return flag(frame, "contaminated", frame["found"])
    found = frame.filter(pl.col("found").is_not_null()).select("row", "found").iter_rows()
    return refuse(frame, {row: ("contamination", "contaminated", detail) for row, detail in found})
