"""The tutorial, typed letter by letter: its commands, its files and the output that it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

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


def output_of(command: str, folder: Path) -> tuple[int, str]:
    words = [sys.executable, "-m", *shlex.split(command)]
    environment = {**os.environ, "VERISPEC_CACHE_DIR": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, check=False, cwd=folder, capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout


def test_the_red_cell_turns_green(tmp_path: Path) -> None:
    assert f"$ {RED}\n" in TUTORIAL
    assert f"$ {RUN}\n" in TUTORIAL
    engine = tmp_path / "my_engine.py"
    engine.write_text(block("my_engine.py"))
    code, output = output_of(RED, tmp_path)
    assert code == 1
    assert shown_after("4. A red cell") in output

    repro = re.search(r"\$ (verispec repro .*)", TUTORIAL)[1]  # type: ignore[index]
    code, output = output_of(repro, tmp_path)
    assert code == 1
    assert "-7777" in output

    lines = engine.read_text().splitlines(keepends=True)
    start = next(n for n, line in enumerate(lines) if "output_ptr.to" in line)
    lines[start : start + 3] = [block("fix")]
    engine.write_text("".join(lines))
    code, output = output_of(RUN, tmp_path)
    assert code == 0
    assert "no unexpected failure" in output
