"""Diagnostics and errors: a code, a message, a place, a cause and a hint.

A `Diagnostic` reports a problem of one input that did not stop the command; a `VerispecError` stops it. Both have the
same fields in text and JSON output.
"""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from verispec import exits


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem, with its fields in the order that a reader needs.

    Attributes:
        code: stable, searchable code, such as ``V-SRC-UNPARSABLE``.
        where: a file, an option or a case id.
    """

    code: str
    message: str
    where: str = ""
    cause: str = ""
    hint: str = ""

    def __str__(self) -> str:
        head = f"{self.code} {self.where}: {self.message}" if self.where else f"{self.code} {self.message}"
        cause = f"\n  cause: {self.cause}" if self.cause else ""
        hint = f"\n  hint:  {self.hint}" if self.hint else ""
        return head + cause + hint

    def to_json(self) -> dict[str, str]:
        """Return the non-empty fields as a dictionary."""
        return asdict(self)


def describe_exception(error: BaseException) -> str:
    """Return type and text of any exception, also of one whose text cannot be read."""
    try:
        text = str(error).strip()
    except Exception:
        text = "(its text cannot be read)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def without_remark(message: str) -> tuple[str, str]:
    """Return a message without its last parentheses, and their content; both may hold parentheses."""
    depth = 0
    for at in range(len(message) - 1, 0, -1) if message.endswith(")") else ():
        depth += (message[at] == ")") - (message[at] == "(")
        if depth == 0:
            return (message[:at].rstrip(), message[at + 1 : -1]) if message[at - 1].isspace() else (message, "")
    return message, ""


class RemoteFault(Exception):
    """Raised for a fault of another process or machine, whose words tell nothing of this process."""


class VerispecError(Exception):
    """Raised to end a command with `exit_code` after printing its diagnostic, without a traceback.

    The hint is required: an error that stops a command says what to do.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str,
        where: str = "",
        cause: str = "",
        exit_code: int = exits.USAGE,
    ) -> None:
        self.diagnostic = Diagnostic(code, message, where, cause, hint)
        self.exit_code = exit_code
        super().__init__(str(self.diagnostic))

    def __reduce__(self) -> tuple[object, ...]:
        """Support pickling, so that errors cross process boundaries."""
        return _rebuild, (self.diagnostic, self.exit_code)


def _rebuild(diagnostic: Diagnostic, exit_code: int) -> VerispecError:
    fields = diagnostic.to_json()
    return VerispecError(fields.pop("code"), fields.pop("message"), **fields, exit_code=exit_code)


def portable(text: str) -> str:
    """Return a traceback whose files are named from where Python finds modules, else from the home folder.

    Args:
        text: text of a traceback, Python's or faulthandler's: ``File "/folder/module.py", line 3``.
    """
    package = str(Path(__file__).resolve().parents[1])
    entries = {str(Path(entry).resolve()) for entry in [*sys.path, package] if entry}
    roots = sorted((entry.rstrip("/") + "/" for entry in entries if entry != "/"), key=len, reverse=True)
    home = f"{Path.home()}/"

    def shorter(match: re.Match[str]) -> str:
        path = match[1]
        root = next((root for root in roots if path.startswith(root)), "")
        if root:
            path = path.removeprefix(root)
        elif path.startswith(home) and home != "//":
            path = f"~/{path.removeprefix(home)}"
        return f'File "{path}"'

    return re.sub(r'File "([^"\n]+)"', shorter, text)
