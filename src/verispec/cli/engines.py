"""``verispec engines``: what can be tested here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from verispec.engines import Description, Engine, KernelSites, Unsupported
from verispec.engines.protocol.check import check_subjects
from verispec.engines.registry import BUILT_IN, names, resolve
from verispec.reference import contracts

app = typer.Typer(add_completion=False)


@app.command()
def engines(
    name: Annotated[str, typer.Argument(help="Start this engine, check its protocol and list its ops.")] = "",
    device: Annotated[str | None, typer.Option(help="cpu or cuda; default: the engine's own choice.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The list as JSON.")] = False,
) -> None:
    """List the engines that can be tested here, or start one, check it against the protocol and describe it."""
    if name:
        engine = resolve(name, device)
        try:
            described = describe(engine, check_subjects(engine, name, contracts.names()))
        finally:
            engine.close()
        print(json.dumps(described, indent=2) if as_json else "\n".join(_description(described)))
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


def _row(name: str) -> dict[str, Any]:
    built_in = BUILT_IN.get(name)
    summary = built_in.summary if built_in else "installed beside verispec"
    return {"name": name, "missing": list(built_in.missing) if built_in else [], "summary": summary}


def _table(rows: list[dict[str, Any]]) -> list[str]:
    width = max(len(row["name"]) for row in [*rows, {"name": "module:attr[@SOURCE]"}])
    lines = [f"{'engine':<{width}}  {'here':<24}  what it is"]
    for row in rows:
        here = f"no, {' and '.join(row['missing'])} missing" if row["missing"] else "yes"
        lines.append(f"{row['name']:<{width}}  {here:<24}  {row['summary']}")
    lines.append(f"{'module:attr[@SOURCE]':<{width}}  {'':<24}  anything importable that answers the engine protocol")
    return lines


def _description(about: Mapping[str, Any]) -> list[str]:
    lines = [f"{about['name']} {about['version']} for {about['platform']}, on {about['device']}"]
    lines += [f"  {key}: {value}" for key, value in about["details"].items()]
    width = max(map(len, about["ops"]))
    lines += [f"  {op:<{width}}  {'yes' if has is True else has}" for op, has in about["ops"].items()]
    return lines
