"""`python -m train.export DATA --out DIR`: an annotated dataset for trainers that take binary masks, such as TRL's.

Every sample becomes a row of `input_ids`, `labels` (-100 where the mask is 0), `completion_mask` (1 where it is not)
and `sample_id`. TRL's SFTTrainer takes such labels as they are, and the model shifts them by one. What this format
cannot carry is printed, and stands in the README.md beside the data.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tyro
from jaxtyping import Float32
from numpy import ndarray as Array

from curate.card import escape_markdown
from curate.console import check_ranges, main, parse_options, printable
from curate.errors import DatasetError, OptionError
from curate.weights import confidence_mask, cuda_mask, token_weight
from train.data import Sample, SampleSet
from train.inputs.dataset import occupied, refuse_inside
from train.inputs.portions import DataConfig, TrainingData, open_data

__all__ = ["Carried", "ExportConfig", "export"]

_SCHEMA = pa.schema([
    ("input_ids", pa.list_(pa.int32())), ("labels", pa.list_(pa.int32())), ("completion_mask", pa.list_(pa.int8())),
    ("sample_id", pa.string()),
])  # fmt: skip
_IGNORED = -100  # of PyTorch's cross-entropy
_ROW_GROUP = 1000
_NEEDED = {"conf": ("logprob",), "cuda": ("location",), "both": ("logprob", "location"), "none": ()}
_RANGES = {"tau": (0, 1), "lambda_": (0, 1e4)}


@dataclass(frozen=True)
class ExportConfig:
    """Writes token ids, labels and completion masks for trainers that take binary masks."""

    data: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of annotated datasets."""
    out: Path
    """Folder to make; one that holds something is never written into."""
    format: Literal["trl"] = "trl"
    """Names of the columns."""
    files: Literal["parquet", "jsonl"] = "parquet"
    """Kind of the files."""
    mask: Literal["conf", "cuda", "both", "none"] = "both"
    """Tokens to train on: of equation (2), of equation (3), of either, or the whole response."""
    tau: float | None = None
    """Confidence above which a token is trained on, equation (2); without it: the build's."""
    lambda_: Annotated[float | None, tyro.conf.arg(name="lambda")] = None
    """Weight of kernels and launches, equation (3), of which a mask only keeps whether it is 0; without it: the
    build's."""
    max_length: int = 4096
    """Tokens of a sample, prompt included, beyond which it is cut."""
    held_out: float = 0.0
    """Share of the samples for a file of their own (test): with the same share and seed those of train.sft."""
    split_seed: int = 0
    """Which samples are held out."""

    def __post_init__(self) -> None:
        """Raises OptionError for values that cannot work."""
        check_ranges(self, _RANGES)


@dataclass
class Carried:
    """What was written, and what of the objective the format leaves out."""

    rows: int = 0
    empty: int = 0
    """Samples left out, since their mask is 0 everywhere."""
    response_tokens: int = 0
    trained_tokens: int = 0
    other_weights: int = 0
    """Trained tokens whose M, equation (4), is not 1."""
    highest: float = 1.0
    """The largest M."""
    longest: int = 0
    """Tokens of the longest row."""


def export(config: ExportConfig) -> tuple[TrainingData, dict[str, Carried]]:
    """Writes the folder, whole or not at all; returns what was read, and by file what was written.

    Raises DatasetError, OptionError.
    """
    if occupied(config.out):
        raise OptionError(f"--out {config.out}: is there already; give another folder")
    refuse_inside(config.out, config.data)
    portions = DataConfig(config.data, config.max_length, config.held_out, config.split_seed)
    data = open_data(portions, _NEEDED[config.mask], need_scores=False)
    options, written = _options(config, data), {}
    with _whole(config.out) as folder:
        for name, samples in (("train", data.train), ("test", data.held_out)):
            if samples is not None:
                written[name] = Carried()
                _write(_rows(samples, config.mask, options, written[name]), folder / f"{name}.{config.files}")
        if not written["train"].rows:
            raise DatasetError(f"--mask {config.mask}: leaves no token to train on; give another mask or a lower --tau")
        lines = "".join(f"- {line}\n" for line in _lines(config, data, written, escape_markdown))
        (folder / "README.md").write_text(f"# Exported from an annotated dataset\n\n{lines}", encoding="utf-8")
        for n, path in enumerate(config.data):
            if (path / "README.md").is_file():  # licences and notices of the samples
                shutil.copyfile(path / "README.md", folder / f"SOURCE-{n}.md")
    return data, written


@contextlib.contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """A folder that takes its name when all is in it."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".export-") as temporary:
            folder = Path(temporary) / "data"
            folder.mkdir()
            yield folder
            folder.rename(out)
    except OSError as error:
        why = error.strerror or error
        raise DatasetError(f"--out {out}: cannot write there ({why}); give another folder") from error


def _options(config: ExportConfig, data: TrainingData) -> dict[str, Any]:
    """What the masks depend on: as the build had it, but for tau and lambda that are given."""
    given = {"tau": config.tau, "lambda": config.lambda_}
    return data.manifests[0]["config"] | {name: value for name, value in given.items() if value is not None}


def _weights(sample: Sample, mask: str, options: dict[str, Any]) -> Float32[Array, "T"]:
    """M of equation (4), of which a binary mask keeps M > 0; without a mask: ones."""
    size, lists = len(sample.input_ids) - sample.prompt_tokens, sample.columns
    if mask == "none":
        return np.ones(size, np.float32)
    scopes = {name: options[name] for name in ("launch_scope", "device_functions")}
    sure = confidence_mask(lists["logprob"], options["tau"]) if "logprob" in lists else np.zeros(size, bool)
    inside = cuda_mask(lists["location"], **scopes) if "location" in lists else np.zeros(size, bool)
    return token_weight(sure, inside, options["lambda"])


def _rows(samples: SampleSet, mask: str, options: dict[str, Any], carried: Carried) -> Iterator[dict[str, Any]]:
    for number in range(samples.samples):
        sample = samples.sample(number)
        weights = _weights(sample, mask, options)
        trained = np.concatenate([np.zeros(sample.prompt_tokens, bool), weights > 0])
        carried.response_tokens += len(weights)
        if not trained.any():
            carried.empty += 1
            continue
        carried.rows += 1
        carried.trained_tokens += int(trained.sum())
        carried.other_weights += int(((weights > 0) & (weights != 1)).sum())
        carried.highest = max(carried.highest, float(weights.max()))
        carried.longest = max(carried.longest, len(trained))
        yield {
            "input_ids": sample.input_ids,
            "labels": np.where(trained, sample.input_ids, np.int32(_IGNORED)),
            "completion_mask": trained.astype(np.int8),
            "sample_id": sample.sample_id,
        }


def _write(rows: Iterator[dict[str, Any]], path: Path) -> None:
    if path.suffix == ".jsonl":
        with path.open("w", encoding="utf-8") as lines:
            for row in rows:
                plain = {k: v if isinstance(v, str) else v.tolist() for k, v in row.items()}
                lines.write(json.dumps(plain) + "\n")
        return
    with pq.ParquetWriter(path, _SCHEMA, compression="zstd") as writer:
        while group := list(itertools.islice(rows, _ROW_GROUP)):
            writer.write_table(pa.Table.from_pylist(group, schema=_SCHEMA))


def _lines(
    config: ExportConfig, data: TrainingData, written: dict[str, Carried], shown: Callable[[str], str] = str
) -> list[str]:
    """What was written, what the format cannot carry, and what its reader must be told; `shown` escapes names."""
    options = _options(config, data)
    lines = [f"--mask {config.mask}, tau {options['tau']:g}, lambda {options['lambda']:g}"]
    for name, its in written.items():
        share = its.trained_tokens / max(1, its.response_tokens)
        left = f"; {its.empty} samples without a token to train on are left out" if its.empty else ""
        lines.append(
            f"{name}.{config.files}: {its.rows} samples, {its.trained_tokens} of {its.response_tokens} response tokens"
            f" ({share:.1%}) with a label{left}"
        )
    if data.dropped or data.truncated:
        lines.append(
            f"--max-length {config.max_length}: {data.truncated} samples are cut, {len(data.dropped)} left out, whose"
            " prompt alone fills it"
        )
    train = written["train"]
    if train.other_weights:
        lines.append(
            f"not carried: M of equation (4); {train.other_weights} tokens of {train.trained_tokens} in train have"
            f" another weight than 1, up to {train.highest:g}, and weigh 1 here"
        )
    if any(not manifest["config"]["skip_scoring"] for manifest in data.manifests):
        lines.append(
            f"not carried: w of equation (8), in train {data.train.mean_sample_weight:.3f} in the mean; every sample"
            " weighs 1 here"
        )
    if train.trained_tokens < train.response_tokens:
        lines.append(
            "not carried: the denominator; such trainers divide by the tokens with a label, train.sft by all response"
            " tokens unless --normalize says otherwise"
        )
    if config.mask in ("conf", "both"):
        lines.append("not carried: --confidence online; the mask is that of the model that scored the data")
    models = sorted({str(manifest["model"]["name"]) for manifest in data.manifests})
    lines.append(f"the token ids are those of {', '.join(map(shown, models))}: train a model with that tokenizer")
    lines.append(
        f"for TRL: SFTConfig(max_length={max(its.longest for its in written.values())}) or more, since its default cuts"
        " at 1024"
    )
    return lines


def run(arguments: Sequence[str]) -> int:
    config = parse_options(ExportConfig, arguments, "train.export")
    data, written = export(config)
    for line in _lines(config, data, written):
        print(printable(line))
    return 0


if __name__ == "__main__":
    main(run)
