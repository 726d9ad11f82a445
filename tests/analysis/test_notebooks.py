"""Every notebook runs from top to bottom, on two small builds of the bundled corpus without a model."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.score import StubScorer
from tests.conftest import train_tokenizer

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "analysis" / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> tuple[Path, Path]:
    """Two tokenizers, so that the draws of the scorer and the tokens differ."""
    folder = tmp_path_factory.mktemp("notebooks")
    other = folder / "other-model"
    shutil.copytree(model_folder, other)
    train_tokenizer(vocabulary=300).save_pretrained(other)
    paths = folder / "first", folder / "second"
    for path, model in zip(paths, (model_folder, other), strict=True):
        config = BuildConfig(
            source=("bundled",), limit=14, out=path, model=str(model), jobs=1, compile=False, max_length=8192
        )
        assert build_dataset(config, StubScorer())["counts"]["accepted"] > 9
    return paths


def test_there_are_five() -> None:
    assert [path.name[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05"]


# A kernel's sockets outlive the client for a moment.
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_from_top_to_bottom(path: Path, builds: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells), "save it without outputs"
    monkeypatch.setenv("CUSET_DATASET", str(builds[0]))
    monkeypatch.setenv("CUSET_OTHER", str(builds[1]))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(path.parent)}}).execute()
    assert all(cell.execution_count for cell in cells)
    said = [output for cell in cells for output in cell.outputs]
    assert len(said) >= 3
    assert not [output for output in said if output.get("name") == "stderr"]
