"""Explanations of an op, a clause or a rule of the static checker, with its tests."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from verispec.errors import VerispecError
from verispec.reference import contracts
from verispec.reference.contracts import REQUIRED, Contract, Scalar, Symbol, Tensor
from verispec.report import inventory

WIDTH = 100


def explain(name: str) -> dict[str, Any]:
    """Return everything about `name`.

    Raises:
        VerispecError: V-EXPLAIN, with the nearest names, if there is no such op, clause or rule.
    """
    for known, explanation in _kinds():
        for spelling in (name, name.upper(), name.lower()):
            if spelling in known:
                return explanation(spelling)
    names = [n for known, _ in _kinds() for n in known]
    near = difflib.get_close_matches(name.upper(), names, n=3) + difflib.get_close_matches(name.lower(), names, n=3)
    raise VerispecError(
        "V-EXPLAIN",
        f"there is no op, clause or rule {name!r}",
        hint=f"did you mean {', '.join(near)}?" if near else "ops and their clauses: verispec ops",
    )


def _kinds() -> Iterator[tuple[tuple[str, ...], Callable[[str], dict[str, Any]]]]:
    yield contracts.names(), _op
    yield tuple(c.id for n in contracts.names() for c in contracts.load(n).clauses), _clause
    from verispec.static import rules

    yield rules.names(), _rule


def _op(name: str) -> dict[str, Any]:
    contract = contracts.load(name)
    return {
        "kind": "op",
        "name": name,
        "family": contract.family,
        "summary": contract.summary,
        "law": contract.law,
        "axes": dict(contract.axes),
        "parameters": [_parameter(contract, parameter.name) for parameter in contract.params],
        "clauses": [_clause(clause.id) for clause in contract.clauses],
        "implementations": implementations(contract),
        "symbols": [_symbol(symbol) for symbol in contract.symbols],
    }


def _parameter(contract: Contract, name: str) -> dict[str, Any]:
    parameter = contract.param(name)
    described: dict[str, Any] = {"name": name, "doc": parameter.doc}
    if isinstance(parameter, Tensor):
        described |= {
            "role": str(parameter.role),
            "shape": [str(axis) for axis in parameter.shape],
            "dtypes": list(parameter.dtypes),
            "production": parameter.production,
            "optional": parameter.optional,
        }
    elif isinstance(parameter, Scalar):
        described |= {"type": parameter.type.__name__, "flag": parameter.flag, "tuning": parameter.tuning}
    return described if parameter.default is REQUIRED else {**described, "default": parameter.default}


def _symbol(symbol: Symbol) -> dict[str, str]:
    return {"engine": symbol.engine, "name": symbol.name, "since": symbol.since, "until": symbol.until}


def _clause(clause_id: str) -> dict[str, Any]:
    contract = contracts.by_clause(clause_id)
    clause = contract.clause(clause_id)
    return {
        "kind": "clause",
        "name": clause_id,
        "op": contract.name,
        "text": clause.text,
        "source": clause.source,
        "unreachable": clause.unreachable,
        "tests": list(inventory.tests_by_clause().get(clause_id, ())),
        "implementations": implementations(contract),
    }


def _rule(name: str) -> dict[str, Any]:
    from verispec.static import rules

    rule = rules.load(name)
    return {"kind": "rule", "name": name, "title": rule.title, "level": str(rule.level), "why": rule.why}


def implementations(contract: Contract) -> list[str]:
    """Return the files of the reference that implement the op."""
    name = contract.name
    places = (
        (inventory.has_oracle(name), f"reference/oracle/{name}.py"),
        (inventory.has_cpu_kernel(name), f"reference/csrc/{name}.cpp"),
        (inventory.has_triton_kernel(name), f"reference/triton/{name}.py"),
    )
    return [path for there, path in places if there]


def as_text(told: dict[str, Any]) -> Iterator[str]:
    """Yield the explanation as text for people."""
    if told["kind"] == "rule":
        yield f"{told['name']}  {told['title']} ({told['level']})"
        yield ""
        yield from textwrap.wrap(told["why"], WIDTH)
    elif told["kind"] == "clause":
        yield from _clause_lines(told)
        if told["unreachable"]:
            yield f"  never reached: {told['unreachable']}"
        yield f"  op: {told['op']}"
        yield from _listed("judged by", told["tests"])
        yield from _listed("implemented in", told["implementations"])
    else:
        yield f"{told['name']}  ({told['family']})"
        yield from textwrap.wrap(told["summary"], WIDTH)
        yield from _listed("axes", [f"{axis}: {text}" for axis, text in told["axes"].items()])
        yield from _listed("parameters", [_parameter_line(p) for p in told["parameters"]])
        if told["law"]:
            yield from _listed("law", textwrap.wrap(told["law"], WIDTH))
        yield "clauses"
        for clause in told["clauses"]:
            yield from (f"  {line}" for line in _clause_lines(clause))
        yield from _listed("implemented in", told["implementations"])
        yield from _listed("called by", [f"{s['engine']} as {s['name']}{_versions(s)}" for s in told["symbols"]])


def _clause_lines(clause: dict[str, Any]) -> Iterator[str]:
    indent = " " * (len(clause["name"]) + 2)
    yield from textwrap.wrap(f"{clause['name']}  {clause['text']}", WIDTH, subsequent_indent=indent)
    yield from textwrap.wrap(f"source: {clause['source']}", WIDTH, initial_indent=indent, subsequent_indent=indent)


def _listed(title: str, items: list[str]) -> Iterator[str]:
    if items:
        yield title
        yield from (f"  {item}" for item in items)


def _parameter_line(parameter: dict[str, Any]) -> str:
    name, doc = parameter["name"], parameter["doc"]
    if "shape" not in parameter:
        return f"{name}: {parameter['type']}{', compile-time' * parameter['flag']}; {doc}"
    shape = f"[{', '.join(parameter['shape'])}]"
    optional = ", optional" * parameter["optional"]
    return f"{name}: {parameter['role']} {shape} {'/'.join(parameter['dtypes'])}{optional}; {doc}"


def _versions(symbol: dict[str, str]) -> str:
    since = f" since {symbol['since']}" if symbol["since"] else ""
    return since + (f" until {symbol['until']}" if symbol["until"] else "")
