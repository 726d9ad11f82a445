"""What `datasets` and the Hub's viewer are told of the tables, made from the files alone: nothing of an earlier
publication, whose columns may have been others, can be left over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curate.publishing.contents import PartContents

__all__ = ["dataset_info", "size_category"]

_BOUNDS = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")


def dataset_info(parts: Mapping[str, Sequence[tuple[Path, PartContents]]]) -> list[dict[str, Any]]:
    """An entry of the card's `dataset_info` for each table that has rows: features by the schema of its parts, rows and
    bytes of its one split."""
    from datasets import DatasetInfo, Features, SplitDict, SplitInfo
    from datasets.info import DatasetInfosDict
    from huggingface_hub import DatasetCardData

    infos = DatasetInfosDict()
    for table, contents in parts.items():
        rows = sum(found.rows for _, found in contents)
        if not rows:
            continue
        size = sum(found.arrow_bytes for _, found in contents)
        split = SplitDict({"train": SplitInfo("train", num_bytes=size, num_examples=rows)})
        infos[table] = DatasetInfo(
            features=Features.from_arrow_schema(contents[0][1].schema),
            splits=split,
            download_size=sum(part.stat().st_size for part, _ in contents),
            dataset_size=size,
        )
    data = DatasetCardData()
    infos.to_dataset_card_data(data)
    found = data.to_dict().get("dataset_info", [])
    return found if isinstance(found, list) else [found]


def size_category(rows: int) -> str:
    """The Hub's word for a number of rows, such as `1K<n<10K`."""
    sizes = [int(bound[:-1]) * 1000 ** (" KMBT".index(bound[-1])) for bound in _BOUNDS]
    place = sum(rows >= size for size in sizes)
    if place == 0:
        return f"n<{_BOUNDS[0]}"
    return f"n>{_BOUNDS[-1]}" if place == len(_BOUNDS) else f"{_BOUNDS[place - 1]}<n<{_BOUNDS[place]}"
