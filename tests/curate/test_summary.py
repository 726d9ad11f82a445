"""The first findings: counted file by file, and the same however the rows are cut into files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import kernel, pair

from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.score import StubScorer
from curate.store import connect, narrow, part_files


@pytest.fixture(scope="module")
def longer() -> Callable[[int], str]:
    """Kernels of more tokens than a window, no two alike."""
    return lambda n: "".join(kernel(10 * n + m) for m in range(3))


def test_findings_do_not_depend_on_the_files(
    tmp_path: Path, write_rows: Callable[..., Path], longer: Callable[[int], str], model_folder: Path
) -> None:
    source = write_rows([pair(n, longer(n)) for n in range(7)])
    found = []
    for rows in (2, 100):
        out = tmp_path / str(rows)
        config = BuildConfig(source=(str(source),), out=out, model=str(model_folder), jobs=1, shard_rows=rows)
        found.append(build_dataset(config, StubScorer())["findings"])
    assert [len(part_files(tmp_path / n / "samples")) for n in ("2", "100")] == [4, 1]
    for name in ("statement", "category"):
        assert found[0][name]["windows"] > 7
        assert found[0][name] == pytest.approx(found[1][name], rel=1e-12)
    with connect(tmp_path / "2") as connection:  # against the whole at once
        windows = "SELECT count(*), count(DISTINCT sample_id) FROM windows"
        whole = connection.execute(windows).fetchone()
        assert whole == (found[0]["category"]["windows"], found[0]["category"]["samples_with_windows"])
        narrow(connection, part_files(tmp_path / "2" / "samples")[-1])
        last = connection.execute(windows).fetchone()
        assert whole is not None
        assert last is not None
        assert 0 < last[0] < whole[0]
        assert last[1] == 1
