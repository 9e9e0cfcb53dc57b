"""Exit codes of commands that end with an error, an interrupt or a closed output."""

from __future__ import annotations

import contextlib
import os
import platform
import select
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import typer

from verispec import __version__, exits
from verispec.errors import Diagnostic, VerispecError
from verispec.terminal import printable

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended: what a shell reports for SIGINT."""
READER_LEFT = 141
"""Exit code of a command whose reader closed the pipe, as `head` does: what a shell reports for SIGPIPE."""


def guarded(command: Callable[[], object]) -> int:
    """Run `command` and return the exit code of the process.

    A VerispecError prints its diagnostic. Anything else that a command does not catch is exit code 125, one line on
    stderr and a report in a file: exit code 1 would read as a failure of the engine. A reader that leaves early is no
    error, and ends the command without a message.
    """
    absent = _open_closed_streams()
    stdout = os.dup(1)  # Rich puts /dev/null in its place when the reader leaves
    try:
        if 1 in absent:
            raise VerispecError(
                "V-CLI-STDOUT",
                "stdout is closed",
                hint="redirect it to /dev/null if only the exit code matters",
                exit_code=exits.CANNOT_TELL,
            )
        code = _exit_code(command)
        sys.stdout.flush()
        return code
    except VerispecError as error:
        _complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseException as error:
        if isinstance(error, BrokenPipeError) and _reader_left(stdout):
            _abandon_stdout()
            return READER_LEFT
        if isinstance(error, OSError):
            _abandon_stdout()
        _complain(str(_diagnostic(error)))
        return exits.CANNOT_TELL
    finally:
        os.close(stdout)


def _exit_code(command: Callable[[], object]) -> int:
    try:
        command()
    except SystemExit as stop:
        # Typer ends a command with 1 when it is interrupted or stdout is closed, which would read as "bad".
        if isinstance(stop.__context__, typer.Abort):
            return INTERRUPTED
        if isinstance(stop.__context__, OSError):
            raise stop.__context__ from None
        return stop.code if isinstance(stop.code, int) else exits.GOOD if stop.code is None else exits.USAGE
    return exits.GOOD


def _open_closed_streams() -> set[int]:
    """Open /dev/null for standard streams that are closed, and return their numbers.

    Otherwise the next file to be opened, such as a results file, would become stdout for child processes.
    """
    closed = set()
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
            closed.add(number)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the process ends
    return closed


def _reader_left(stdout: int) -> bool:
    """Return True if the file descriptor `stdout` is a pipe without a reader."""
    poll = select.poll()
    poll.register(stdout, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _abandon_stdout() -> None:
    """Keep the interpreter from writing to stdout once more at its end, which would change the exit code."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nothing, sys.stdout.fileno())
        except (OSError, ValueError):  # stdout is not a file: nothing is written at the end
            pass
        finally:
            os.close(nothing)


def _complain(text: str) -> None:
    with contextlib.suppress(OSError):  # the exit code says it too
        print(printable(f"verispec: {text}"), file=sys.stderr, flush=True)


def _diagnostic(error: BaseException) -> Diagnostic:
    """Return one line on `error` with the path of a report; the report itself where no file can be written."""
    lines = [
        f"verispec {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"command: {' '.join(sys.argv)}",
        "",
        *traceback.format_exception(error),
    ]
    report = "\n".join(lines)
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, OSError):
        code, message = "V-CLI-OS", "the operating system refused something"
    else:
        code, message = "V-CLI-INTERNAL", "verispec failed"
    try:
        from verispec.cache_folder import cache_dir

        folder = cache_dir() / "errors"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%S%f')}-{os.getpid()}.txt"
        path.write_text(report, encoding="utf-8", errors="replace")
    except OSError:
        return Diagnostic(code, f"{message}: {said}", cause=f"no report could be written; it is:\n{report}")
    return Diagnostic(code, f"{message}: {' '.join(said.split())} (report: {path})")
