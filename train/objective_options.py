"""The options of the objectives: what they mean, their defaults as published, and what numbers may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from curate.errors import OptionError

__all__ = ["RANGES", "Normalize", "ObjectiveConfig", "check_stored_weights"]

Normalize = Literal["tokens", "weights", "samples", "sample_mean"]


@dataclass(frozen=True)
class ObjectiveConfig:
    """The options of the objectives. Those of one objective mean nothing to the others."""

    objective: Literal["sft", "dft", "eaft", "asft", "profit", "bft", "cuset"] = "cuset"
    """What is minimised: the weights of the tokens."""
    normalize: Normalize | None = None
    """Denominator: tokens, weights (sum of M), samples, or sample_mean; without it the objective's own."""
    confidence: Literal["precomputed", "online"] = "precomputed"
    """profit, cuset: the dataset's stored probabilities, or those of the model being trained (as published)."""
    tau: float = 0.1
    """profit, cuset: confidence above which a token is kept, equation (2)."""
    lambda_: Annotated[float, tyro.conf.arg(name="lambda")] = 1.0
    """cuset: weight of tokens in kernels and launches, equation (3)."""
    mask: Literal["conf", "cuda", "both", "none"] = "both"
    """cuset: M is Mconf, Mcuda, their sum (equation (4)), or 1."""
    weight: Literal["region", "none", "constant"] = "region"
    """cuset: w is equation (8), 1, or the mean of the stored w over the training set."""
    window: int = 256
    """cuset, bft: tokens in a window, equation (5)."""
    region_scope: Literal["all", "code", "cuda"] = "code"
    """cuset: windows of all tokens, of code, or of code and centred in a kernel or launch."""
    launch_scope: Literal["expr", "setup"] = "setup"
    """cuset: a launch is the <<<...>>> expression, or with it the declarations that feed it."""
    device_functions: bool = True
    """cuset: count `__device__` functions as kernels."""
    eaft_alpha: float = 1.0
    """eaft: exponent of the entropy."""
    eaft_scale: float = 3.0
    """eaft: what the entropy is divided by; 3 (about ln 20) as first published, 1 in its second version."""
    asft_k: float = 0.1
    """asft: coefficient of the divergence from the reference."""
    bft_gamma: float = 1.0
    """bft: exponent of a sample's lowest window."""


RANGES: dict[str, tuple[float, float]] = {
    "tau": (0, 1), "lambda_": (0, 1e4), "window": (1, 2**31), "eaft_alpha": (0, 1e2), "eaft_scale": (1e-3, 1e3),
    "asft_k": (0, 1e4), "bft_gamma": (1e-3, 1e3),
}  # fmt: skip


def check_stored_weights(config: ObjectiveConfig, built: Mapping[str, Any]) -> None:
    """The stored w is that of the build's windows: other ones would be asked for in vain."""
    names = ["window", "region_scope"]
    if config.region_scope == "cuda":
        names += ["launch_scope", "device_functions"]
    for name in names:
        wanted, stored = getattr(config, name), built[name]
        if wanted != stored:
            option = f"--{'no-' if wanted is False else ''}{name.replace('_', '-')}"
            value = "" if isinstance(wanted, bool) else f" {wanted}"
            raise OptionError(
                f"{option}{value}: the dataset's sample weights were made with {name} {stored}; run python -m"
                f" curate.reweigh with {option}{value} first, or give --confidence online"
            )
