"""Explanations of an op, a clause or a rule of the static checker, with its tests."""

from __future__ import annotations

import ast
import difflib
import re
import shlex
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from verispec.cases import CaseId
from verispec.cases.glosses import GLOSSES, meaning
from verispec.errors import VerispecError
from verispec.reference import contracts
from verispec.reference.contracts import REQUIRED, Contract, Scalar, Symbol, Tensor
from verispec.report import inventory
from verispec.report.order import COMPOSED
from verispec.terminal import COLUMNS, table, wrapped

OPTIONAL = (
    "trace(batch) -> Trace: report the random samples; WS-9 then checks every token exactly",
    "draft_and_verify(batch, draft_logits) -> DraftedTokens: draw the draft tokens too",
    "process_and_verify(batch, contexts, logprobs_mode) -> ProcessedTokens: processors, log-probabilities",
)
"""Methods that a sampler may have."""
RULES = ("rules", "sig")
"""Names under which all rules are listed."""
SPEAKING = 8
"""Clauses that a hint lists."""
PARAMETERS = "parameters"
"""Name under which all parameters of case ids are listed."""


def explain(name: str) -> dict[str, Any]:
    """Return everything about `name`: an op, a clause, a case id, a rule, or ``rules`` or ``parameters`` for a list.

    Raises:
        VerispecError: V-EXPLAIN, with the nearest names, if there is no such thing.
    """
    if name.lower() in RULES:
        return _rules()
    if name.lower() == PARAMETERS:
        return _parameters()
    if ":" in name:
        return _case(name)
    for known, explanation in _kinds():
        for spelling in (name, name.upper(), name.lower()):
            if spelling in known:
                return explanation(spelling)
    raise _unknown(name)


def _unknown(name: str) -> VerispecError:
    names = [n for known, _ in _kinds() for n in known]
    near = [n for text in (name.upper(), name.lower()) for n in difflib.get_close_matches(text, names, n=3)]
    hints = [f"did you mean {', '.join(dict.fromkeys(near))}?"] if near else []
    if group := next((each for each in inventory.groups() if name.lower() in (each, each.partition("/")[2])), ""):
        hints.append(f"{group} is a group of cases, which 'verispec run --collect --only {group}:' lists")
    if speaking := _speaking_of(name):
        shown = f"{', '.join(speaking[:SPEAKING])}{' and others' if len(speaking) > SPEAKING else ''}"
        hints.append(f"{name!r} is a word of the clauses {shown}")
    return VerispecError(
        "V-EXPLAIN",
        f"there is no op, clause or rule {name!r}",
        hint="; ".join(hints)
        or "verispec ops lists ops, verispec explain rules lists rules; a case id has the form suite/op:CLAUSE-1:a=b",
    )


def _speaking_of(word: str) -> list[str]:
    """Return the clauses whose text has a word, those of samplers and generations first."""
    if len(word) < len("top"):
        return []
    found = re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE)
    ordered = sorted(map(contracts.load, contracts.names()), key=lambda contract: contract.family not in COMPOSED)
    return [clause.id for contract in ordered for clause in contract.clauses if found.search(clause.text)]


def _case(text: str) -> dict[str, Any]:
    """Explain a case id: its clause and its parameters."""
    case = CaseId.parse(text)
    clauses = [clause.id for name in contracts.names() for clause in contracts.load(name).clauses]
    if case.clause not in clauses:
        raise _unknown(case.clause)
    if case.subject not in contracts.names() and case.suite in ("sampler", "synthetic", "signatures"):
        raise _unknown(case.subject)
    return {
        "kind": "case",
        "name": text,
        "suite": case.suite,
        "subject": case.subject,
        "parameters": dict(case.params),
        "meanings": {name: said for name, value in case.params if (said := meaning(name, value))},
        "clause": _clause(case.clause),
        "repro": f"verispec repro {shlex.quote(text)} --engine ENGINE",
    }


def _rules() -> dict[str, Any]:
    """List the rules of the static checker."""
    from verispec.static import rules

    return {"kind": "rules", "name": "rules", "rules": [_rule(name) for name in rules.names()]}


def _parameters() -> dict[str, Any]:
    """List the parameters of case ids, with the values that do not explain themselves."""
    listed = [{"name": name, "text": gloss.text, "values": gloss.values} for name, gloss in GLOSSES.items()]
    return {"kind": "parameters", "name": PARAMETERS, "parameters": listed}


def _inputs(contract: Contract) -> list[dict[str, str]]:
    """Return the fields of the batch that a sampler is called with; empty for an op, whose inputs are parameters."""
    if contract.family != "sampler":
        return []
    from verispec.engines.protocol import sampling

    source = ast.parse(Path(str(sampling.__file__)).read_text(encoding="utf-8"))
    batch = next(n for n in source.body if isinstance(n, ast.ClassDef) and n.name == "SamplerBatch")
    inputs = []
    for field, doc in pairwise(batch.body):
        if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant):
            text = " ".join(str(doc.value.value).split())
            inputs.append({"name": ast.unparse(field.target), "type": ast.unparse(field.annotation), "doc": text})
    return inputs


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
        "inputs": _inputs(contract),
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
        "rare": clause.rare,
        "harmless": clause.harmless,
        "tests": list(inventory.tests_by_clause(naming=clause_id).get(clause_id, ())),
        "implementations": implementations(contract),
    }


def _rule(name: str) -> dict[str, Any]:
    from verispec.static import rules

    rule = rules.load(name)
    return {
        "kind": "rule",
        "name": name,
        "title": rule.title,
        "level": str(rule.level),
        "why": rule.why,
        "example": rule.example,
        "fix": rule.fix,
    }


def implementations(contract: Contract) -> list[str]:
    """Return the files of the reference that implement the op."""
    name = contract.name
    places = (
        (inventory.has_oracle(name), f"reference/oracle/{name}.py"),
        (inventory.has_cpu_kernel(name), f"reference/csrc/{name}.cpp"),
        (inventory.has_triton_kernel(name), f"reference/triton/{name}.py"),
    )
    return [path for there, path in places if there]


def as_text(told: dict[str, Any], width: int = COLUMNS) -> Iterator[str]:
    """Yield the explanation as text for people, in lines of `width` columns; code and names keep their lines."""
    if told["kind"] == "rule":
        yield f"{told['name']}  {told['title']} ({told['level']})"
        yield ""
        yield from wrapped(told["why"], width, rest=0)
        yield ""
        yield from textwrap.indent(told["example"], "    ").splitlines()
        yield ""
        yield from wrapped(f"fix: {told['fix']}", width)
        yield f"not a fault? # verispec: ignore[{told['name']}] reason"
    elif told["kind"] == "rules":
        rules = [[rule["name"], rule["title"], rule["level"]] for rule in told["rules"]]
        yield from table(["rule", "title", "level"], rules, width)
        yield ""
        yield "verispec explain NAME says why a rule exists"
    elif told["kind"] == PARAMETERS:
        yield "parameters of case ids"
        for parameter in told["parameters"]:
            yield from wrapped(f"{parameter['name']}: {parameter['text']}", width, first=2, rest=6)
            for value, text in parameter["values"].items():
                yield from wrapped(f"{value}: {text}", width, first=6, rest=10)
    elif told["kind"] == "case":
        yield told["name"]
        meanings = told["meanings"]
        yield from _listed(
            width,
            "parameters",
            [
                f"{name} = {value}" + f"  {meanings.get(name, '')}".rstrip()
                for name, value in told["parameters"].items()
            ],
        )
        yield ""
        yield from as_text(told["clause"], width)
        yield ""
        yield f"run it alone: {told['repro']}"
    elif told["kind"] == "clause":
        yield from _clause_lines(told, width)
        if told["unreachable"]:
            yield from wrapped(f"never reached: {told['unreachable']}", width, first=2, rest=4)
        if told["rare"]:
            yield from wrapped(f"rarely reached: {told['rare']}", width, first=2, rest=4)
        if told["harmless"]:
            yield from wrapped(f"reached without harm: {told['harmless']}", width, first=2, rest=4)
        yield f"  op: {told['op']}"
        yield from _listed(width, "tested by", told["tests"])
        yield from _listed(width, "implemented in", told["implementations"])
    else:
        yield f"{told['name']}  ({told['family']})"
        yield from wrapped(told["summary"], width, rest=0)
        yield from _listed(width, "axes", [f"{axis}: {text}" for axis, text in told["axes"].items()])
        yield from _listed(width, "parameters", [_parameter_line(p) for p in told["parameters"]])
        if told["inputs"]:
            yield from _input_lines(told["inputs"], width)
        if told["law"]:
            yield from _listed(width, "law", [told["law"]])
        yield "clauses"
        for clause in told["clauses"]:
            yield from _clause_lines(clause, width, indent=2)
        yield from _listed(width, "implemented in", told["implementations"])
        yield from _listed(width, "called by", [f"{s['engine']} as {s['name']}{_versions(s)}" for s in told["symbols"]])


def _clause_lines(clause: dict[str, Any], width: int, indent: int = 0) -> Iterator[str]:
    rest = indent + len(clause["name"]) + 2
    yield from wrapped(f"{clause['name']}  {clause['text']}", width, first=indent, rest=rest)
    yield from wrapped(f"source: {clause['source']}", width, first=rest, rest=rest)


def _listed(width: int, title: str, items: Sequence[str]) -> Iterator[str]:
    if items:
        yield title
        for item in items:
            yield from wrapped(item, width, first=2, rest=6)


def _input_lines(inputs: list[dict[str, str]], width: int) -> Iterator[str]:
    """Yield how a sampler is called, and every field of its batch."""
    yield "called as sampler(batch) -> list[list[int]]"
    yield "batch is a verispec.engines.SamplerBatch with the fields"
    for field in inputs:
        yield f"  {field['name']}: {field['type']}"
        yield from wrapped(field["doc"], width, first=6, rest=6)
    yield from _listed(width, "optional methods", OPTIONAL)


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
