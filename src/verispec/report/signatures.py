"""The report of `verispec signatures` as data; ``schemas/signatures.schema.json`` describes its JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from verispec import __version__, exits
from verispec.errors import Diagnostic
from verispec.static.finding import Finding, Level, Location
from verispec.static.patches import PatchPoint
from verispec.static.sources import is_incomplete

FORMAT = "verispec/signatures/1"
SCHEMA = Path(__file__).with_name("schemas") / "signatures.schema.json"

NOTHING = "compared: nothing, as there is no kernel, override or op schema"

WEIGHT: Mapping[Level, int] = {Level.NOTE: 0, Level.WARNING: 1, Level.ERROR: 2}


@dataclass(frozen=True, slots=True)
class SignatureReport:
    """The findings of one tree.

    Attributes:
        tree: description of the tree.
        findings: findings in the order of the output.
        diagnostics: files that the checker did not read, and the reasons.
        stats: counts and seconds by stage.
        core: description of the host tree; empty without one.
        since: description of the older tree whose findings were omitted.
        known: number of findings that were omitted, those of a baseline included; those with one cause are one.
        core_paths: files of the findings that lie in the host tree.
        prefix: path from the root of the reader's repository to the tree.
        fail_on: minimum level of a finding that fails the check.
        patches: places where a plugin replaces names of the host tree.
    """

    tree: str
    findings: tuple[Finding, ...]
    diagnostics: tuple[Diagnostic, ...] = ()
    stats: Mapping[str, float] = field(default_factory=dict)
    core: str = ""
    since: str = ""
    known: int = 0
    core_paths: frozenset[str] = frozenset()
    prefix: str = ""
    fail_on: Level = Level.ERROR
    patches: tuple[PatchPoint, ...] = ()

    def fails(self, finding: Finding) -> bool:
        """Return True if the finding's level is at least `fail_on`."""
        return WEIGHT[finding.level] >= WEIGHT[self.fail_on]

    @property
    def exit_code(self) -> int:
        """BAD for a finding of the level `fail_on`; a tree that could not be read whole is good only if it has one."""
        if any(map(self.fails, self.findings)):
            return exits.BAD
        unread = any(is_incomplete(diagnostic) or diagnostic.code == EMPTY for diagnostic in self.diagnostics)
        return exits.CANNOT_TELL if unread else exits.GOOD

    def placed(self) -> tuple[Finding, ...]:
        """Return the findings with paths as people look for them: below `prefix`, or below the name of the core."""

        def place(location: Location) -> Location:
            above = f"{self.core}/" if location.path in self.core_paths else self.prefix
            return replace(location, path=above + location.path.removeprefix("./"))

        return tuple(
            replace(
                finding,
                location=place(finding.location),
                sides=tuple(replace(side, location=place(side.location)) for side in finding.sides),
            )
            for finding in self.findings
        )

    def count(self) -> Counter[Level]:
        """Return the number of findings per level."""
        return Counter(finding.level for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object of the format `FORMAT`."""
        return {
            "format": FORMAT,
            "verispec": __version__,
            "tree": self.tree,
            "core": self.core,
            "core_paths": sorted(self.core_paths),
            "since": self.since,
            "fail_on": self.fail_on.value,
            "exit_code": self.exit_code,
            "known": self.known,
            "findings": [finding.to_json() for finding in self.findings],
            "diagnostics": [diagnostic.to_json() for diagnostic in self.diagnostics],
            "patches": [patch.to_json() for patch in self.patches],
            "stats": dict(self.stats),
        }


EMPTY = "V-SRC-EMPTY"
"""Report a tree without source files: nothing was checked, so nothing is known to be good."""


def empty(tree: str) -> Diagnostic:
    """Return the diagnostic of a tree without source files."""
    return Diagnostic(
        EMPTY,
        "the tree has no source file",
        tree,
        cause="no Python, C++ or CUDA file was found in it",
        hint="name the folder that holds the package, or another revision",
    )


def ordered(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Sort findings, errors first, then by place, so that two runs over the same tree print the same."""
    return tuple(sorted(findings, key=lambda finding: (-WEIGHT[finding.level], finding.location, finding.rule)))


def as_json(outcome: SignatureReport) -> str:
    """Return the report as JSON text in ASCII."""
    return json.dumps(outcome.to_json(), indent=2, ensure_ascii=True)


def compared(outcome: SignatureReport) -> str:
    """Return the number of compared things by kind: where there are none, the lack of findings means nothing."""
    counted = (("launches", "launch", "es"), ("kernels", "kernel", "s"), ("overrides", "override", "s"),
               ("schemas", "op schema", "s"))  # fmt: skip
    said = [
        f"{number:,} {one}{ending if number != 1 else ''}"
        for name, one, ending in counted
        if (number := int(outcome.stats.get(name, 0)))
    ]
    return f"compared: {', '.join(said)}" if said else NOTHING
