"""The dataset card (README.md of a dataset), made from its manifest.

Names and licences come out of the corpus and may hold anything. Every value that the template prints is therefore
escaped, unless it is marked as our own; the YAML at the top is written by a YAML library.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from curate.schema import TABLES, table_columns
from curate.store import funnel

__all__ = ["Publication", "escape_markdown", "render_card"]

_LONGEST = 120  # characters of a name or a licence in the card; the manifest has them whole
_MOST_LICENSES = 12  # of a source, by number of rows
_MOST_NOTICES = 50
_SPECIAL = re.compile(r"[\\`*\[\]{}<>#|~&$@:]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?<=www)\.", re.IGNORECASE)
_HUB_LICENSES = frozenset((
    "afl-3.0", "agpl-3.0", "apache-2.0", "artistic-2.0", "bsd", "bsd-2-clause", "bsd-3-clause",
    "bsl-1.0", "cc", "cc0-1.0", "cc-by-2.0", "cc-by-3.0", "cc-by-4.0", "cc-by-nc-4.0",
    "cc-by-nc-sa-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cdla-permissive-1.0", "cdla-permissive-2.0",
    "cdla-sharing-1.0", "epl-1.0", "epl-2.0", "eupl-1.1", "gpl", "gpl-2.0", "gpl-3.0", "isc", "lgpl",
    "lgpl-2.1", "lgpl-3.0", "mit", "mpl-2.0", "ms-pl", "ncsa", "odbl",
    "odc-by", "osl-3.0", "pddl", "postgresql", "unlicense", "wtfpl", "zlib",
))  # fmt: skip
"""Identifiers that the Hub takes in the head of a card; anything else is `other` there."""


@dataclass(frozen=True)
class Publication:
    """What the card of a published dataset says beyond that of the folder, where it lies beside its files.

    `repository`: USER/NAME on the Hub. `tag`: of this state. `dataset_info`: features and sizes by table, as the head
    of the card has them. `size_category`: the Hub's word for the number of samples. `languages`: of the prompts, ISO
    639. `figures`: (path in the repository, what it shows).
    """

    repository: str
    tag: str
    dataset_info: Sequence[Mapping[str, Any]]
    size_category: str
    languages: Sequence[str] = ()
    figures: Sequence[tuple[str, str]] = ()


def escape_markdown(text: str) -> str:
    """One line of text that Markdown and HTML show as it is: no markup, link or table cell can come of it.

    What has a meaning becomes a numeric character reference, which CommonMark never reads as structure; control
    characters (line breaks, text direction) become spaces. Cut after 120 characters. Meant for the middle of a line,
    where `-` and `1.` start no list, and not for code spans.
    """
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 8 * _LONGEST]).split())
    if len(line) > _LONGEST:
        line = line[:_LONGEST] + "…"
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", line)


def _finalize(value: object) -> Markup:
    return value if isinstance(value, Markup) else Markup(escape_markdown(str(value)))


def render_card(manifest: Mapping[str, Any], publication: Publication | None = None) -> str:
    """The card of a dataset: Markdown with a YAML head that `datasets` and the Hub read; without `publication` that of
    its folder."""
    environment = Environment(
        loader=PackageLoader("curate", "templates"),
        autoescape=True,
        finalize=_finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    counts = manifest["counts"]
    rows = {
        "samples": counts["accepted"],
        "regions": manifest["regions"]["found"],
        "rejected": counts["read"] - counts["accepted"],
    }
    extra = manifest.get("extra_scores", ())
    return environment.get_template("card.md.jinja").render(
        m=manifest,
        head=Markup(yaml.safe_dump(_head(manifest, rows, publication), sort_keys=False, allow_unicode=False)),
        publication=publication,
        at=_places(publication),
        rows=rows,
        funnel=funnel(counts),
        sources=[_source(s, manifest["rows"].get(s["name"], {})) for s in manifest["sources"]],
        tables={
            name: [(Markup(c.name), Markup(c.type), Markup(c.meaning)) for c in table_columns(name, extra)]
            for name in TABLES
        },
        number=lambda value: "-" if value is None else f"{value:.4f}",
    )


def _places(publication: Publication | None) -> dict[str, Markup]:
    """Where the code of the card finds the dataset: `name`, further `options` and `files`."""
    if publication is None:
        return {"name": Markup("FOLDER"), "options": Markup(""), "files": Markup("FOLDER")}
    name, tag = publication.repository, publication.tag  # both of a shape that needs no escape
    return {
        "name": Markup(name),
        "options": Markup(f', revision="{tag}"'),
        "files": Markup(f"hf://datasets/{name}@{tag}"),
    }


def _head(
    manifest: Mapping[str, Any], rows: Mapping[str, int], publication: Publication | None = None
) -> dict[str, Any]:
    licenses = sorted({
        _hub_license(entry["license"]) for of in manifest["rows"].values() for entry in of["licenses"]
    })  # fmt: skip
    return {
        "pretty_name": "CUDA answers, annotated token by token",
        **({"license": licenses[0] if len(licenses) == 1 else licenses} if licenses else {}),
        **({} if publication is None else _listing(publication)),
        "tags": ["cuda", "code", "token-annotations"],
        "configs": [  # `datasets` cannot load a table without rows
            {
                "config_name": name,
                "data_files": f"{name}/*.parquet",
                "description": _content(manifest, name),
                **({"default": True} if name == "samples" else {}),
            }
            for name, count in rows.items()
            if count
        ],
    }


def _content(manifest: Mapping[str, Any], table: str) -> str:
    """Says which files a table has: `datasets` keeps a copy of a folder's tables by what the head of the card says, and
    would go on giving out that of an earlier build in the same folder."""
    files = [(file["path"], file["sha256"]) for file in manifest["files"] if file["path"].startswith(f"{table}/")]
    return f"content {hashlib.sha256(json.dumps(files).encode()).hexdigest()[:16]}"


def _listing(publication: Publication) -> dict[str, Any]:
    """What the Hub finds datasets by, and the features and sizes of the tables."""
    return {
        "language": [*publication.languages, "code"],
        "task_categories": ["text-generation"],
        "annotations_creators": ["machine-generated"],
        "size_categories": [publication.size_category],
        "dataset_info": [dict(info) for info in publication.dataset_info],
    }


def _hub_license(spdx: str | None) -> str:
    if spdx is None:
        return "unknown"
    plain = spdx.strip().lower().removesuffix("-only").removesuffix("-or-later")
    return plain if plain in _HUB_LICENSES else "other"


def _source(fingerprint: Mapping[str, Any], rows: Mapping[str, Any]) -> dict[str, Any]:
    licenses: Sequence[Mapping[str, Any]] = rows.get("licenses", ())
    shown = [{"name": x["license"] or "not known", "rows": x["rows"]} for x in licenses[:_MOST_LICENSES]]
    return {
        **{key: fingerprint.get(key, "") for key in ("name", "kind", "bytes", "sha256", "revision")},
        "accepted": rows.get("accepted", 0),
        "refused": rows.get("refused", 0),
        "licenses": shown,
        "more": len(licenses) - len(shown),
        "notices": rows.get("attributions", ())[:_MOST_NOTICES],
        "more_notices": max(0, len(rows.get("attributions", ())) - _MOST_NOTICES),
    }
