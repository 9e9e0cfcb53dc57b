"""Each fault-injected engine gets exactly the failures of its fault, and the baseline none."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from judging import GENERATED, SUITE, THE_ONE, verdict_on

from verispec import exits
from verispec.errors import VerispecError
from verispec.report.verdict import RunSummary


@dataclass(frozen=True)
class Fault:
    """Required text of the one cause; `where` is part of its sentence on parameters, `only` the one case that fails."""

    clause: str
    kind: str
    level: str = "error"
    message: str = ""
    where: str = ""
    only: str = ""


def crash(message: str, kind: str = "crash") -> Fault:
    return Fault("EXP-1", kind, "note", message, only=THE_ONE)


FAULTS = {
    "LosesWrites": Fault("EXP-2", "unwritten", where="dtype=float32, int32 or bool"),
    "WritesBeyond": Fault("EXP-1", "outside", message="outside output_ptr"),
    "ChangesInput": Fault("EXP-3", "input changed", message="input_ptr"),
    "Nondeterministic": Fault("EXP-1", "value"),
    "Narrows": Fault("EXP-4", "value", "note", "is 16777216, expected 16777217"),
    "OffByOne": Fault("EXP-1", "value"),
    "Exits": crash("SystemExit: no such kernel", kind="raised"),
    "Segfaults": crash("ended by SIGSEGV"),
    "Aborts": crash("ended by SIGABRT"),
    "EndsTheProcess": crash("ended itself with exit code 0"),
    "LosesTheDevice": crash("CUDA error: an illegal memory access was encountered"),
}


def verdict_of(engine: str, folder: Path, **plan: Any) -> RunSummary:
    """Return the summary of the suite's cases on an engine of `broken_engines`, or on one with a module of its own."""
    name = engine if ":" in engine else f"broken_engines:{engine}"
    return verdict_on(name, folder / "run.jsonl", only=(SUITE, GENERATED), **plan)


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> RunSummary:
    return verdict_of("oracle_engine:OracleEngine", tmp_path_factory.mktemp("control"))


def test_the_control_passes_whole(control: RunSummary) -> None:
    assert control.complete
    assert set(control.counts) == {"pass"}
    assert control.exit_code() == exits.GOOD


@pytest.mark.parametrize("name", FAULTS)
def test_one_fault_is_one_cause(name: str, control: RunSummary, tmp_path: Path) -> None:
    verdict = verdict_of(name, tmp_path)
    fault = FAULTS[name]

    assert [(c.level, c.clause, c.kind) for c in verdict.causes] == [(fault.level, fault.clause, fault.kind)]
    cause = verdict.causes[0]
    assert fault.message in cause.message
    assert fault.where in cause.where
    assert cause.cases == ((fault.only,) if fault.only else cause.cases)
    assert verdict.exit_code() == exits.BAD
    assert all_cases(verdict) == all_cases(control), "a fault may cost no other case its verdict"
    assert verdict.counts["pass"] == len(verdict.run.records) - len(cause.cases)


@pytest.mark.parametrize(
    ("name", "fault"),
    [("Segfaults", FAULTS["Segfaults"]), ("Hangs", crash("no answer within 20 s", kind="timeout"))],
)
def test_a_worker_costs_one_case(name: str, fault: Fault, control: RunSummary, tmp_path: Path) -> None:
    verdict = verdict_of(name, tmp_path, processes=2)

    assert [(c.clause, c.kind, c.cases) for c in verdict.causes] == [(fault.clause, fault.kind, (fault.only,))]
    assert fault.message in verdict.causes[0].message
    assert all_cases(verdict) == all_cases(control)
    log = next(r for r in verdict.run.records if r.failed).failure["details"]["log"]
    assert re.search(r"broken_engines\.py\", line \d+ in expand", log), "where it was is in the record"


def test_a_lost_device_costs_a_worker_one_case(control: RunSummary, tmp_path: Path) -> None:
    verdict = verdict_of("LosesTheDevice", tmp_path, processes=2)

    assert [(c.kind, c.cases) for c in verdict.causes] == [("crash", (THE_ONE,))]
    assert all_cases(verdict) == all_cases(control)


def test_a_device_that_is_lost_in_an_explanation_costs_no_other_case(control: RunSummary, tmp_path: Path) -> None:
    verdict = verdict_of("LosesTheDeviceLater", tmp_path)

    assert [(c.kind, c.cases) for c in verdict.causes] == [("overwritten", (THE_ONE,))]
    assert all_cases(verdict) == all_cases(control)
    assert verdict.counts["pass"] == len(verdict.run.records) - 1


def test_a_device_that_was_lost_unseen_costs_the_next_case(control: RunSummary, tmp_path: Path) -> None:
    verdict = verdict_of("LosesTheDeviceUnseen", tmp_path)

    assert [(c.kind, len(c.cases)) for c in verdict.causes] == [("crash", 1)]
    assert all_cases(verdict) == all_cases(control)
    assert verdict.counts["pass"] == len(verdict.run.records) - 1


def test_printing_harms_nothing(control: RunSummary, tmp_path: Path) -> None:
    verdict = verdict_of("Noisy", tmp_path)

    assert all_cases(verdict) == all_cases(control)
    assert (verdict.causes, verdict.exit_code()) == ((), exits.GOOD)


def test_an_op_that_is_not_there_is_a_gap_and_no_pass(control: RunSummary, tmp_path: Path) -> None:
    verdict = verdict_of("LacksTheOp", tmp_path)

    assert [(g.outcome, g.reason) for g in verdict.gaps] == [
        ("unsupported", "there is no expand kernel on this platform")
    ]
    assert verdict.counts == {"unsupported": len(control.run.records)}
    assert verdict.exit_code() == exits.CANNOT_TELL


def test_a_refused_call_is_a_gap_and_no_pass(control: RunSummary, tmp_path: Path) -> None:
    verdict = verdict_of("RefusesBooleans", tmp_path)

    assert [(g.outcome, g.reason) for g in verdict.gaps] == [("unsupported", "booleans are not expanded")]
    assert all("dtype=bool" in case for case in verdict.gaps[0].cases)
    assert verdict.counts["pass"] + len(verdict.gaps[0].cases) == len(control.run.records)
    assert verdict.exit_code() == exits.GOOD


def test_a_crash_after_the_last_case_is_said(control: RunSummary, tmp_path: Path) -> None:
    verdict = verdict_of("CrashesAtClose", tmp_path)

    assert all_cases(verdict) == all_cases(control)
    assert len(verdict.run.footer["warnings"]) == 1
    assert "SIGSEGV" in verdict.run.footer["warnings"][0]


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    ("name", "cause"), [("NeedsAnImport", "no_such_package_anywhere"), ("CrashesAtStart", "SIGSEGV")]
)
def test_an_engine_that_cannot_start_is_one_error(name: str, cause: str, processes: int, tmp_path: Path) -> None:
    with pytest.raises(VerispecError) as caught:
        verdict_of(name, tmp_path, processes=processes)

    assert caught.value.diagnostic.code == "V-ENG-START"
    assert cause in caught.value.diagnostic.cause
    assert caught.value.exit_code == exits.CANNOT_TELL
    assert not (tmp_path / "run.jsonl").exists()


def all_cases(verdict: RunSummary) -> set[str]:
    return {record.id for record in verdict.run.records}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("AnotherKeyword", "rename cu_tokens to cu_num_tokens_ptr"),
        ("DescribesInADict", "describe(): expected a verispec.engines.Description, got dict"),
        ("HasNoOpAtAll", "expected a function or Unsupported(reason), got None"),
    ],
)
def test_an_adapters_fault_is_no_failed_clause(name: str, words: str, tmp_path: Path) -> None:
    """The run ends before its first case, with the code and what to write."""
    with pytest.raises(VerispecError) as raised:
        verdict_of(name, tmp_path)
    said = raised.value.diagnostic
    assert (said.code, raised.value.exit_code) == ("V-ENG-PROTOCOL", exits.CANNOT_TELL)
    assert words in said.cause
    assert "write" in said.hint
    assert not (tmp_path / "run.jsonl").exists()
