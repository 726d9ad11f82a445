"""Parsing in several processes: results in order, and a row that kills its process costs that row alone."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import polars as pl

from curate.frames import FAILED, refuse

__all__ = ["cores", "follow_parent", "in_order", "process_pool", "row_by_row"]

Work = Callable[[pl.DataFrame], pl.DataFrame]


def cores() -> int:
    """The processors that this process may use; fewer than the machine's in a container or a job."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def follow_parent() -> None:
    """Ctrl-C reaches every process of a terminal: the parent alone decides what it means. A worker ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def process_pool(jobs: int) -> ProcessPoolExecutor:
    """Started anew, not forked, and ended with this process, whatever ends it."""
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=follow_parent)


def in_order(work: Work, shards: Iterator[tuple[int, pl.DataFrame]], jobs: int) -> Iterator[tuple[int, pl.DataFrame]]:
    """`(number, work(frame))` of every shard, in order, `jobs` at a time and a few ahead of the slowest.

    One job works in this process. A worker that dies (out of memory, a crash of native code) takes the pool along: the
    shards in flight are then done again row by row, and a row whose worker dies again is refused as failed.
    """
    if jobs == 1:
        for number, frame in shards:
            yield number, work(frame)
        return
    pool = process_pool(jobs)
    waiting: deque[tuple[int, pl.DataFrame, Future[pl.DataFrame]]] = deque()
    try:
        for number, frame in shards:
            try:
                future = pool.submit(work, frame)
            except BrokenProcessPool as broken:
                future = Future()
                future.set_exception(broken)
            waiting.append((number, frame, future))
            while len(waiting) > 2 * jobs:
                pool = yield from _next(work, waiting, pool, jobs)
        while waiting:
            pool = yield from _next(work, waiting, pool, jobs)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _next(
    work: Work, waiting: deque[tuple[int, pl.DataFrame, Future[pl.DataFrame]]], pool: ProcessPoolExecutor, jobs: int
) -> Generator[tuple[int, pl.DataFrame], None, ProcessPoolExecutor]:
    number, frame, future = waiting.popleft()
    try:
        yield number, future.result()
    except BrokenProcessPool:
        yield number, row_by_row(work, frame)
        pool.shutdown(wait=False, cancel_futures=True)
        pool = process_pool(jobs)
        waiting.extend([(n, f, pool.submit(work, f)) for n, f, _ in [waiting.popleft() for _ in range(len(waiting))]])
    return pool


def row_by_row(work: Work, frame: pl.DataFrame) -> pl.DataFrame:
    """`work` over every row in another process; a row that it dies of is refused as failed."""
    parts = []
    pool = process_pool(1)
    for row in frame.iter_slices(1):
        try:
            parts.append(pool.submit(work, row).result())
        except BrokenProcessPool:
            pool.shutdown(wait=False)
            pool = process_pool(1)
            dead = refuse(row, {row["row"][0]: ("parse", FAILED, "its process died")})
            parts.append(pool.submit(work, dead).result())  # nothing is computed for it, but it gets the columns
    pool.shutdown()
    return pl.concat(parts)
