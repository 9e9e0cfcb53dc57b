"""Steps of samplers: which request is certain, the smallest step that fails, and its test."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from judging import in_process
from small_calls import Stepwise, verify

from verispec import exits
from verispec.cases.sampling import greedy_tokens, random_sampler_batch
from verispec.engines.protocol.sampling import SamplerBatch
from verispec.judge import Mismatch, SamplerUnderTest
from verispec.saved_calls import file, steps

MIXED = "sampler/whole_sampler:WS-1:batch=mixed;draft=present"
SAMPLED = "sampler/whole_sampler:WS-2:change=alone;draft=present"
Capsys = pytest.CaptureFixture[str]
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path / "cache"))


def batch(heat: list[float], counts: tuple[int, ...] = (3, 0, 2), **options: object) -> SamplerBatch:
    return random_sampler_batch(np.random.default_rng(1), counts, temperature=heat, **options)


def test_a_request_is_certain_if_one_token_is_left() -> None:
    step = batch([0.0, 0.8, 0.8])
    assert steps.certain_tokens(step, 0) == greedy_tokens(step, 0)
    assert steps.certain_tokens(step, 1) is None
    limited = batch([0.8, 0.8, 0.8], top_k=1, draft=False)
    assert steps.certain_tokens(limited, 2) == greedy_tokens(limited, 2)
    assert steps.certain_tokens(replace(limited, synthetic_rates=[0.5] * 3), 2) is None


def test_what_a_drafter_was_certain_of_is_not_certain() -> None:
    """After its rejection nothing is left of the one token that the target wants."""
    logits, q = torch.zeros(2, 4), torch.zeros(1, 4)
    logits[:, 1], q[0, 1] = 100.0, 1.0
    step = SamplerBatch(logits, [[2]], torch.ones(1), q)
    assert steps.certain_tokens(step, 0) is None
    assert steps.certain_tokens(replace(step, draft_token_ids=[[1]]), 0) == [1, 1]


def test_two_requests_are_left_of_a_mixed_batch() -> None:
    step = batch([0.8, 0.0, 0.8, 0.0, 0.0], (3, 5, 2, 0, 4), top_p=0.9, seeds=[1, 2, 3, 4, 5])
    found = steps.smallest(SamplerUnderTest(Stepwise().sampler()), step, 30)
    assert found is not None
    small, wrong = found
    assert sorted(small.temperature.tolist()) == [0.0, 1.0]
    assert (small.counts, small.seeds, small.top_p, small.draft_probs) == ([0, 0], None, None, None)
    assert wrong.got == (0,) != wrong.expected
    tensors, plain = steps.to_arrays(small)
    again = steps.from_arrays(tensors, json.loads(json.dumps(plain)))
    with pytest.raises(Mismatch, match="emitted \\[0\\], expected"):
        steps.require_right(SamplerUnderTest(Stepwise().sampler()), again)


def test_a_step_that_is_right_is_not_accused() -> None:
    sampler = SamplerUnderTest(Stepwise().sampler())
    assert steps.smallest(sampler, batch([0.0, 0.0, 0.0]), 30) is None
    assert steps.smallest(sampler, batch([0.8, 0.8, 0.8]), 30) is None


def test_a_fault_by_chance_is_looked_for_again() -> None:
    """A greedy request that is sampled emits the right token now and then."""
    calls = iter([True, False] * 1000)

    def lucky(given: SamplerBatch) -> list[list[int]]:
        drafts = [list(ids) for ids in given.draft_token_ids]
        heat = torch.zeros(len(drafts)) if next(calls) else given.temperature
        return verify(given.logits, drafts, heat)

    assert steps.smallest(SamplerUnderTest(lucky), batch([0.8, 0.0, 0.8]), 30) is not None


def test_an_exception_stays_the_same_exception() -> None:
    def raising(given: SamplerBatch) -> list[list[int]]:
        if len(given.draft_token_ids) < 2:
            raise RuntimeError("one request")
        if given.top_k is not None and given.num_drafts == 0:
            raise RuntimeError("nothing to reduce")
        return verify(given.logits, [list(ids) for ids in given.draft_token_ids], given.temperature)

    found = steps.smallest(SamplerUnderTest(raising), batch([0.8] * 4, (0, 0, 0, 0), top_k=3), 30)
    assert found is not None
    small, wrong = found
    assert (wrong.error, len(small.draft_token_ids), small.top_k is not None) == (
        "RuntimeError: nothing to reduce",
        2,
        True,
    )


def test_a_sampler_case_becomes_a_short_test(tmp_path: Path, capsys: Capsys) -> None:
    small, test = tmp_path / "small.safetensors", tmp_path / "test_step.py"
    words = ("--engine", "small_calls:Stepwise", "--shrink", str(small), "--export", str(test))
    code, out, _ = in_process(capsys, "repro", MIXED, *words)
    assert code == exits.BAD
    assert "run here without verispec, the test fails" in out
    text = test.read_text()
    assert len(text.splitlines()) < 25
    assert "verispec" not in text.replace("Written by verispec repro --export.", "")
    assert "logits = 200.0 * torch.eye(" in text
    assert file.read(small).failure["message"].startswith("request ")
    code, out, _ = in_process(capsys, "repro", str(small), "--engine", "small_calls:Stepwise", "--json")
    said = json.loads(out)["case"]
    assert (code, said["failure"]["kind"]) == (exits.BAD, "value")
    assert said["detail"]["inputs"]["draft_token_ids"]["value"] == file.read(small).step["batch"]["draft_token_ids"]
    assert said["detail"]["outputs"]["tokens"]["value"]
    assert in_process(capsys, "repro", str(small), "--engine", "reference")[0] == exits.GOOD


def test_the_message_beside_a_small_step_is_that_of_the_small_step(tmp_path: Path, capsys: Capsys) -> None:
    small = tmp_path / "small.safetensors"
    words = ("--engine", "small_calls:Stepwise", "--shrink", str(small), "--json")
    said = json.loads(in_process(capsys, "repro", MIXED, *words)[1])["case"]
    step = file.read(small).step
    assert said["failure"]["message"] == file.read(small).failure["message"]
    assert said["failure"]["details"] == {"expected": step["expected"], "got": step["got"]}
    assert said["detail"]["outputs"]["tokens"]["value"][step["request"]] == step["got"]


def test_the_test_of_a_step_imports_torch_for_its_logits(tmp_path: Path, capsys: Capsys) -> None:
    """The engine's own lines need no torch; those of the logits always do."""
    test = tmp_path / "test_step.py"
    words = ("--engine", "small_calls:WithoutTorch", "--export", str(test))
    code, out, _ = in_process(capsys, "repro", MIXED, *words)
    assert (code, "the test fails: AssertionError" in " ".join(out.split())) == (exits.BAD, True), out
    assert test.read_text().count("import torch") == 1


def test_a_case_that_is_kept_by_its_seed_says_so(tmp_path: Path, capsys: Capsys) -> None:
    small = tmp_path / "small.safetensors"
    code, out, _ = in_process(capsys, "repro", SAMPLED, "--engine", "small_calls:Stepwise", "--shrink", str(small))
    assert (code, file.read(small).step) == (exits.BAD, {})
    assert "no single call is wrong for certain" in " ".join(out.split())


@pytest.mark.parametrize(
    ("case", "engine", "said"),
    [
        (MIXED, "Silent", "does not say how its users do this without verispec"),
        (SAMPLED, "Stepwise", "no request of the last step has one right answer"),
    ],
    ids=["engine", "sampled"],
)
def test_what_has_no_test_is_said_with_its_reason(
    case: str, engine: str, said: str, tmp_path: Path, capsys: Capsys
) -> None:
    test = tmp_path / "test_step.py"
    code, _, err = in_process(capsys, "repro", case, "--engine", f"small_calls:{engine}", "--export", str(test))
    assert code == exits.CANNOT_TELL
    assert said in " ".join(err.split())
    assert not test.exists()
