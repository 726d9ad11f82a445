"""What the checks and the quality figures cost beside parsing and labelling, on one core."""

from __future__ import annotations

from curate.checks import find_flaws
from curate.extract import extract_cuda
from curate.quality import measure_quality
from curate.syntax import label_parsed, parse_cuda
from tests.benchmarks.figures import Figure, bundled_rows, timed

__all__ = ["measure"]

_ROUNDS = 3


def measure() -> list[Figure]:
    """The smallest of some rounds each; ratios to the time of parsing and labelling the same code."""
    rows = bundled_rows()
    blocks = [extract_cuda(row.response) for row in rows]
    parsed = [[parse_cuda(b.text) for b in found] for found in blocks]
    labels = [[label_parsed(p) for p in found] for found in parsed]
    both = list(zip(rows, blocks, parsed, labels, strict=True))

    def parse() -> None:
        for found in blocks:
            for block in found:
                label_parsed(parse_cuda(block.text))

    def check() -> list[str]:
        return [f.reason for row, b, p, x in both for f in find_flaws(row.response, row.prompt, b, p, x)]

    def quality() -> None:
        for row, b, p, _ in both:
            measure_quality(row.response, b, p)

    flagged = check()
    parsing, checking, measuring = (min(timed(f)[0] for _ in range(_ROUNDS)) for f in (parse, check, quality))
    return [
        Figure("checks, of the time of parsing and labels", checking / parsing, "x", f"{len(flagged)} flaws found"),
        Figure("quality figures, of the same", measuring / parsing, "x", f"{len(rows)} answers"),
    ]
