"""Every command of the tree: it has --json and help within 80 columns; log lines of a run are short too."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
import typer

from verispec.cli import cli
from verispec.run.progress import Lines
from verispec.run.record import Record
from verispec.run.watching import times, wait_for_change
from verispec.terminal import COLUMNS


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command that does something, groups walked."""
    left: list[tuple[str, Any]] = [("verispec", typer.main.get_command(cli))]
    while left:
        name, command = left.pop()
        if not hasattr(command, "list_commands"):
            yield name, command
            continue
        left += [(f"{name} {below}", command.get_command(None, below)) for below in command.list_commands(None)]


ALL = sorted(commands())


def test_the_tree_is_walked() -> None:
    names = [name for name, _ in ALL]
    assert len(names) >= 18
    assert {"verispec new engine", "verispec new op", "verispec run", "verispec doctor"} <= set(names)


@pytest.mark.parametrize(("name", "command"), ALL, ids=[name for name, _ in ALL])
def test_every_command_has_json(name: str, command: Any) -> None:
    spellings = [spelling for param in command.params for spelling in param.opts]
    assert "--json" in spellings, f"{name} has no --json"


@pytest.mark.parametrize(("name", "command"), ALL, ids=[name for name, _ in ALL])
def test_help_fits_a_terminal_of_80_columns(name: str, command: Any) -> None:
    context = command.make_context(name, [], resilient_parsing=True, terminal_width=80, max_content_width=80)
    examples = re.compile(r" {4,}verispec |^Usage:")
    long = [line for line in command.get_help(context).splitlines() if len(line) > 80 and not examples.search(line)]
    assert long == []


def test_log_lines_fit_80_columns() -> None:
    stream = io.StringIO()
    with redirect_stderr(stream):
        lines = Lines()
        lines.expect(123_456, [])
        lines.waiting("collecting the suites of an engine with a name that is longer than anybody would write, 120 s")
        lines._last -= 100
        lines.judged(Record("sampler/copy_and_expand_eagle_inputs_and_a_name_that_is_long:CEI-1:b=1", "fail"))
        lines.explaining("expand_batch_to_tokens, rejection_random_sample, apply_top_k_top_p", 7)
        lines.writing(Path("/a/" + "very_long_folder_name/" * 6 + "run.jsonl"))
    printed = stream.getvalue().splitlines()
    assert len(printed) > 6
    assert [line for line in printed if len(line) > COLUMNS and "run.jsonl" not in line] == []
    assert any(line.endswith("run.jsonl") and "/a/very" in line for line in printed), "a path stays whole"


def test_a_change_is_seen_and_caches_are_not(tmp_path: Path) -> None:
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / ".git").mkdir()
    source = tmp_path / "kernel.cpp"
    source.write_text("1")
    before = times([tmp_path])
    for noise in ("__pycache__/a.py", ".git/b.py", "notes.txt"):
        (tmp_path / noise).write_text("x")
    assert times([tmp_path]) == before
    timer = threading.Timer(0.1, lambda: source.write_text("22"))
    timer.start()
    assert wait_for_change([tmp_path], before) == (str(source),)


def test_watch_runs_again_and_tells_when_it_passes(tmp_path: Path) -> None:
    environment = {**os.environ, "VERISPEC_CACHE_DIR": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    verispec = [sys.executable, "-m", "verispec"]
    gate = tmp_path / "gate"
    subprocess.run([*verispec, "new", "engine", "mine", "--in", str(gate)], check=True, env=environment)
    engine = gate / "mine.py"
    right = engine.read_text()
    engine.write_text(right.replace("values == replace_from", "values != replace_from"))
    only = ["--only", "sampler/expand_batch_to_tokens:EXP-3"]
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it, its children too
    process = subprocess.Popen(
        [*verispec, "run", "--engine", "mine:Engine", *only, "--watch", "."],
        cwd=gate, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    signal.signal(signal.SIGINT, ignored)
    guard = threading.Timer(400, process.kill)
    guard.start()
    assert process.stdout
    seen: list[str] = []
    for line in process.stdout:
        seen.append(line.rstrip())
        if "waiting for a change" in line:
            if "exit 0" in seen:
                process.send_signal(signal.SIGINT)
            else:
                assert "exit 1" in seen
                engine.write_text(right)
    guard.cancel()
    assert process.wait() == 0, seen
    assert [line for line in seen if line.startswith("exit")] == ["exit 1", "exit 0", "exit 0"], "alone, then all"
    assert "changed: mine.py" in seen
