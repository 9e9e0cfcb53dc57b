"""Choose the place of a finding: where the author of a change can act."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from verispec.static.finding import Finding
from verispec.static.tree import Tree


def changed_paths(now: Tree, before: Tree) -> frozenset[str]:
    """Return the paths of `now` whose content `before` does not have at the same path."""
    old = {file.path: file.blob for file in before.files()}
    return frozenset(file.path for file in now.files() if not file.blob or old.get(file.path) != file.blob)


def place(finding: Finding, own: Collection[str], changed: Collection[str]) -> Finding:
    """Move `finding` to the evidence in a changed file of the own tree, else in any of its files.

    Args:
        finding: A finding whose location may be in the host tree or in an unchanged file.
        own: Paths of the tree under test.
        changed: Paths that the change under test touches; empty if nothing is compared.
    """
    places = [finding.location, *(side.location for side in finding.sides)]
    for paths in (changed, own):
        for location in places:
            if location.path in paths and location.path in own:
                return replace(finding, location=location)
    return finding
