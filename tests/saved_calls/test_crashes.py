"""``repro --shrink`` of calls that end or hang their process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from judging import in_process

from verispec import exits
from verispec.judge import OpCall
from verispec.reference import contracts
from verispec.saved_calls import crashes, file
from verispec.saved_calls.shrink import allowed

OP = "sampler/expand_batch_to_tokens"
ENGINE = ("--engine", "small_calls:FailsWithoutAnError")
Capsys = pytest.CaptureFixture[str]
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [("crashes", "crash"), pytest.param("hangs", "timeout", marks=pytest.mark.slow)],  # every trial waits a second
    ids=str,
)
def test_three_requests_are_left(
    ending: str, outcome: str, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERISPEC_TEST_ENDING", f"{ending} for three requests")
    monkeypatch.setattr(crashes, "TRIAL", 1.0)
    monkeypatch.setattr(crashes, "TOLD_EVERY", 0.0)
    small = tmp_path / "small.safetensors"
    words = (f"{OP}:EXP-1:counts=ragged;dtype=float32", *ENGINE, "--timeout", "5", "--shrink", str(small))
    code, out, err = in_process(capsys, "repro", *words)
    assert code == exits.BAD
    assert "trials, each in a process of its own" in out
    assert "shrinking: 2 trials, " in err
    found = file.read(small)
    assert found.tensors["input_ptr"].shape == (3,)
    assert found.failure["kind"] == outcome
    assert in_process(capsys, "repro", str(small), *ENGINE, "--timeout", "5")[0] == exits.BAD
    assert in_process(capsys, "repro", str(small), "--engine", "reference")[0] == exits.GOOD


def test_a_crash_that_needs_earlier_calls_is_not_shrunk(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERISPEC_TEST_ENDING", "crashes at its fifth call")
    small = tmp_path / "small.safetensors"
    case = f"{OP}:EXP-1:dtype=float32;mode=generated"
    code, out, _ = in_process(capsys, "repro", case, *ENGINE, "--shrink", str(small), "--json")
    said = json.loads(out)
    assert (code, said["not_shrunk"], "shrunk" in said) == (exits.BAD, "1", False)
    assert "SIGSEGV" in file.read(small).failure["message"]


def test_dtypes_that_belong_together_stay_together() -> None:
    values = {"input_ptr": [1, 0], "cu_num_tokens_ptr": [1, 2], "replace_from": 0, "replace_to": 1, "MAX_NUM_TOKENS": 1}
    contract, shapes = contracts.load("expand_batch_to_tokens"), {"output_ptr": (2,)}
    both, one = {"input_ptr": "bool", "output_ptr": "bool"}, {"output_ptr": "bool"}
    assert allowed(contract, OpCall(values, both, {}, shapes))
    assert not allowed(contract, OpCall(values, one, {}, shapes))
    assert not allowed(contract, OpCall({**values, "cu_num_tokens_ptr": [2, 1]}, both, {}, shapes))


def test_a_lost_device_leaves_its_inputs(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that breaks the CUDA context ends the worker, and says so before."""
    monkeypatch.setenv("VERISPEC_TEST_ENDING", "loses the device for three requests")
    small = tmp_path / "small.safetensors"
    code, out, _ = in_process(
        capsys, "repro", f"{OP}:EXP-1:counts=ragged;dtype=float32", *ENGINE, "--shrink", str(small)
    )
    assert (code, "the call was shrunk" in out) == (exits.BAD, True)
    assert file.read(small).tensors["input_ptr"].shape == (3,)
