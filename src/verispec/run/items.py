"""Items of pytest as cases: id, subject and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from verispec.cases import CaseId, CaseSpec, selects
from verispec.reference import contracts
from verispec.run.record import is_quick

CASE = pytest.StashKey[CaseId]()
SPEC = pytest.StashKey[CaseSpec]()
PARAMS = pytest.StashKey[dict[str, Any]]()
EXACT = pytest.StashKey[frozenset[str]]()
"""The selected ids, where options name whole ones."""
OMITTED = pytest.StashKey[dict[str, list[str]]]()
"""Ids of the cases of each test that are not selected and have no item."""


def name_case(item: pytest.Item) -> CaseId:
    """Return the case id of an item, and keep it in the item with its specification and parameters.

    Raises:
        pytest.UsageError: the item is a test without ``@case``.
    """
    spec = _spec(item)
    if spec is None:
        raise pytest.UsageError(f"{item.nodeid}: a test in a suite needs @case, else it tests no clause")
    callspec = getattr(item, "callspec", None)
    params = {**(callspec.params if callspec else {}), **spec.fixed}
    item.stash[CASE] = case_id(item.path, spec, params)
    item.stash[SPEC], item.stash[PARAMS] = spec, params
    return item.stash[CASE]


def case_id(path: Path, spec: CaseSpec, params: Mapping[str, Any]) -> CaseId:
    """Return the id of the case that a test in the file `path` makes of all of its parameters."""
    named = {name: value for name, value in params.items() if not (spec.subjects and name == "subject")}
    texts = tuple((name, text_of(value)) for name, value in named.items() if value is not None)
    subject = str(params["subject"]) if spec.subjects else path.stem.removeprefix("test_")
    return CaseId(path.parent.name, subject, spec.clause, texts)


def needed_rows(metafunc: pytest.Metafunc, spec: CaseSpec, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first row and all that may be selected: items are half of collecting. Keep the ids of the others.

    Where the test has parameters of its own, the rows do not tell ids.
    """
    parametrized = any(fixture.params for found in metafunc._arg2fixturedefs.values() for fixture in found)
    if parametrized or metafunc.definition.get_closest_marker("parametrize"):
        return rows
    option, kept, first_of = metafunc.config.option, rows[:1], set()
    for n, row in enumerate(rows):
        case = case_id(metafunc.definition.path, spec, {**row, **spec.fixed})
        text = str(case)
        wanted = asked_for(metafunc.config, text)
        if wanted and option.smoke:
            wanted = case.subject not in first_of and is_quick(case)
            first_of |= {case.subject} if wanted else set()
        if n and wanted:
            kept.append(row)
        elif n:
            metafunc.config.stash[OMITTED].setdefault(metafunc.definition.nodeid, []).append(text)
    return kept


def asked_for(config: pytest.Config, case: str) -> bool:
    """Return True if the options select a case."""
    only = config.option.only
    if only and config.option.exact:
        return case in config.stash.setdefault(EXACT, frozenset(only))
    return not only or any(selects(pattern, case) for pattern in only)


def subject_of(item: pytest.Item) -> str:
    """Return the op that a case tests: its parameter `subject`, else the stem of ``test_<op>.py``."""
    return item.stash[CASE].subject


def contract_of(item: pytest.Item) -> str:
    """Return the contract of the tested part: the op's own, or that of the clause for a part of a sampler."""
    subject = subject_of(item)
    return subject if subject in contracts.names() else contracts.by_clause(item.stash[SPEC].clause).name


def query(params: Mapping[str, Any]) -> str:
    """Return parameters as the end of a case id: ``name=value;name=value``. None is left out."""
    return ";".join(f"{name}={text_of(value)}" for name, value in params.items() if value is not None)


def text_of(value: Any) -> str:
    """Return the text of a parameter's value in a case id."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(text_of(v) for v in value)
    return str(value)


def _spec(item: pytest.Item) -> CaseSpec | None:
    return getattr(getattr(item, "function", None), "__verispec_case__", None)
