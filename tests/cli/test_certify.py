"""``verispec certify``: its files, its budget, and completing an interrupted run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from verispec import exits
from verispec.cli import main
from verispec.cli.certify import in_suites, statistical_cases
from verispec.errors import VerispecError
from verispec.run import runfile
from verispec.run.plan import Plan
from verispec.run.resume import restored_plan
from verispec.run.session import require_selection
from verispec.run.supervisor import Supervisor

CASES = "sampler/whole_sampler:WS-11:vocab=2;*"


def certify(folder: Path, *words: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["certify", "--budget", "quick", "--only", CASES, "--out", str(folder), *words])
    return int(stop.value.code or 0)


def test_an_interrupted_certificate_is_completed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert certify(tmp_path) == exits.GOOD
    results = tmp_path / "results.jsonl"
    header, *cases, _footer = results.read_text().splitlines()
    assert json.loads(header)["budget"] == "quick"
    evidence = [json.loads(line)["evidence"] for line in cases]
    assert {shown["cap"] for shown in evidence} == {1000}
    results.write_text("\n".join([header, *cases[:2]]) + "\n")
    assert certify(tmp_path, "--resume") == exits.GOOD
    again = results.read_text().splitlines()
    # Kept as they were, with the times of the first run.
    assert set(cases[:2]) <= set(again)
    assert len(again) == len(cases) + 2
    capsys.readouterr()
    assert certify(tmp_path, "--resume", "--seed", "8") == exits.USAGE
    assert "had another --seed" in capsys.readouterr().err


def test_a_selection_without_a_statistical_test_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("certify", "--only", "sampler/apply_top_k_top_p:TKP-14", "--out", str(tmp_path))
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    err = " ".join(capsys.readouterr().err.split())
    assert stop.value.code == exits.CANNOT_TELL
    assert "V-CERT-NOTHING --only: no statistical test was decided cause: 3 cases ran" in err
    assert "mode=law" in err
    assert (tmp_path / "certificate.md").exists()


def test_a_suite_selects_its_statistical_tests() -> None:
    patterns = statistical_cases("reference")
    assert {pattern.partition("/")[0] for pattern in in_suites(patterns, ("e2e", "synthetic"))} == {"e2e", "synthetic"}
    assert in_suites(patterns, ()) == patterns
    assert in_suites(patterns, ("/a/folder",)) == [], "which selects all cases of the folder"
    with pytest.raises(VerispecError, match="no statistical test is in signatures") as caught:
        in_suites(patterns, ("signatures",))
    assert caught.value.exit_code == exits.USAGE


def test_a_certificate_takes_the_options_of_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Plan] = []

    def stop_here(plan: Plan, *_: object) -> None:
        plans.append(plan)
        raise VerispecError("V-TEST", "stopped")

    monkeypatch.setattr("verispec.cli.certify.execute", stop_here)
    options = ("--suite", "synthetic", "--timeout", "9", "--start-timeout", "8", "--close-timeout", "7")
    with pytest.raises(SystemExit):
        main(["certify", *options, "--out", str(tmp_path)])
    (plan,) = plans
    assert (plan.suites, plan.only) == (("synthetic",), ("synthetic/whole_sampler:WS-12",))
    assert (plan.timeout, plan.start_timeout, plan.close_timeout) == (9.0, 8.0, 7.0)


@pytest.mark.parametrize("engine", ["reference", "http://localhost:8000"])
def test_every_pattern_selects_a_case(engine: str) -> None:
    """A pattern that selects nothing ends a run."""
    plan = Plan(engine, only=tuple(statistical_cases(engine)))
    require_selection(plan, Supervisor(plan).collect())


def test_an_unknown_budget_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["certify"], ["repro", "sampler/whole_sampler:WS-11:vocab=2;drafts=1;mode=law"]):
        with pytest.raises(SystemExit) as stop:
            main([*command, "--budget", "large"])
        assert stop.value.code == exits.USAGE
        assert "quick, standard, nightly" in capsys.readouterr().err


def test_repro_has_the_budget_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    case = "sampler/whole_sampler:WS-11:vocab=2;drafts=1;mode=law"
    with pytest.raises(SystemExit) as stop:
        main(["repro", case, "--budget", "quick", "--json"])
    assert stop.value.code == exits.GOOD
    told = json.loads(capsys.readouterr().out)
    assert told["header"]["budget"] == "quick"
    assert told["case"]["evidence"]["cap"] == 1000
    assert told["case"]["cpu"] > 0


@pytest.mark.parametrize(
    ("engine", "op", "message"),
    [
        ("reference", "expand_batch_to_tokens", "kernels of 'reference' cannot be replaced"),
        ("vllm", "expand_batch", "expand_batch_to_tokens"),
    ],
)
def test_an_op_that_cannot_be_replaced_is_refused(
    engine: str, op: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["certify", "--engine", engine, "--transplant", op])
    assert stop.value.code == exits.USAGE
    assert message in capsys.readouterr().err


def test_a_resumed_certificate_keeps_the_replaced_kernels(tmp_path: Path) -> None:
    plan = Plan("vllm", transplanted=("expand_batch_to_tokens",))
    header = runfile.make_header(plan, {}, 1, [], [])
    assert restored_plan({}, header, tmp_path).transplanted == plan.transplanted
    with pytest.raises(VerispecError, match="another --transplant"):
        restored_plan({"transplanted": ()}, header, tmp_path)
