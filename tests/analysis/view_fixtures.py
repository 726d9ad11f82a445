"""Fixtures of the tests of the viewer, as a plugin of pytest: builds, their page, and a browser that watches it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect, sync_playwright
from view_helpers import CHROMIUM, Alternatives, rows

from analysis import view
from analysis.dataset import Dataset, open_datasets
from curate.config import BuildConfig
from curate.driver import build_dataset

PATIENCE = 30_000  # ms; a busy machine is slow, and only a failing test waits this long
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Callable[..., Dataset]:
    folder = tmp_path_factory.mktemp("view")
    source = folder / "rows.jsonl"
    source.write_text("\n".join(map(json.dumps, rows())))

    def made(name: str, scorer: Any = None, **options: Any) -> Dataset:
        out = folder / name
        config = BuildConfig(source=(str(source),), model=str(model_folder), out=out, jobs=1, compile=False, **options)
        build_dataset(config, scorer)
        (dataset,) = open_datasets([out])
        return dataset

    return made


@pytest.fixture(scope="module")
def dataset(build: Callable[..., Dataset]) -> Dataset:
    return build("scored", Alternatives(), topk=2)


@pytest.fixture(scope="module")
def page_file(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "view.html"
    assert view.write_view(dataset, file) == 3
    return file


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a file; at the end nothing but that file was asked for, and nothing stands on the console."""
    pages, asked, said = [], set(), []

    def opened(file: Path, fragment: str = "", scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": 1300, "height": 800}, color_scheme=scheme)

        def route(way: Any) -> None:
            asked.add(way.request.url.partition("#")[0])
            if way.request.url.startswith(file.as_uri()):
                way.continue_()
            else:
                way.abort()

        context.route("**/*", route)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(file.as_uri() + fragment)
        page.wait_for_selector(".t")
        pages.append((context, file.as_uri()))
        return page

    yield opened
    for context, _ in pages:
        context.close()
    assert asked == {uri for _, uri in pages}
    assert not said
