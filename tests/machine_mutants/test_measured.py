"""The file of cases without a mutant, and the choice of cases from it."""

import json
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from verispec.cli.mutants import app, mutants
from verispec.errors import VerispecError
from verispec.mutants import campaign, measured, plugin, results
from verispec.mutants.campaign import CampaignPlan, command_of
from verispec.mutants.layers import LAYERS
from verispec.mutants.model import Mutant, MutantResult, Verdict


class FakeJob:
    """As much of a job as the choice of a mutant's cases needs."""

    device = ""
    limit = 60.0

    @property
    def active(self) -> "FakeJob":
        return self

    @staticmethod
    def keys(mutant: Mutant) -> list[int]:
        return [mutant.number]


CASES = [f"sampler/op:C-{clause}:n={n}" for clause in (1, 2) for n in range(10)]


def test_the_command_has_the_defaults_of_a_plan() -> None:
    given, plan = signature(mutants).parameters, CampaignPlan(LAYERS["cpp"])
    assert (given["limit"].default, given["slowest"].default) == (plan.limit, plan.slowest)
    assert plan.slowest < plan.limit, "one case would leave no time for another"


def test_choice_takes_as_many_of_each_clause() -> None:
    found = measured.chosen(CASES, 2)
    assert [case in CASES[:10] for case in found] == [True, True, False, False]
    assert measured.chosen(list(reversed(CASES)), 2) == [case for case in reversed(CASES) if case in found]
    assert measured.chosen(CASES, 99) == CASES
    assert [case[:7] for case in measured.chosen(["a.py::f[1]", "a.py::f[2]", "a.py::g"], 1)] == ["a.py::f", "a.py::g"]


@pytest.mark.parametrize("values", [2, 3, 4])
def test_choice_meets_every_value_of_the_last_parameter(values: int) -> None:
    """An even step through the grid would meet one of them alone."""
    cases = [f"sampler/op:C-1:n={n};rule={rule}" for n in range(8) for rule in range(values)]
    assert {case[-1] for case in measured.chosen(cases, 8)} == set(map(str, range(values)))


def test_choice_meets_every_test_of_a_clause() -> None:
    """A hash alone would draw most cases from the test with most parameters."""
    grid = [f"sampler/op:C-1:n={n};rule={rule}" for n in range(20) for rule in range(5)]
    single = [f"sampler/op:C-1:{more}" for more in ("check=ties", "check=late;n=3", "check=late;n=9", "vocab=5")]
    found = measured.chosen([*grid, *single, "sampler/op:C-1"], 5)
    tests = [measured.test_of(case) for case in found]
    assert sorted(tests) == sorted({measured.test_of(case) for case in [*grid, *single, "sampler/op:C-1"]})
    assert measured.test_of("sampler/op:C-1:check=a: b;n=3") == "sampler/op:C-1:check=a: b:n"
    assert measured.test_of("a.py::f[1]") == "a.py::f"
    early = measured.spread_over_tests([*grid, *single], lambda case: True)[:9]
    assert {measured.test_of(case) for case in early} >= set(map(measured.test_of, single))


def test_after_crashes_other_clauses_come_first() -> None:
    left = measured.left_after(CASES, CASES[:3], CASES[1:3])
    assert left == [*CASES[10:], *CASES[3:10]]
    assert measured.left_after(CASES, CASES[:3], []) == CASES[3:]


def test_cut_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "baseline.jsonl"
    path.write_text(json.dumps({"case": CASES[0], "outcome": "pass"}) + '\n{"case": "sampler/op:C-2')
    assert list(measured.read(path)) == [CASES[0]]
    assert measured.read(tmp_path / "missing") == {}


def test_a_limit_of_processor_seconds_decides_which_cases_are_used() -> None:
    passed, ended = ({"outcome": outcome, "seconds": 3.0} for outcome in ("pass", "timeout"))
    assert [measured.is_usable(passed, slowest) for slowest in (2.9, 3.0)] == [False, True]
    assert not measured.is_usable(ended, 9.0)
    assert [measured.is_known(passed, 9.0), measured.is_known(ended, 3.0), measured.is_known(ended, 9.0)] == [
        True, True, False,
    ]  # fmt: skip
    assert not measured.is_known(None, 9.0)
    assert not measured.is_known({"outcome": "fail", "seconds": 3.0}, 9.0)


def test_few_cases_that_fail_without_a_mutant_are_left_out() -> None:
    known = {f"sampler/op:C-1:n={n}": {"outcome": "pass", "seconds": 0.1} for n in range(100)}
    for n, outcome in ((3, "fail"), (7, "crash")):
        known[f"sampler/op:C-1:n={n}"] = {"outcome": outcome, "seconds": 0.1, "reason": "no such device"}
    assert campaign._few_failing(known) == ["sampler/op:C-1:n=3", "sampler/op:C-1:n=7"]
    assert not any(measured.is_usable(known[name], 9.0) for name in campaign._few_failing(known))
    known["sampler/op:C-1:n=9"]["outcome"] = "error"
    with pytest.raises(VerispecError, match=r"V-MUT-BASELINE .*3 of 100 cases.*\n.*no such device"):
        campaign._few_failing(known)


@pytest.mark.parametrize("numbers", [[], [3], [1, 2, 3, 7, 9, 10]])
def test_ranges_and_reach_are_inverse(numbers: list[int]) -> None:
    found = measured.reaching({"case": {"reached": measured.ranges(numbers)}})
    assert found == {n: ["case"] for n in numbers}


def test_results_go_where_the_command_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Self-tests run in another folder, where a relative name would be another file."""
    monkeypatch.chdir(tmp_path)
    plan = CampaignPlan(LAYERS["config"])
    assert results.path_of(plan, Path("config.jsonl"), many=False) == tmp_path / "config.jsonl"
    assert results.path_of(plan, Path("all.jsonl"), many=True) == tmp_path / "all-config.jsonl"


def test_a_shared_file_meets_the_cases_of_the_ops_that_use_it() -> None:
    mutants = [Mutant("cpp", "search.h", 1, 1, "", "", "", "", 1, ("verify_one_hot", "verify_greedy", "linear"))]
    command = command_of(CampaignPlan(LAYERS["cpp"]), Path("job"), mutants, own_clauses=False)
    only = [f"--only=sampler/{op}:*" for op in ("verify_greedy", "verify_one_hot")]
    assert [part for part in command if part.startswith("--only")] == only
    names = [Path(part).name for part in command]
    assert "test_verify_one_hot.py" in names
    assert "test_every_op.py" in names
    assert "test_gumbel_sample.py" not in names


@pytest.mark.parametrize("layer", LAYERS)
def test_clauses_of_every_op_come_after_the_own_ones(layer: str) -> None:
    """They cost most, and what the own ones kill meets none of them."""
    mutants = [Mutant(layer, "gumbel_sample", 1, 1, "", "", "", "", 1, ("gumbel_sample",))]
    plan = CampaignPlan(LAYERS[layer])
    rounds = campaign.rounds(plan)
    commands = [command_of(plan, Path("job"), mutants, own_clauses=one.own_clauses) for one in rounds]
    every = [[Path(part).stem.startswith("test_every_op") for part in command] for command in commands]
    assert [any(round) for round in every] == ([False, True, True] if LAYERS[layer].op_files else [False, False])


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({}, [(4, 3.0), (4, 3.0), (0, 30.0)]),
        ({"per_clause": 2, "slowest": 1.5}, [(2, 1.5), (2, 1.5)]),
        ({"per_clause": 6, "slowest": 3.0}, [(4, 3.0), (4, 3.0), (6, 3.0)]),
        ({"chosen": frozenset("m")}, [(0, 30.0), (0, 30.0)]),
    ],
)
def test_what_quick_cases_leave_meets_all_within_the_limits(
    options: dict[str, Any], limits: list[tuple[int, float]]
) -> None:
    """The limits of a plan are never passed, and survivors that are tested again have met quick cases."""
    rounds = campaign.rounds(replace(CampaignPlan(LAYERS["cpp"]), **options))
    assert [(one.per_clause, one.slowest) for one in rounds] == limits
    assert [one.number for one in rounds if not one.is_last] == list(range(len(limits) - 1))


@pytest.mark.parametrize("is_last", [False, True])
def test_a_mutant_that_meets_more_cases_later_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_last: bool
) -> None:
    job = FakeJob()
    job.mutants = [result(verdict, line).mutant for line, verdict in enumerate(Verdict)]
    job.out, job.processes, job.baseline, job.slowest = tmp_path / "out", 1, {}, 9.0
    job.round, job.is_last = 1, is_last
    job.out.write_text('{"type": "header"}\n')
    verdicts = iter(Verdict)

    class FakeState:
        cases, records = (), ()

        def __init__(self, mutant: Mutant, *_: object) -> None:
            self.mutant = mutant

        def result(self) -> MutantResult:
            return MutantResult(self.mutant, next(verdicts))

    monkeypatch.setattr(plugin, "_State", FakeState)
    plugin._judge(job, {})
    decided = {Verdict.KILLED, Verdict.KILLED_ELSEWHERE, Verdict.INVALID}
    assert {found.verdict for found in results.read([job.out])} == set(Verdict)
    counts = [len(results.done(job.out, number)) for number in (0, 1, 2, None)]
    assert counts == [len(Verdict)] * 2 + [len(Verdict) if is_last else len(decided)] * 2


def test_an_interrupted_sample_does_not_score_its_kills_alone(tmp_path: Path) -> None:
    """One mutant is killed, one has survived so far, and two of the four were not begun."""
    file = tmp_path / "sample.jsonl"
    results.begin(file, CampaignPlan(LAYERS["config"]), 9, 4)
    fates = {"mutant": result(Verdict.KILLED, 1), "open": result(Verdict.SURVIVED, 2)}
    with file.open("a") as out:
        out.writelines(json.dumps({"type": kind, **one.to_json()}) + "\n" for kind, one in fates.items())
    shown = CliRunner().invoke(app, ["--render", str(file), "--json"])
    score = json.loads(shown.stdout)
    assert (shown.exit_code, score["good"], score["layers"]["config"]["share"]) == (1, False, 0.5)
    assert "3 drawn mutants have not met all cases yet" in shown.stderr
    assert results.survivors_of(file, "config") == {fates["open"].mutant.id}


def test_a_later_round_meets_other_cases_alone(tmp_path: Path) -> None:
    """A crash of an earlier one is not forgotten, and a mutant that met a case then was reached."""
    mutant = Mutant("cpp", "a.cpp", 1, 1, "constant", "1", "2", "1", 0, ("op",))
    times = dict.fromkeys(CASES, 1.0)
    records = [{"case": CASES[0], "outcome": "crash", "seconds": 1.0}, {"case": CASES[3], "outcome": "pass"}]
    file = tmp_path / "sample.jsonl"
    results.begin(file, CampaignPlan(LAYERS["cpp"]), 9, 9)
    with file.open("a") as out:
        out.write(json.dumps({"type": "open", "id": mutant.id, "round": 0, "records": records}) + "\n")
    earlier = results.open_records(file)[mutant.id]
    state = plugin._State(mutant, FakeJob(), {0: CASES}, times, {}, earlier)
    assert sorted(state.cases) == [case for case in CASES if case not in (CASES[0], CASES[3])]
    state.take([{"case": case, "outcome": "pass"} for case in state.cases])
    found = state.result()
    assert (found.verdict, found.case, found.cases) == (Verdict.CRASHED, CASES[0], len(CASES))
    none_left = plugin._State(mutant, FakeJob(), {0: [CASES[3]]}, times, {}, records[1:])
    assert none_left.result().verdict == Verdict.SURVIVED
    assert plugin._State(mutant, FakeJob(), {}, times, {}).result().verdict == Verdict.NOT_REACHED


def result(verdict: Verdict, line: int, layer: str = "config") -> MutantResult:
    return MutantResult(Mutant(layer, "generation.py", line, 1, "constant", "24", "23", "", line), verdict)


def test_the_survivors_of_a_file_are_tested_again(tmp_path: Path) -> None:
    """Instead of a sample, and only those: the killed ones, the listed ones and other layers' are left out."""
    fates = (Verdict.KILLED, Verdict.SURVIVED, Verdict.NOT_REACHED, Verdict.CRASHED, Verdict.KILLED_ELSEWHERE)
    found = [*(result(fate, line) for line, fate in enumerate(fates)), result(Verdict.SURVIVED, 9, "oracle")]
    found.append(MutantResult(replace(found[1].mutant, operator="cast dropped", before="int(value)", after="value"),
                              Verdict.SURVIVED))  # fmt: skip
    file = tmp_path / "sample.jsonl"
    results.begin(file, CampaignPlan(LAYERS["config"]), 9, 9)
    with file.open("a") as out:
        out.writelines(json.dumps({"type": "mutant", **one.to_json()}) + "\n" for one in found)
    chosen = results.survivors_of(file, "config")
    assert chosen == {found[line].mutant.id for line in (1, 2, 3)}
    with pytest.raises(VerispecError, match="V-MUT-CHOSEN"):
        results.survivors_of(file, "runners")
    with pytest.raises(VerispecError, match=r"V-MUT-CHOSEN(.|\n)*lines have moved"):
        campaign.prepare(CampaignPlan(LAYERS["config"], chosen=chosen))
    real = campaign.prepare(CampaignPlan(LAYERS["config"], sample=3, seed=5)).mutants
    again = campaign.prepare(CampaignPlan(LAYERS["config"], sample=1, chosen=frozenset(m.id for m in real)))
    assert {m.id for m in again.mutants} == {m.id for m in real}


@pytest.mark.parametrize("options", [[], ["--listed"]])
def test_listed_mutants_do_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    """They count as equivalent at once, and once when a file is continued; an option runs them."""
    plain = result(Verdict.SURVIVED, 1).mutant
    known = replace(plain, line=2, operator="cast dropped", before="int(value)", after="value")
    monkeypatch.setattr(campaign, "prepare", lambda plan: campaign.Campaign(plan, 2, [plain, known]))
    ran: list[Mutant] = []

    def judge(prepared: campaign.Campaign, path: Path, round_: campaign.Round, done: frozenset[str]) -> list[str]:
        left = [mutant for mutant in prepared.mutants if mutant.id not in done]
        ran.extend(left)
        with path.open("a") as out:
            for mutant in left:
                out.write(json.dumps({"type": "mutant", **MutantResult(mutant, Verdict.KILLED).to_json()}) + "\n")
        return []

    monkeypatch.setattr(campaign, "judge", judge)
    command = ["--of=config", "--sample=2", f"--out={tmp_path / 'found.jsonl'}", *options]
    for _ in range(2):
        CliRunner().invoke(app, command, catch_exceptions=False)
    found = results.read([tmp_path / "found.jsonl"])
    fates = {one.mutant.line: one.verdict for one in found}
    assert ran == ([plain, known] if options else [plain])
    assert fates == {1: Verdict.KILLED, 2: Verdict.KILLED if options else Verdict.EQUIVALENT}
    assert len((tmp_path / "found.jsonl").read_text().splitlines()) == 3


def test_chosen_mutants_meet_the_cases_of_their_ops_alone() -> None:
    mutant = Mutant("cpp", "gumbel_sample.cpp", 1, 1, "", "", "", "", 1, ("gumbel_sample",))
    plan = CampaignPlan(LAYERS["cpp"], chosen=frozenset({mutant.id}))
    command = command_of(plan, Path("job"), [mutant], own_clauses=False)
    assert [part for part in command if part.startswith("--only")] == ["--only=sampler/gumbel_sample:*"]


def test_which_cases_must_be_the_first_of_a_process() -> None:
    """A case that compares late calls with the oracle alone need not be."""
    ids = [f"sampler/gumbel_sample:ANY-4:check=hundred calls{of}" for of in (" of each layout", " of each dtype", "")]
    assert [measured.compares_with_first_calls(case) for case in ids] == [True, True, False]


@pytest.mark.parametrize(("trigger", "ends"), [("repeated", [True, True, False]), ("always", [False, True, False])])
def test_cases_that_compare_first_calls_have_a_process_each(trigger: str, ends: list[bool]) -> None:
    """A mutant that acts from the hundredth evaluation on would change the first calls of a second such case."""
    mutant = Mutant("cpp", "a.cpp", 1, 1, "constant", "1", "2", "1", 0, ("op",), trigger)
    comparing, other = "sampler/op:ANY-4:check=hundred calls of each dtype", "sampler/op:ANY-4:check=hundred calls"
    state = plugin._State(mutant, FakeJob(), {0: [comparing, other]}, {comparing: 1.0, other: 0.5}, {})
    records = [(comparing, "pass"), (other, "fail"), (other, "pass")]
    assert [state.ends_process({"case": case, "outcome": outcome}) for case, outcome in records] == ends
