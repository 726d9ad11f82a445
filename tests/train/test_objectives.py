"""The weights of every objective: planted values, naive loops, the identities between them, and what is refused."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from curate.config import BuildConfig
from curate.errors import OptionError
from curate.taxonomy import Location
from curate.weights import weigh
from train.objective_options import ObjectiveConfig
from train.objectives import OBJECTIVES, Objective, TokenStatistics, make_objective
from train.windows import lowest_centred, lowest_full

COLUMNS = ("logprob", "location", "in_code")


def packed(*lengths: int, seed: int = 0) -> tuple[dict[str, torch.Tensor], TokenStatistics]:
    """A batch of samples of these lengths end to end, with random stored columns, and random statistics of the model."""
    draw = torch.Generator().manual_seed(seed)
    count = sum(lengths)
    nll = torch.rand(count, generator=draw) * 5
    batch = {
        "sample_index": torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)),
        "sample_weight": torch.rand(len(lengths), generator=draw),
        "logprob": -(torch.rand(count, generator=draw) * 5).half().float(),
        "location": torch.randint(0, len(Location), (count,), generator=draw, dtype=torch.uint8),
        "in_code": torch.rand(count, generator=draw) < 0.7,
    }
    return batch, TokenStatistics(nll, (-nll).exp(), torch.rand(count, generator=draw) * 3)


def every_objective() -> list[ObjectiveConfig]:
    """Every objective, cuset with each combination of its flags."""
    plain = [ObjectiveConfig(objective=name) for name in OBJECTIVES if name != "cuset"]
    plain.append(ObjectiveConfig("profit", confidence="online"))
    flags = itertools.product(
        ("conf", "cuda", "both", "none"),
        ("region", "none", "constant"),
        ("precomputed", "online"),
        ("all", "code", "cuda"),
    )
    return plain + [
        ObjectiveConfig(mask=m, weight=w, confidence=c, region_scope=s, window=3)  # type: ignore[arg-type]
        for m, w, c, s in flags
    ]


def made(config: ObjectiveConfig) -> Objective:
    return make_objective(config, mean_sample_weight=0.25)


def joined(parts: list[list[Any]]) -> torch.Tensor:
    return torch.tensor([x for part in parts for x in part])


def naive_lowest(values: list[float], window: int, centres: list[int]) -> float:
    """C as the paper prints it, t and j from 1."""
    length, means = len(values), []
    for t in range(1, length + 1):
        region = range(max(1, t - window // 2), min(length, t + -(-window // 2) - 1) + 1)
        if length < window:
            region = range(1, length + 1)
        if t - 1 in centres:
            means.append(sum(values[j - 1] for j in region) / len(region))
    return min(means)


samples = st.lists(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=25), min_size=1, max_size=4)


@given(samples, st.integers(1, 30), st.data())
def test_window_confidence_of_packed_samples_equals_a_double_loop(
    drawn: list[list[float]], window: int, data: st.DataObject
) -> None:
    def flags() -> list[list[bool]]:
        return [data.draw(st.lists(st.booleans(), min_size=len(s), max_size=len(s))) for s in drawn]

    inside, centres = flags(), flags()
    expected = []
    for values, code, at in zip(drawn, inside, centres, strict=True):
        chosen = [i for i in range(len(values)) if code[i]] or list(range(len(values)))
        own = [k for k, i in enumerate(chosen) if at[i]] or list(range(len(chosen)))
        expected.append(naive_lowest([values[i] for i in chosen], window, own))
    index = torch.repeat_interleave(torch.arange(len(drawn)), torch.tensor([len(s) for s in drawn]))
    result = lowest_centred(
        joined(drawn), index, len(drawn), window,
        inside=joined(inside), centres=joined(centres),
    )  # fmt: skip
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("window", "lengths"), [(256, (3, 5)), (1, (4, 2)), (4, (1, 1)), (3, (1, 7, 3)), (2, (2, 2))],
    ids=["T below l", "l = 1", "T = 1", "ragged", "T = l"],
)  # fmt: skip
def test_window_confidence_at_its_edges(window: int, lengths: tuple[int, ...]) -> None:
    batch, statistics = packed(*lengths)
    parts = statistics.probability.split(lengths)
    expected = [naive_lowest(p.tolist(), window, list(range(len(p)))) for p in parts]
    got = lowest_centred(statistics.probability, batch["sample_index"], len(lengths), window)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6)


def test_a_sample_without_tokens_does_not_disturb_its_neighbours() -> None:
    index = torch.tensor([0, 0, 2])
    got = lowest_centred(torch.tensor([0.5, 0.7, 0.2]), index, 3, 1)
    assert got.tolist() == [0.5, math.inf, pytest.approx(0.2)]


@given(samples, st.integers(1, 30), st.floats(0.1, 4))
def test_bft_equals_a_naive_loop(drawn: list[list[float]], window: int, gamma: float) -> None:
    logs = [[math.log(max(x, 1e-4)) for x in s] for s in drawn]
    expected = []
    for values in logs:
        length = len(values)
        full = [values[s : s + window] for s in range(length - window + 1)] or [values]
        lowest = min(sum(w) / len(w) for w in full)
        expected += [(1 - math.exp(lowest) ** gamma) * math.exp(v) / length for v in values]
    nll = -joined(logs)
    index = torch.repeat_interleave(torch.arange(len(drawn)), torch.tensor([len(s) for s in drawn]))
    batch = {"sample_index": index, "sample_weight": torch.ones(len(drawn))}
    objective = make_objective(ObjectiveConfig("bft", window=window, bft_gamma=gamma))
    got = objective.weights(TokenStatistics(nll, (-nll).exp()), batch)
    np.testing.assert_allclose(got.numpy(), expected, rtol=2e-4, atol=1e-6)
    assert objective.denominator(batch) == len(drawn)


def test_full_windows_of_a_short_sample_are_the_sample() -> None:
    got = lowest_full(torch.tensor([1.0, 3.0, 4.0, 0.0, 2.0]), torch.tensor([0, 0, 1, 1, 1]), 2, 3)
    assert got.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("launch_scope", ["expr", "setup"])
@pytest.mark.parametrize("device_functions", [True, False])
@pytest.mark.parametrize(("tau", "lambda_"), [(0.1, 1.0), (0.5, 0.3), (0.0, 2.0)])
def test_precomputed_weights_are_those_that_the_build_stored(
    launch_scope: Any, device_functions: bool, tau: float, lambda_: float
) -> None:
    """Bit for bit, at the build's own options: M is `token_weight`, w is `sample_weight`."""
    batch, _ = packed(40, 30)
    options: dict[str, Any] = {
        "launch_scope": launch_scope,
        "device_functions": device_functions,
        "tau": tau,
        "lambda_": lambda_,
    }
    stored = []
    for n in range(2):
        own = batch["sample_index"] == n
        logprob, location, in_code = (batch[name][own].numpy() for name in COLUMNS)
        stored.append(weigh(logprob.astype(np.float16), location, in_code, BuildConfig(window=8, **options)))
    batch["sample_weight"] = torch.tensor([w.weight for _, w in stored], dtype=torch.float32)
    masks = torch.from_numpy(np.concatenate([m for m, _ in stored]))
    assert len(masks.unique()) == len({a + lambda_ * b for a in ((0, 1) if tau else (1,)) for b in (0, 1)})
    without = make_objective(ObjectiveConfig(weight="none", **options))
    assert torch.equal(without.weights(None, batch), masks)
    with_w = make_objective(ObjectiveConfig(**options, window=8))
    assert torch.equal(with_w.weights(None, batch), masks * batch["sample_weight"][batch["sample_index"]])


@pytest.mark.parametrize("region_scope", ["all", "code", "cuda"])
@pytest.mark.parametrize("window", [1, 8, 64])
def test_precomputed_and_online_agree_where_the_model_is_the_one_that_scored(region_scope: Any, window: int) -> None:
    batch, _ = packed(40, 30, 1)
    options: dict[str, Any] = {"window": window, "region_scope": region_scope}
    own_w = []
    for n in range(3):
        logprob, location, in_code = (batch[name][batch["sample_index"] == n].numpy() for name in COLUMNS)
        own_w.append(weigh(logprob.astype(np.float16), location, in_code, BuildConfig(**options))[1].weight)
    batch["sample_weight"] = torch.tensor(own_w, dtype=torch.float32)
    statistics = TokenStatistics(-batch["logprob"], batch["logprob"].exp())
    online = make_objective(ObjectiveConfig(confidence="online", **options))
    stored = make_objective(ObjectiveConfig(**options))
    assert (online.reach, stored.reach) == ("sequence", "stored")
    torch.testing.assert_close(online.weights(statistics, batch), stored.weights(None, batch), rtol=1e-6, atol=1e-7)


def test_confidence_mask_is_strict_at_tau() -> None:
    tau = float(np.exp(np.float32(-2.0)))
    nll = torch.tensor([2.001, 2.0, 1.999])
    batch = {"sample_index": torch.zeros(3, dtype=torch.long), "sample_weight": torch.ones(1), "logprob": -nll}
    for confidence in get_args(get_type_hints(ObjectiveConfig)["confidence"]):
        objective = make_objective(ObjectiveConfig("profit", tau=tau, confidence=confidence))
        assert objective.weights(TokenStatistics(nll, (-nll).exp()), batch).tolist() == [0, 0, 1]


@pytest.mark.parametrize("confidence", ["precomputed", "online"])
@pytest.mark.parametrize("normalize", ["tokens", "samples", "sample_mean"])
def test_cuset_without_lambda_and_w_is_profit_and_without_tau_too_is_sft(confidence: Any, normalize: Any) -> None:
    batch, statistics = packed(20, 3, 9)
    common: dict[str, Any] = {"confidence": confidence, "normalize": normalize}
    for tau, other in ((0.1, "profit"), (0.4, "profit"), (0.0, "sft")):
        cuset = make_objective(ObjectiveConfig(tau=tau, lambda_=0.0, weight="none", **common))
        rival = make_objective(ObjectiveConfig(other, tau=tau, **common))  # type: ignore[arg-type]
        assert torch.equal(cuset.weights(statistics, batch), rival.weights(statistics, batch))
        assert cuset.denominator(batch) == rival.denominator(batch)


def test_planted_weights_of_every_objective() -> None:
    """Two samples, three tokens and one; p = 0.05, 0.5, 0.9, 0.5; the second and the last stand in a kernel."""
    p = torch.tensor([0.05, 0.5, 0.9, 0.5])
    statistics = TokenStatistics(-p.log(), p, torch.tensor([3.0, 1.5, 0.3, 0.0]))
    batch = {
        "sample_index": torch.tensor([0, 0, 0, 1]), "sample_weight": torch.tensor([0.8, 0.5]), "logprob": p.log(),
        "location": torch.tensor([0, 1, 0, 1], dtype=torch.uint8), "in_code": torch.ones(4, dtype=torch.bool),
    }  # fmt: skip
    first, second = 1 - math.sqrt(0.05 * 0.5), 1 - 0.5  # BFT with windows of 2; the second sample has one token
    planted: list[tuple[dict[str, Any], list[float]]] = [
        ({"objective": "sft"}, [1, 1, 1, 1]),
        ({"objective": "dft"}, [0.05, 0.5, 0.9, 0.5]),
        ({"objective": "eaft"}, [1.0, 0.5, 0.1, 0.0]),
        ({"objective": "eaft", "eaft_scale": 1.0, "eaft_alpha": 2.0}, [9.0, 2.25, 0.09, 0.0]),
        ({"objective": "asft"}, [0.05, 0.5, 0.9, 0.5]),
        ({"objective": "profit"}, [0, 1, 1, 1]),
        ({"objective": "bft", "window": 2}, [first * 0.05 / 3, first * 0.5 / 3, first * 0.9 / 3, second * 0.5]),
        ({}, [0, 1.6, 0.8, 1.0]),
        ({"lambda_": 0.5}, [0, 1.2, 0.8, 0.75]),
        ({"mask": "conf"}, [0, 0.8, 0.8, 0.5]),
        ({"mask": "cuda"}, [0, 0.8, 0, 0.5]),
        ({"mask": "none"}, [0.8, 0.8, 0.8, 0.5]),
        ({"weight": "none"}, [0, 2, 1, 2]),
        ({"weight": "constant"}, [0, 0.5, 0.25, 0.5]),
        ({"confidence": "online", "window": 2}, [0, 2 * 0.95, 0.95, 1.0]),  # the clipped window at t = 1 is one token
        ({"normalize": "sample_mean"}, [0, 1.6 / 3, 0.8 / 3, 1.0]),
    ]
    for options, expected in planted:
        got = made(ObjectiveConfig(**options)).weights(statistics, batch)
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, err_msg=str(options))
    denominators = {"tokens": 4.0, "samples": 2.0, "sample_mean": 2.0, "weights": 5.0}
    for normalize, denominator in denominators.items():
        objective = make_objective(ObjectiveConfig(normalize=normalize))  # type: ignore[arg-type]
        assert objective.denominator(batch) == denominator, normalize


def test_a_whole_sample_below_tau_has_weight_zero() -> None:
    batch, _ = packed(5, 4)
    batch["logprob"] = torch.where(batch["sample_index"] == 0, -9.0, -0.1)
    batch["location"] = torch.zeros(9, dtype=torch.uint8)
    got = make_objective(ObjectiveConfig()).weights(None, batch)
    assert (got[:5] == 0).all()
    assert torch.equal(got[5:], batch["sample_weight"][1].expand(4))


@pytest.mark.parametrize("config", every_objective(), ids=str)
def test_columns_reach_and_parts_say_what_the_weights_depend_on(config: ObjectiveConfig) -> None:
    """Only the named columns are there; known weights take no statistics; those of a token come by parts as well."""
    batch, statistics = packed(6, 1, 9)
    objective = made(config)
    given_ = {name: x for name, x in batch.items() if name not in COLUMNS or name in objective.columns}
    weights = objective.weights(None if objective.known else statistics, given_)
    assert weights.shape == (16,)
    assert weights.dtype == torch.float32
    assert (weights >= 0).all()
    assert weights.sum() > 0
    for name in objective.columns:
        with pytest.raises(KeyError):
            objective.weights(statistics, {k: x for k, x in given_.items() if k != name})
    if objective.reach != "sequence":
        each = made(dataclasses.replace(config, normalize="sample_mean"))
        cut = [slice(0, 5), slice(5, 16)]
        parts = [TokenStatistics(*(x[c] for x in vars(statistics).values())) for c in cut]
        pieces = torch.cat([each.weights(s, given_, c) for s, c in zip(parts, cut, strict=True)])
        assert torch.equal(pieces, each.weights(statistics, given_))
        lengths = torch.tensor([6.0, 1.0, 9.0])[batch["sample_index"]]
        torch.testing.assert_close(pieces * lengths, weights)
    if not objective.known:
        with pytest.raises(ValueError, match="not known yet"):
            objective.weights(None, given_)


@pytest.mark.parametrize("normalize", ["tokens", "weights", "samples", "sample_mean"])
@pytest.mark.parametrize("config", every_objective(), ids=str)
def test_micro_batches_add_up_to_the_batch_or_are_refused(config: ObjectiveConfig, normalize: Any) -> None:
    """weight / denominator of each token is the same however the samples are spread; else the command says why not."""
    config = dataclasses.replace(config, normalize=normalize)
    online = config.confidence == "online" and (config.objective == "profit" or config.mask in ("conf", "both"))
    if normalize == "weights" and (
        config.objective in ("dft", "eaft", "asft", "bft") or (config.objective in ("profit", "cuset") and online)
    ):
        with pytest.raises(OptionError, match="depend on the model being trained"):
            made(config)
        return
    objective = made(config)
    batch, statistics = packed(6, 1, 9)
    pieces, denominator = [], 0.0
    for n in range(3):
        own = batch["sample_index"] == n
        one = {name: x[own] for name, x in batch.items() if len(x) == 16}
        one |= {
            "sample_index": torch.zeros(int(own.sum()), dtype=torch.long),
            "sample_weight": batch["sample_weight"][n : n + 1],
        }
        pieces.append(objective.weights(TokenStatistics(*(x[own] for x in vars(statistics).values())), one))
        denominator += objective.denominator(one)
    whole = objective.weights(statistics, batch) / objective.denominator(batch)
    torch.testing.assert_close(torch.cat(pieces) / denominator, whole, rtol=1e-6, atol=1e-9)


def test_weights_are_detached() -> None:
    batch, statistics = packed(6, 4)
    nll = statistics.nll.clone().requires_grad_()
    live = TokenStatistics(nll, (-nll).exp(), statistics.entropy_top20)
    for name in OBJECTIVES:
        assert not made(ObjectiveConfig(name, confidence="online")).weights(live, batch).requires_grad  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"objective": "dft", "normalize": "weights"}, "depend on the model being trained"),
        ({"objective": "bft", "normalize": "weights"}, "depend on the model being trained"),
        ({"objective": "profit", "confidence": "online", "normalize": "weights"}, "give --confidence precomputed"),
        ({"mask": "cuda", "lambda_": 0.0}, "no token would have a weight"),
        ({"mask": "conf", "tau": 1.0}, "no token would have a weight"),
        ({"objective": "profit", "tau": 1.0}, "no token would have a weight"),
        ({"tau": 1.0, "lambda_": 0.0}, "no token would have a weight"),
        ({"tau": 1.5}, "--tau 1.5: must lie between 0 and 1"),
        ({"lambda_": float("nan")}, "--lambda nan: must lie between"),
        ({"window": 0}, "--window 0: must lie between"),
        ({"eaft_scale": 0.0}, "--eaft-scale 0.0: must lie between"),
    ],
)
def test_refused_options_have_a_reason(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        make_objective(ObjectiveConfig(**options), mean_sample_weight=0.5)


BUILT = {"window": 256, "region_scope": "code", "launch_scope": "setup", "device_functions": True}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"window": 64}, "--window 64: .* made with window 256; run python -m curate.reweigh with --window 64 first"),
        ({"region_scope": "all"}, "made with region_scope code"),
        (
            {"region_scope": "cuda", "device_functions": False, "built": {"region_scope": "cuda"}},
            "--no-device-functions",
        ),
        ({"region_scope": "cuda", "launch_scope": "expr", "built": {"region_scope": "cuda"}}, "--launch-scope expr"),
    ],
)
def test_windows_other_than_the_stored_weights_are_refused(options: dict[str, Any], reason: str) -> None:
    built = BUILT | options.pop("built", {})
    with pytest.raises(OptionError, match=reason):
        make_objective(ObjectiveConfig(**options), built=built)
    make_objective(ObjectiveConfig(**options, confidence="online"), built=built)
    make_objective(ObjectiveConfig(**options, weight="none"), built=built)


def test_every_objective_is_registered_and_says_its_formula() -> None:
    assert set(OBJECTIVES) == set(get_args(get_type_hints(ObjectiveConfig)["objective"]))
    for name, definition in OBJECTIVES.items():
        text = definition.factors.__doc__ or ""
        assert "log p" in text, name
        assert "over" in text, f"{name}: denominator"
