"""The ``verispec`` command: one module per sub-command, imported only when it is called.

The table below names the modules and imports none, since every pull request pays for the start-up time.
"""

from __future__ import annotations

import importlib
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from verispec import __version__
from verispec.cli._guard import guarded

COMMANDS: dict[str, str] = {
    "run": "Test an engine with the suites.",
    "smoke": "Test an engine with one quick case of every kind.",
    "doctor": "Say what works here, what is missing, and how to get it.",
    "engines": "List the engines that are available here.",
    "ops": "List the ops with their implementations and tests.",
    "explain": "Explain an op, a clause or a rule.",
    "repro": "Run one case alone and show all its details.",
    "report": "Render a results file as text, Markdown or JSON.",
    "diff": "Compare two runs: new, fixed, known, changed and lost results.",
    "signatures": "Check that every caller binds to every implementation, in any tree, revision or release.",
    "bisect": "Find the first bad revision or release.",
    "mutants": "Make faults by machine and score what the suites catch.",
    "transplant": "Replace an engine's kernels by the reference's and check if the fault disappears.",
    "new": "Write the skeleton of an engine adapter or of an op.",
    "generate": "Generate with the reference engine and show the accepted tokens.",
}


class _Commands(TyperGroup):
    """A command group that imports a command's module on demand."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"verispec.cli.{cmd_name}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        # Join the lines of each paragraph, so that the terminal wraps them.
        command.help = "\n\n".join(" ".join(lines.split()) for lines in (command.help or "").split("\n\n"))
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


cli = typer.Typer(
    cls=_Commands,
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        print(f"verispec, version {__version__}")
        raise typer.Exit


@cli.callback()
def _verispec(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Test speculative decoding in LLM inference engines: conformance and regressions."""


def main(argv: list[str] | None = None) -> Any:
    """Run the command line and end the process with its exit code."""
    sys.exit(guarded(lambda: typer.main.get_command(cli).main(args=argv, prog_name="verispec")))
