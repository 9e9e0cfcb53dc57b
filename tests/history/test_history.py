"""The history of many runs: each answer on runs whose results are known."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from verispec.cli import main
from verispec.errors import VerispecError
from verispec.history.page import as_html
from verispec.history.questions import Answers, ask
from verispec.history.store import Store

FIRST = datetime(2026, 11, 1, 2, 30)
"""Start of the first night."""
SLOW, FAST, SOLID = (f"sampler/expand_batch_to_tokens:EXP-1:counts={name}" for name in ("slow", "fast", "solid"))


LONG = "sampler/rejection_random_sample:RRS-14:layout=transposed;draft=present;check=" + "of many words" * 9


def night(folder: Path, day: int, results: dict[str, str], **about: Any) -> Path:
    """Write the results file of one night; `about` replaces fields of its header."""
    engine = {"asked": "toy", "name": "toy", "version": "1.0", "platform": "cpu", "device": "cpu", "digest": "d"}
    engine |= {"details": {}, **about.pop("engine", {})}
    started = (FIRST + timedelta(days=day)).isoformat() + "+00:00"
    header = {
        "type": "header", "format": 1, "verispec": "0.1.0", "engine": engine, "device": None, "platform": {"cpus": 2},
        "seed": 7, "budget": "standard", "command": ["verispec", "run"], "started": started, **about,
    }  # fmt: skip
    cases = [
        {"type": "case", "id": case, "outcome": outcome, "seconds": 0.5, "failure": {"kind": "value", "message": "no"}}
        for case, outcome in results.items()
    ]
    path = folder / f"{re.sub(r'[^a-z]', '-', str(engine['asked']))}-{day}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [header, *cases, {"type": "footer"}]))
    return path


def answers(folder: Path, **options: Any) -> Answers:
    store = Store(str(folder / "store"))
    store.add([str(folder / "*.jsonl")])
    return ask(store, **options)


def test_a_failure_has_the_run_that_began_it(tmp_path: Path) -> None:
    outcomes = ["pass", "fail", "pass", "fail", "crash", "fail"]
    for day, outcome in enumerate(outcomes):
        night(tmp_path, day, {SLOW: outcome, SOLID: "pass"}, engine={"version": f"1.{day}"})
    (failing,) = answers(tmp_path).failing
    assert (failing.case_id, failing.outcome, failing.runs) == (SLOW, "fail", 3)
    assert (failing.since, failing.version) == (FIRST + timedelta(days=3), "1.3")
    assert (failing.passed, failing.passed_version) == (FIRST + timedelta(days=2), "1.2")


def test_a_case_that_never_passed_fails_since_the_first_run(tmp_path: Path) -> None:
    for day in range(3):
        night(tmp_path, day, {SLOW: "timeout"})
    (failing,) = answers(tmp_path).failing
    assert (failing.since, failing.passed, failing.runs) == (FIRST, None, 3)


def test_a_known_failure_counts_as_what_was_observed(tmp_path: Path) -> None:
    path = night(tmp_path, 0, {SLOW: "xfail"})
    path.write_text(path.read_text().replace('"outcome": "xfail"', '"outcome": "xfail", "observed": "fail"'))
    assert [failing.case_id for failing in answers(tmp_path).failing] == [SLOW]


def test_the_newest_result_of_each_case_counts(tmp_path: Path) -> None:
    """A later run of a selection does not hide the failures of the cases that it left out."""
    night(tmp_path, 0, {SLOW: "fail", FAST: "fail"})
    night(tmp_path, 1, {FAST: "pass"})
    assert [failing.case_id for failing in answers(tmp_path).failing] == [SLOW]


def test_the_last_line_of_a_case_counts(tmp_path: Path) -> None:
    """Attribution writes a failing case a second time."""
    path = night(tmp_path, 0, {SLOW: "fail", FAST: "pass"})
    header, first, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([header, first, *rest[:1], first.replace('"fail"', '"pass"'), *rest[1:]]))
    found = answers(tmp_path)
    assert (found.cases, len(found.failing), len(found.flaky)) == (2, 0, 0)


def test_engines_that_disagree_are_named(tmp_path: Path) -> None:
    night(tmp_path, 0, {SLOW: "fail", FAST: "pass", SOLID: "fail"}, engine={"asked": "vllm"})
    night(tmp_path, 0, {SLOW: "pass", FAST: "unsupported", SOLID: "fail"}, engine={"asked": "toy"})
    night(tmp_path, 0, {SLOW: "pass", FAST: "pass", SOLID: "crash"}, engine={"asked": "reference"})
    (differing,) = answers(tmp_path).disagreements
    assert (differing.case_id, differing.passing, differing.failing) == (SLOW, ["reference", "toy"], ["vllm"])


@pytest.mark.parametrize("changed", [{"engine": {"digest": "e"}}, {"seed": 8}, {"verispec": "0.2.0"}, {}])
def test_a_flaky_case_changed_while_the_same_code_ran(changed: dict[str, Any], tmp_path: Path) -> None:
    night(tmp_path, 0, {SLOW: "pass", SOLID: "pass"})
    night(tmp_path, 1, {SLOW: "fail", SOLID: "pass"}, **changed)
    found = [(flaky.case_id, flaky.passes, flaky.failures) for flaky in answers(tmp_path).flaky]
    assert found == ([] if changed else [(SLOW, 1, 1)])


def test_runs_are_added_once(tmp_path: Path) -> None:
    night(tmp_path, 0, {SLOW: "pass"})
    store = Store(str(tmp_path / "store"))
    pattern = str(tmp_path / "*.jsonl")
    assert store.add([pattern, pattern]) == 1
    night(tmp_path, 1, {SLOW: "fail"})
    assert store.add([pattern]) == 1
    assert store.add([pattern]) == 0
    assert (ask(store).runs, ask(store).cases) == (2, 2)


def test_a_run_that_was_completed_later_gains_its_results(tmp_path: Path) -> None:
    whole = night(tmp_path, 0, {SLOW: "pass", FAST: "fail", SOLID: "pass"}).read_text()
    path = tmp_path / "toy-0.jsonl"
    path.write_text("".join(whole.splitlines(keepends=True)[:2]))
    store = Store(str(tmp_path / "store"))
    assert (store.add([str(path)]), ask(store).cases) == (1, 1)
    path.write_text(whole)
    assert (store.add([str(path)]), ask(store).cases, ask(store).runs) == (1, 3, 1)
    assert [failing.case_id for failing in ask(store).failing] == [FAST]
    assert (store.add([str(path)]), ask(store).cases) == (0, 3)


def test_of_two_copies_of_a_run_the_longer_one_counts(tmp_path: Path) -> None:
    whole = night(tmp_path, 0, {SLOW: "pass", FAST: "fail"})
    (tmp_path / "a-cut.jsonl").write_text("".join(whole.read_text().splitlines(keepends=True)[:2]))
    assert answers(tmp_path).cases == 2


def test_many_files_are_added_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part ends with its own file of the store, and a copy of a run in a later part is not added again."""
    monkeypatch.setattr("verispec.history.store.AT_ONCE", 2)
    for day in range(5):
        night(tmp_path, day, {SLOW: "pass"})
    (tmp_path / "z-copy.jsonl").write_bytes((tmp_path / "toy-0.jsonl").read_bytes())
    store = Store(str(tmp_path / "store"))
    assert store.add([str(tmp_path / "*.jsonl")]) == 5
    assert (store.count(), ask(store).runs, ask(store).cases) == (3, 5, 5)


def test_questions_can_be_narrowed(tmp_path: Path) -> None:
    for day in range(4):
        night(tmp_path, day, {SLOW: "fail", FAST: "fail"})
        night(tmp_path, day, {SLOW: "fail"}, engine={"asked": "vllm"})
    assert {f.engine for f in answers(tmp_path, engine="vllm").failing} == {"vllm"}
    assert {f.case_id for f in answers(tmp_path, case=FAST).failing} == {FAST}
    assert answers(tmp_path, since=FIRST + timedelta(days=2)).runs == 4
    newest = answers(tmp_path, nights=3).trend
    assert [(n.started, n.engine, n.cases, n.failing, n.seconds) for n in newest[:2]] == [
        (FIRST + timedelta(days=3), "toy", 2, 2, 1.0),
        (FIRST + timedelta(days=3), "vllm", 1, 1, 0.5),
    ]
    assert len(newest) == 3


def test_a_file_that_was_cut_off_keeps_its_cases(tmp_path: Path) -> None:
    path = night(tmp_path, 0, {SLOW: "fail", FAST: "pass"})
    path.write_text(path.read_text().rpartition('{"type": "footer"')[0] + '{"type": "case", "id": "samp')
    found = answers(tmp_path)
    assert (found.cases, [f.case_id for f in found.failing]) == (2, [SLOW])


def test_a_real_results_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with pytest.raises(SystemExit) as stop:
        main(
            [
                "run",
                "--engine",
                "reference",
                "--only",
                "sampler/expand_batch_to_tokens:EXP-1:counts=one",
                "--out",
                str(path),
            ]
        )
    assert stop.value.code == 0
    found = answers(tmp_path)
    assert (found.runs, found.cases > 0, found.failing) == (1, True, [])
    assert found.trend[0].engine == "reference"


def test_urls_are_read_and_written(tmp_path: Path) -> None:
    import fsspec

    files = fsspec.filesystem("memory")
    path = night(tmp_path, 0, {SLOW: "fail"})
    files.pipe("/nights/run.jsonl", path.read_bytes())
    store = Store("memory://store")
    assert store.add(["memory://nights/*.jsonl"]) == 1
    assert [failing.case_id for failing in ask(Store("memory://store")).failing] == [SLOW]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, "V-HIST-READ"),
        ('{"type": "case", "id": "a", "outcome": "pass"}\n', "V-HIST-READ"),
        ('{"type": "header", "format": 99, "started": "2026-11-01T00:00:00+00:00"}\n', "V-RUN-FORMAT"),
    ],
)
def test_what_is_no_results_file_is_named(text: str | None, code: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "run.jsonl").write_text(text)
    with pytest.raises(VerispecError) as caught:
        Store(str(tmp_path / "store")).add([str(tmp_path / "run.jsonl")])
    assert caught.value.diagnostic.code == code
    assert "run.jsonl" in caught.value.diagnostic.where
    assert not (tmp_path / "store").exists()


def test_an_empty_results_file_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "toy-0.jsonl"
    empty.touch()
    with pytest.raises(VerispecError, match=f"V-HIST-READ {empty}(.|\n)*it is empty"):
        Store(str(tmp_path / "store")).add([str(empty)])
    night(tmp_path, 1, {SLOW: "pass"})
    assert answers(tmp_path).cases == 1, "beside others it is left out"


def test_an_empty_history_cannot_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["history", str(tmp_path)])
    assert stop.value.code == 125
    assert "V-HIST-EMPTY" in capsys.readouterr().err


def test_the_command_prints_text_json_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    night(tmp_path, 0, {SLOW: "pass", LONG: "fail"})
    night(tmp_path, 1, {SLOW: "fail", LONG: "fail"})
    words = ["history", str(tmp_path / "store"), "--add", str(tmp_path / "*.jsonl")]
    with pytest.raises(SystemExit) as stop:
        main(words)
    printed = capsys.readouterr().out
    assert stop.value.code == 0
    assert "failing now: 2" in printed
    assert f"\n{LONG} " in printed, "an id that is cut cannot be copied"
    assert "2026-11-02" in printed and "2026-11-01 (1.0)" in printed
    page = tmp_path / "page.html"
    with pytest.raises(SystemExit):
        main([*words, "--json", "--html", str(page)])
    answered = json.loads(capsys.readouterr().out)
    assert answered["added"] == 0
    assert [f["case_id"] for f in answered["failing"]] == sorted([SLOW, LONG])
    text = page.read_text()
    assert SLOW in text and "http" not in text.replace("http-equiv", "")


def test_names_in_the_page_are_escaped(tmp_path: Path) -> None:
    night(tmp_path, 0, {SLOW: "fail"}, engine={"asked": "<script>alert(1)</script>"[:20]})
    assert "<script>" not in as_html(answers(tmp_path), "x")
