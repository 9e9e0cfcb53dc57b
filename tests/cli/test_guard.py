"""Every way in which a command can end has an exit code that means what it says; 1 is never an accident."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from verispec import exits
from verispec.cli import _guard
from verispec.cli._guard import guarded
from verispec.errors import VerispecError

EXAMPLE = Path(__file__).resolve().parents[1] / "static" / "example"
"""A tree to check."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def raising(error: BaseException) -> Callable[[], object]:
    def command() -> object:
        raise error

    return command


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (lambda: None, exits.GOOD),
        (raising(SystemExit(None)), exits.GOOD),
        (raising(SystemExit(exits.BAD)), exits.BAD),
        (raising(SystemExit("a text")), exits.USAGE),
        (raising(VerispecError("V-X", "wrong", hint="do so")), exits.USAGE),
        (raising(VerispecError("V-X", "wrong", hint="do so", exit_code=exits.CANNOT_TELL)), exits.CANNOT_TELL),
        (raising(KeyboardInterrupt()), _guard.INTERRUPTED),
    ],
)
def test_what_commands_mean_to_end_with(command: Callable[[], object], code: int) -> None:
    assert guarded(command) == code


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("x"), "V-CLI-INTERNAL verispec failed: KeyError: 'x' (report: "),
        (RecursionError("too\ndeep"), "V-CLI-INTERNAL verispec failed: RecursionError: too deep (report: "),
        (MemoryError(), "V-CLI-INTERNAL verispec failed: MemoryError (report: "),
        (OSError(errno.ENOSPC, "No space left on device"), "V-CLI-OS the operating system refused something: OSError"),
        (GeneratorExit(), "V-CLI-INTERNAL verispec failed: GeneratorExit"),
    ],
)
def test_anything_else_cannot_be_told_and_leaves_a_report(
    error: BaseException, said: str, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(raising(error)) == exits.CANNOT_TELL
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1
    (report,) = (cache / "errors").iterdir()
    assert f"(report: {report})" in err
    assert "Traceback" in report.read_text()
    assert type(error).__name__ in report.read_text()


def test_a_report_that_cannot_be_written_is_printed(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache.parent.mkdir(exist_ok=True)
    cache.write_text("no folder")
    assert guarded(raising(KeyError("x"))) == exits.CANNOT_TELL
    assert "Traceback" in capsys.readouterr().err


def test_typer_aborts_are_interrupts() -> None:
    def command() -> None:
        try:
            raise typer.Abort
        except typer.Abort:
            sys.exit(1)

    assert guarded(command) == _guard.INTERRUPTED


def shell(script: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "VERISPEC_CACHE_DIR": str(tmp_path), "VERISPEC": f"{sys.executable} -m verispec"}
    return subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", ["ops", "--help", "explain EXP-2 --json"])
@pytest.mark.parametrize(
    ("redirected", "said"),
    [
        (">&-", "stdout is closed"),
        ("> /dev/full", "No space left on device"),
    ],
    ids=["closed", "full"],
)
def test_a_report_without_a_reader_ends_with_125(command: str, redirected: str, said: str, tmp_path: Path) -> None:
    done = shell(f"$VERISPEC {command} {redirected}", tmp_path)
    assert done.returncode == exits.CANNOT_TELL, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    "command",
    ["ops", "--help", "explain EXP-2 --json", "explain EXP-2", "engines", "doctor", f"signatures {EXAMPLE}"],
)
def test_a_reader_that_leaves_ends_a_command_quietly(command: str, tmp_path: Path) -> None:
    """`verispec explain EXP-2 | head -1` printed a message of its own after the line."""
    done = shell(f"( sleep 0.5; exec $VERISPEC {command} ) > >(exec 0<&-; sleep 1)", tmp_path)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_a_broken_pipe_that_is_not_stdout_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(raising(BrokenPipeError())) == exits.CANNOT_TELL
    assert "V-CLI-OS" in capsys.readouterr().err


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_other_closed_streams_do_not_matter(closed: str, tmp_path: Path) -> None:
    assert shell(f"$VERISPEC ops {closed}", tmp_path).returncode == exits.GOOD
