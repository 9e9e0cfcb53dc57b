from __future__ import annotations

import pytest

from verispec.errors import Diagnostic
from verispec.report.signatures import SignatureReport
from verispec.static.finding import Finding, Level, Location, Side, fingerprint


def finding(
    level: Level = Level.ERROR, rule: str = "SIG101", path: str = "pkg/a b.py", line: int = 3, text: str = "f(x=1)"
) -> Finding:
    here = Location(path, line, 5, line + 1)
    there = Location("pkg/cpu.py", 9)
    return Finding(
        rule=rule,
        level=level,
        message="the call passes `x`, the fallback has no such parameter" + ", and so it goes on and on" * 4,
        location=here,
        symbol="pkg.a.kernel",
        sides=(Side("call", here, text), Side("CPU fallback", there, "def f(y)")),
        fix="add `x` to the fallback",
        fingerprint=fingerprint(rule, "pkg.a.kernel", text, path),
    )


@pytest.fixture
def outcome() -> SignatureReport:
    """One finding of every level, text that tries to break out of every format, and a diagnostic."""
    nasty = "::error::x\n::error::y\n%0A]]></failure>\x1b[31m\x00\ud800,:\"'&<"
    return SignatureReport(
        tree="pkg at HEAD",
        findings=(
            finding(),
            finding(Level.WARNING, "SIG102", "pkg/\\xff,:%.py", 1, nasty),
            finding(Level.NOTE, "SIG999", "b.py", 7),
        ),
        diagnostics=(Diagnostic("V-SRC-LINK", "1 file: not followed", "x\x1b.py", "a\x00b", "hint"),),
        stats={"files": 3, "seconds": 0.25},
        prefix="sub/",
        known=2,
        since="HEAD~1",
    )
