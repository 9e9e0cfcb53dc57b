"""Cases of every op claim a caller by its name, or none; every parameter of every case has a meaning."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

import verispec.suites
from verispec.cases import CaseSpec
from verispec.cases.glosses import GLOSSES
from verispec.reference import contracts

SUITES = Path(verispec.suites.__file__).parent


def specs() -> Iterator[CaseSpec]:
    """Yield what every test of every suite declares, those of engines that are not here included."""
    for path in sorted(SUITES.glob("*/test_*.py")):
        module = importlib.import_module(f"verispec.suites.{path.parent.name}.{path.stem}")
        for value in vars(module).values():
            if isinstance(spec := getattr(value, "__verispec_case__", None), CaseSpec):
                yield spec


@pytest.fixture(scope="module")
def declared() -> list[CaseSpec]:
    return list(specs())


def test_a_case_of_every_op_names_its_caller_or_none(declared: list[CaseSpec]) -> None:
    """Their calls are made up: a claim that production makes them needs a caller that somebody has read."""
    claims = [
        (spec.clause, row["subject"], reach)
        for spec in declared
        if spec.clause.startswith("ANY-") and spec.subjects and "family" not in spec.params
        for row in spec.combinations()
        if row["subject"] in contracts.names() and (reach := spec.reach_of({**row, **spec.fixed}, "cuda"))
    ]
    assert [c for c in claims if not c[2].endswith(f", in {contracts.load(c[1]).caller}")] == []
    assert {op for _, op, _ in claims} == {name for name in contracts.names() if contracts.load(name).caller}
    assert not {clause for clause, _, _ in claims} & {"ANY-1", "ANY-5", "ANY-6", "ANY-9", "ANY-12"}, "no caller"


def test_a_second_mode_has_no_caller(declared: list[CaseSpec]) -> None:
    other = [s for s in declared if s.clause == "ANY-2" and "mode" in s.params and s.subjects]
    assert other
    for spec in other:
        assert all(not spec.reach_of(row, "cuda") for row in spec.combinations() if row["mode"] == "other")


@pytest.mark.parametrize("clause", ["SRT-12", "SRT-9"], ids=["unreachable", "rare"])
def test_a_clause_that_callers_break_rarely_or_never_has_no_reach(clause: str) -> None:
    assert CaseSpec(clause, {}, {}, "every request").reach_of({}, "cpu") == ""
    assert CaseSpec("CSM-4", {}, {}, "every request").reach_of({}, "cpu") == "every request", "harmless where no reach"


def test_every_parameter_of_a_case_has_a_meaning(declared: list[CaseSpec]) -> None:
    used = {name for spec in declared for name in chain(spec.params, spec.fixed)} - {"subject"}
    assert used - GLOSSES.keys() == set(), "explain it in verispec.cases.glosses"
    assert GLOSSES.keys() - used == set(), "no case has it any more"


def test_every_explained_value_is_one_of_a_case(declared: list[CaseSpec]) -> None:
    from verispec.run.items import text_of

    values: dict[str, set[str]] = {}
    for spec in declared:
        for name, listed in spec.params.items():
            values.setdefault(name, set()).update(map(text_of, listed))
        for name, value in spec.fixed.items():
            values.setdefault(name, set()).add(text_of(value))
    assert {
        (name, value) for name, gloss in GLOSSES.items() for value in gloss.values if value not in values[name]
    } == set()


UNREACHED = [
    ("SRT-16", {"extra": 1}),  # a buffer longer than the batch's draft tokens
    ("EXP-7", {"dtype": "float32"}),
    ("EXP-3", {"dtype": "int32", "check": "only equal values"}),  # temperatures alone are replaced
    ("EXP-5", {"counts": "empty", "dtype": "float32"}),
    ("EXP-1", {"relation": "split", "dtype": "float32"}),  # requests without drafts, one by one
    ("RGS-9", {"token": -2}),  # padding is -1
    ("RRS-17", {"ids": "int32", "u": "float32"}),  # random numbers are float64
    ("RRS-1", {"requests": 65_537, "draft": "present"}),  # no server has so many at a time
    ("SRT-5", {"vocab": 2, "draft": "present"}),
    ("TKP-1", {"vocab": 1}),
    ("TKP-7", {"finite": "none"}),  # a grammar leaves at least the end of the text
    ("ENT-2", {"row": "hole"}),
    ("EPI-2", {"valid": 5}),  # a request without drafts emits one token at most
    ("ENT-5", {"token": 2**31 - 1}),
    ("ESM-2", {"at": "limit"}),
    ("ESM-5", {"rows": 1, "b": 0}),
    ("CSM-7", {"lengths": (2, 0), "layout": "dense"}),
    ("PRJ-9", {"padding": "last", "draft": "present"}),  # verification runs outside of captured graphs
    ("PRJ-1", {"counts": "none"}),  # a step without drafts is not verified
    ("GUM-6", {"padding": "first"}),  # padding comes last
    ("VTG-7", {"depth": 1}),  # a tree deeper than its paths may be
    ("VTG-1", {"counts": "gaps"}),  # a root alone beside larger trees: every tree of a batch has as many nodes
    ("VTG-9", {"counts": "gaps"}),
]
"""Calls that no caller in vLLM 0.33.0 makes, nor in SGLang 0.5.23 for trees, by clause."""


@pytest.mark.parametrize(("clause", "params"), UNREACHED, ids=[c for c, _ in UNREACHED])
def test_a_call_that_no_caller_makes_has_no_reach(
    declared: list[CaseSpec], clause: str, params: dict[str, object]
) -> None:
    rows = [
        (spec, row)
        for spec in declared
        if spec.clause == clause
        for row in ({**combination, **spec.fixed} for combination in spec.combinations())
        if params.items() <= row.items()
    ]
    assert rows, "the case is still there"
    assert [spec.reach_of(row, "cuda") for spec, row in rows if spec.reach_of(row, "cuda")] == []
