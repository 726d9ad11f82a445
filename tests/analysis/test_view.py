"""The viewer in a real browser, against `curate.weights`; and its data and errors without one."""

from __future__ import annotations

import base64
import dataclasses
import html
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import fenced, kernel, pair
from playwright.sync_api import expect, sync_playwright

from analysis import view
from analysis.dataset import Dataset, open_datasets
from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.errors import DatasetError, OptionError
from curate.score import StubScorer, TokenScores
from curate.weights import confidence_mask, cuda_mask, sample_weight, token_weight, weigh, window_means

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE = 30_000  # ms; a busy machine is slow, and only a failing test waits this long
expect.set_options(timeout=PATIENCE)
HOSTILE = "</script><img src=x onerror='window.owned=1'><!--<script>\u202e&amp;"
EMOJI = "// 🚀🚀 naïve 漢字\n"
KNOBS = [(0.1, 1.0, 256), (0.0, 0.0, 1), (0.37, 0.5, 7), (0.5, 4.0, 64), (0.905, 1.3, 32), (1.0, 2.0, 1024)]


class Alternatives(StubScorer):
    """Figures with the two most probable tokens: the token itself, then id 5; one token has probability 0."""

    def score(self, samples: Sequence[Any], done: Any = lambda *a: None) -> list[TokenScores]:
        scores = []
        for (ids, prompt), plain in zip(samples, super().score(samples, done), strict=True):
            own = ids[prompt:].astype(np.int32)
            plain.logprob[3], plain.logprob[5] = -1e5, np.log(0.5)
            top = np.stack([own, np.full_like(own, 5)], axis=1)
            values = np.stack([plain.logprob, plain.logprob - 1], axis=1)
            scores.append(dataclasses.replace(plain, topk_ids=top, topk_logprob=values))
        return scores


def rows() -> list[dict[str, Any]]:
    helper = "__device__ float twice(float x) { return 2.f * x; }\n"
    return [
        pair(1, code=EMOJI + kernel(1), id="first"),
        {"id": HOSTILE, "prompt": HOSTILE, "response": f"{HOSTILE}\n" + fenced(f"// {HOSTILE}\n" + helper + kernel(2))},
        pair(3, code=kernel(3) + kernel(4), id="third"),
    ]


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


def stored(dataset: Dataset) -> list[dict[str, Any]]:
    found = dataset.query("SELECT * FROM samples").to_dicts()
    for row in found:
        row["half"] = np.asarray(row["logprob"], np.float32).astype(np.float16)
        row["location"], row["in_code"] = np.asarray(row["location"], np.uint8), np.asarray(row["in_code"], bool)
    return found


def counts(page: Any) -> list[int]:
    return [int(x) for x in page.locator("#counts td:nth-child(2)").all_text_contents()]


def expected_counts(row: dict[str, Any], tau: float) -> list[int]:
    sure = confidence_mask(row["half"], tau)
    cuda = cuda_mask(row["location"], launch_scope="setup", device_functions=True)
    return np.bincount(sure + 2 * cuda, minlength=4).tolist()


def test_every_token_is_drawn_with_its_own_text(visit: Any, page_file: Path, dataset: Dataset) -> None:
    page = visit(page_file)
    first = stored(dataset)[0]
    assert page.locator("#code").text_content() == first["response"]  # characters beyond the BMP among them
    drawn = page.locator(".t").all_text_contents()
    tokens = dataset.query("SELECT token FROM tokens WHERE sample_id = $id ORDER BY pos", {"id": first["sample_id"]})
    whole = [(d, t) for d, t in zip(drawn, tokens["token"], strict=True) if t and "\ufffd" not in t and d]
    assert len(whole) > 100
    seen = set(zip(first["char_start"], first["char_end"], strict=True))
    assert len(seen) < len(drawn)  # tokens that share a character: only the first of them is drawn with it
    assert sum(d == t for d, t in whole) == len(whole)
    levels = page.evaluate("spans.map(s => Number(s.style.getPropertyValue('--level')))")
    np.testing.assert_allclose(levels, 1 - np.exp(first["half"].astype(float)), atol=0.0051)
    classes = page.evaluate("spans.map(s => s.className.match(/ g(\\d+)/)[1]).map(Number)")
    assert classes == list(first["category"])
    assert {0, 2, 8} <= set(classes)


def test_sliders_give_the_counts_and_weights_of_python(visit: Any, page_file: Path, dataset: Dataset) -> None:
    page = visit(page_file)
    row = stored(dataset)[0]
    at_start = counts(page)
    assert at_start == expected_counts(row, 0.1)
    for tau in (0.5, 0.9):
        page.locator("#tau-range").fill(str(tau))
        assert counts(page) == expected_counts(row, tau) != at_start
        assert page.locator("#tau").input_value() == str(tau)
    for tau, lambda_, window in KNOBS:
        page.locator("#tau").fill(str(tau))
        page.locator("#lambda").fill(str(lambda_))
        page.locator("#window").fill(str(window))
        assert counts(page) == expected_counts(row, tau)
        config = BuildConfig(tau=tau, lambda_=lambda_, window=window)
        weights, sample = weigh(row["half"], row["location"], row["in_code"], config)
        said = page.locator("#weight").text_content()
        assert f"= {sample.weight:.4f}; sum of M = {weights.sum(dtype=float):.1f}." in said
        classes = page.evaluate("spans.map(s => s.classList.contains('k0'))")
        assert classes == (weights == 0).tolist()
    page.locator("#reset").click()
    assert counts(page) == at_start


def test_masks_and_windows_are_those_of_python_to_the_bit(visit: Any, page_file: Path, dataset: Dataset) -> None:
    page = visit(page_file)
    for n, row in enumerate(stored(dataset)):
        page.evaluate("n => open(n)", n)
        cuda = cuda_mask(row["location"], launch_scope="setup", device_functions=True)
        for tau, lambda_, window in KNOBS:
            mask = page.evaluate("([t, l]) => Array.from(maskOf(columns, t, l).weight)", [tau, lambda_])
            assert mask == token_weight(confidence_mask(row["half"], tau), cuda, lambda_).tolist()
            for scope in ("all", "code", "cuda"):
                want = sample_weight(row["half"], row["in_code"], cuda, window=window, region_scope=scope)
                got = page.evaluate("([l, s]) => windowsOf(columns, l, s).lowest", [window, scope])
                assert (got["mean"], got["weight"], got["start"]) == (want.min_confidence, want.weight, want.min_start)
            means = page.evaluate("l => Array.from(windowsOf(columns, l, 'all').means)", window)
            assert means == window_means(np.exp(row["half"].astype(float)), window).tolist()


def test_hover_shows_the_figures_of_the_token(visit: Any, page_file: Path, dataset: Dataset) -> None:
    page = visit(page_file)
    row, t = stored(dataset)[0], 5
    page.locator(f'[data-pos="{t}"]').hover()
    card = page.locator("#card")
    figures = dict(zip(card.locator("th").all_text_contents(), card.locator("td").all_text_contents(), strict=True))
    half = float(np.float16(np.log(0.5)))  # as it is stored
    assert figures["probability"] == f"{np.exp(half):.4f}"
    assert figures["rank"] == str(row["rank"][t])
    assert figures["entropy"] == f"{np.float16(row['entropy'][t]):.2f} nats"
    assert figures["window mean"] == "no window here"  # prose before the code
    assert figures["mask"] == "M = 1 (1 + 1 × 0)"
    alternatives = card.locator(".alternative").all_text_contents()
    assert len(alternatives) == 2
    assert alternatives[0].endswith(f"{np.exp(half):.4f} ← this token")
    assert alternatives[1].endswith(f"{np.exp(float(np.float16(np.log(0.5) - 1))):.4f}")
    page.mouse.move(5, 5)
    assert card.is_hidden()


def test_hostile_text_is_text(visit: Any, page_file: Path, dataset: Dataset) -> None:
    page = visit(page_file)
    page.keyboard.press("n")
    expect(page.locator("#name")).to_have_text(HOSTILE)
    row = stored(dataset)[1]
    assert HOSTILE in row["response"]
    assert page.locator("#name").text_content() == page.locator("#prompt").text_content() == HOSTILE
    assert page.locator("#code").text_content() == row["response"].replace("\u202e", "")  # spelled out instead
    assert page.locator('#code [data-sign="U+202E"]').count() == 2
    for t in page.evaluate("spans.flatMap((s, t) => s.textContent.includes('<') ? [t] : [])")[:3]:
        page.locator(f'[data-pos="{t}"]').hover()
        expect(page.locator("#card code")).to_contain_text("<")
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 4
    assert page.evaluate("window.owned") is None


def test_a_link_leads_to_its_token(visit: Any, page_file: Path, dataset: Dataset) -> None:
    third = stored(dataset)[2]["sample_id"]
    page = visit(page_file, f"#{third[:9]}&17")
    page.wait_for_selector(".at")
    assert page.locator(".at").get_attribute("data-pos") == "17"
    assert page.locator("#name").text_content() == "third"
    assert page.url.endswith(f"#{third}&17")
    expect(page.locator("#card")).to_contain_text("17 of")
    page.evaluate("location.hash = 'no%such&x'")
    expect(page.locator("#notice")).to_be_visible()
    expect(page.locator("#name")).to_have_text("first")


def test_keys(visit: Any, page_file: Path, dataset: Dataset) -> None:
    page = visit(page_file)
    found = stored(dataset)
    for key, name in (("n", found[1]["source_id"]), ("n", "third"), ("n", "third"), ("p", HOSTILE), ("p", "first")):
        page.keyboard.press(key)
        expect(page.locator("#name")).to_have_text(name)
    for key, position in (("ArrowRight", 0), ("ArrowRight", 1), ("ArrowLeft", 0), ("End", len(found[0]["rank"]) - 1)):
        page.keyboard.press(key)
        assert page.locator(".at").get_attribute("data-pos") == str(position)
        expect(page.locator("#card")).to_contain_text(f"{position} of")
        expect(page.locator("#card")).to_be_visible()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    below = int(page.locator(".at").get_attribute("data-pos"))
    start = found[0]["char_start"][below]
    assert found[0]["response"][:start] == "Here is the kernel:\n"  # the empty line
    page.keyboard.press("w")
    means = window_means(np.exp(found[0]["half"][found[0]["in_code"]].astype(float)), 256)
    centre = np.flatnonzero(found[0]["in_code"])[np.argmin(means)]
    assert page.locator(".at").get_attribute("data-pos") == str(centre)
    page.keyboard.press("m")
    assert page.locator("#code").get_attribute("data-mode") == "mask"
    page.keyboard.press("Escape")
    assert page.locator("#card").is_hidden()
    page.keyboard.press("d")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 29)"
    page.keyboard.press("/")
    page.keyboard.type("SCALE3")  # stands in the third sample alone; letters are no commands here
    assert page.locator("#found").text_content() == "0 here; in 1 other samples"
    page.keyboard.press("Enter")
    page.wait_for_selector(".hit")
    expect(page.locator("#name")).to_have_text("third")
    assert "scale3" in "".join(page.locator(".hit").all_text_contents())


def test_a_category_can_be_shown_alone(visit: Any, page_file: Path, dataset: Dataset) -> None:
    page = visit(page_file)
    category = np.asarray(stored(dataset)[0]["category"])
    page.locator('#legend input[value="8"]').check()
    assert page.locator(".t:not(.off)").count() == np.sum(category == 8) > 0
    page.locator("#all").click()
    assert page.locator(".off").count() == 0


def test_without_scores_it_shows_labels_and_says_so(visit: Any, build: Callable[..., Dataset], tmp_path: Path) -> None:
    dataset = build("unscored", skip_scoring=True)
    view.write_view(dataset, tmp_path / "view.html")
    page = visit(tmp_path / "view.html", scheme="dark")
    assert "Scores are missing" in page.locator("#notice").text_content()
    assert page.locator("#tau").is_hidden()
    assert page.locator("#mini").is_hidden()
    assert page.locator(".t.g8").count() > 0
    page.locator(".t.g8").first.hover()
    expect(page.locator("#card")).to_contain_text("launch")
    assert "probability" not in page.locator("#card").text_content()
    for key in ("w", "m", "ArrowRight", "n"):
        page.keyboard.press(key)


def test_text_that_no_token_covers_is_shown_too(visit: Any, build: Callable[..., Dataset], tmp_path: Path) -> None:
    """With --context raw the tokens are those of the code alone."""
    dataset = build("raw", StubScorer(), context="raw")
    view.write_view(dataset, tmp_path / "view.html")
    page = visit(tmp_path / "view.html", scheme="dark")
    row = stored(dataset)[0]
    assert row["response"].startswith("Here is the kernel:")
    assert page.locator("#code").text_content() == row["response"]
    assert page.locator("#code > s").first.text_content().startswith("Here is the kernel:")
    assert "Here" not in "".join(page.locator(".t").all_text_contents())
    assert counts(page) == expected_counts(row, 0.1)


def test_the_file_holds_no_markup_of_the_corpus(page_file: Path) -> None:
    text = html.unescape(page_file.read_text(encoding="utf-8"))
    assert "<img" not in text
    assert text.count("</script>") == text.count("<script") == 4
    assert "default-src 'none'" in text
    assert "unsafe" not in text.partition("<style>")[0]


def test_ids_choose_samples(dataset: Dataset) -> None:
    rows = stored(dataset)
    chosen = view.view_data(dataset, ["third", rows[0]["sample_id"][:8], "third"])["samples"]
    assert [s["source_id"] for s in chosen] == ["third", "first"]
    assert len(view.view_data(dataset, limit=2)["samples"]) == 2
    with pytest.raises(DatasetError, match="no sample 'nowhere'"):
        view.view_data(dataset, ["nowhere"])
    with pytest.raises(DatasetError, match="several samples begin with ''"):
        view.view_data(dataset, [""])


def test_a_tokenizer_spells_what_the_dataset_does_not_hold(dataset: Dataset, model_folder: Path) -> None:
    data = view.view_data(dataset, tokenizer=model_folder / "tokenizer.json")
    from tokenizers import Tokenizer

    backend = Tokenizer.from_file(str(model_folder / "tokenizer.json"))
    assert data["vocabulary"][5] == backend.decode([5])
    with pytest.raises(OptionError, match="cannot be read"):
        view.view_data(dataset, tokenizer=model_folder / "none.json")


def test_the_command_and_its_errors(
    dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str], build: Callable[..., Dataset]
) -> None:
    out = tmp_path / "new" / "view.html"
    assert view.run([str(dataset.path), "--out", str(out), "--limit", "1"]) == 0
    said = capsys.readouterr()
    assert said.out == f"{out}\n"
    assert said.err == "the first 1 of 3 samples; --limit N shows more\n"
    first = out.read_bytes()
    view.run([str(dataset.path), "--out", str(out), "--limit", "1"])
    assert out.read_bytes() == first
    with pytest.raises(DatasetError, match="no such folder"):
        view.run([str(tmp_path / "nothing")])
    with pytest.raises(OptionError, match="is a folder"):
        view.run([str(dataset.path), "--out", str(tmp_path)])
    with pytest.raises(OptionError, match="1 or more"):
        view.run([str(dataset.path), "--limit", "0"])
    empty = build("empty", StubScorer(), max_length=2)
    with pytest.raises(DatasetError, match="has no sample to show"):
        view.run([str(empty.path), "--out", str(out)])


def test_figures_that_are_no_numbers_do_no_harm(dataset: Dataset, visit: Any, tmp_path: Path) -> None:
    """Damaged files: the page says that there is no figure, and goes on."""
    data = view.view_data(dataset, limit=1)
    table = np.frombuffer(base64.b64decode(data["confidences"]), "<f8").copy()
    table[:] = np.nan
    data["confidences"] = base64.b64encode(table.tobytes()).decode()
    (tmp_path / "view.html").write_text(view.render_view(data), encoding="utf-8")
    page = visit(tmp_path / "view.html")
    page.locator('[data-pos="40"]').hover()
    expect(page.locator("#card")).to_contain_text("probability–")
