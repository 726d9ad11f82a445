"""Options of one source, on the command line and in YAML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from curate.config import BuildConfig
from curate.console import parse_options
from curate.driver import default_out
from curate.errors import OptionError
from curate.sources import SourceSpec, open_sources, parse_spec, spec_text


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Two files whose columns have names of their own."""
    for name, columns in (("one", ("task", "code")), ("two", ("a&b", "50%?"))):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(dict(zip(columns, ("Q", name), strict=True))) + "\n")
    return tmp_path / "one.jsonl", tmp_path / "two.jsonl"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.jsonl", SourceSpec("a.jsonl")),
        ("a.jsonl?license=MIT", SourceSpec("a.jsonl", None, "MIT")),
        (
            "hf://u/n@main:train?map=prompt=p,response=r&license=MIT OR Apache-2.0",
            SourceSpec("hf://u/n@main:train", "prompt=p,response=r", "MIT OR Apache-2.0"),
        ),
        ("a?b.csv?map=messages=c%26d+e%25", SourceSpec("a?b.csv", "messages=c&d+e%")),
    ],
)
def test_parse(text: str, expected: SourceSpec) -> None:
    assert parse_spec(text) == expected


@pytest.mark.parametrize(
    "options", ["", "limit=3", "map", "map=", "license=MIT&license=MIT", "license=MIT&", "what.csv"]
)
def test_what_is_no_option(options: str) -> None:
    with pytest.raises(OptionError, match=r"map=\.\.\. and license=\.\.\."):
        parse_spec(f"a.jsonl?{options}")


def test_file_with_such_a_name(tmp_path: Path) -> None:
    path = tmp_path / "a?license=MIT"
    path.touch()
    assert parse_spec(str(path)) == SourceSpec(str(path))


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"path": "a.csv"}, SourceSpec("a.csv")),
        ({"path": "a.csv", "license": "MIT", "map": None}, SourceSpec("a.csv", None, "MIT")),
        ({"path": "a.csv", "map": "messages=x"}, SourceSpec("a.csv", "messages=x")),
        (
            {"path": "a?b.csv", "map": {"prompt": "p&q", "response": "100%?"}},
            SourceSpec("a?b.csv", "prompt=p&q,response=100%?"),
        ),
    ],
)
def test_mapping_of_yaml_says_the_same(item: dict[object, object], expected: SourceSpec) -> None:
    assert parse_spec(spec_text(item)) == expected


@pytest.mark.parametrize("item", [{}, {"path": 3}, {"path": "a", "limit": 3}, {"license": "MIT"}])
def test_mapping_that_is_no_source(item: dict[object, object]) -> None:
    with pytest.raises(OptionError, match="path, map and license"):
        spec_text(item)


def test_each_source_by_its_own_options(two: tuple[Path, Path]) -> None:
    one, other = two
    specs = [f"{one}?map=prompt=task,response=code&license=MIT", f"{other}?map=prompt=a%26b,response=50%25%3F"]
    sources = open_sources(specs, "messages=elsewhere", "CC0-1.0")
    rows = [row for source in sources for row in source.rows()]
    assert [(row.response, row.license) for row in rows] == [("one", "MIT"), ("two", "CC0-1.0")]
    assert [source.name for source in sources] == ["one.jsonl", "two.jsonl"]
    prints = [source.fingerprint() for source in sources]
    assert (prints[0]["map"], prints[0]["license"]) == ("prompt=task,response=code", "MIT")
    assert "license" not in prints[1]
    with pytest.raises(OptionError, match="twice"):
        open_sources([specs[0], f"{one}?map=prompt=code,response=task"], None, None)


def test_sources_of_a_yaml_file(tmp_path: Path, two: tuple[Path, Path]) -> None:
    one, other = two
    items: list[Any] = [
        {"path": str(one), "map": {"prompt": "task", "response": "code"}, "license": "MIT"},
        {"path": str(other), "map": {"prompt": "a&b", "response": "50%?"}},
    ]
    (tmp_path / "build.yaml").write_text(json.dumps({"source": items}))  # JSON is YAML
    config = parse_options(BuildConfig, ["--config", str(tmp_path / "build.yaml")], "curate.build")
    rows = [row for source in open_sources(config.source, config.map, config.license) for row in source.rows()]
    assert [(row.response, row.license) for row in rows] == [("one", "MIT"), ("two", None)]
    (tmp_path / "build.yaml").write_text(json.dumps({"source": [{"file": "a"}]}))
    with pytest.raises(OptionError, match=r"build\.yaml: .*path, map and license"):
        parse_options(BuildConfig, ["--config", str(tmp_path / "build.yaml")], "curate.build")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("bundled", "bundled"),
        ("/x/answers.jsonl", "answers"),
        ("/x/answers.jsonl.gz?license=MIT", "answers"),
        ("/x/src.tar.zst", "src"),
        ("/x/kernels", "kernels"),
        ("hf://user/some-set.v2/small@main:train", "some-set.v2"),
        ("hf://user/set:train", "set"),
    ],
)
def test_name_of_the_output(source: str, name: str) -> None:
    assert default_out(BuildConfig(source=(source,))) == Path("data/build") / name
