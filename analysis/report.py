"""`python -m analysis.report DATASET...`: the findings and figures of one or several datasets, as files and one page.

The page holds its figures and needs no network. Names in it come from data of others: Jinja2 escapes all of them, a
figure is an image of its own (in which a browser runs nothing), and the content security policy allows neither
scripts nor anything from elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from analysis.bootstrap import DRAWS, SHIFTS
from analysis.controls import CONTROLS
from analysis.dataset import Dataset, open_datasets
from analysis.figures.base import KINDS, Figure, write_figure
from analysis.findings import Findings, find
from analysis.measures import RULES
from analysis.output import GENERATOR, refuse_folder, staged_folder
from curate.console import main, parse_options
from curate.errors import DatasetError, OptionError
from curate.store import funnel

__all__ = ["Drawn", "ReportConfig", "draw_all", "render_report", "report_folder", "write_report"]

_TEMPLATES = Path(__file__).parent / "templates"
_LARGEST_SVG = 400_000  # bytes; a larger drawing is embedded as PNG


@dataclass(frozen=True)
class ReportConfig:
    """Writes figures, findings and a page about annotated datasets; several of them are compared."""

    datasets: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of annotated datasets."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: NAME-report beside it)")] = (
        None
    )
    """The folder that the report is written to."""

    draws: int = DRAWS
    """Draws of samples behind each interval, in tables and figures."""

    seed: int = 0
    """Of the draws; the same one gives the same numbers."""


@dataclass(frozen=True)
class Drawn:
    """A figure of the report: `image`, a data URI, or None and in `missing` why it is left out. `note`: datasets that
    it does without."""

    figure: Figure
    image: str | None = None
    missing: str = ""
    note: str = ""


def report_folder(paths: Sequence[Path]) -> Path:
    """Where a report goes that was given no folder: beside the first dataset, named after all of them."""
    folders = [path.resolve() for path in paths]
    names = "-".join(dict.fromkeys(folder.name for folder in folders))
    return folders[0].parent / f"{names[:100]}-report"


def write_report(datasets: Sequence[Dataset], out: Path, draws: int = DRAWS, seed: int = 0) -> Path:
    """Writes NAME.png, NAME.svg and NAME.csv of every figure, findings.json, findings.csv and index.html, and returns
    the path of the page. All of it is written, or nothing: an earlier report then stays as it is.

    Raises DatasetError where files are damaged, OptionError for a folder that is none of a report.
    """
    refuse_folder(out)
    found = [find(dataset, draws, seed) for dataset in datasets]
    with staged_folder(out, _every_drawing) as stage:
        drawn = draw_all(datasets, stage, draws, seed)
        objects = [json.loads(findings.to_json()) for findings in found]
        whole = json.dumps({"datasets": objects}, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        (stage / "findings.json").write_bytes(whole.encode("utf-8", "replace"))
        tables = [findings.to_csv() for findings in found]
        lines = tables[0] + "".join(table.partition("\n")[2] for table in tables[1:])
        (stage / "findings.csv").write_bytes(lines.encode("utf-8", "replace"))
        (stage / "index.html").write_bytes(render_report(datasets, found, drawn).encode("utf-8", "replace"))
    return out / "index.html"


def _every_drawing() -> set[str]:
    """Names of files that a report of other datasets may have and this one not."""
    from analysis.figures import FIGURES

    return {f"{figure.name}.{kind}" for figure in FIGURES for kind in KINDS}


def draw_all(datasets: Sequence[Dataset], out: Path, draws: int = DRAWS, seed: int = 0) -> list[Drawn]:
    """Draws every figure of `analysis.figures`, each of the datasets that have what it needs."""
    from analysis.figures import FIGURES

    return [_drawn(figure, datasets, out, draws, seed) for figure in FIGURES]


def _drawn(figure: Figure, datasets: Sequence[Dataset], out: Path, draws: int, seed: int) -> Drawn:
    able = [d for d in datasets if d.scored or not figure.needs_scores]
    left = ", ".join(d.name for d in datasets if d not in able)
    note = f"Without {left}: no scores." if left else ""
    if not able:
        return Drawn(figure, missing="no confidence to draw: no sample was scored")
    if figure.needs_several and len(able) < 2:
        return Drawn(figure, missing="it compares models: give two or more scored datasets")
    try:
        write_figure(figure, able, out, draws, seed)
    except DatasetError as error:
        return Drawn(figure, missing=str(error), note=note)
    svg = out / f"{figure.name}.svg"
    small = svg.stat().st_size <= _LARGEST_SVG
    content, kind = (svg, "svg+xml") if small else (svg.with_suffix(".png"), "png")
    return Drawn(figure, f"data:image/{kind};base64,{base64.b64encode(content.read_bytes()).decode()}", note=note)


def number(value: float | None, digits: int = 3) -> str:
    """A number for a table: fixed digits, a true minus sign, a dash for what does not exist."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.{digits}f}".replace("-", "−")


def interval(low: float, high: float, digits: int = 3) -> str:
    """[low, high], or a dash."""
    return (
        "–" if not (math.isfinite(low) and math.isfinite(high)) else f"[{number(low, digits)}, {number(high, digits)}]"
    )


def plain(note: str) -> str:
    """A note without numbers that do not exist."""
    return re.sub(r"\bnan\b", "–", note)


def _claims(found: Sequence[Findings]) -> list[dict[str, Any]]:
    """The verdicts on all code tokens as table rows, those of one claim together, then by labels, then by dataset."""
    rows = [(v, f.dataset) for f in found for v in f.verdicts if v.control == "none"]
    order = {claim: n for n, claim in enumerate(dict.fromkeys(v.claim for v, _ in rows))}
    labels = {name: n for n, name in enumerate(dict.fromkeys(v.labels for v, _ in rows))}
    rows.sort(key=lambda row: (order[row[0].claim], labels[row[0].labels]))  # stable: datasets as they were given
    return [
        {"claim": claim, "rows": [(v, dataset) for v, dataset in rows if v.claim == claim]}
        for claim in order
    ]  # fmt: skip


def render_report(datasets: Sequence[Dataset], found: Sequence[Findings], drawn: Sequence[Drawn]) -> str:
    """The page, one HTML file."""
    environment = Environment(
        loader=PackageLoader("analysis", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(number=number, plain=plain)
    environment.globals.update(interval=interval)
    style = (_TEMPLATES / "report.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return environment.get_template("report.html.jinja").render(
        policy=f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        generator=f"{GENERATOR}.report",
        style=Markup(style),
        datasets=datasets,
        found=found,
        claims=_claims(found),
        drawn=drawn,
        funnels=[[("read", "", 0, d.manifest["counts"]["read"]), *funnel(d.manifest["counts"])] for d in datasets],
        controls=CONTROLS,
        rules=RULES,
        shifts=SHIFTS,
        command=shlex.join(
            [
                "python",
                "-m",
                "analysis.report",
                *(_argument(d.path) for d in datasets),
                "--draws",
                str(found[0].draws),
                "--seed",
                str(found[0].seed),
            ]
        ),
        notes=tuple(dict.fromkeys(note for f in found for note in f.notes)),
    )


def _argument(path: Path) -> str:
    """A path that is no option, whatever it begins with."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def run(arguments: Sequence[str]) -> int:
    config = parse_options(ReportConfig, arguments, "analysis.report")
    if not config.datasets:
        raise OptionError("give the folder of a dataset, or of several")
    if not 100 <= config.draws <= 100_000:
        raise OptionError("--draws: give 100 to 100,000")
    if config.seed < 0:
        raise OptionError("--seed: give 0 or more")
    out = config.out or report_folder(config.datasets)
    refuse_folder(out)  # before the minutes that it may take
    page = write_report(open_datasets(config.datasets), out, config.draws, config.seed)
    sys.stdout.write(f"{page}\n")
    return 0


if __name__ == "__main__":
    main(run)
