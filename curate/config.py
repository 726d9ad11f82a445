"""The configuration of a build: its fields are the options of `python -m curate.build`, their docstrings the help."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from curate.console import check_ranges
from curate.errors import OptionError
from curate.licences import parse_option_license

__all__ = ["BuildConfig"]


_SHARE = (0, 1)
_RANGES: dict[str, tuple[float, float]] = {
    "limit": (0, 2**40), "batch_tokens": (1, 2**31), "topk": (1, 2**20), "max_length": (2, 2**31),
    "max_error_share": _SHARE, "min_code": (0, 2**31), "max_comment_share": _SHARE, "max_line": (1, 2**31),
    "max_number_table_share": _SHARE, "max_repeated_line_share": _SHARE, "max_non_ascii_share": _SHARE,
    "compile_seconds": (0.1, 1e5), "execute_seconds": (0.1, 1e6), "near_duplicate": (0.3, 1), "tau": _SHARE,
    "lambda_": (0, 1e4), "window": (1, 2**31), "region_gap": (0, 2**31), "shard_rows": (1, 2**20), "jobs": (1, 1024),
    "actors": (1, 4096), "actor_gpus": (0, 1),
    "shards": (1, 2**20),
}  # fmt: skip
"""What numbers may be, where they are given."""


@dataclass(frozen=True)
class BuildConfig:
    """Annotate a corpus of CUDA answers: clean it, label every token, score it with a model, weigh it, write Parquet.

    `--config FILE.yaml` reads options from a file (`tau: 0.2`); those given beside it win.
    """

    source: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """`bundled` (also without one), a .jsonl, .json, .csv, .tsv, .parquet, .cu or .cuh file, an archive or a folder of
    them, or `hf://USER/NAME[/CONFIG][@REVISION][:SPLIT]`. `?map=...&license=...` behind it hold for it alone."""
    out: Path | None = None
    """The dataset's folder. Without one: data/build/NAME, after the first source."""
    map: str | None = None
    """Columns of the source where its shape is unknown: prompt=COL,response=COL (also messages=, id=, license=,
    correct=)."""
    license: str | None = None
    """SPDX expression for rows whose source names no licence."""
    limit: int | None = None
    """Read this many rows at most."""
    model: str = "embedded"
    """`embedded` (SmolLM2-135M-Instruct), a Hub id (`USER/NAME` or `USER/NAME@REVISION`), a folder, or a .gguf file."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Arithmetic of the model; auto: float32 on a CPU, bfloat16 on a GPU."""
    device: str = "auto"
    """auto (every GPU, else the CPU), cpu, cuda, cuda:N, or several with commas between them: a process for each."""
    batch_tokens: int | None = None
    """Tokens of one forward pass, padding included. Without it: one sample a pass on a CPU, 16384 tokens on a GPU."""
    context: Literal["chat", "raw"] = "chat"
    """What is scored: the answer in the chat that the model's template makes, or its code after the start token."""
    topk: int | None = None
    """Store the K most probable tokens at every response token as well: topk_ids, topk_logprob."""
    entropy_top20: bool = False
    """Store the entropy of the 20 most probable tokens, renormalised, as well: entropy_top20."""
    reference: str | None = None
    """A second model with the same tokenizer, whose log-probability of the tokens is stored as well: ref_logprob."""
    skip_scoring: bool = False
    """Build everything that needs no model; the tokenizer is still the model's."""
    min_code: int = 0
    """Answers of fewer characters of code than this are refused (short_code)."""
    max_comment_share: float = 0.8
    """... of a larger share of comments in the code's bytes (mostly_comments)."""
    max_line: int = 2000
    """... of a line of code with more characters (long_line)."""
    max_number_table_share: float = 0.5
    """... of a larger share of tables of numbers in the code's bytes (number_table)."""
    max_repeated_line_share: float = 0.6
    """... of a larger share of lines of code that stand in it before (repeated_lines)."""
    max_non_ascii_share: float = 0.5
    """... of a larger share of other characters than ASCII in the response (non_ascii)."""
    compile: bool = True
    """Compile the device code of each answer (compile_error, compile_refused, compile_timeout)."""
    arch: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Architectures to compile for; without it: sm_90."""
    compile_seconds: float = 30.0
    """Time to compile one answer for all of them."""
    execute: str | None = None
    """Run corpus code: a command that is given each complete program (one with `main`) that nothing before refuses, as
    a file, `{}` in its place, and says by its exit code whether it works. It has to bring its own isolation."""
    execute_seconds: float = 60.0
    """Time for one program."""
    near_duplicate: float = 0.8
    """Similarity of the code from which on the worse of two answers is a near_duplicate."""
    against: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A benchmark whose tasks must not be in the dataset (contaminated): a file or folder of them, or a Hub id. The
    columns of KernelBench, CUDABench, ComputeEval and ParEval are known."""
    allow_license: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """SPDX licences that are let through; without it the permissive ones. Rows of others are refused
    (license_not_allowed), those of unknown ones marked (unknown_license)."""
    redact: bool = True
    """Put placeholders in the place of secrets and e-mail addresses."""
    filter: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """REASON=refuse, REASON=mark or REASON=off: what happens to the rows that a filter finds. Marked ones keep the
    reason among their `flags`."""
    max_length: int = 4096
    """Samples of more tokens than this, prompt included, are refused (too_long)."""
    max_error_share: float = 0.1
    """Samples are refused when a larger share of their kernels' bytes is syntax error (kernel_syntax_errors)."""
    tau: float = 0.1
    """Confidence above which a token is kept by the confidence mask, equation (2)."""
    lambda_: Annotated[float, tyro.conf.arg(name="lambda")] = 1.0
    """Weight added to tokens in kernels and launches, equation (3)."""
    window: int = 256
    """Tokens in a window of equation (5), behind the sample weight; the analysis has windows of its own (64)."""
    region_scope: Literal["all", "code", "cuda"] = "code"
    """Windows behind the sample weight: of all tokens, of code, or of code and centred in a kernel or launch."""
    launch_scope: Literal["expr", "setup"] = "setup"
    """A launch in equation (3): the <<<...>>> expression, or with it the dim3 and integer declarations that feed it."""
    device_functions: bool = True
    """Count `__device__` functions as kernels in equation (3)."""
    region_gap: int = 2
    """Other tokens that may stand between two low-confidence sensitive tokens of one region."""
    shard_rows: int = 256
    """Rows that are held in memory, scored and written together."""
    shards: int | None = None
    """Build one of this many parts of the rows (--shard), as a job of its own; curate.merge joins them. Near-duplicates
    stay until then."""
    shard: int | None = None
    """Which of them, from 0: every N-th run of --shard-rows rows, from the I-th on."""
    jobs: int | None = None
    """Processes that parse; without it: one for each core."""
    engine: Literal["local", "ray"] = "local"
    """local: processes of this machine. ray: a Ray cluster (`pip install cuset[ray]`), started here for the build or
    found at --ray-address; all its machines must see the folder --out, and the model, under the same path."""
    ray_address: str | None = None
    """HOST:PORT of a running cluster's head, as `ray start --head` says it."""
    actors: int | None = None
    """Processes of the cluster that hold the model; without it: one for each GPU, or else one for each machine."""
    actor_gpus: float | None = None
    """GPUs that each of them takes: 1, a share of one (0.5), or 0; without it: 1 where the cluster has GPUs."""
    overwrite: bool = False
    """Replace another dataset that stands at --out; the same build goes on where it was, or stands."""

    def __post_init__(self) -> None:
        """Refuses values that cannot work; raises OptionError with the option's name and its range."""
        check_ranges(self, _RANGES)

        self._check_engine()
        if (self.shards is None) != (self.shard is None):
            raise OptionError("--shards N and --shard I: give both, I from 0 to N - 1, or neither")
        if self.shards is not None and self.shard is not None and not 0 <= self.shard < self.shards:
            raise OptionError(
                f"--shard {self.shard}: must lie between 0 and {self.shards - 1}, as --shards is {self.shards}"
            )
        for license in self.allow_license:
            if re.search(r" (?:OR|AND) ", parse_option_license(license, "--allow-license")):
                raise OptionError(f"--allow-license {license[:80]}: name one licence, and the option once for each")
        if self.skip_scoring and self.extra_scores:
            raise OptionError(
                "--skip-scoring: --topk, --entropy-top20 and --reference are scores; leave one or the other"
            )

    def _check_engine(self) -> None:
        for field in ("ray_address", "actors", "actor_gpus"):
            if self.engine != "ray" and getattr(self, field) is not None:
                raise OptionError(f"--{field.replace('_', '-')}: goes with --engine ray; give both or neither")
        if self.ray_address is not None and not re.fullmatch(r"[^\s/]+:\d{1,5}", self.ray_address):
            raise OptionError(
                f"--ray-address {self.ray_address[:100]}: give HOST:PORT, as `ray start --head` says it (port 6379)"
            )
        if self.engine == "ray" and (self.device not in {"auto", "cpu"} or (self.device == "cpu" and self.actor_gpus)):
            raise OptionError(
                f"--device {self.device}: --engine ray scores on the GPUs that --actor-gpus takes; 0: on processors"
            )

    @property
    def extra_scores(self) -> tuple[str, ...]:
        """The columns of scores that are stored only when asked for, in their order in the files."""
        topk = ("topk_ids", "topk_logprob") if self.topk else ()
        top20 = ("entropy_top20",) if self.entropy_top20 else ()
        return (*topk, *top20, *(("ref_logprob",) if self.reference else ()))

    def part_of(self, row: int) -> int:
        """The number of the part that a row goes to, which is given by its number in the order of reading."""
        return row // self.shard_rows // (self.shards or 1)

    def options(self, *names: str) -> dict[str, object]:
        """The named fields, ready for JSON: what a stage declares that it depends on."""
        return {name.rstrip("_"): getattr(self, name) for name in names}

    def resolved(self, default_out: Path) -> BuildConfig:
        """The same with the defaults that depend on other options filled in."""
        source = self.source or ("bundled",)
        return dataclasses.replace(self, source=source, out=self.out or default_out)
