"""Everything that forbids to publish a dataset, found before anything is sent.

Nothing that the manifest says is taken on trust: rows, licences and columns are counted from the Parquet files anew,
files are hashed, and texts are searched for secrets with the same detector that the build replaced them with.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from curate.errors import CusetError, DatasetError
from curate.licences import ALLOWED, is_allowed
from curate.manifest import SHOWN, count_sources, listed, other_files
from curate.progress import LOG, is_log
from curate.publishing.contents import PartContents
from curate.publishing.looked import look_into_all
from curate.redaction import find_private
from curate.schema import PUBLIC_TABLES, arrow_schema, table_columns
from curate.store import part_files
from curate.summary import count_rows

__all__ = ["Checked", "check_dataset"]

Parts = dict[str, list[tuple[Path, PartContents]]]


class Checked:
    """`problems`: one line each, none of which may be there; `parts`: what each table's files hold, by table, as far as
    they can be read."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.parts: Parts = {table: [] for table in PUBLIC_TABLES}


def check_dataset(path: Path, manifest: Mapping[str, Any], *, allow_unknown: bool = False) -> Checked:
    """Looks at every file. `allow_unknown`: rows whose licence is not known may be published."""
    checked = Checked()
    checked.problems += other_files(path, manifest)
    hashes = {} if checked.problems else {path / entry["path"]: entry["sha256"] for entry in manifest["files"]}
    tables = {part: table for table in PUBLIC_TABLES for part in part_files(path / table)}
    for part, found in look_into_all(list(tables), hashes):
        if isinstance(found, PartContents):
            checked.parts[tables[part]].append((part, found))
        else:
            why = str(found).splitlines()[0][:200]
            checked.problems.append(f"{_name(part)}: damaged ({why}); build the dataset again")
    if checked.problems:
        return checked  # what follows would only say the same in other words
    for check in (_columns, _balance, _sources, _regions, partial(_licenses, allow_unknown)):
        try:
            checked.problems += check(path, manifest, checked.parts)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            checked.problems.append(f"manifest.json: not as a build writes it ({error}); build the dataset again")
    checked.problems += _private(path, checked.parts)
    return checked


def _name(part: Path) -> str:
    return f"{part.parent.name}/{part.name}"


def _columns(path: Path, manifest: Mapping[str, Any], parts: Parts) -> Iterator[str]:
    for table, contents in parts.items():
        expected = arrow_schema(table_columns(table, manifest.get("extra_scores", ())))
        other = [_name(part) for part, found in contents if not found.schema.equals(expected)]
        if other:
            yield f"columns that differ from what the manifest says: {listed(other)}; build the dataset again"


def _balance(path: Path, manifest: Mapping[str, Any], parts: Parts) -> Iterator[str]:
    told = dict(manifest["counts"])
    try:
        counted = count_rows(path, told["read"])
    except CusetError:
        rows = {table: sum(found.rows for _, found in parts[table]) for table in PUBLIC_TABLES}
        yield (
            f"the build does not balance: {told['read']} rows read, but samples/ holds {rows['samples']}"
            f" and rejected/ {rows['rejected']}; build the dataset again"
        )
        return
    except ValueError:
        yield "rejected/: a stage that this version of cuset does not know; build the dataset again"
        return
    wrong = sorted(key for key in counted if counted[key] != told.get(key))
    if wrong:
        yield f"manifest.json: counts of {', '.join(wrong)} are not those of the files; build the dataset again"


def _regions(path: Path, manifest: Mapping[str, Any], parts: Parts) -> Iterator[str]:
    there = sum(found.rows for _, found in parts["regions"])
    if manifest["regions"]["found"] != there:
        yield f"regions/ holds {there} rows, manifest.json says {manifest['regions']['found']}; build the dataset again"


def _sources(path: Path, manifest: Mapping[str, Any], parts: Parts) -> Iterator[str]:
    named = {source["name"] for source in manifest["sources"]}
    rows = count_sources(path)
    if not named:
        yield "manifest.json: names no source, so the card would not say where the rows come from"
    if rows.keys() - named:
        yield f"rows of sources that manifest.json does not name: {listed(sorted(rows.keys() - named))}"
    if json.loads(json.dumps(rows)) != manifest["rows"]:
        yield "manifest.json: licences and attributions are not those of the rows; build the dataset again"
    if not sum(found.rows for _, found in parts["samples"]):
        yield "samples/ holds no row: there is nothing to publish, and no licence for the card"


def _licenses(allow_unknown: bool, path: Path, manifest: Mapping[str, Any], parts: Parts) -> Iterator[str]:
    allowed = manifest["config"].get("allow_license") or ALLOWED
    rows: Counter[str | None] = Counter()
    for _, found in parts["samples"]:
        rows.update(found.licenses)
    unknown = rows.pop(None, 0)
    if unknown and not allow_unknown:
        yield (
            f"{unknown} rows have no known licence; build with --license, or --filter unknown_license=refuse,"
            " or publish them with --allow-unknown-license"
        )
    refused = [(license, n) for license, n in rows.most_common() if not is_allowed(license, allowed)]
    if refused:
        told = listed([f"{license} ({n} rows)" for license, n in refused])
        yield (
            f"licences that the allow-list of the build does not hold: {told}; build without --filter"
            " license_not_allowed"
        )


def _private(path: Path, parts: Parts) -> Iterator[str]:
    for contents in parts.values():
        for part, found in contents:
            for column, row, kinds in found.private[:SHOWN]:
                told = ", ".join(kinds)
                yield f"{_name(part)}, row {row + 1}, {column}: unredacted {told}; build without --no-redact"
            if len(found.private) > SHOWN:
                yield f"{_name(part)}: {len(found.private) - SHOWN} more texts with secrets or addresses"
    if (path / LOG).is_file() and not is_log(path / LOG):
        yield f"{LOG}: not as a build writes it; delete it"
    for name in ("manifest.json", LOG):
        if not (path / name).is_file():
            continue
        try:
            left = {found.kind for found in find_private((path / name).read_text(encoding="utf-8"))}
        except (OSError, ValueError) as error:
            raise DatasetError(f"{path / name}: cannot be read ({error})") from error
        if left:
            yield f"{name}: holds what looks like {', '.join(sorted(left))}; name sources and options otherwise"
