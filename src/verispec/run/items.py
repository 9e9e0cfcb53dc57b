"""Items of pytest as cases: id, subject and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from verispec.cases import CaseId, CaseSpec
from verispec.reference import contracts

CASE = pytest.StashKey[CaseId]()
SPEC = pytest.StashKey[CaseSpec]()
PARAMS = pytest.StashKey[dict[str, Any]]()


def name_case(item: pytest.Item) -> CaseId:
    """Return the case id of an item, and keep it in the item with its specification and parameters.

    Raises:
        pytest.UsageError: the item is a test without ``@case``.
    """
    spec = _spec(item)
    if spec is None:
        raise pytest.UsageError(f"{item.nodeid}: a test in a suite needs @case, else it judges no clause")
    callspec = getattr(item, "callspec", None)
    params = {**(callspec.params if callspec else {}), **spec.fixed}
    named = {name: value for name, value in params.items() if not (spec.subjects and name == "subject")}
    texts = tuple((name, text_of(value)) for name, value in named.items() if value is not None)
    item.stash[CASE] = CaseId(item.path.parent.name, subject_of(item), spec.clause, texts)
    item.stash[SPEC], item.stash[PARAMS] = spec, params
    return item.stash[CASE]


def subject_of(item: pytest.Item) -> str:
    """Return the op that a case tests: its parameter `subject`, else the stem of ``test_<op>.py``."""
    spec = _spec(item)
    if spec is not None and spec.subjects:
        return str(item.callspec.params["subject"])  # type: ignore[attr-defined]
    return item.path.stem.removeprefix("test_")


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
