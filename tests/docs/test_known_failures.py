"""Published lists of known failures are of nearly all cases of today, so that faults of new cases are on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from verispec.cases import selects
from verispec.run import runfile

VERDICTS = Path(__file__).resolve().parents[2] / "docs/verdicts"
LISTS = sorted(VERDICTS.glob("*.toml"))
OLD = 0.1
"""Share of its cases that a list may not know yet: a whole run of an engine takes up to an hour."""


def results_of(known: Path) -> runfile.Run:
    return runfile.read(VERDICTS / "results" / f"{known.stem}.jsonl.gz")


def without_result(run: runfile.Run, all_cases: list[str]) -> tuple[list[str], list[str]]:
    """Return the cases of today that the run would have, and those of them that it does not have."""
    only, suites = run.header["selection"]["only"], run.header["selection"]["suites"]
    today = [
        case
        for case in all_cases
        if (not suites or case.partition("/")[0] in suites) and (not only or any(selects(p, case) for p in only))
    ]
    seen = {record.id for record in run.records}
    return today, [case for case in today if case not in seen]


@pytest.mark.parametrize("known", LISTS, ids=lambda path: path.stem)
def test_the_list_is_of_nearly_all_cases_of_today(known: Path, all_cases: list[str]) -> None:
    today, missing = without_result(results_of(known), all_cases)
    name = f"{known.stem}.jsonl"
    hint = f"run them, and repair the list: verispec run --resume docs/verdicts/results/{name}.gz --out {name}"
    assert len(missing) <= OLD * len(today), f"{len(missing)} of {len(today)} cases are newer than the list; {hint}"


def test_a_new_case_counts(all_cases: list[str]) -> None:
    run = results_of(VERDICTS / "mlx-lm-0.32.2.toml")
    before = without_result(run, all_cases)
    new = ["e2e/greedy:GEN-1:draft=new", "sampler/whole_sampler:WS-1:of=another suite"]
    today, missing = without_result(run, all_cases + new)
    assert (len(today), len(missing)) == (len(before[0]) + 1, len(before[1]) + 1)
