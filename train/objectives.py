"""The objectives: each is a weight for every response token, and a denominator.

    loss = sum over tokens of weight * (-log p) / denominator, summed over the accumulated batch and all ranks

A weight is a token's factor times its sample's, both detached. `--normalize` divides by
    tokens       N, all supervised tokens; masked ones count                       (default of most, as published)
    weights      the sum of the token factors; only where stored columns give them
    samples      B, the samples; the literal equation (9)
    sample_mean  each sample by its own T, then B                                  (default of BFT)
Equation numbers are those of CuSeT, arXiv 2606.16231; p is the model's probability of the token, its confidence c of
equation (1), detached in weights.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float32, Int64
from torch import Tensor

from curate.console import check_ranges
from curate.errors import OptionError
from curate.weights import cuda_locations
from train.objective_options import RANGES, Normalize, ObjectiveConfig, check_stored_weights
from train.windows import lowest_centred, lowest_full

__all__ = ["OBJECTIVES", "Objective", "TokenStatistics", "make_objective"]

Reach = Literal["stored", "token", "sequence"]
"""What a weight depends on: stored columns alone, the statistics of its own token, or those of its whole sample."""


@dataclass(frozen=True)
class TokenStatistics:
    """Of P response tokens under the model being trained, detached: -log p in nats, p, and, when asked for, the entropy
    in nats of the 20 most probable tokens, renormalised."""

    nll: Float32[Tensor, "P"]
    probability: Float32[Tensor, "P"]
    entropy_top20: Float32[Tensor, "P"] | None = None


@dataclass(frozen=True)
class Tokens:
    """What an objective sees of P tokens of B samples; `column` holds stored lists, (P,) each."""

    sample_index: Int64[Tensor, "P"]
    sample_weight: Float32[Tensor, "B"]
    column: Mapping[str, Tensor]
    mean_weight: float
    statistics: TokenStatistics | None

    @property
    def model(self) -> TokenStatistics:
        if self.statistics is None:
            raise ValueError("these weights depend on the model's probabilities, which are not known yet")
        return self.statistics


Factors = tuple[Tensor, Tensor | None]
"""The factor of each token (P,), and of each sample (B,); None: 1."""


def sft(config: ObjectiveConfig, tokens: Tokens) -> Factors:
    """Standard fine-tuning: -log p, over N."""
    return torch.ones_like(tokens.sample_index, dtype=torch.float32), None


def dft(config: ObjectiveConfig, tokens: Tokens) -> Factors:
    """DFT, arXiv 2508.05629: -p log p, over N."""
    return tokens.model.probability, None


def eaft(config: ObjectiveConfig, tokens: Tokens) -> Factors:
    """EAFT, arXiv 2601.02151: -(H20 / scale)^alpha log p, over N; alpha 1, scale 3, or 1 in its second version."""
    entropy = tokens.model.entropy_top20
    assert entropy is not None
    return (entropy / config.eaft_scale) ** config.eaft_alpha, None


def asft(config: ObjectiveConfig, tokens: Tokens) -> Factors:
    """ASFT, arXiv 2509.23753: -p log p + k KL(reference, model), over N; k 0.1. The head adds the divergence
    (`Objective.kl`).

    The reference is the base model, with the adapter off; hence for LoRA alone.
    """
    return tokens.model.probability, None


def profit(config: ObjectiveConfig, tokens: Tokens) -> Factors:
    """ProFit, arXiv 2601.09195: -1[p > tau] log p, over N, masked tokens counted; tau 0.1. Published: online."""
    return _mconf(config, tokens).float(), None


def bft(config: ObjectiveConfig, tokens: Tokens) -> Factors:
    """BFT, arXiv 2511.21075: (1 - P^gamma) * mean over the sample of -p log p, over samples; gamma 1.

    P = exp(min over full windows of 256 tokens of the mean log p).
    """
    lowest = lowest_full(-tokens.model.nll, tokens.sample_index, len(tokens.sample_weight), config.window)
    return tokens.model.probability, (1 - (config.bft_gamma * lowest.clamp(max=0)).exp()).float()


def cuset(config: ObjectiveConfig, tokens: Tokens) -> Factors:
    """CuSeT, equation (9): -w M log p, over N (`samples`: the literal equation); tau 0.1, lambda 1, window 256.

    M of equation (4) and w of equation (8), from stored probabilities by default; published: online. `mask cuda` alone
    gives every token outside kernels and launches 0; `mask both` with tau 0 gives it 1.
    """
    return _token_factor(config, tokens), _sample_factor(config, tokens)


def _mconf(config: ObjectiveConfig, tokens: Tokens) -> Bool[Tensor, "P"]:
    """Mconf, equation (2): log c_t > log tau, strictly, in float32; log 0 = -inf."""
    log_tau = torch.tensor(math.log(config.tau) if config.tau > 0 else -math.inf, device=tokens.sample_index.device)
    return (tokens.column["logprob"].float() if config.confidence == "precomputed" else -tokens.model.nll) > log_tau


def _mcuda(config: ObjectiveConfig, tokens: Tokens) -> Bool[Tensor, "P"]:
    """The indicator of equation (3): the token stands in a kernel or in a launch, as in `curate.weights.cuda_mask`."""
    location = tokens.column["location"]
    inside = cuda_locations(config.launch_scope, config.device_functions)
    return torch.isin(location, torch.tensor(inside, dtype=location.dtype, device=location.device))


def _token_factor(config: ObjectiveConfig, tokens: Tokens) -> Float32[Tensor, "P"]:
    """M, equation (4), or one of its terms."""
    if config.mask == "none":
        return torch.ones_like(tokens.sample_index, dtype=torch.float32)
    if config.mask == "conf":
        return _mconf(config, tokens).float()
    mcuda = config.lambda_ * _mcuda(config, tokens).float()
    return mcuda if config.mask == "cuda" else _mconf(config, tokens).float() + mcuda


def _sample_factor(config: ObjectiveConfig, tokens: Tokens) -> Float32[Tensor, "B"] | None:
    """w = 1 - C, equations (5) to (8); stored, or from the model being trained."""
    if config.weight == "none":
        return None
    if config.weight == "constant":
        return torch.full_like(tokens.sample_weight, tokens.mean_weight)
    if config.confidence == "precomputed":
        return tokens.sample_weight
    lowest = lowest_centred(
        tokens.model.probability,
        tokens.sample_index,
        len(tokens.sample_weight),
        config.window,
        inside=None if config.region_scope == "all" else tokens.column["in_code"].bool(),
        centres=_mcuda(config, tokens) if config.region_scope == "cuda" else None,
    )
    return (1 - lowest.clamp(0, 1)).float()


@dataclass(frozen=True)
class _Definition:
    factors: Callable[[ObjectiveConfig, Tokens], Factors]
    reach: Reach
    normalize: Normalize = "tokens"


OBJECTIVES: dict[str, _Definition] = {
    "sft": _Definition(sft, "stored"),
    "dft": _Definition(dft, "token"),
    "eaft": _Definition(eaft, "token"),
    "asft": _Definition(asft, "token"),
    "profit": _Definition(profit, "stored"),
    "bft": _Definition(bft, "sequence", "sample_mean"),
    "cuset": _Definition(cuset, "stored"),
}
"""Each objective with what its weights depend on under precomputed confidence, and its own denominator."""


@dataclass(frozen=True)
class Objective:
    """An objective with its options, ready for the head (`weights`, `scale`) and for the trainer (`denominator`).

    A batch is a mapping that holds `sample_index` (N,), `sample_weight` (B,) and `columns`, each (N,).
    """

    config: ObjectiveConfig
    normalize: Normalize
    reach: Reach
    columns: tuple[str, ...]
    """Stored token lists that the weights are made of."""
    mean_sample_weight: float = 1.0

    @property
    def name(self) -> str:
        return self.config.objective

    @property
    def known(self) -> bool:
        """Whether the weights depend on stored columns alone."""
        return self.reach == "stored"

    @property
    def needs_entropy(self) -> bool:
        """Whether the weights depend on the entropy of the 20 most probable tokens."""
        return self.name == "eaft"

    @property
    def kl(self) -> float:
        """Coefficient of KL(reference, model), which the head adds for every token, times `scale`; 0: no such term."""
        return self.config.asft_k if self.name == "asft" else 0.0

    def weights(
        self, statistics: TokenStatistics | None, batch: Mapping[str, Any], part: slice = slice(None)
    ) -> Float32[Tensor, "P"]:
        """Detached weights of the tokens in `part`, whose statistics are given; of all N where `reach` is sequence."""
        with torch.no_grad():
            token, sample = self._factors(statistics, batch, part)
            if sample is not None:
                token = token * sample[batch["sample_index"][part]]
            scale = self.scale(batch)
            return (token if scale is None else token * scale[part]).float().detach()

    def sample_weights(self, statistics: TokenStatistics | None, batch: Mapping[str, Any]) -> Float32[Tensor, "B"]:
        """The factor of each sample as the loss has it, w of equation (8) for cuset; 1 where there is none."""
        with torch.no_grad():
            sample = self._factors(statistics, batch)[1]
        return torch.ones_like(batch["sample_weight"]) if sample is None else sample

    def scale(self, batch: Mapping[str, Any]) -> Float32[Tensor, "N"] | None:
        """1/T of each token's sample, of which `sample_mean` makes a mean; None: 1."""
        if self.normalize != "sample_mean":
            return None
        return 1 / torch.bincount(batch["sample_index"])[batch["sample_index"]].float()

    def denominator(self, batch: Mapping[str, Any]) -> float:
        """This batch's share of the denominator: shares of micro-batches and ranks add up."""
        if self.normalize == "tokens":
            return float(len(batch["sample_index"]))
        if self.normalize == "weights":
            return float(self._factors(None, batch, weight="none")[0].double().sum())
        return float(len(batch["sample_weight"]))

    def _factors(
        self, statistics: TokenStatistics | None, batch: Mapping[str, Any], part: slice = slice(None), **changed: Any
    ) -> Factors:
        index, column = batch["sample_index"][part], {name: batch[name][part] for name in self.columns}
        tokens = Tokens(index, batch["sample_weight"], column, self.mean_sample_weight, statistics)
        return OBJECTIVES[self.name].factors(dataclasses.replace(self.config, **changed), tokens)


def make_objective(
    config: ObjectiveConfig, mean_sample_weight: float | None = None, built: Mapping[str, Any] | None = None
) -> Objective:
    """The objective of these options; `mean_sample_weight` is the mean of the stored w over the training set, `built`
    the `config` of the dataset's manifest.

    Raises OptionError for values out of range, and for combinations that are undefined or train nothing.
    """
    check_ranges(config, RANGES)
    definition = OBJECTIVES[config.objective]
    cuset_ = config.objective == "cuset"
    conf = config.objective == "profit" or (cuset_ and config.mask in ("conf", "both"))
    cuda = cuset_ and config.mask in ("cuda", "both")
    region = cuset_ and config.weight == "region"
    online = config.confidence == "online"

    if (conf or cuda) and not (conf and config.tau < 1) and not (cuda and config.lambda_ > 0):
        raise OptionError(
            f"--objective {config.objective}: no token would have a weight; give --tau below 1 or --lambda above 0"
        )
    if cuset_ and config.weight == "constant" and mean_sample_weight is None:
        raise ValueError("the constant weight needs the mean of the stored weights")
    if region and not online and built is not None:
        check_stored_weights(config, built)

    reach: Reach = "sequence" if online and region else "token" if online and conf else definition.reach
    normalize = config.normalize or definition.normalize
    if normalize == "weights" and reach != "stored" and not (cuset_ and not conf):
        remedy = "--confidence precomputed, or " if online and conf else ""
        raise OptionError(
            f"--normalize weights: the weights of {config.objective} depend on the model being trained, so their sum"
            f" over the batch is not known before it; give {remedy}--normalize tokens, samples or sample_mean"
        )
    columns = {
        "logprob": conf and not online,
        "location": cuda or (region and online and config.region_scope == "cuda"),
        "in_code": region and online and config.region_scope != "all",
    }
    mean = 1.0 if mean_sample_weight is None else float(mean_sample_weight)
    return Objective(config, normalize, reach, tuple(name for name, needed in columns.items() if needed), mean)
