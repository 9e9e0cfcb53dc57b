"""Write the pages of docs/generated/ from the code: commands, ops with their clauses, rules, and the API."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "generated"

API = {
    "engines": ("verispec.engines", "verispec.engines.protocol.engine", "verispec.engines.protocol.sampling",
                "verispec.engines.protocol.generation", "verispec.engines.protocol.runtime_signature"),
    "cases": ("verispec.cases", "verispec.cases.batches", "verispec.cases.strategies"),
    "judge": ("verispec.judge", "verispec.judge.statistics"),
    "contracts": ("verispec.reference.contracts",),
    "reference-engine": ("verispec.reference.runners.cpu", "verispec.reference.runners.base",
                         "verispec.reference.proposers.protocol"),
    "static": ("verispec.static",),
}  # fmt: skip
"""The public modules by page: modules that a suite, an adapter or another program may import."""


def setup(app: Any) -> dict[str, bool]:
    """Write all pages before Sphinx looks for documents."""
    FOLDER.mkdir(exist_ok=True)
    write("commands", commands())
    write("ops", ops())
    write("rules", rules())
    write("parameters", parameters())
    for name, modules in API.items():
        write(f"api-{name}", api(name, modules))
    return {"parallel_read_safe": True}


def write(name: str, lines: Iterator[str]) -> None:
    """Write one page, unless it has the same text already: Sphinx rebuilds newer files."""
    path, text = FOLDER / f"{name}.md", "\n".join(lines) + "\n"
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def commands() -> Iterator[str]:
    """Yield the help of every command, as a terminal shows it."""
    from typer.testing import CliRunner

    from verispec.cli import COMMANDS, cli

    yield "# Commands"
    yield ""
    yield "Every command has `--json`. Exit codes: 0 good, 1 bad, 2 wrong usage, 125 cannot tell."
    runner = CliRunner(env={"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"})
    for name in COMMANDS:
        shown = runner.invoke(cli, [name, "--help"], prog_name="verispec")
        yield from ("", f"## verispec {name}", "", "```text", shown.output.rstrip(), "```")


def ops() -> Iterator[str]:
    """Yield the text of ``verispec explain`` about each op."""
    from verispec.reference import contracts
    from verispec.report.explanation import as_text, explain

    yield "# Ops and their clauses"
    yield ""
    yield "Each op has one contract. `verispec explain NAME` prints an op or a clause, `verispec ops` lists all."
    for name in contracts.names():
        yield from ("", f"## {name}", "", "```text", *as_text(explain(name)), "```")


def parameters() -> Iterator[str]:
    """Yield the parameters of case ids."""
    from verispec.report.explanation import as_text, explain

    yield "# Parameters of case ids"
    yield ""
    yield "`verispec explain CASE` says what the parameters of one id mean."
    yield from ("", "```text", *as_text(explain("parameters")), "```")


def rules() -> Iterator[str]:
    """Yield every rule of the static checker with its reason."""
    from verispec.report.explanation import as_text, explain
    from verispec.static import rules as all_rules

    yield "# Rules of the static checker"
    yield ""
    yield "`verispec signatures` applies all of them; `--rule SIG101` only one."
    for name in all_rules.names():
        yield from ("", f"## {name}", "", "```text", *as_text(explain(name)), "```")


def api(name: str, modules: tuple[str, ...]) -> Iterator[str]:
    """Yield autodoc directives for the public names of `modules`; each name is shown where it is first exported."""
    yield f"# API: {name}"
    shown: set[int] = set()
    for module in modules:
        yield from ("", f"## {module}", "", "```{eval-rst}", f".. automodule:: {module}", "   :no-members:", "", "```")
        loaded = importlib.import_module(module)
        public = getattr(loaded, "__all__", None) or [
            n for n, v in vars(loaded).items()
            if not n.startswith("_") and getattr(v, "__module__", "") == module
        ]  # fmt: skip
        for item in public:
            value = getattr(loaded, item)
            if id(value) in shown or not (callable(value) and getattr(value, "__doc__", None)):
                continue
            shown.add(id(value))
            kind = "autoclass" if isinstance(value, type) else "autofunction"
            lines = [f".. {kind}:: {module}.{item}"]
            if kind == "autoclass":
                lines += ["   :members:", "   :show-inheritance:"]
            yield from ("", "```{eval-rst}", *lines, "```")
