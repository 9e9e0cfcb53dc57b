"""``verispec certify``: run the statistical tests and write the faults that they exclude."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from verispec import exits
from verispec.cli import _testing as t
from verispec.engines.registry import is_address
from verispec.errors import VerispecError
from verispec.report.certificate import Certificate
from verispec.run import runfile
from verispec.run.plan import BUDGET, CLOSE_TIMEOUT, SEED, START_TIMEOUT, Plan, named_suite, require_budget
from verispec.run.progress import watcher
from verispec.run.resume import restored_plan
from verispec.run.session import Files, Options, execute
from verispec.terminal import printable
from verispec.whole_file import PatientWriter, made_folder

app = typer.Typer(add_completion=False)

TIMEOUT = 1200.0
"""Seconds a case may take; nightly samples are eight times as large."""
SERVED = "e2e/served_"
"""Suites that only a server has."""


@app.command()
def certify(
    engine: Annotated[str, typer.Option("--engine", help="The engine to test; see 'verispec engines'.")] = "reference",
    budget: Annotated[str, typer.Option(help="Sample sizes: quick, standard or nightly.")] = BUDGET,
    only: t.OnlyOption = None,
    suite: t.SuiteOption = None,
    processes: Annotated[int, typer.Option("-n", min=1, help="Processes that test at the same time.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of all random samples.")] = SEED,
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: the engine's own choice).")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds per case.")] = TIMEOUT,
    start_timeout: t.StartOption = START_TIMEOUT,
    close_timeout: t.CloseOption = CLOSE_TIMEOUT,
    transplant: Annotated[
        list[str] | None,
        typer.Option(help="Op of vLLM whose kernel is replaced by the reference's; may be repeated."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for certificate.json, .md and .html, and the results file.")] = Path(
        "certificate"
    ),
    resume: Annotated[
        bool, typer.Option("--resume", help="Complete the results file of --out, if an earlier command left one.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Run every statistical test of an engine and write a certificate of the faults that they exclude.

    Exit codes: 0 nothing failed, 1 a test failed, 125 nothing was tested, 2 usage.

    Examples:

        verispec certify --engine vllm --out certificate

        verispec certify --engine my_engine:Engine --budget quick

        verispec certify --engine vllm --out certificate --resume

        verispec certify --engine vllm --transplant expand_batch_to_tokens --out repaired
    """
    require_budget(budget)
    suites = tuple(map(named_suite, suite or ()))
    chosen = tuple(only or in_suites(statistical_cases(engine), suites))
    given: dict[str, Any] = {"engine": engine, "device": device, "only": chosen, "suites": suites, "seed": seed}
    given |= {"budget": budget, "start_timeout": start_timeout, "close_timeout": close_timeout}
    given |= {"processes": processes, "timeout": timeout, "transplanted": _transplanted(engine, transplant or [])}
    results = out / "results.jsonl"
    earlier = results if resume and results.exists() else None
    plan = restored_plan(given, runfile.read(earlier).header, earlier) if earlier else Plan(**given)
    made_folder(out, "--out")
    run, _ = execute(plan, Options(Files(results, earlier)), watcher())
    certificate = Certificate(run)
    page = certificate.as_markdown()
    text = json.dumps(certificate.to_json(), indent=2)
    writer = PatientWriter()
    for name, content in (("json", text), ("md", page), ("html", certificate.as_html())):
        writer.write(out / f"certificate.{name}", content, what="the certificate")
    print(text if as_json else printable(page), flush=True)
    writer.close()
    if run.footer.get("complete") and not certificate.tests and not certificate.failing:
        raise _nothing_tested(certificate)
    raise typer.Exit(certificate.exit_code())


def _nothing_tested(certificate: Certificate) -> VerispecError:
    """Return the error of a run without a statistical test that was decided."""
    records = certificate.run.records
    reasons = Counter(record.reason for record in records if record.reason)
    cause = f"{len(records):,} cases ran, and none of them compares frequencies with exact probabilities"
    if reasons:
        reason, count = reasons.most_common(1)[0]
        cause = f"{count:,} of {len(records):,} cases: {reason}"
    hint = "select whole_sampler, a fused op or generated text, by statistical cases such as 'sampler/*:*mode=law*'"
    return VerispecError(
        "V-CERT-NOTHING", "no statistical test was decided", where="--only", cause=cause, hint=hint,
        exit_code=exits.CANNOT_TELL,
    )  # fmt: skip


def _transplanted(engine: str, ops: list[str]) -> tuple[str, ...]:
    """Return the ops to replace.

    Raises:
        VerispecError: V-TRP-ENGINE, kernels of this engine cannot be replaced; V-TRP-OP, there is no such op.
    """
    from verispec.cli.transplant import require_kernels
    from verispec.kernel_swap.patch_vllm import exchangeable
    from verispec.run.attribution import EXCHANGEABLE

    if ops and engine not in EXCHANGEABLE:
        raise VerispecError(
            "V-TRP-ENGINE",
            f"kernels of {engine!r} cannot be replaced in a certificate",
            where="--transplant",
            hint=f"engines whose kernels can be: {', '.join(EXCHANGEABLE)}",
        )
    return tuple(require_kernels(ops, exchangeable())) if ops else ()


def in_suites(patterns: list[str], suites: tuple[str, ...]) -> list[str]:
    """Return the patterns of the cases of `suites`; none, which selects all cases, for a suite of the user's own.

    Raises:
        VerispecError: V-CERT-NOTHING, these suites have no statistical test.
    """
    if any(Path(suite).is_absolute() for suite in suites):
        return []
    found = [pattern for pattern in patterns if not suites or pattern.partition("/")[0] in suites]
    if not found:
        having = ", ".join(sorted({pattern.partition("/")[0] for pattern in patterns}))
        raise VerispecError(
            "V-CERT-NOTHING",
            f"no statistical test is in {' and '.join(suites)}",
            where="--suite",
            hint=f"suites with statistical tests are {having}",
        )
    return found


def statistical_cases(engine: str) -> list[str]:
    """Return patterns of the statistical cases that an engine has: a server's own ones, or all others."""
    from verispec.judge.statistics.budget import SHARES

    if is_address(engine):
        return [clause for clause in SHARES if SERVED in clause]
    return [*(clause for clause in SHARES if SERVED not in clause), "sampler/whole_sampler:WS-9:*part=*"]
