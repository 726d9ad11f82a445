"""`python -m curate.reweigh OUT --tau 0.3`: other masks and weights for a finished dataset, from its stored scores.

Loads no model and reads no source: equations (2) to (8) are computed anew from the stored log-probabilities, locations
and code marks. The result is that of a build with these options, to the byte.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from curate.config import BuildConfig
from curate.console import main, parse_options
from curate.errors import DatasetError, OptionError
from curate.folder import OutFolder
from curate.keys import INPUTS, plan_of, stage_keys
from curate.manifest import write_manifest
from curate.schema import table_columns
from curate.stages import Context, reweighed
from curate.store import JOURNAL, part_files, read_manifest, read_part, write_part

__all__ = ["ReweighConfig", "reweigh"]

_HELD = "manifest.old.json"


@dataclass(frozen=True)
class ReweighConfig:
    """Gives a finished dataset other masks and weights; what is not given stays as it was built."""

    path: tyro.conf.Positional[Path]
    """The dataset's folder."""
    tau: float | None = None
    """Confidence above which a token is kept by the confidence mask, equation (2)."""
    lambda_: Annotated[float | None, tyro.conf.arg(name="lambda")] = None
    """Weight added to tokens in kernels and launches, equation (3)."""
    window: int | None = None
    """Tokens in a window of equation (5)."""
    region_scope: Literal["all", "code", "cuda"] | None = None
    """Windows behind the sample weight: of all tokens, of code, or of code and centred in a kernel or launch."""
    launch_scope: Literal["expr", "setup"] | None = None
    """A launch in equation (3): the <<<...>>> expression, or with it the declarations that feed it."""
    device_functions: bool | None = None
    """Count `__device__` functions as kernels in equation (3)."""


def reweigh(config: ReweighConfig) -> dict[str, Any]:
    """Rewrites weights and manifest, and returns the manifest.

    Killed in the middle, it leaves the folder unfinished; the same command then ends what it began. Raises DatasetError
    where there is no dataset or it has no scores, OptionError for values that cannot work.
    """
    folder = OutFolder(config.path)
    held = config.path / JOURNAL / _HELD
    if not held.is_file():
        read_manifest(config.path)  # says in one line what is wrong with a folder that is no dataset
    with folder.locked():
        if not held.is_file():
            (config.path / "manifest.json").replace(held)
        old = json.loads(held.read_text(encoding="utf-8"))
        options: dict[str, Any] = {
            f"{k}_" if k == "lambda" else k: tuple(v) if isinstance(v, list) else v for k, v in old["config"].items()
        }
        reference = old["reference"]["name"] if "reference" in old else None
        built = BuildConfig(**options, out=config.path, reference=reference)
        given = {k: v for k, v in vars(config).items() if k != "path" and v is not None}
        try:
            if built.skip_scoring:
                raise DatasetError(f"{config.path}: built with --skip-scoring, so there are no scores to weigh by")
            wanted = dataclasses.replace(built, **given)
        except (OptionError, DatasetError):
            held.replace(config.path / "manifest.json")
            raise
        context = Context(wanted)
        for part in part_files(config.path / "samples"):
            frame = read_part(part)
            write_part(reweighed(frame, context), table_columns("samples", wanted.extra_scores), part)
        inputs = {name: old[name] for name in INPUTS if name in old}
        keys = stage_keys(wanted, inputs)
        folder.replan(plan_of(wanted, inputs, keys))
        manifest = write_manifest(config.path, wanted, inputs, keys, old["counts"], old["regions"])
        held.unlink()
    return manifest


def run(arguments: Sequence[str]) -> int:
    config = parse_options(ReweighConfig, arguments, "curate.reweigh")
    manifest = reweigh(config)
    names = ("tau", "lambda", "window", "region_scope", "launch_scope", "device_functions")
    print(", ".join(f"{name} {manifest['config'][name]}" for name in names))
    return 0


if __name__ == "__main__":
    main(run)
