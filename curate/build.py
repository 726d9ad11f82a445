"""`python -m curate.build`: a corpus in, an annotated dataset out."""

from __future__ import annotations

from collections.abc import Sequence

from curate.config import BuildConfig
from curate.console import main, parse_options
from curate.driver import build_dataset, default_out
from curate.summary import print_build

__all__ = ["run"]


def run(arguments: Sequence[str]) -> int:
    """Builds, then prints the funnel, the findings and where the dataset is."""
    config = parse_options(BuildConfig, arguments, "curate.build")
    manifest = build_dataset(config)
    print_build(manifest, config.out or default_out(config))
    return 0


if __name__ == "__main__":
    main(run)
