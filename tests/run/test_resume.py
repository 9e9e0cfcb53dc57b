"""Options of a resumed run: restored from its file, and refused when they differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_files import header

from verispec import exits
from verispec.errors import VerispecError
from verispec.run.plan import Plan
from verispec.run.resume import restored_plan

PATH = Path("run file.jsonl")
PLAN = {
    "device": "cpu",
    "only": ("sampler/x:EXP-1", "sampler/y:*"),
    "suites": ("sampler",),
    "seed": 8,
    "processes": 3,
    "timeout": 5.0,
}


def test_everything_comes_from_the_file() -> None:
    assert restored_plan({}, header(**PLAN), PATH) == Plan("vllm", **PLAN)
    assert restored_plan({}, header(smoke=True), PATH) == Plan("vllm", smoke=True)
    assert restored_plan({}, header(only=("sampler/x:EXP-1",), exact=True), PATH).exact


def test_the_same_options_may_be_given_again() -> None:
    assert restored_plan({"engine": "vllm", **PLAN}, header(**PLAN), PATH) == Plan("vllm", **PLAN)


def test_what_decides_nothing_may_differ() -> None:
    given = {"processes": 2, "timeout": 60.0, "start_timeout": 5.0}
    restored = restored_plan(given, header(**PLAN), PATH)
    assert (restored.processes, restored.timeout, restored.start_timeout) == (2, 60.0, 5.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"engine": "reference"}, "another --engine: was vllm, is reference"),
        ({"device": "cuda"}, "another --device: was cpu, is cuda"),
        ({"seed": 7}, "another --seed: was 8, is 7"),
        ({"only": ("sampler/x:EXP-1",)}, "another --only: was sampler/x:EXP-1 sampler/y:*, is sampler/x:EXP-1"),
        ({"suites": ("e2e",)}, "another --suite: was sampler, is e2e"),
        ({"exact": True}, "another --last-failed"),
    ],
)
def test_what_decides_results_may_not(given: dict[str, Any], said: str) -> None:
    with pytest.raises(VerispecError) as caught:
        restored_plan(given, header(**PLAN), PATH)
    assert (caught.value.diagnostic.code, caught.value.exit_code) == ("V-RUN-RESUME", exits.USAGE)
    assert said in caught.value.diagnostic.message
    assert "verispec run --resume 'run file.jsonl'" in caught.value.diagnostic.hint


def test_a_selection_is_not_added_to_a_full_run() -> None:
    with pytest.raises(VerispecError, match="was everything, is sampler/x"):
        restored_plan({"only": ("sampler/x",)}, header(), PATH)


def test_a_file_of_an_earlier_version_is_resumed() -> None:
    """Its header has no device and no `exact`."""
    old = header(seed=9)
    del old["device"], old["selection"]["exact"]
    assert restored_plan({}, old, PATH) == Plan("vllm", seed=9)
