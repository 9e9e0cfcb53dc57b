"""Real releases, and exactly the errors that each of them has. Needs the package index, and 3 GB of disk."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from verispec import exits
from verispec.report.signatures_check import Request, check
from verispec.static import Level

LISTED = tomllib.loads(Path(__file__).with_name("trees.toml").read_text())["trees"]
TREES = {name: tuple(entry["errors"]) for entry in LISTED for name in entry["names"]}


@pytest.mark.corpus
@pytest.mark.parametrize("name", TREES)
def test_a_release_has_these_errors_and_no_others(name: str) -> None:
    tree, _, core = name.partition(" + ")
    report, _ = check(Request(tree, core))
    found = {f"{f.rule} {f.symbol.rpartition('.')[2]}" for f in report.findings if f.level is Level.ERROR}
    assert found == set(TREES[name]), "\n".join(map(str, report.findings))
    assert report.exit_code == (exits.BAD if found else exits.GOOD), report.diagnostics


def test_no_tree_is_listed_twice() -> None:
    assert sum(len(entry["names"]) for entry in LISTED) == len(TREES)
