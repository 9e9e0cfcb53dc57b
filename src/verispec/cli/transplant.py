"""``verispec transplant``: which of an engine's kernels is guilty."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from verispec.errors import VerispecError
from verispec.kernel_swap import run_command
from verispec.kernel_swap.patch_vllm import exchangeable
from verispec.kernel_swap.search import Answer, SwapResult, Trial, search

app = typer.Typer(add_completion=False)

TIMEOUT = 1800.0
"""Seconds a run may take: an engine may load a large model."""


@app.command(context_settings={"allow_interspersed_args": False})
def transplant(
    command: Annotated[list[str] | None, typer.Argument(help="A program that uses the engine, after --.")] = None,
    engine: Annotated[str, typer.Option("--engine", help="The engine whose kernels are exchanged.")] = "vllm",
    case: Annotated[str, typer.Option("--case", help="Id of the case to judge, instead of a command.")] = "",
    op: Annotated[list[str] | None, typer.Option("--op", help="Exchange this kernel only; may be given often.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda, for a case.")] = None,
    timeout: Annotated[float, typer.Option(min=1.0, help="Seconds a run may take.")] = TIMEOUT,
    as_json: Annotated[bool, typer.Option("--json", help="The answer as JSON.")] = False,
) -> None:
    """Put reference kernels in the place of the installed engine's and see whether the fault goes away.

    Runs a case, or a command whose exit code says whether it was good: as it stands, with all kernels
    exchanged, then one by one. Ends with 1 when kernels are guilty, 0 when the fault stays, 125 when
    there is no fault or nothing can be said, 2 when the command line was wrong.
    """
    if engine != "vllm":
        raise VerispecError(
            "V-TRP-ENGINE",
            f"kernels of {engine!r} cannot be exchanged",
            where="--engine",
            hint="transplant works on the installed vLLM: --engine vllm",
        )
    if bool(command) == bool(case):
        raise VerispecError(
            "V-TRP-COMMAND",
            "either a case or a command is wanted",
            where="verispec transplant",
            hint="--case 'sampler/...' judges a case; a program comes after --: -- python program.py",
        )
    candidates = _candidates(op or [])
    trying = list(command or run_command.command_of_case(case, engine, device))
    run_command.require(trying)
    console = Console(stderr=True)

    def run(ops: tuple[str, ...]) -> Trial:
        made = run_command.run(trying, ops, timeout, quiet=bool(case))
        console.print(f"{_words(made)}: with {_named(ops)}", soft_wrap=True, highlight=False)
        return made

    result = search(candidates, run)
    if as_json:
        print(json.dumps(result.to_json(), indent=2))
    else:
        print(_sentence(result))
    raise typer.Exit(result.exit_code)


def _candidates(asked: list[str]) -> list[str]:
    """The ops to exchange; all that can be when none is asked for."""
    known = exchangeable()
    for name in asked:
        if name not in known:
            raise VerispecError(
                "V-TRP-OP",
                f"there is no exchangeable kernel {name!r}",
                where="--op",
                hint=f"kernels are {', '.join(known)}",
            )
    return asked or known


def _named(ops: tuple[str, ...]) -> str:
    if not ops:
        return "the engine's own kernels"
    return f"the reference's {ops[0]}" if len(ops) == 1 else f"{len(ops)} reference kernels"


def _words(made: Trial) -> str:
    return "cannot tell" if made.good is None else "good" if made.good else "bad"


def _sentence(result: SwapResult) -> str:
    if result.answer in (Answer.GUILTY, Answer.TOGETHER):
        return f"{result.answer}: {', '.join(result.ops)} ({result.reason})"
    kernels = f" ({', '.join(result.ops)})" if result.ops else ""
    return f"{result.answer}: {result.reason}{kernels}"
