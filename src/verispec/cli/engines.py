"""``verispec engines``: list the engines that can be tested here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from verispec.engines import Description, Engine, KernelSites, Unsupported
from verispec.engines.protocol.check import check_subjects
from verispec.engines.registry import BUILT_IN, names, resolve
from verispec.reference import contracts
from verispec.report.options import CASES, option_rows
from verispec.report.options import as_json as options_as_json
from verispec.report.options import as_text as options_as_text
from verispec.report.verdict import summarise
from verispec.run.coverage import parse_floor
from verispec.run.plan import Plan
from verispec.run.progress import watcher
from verispec.run.session import Options, execute
from verispec.terminal import columns, printable, table

app = typer.Typer(add_completion=False)

_PROBE_TIMEOUT = 600.0
"""Seconds per option: a probe may load an engine three times."""


@app.command()
def engines(
    name: Annotated[str, typer.Argument(help="Start this engine, check its protocol and list its ops.")] = "",
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: the engine's own choice).")] = None,
    options: Annotated[
        bool,
        typer.Option("--options", help="Probe which options of generation take effect."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """List the engines that can be tested here, or start one, check it against the protocol and describe it.

    With --options, each option is set and its effect looked for from outside, which takes minutes.

    Exit codes: 0 good, 1 an option is accepted and not honoured, 2 usage, 125 no option could be probed.

    Examples:

        verispec engines

        verispec engines my_engine:Engine

        verispec engines reference --options
    """
    if options:
        raise typer.Exit(_probe_options(name or "reference", device, as_json=as_json))
    if name:
        engine = resolve(name, device)
        try:
            described = describe(engine, check_subjects(engine, name, contracts.names()))
        finally:
            engine.close()
        print(json.dumps(described, indent=2) if as_json else printable("\n".join(_description(described))))
        return
    table = [_row(each) for each in names()]
    print(json.dumps({"engines": table}, indent=2) if as_json else "\n".join(_table(table)))


def describe(engine: Engine, about: Description) -> dict[str, Any]:
    """Return the engine's description, and for each op True or the reason why it has none."""
    ops: dict[str, bool | str] = {}
    for op in filter(lambda name: contracts.load(name).params, contracts.names()):
        found = engine.op(op)
        ops[op] = found.reason if isinstance(found, Unsupported) else True
    return {
        "name": about.name,
        "version": about.version,
        "platform": about.platform,
        "device": about.device,
        "details": dict(about.details),
        "ops": ops,
        "kernel_sites": dict(engine.kernel_sites()) if isinstance(engine, KernelSites) else {},
    }


def _probe_options(name: str, device: str | None, *, as_json: bool) -> int:
    """Run the probes of all options, print the results, and return the exit code."""
    run, _ = execute(Plan(name, device, (CASES,), timeout=_PROBE_TIMEOUT), Options(floor=parse_floor("1")), watcher())
    rows = option_rows(run.records)
    print(json.dumps(options_as_json(name, rows), indent=2) if as_json else printable(options_as_text(name, rows)))
    return summarise(run).exit_code()


def _row(name: str) -> dict[str, Any]:
    built_in = BUILT_IN.get(name)
    summary = built_in.summary if built_in else "installed beside verispec"
    return {"name": name, "missing": list(built_in.missing) if built_in else [], "summary": summary}


def _table(rows: list[dict[str, Any]]) -> list[str]:
    cells = [[row["name"], "no" if row["missing"] else "yes", row["summary"] + _needs(row["missing"])] for row in rows]
    cells.append(["module:attr[@SOURCE]", "", "anything importable that answers the engine protocol"])
    return list(table(["engine", "here", "what it is"], cells, columns()))


def _needs(missing: list[str]) -> str:
    return f"; needs {' and '.join(missing)}" if missing else ""


def _description(about: Mapping[str, Any]) -> list[str]:
    lines = [f"{about['name']} {about['version']} for {about['platform']}, on {about['device']}"]
    lines += [f"  {key}: {value}" for key, value in about["details"].items()]
    width = max(map(len, about["ops"]))
    lines += [f"  {op:<{width}}  {'yes' if has is True else has}" for op, has in about["ops"].items()]
    return lines
