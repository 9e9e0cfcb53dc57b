"""The ``verispec`` command: one module a sub-command, imported only when it is called.

Start-up time matters to a tool that runs in every pull request, so the table below names the
modules and nothing here imports them.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click
import typer

from verispec import __version__, exits
from verispec.errors import VerispecError

COMMANDS: dict[str, str] = {
    "run": "Judge an engine by the suites.",
    "smoke": "Judge an engine by one quick case of every kind.",
    "engines": "List the engines that can be judged here.",
    "ops": "List the ops, and which implementations and tests each has.",
    "explain": "Explain an op, a clause or a rule.",
    "repro": "Run one case again, alone, and show everything about it.",
    "report": "Render a run file as text, Markdown or JSON.",
    "signatures": "Check that every caller binds to every implementation, in any tree, revision or release.",
    "bisect": "Find the first bad revision or release.",
    "transplant": "Put reference kernels in an engine's place and see whether the fault goes away.",
    "generate": "Generate with the reference engine and show what was accepted.",
}


class _Commands(click.Group):
    """A group that knows its commands' names and imports a command's module on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"verispec.cli.{cmd_name}")
        command: click.Command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="verispec")
def cli() -> None:
    """A conformance and regression test harness for speculative decoding in LLM inference engines."""


def main(argv: list[str] | None = None) -> Any:
    """Run the command line; a user's mistake prints one diagnostic and ends with its exit code."""
    try:
        sys.exit(cli.main(args=argv, prog_name="verispec", standalone_mode=False) or exits.GOOD)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(exits.USAGE)
    except click.exceptions.Abort:
        sys.exit(130)
    except VerispecError as error:
        print(f"verispec: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
