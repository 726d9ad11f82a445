"""What the tests of figures share: planted datasets, plain counts over them, and the texts of a drawing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text
from planted_dataset import FRAMES, Planted, plant, unchecked

from analysis.dataset import Dataset
from analysis.figures import FIGURES
from analysis.figures.base import STYLE, Figure
from curate.schema import SAMPLES
from curate.store import read_part, write_part

BY_NAME = {figure.name: figure for figure in FIGURES}


def planted(
    folder: Path, samples: Sequence[Planted], columns: dict[str, list[Any]] | None = None, name: str = "m"
) -> Dataset:
    """A planted dataset with other values in columns of `samples`."""
    plant(folder, samples, name)
    if columns:
        part = folder / "samples" / "part-000000.parquet"
        frame = read_part(part)
        new = [pl.Series(c, values, FRAMES["samples"][c]) for c, values in columns.items()]
        write_part(frame.with_columns(new), SAMPLES, part)
    return unchecked(folder)


def random_samples(number: int = 12, length: int = 150, seed: int = 1) -> list[Planted]:
    draw = np.random.default_rng(seed)
    samples = []
    for _ in range(number):
        size = int(draw.integers(40, length))
        category = draw.choice([0, 0, 0, 2, 5, 8], size)
        confidence = draw.beta(1, 1, size)
        samples.append(
            Planted(
                tokens=["ab "] * size, confidence=confidence.tolist(), category=category.tolist(),
                statement=(draw.random(size) < 0.3).tolist(), in_code=(draw.random(size) < 0.9).tolist(),
            )
        )  # fmt: skip
    return samples


def stored(sample: Planted) -> list[float]:
    """The confidences as the dataset has them, through float16."""
    assert sample.confidence is not None
    return [math.exp(np.float16(math.log(c))) for c in sample.confidence]


def tokens_of(samples: Sequence[Planted]) -> list[tuple[float, int, bool]]:
    """(confidence, category, statement) of the code tokens."""
    return [
        (c, k, s)
        for sample in samples
        for c, k, s, code in zip(stored(sample), sample.category, sample.statement or [], sample.in_code or [], strict=True)
        if code
    ]  # fmt: skip


def texts(canvas: Canvas) -> list[Text]:
    """The texts that are drawn: of ticks those in the range of their axis."""
    axes = [axis for ax in axes_of(canvas) for axis in (ax.xaxis, ax.yaxis)]
    ticks = {
        id(t): axis
        for axis in axes
        for tick in (*axis.majorTicks, *axis.minorTicks)
        for t in (tick.label1, tick.label2)
    }
    in_range = {id(tick.label1) for axis in axes for tick in axis._update_ticks()}
    every = [t for t in canvas.findobj(Text) if t.get_visible() and t.get_text().strip()]
    return [t for t in every if id(t) not in ticks or id(t) in in_range]


def axes_of(canvas: Canvas) -> list[Axes]:
    return canvas.findobj(Axes)


def shown(labels: Sequence[Text]) -> bool:
    return any(t.get_visible() and t.get_text() for t in labels)


def drawn(figure: Figure, datasets: Sequence[Dataset]) -> Canvas:
    frame = pl.concat([figure.data(d).select(pl.lit(d.name).alias("dataset"), pl.all()) for d in datasets])
    with matplotlib.style.context(STYLE):
        canvas = figure.draw(frame)
        FigureCanvasAgg(canvas).draw()
    return canvas
