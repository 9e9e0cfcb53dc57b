"""A whole tree from a few lines: sources are dedented, packages get their ``__init__.py``."""

from collections.abc import Callable
from textwrap import dedent

import pytest

from verispec.static import Finding, MemoryTree, check_tree

Judged = Callable[..., tuple[Finding, ...]]


def tree(sources: dict[str, str]) -> MemoryTree:
    files: dict[str, str | bytes] = {path: dedent(text) for path, text in sources.items()}
    for path in list(files):
        parts = path.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            files.setdefault("/".join([*parts[:depth], "__init__.py"]), "")
    return MemoryTree(files)


@pytest.fixture
def judged() -> Judged:
    """The findings of one rule over `sources`; `core` is a second tree that the first plugs into."""

    def run(rule: str, sources: dict[str, str], core: dict[str, str] | None = None) -> tuple[Finding, ...]:
        report = check_tree(tree(sources), core=tree(core) if core else None, rules=[rule])
        assert not report.diagnostics
        return report.findings

    return run
