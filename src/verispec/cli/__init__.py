"""The ``verispec`` command: one module per sub-command, imported only when it is called.

The table below names the modules and imports none, since every pull request pays for the start-up time.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from verispec import __version__
from verispec.cli._guard import guarded

COMMANDS: dict[str, str] = {
    "run": "Test an engine with the suites.",
    "smoke": "Test an engine with one quick case per clause.",
    "fleet": "Test a matrix of engines, platforms and suites as one job.",
    "certify": "Run the statistical tests and list the faults that they exclude.",
    "doctor": "Check the installation: which engines run, what is missing, and how to get it.",
    "engines": "List the engines that are available here.",
    "ops": "List the ops with their implementations and tests.",
    "explain": "Explain an op, a clause or a rule.",
    "repro": "Run one case alone and show all its details.",
    "report": "Render results files as text, HTML, Markdown, JUnit or JSON.",
    "diff": "Compare two runs: new, fixed, known, changed and lost results.",
    "history": "Ask about the runs of many nights: failing since when, flaky, disagreeing.",
    "signatures": "Check that every caller binds to every implementation, in any tree, revision or release.",
    "bisect": "Find the first bad revision or release.",
    "mutants": "Make faults by machine and score what the suites catch.",
    "transplant": "Replace an engine's kernels by the reference's and check if the fault disappears.",
    "new": "Write the skeleton of an engine adapter or of an op.",
    "generate": "Generate with an engine and show the accepted tokens.",
    "bench": "Time an engine from logits to tokens, beside another one.",
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
        if ctx is not None:
            ctx.default_map = {cmd_name: _configured(cmd_name, command, _paths(module))}
        return command

    def invoke(self, ctx: Any) -> Any:
        """Run the command; the message of a wrong value names the values once."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that `args` begin with; for a wrong name, exit with usage and the nearest names."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=3, cutoff=0.5)
            meant = f" Did you mean {' or '.join(near)}?" if near else f" Commands are {', '.join(COMMANDS)}."
            ctx.fail(f"No such command {args[0]!r}.{meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _configured(name: str, command: Any, paths: set[str]) -> dict[str, Any]:
    """Return the defaults of a command from the user's configuration file; `paths` names its path parameters."""
    from verispec import config

    found = config.find(Path.cwd())
    if found is None:
        return {}
    options = [
        config.Option(
            param.name,
            tuple({param.name, *(spelling.lstrip("-") for spelling in param.opts)}),
            is_path=param.name in paths,
            many=param.multiple,
        )
        for param in command.params
        if param.param_type_name == "option" and param.name != "help"
    ]
    values = config.defaults(found, name, list(COMMANDS), options)
    for param in command.params:
        if param.name in values:
            try:
                param.process_value(typer.Context(command), values[param.name])
            except typer.BadParameter as error:
                raise config.wrong_value(found[0], f"[{name}] {param.name}", error.message) from error
    return values


def _paths(module: Any) -> set[str]:
    """Return the parameters of a command that are paths, from the annotations of its function."""
    functions = [registered.callback for registered in module.app.registered_commands if registered.callback]
    return {
        name
        for function in functions
        for name, annotation in inspect.get_annotations(function, eval_str=False).items()
        if "Path" in str(annotation)
    }


cli = typer.Typer(
    cls=_Commands,
    add_completion=True,
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
