"""Lines that every exported test has, and numbers as source."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from verispec import exits
from verispec.engines import Engine
from verispec.errors import VerispecError
from verispec.saved_calls.file import SavedCase
from verispec.saved_calls.record_folder import MADE_BY

LINES = 40
"""Lines of a test that people read in an issue."""
COLUMNS = 110


def head(saved: SavedCase, engine: Engine) -> Iterator[str]:
    """Yield the docstring of the module: engine, clause, and the failure."""
    from verispec.reference import contracts

    about, clause = engine.describe(), saved.case.split(":")[1]
    norm = next((c.text for c in contracts.by_clause(clause).clauses if c.id == clause), "")
    subject = saved.op or saved.case.partition(":")[0]
    yield f'"""{about.name} {about.version} on {about.device}: {clause}, {subject}.'
    yield ""
    yield from textwrap.wrap(norm, COLUMNS)
    if saved.failure.get("message"):
        told = safe(f"Seen: {saved.failure['message']}")
        yield from textwrap.wrap(textwrap.shorten(told, 3 * COLUMNS, placeholder=" ..."), COLUMNS)
    yield MADE_BY
    yield '"""'
    yield ""


def wrapped(line: str) -> Iterator[str]:
    """Yield a statement of a function's body in lines of at most `COLUMNS` columns."""
    yield from textwrap.wrap(
        line, COLUMNS, initial_indent="    ", subsequent_indent="        ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def numbers(value: Any, dtype: Any) -> str:
    """Return nested lists of numbers; floats by the shortest text that means the same in `dtype`."""
    import numpy as np

    if isinstance(value, list):
        return f"[{', '.join(numbers(each, dtype) for each in value)}]"
    if isinstance(value, float) and str(dtype) != "torch.float64":  # float32 holds the narrower ones exactly
        return repr(float(str(np.float32(value))))
    return repr(value)


def safe(text: str) -> str:
    """Return text that cannot end the docstring that it stands in."""
    return text.replace("\\", "/").replace('"""', "'''").rstrip('"')


def cannot(saved: SavedCase, message: str, hint: str) -> VerispecError:
    """Return the error V-REPRO-EXPORT of a case for which no test can be written."""
    return VerispecError("V-REPRO-EXPORT", message, where=saved.case, hint=hint, exit_code=exits.CANNOT_TELL)
