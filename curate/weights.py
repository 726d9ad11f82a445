"""Masks and weights of the training objective, equations (2) to (8) of the paper (arXiv 2606.16231).

Everything is computed from the stored float16 log-probabilities, so that a dataset agrees with itself. Cost: one pass
over the tokens of a sample, prefix sums for the windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float16, Float32, Float64, Int64, UInt8
from numpy import ndarray as Array

from curate.config import BuildConfig
from curate.taxonomy import Location

__all__ = [
    "SampleWeight",
    "confidence_mask",
    "cuda_locations",
    "cuda_mask",
    "sample_weight",
    "token_weight",
    "weigh",
    "window_bounds",
    "window_means",
]


def confidence_mask(logprob: Float16[Array, "T"], tau: float) -> Bool[Array, "T"]:
    """Mconf, equation (2): 1 where log c_t > log tau, strictly; log 0 = -inf, so that tau = 0 keeps every token."""
    log_tau = np.float32(np.log(tau)) if tau > 0 else np.float32(-np.inf)
    return logprob.astype(np.float32) > log_tau


def cuda_locations(launch_scope: str, device_functions: bool) -> list[Location]:
    """Where equation (3) finds a token inside a kernel or a launch.

    `launch_scope` setup adds the declarations that feed a launch; `device_functions` adds `__device__` helpers.
    """
    inside = [Location.KERNEL, Location.LAUNCH]
    if launch_scope == "setup":
        inside.append(Location.LAUNCH_SETUP)
    if device_functions:
        inside.append(Location.DEVICE_FUNCTION)
    return inside


def cuda_mask(location: UInt8[Array, "T"], *, launch_scope: str, device_functions: bool) -> Bool[Array, "T"]:
    """The indicator of equation (3): the token stands in a kernel or in a launch; options as in `cuda_locations`."""
    return np.isin(location, np.array(cuda_locations(launch_scope, device_functions), dtype=np.uint8))


def token_weight(mconf: Bool[Array, "T"], mcuda: Bool[Array, "T"], lambda_: float) -> Float32[Array, "T"]:
    """M, equation (4): Mconf + lambda * [kernel or launch]; one of 0, 1, lambda, 1 + lambda."""
    return mconf.astype(np.float32) + np.float32(lambda_) * mcuda.astype(np.float32)


def window_bounds(length: int, window: int) -> tuple[Int64[Array, "T"], Int64[Array, "T"]]:
    """R_t, equation (5), from 0 and with exclusive ends: [t - floor(l/2), t + ceil(l/2)) clipped to the sequence.

    A sequence shorter than the window has one window, all of it, at every t.
    """
    t = np.arange(length, dtype=np.int64)
    if length < window:
        return np.zeros_like(t), np.full_like(t, length)
    return np.maximum(0, t - window // 2), np.minimum(length, t + (window + 1) // 2)


def window_means(confidence: Float64[Array, "T"], window: int) -> Float64[Array, "T"]:
    """C_t, equation (6): the mean confidence of the clipped window centred on t, by prefix sums in float64."""
    total = np.concatenate([[0.0], np.cumsum(confidence, dtype=np.float64)])
    start, end = window_bounds(len(confidence), window)
    return (total[end] - total[start]) / np.maximum(end - start, 1)


@dataclass(frozen=True)
class SampleWeight:
    """w, C and the first token (of the response, from 0) of the window that C stands for."""

    weight: float
    min_confidence: float
    min_start: int


def sample_weight(
    logprob: Float16[Array, "T"], in_code: Bool[Array, "T"], mcuda: Bool[Array, "T"], *, window: int, region_scope: str
) -> SampleWeight:
    """w = 1 - C with C = min C_t, equations (5) to (8), the first of equal minima.

    `region_scope`: the sequence of equation (5) is every response token (all), or the tokens of code alone, so that no
    window mixes code with prose (code; the paper's case where the answer is nothing but code); cuda takes the minimum
    only at tokens in a kernel or launch. A scope that holds no token gives way to the next wider one.
    """
    if len(logprob) == 0:
        raise ValueError("a sample without response tokens has no weight")
    chosen = np.flatnonzero(in_code) if region_scope != "all" else np.empty(0, dtype=np.int64)
    if len(chosen) == 0:
        chosen = np.arange(len(logprob))
    means = window_means(np.exp(logprob[chosen].astype(np.float64)), window)
    centres = np.flatnonzero(mcuda[chosen]) if region_scope == "cuda" else np.arange(len(chosen))
    if len(centres) == 0:
        centres = np.arange(len(chosen))
    t = int(centres[np.argmin(means[centres])])
    lowest = float(min(max(means[t], 0.0), 1.0))
    start = int(chosen[window_bounds(len(chosen), window)[0][t]])
    return SampleWeight(1.0 - lowest, lowest, start)


def weigh(
    logprob: Float16[Array, "T"], location: UInt8[Array, "T"], in_code: Bool[Array, "T"], config: BuildConfig
) -> tuple[Float32[Array, "T"], SampleWeight]:
    """(M, w) of one sample under a configuration: equations (2) to (8)."""
    mcuda = cuda_mask(location, launch_scope=config.launch_scope, device_functions=config.device_functions)
    weight = sample_weight(logprob, in_code, mcuda, window=config.window, region_scope=config.region_scope)
    return token_weight(confidence_mask(logprob, config.tau), mcuda, config.lambda_), weight
