"""The paper's claims, and what the numbers of one dataset say to each.

A claim holds when its whole interval lies on the paper's side of the value that would be no effect, is reversed when
it lies on the other, and is undecided otherwise. A verdict is about one model and one corpus; it does not say whether
the paper's number, printed beside it, was right for its own. Published numbers: arXiv 2606.16231, figures 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from scipy import stats

from analysis.measures import RULES, TokenFinding, WindowFinding

__all__ = ["FEW_SAMPLES", "NOTES", "Verdict", "token_verdicts", "window_verdicts"]

FEW_SAMPLES = 10
"""With fewer samples that bear on a claim an interval by samples is too narrow, and its verdict is undecided."""

_SENSITIVE, _NEUTRAL, _P = 0.8914, 0.6986, 4.6e-39
_SAMPLES, _WINDOWS = 0.7447, 0.9118


@dataclass(frozen=True)
class Verdict:
    """`verdict`: holds, reversed or undecided. `against`: the value of no effect. `paper`: the paper's number, None
    where it gives none."""

    claim: str
    labels: str
    control: str
    verdict: str
    number: float
    low: float
    high: float
    against: float
    paper: float | None
    note: str = ""


def token_verdicts(t: TokenFinding) -> Iterable[Verdict]:
    """Three claims: means, distributions, within samples. The paper has numbers only for all tokens."""
    bare = t.control == "none"
    mean = Verdict(
        "sensitive tokens have the higher mean confidence", t.labels, t.control, "", t.gap, t.gap_low, t.gap_high, 0.0,
        round(_SENSITIVE - _NEUTRAL, 4) if bare else None,
        f"difference of the means; paper: {_SENSITIVE} - {_NEUTRAL}" if bare else "difference of the means",
    )  # fmt: skip
    whole = Verdict(
        "sensitive tokens are surer as a distribution", t.labels, t.control, "", t.cliffs_delta, t.cliffs_delta_low,
        t.cliffs_delta_high, 0.0, None,
        f"Cliff's delta; KS D {t.ks_d:.4f}, p {_p_value(t.ks_p)} with tokens taken for independent"
        + (f"; paper: p = {_P}" if bare else ""),
    )  # fmt: skip
    within = Verdict(
        "sensitive tokens are surer within a sample", t.labels, t.control, "", t.paired, t.paired_low, t.paired_high,
        0.0, None, f"mean difference within {t.paired_samples} samples",
    )  # fmt: skip
    if not (t.sensitive_tokens and t.neutral_tokens):
        return [replace(v, verdict="undecided", note="no token to compare with") for v in (mean, whole, within)]
    samples = min(t.sensitive_samples, t.neutral_samples)
    return [_judged(v, t.paired_samples if v is within else samples) for v in (mean, whole, within)]


def window_verdicts(w: WindowFinding) -> Iterable[Verdict]:
    """Share of samples with a low window (once a label set), share of low windows on sensitive structures, and that
    share against the one of all windows."""
    found = []
    if w.rule == "touching":
        found.append(
            Verdict(
                "most samples hold a low-confidence window", w.labels, "none", "", w.samples_share,
                w.samples_share_low, w.samples_share_high, 0.5, _SAMPLES,
                f"{w.samples_with_low} of {w.samples} samples; {w.low_windows:,} of all {w.windows:,} windows are low,"
                " and a longer sample has more windows",
            )
        )  # fmt: skip
    rule = RULES[w.rule]
    found.append(
        Verdict(
            f"most low windows fall on sensitive structures ({rule})", w.labels, "none", "", w.share, w.share_low,
            w.share_high, 0.5, _WINDOWS, f"of all windows: {w.base:.4f}",
        )
    )  # fmt: skip
    found.append(
        Verdict(
            f"low windows fall on sensitive structures more than others ({rule})", w.labels, "none", "", w.lift,
            w.lift_low, w.lift_high, 1.0, None,
            "share of low windows / share of all windows; the paper has no base rate",
        )
    )  # fmt: skip
    if math.isnan(w.threshold):
        return [
            replace(v, verdict="undecided", note="no neutral token, so no threshold for a low window") for v in found
        ]
    first = [_judged(v, w.samples) for v in found[:-2]]
    if not w.base > 0:
        why = "no window is on one" if w.windows else f"no sample has {w.length} code tokens"
        return [*first, *(replace(v, verdict="undecided", low=math.nan, high=math.nan, note=why) for v in found[-2:])]
    return [*first, *(_judged(v, w.samples_with_low) for v in found[-2:])]


def _judged(v: Verdict, samples: int) -> Verdict:
    if samples < FEW_SAMPLES:
        few = f"only {samples} samples bear on it"
        return replace(v, verdict="undecided", note=f"{v.note}; {few}" if v.note else few)
    if math.isnan(v.low) or math.isnan(v.high):
        none = "no interval: too few samples bear on it, or they are all alike"
        return replace(v, verdict="undecided", note=f"{v.note}; {none}" if v.note else none)
    verdict = "holds" if v.low > v.against else "reversed" if v.high < v.against else "undecided"
    return replace(v, verdict=verdict)


def _p_value(p: float) -> str:
    """Two digits; what floating point holds no longer is said to be small, not 0."""
    return f"{p:.2g}" if p else "< 1e-308"


def _inferred() -> str:
    (a, b), (c, d) = (stats.binomtest(k, n).proportion_ci(method="wilson") for k, n in ((35, 47), (31, 34)))
    return (
        "The paper names no counts behind 74.47 % of samples and 91.18 % of low windows. The smallest that give these"
        f" shares are 35 of 47 and 31 of 34, with 95 % intervals of {100 * a:.0f} to {100 * b:.0f} % and"
        f" {100 * c:.0f} to {100 * d:.0f} %: an"
        " inference, not a number of the paper's."
    )


NOTES: tuple[str, ...] = (
    "Intervals are 95 %, from a bootstrap that draws samples, not tokens; of shares of samples, Wilson's; within"
    " samples, Student's.",
    "The p of the Kolmogorov-Smirnov test takes the tokens of a sample for independent, as the paper does: read the"
    " interval of Cliff's delta instead.",
    "Every comparison has its own interval at 95 %, without correction for their number.",
    "A window is low when its mean is below the mean of all neutral code tokens, which is taken as given; the share of"
    " low windows on sensitive structures means something only beside that of all windows.",
    _inferred(),
)
"""How to read the numbers."""
