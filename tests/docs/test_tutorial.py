"""The tutorial, typed letter by letter: its commands, its files and the output that it shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from judging import command

TUTORIAL = (Path(__file__).resolve().parents[2] / "docs/tutorial.md").read_text(encoding="utf-8")
RUN = "verispec run --engine my_engine:Engine --only sampler/expand_batch_to_tokens"
RED = f"{RUN}:EXP-2 --seed 7"


def block(caption: str) -> str:
    """Return the code of the block with this caption."""
    found = re.search(rf"```{{code-block}} python\n:caption: {caption}\n\n(.*?)```", TUTORIAL, re.DOTALL)
    assert found, caption
    return found[1]


def shown_after(heading: str) -> str:
    """Return the output that the section shows."""
    return re.search(rf"## {heading}.*?```text\n(.*?)```", TUTORIAL, re.DOTALL)[1]  # type: ignore[index]


@pytest.fixture
def output_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], tuple[int, str]]:
    """Return a function that runs a command of the tutorial in the reader's folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path / "cache"))

    def run(line: str) -> tuple[int, str]:
        done = command(capsys, *shlex.split(line)[1:])
        return done.returncode, done.stdout

    return run


def test_the_failing_op_passes_after_the_fix(tmp_path: Path, output_of: Callable[[str], tuple[int, str]]) -> None:
    assert f"$ {RED}\n" in TUTORIAL
    assert f"$ {RUN}\n" in TUTORIAL
    engine = tmp_path / "my_engine.py"
    engine.write_text(block("my_engine.py"))
    code, output = output_of(RED)
    assert code == 1
    assert shown_after("4. A failing op") in output

    repro = re.search(r"\$ (verispec repro .*)", TUTORIAL)[1]  # type: ignore[index]
    code, output = output_of(repro)
    assert code == 1
    assert "-7777" in output

    lines = engine.read_text().splitlines(keepends=True)
    start = next(n for n, line in enumerate(lines) if "output_ptr.to" in line)
    lines[start : start + 3] = [block("fix")]
    engine.write_text("".join(lines))
    code, output = output_of(RUN)
    assert code == 0
    assert "no unexpected failure" in output
