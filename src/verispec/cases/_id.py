"""Case ids: one line that names a case everywhere (``--only``, known failures, repro, bisect, reports).

    sampler/rejection_random_sample:RRS-3:vocab=8;k=3;draft=present
    suite  /op under test          :clause:parameters

The form is that of a query string: readable, easy to type, and a pattern as soon as it contains ``*``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from verispec.errors import VerispecError

_ID = re.compile(
    r"(?P<suite>[a-z0-9_]+)/(?P<subject>[A-Za-z0-9_.]+):(?P<clause>[A-Z][A-Z0-9]{1,4}-\d+)(:(?P<params>.*))?"
)


@dataclass(frozen=True, slots=True, order=True)
class CaseId:
    """A parsed case id; `params` keeps the order of their declaration."""

    suite: str
    subject: str
    clause: str
    params: tuple[tuple[str, str], ...] = ()

    @classmethod
    @lru_cache(maxsize=1 << 16)  # reports ask for the parts of each record's id again and again
    def parse(cls, text: str) -> CaseId:
        """Parse a case id.

        Raises:
            VerispecError: `text` is not a case id.
        """
        match = _ID.fullmatch(text)
        if match is None:
            raise VerispecError(
                "V-CASE-ID",
                f"{text!r} is not a case id",
                cause="expected suite/subject:CLAUSE:name=value;name=value",
                hint="copy an id from a report, or list them with: verispec run --engine reference --collect",
            )
        params = []
        for pair in filter(None, (match["params"] or "").split(";")):
            name, equals, value = pair.partition("=")
            if not equals:
                raise VerispecError("V-CASE-ID", f"{pair!r} in {text!r} is not name=value", hint="write k=3;dtype=f32")
            params.append((name, value))
        return cls(match["suite"], match["subject"], match["clause"], tuple(params))

    def __str__(self) -> str:
        head = f"{self.suite}/{self.subject}:{self.clause}"
        return f"{head}:{';'.join(f'{k}={v}' for k, v in self.params)}" if self.params else head


def selects(pattern: str, case_id: str) -> bool:
    """Return True if `pattern` is `case_id` or a beginning of it that ends with a whole part, or a glob of either.

    A pattern that ends with ``$`` selects no longer ids: many an id is another one's beginning.
    """
    if pattern.endswith("$"):
        return fnmatchcase(case_id, pattern[:-1]) if "*" in pattern or "?" in pattern else case_id == pattern[:-1]
    if "*" in pattern or "?" in pattern:
        ends = (i for i, character in enumerate(case_id) if character in "/:;")
        beginnings = (case_id[: i + (pattern[-1] in "/:;")] for i in ends)
        return fnmatchcase(case_id, pattern) or any(fnmatchcase(beginning, pattern) for beginning in beginnings)
    if not pattern or case_id == pattern:
        return case_id == pattern
    return case_id.startswith(pattern) and (pattern[-1] in "/:;" or case_id[len(pattern)] in "/:;")
