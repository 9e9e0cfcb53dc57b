"""``verispec repro`` shows all of a case: what went in, what came out, what was expected, and where it broke."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from judging import importable

from verispec import exits
from verispec.cli import main
from verispec.run import captured_call

WS_9 = "sampler/whole_sampler:WS-9:draft=present;limits=none;batch=mixed"
WS_7 = "sampler/whole_sampler:WS-7:batch=mixed"
LAW = "sampler/whole_sampler:WS-10:limits=none;draft=present;mode=law"
EXPAND = "sampler/expand_batch_to_tokens:EXP-2:dtype=float32;cu=int32"

Repro = Callable[..., tuple[int, str, str]]


@pytest.fixture
def repro(capsys: pytest.CaptureFixture[str]) -> Repro:
    def call(*words: str) -> tuple[int, str, str]:
        with importable(), pytest.raises(SystemExit) as stop:
            main(["repro", *words])
        return int(stop.value.code or 0), *capsys.readouterr()

    return call


def test_a_sampler_shows_logits_probabilities_samples_and_seeds(repro: Repro, tmp_path: Path) -> None:
    saved = tmp_path / "case.npz"
    code, out, _ = repro(WS_9, "--engine", "own_samplers:Correct", "--save", str(saved))
    assert code == exits.GOOD
    for name in ("logits", "draft_probs", "target_probs", "uniform[0]", "noise[0]", "seeds", "temperature", "tokens"):
        assert f"\n  {name} " in out, name
    assert f"values in {saved}" in " ".join(out.split())
    call = captured_call.read(saved)
    p, logits = call["inputs"]["target_probs"], call["inputs"]["logits"]
    assert p.shape == logits.shape == (21, 50)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert len(call["outputs"]["tokens"]) == 7


def test_a_generation_shows_its_options_and_requests(repro: Repro) -> None:
    """`request 1, token 0: log-probability ...` said nothing of the temperature of request 1."""
    code, out, _ = repro("e2e/logprobs:GEN-30:draft=none;mode=processed", "--engine", "reference")
    assert code == exits.GOOD
    assert "method=none" in out
    assert "logprobs_mode=processed" in out
    assert re.search(r"request 1 +prompt of \d+ tokens, .*logprobs=\d", out)
    assert "logit_bias={}" not in out


def test_full_prints_every_element(repro: Repro) -> None:
    code, out, _ = repro(EXPAND, "--engine", "broken_engines:LosesWrites", "--full")
    assert code == exits.BAD
    assert "\nexpected\n" in out
    assert " ... " not in out


def test_json_names_the_file_of_the_values(repro: Repro, tmp_path: Path) -> None:
    saved = tmp_path / "case.npz"
    _, out, _ = repro(EXPAND, "--engine", "broken_engines:LosesWrites", "--save", str(saved), "--json")
    told = json.loads(out)
    assert told["saved"] == str(saved)
    assert set(told["case"]["detail"]) == {"inputs", "outputs", "expected"}
    assert set(captured_call.read(saved)["expected"]) == {"output_ptr"}


def test_an_exception_has_its_file_and_line(repro: Repro) -> None:
    code, out, _ = repro(WS_7, "--engine", "own_samplers:Raises")
    assert code == exits.BAD
    assert 'own_samplers.py", line' in out
    assert "in look_up" in out
    assert "RuntimeError: no kernel for 50 tokens" in out
    assert "/judge/" not in out, "the harness's own frames help nobody"


def test_a_distribution_shows_observed_against_expected(repro: Repro) -> None:
    code, out, _ = repro(LAW, "--engine", "own_samplers:AlwaysRecoversZero")
    assert code == exits.BAD
    assert "  cell  observed  expected  deviation" in out
    assert re.search(r"\n +15 +\d+ +\d+(\.\d+)? +-?\d", out)


def test_a_missing_trace_says_what_to_write(repro: Repro) -> None:
    code, out, _ = repro(WS_9, "--engine", "own_samplers:Untraced")
    assert code == exits.CANNOT_TELL
    assert "unsupported: the sampler has no 'trace'" in out
    assert "write trace(self, batch) -> Trace" in out
    assert "reached" not in out


@pytest.mark.parametrize("family", ["block", "request_state", "fused"])
def test_a_sampler_of_any_name_is_tested_as_the_flat_one_alone(repro: Repro, family: str) -> None:
    """An engine with one sampler ignored the family, and was accused of the rule of blocks."""
    case = "sampler/whole_sampler:WS-10:family={};limits=none;draft=present;mode=law"
    code, out, _ = repro(case.format(family), "--engine", "own_samplers:Untraced")
    assert code == exits.CANNOT_TELL
    assert f"to have '{family}' tested, return Unsupported(reason) for families" in " ".join(out.split())


def test_an_answer_of_another_type_accuses_no_clause(repro: Repro) -> None:
    code, out, _ = repro(WS_7, "--engine", "own_samplers:ReturnsNone")
    assert code == exits.CANNOT_TELL
    assert "V-ENG-PROTOCOL sampler(batch): expected a list of 3 lists of token ids, got None" in " ".join(out.split())
    assert "reached" not in out


@pytest.mark.parametrize("name", ["folder", "notes.txt", "missing/case.npz"])
def test_nothing_but_a_former_file_of_values_is_replaced(repro: Repro, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    code, out, err = repro(EXPAND, "--save", str(tmp_path / name))
    assert (code, out) == (exits.USAGE, "")
    assert "V-REPRO-SAVE" in err
    assert (tmp_path / "notes.txt").read_text() == "mine"
