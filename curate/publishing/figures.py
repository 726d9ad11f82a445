"""The two figures of a published card, drawn by the commands that anyone can draw them with.

They are the analysis' own, which this package does not import (its results rest on this package's, not the other way
round): each is drawn by `python -m analysis.figures.NAME` in a process of its own, or taken from the folder of a
report that is there already.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from curate.errors import DatasetError, OptionError

__all__ = ["FIGURES", "card_figures"]

FIGURES: dict[str, str] = {
    "density": "How sure the model is of CUDA-sensitive and of neutral tokens of the code, under both label sets.",
    "categories": "Mean confidence of the tokens of each category.",
}
"""Name -> what it shows, for those who cannot see it."""


def card_figures(path: Path, manifest: Mapping[str, Any], report: Path | None = None) -> dict[str, bytes]:
    """Name -> PNG; nothing for a dataset without scores, which has nothing to show.

    `report`: the folder of `python -m analysis.report`, whose figures are taken. Raises OptionError where they are not
    in there, DatasetError where they cannot be drawn.
    """
    if manifest.get("findings") is None:
        return {}
    if report is not None:
        try:
            return {name: (report / f"{name}.png").read_bytes() for name in FIGURES}
        except OSError as error:
            raise OptionError(
                f"--report {report}: {error.strerror}: {error.filename};"
                f" give the folder of `python -m analysis.report {path}`"
            ) from error
    with tempfile.TemporaryDirectory(prefix="cuset-") as folder:
        drawing = {name: _begin(name, path, Path(folder)) for name in FIGURES}  # both at once
        said = {name: process.communicate()[1] for name, process in drawing.items()}
        for name, process in drawing.items():
            if process.returncode:
                words = (said[name].strip().splitlines() or ["it says nothing"])[-1].removeprefix("error: ")
                raise DatasetError(f"{path}: the figure {name} cannot be drawn ({words[:300]})")
        return {name: (Path(folder) / f"{name}.png").read_bytes() for name in FIGURES}


def _begin(name: str, path: Path, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", f"analysis.figures.{name}", str(path.resolve()), "--out", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
