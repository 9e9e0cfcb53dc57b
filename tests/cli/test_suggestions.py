"""A typing error gets the nearest right name, in every command; help pages have examples; missing extras are named."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from verispec import exits
from verispec.cases import selects
from verispec.cases.nearby import nearby
from verispec.cli import COMMANDS, main

IDS = (
    "sampler/rejection_random_sample:RRS-7:vocab=8;draft=present",
    "sampler/rejection_random_sample:RRS-17:vocab=8",
    "sampler/rejection_greedy_sample:RGS-1:b=3",
    "sampler/expand_batch_to_tokens:EXP-2:dtype=int32;cu=int32",
    "sampler/expand_batch_to_tokens:EXP-2:dtype=int64;cu=int32",
)


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    return int(stop.value.code or 0), *capsys.readouterr()


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("RRS-7", "*:RRS-7*"),
        ("rrs-7", "*:RRS-7*"),
        ("rejection_random_sampl", "sampler/rejection_random_sample"),
        ("expand", "sampler/expand_batch_to_tokens"),
        ("sampler/expand_batch_to_token", "sampler/expand_batch_to_tokens"),
        ("sampler/expand_batch_to_token:EXP-2", "sampler/expand_batch_to_tokens:EXP-2"),
        ("sampler/expand_batch_to_tokens:EXP-2:dtype=int23", "sampler/expand_batch_to_tokens:EXP-2:dtype=int32"),
    ],
)
def test_a_pattern_is_led_to_one_that_matches(pattern: str, meant: str) -> None:
    found = nearby(pattern, IDS)
    assert found[0] == meant
    assert all(any(selects(each, case) for case in IDS) for each in found)


def test_an_id_is_led_to_an_id() -> None:
    assert nearby("sampler/expand_batch_to_tokens:EXP-2:dtype=int32;cu=int23", IDS, exact=True)[0] == IDS[3]
    assert nearby("nothing like it", IDS) == []
    others = [f"sampler/expand_batch_to_tokens:EXP-{n}" for n in range(3, 8)]  # shorter, so more alike
    assert nearby("sampler/expand_batch_to_tokens:EXP-2", [*others, *IDS], exact=True)[:2] == list(IDS[3:])
    assert nearby("sampler/expand_batch_to_tokens:EXP-2:dtype=int64", [*others, *IDS], exact=True)[0] == IDS[4]


@pytest.mark.parametrize(("typo", "meant"), [("rnu", "run"), ("bisekt", "bisect"), ("enginse", "engines")])
def test_a_command_is_led_to_one_that_exists(capsys: pytest.CaptureFixture[str], typo: str, meant: str) -> None:
    code, _, err = call(capsys, typo)
    assert code == exits.USAGE
    assert re.search(rf"No such command '{typo}'\. Did you mean [\w ]*\b{meant}\b", err)


@pytest.mark.parametrize("words", [("engines", "referenc"), ("repro", "a/b:C-1", "--engine", "referenc")])
def test_an_engine_is_led_to_one_that_exists(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    if words[0] == "repro":
        words = ("repro", IDS[3], *words[2:])
    code, _, err = call(capsys, *words)
    assert code == exits.USAGE
    assert "did you mean reference" in err


def test_collecting_nothing_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "run", "--collect", "--only", "typo")
    assert (code, out) == (exits.USAGE, "")
    assert "V-RUN-SELECT" in err


@pytest.mark.parametrize("name", ["sampler/expand_batch:EXP-2", "sampler/expand_batch_to_tokens:EXP-22"])
def test_a_case_that_cannot_be_explained_has_near_names(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, _, err = call(capsys, "explain", name)
    assert code == exits.USAGE
    assert "did you mean" in err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_page_has_an_example_that_parses(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, _ = call(capsys, command, "--help")
    assert code == exits.GOOD
    assert "Examples:" in out, command
    examples = [line.strip() for line in out.splitlines() if line.strip().startswith(f"verispec {command}")]
    assert examples, command
    assert all(len(shlex.split(example)) >= 2 for example in examples if example.count("'") % 2 == 0)


def run_without(package: str, *selection: str) -> subprocess.CompletedProcess[str]:
    """Ask for a run in a process from which `package` is hidden."""
    code = (
        "import importlib.util as u, sys\n"
        "find = u.find_spec\n"
        f"u.find_spec = lambda name, *a: None if name == {package!r} else find(name, *a)\n"
        "from verispec.cli import main\n"
        f"main(['run', *{list(selection)}])"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_a_missing_extra_is_named() -> None:
    """Not "a fault of the suites"."""
    done = run_without("pytest", "--only", "sampler/expand_batch_to_tokens:EXP-2")
    assert done.returncode == exits.CANNOT_TELL
    assert "V-RUN-EXTRA verispec[judge]: running cases needs pytest, which is not installed" in done.stderr
    assert "pip install 'verispec[judge]'" in done.stderr


@pytest.mark.parametrize("selection", [[], ["--suite", "e2e"], ["--only", "e2e/greedy:GEN-1"]])
def test_generation_needs_an_extra_of_its_own(selection: list[str]) -> None:
    done = run_without("transformers", *selection)
    assert done.returncode == exits.CANNOT_TELL
    assert "V-RUN-EXTRA verispec[generate]: the suite e2e needs transformers" in done.stderr
    assert "--suite sampler" in " ".join(done.stderr.split())


def test_kernels_need_no_extra_of_generation() -> None:
    done = run_without("transformers", "--only", "sampler/expand_batch_to_tokens:EXP-2")
    assert done.returncode == exits.GOOD, done.stderr


def test_a_word_of_reports_leads_to_its_cases_and_clauses(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "explain", "greedy")
    told = " ".join(err.split())
    assert code == exits.USAGE
    assert "e2e/greedy is a group of cases, which 'verispec run --collect --only e2e/greedy:' lists" in told
    assert re.search(r"'greedy' is a word of the clauses (WS-\d+|GEN-\d+), .* and others", told)
    assert "is a word of" not in call(capsys, "explain", "xyzzy")[2]
