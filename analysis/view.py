"""`python -m analysis.view DATASET`: samples token by token, as one HTML file that needs no network.

The file holds the texts as JSON, the token columns as one compressed block a sample, and the scripts of `templates/`
(view_model.js, the equations; view.js, the drawing; view_controls.js, what the reader can do). Texts of the corpus
reach the page as text nodes alone, and the content security policy lets nothing run but these scripts, by their hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from analysis.dataset import Dataset, open_datasets
from analysis.output import GENERATOR, refuse_file, staged_file
from curate.console import main, parse_options
from curate.errors import DatasetError, OptionError
from curate.taxonomy import CATEGORIES, LOCATIONS
from curate.weights import cuda_mask

__all__ = ["ViewConfig", "render_view", "view_data", "write_view"]

_TEMPLATES = Path(__file__).parent / "templates"
_SCRIPTS = ("view_model.js", "view.js", "view_controls.js")
_META = ("sample_id", "source", "source_id", "license", "prompt", "response", "sample_weight")
_LISTS = ("char_start", "char_end", "rank", "index_distance", "category", "location", "statement", "in_code")
_HALVES = ("logprob", "entropy", "entropy_top20", "ref_logprob")  # float16; the last two only when asked for
_IN_CODE, _STATEMENT, _CUDA = 8, 16, 32  # bits of the column `flags`, above the three of the location
_NAMES = ("sample_id = $id", "source_id = $id", "starts_with(sample_id, $id)")  # an exact name wins


@dataclass(frozen=True)
class ViewConfig:
    """Writes samples with their confidence, categories, masks and windows as one HTML file for the browser."""

    dataset: tyro.conf.Positional[Path]
    """The dataset's folder."""

    id: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Only this sample: a sample_id or the beginning of one, or a source_id. As often as you like."""

    out: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("view.html")
    """The file that is written."""

    limit: int = 300
    """Samples at most, in the order of the dataset."""

    tokenizer: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A tokenizer.json that spells the alternatives (--topk) that stand nowhere in the dataset."""


def view_data(
    dataset: Dataset, ids: Sequence[str] = (), limit: int = 300, tokenizer: Path | None = None
) -> dict[str, Any]:
    """What the page shows, ready for JSON: options and names, and for each sample its texts and its columns.

    Raises DatasetError for an id that is none, and where there is no sample.
    """
    there = set(dataset.query("SELECT column_name FROM (DESCRIBE samples)")["column_name"])
    halves = tuple(name for name in _HALVES if name in there) if dataset.scored else ()
    top = ("topk_ids", "topk_logprob") if dataset.scored and "topk_ids" in there else ()
    wanted = ", ".join((*_META, "prompt_tokens", "input_ids", *_LISTS, *halves, *top))
    if ids:
        rows = [_named(dataset, wanted, name) for name in dict.fromkeys(ids)]
    else:
        rows = dataset.query(f"SELECT {wanted} FROM samples LIMIT {max(limit, 1)}").to_dicts()
    if not rows:
        raise DatasetError(f"{dataset.path}: has no sample to show; its table `rejected` says why rows were refused")
    config = dataset.manifest["config"]
    logprobs = [_half(row["logprob"]) for row in rows if row["logprob"] is not None] if halves else []
    used = np.unique(np.concatenate([np.empty(0, np.float16), *logprobs]).view(np.uint16))
    alternatives = {int(i) for row in rows for one in row["topk_ids"] or () for i in one} if top else set()
    return {
        "dataset": dataset.name,
        "model": dataset.model,
        "total": dataset.samples,
        "scored": dataset.scored,
        "options": {k: config[k] for k in ("tau", "lambda", "window", "region_scope")},
        "categories": list(CATEGORIES),
        "locations": list(LOCATIONS),
        # exp of every stored value, as NumPy computes it: the page then finds the very windows that Python finds
        "logprob_bits": _base64(used.astype("<u2").tobytes()),
        "confidences": _base64(np.exp(used.view(np.float16).astype("<f8")).tobytes()),
        "vocabulary": _spellings(dataset, alternatives, tokenizer),
        "samples": [_sample(row, halves, config) for row in rows],
    }


def _named(dataset: Dataset, wanted: str, name: str) -> dict[str, Any]:
    for condition in _NAMES:
        found = dataset.query(f"SELECT {wanted} FROM samples WHERE {condition} LIMIT 2", {"id": name}).to_dicts()
        if len(found) > 1 and condition == _NAMES[2]:
            raise DatasetError(f"{dataset.path}: several samples begin with {name!r}; give more of the id")
        if found:
            return found[0]
    raise DatasetError(f"{dataset.path}: no sample {name!r}; `select sample_id, source_id from samples` lists them")


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _half(values: Any) -> np.ndarray:
    return np.asarray(values, np.float32).astype(np.float16)  # exact: they are stored so


def _utf16(text: str) -> np.ndarray:
    """Code units before each character of a text, and at its end: Python counts characters, a browser UTF-16 units."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return np.concatenate([[0], np.cumsum(1 + (points > 0xFFFF))])


def _sample(row: dict[str, Any], halves: Sequence[str], config: dict[str, Any]) -> dict[str, Any]:
    """Texts, and the columns in one block: see `_column`."""
    units = _utf16(row["response"])
    start, end = (np.asarray(row[name], np.int64) for name in ("char_start", "char_end"))
    location = np.asarray(row["location"], np.uint8)
    cuda = cuda_mask(location, launch_scope=config["launch_scope"], device_functions=config["device_functions"])
    flags = location.astype(np.uint8)
    for bit, mask in ((_IN_CODE, row["in_code"]), (_STATEMENT, row["statement"]), (_CUDA, cuda)):
        flags = flags | (bit * np.asarray(mask, np.uint8))
    columns: list[tuple[str, str, Any]] = [
        ("start", "Steps", np.where(start >= 0, units[np.maximum(start, 0)], -1)),
        ("end", "Steps", np.where(end >= 0, units[np.maximum(end, 0)], -1)),
        ("id", "Int32", row["input_ids"][row["prompt_tokens"] :]),
    ]
    scored = bool(halves) and row["logprob"] is not None
    if scored:
        columns.append(("rank", "Int32", row["rank"]))
        columns += [(name, "Uint16", _half(row[name]).view(np.uint16)) for name in halves]
        if "topk_ids" in row:  # all the first choices, then all the second ones: alike stands by alike
            columns.append(("topk_ids", "Int32", np.asarray(row["topk_ids"]).T.ravel()))
            columns.append(("topk_logprob", "Uint16", _half(row["topk_logprob"]).T.ravel().view(np.uint16)))
    columns += [("category", "Uint8", row["category"]), ("distance", "Uint8", row["index_distance"])]
    columns.append(("flags", "Uint8", flags))
    block = b"".join(_column(kind, values) for _, kind, values in columns)
    packer = zlib.compressobj(9, memLevel=5)  # small blocks: each has a code that fits its column
    weight = row["sample_weight"] if scored else None
    return {
        **{name: row[name] for name in ("sample_id", "source", "source_id", "license", "prompt", "response")},
        "weight": weight if weight is not None and np.isfinite(weight) else None,
        "tokens": len(start),
        "columns": [(name, kind, len(values)) for name, kind, values in columns],
        "block": _base64(packer.compress(block) + packer.flush()),
    }


def _column(kind: str, values: Any) -> bytes:
    """A column's lowest bytes, then its second ones, and so on: high bytes are nearly all the same, and compress away.
    Of `Steps`, 4 bytes wide, the steps from value to value are stored."""
    types = {"Steps": "<i4", "Int32": "<i4", "Uint16": "<u2", "Uint8": "u1"}
    plain = np.ascontiguousarray(values, types[kind])
    if kind == "Steps":
        plain = np.diff(plain, prepend=plain.dtype.type(0))
    return plain.view(np.uint8).reshape(len(plain), -1).T.tobytes()


def _spellings(dataset: Dataset, ids: set[int], tokenizer: Path | None) -> dict[int, str]:
    """Texts of token ids: as the tokenizer spells them, else as the dataset does where it has one text for an id."""
    if not ids:
        return {}
    if tokenizer is not None:
        from tokenizers import Tokenizer

        try:
            backend = Tokenizer.from_file(str(tokenizer))
        except Exception as error:  # the library raises Exception itself
            raise OptionError(f"--tokenizer {tokenizer}: cannot be read ({error})") from error
        return {i: backend.decode([i], skip_special_tokens=False) for i in sorted(ids)}
    found = dataset.query("""
        SELECT token_id, min(token) AS text FROM tokens WHERE token IS NOT NULL
        GROUP BY token_id HAVING min(token) = max(token) ORDER BY token_id
    """)
    return {i: text for i, text in found.iter_rows() if i in ids}


def _script_json(data: Any) -> str:
    """JSON that cannot end the script element it stands in, nor open a comment there."""
    plain = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        plain = plain.replace(character, f"\\u{ord(character):04x}")
    return plain


def _hash(text: str) -> str:
    return f"'sha256-{_base64(hashlib.sha256(text.encode()).digest())}'"


def render_view(data: dict[str, Any]) -> str:
    """The HTML file of `view_data`."""
    environment = Environment(
        loader=PackageLoader("analysis", "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    style, *scripts = ((_TEMPLATES / name).read_text(encoding="utf-8") for name in ("view.css", *_SCRIPTS))
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return environment.get_template("view.html.jinja").render(
        policy=policy,
        generator=f"{GENERATOR}.view",
        title=f"{data['dataset']}: tokens",
        style=Markup(style),
        scripts=[Markup(script) for script in scripts],
        data=Markup(_script_json(data)),
    )


def write_view(
    dataset: Dataset, out: Path, ids: Sequence[str] = (), limit: int = 300, tokenizer: Path | None = None
) -> int:
    """Writes the page and returns how many samples it holds; raises DatasetError and OptionError."""
    data = view_data(dataset, ids, limit, tokenizer)
    with staged_file(out) as stage:
        stage.write_bytes(render_view(data).encode("utf-8", "replace"))
    return len(data["samples"])


def run(arguments: Sequence[str]) -> int:
    config = parse_options(ViewConfig, arguments, "analysis.view")
    if config.limit < 1:
        raise OptionError("--limit: give 1 or more")
    refuse_file(config.out)  # before the seconds that it may take
    (dataset,) = open_datasets([config.dataset])
    shown = write_view(dataset, config.out, config.id, config.limit, config.tokenizer)
    if shown < dataset.samples and not config.id:
        print(f"the first {shown} of {dataset.samples} samples; --limit N shows more", file=sys.stderr)
    sys.stdout.write(f"{config.out}\n")
    return 0


if __name__ == "__main__":
    main(run)
