"""`python -m curate.publish OUT --repo USER/NAME`: a finished dataset on the Hugging Face Hub, in one commit.

Everything is checked before anything is sent; `--dry-run` shows what would be, and needs neither token nor network.
Publishing the same again does nothing, and an interrupted publication is ended by the same command.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from jinja2 import TemplateError

from curate.card import Publication, render_card
from curate.console import main, parse_options, printable
from curate.errors import DatasetError, OptionError
from curate.folder import held_for_reading
from curate.manifest import manifest_tag
from curate.publishing.checks import check_dataset
from curate.publishing.features import dataset_info, size_category
from curate.publishing.figures import FIGURES, card_figures
from curate.publishing.files import PublishedFile, figure_path, left_out, published_files
from curate.publishing.hub import Outcome, Target, publish_files
from curate.store import read_manifest

__all__ = ["Prepared", "PublishConfig", "prepare", "publish"]


@dataclass(frozen=True)
class PublishConfig:
    """Publishes a finished dataset to the Hugging Face Hub: one commit, tagged with the hash of the manifest."""

    path: tyro.conf.Positional[Path]
    """The dataset's folder."""
    repo: Annotated[str, tyro.conf.arg(metavar="USER/NAME")]
    """The dataset repository; made where it is not there."""
    private: bool = False
    """Make it private; refused where it is public already."""
    revision: str = "main"
    """The branch; made from main where it is not there."""
    dry_run: bool = False
    """List files, sizes, the card and every problem, and send nothing."""
    allow_unknown_license: bool = False
    """Publish rows too whose licence is not known."""
    language: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A language of the prompts for the card, as an ISO 639 code such as `en`."""
    report: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """The folder of `python -m analysis.report OUT`, whose figures the card shows; without it they are drawn."""

    def __post_init__(self) -> None:
        for language in self.language:
            if not re.fullmatch("[a-z]{2,3}", language):
                raise OptionError(f"--language {language[:80]!a}: give an ISO 639 code, such as en")


@dataclass(frozen=True)
class Prepared:
    """What would be published, and what forbids it."""

    files: list[PublishedFile]
    card: str
    tag: str
    problems: list[str]


def prepare(config: PublishConfig) -> Prepared:
    """Checks a dataset and makes its card. Raises DatasetError where there is no finished dataset."""
    target = Target(config.repo, config.private, config.revision)
    manifest = read_manifest(config.path)
    checked = check_dataset(config.path, manifest, allow_unknown=config.allow_unknown_license)
    tag = manifest_tag(config.path)
    if checked.problems and not config.dry_run:
        return Prepared([], "", tag, checked.problems)
    problems = list(checked.problems)
    try:
        figures = card_figures(config.path, manifest, config.report)
    except DatasetError as error:
        figures = {}
        problems.append(str(error))
    rows = sum(found.rows for _, found in checked.parts["samples"])
    publication = Publication(
        repository=target.name,
        tag=tag,
        dataset_info=dataset_info(checked.parts),
        size_category=size_category(rows),
        languages=tuple(dict.fromkeys(config.language)),
        figures=[(figure_path(name), FIGURES[name]) for name in figures],
    )
    try:
        card = render_card(manifest, publication)
        files = published_files(config.path, manifest, card, figures)
    except (KeyError, TypeError, ValueError, AttributeError, OSError, TemplateError) as error:
        return Prepared([], "", tag, [*problems, f"manifest.json: makes no card ({error}); build the dataset again"])
    return Prepared(files, card, tag, problems + _problems_of_the_card(card))


def _problems_of_the_card(card: str) -> list[str]:
    from huggingface_hub import DatasetCard

    try:
        data = DatasetCard(card).data
    except ValueError as error:
        return [f"the card's head is not valid: {str(error).splitlines()[0]}"]
    return [] if data.get("license") else ["the card names no licence, since no row has one; build with --license"]


def publish(config: PublishConfig) -> tuple[Prepared, Outcome | None]:
    """Publishes, and says what was done; None for a dry run.

    Raises DatasetError where something forbids it, HubError where the Hub does.
    """
    with held_for_reading(config.path):
        prepared = prepare(config)
        if config.dry_run:
            return prepared, None
        if prepared.problems:
            first, *more = prepared.problems
            rest = f" ({len(more)} more: --dry-run lists them)" if more else ""
            raise DatasetError(f"{config.path}: cannot be published: {first}{rest}")
        target = Target(config.repo, config.private, config.revision)
        message = f"cuset dataset {prepared.tag}"
        return prepared, publish_files(target, prepared.files, prepared.tag, message)


def run(arguments: Sequence[str]) -> int:
    config = parse_options(PublishConfig, arguments, "curate.publish")
    prepared, outcome = publish(config)
    if outcome is None:
        return _print_plan(config, prepared)
    where = f"{outcome.url} at {outcome.commit[:12]}, tag {prepared.tag}"
    if not outcome.change:
        print(f"nothing to do: {where} is this dataset")
    else:
        added = sum(file.size for file in outcome.change.add)
        print(
            f"published {len(outcome.change.add)} files ({_size(added)}), removed {len(outcome.change.delete)}: {where}"
        )
    if outcome.tagged_elsewhere:
        print(f"the tag stands at {outcome.tagged_elsewhere[:12]}, which holds the same data, and was left there")
    return 0


def _size(number: int) -> str:
    return f"{number:,} bytes" if number < 10_000 else f"{number / 1e6:,.2f} MB"


def _print_plan(config: PublishConfig, prepared: Prepared) -> int:
    for file in prepared.files:
        print(printable(f"{file.size:>15,}  {file.name}"))
    print(f"{sum(file.size for file in prepared.files):>15,}  bytes in {len(prepared.files)} files, tag {prepared.tag}")
    for name in left_out(config.path, prepared.files):
        print(printable(f"{'not published':>15}  {name}"))
    print(f"\n{printable(prepared.card)}")
    sys.stdout.flush()
    if not prepared.problems:
        print("no problems: this can be published")
        return 0
    for problem in prepared.problems:
        print(printable(f"problem: {problem}"))
    many = len(prepared.problems)
    told = "a problem forbids" if many == 1 else f"{many} problems forbid"
    raise DatasetError(f"{config.path}: {told} to publish it")


if __name__ == "__main__":
    main(run)
