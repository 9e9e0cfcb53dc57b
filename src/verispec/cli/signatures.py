"""``verispec signatures``: does every caller bind to every implementation, in any tree, revision or release?"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from verispec.errors import VerispecError
from verispec.report.signatures import SignatureReport, as_json, empty, new_since, ordered
from verispec.report.signatures_ci import as_github, as_junit
from verispec.report.signatures_sarif import as_sarif
from verispec.report.signatures_text import print_text
from verispec.static import Level, Tree, check_tree
from verispec.static.cache import FactCache
from verispec.static.sources import facts_file, open_tree
from verispec.static.sources.progress import shown_progress

app = typer.Typer(add_completion=False)


@app.command()
def signatures(
    tree: Annotated[str, typer.Argument(help="A folder, folder#REV, an sdist or wheel, or name==version.")] = ".",
    core: Annotated[str, typer.Option(help="The tree that TREE plugs into, e.g. vllm==0.18.0 for a plugin.")] = "",
    since: Annotated[
        str, typer.Option(metavar="REV", help="Report only what is new since this revision of TREE, or this tree.")
    ] = "",
    rule: Annotated[list[str] | None, typer.Option(help="Judge by this rule only; may be given again.")] = None,
    level: Annotated[Level, typer.Option(help="The least level that is shown to people.")] = Level.WARNING,
    fail_on: Annotated[Level, typer.Option(help="The least level that makes the exit code 1.")] = Level.ERROR,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    github: Annotated[bool, typer.Option("--github", help="Print GitHub annotations as well.")] = False,
    sarif: Annotated[Path | None, typer.Option(help="Write SARIF 2.1.0 to this file.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML to this file.")] = None,
) -> None:
    """Check that every caller binds to every implementation. Nothing of the tree is imported, built or run.

    Exit codes: 0 good, 1 a finding of the level --fail-on, 125 cannot tell, 2 usage.
    """
    outcome = _judge(tree, core, since, rule or None)
    outcome = replace(outcome, fail_on=fail_on)
    for path, text in ((sarif, as_sarif), (junit, as_junit)):
        if path is not None:
            _write(path, text(outcome))
    if json:
        print(as_json(outcome))
    else:
        print_text(outcome, Console(highlight=False, markup=False, emoji=False), level=level)
        if github and outcome.findings:
            print(as_github(outcome))
    raise typer.Exit(outcome.exit_code)


def _judge(tree: str, core: str, since: str, rules: list[str] | None) -> SignatureReport:
    facts = FactCache(facts_file(tree))
    with shown_progress() as progress:
        opened = open_tree(tree, progress=progress)
        around = open_tree(core, progress=progress) if core else None
        report = check_tree(opened, core=around, rules=rules, cache=facts, progress=progress)
        findings, known = report.findings, 0
        older = _older(tree, since) if since else None
        if older is not None:
            before = check_tree(older, core=around, rules=rules, cache=facts, progress=progress)
            findings = new_since(findings, before.findings)
            known = len(report.findings) - len(findings)
    diagnostics = report.diagnostics
    if not any(True for _ in opened.files()):
        diagnostics = (*diagnostics, empty(tree))
    shown = ordered(findings)
    own = {file.path for file in opened.files()}
    places = {place.path for found in shown for place in (found.location, *(side.location for side in found.sides))}
    return SignatureReport(
        tree=opened.describe(),
        findings=shown,
        diagnostics=diagnostics,
        stats=report.stats,
        core=around.describe() if around else "",
        since=older.describe() if older else "",
        known=known,
        core_paths=frozenset(places - own) if around else frozenset(),
        prefix=_prefix(tree),
    )


def _older(tree: str, since: str) -> Tree:
    """The tree that `since` names: a revision of the repository that `tree` lies in, or else a tree of its own."""
    folder = tree if Path(tree).is_dir() else tree.rpartition("#")[0]
    if Path(folder or ".").is_dir() and ("#" in tree or Path(tree).is_dir()):
        try:
            return open_tree(f"{folder or '.'}#{since}")
        except VerispecError as error:
            if error.diagnostic.code not in {"V-GIT-REVISION", "V-GIT-NO-REPOSITORY"}:
                raise
            revision = error
        try:
            return open_tree(since)
        except VerispecError:
            raise revision from None
    return open_tree(since)


def _prefix(tree: str) -> str:
    """The way from the working folder to `tree`, where it lies below; annotations name files from there."""
    folder = Path(tree if Path(tree).is_dir() else tree.rpartition("#")[0] or ".")
    relative = os.path.relpath(folder.resolve(), Path.cwd()) if folder.is_dir() else "."
    return "" if relative == "." or relative.startswith("..") else f"{Path(relative).as_posix()}/"


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise VerispecError("V-OUT-WRITE", "the report cannot be written", where=str(path), cause=str(error)) from error
    print(f"wrote {path}", file=sys.stderr)
