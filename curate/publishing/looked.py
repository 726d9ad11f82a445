"""What a look into a part has found, kept by the part's hash: publishing after a dry run looks into no part again.

Kept are parts in which nothing private was found, in the cache of the user who looked: a dataset may come from somebody
else, and what it says of itself is not taken on trust. Another search (its code is in the key) looks again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from curate import comments, redaction, secret_patterns
from curate.pool import cores, process_pool
from curate.publishing import contents
from curate.publishing.contents import PartContents, look_into
from curate.store import cache_folder, replace_file

__all__ = ["look_into_all"]

_ALONE = 8_000_000
"""Bytes of parts up to which one process is done before others have started."""


def look_into_all(parts: Sequence[Path], hashes: Mapping[Path, str]) -> Iterator[tuple[Path, PartContents | Exception]]:
    """Each part with what it holds, or with the OSError or ArrowException for which it cannot be read; several at once.

    `hashes`: SHA-256 of the parts whose content is known to have it; only they are found in the cache, or kept there.
    """
    folder = cache_folder() / f"looked-{_search_key()}"
    known = {part: _kept(folder / hashes[part], part) for part in parts if part in hashes}
    left = [part for part in parts if known.get(part) is None]
    jobs = min(cores(), len(left)) if sum(part.stat().st_size for part in left) > _ALONE else 1
    with contextlib.ExitStack() as stack:
        waiting: dict[Path, Future[PartContents]] = {}
        if jobs > 1:
            pool = process_pool(jobs)
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)
            waiting = {part: pool.submit(look_into, part) for part in left}
        for part in parts:
            found = known.get(part)
            try:
                if found is None:
                    found = _result(waiting.pop(part), part) if waiting else look_into(part)
                    if part in hashes:
                        _keep(folder / hashes[part], found)
            except (OSError, pa.ArrowException) as error:
                yield part, error
                continue
            yield part, found


def _result(future: Future[PartContents], part: Path) -> PartContents:
    try:
        return future.result()
    except BrokenProcessPool:  # a process was killed, as a rule for its memory: one at a time, then
        return look_into(part)


def _search_key() -> str:
    files = [Path(str(module.__file__)) for module in (comments, contents, redaction, secret_patterns)]
    versions = [metadata.version(package) for package in ("detect-secrets", "pyarrow")]
    code = b"\0".join([*(file.read_bytes() for file in files), *map(str.encode, versions)])
    return hashlib.sha256(code).hexdigest()[:16]


def _kept(file: Path, part: Path) -> PartContents | None:
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        licenses = Counter({license: int(rows) for license, rows in told["licenses"]})
        with pq.ParquetFile(part) as parquet:
            return PartContents(parquet.schema_arrow, parquet.metadata.num_rows, int(told["arrow_bytes"]), licenses)
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None


def _keep(file: Path, found: PartContents) -> None:
    """Losing it costs another look, so a cache that cannot be written is no error."""
    if not found.private:
        with contextlib.suppress(OSError):
            if not file.parent.is_dir():
                file.parent.mkdir(parents=True)
                for other in file.parent.parent.glob("looked-*"):  # of other searches
                    if other != file.parent:
                        shutil.rmtree(other, ignore_errors=True)
            told = {"arrow_bytes": found.arrow_bytes, "licenses": list(found.licenses.items())}
            replace_file(file, json.dumps(told).encode())
