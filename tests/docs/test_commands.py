"""Every command and case id in the documentation: it parses, it exists, and it runs where it can run here."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from judging import command

from verispec.cases import selects
from verispec.cli import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"))
    if not {"verdicts", "generated", "_build"} & set(path.parts) and path.name != "CHANGELOG.md"
)
RUN_HERE = ("explain", "ops", "engines", "repro")
"""Commands that need no engine but the reference, and take seconds."""
_ID = r"(?:sampler|synthetic|signatures|e2e)/[a-z_]+:[A-Z]{2,4}-\d+"
CASE = re.compile(rf"(?<='){_ID}:[^'\n]+(?=')|{_ID}(?::[\w=;,.+-]+)?")
"""A case id; one between quotes may hold blanks."""
PLACEHOLDER = re.compile(r"[<>]| [A-Z]+( |$)|module:|my_engine:")
ENDS = {"|", ">", ">>", "&&", ";", "||", "2>"}


def code_lines(page: Path) -> Iterator[str]:
    """Yield code lines, continued lines joined, and inline code; omit ``text`` blocks and bare command names."""
    fence = ""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fence = "" if fence else line.strip()
        elif (fence and fence != "```text") or (not fence and line.startswith("    ")):
            yield line.strip()
        elif not fence:
            yield from re.findall(r"`(verispec [a-z]+ [^`]+)`", line)


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words of each ``verispec`` command of a page, without the program's name."""
    for line in code_lines(page):
        shown = line.removeprefix("$ ").removeprefix("- run: ").removeprefix("run: ")
        if not shown.startswith("verispec "):
            continue
        words = shlex.split(shown, comments=True)[1:]
        end = next((n for n, word in enumerate(words) if word in ENDS), len(words))
        if words[:end] and words[0][0] != "<":
            yield words[:end]


ALL = [pytest.param(words, id=f"{page.stem}-{' '.join(words)}") for page in PAGES for words in commands(page)]


def test_there_are_commands() -> None:
    assert len(ALL) > 30


@pytest.mark.parametrize("words", ALL)
def test_the_command_parses(words: list[str]) -> None:
    group = typer.main.get_command(cli)
    if words[0].startswith("-"):
        group.make_context("verispec", words, resilient_parsing=True)
        return
    named = group.get_command(None, words[0])  # type: ignore[attr-defined]
    assert named is not None, f"there is no command {words[0]}"
    if "--help" not in words:
        named.make_context(f"verispec {words[0]}", words[1:])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_case_ids_exist(page: Path, all_cases: list[str]) -> None:
    for case in CASE.findall(page.read_text(encoding="utf-8")):
        assert any(selects(case.rstrip(".,;"), known) for known in all_cases), case


@pytest.mark.parametrize(
    "words",
    [p for p in ALL if p.values[0][0] in RUN_HERE and "vllm" not in str(p.id) and not PLACEHOLDER.search(str(p.id))],
)
def test_the_command_runs(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    done = command(capsys, *words)
    assert done.returncode == 0, done.stderr or done.stdout
