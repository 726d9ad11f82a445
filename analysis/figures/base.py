"""What every figure shares: one query, one drawing, and the files that come of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import matplotlib as mpl
import matplotlib.style
import polars as pl
import tyro
from matplotlib.figure import Figure as Canvas

from analysis.bootstrap import DRAWS
from analysis.dataset import Dataset, open_datasets
from analysis.output import GENERATOR, made_by_us, refuse_inside_dataset, staged_folder
from curate.console import main, parse_options
from curate.errors import DatasetError, OptionError

__all__ = ["KINDS", "Figure", "draw_figure", "run_figure", "write_figure"]

STYLE = Path(__file__).parent / "cuset.mplstyle"

KINDS = ("png", "svg", "csv")
"""Of the files that a figure is written as."""

mpl.use("Agg")


@dataclass(frozen=True)
class Figure:
    """`name`: of its files. `caption`: what it shows and how to read it, in one or two sentences. `data` gives the rows
    that are drawn of one dataset; those of several are put below each other, with a column `dataset` in front. `draw`
    takes them all. `has_intervals`: `data` also takes the number of draws behind its intervals, and their seed."""

    name: str
    title: str
    caption: str
    data: Callable[..., pl.DataFrame]
    draw: Callable[[pl.DataFrame], Canvas]
    needs_scores: bool = True
    needs_several: bool = False
    has_intervals: bool = False


def draw_figure(
    figure: Figure, datasets: Sequence[Dataset], out: Path, draws: int = DRAWS, seed: int = 0
) -> pl.DataFrame:
    """Writes NAME.png, NAME.svg and NAME.csv, the rows that were drawn, and returns these; all of them or none.

    Raises DatasetError where a dataset has not what the figure needs.
    """
    with staged_folder(out) as stage:
        return write_figure(figure, datasets, stage, draws, seed)


def write_figure(
    figure: Figure, datasets: Sequence[Dataset], out: Path, draws: int = DRAWS, seed: int = 0
) -> pl.DataFrame:
    """What `draw_figure` does, file by file.

    Raises DatasetError where a dataset has not what the figure needs.
    """
    if figure.needs_several and len(datasets) < 2:
        raise DatasetError(f"{figure.name} compares datasets: give two or more")
    for dataset in datasets:
        if figure.needs_scores and not dataset.samples:
            raise DatasetError(f"{dataset.path}: holds no sample ({figure.name} needs some)")
        if figure.needs_scores and not dataset.scored:
            raise DatasetError(
                f"{dataset.path}: has no scores ({figure.name} needs them); build without --skip-scoring"
            )
    more = (draws, seed) if figure.has_intervals else ()
    found = [(dataset.name, figure.data(dataset, *more)) for dataset in datasets]
    frames = [rows.select(pl.lit(name).alias("dataset"), pl.all()) for name, rows in found if len(rows)]
    if not frames:
        raise DatasetError(f"{figure.name}: there is nothing to draw")
    frame = pl.concat(frames, how="vertical_relaxed")
    with matplotlib.style.context(STYLE), mpl.rc_context({"svg.hashsalt": figure.name}):
        canvas = figure.draw(frame)
        maker = f"{GENERATOR}.figures.{figure.name}"
        canvas.savefig(out / f"{figure.name}.png")
        canvas.savefig(out / f"{figure.name}.svg", metadata={"Date": None, "Creator": maker})
        (out / f"{figure.name}.csv").write_bytes(frame.write_csv().encode("utf-8", "replace"))
    return frame


@dataclass(frozen=True)
class _Options:
    datasets: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of annotated datasets."""

    out: Annotated[Path, tyro.conf.arg(help_behavior_hint="(default: the working folder)")] = Path()
    """The folder that NAME.png, NAME.svg and NAME.csv are written to."""


def _refuse(figure: Figure, out: Path) -> None:
    """Raises OptionError for a folder in a dataset's, and where other files have the names of the figure's."""
    refuse_inside_dataset(out)
    files = [out / f"{figure.name}.{kind}" for kind in KINDS]
    there = [file for file in files if file.exists()]
    if there and not made_by_us(files[KINDS.index("svg")]):
        raise OptionError(f"--out {out}: {there[0].name} in it is none of this program; give another folder")


def run_figure(figure: Figure) -> None:
    """The command `python -m analysis.figures.NAME DATASET... [--out DIR]`."""

    def run(arguments: Sequence[str]) -> int:
        options = parse_options(_Options, arguments, f"analysis.figures.{figure.name}")
        _refuse(figure, options.out)
        draw_figure(figure, open_datasets(options.datasets), options.out)
        sys.stdout.write(f"{options.out / figure.name}.png\n")
        return 0

    main(run)
