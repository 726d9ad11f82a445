"""Archives of source files: read like a folder, and safe to open whoever made them."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from curate.errors import SourceError
from curate.sources import READ_REASONS, Row, archives, open_sources
from curate.sources.code_files import MAX_CODE

KERNEL = b"// SPDX-License-Identifier: MIT\n__global__ void add(float *a) { a[threadIdx.x] += 1; }\n"
Files = dict[str, bytes]
KINDS = ["zip", "tar", "tar.gz", "tgz", "tar.zst"]


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


PACK: dict[str, Callable[[bytes], bytes]] = {
    "tar": bytes,
    "tar.gz": gzip.compress,
    "tgz": gzip.compress,
    "tar.zst": zstd,
}


def tar_of(files: Files, special: dict[str, bytes] | None = None) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for name, kind in (special or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    return out.getvalue()


def zip_of(files: Files) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def written(tmp_path: Path, kind: str, files: Files) -> Path:
    path = tmp_path / f"src.{kind}"
    path.write_bytes(zip_of(files) if kind == "zip" else PACK[kind](tar_of(files)))
    return path


def rows_of(path: Path) -> list[Row]:
    (source,) = open_sources([str(path)], None, "Apache-2.0")
    return list(source.rows())


def reasons(path: Path) -> list[tuple[str, str | None]]:
    found = [(row.source_id, row.reason) for row in rows_of(path)]
    assert all(reason is None or reason in READ_REASONS for _, reason in found)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_members_are_the_rows_of_the_same_folder(tmp_path: Path, kind: str) -> None:
    files = {"src/a.cu": KERNEL, "src/deep/b.CUH": b"int f();\n", "src/bad.cu": b"caf\xe9", "src/notes.md": b"x"}
    rows = rows_of(written(tmp_path, kind, files))
    found = [(row.source_id, row.reason, row.license, row.position) for row in rows]
    assert found == [
        ("src/a.cu", None, "MIT", 1),
        ("src/deep/b.CUH", None, "Apache-2.0", 2),
        ("src/bad.cu", "not_utf8", "Apache-2.0", 3),
    ]
    assert rows[0].response.encode() == KERNEL
    assert rows[0].synthetic_prompt
    (source,) = open_sources([str(tmp_path / f"src.{kind}")], None, None)
    assert (source.name, source.fingerprint()["kind"]) == (f"src.{kind}", kind)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"src.{kind}"]  # nothing was unpacked


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["../up.cu", "/abs.cu", "a/../../up.cu", "..\\up.cu", "C:\\up.cu"])
def test_name_that_leads_out(tmp_path: Path, kind: str, name: str) -> None:
    assert reasons(written(tmp_path, kind, {name: KERNEL, "ok.cu": KERNEL})) == [
        (name, "path_outside"),
        ("ok.cu", None),
    ]


def test_links_and_devices_of_a_tar(tmp_path: Path) -> None:
    special = {"l.cu": tarfile.SYMTYPE, "h.cu": tarfile.LNKTYPE, "d.cu": tarfile.CHRTYPE, "f.cu": tarfile.FIFOTYPE}
    (tmp_path / "a.tar").write_bytes(tar_of({"ok.cu": KERNEL}, {**special, "dir.cu": tarfile.DIRTYPE}))
    assert reasons(tmp_path / "a.tar") == [("ok.cu", None), *((name, "unreadable") for name in special)]


def test_links_and_secrets_of_a_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        link = zipfile.ZipInfo("l.cu")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("ok.cu", KERNEL)
        archive.writestr("s.cu", KERNEL)
    data = bytearray((tmp_path / "a.zip").read_bytes())
    data[data.rindex(b"PK\x01\x02") + 8] |= 1  # the last entry of the directory says: encrypted
    (tmp_path / "a.zip").write_bytes(data)
    assert reasons(tmp_path / "a.zip") == [("l.cu", "unreadable"), ("ok.cu", None), ("s.cu", "unreadable")]


@pytest.mark.parametrize("kind", KINDS)
def test_large_member_is_refused_and_not_held(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, kind, {"big.cu": b"x" * (3 * MAX_CODE), "ok.cu": KERNEL})
    tracemalloc.start()
    try:
        assert reasons(path) == [("big.cu", "too_large"), ("ok.cu", None)]
        assert tracemalloc.get_traced_memory()[1] < MAX_CODE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_bomb_is_refused_before_it_is_expanded(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, kind, {f"{i}.cu": b" " * 100_000 for i in range(20)})
    assert len(rows_of(path)) == 20
    monkeypatch.setattr(archives, "_MAX_TOTAL", 1_900_000)
    with pytest.raises(SourceError, match=r"expands to more than .* unpack"):
        rows_of(path)


def test_tar_whose_header_claims_a_terabyte(tmp_path: Path) -> None:
    member = tarfile.TarInfo("data.bin")
    member.size = 10**12
    (tmp_path / "a.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(10_000))
    with pytest.raises(SourceError, match="expands to more"):
        rows_of(tmp_path / "a.tar")


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K"])
def test_endless_tar_header_is_not_held(tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("h")
    member.type, member.size = kind, 2**30
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(member.tobuf() + b"9" * 30_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(SourceError, match="header of more than"):
            rows_of(tmp_path / "a.tar.gz")
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_zip_that_lies_about_a_size(tmp_path: Path) -> None:
    data = bytearray(zip_of({"a.cu": b" " * 5_000_000, "ok.cu": KERNEL}))
    at = data.index(b"PK\x01\x02") + 24
    data[at : at + 4] = (100).to_bytes(4, "little")
    (tmp_path / "a.zip").write_bytes(data)
    assert reasons(tmp_path / "a.zip") == [("a.cu", "unreadable"), ("ok.cu", None)]


@pytest.mark.parametrize("kind", KINDS[1:])
def test_cut_tar_keeps_the_members_before_the_break(tmp_path: Path, kind: str) -> None:
    import random

    files = {f"{i}.cu": b"// " + random.Random(i).randbytes(3000).hex().encode() + b"\n" for i in range(100)}
    path = written(tmp_path, kind, files)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    found = reasons(path)
    assert 20 <= len(found) <= 52
    assert found[:-1] == [(f"{i}.cu", None) for i in range(len(found) - 1)]
    assert found[-1][1] == "truncated"


@pytest.mark.parametrize("blocks", [2, 3])
def test_tar_cut_between_members_or_without_its_end(tmp_path: Path, blocks: int) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of({"a.cu": KERNEL, "b.cu": KERNEL})[: 512 * blocks])
    assert reasons(tmp_path / "a.tar") == [("a.cu", None), ("a.tar" if blocks == 2 else "b.cu", "truncated")]


def test_broken_header_is_told_and_not_taken_for_the_end(tmp_path: Path) -> None:
    data = bytearray(tar_of({"a.cu": KERNEL, "b.cu": KERNEL}))
    data[1024:1034] = b"\xff" * 10
    (tmp_path / "a.tar").write_bytes(data)
    (source,) = open_sources([str(tmp_path / "a.tar")], None, None)
    with pytest.raises(SourceError, match=r"a\.tar: damaged archive"):
        list(source.rows())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("data", [b"", b"no archive at all " * 100, bytes(2000)])
def test_what_is_no_archive(tmp_path: Path, kind: str, data: bytes) -> None:
    path = tmp_path / f"a.{kind}"
    path.write_bytes(data)
    with pytest.raises(SourceError) as caught:
        rows_of(path)
    assert f"a.{kind}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_archive_without_sources(tmp_path: Path, kind: str) -> None:
    with pytest.raises(SourceError, match=r"holds no \.cu or \.cuh file.*unpack"):
        rows_of(written(tmp_path, kind, {"a.jsonl": b"{}"}))
