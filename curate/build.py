"""`python -m curate.build`: a corpus in, an annotated dataset out."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console

from curate.config import BuildConfig
from curate.console import main, parse_options, printable
from curate.driver import build_dataset, default_out
from curate.summary import print_findings, print_funnel

__all__ = ["run"]


def run(arguments: Sequence[str]) -> int:
    """Builds, then prints the funnel, the findings and where the dataset is."""
    config = parse_options(BuildConfig, arguments, "curate.build")
    manifest = build_dataset(config)
    console = Console(emoji=False, highlight=False, soft_wrap=not sys.stdout.isatty())
    print_funnel(console, manifest["counts"])
    if manifest["findings"]:
        print_findings(console, manifest["findings"])
    console.print(printable(str(config.out or default_out(config))), markup=False)
    return 0


if __name__ == "__main__":
    main(run)
