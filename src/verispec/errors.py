"""What verispec says when something is wrong: a code, what happened, why, and what to do.

A `Diagnostic` is a fact about one input that did not stop the work; a `VerispecError` stops the
command. Both carry the same fields, so that people and JSON readers see the same thing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from verispec import exits


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing that went wrong, in the order in which a reader needs it.

    `code` is stable and searchable (``V-SRC-UNPARSABLE``); `where` is a file, an option or a case id.
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
        return asdict(self)


def describe_exception(error: BaseException) -> str:
    """Return type and text of any exception, also of one whose text cannot be read."""
    try:
        text = str(error).strip()
    except Exception:
        text = "(its text cannot be read)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class VerispecError(Exception):
    """Ends a command with `exit_code` after printing its diagnostic; never a traceback for a user's mistake."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        where: str = "",
        cause: str = "",
        hint: str = "",
        exit_code: int = exits.USAGE,
    ) -> None:
        self.diagnostic = Diagnostic(code, message, where, cause, hint)
        self.exit_code = exit_code
        super().__init__(str(self.diagnostic))

    def __reduce__(self) -> tuple[object, ...]:
        """Errors cross process boundaries whole."""
        return _rebuild, (self.diagnostic, self.exit_code)


def _rebuild(diagnostic: Diagnostic, exit_code: int) -> VerispecError:
    fields = diagnostic.to_json()
    return VerispecError(fields.pop("code"), fields.pop("message"), **fields, exit_code=exit_code)
