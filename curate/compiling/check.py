"""Many answers: in order, several at a time, each result from the cache where it is there."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from curate.compiling.cache import Cache, cache_key, compilers
from curate.compiling.pool import Worker
from curate.compiling.types import CompileResult, CompileSettings

__all__ = ["check_all", "compile_code"]

_AHEAD = 4
"""Answers in flight for each worker: bounds memory, and keeps workers busy behind a slow one."""


def compile_code(blocks: Sequence[str], settings: CompileSettings | None = None) -> CompileResult:
    """Compiles the blocks of one answer in a process of its own, without cache. Never raises over what they hold."""
    worker = Worker()
    try:
        return worker.ask(blocks, settings or CompileSettings())
    finally:
        worker.close()


def check_all(
    sources: Iterable[tuple[int, Sequence[str]]],
    settings: CompileSettings,
    cache_folder: Path | None,
    jobs: int,
) -> Generator[tuple[int, CompileResult], None, None]:
    """(number, result) of every (number, blocks), in order; at most 4 * `jobs` answers are held.

    Workers start with the first answer that is not in the cache, and end when the iterator is used up or closed.
    """
    versions = compilers(settings.use_nvcc)
    cache = Cache(cache_folder)
    workers: queue.LifoQueue[Worker] = queue.LifoQueue()
    everyone = [Worker() for _ in range(max(1, jobs))]
    for worker in everyone:
        workers.put(worker)

    def work(blocks: Sequence[str]) -> CompileResult:
        worker = workers.get()
        try:
            return worker.ask(blocks, settings)
        finally:
            workers.put(worker)

    threads = ThreadPoolExecutor(len(everyone), "compile")
    waiting: deque[tuple[int, str, CompileResult | Future[CompileResult]]] = deque()

    def finish() -> tuple[int, CompileResult]:
        number, key, result = waiting.popleft()
        if isinstance(result, Future):
            result = result.result()
            cache.put(key, settings, result)
        return number, result

    try:
        for number, blocks in sources:
            key = cache_key(blocks, settings, versions)
            known = cache.get(key, settings)
            waiting.append((number, key, known if known is not None else threads.submit(work, list(blocks))))
            while len(waiting) >= _AHEAD * len(everyone):
                yield finish()
        while waiting:
            yield finish()
    finally:
        for _, _, result in waiting:
            if isinstance(result, Future):
                result.cancel()
        for worker in everyone:
            worker.stop()
        threads.shutdown(wait=True)
        for worker in everyone:
            worker.close()
        cache.close()
