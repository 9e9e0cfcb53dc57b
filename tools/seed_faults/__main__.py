"""Measure the static checker: faults and harmless edits made by a machine, and the share that it reports.

    python tools/seed_faults vllm==0.33.0 --seed 14 --count 120
    python tools/seed_faults vllm==0.33.0 --seed 14 --count 60 --types

Each round edits several files of a tree, one place per kernel or op. The report is compared with that of the unedited
tree. A fault counts as found if a new error names its kernel or op. A harmless edit must bring nothing new.
With --types, plain Python is edited, and the type checker compares the tree before and after.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import edits as launches
import plain
from edits import Edit

from verispec.static import Finding, Level, check_tree
from verispec.static.cache import FactCache
from verispec.static.changes import new_since
from verispec.static.sources import open_tree, types_folder
from verispec.static.tree import ListedTree, SourceFile, Tree, is_test
from verispec.static.typecheck import new_faults

PER_ROUND = 30
"""Edits per round: few enough that one does not hide another."""


def edited(tree: Tree, edits: list[Edit]) -> ListedTree:
    """Return `tree` with some files replaced."""
    new = {edit.path: edit.data for edit in edits}

    def file(old: SourceFile) -> SourceFile:
        data = new.get(old.path)
        return old if data is None else replace(old, blob="", size=len(data), read=partial(bytes, data))

    return ListedTree(tree.describe(), tuple(map(file, tree.files())), ())


def rounds(edits: list[Edit]) -> Iterator[list[Edit]]:
    """Yield groups of edits of different files and different kernels."""
    left = edits
    while left:
        chosen: dict[str, Edit] = {}
        symbols: set[str] = set()
        rest: list[Edit] = []
        for edit in left:
            if len(chosen) < PER_ROUND and edit.path not in chosen and edit.symbol not in symbols:
                chosen[edit.path] = edit
                symbols.add(edit.symbol)
            else:
                rest.append(edit)
        yield list(chosen.values())
        left = rest


def sample(
    sites: launches.Sites | plain.PlainSites, makers: dict[str, str], count: int, rng: random.Random
) -> list[Edit]:
    """Return `count` edits, evenly over the kinds that this tree offers."""
    offered: dict[str, list[Edit]] = defaultdict(list)
    for kind, maker in makers.items():
        # Every edit is a copy of a file; the sites come in an order that the seed decides.
        offered[kind] = list(islice(getattr(sites, maker)(rng), count))
        rng.shuffle(offered[kind])
    chosen: list[Edit] = []
    while len(chosen) < count and any(offered.values()):
        for kind in makers:
            if offered[kind] and len(chosen) < count:
                chosen.append(replace(offered[kind].pop(), kind=kind))
    return chosen


Check = Callable[[ListedTree], tuple[Finding, ...]]
"""Returns what is new in an edited tree."""


def kernel_check(tree: Tree) -> Check:
    """Return a check of an edited `tree` by the rules."""
    cache = FactCache()
    before = check_tree(tree, cache=cache)

    def check(changed: ListedTree) -> tuple[Finding, ...]:
        report = check_tree(changed, cache=cache)
        assert not report.diagnostics, report.diagnostics
        return new_since(report, before)

    return check


def type_check(tree: Tree) -> Check:
    """Return a check of an edited `tree` by the type checker."""
    return lambda changed: new_faults(changed, tree, None, None, types_folder())


def names(finding: Finding, edit: Edit) -> bool:
    """Return whether a finding is about an edit."""
    texts = [finding.symbol.rpartition(".")[2], finding.message, *(side.text for side in finding.sides)]
    return any(re.search(rf"\b{re.escape(edit.symbol)}\b", text) for text in texts)


def main() -> int:
    """Print the shares; exit 1 under 90 % or with a false report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree")
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--types", action="store_true")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    tree = open_tree(options.tree)
    sources = {f.path: f.read() for f in tree.files() if f.path.endswith(".py") and not is_test(f.path)}
    kinds = plain if options.types else launches
    sites = plain.PlainSites(sources, rng) if options.types else launches.Sites(sources, rng)
    check = type_check(tree) if options.types else kernel_check(tree)
    made: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for group in rounds(sample(sites, kinds.FAULTS, options.count, rng)):
        new = [finding for finding in check(edited(tree, group)) if finding.level is Level.ERROR]
        for edit in group:
            made[edit.kind] += 1
            if any(names(finding, edit) for finding in new):
                found[edit.kind] += 1
            else:
                print(f"missed: {edit.kind}: {edit}")
    false = 0
    harmless = sample(sites, kinds.HARMLESS, options.count, rng)
    for group in rounds(harmless):
        for finding in check(edited(tree, group)):
            if finding.level is Level.ERROR:
                false += 1
                print(f"false: {finding}\n  after: {[str(e) for e in group if names(finding, e)]}")
    for kind in kinds.FAULTS:
        print(f"{found[kind]:4} of {made[kind]:4}  {kind}")
    share = found.total() / max(made.total(), 1)
    total = f"{found.total()} of {made.total()} faults found ({share:.1%})"
    print(f"{options.tree} seed {options.seed}: {total}; {false} false reports after {len(harmless)} harmless edits")
    print(dict(Counter(edit.kind for edit in harmless)))
    return 0 if share >= 0.9 and not false else 1


if __name__ == "__main__":
    sys.exit(main())
