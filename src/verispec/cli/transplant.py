"""``verispec transplant``: which of an engine's kernels causes a fault."""

from __future__ import annotations

import difflib
import json
from typing import Annotated

import typer
from rich.console import Console

from verispec.cases import CaseId
from verispec.engines import KernelSites
from verispec.engines.protocol.check import check
from verispec.engines.registry import resolve
from verispec.errors import VerispecError
from verispec.kernel_swap import run_command
from verispec.kernel_swap.patch_sites import ENGINE_OP
from verispec.kernel_swap.patch_vllm import exchangeable
from verispec.kernel_swap.search import SwapAnswer, SwapResult, SwapTrial, search
from verispec.reference import contracts

app = typer.Typer(add_completion=False)

TIMEOUT = 1800.0
"""Seconds a run may take: an engine may load a large model."""


@app.command(context_settings={"allow_interspersed_args": False})
def transplant(
    command: Annotated[list[str] | None, typer.Argument(help="A program that uses the engine, after --.")] = None,
    engine: Annotated[str, typer.Option("--engine", help="The engine whose kernels are substituted.")] = "vllm",
    case: Annotated[str, typer.Option("--case", help="Id of the case to run, instead of a command.")] = "",
    op: Annotated[list[str] | None, typer.Option("--op", help="Substitute this kernel only; repeatable.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda, for a case.")] = None,
    timeout: Annotated[float, typer.Option(min=1.0, help="Seconds per run.")] = TIMEOUT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Substitute reference kernels for an engine's, to find the kernels that cause a fault.

    Runs a case, or a command whose exit code says whether it was good: unmodified, with all kernels substituted,
    then one by one. Any engine works for a case of one op; for its own sampler or a command, it has the method
    kernel_sites. Exit codes: 0 kernels cause the fault, or it stays; 125 no fault or cannot tell, 2 usage.

    Examples:

        verispec transplant --engine vllm -- python program.py

        verispec transplant --engine my_engine:Engine --case 'sampler/whole_sampler:WS-7:batch=mixed'
    """
    if bool(command) == bool(case):
        raise VerispecError(
            "V-TRP-COMMAND",
            "either a case or a command is wanted",
            where="verispec transplant",
            hint="--case 'sampler/...' runs a case; a program comes after --: -- python program.py",
        )
    target, known = target_of(engine, case)
    candidates = require_kernels(op or [], known)
    trying = list(command or run_command.command_of_case(case, engine, device))
    run_command.require(trying)
    console = Console(stderr=True)

    def run(ops: tuple[str, ...]) -> SwapTrial:
        made = run_command.run(trying, ops, timeout, quiet=bool(case), target=target)
        console.print(f"{_words(made)}: with {_named(ops)}", soft_wrap=True, highlight=False)
        return made

    result = search(candidates, run)
    if as_json:
        print(json.dumps(result.to_json(), indent=2))
    else:
        print(_sentence(result))
    raise typer.Exit(result.exit_code)


def target_of(engine: str, case: str) -> tuple[run_command.SwapTarget, list[str]]:
    """Return where kernels of `engine` are substituted, and for which ops.

    Raises:
        VerispecError: V-TRP-ENGINE, the engine does not say where; or the error of the engine's start.
    """
    if engine == "vllm":
        return run_command.VLLM, exchangeable()
    under_test = resolve(engine)
    try:
        check(under_test, engine)
        sites = dict(under_test.kernel_sites()) if isinstance(under_test, KernelSites) else {}
    finally:
        under_test.close()
    known = [op for op in sites if op in contracts.names() and contracts.load(op).outputs]
    if known:
        return run_command.SwapTarget(next(iter(sites.values())).partition(":")[0], sites), known
    subject = CaseId.parse(case).subject if case else ""
    if subject in contracts.names() and contracts.load(subject).outputs:
        return run_command.SwapTarget(sites={subject: ENGINE_OP}), [subject]
    raise VerispecError(
        "V-TRP-ENGINE",
        f"{engine!r} does not say where its kernels can be substituted",
        where="--engine",
        hint="write kernel_sites(self), which returns {op: 'module:attr'}; see docs/reference/engine-protocol.md. "
        "Without it, only cases of one op can be run",
    )


def require_kernels(asked: list[str], known: list[str]) -> list[str]:
    """Return the ops to substitute: those asked for, or all that can be."""
    for name in asked:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f"did you mean {near[0]}? " if near else ""
            raise VerispecError(
                "V-TRP-OP",
                f"there is no kernel {name!r} to substitute",
                where="--op",
                hint=f"{meant}kernels are {', '.join(known)}",
            )
    return asked or known


def _named(ops: tuple[str, ...]) -> str:
    if not ops:
        return "the engine's own kernels"
    return f"the reference's {ops[0]}" if len(ops) == 1 else f"{len(ops)} reference kernels"


def _words(made: SwapTrial) -> str:
    return "cannot tell" if made.good is None else "good" if made.good else "bad"


def _sentence(result: SwapResult) -> str:
    if result.answer in (SwapAnswer.CULPRIT, SwapAnswer.TOGETHER):
        return f"{result.answer}: {', '.join(result.ops)} ({result.reason})"
    kernels = f" ({', '.join(result.ops)})" if result.ops else ""
    return f"{result.answer}: {result.reason}{kernels}"
