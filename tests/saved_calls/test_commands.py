"""``repro --shrink``, ``repro FILE``, ``repro --export`` and ``run --record``, on engines that fail and crash."""

from __future__ import annotations

import json
import os
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from judging import in_process

from verispec import exits
from verispec.errors import VerispecError
from verispec.run import runfile
from verispec.saved_calls import file
from verispec.saved_calls.export import _comparison

RRS_7 = "sampler/rejection_random_sample:RRS-7:draft=present;place=middle"
GENERATED = "sampler/expand_batch_to_tokens:EXP-1:dtype=float32;mode=generated"
CRASH = "sampler/expand_batch_to_tokens:EXP-1:counts=one;dtype=bool"
RELATION = "sampler/expand_batch_to_tokens:EXP-1:relation=split;dtype=float32"
ENGINE = "small_calls:Plain"
Capsys = pytest.CaptureFixture[str]
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERISPEC_CACHE_DIR", str(tmp_path / "cache"))


def test_a_negative_draft_token_becomes_a_short_test(tmp_path: Path, capsys: Capsys) -> None:
    small, test = tmp_path / "small.safetensors", tmp_path / "test_bug.py"
    words = ("--engine", ENGINE, "--shrink", str(small), "--export", str(test))
    code, out, _ = in_process(capsys, "repro", RRS_7, *words)
    assert code == exits.BAD
    assert "run here without verispec, the test fails: AssertionError: Tensor-likes are not equal!" in " ".join(
        out.split()
    )
    text = test.read_text()
    assert len(text.splitlines()) < 40
    assert "verispec" not in text.replace("Written by verispec repro --export.", "")
    assert "draft_token_ids = torch.tensor([1, -1], dtype=torch.int32)" in text

    code, out, _ = in_process(capsys, "repro", str(small), "--engine", ENGINE, "--json")
    said = json.loads(out)
    assert (code, said["case"]["failure"]["output"]) == (exits.BAD, "output_token_ids_ptr")
    assert said["case"]["detail"]["inputs"]["vocab_size"] == {"value": 2}
    assert in_process(capsys, "repro", str(small), "--engine", "reference")[0] == exits.GOOD
    assert in_process(capsys, "repro", str(small))[0] == exits.BAD, "the file names its engine"


def test_shrinking_takes_nothing_from_the_limit_of_the_case(tmp_path: Path, capsys: Capsys) -> None:
    """More than ten calls of 0.3 s under a limit of 3 s, which one call keeps on a busy machine too."""
    small = tmp_path / "small.safetensors"
    words = ("--engine", "small_calls:Slow", "--timeout", "3", "--shrink", str(small))
    code, out, _ = in_process(capsys, "repro", RRS_7, *words)
    assert (code, f"{RRS_7}  fail" in out) == (exits.BAD, True)
    assert file.read(small).tensors["draft_token_ids_ptr"].tolist() == [1, -1]


def test_a_generated_case_is_shrunk_to_the_three_requests_that_it_takes(tmp_path: Path, capsys: Capsys) -> None:
    small = tmp_path / "small.safetensors"
    code, _, _ = in_process(capsys, "repro", GENERATED, "--engine", ENGINE, "--shrink", str(small))
    assert code == exits.BAD
    found = file.read(small)
    assert found.tensors["cu_num_tokens_ptr"].tolist()[-1] == 1
    assert found.tensors["input_ptr"].shape == (3,)


def test_a_crash_leaves_its_inputs(tmp_path: Path, capsys: Capsys) -> None:
    calls, results = tmp_path / "calls", tmp_path / "run.jsonl"
    only = ("--only", "sampler/expand_batch_to_tokens:EXP-1:counts=one")
    code, out, _ = in_process(
        capsys, "run", "--engine", ENGINE, *only, "--record", str(calls), "--out", str(results)
    )  # fmt: skip
    assert code == exits.BAD
    (crashed,) = (r for r in runfile.read(results).records if r.failed)
    assert (crashed.id, crashed.outcome) == (CRASH, "crash")
    path = Path(crashed.failure["details"]["saved case"])
    assert f"inputs in {path}" in " ".join(out.split())
    assert [p.name for p in calls.iterdir()] == [path.name], "no other case and no other launch is left"
    assert file.read(path).tensors["input_ptr"].dtype == bool
    test = tmp_path / "test_crash.py"
    code, out, _ = in_process(capsys, "repro", str(path), "--engine", ENGINE, "--export", str(test))
    assert code == exits.BAD
    assert "without verispec, the test crashes" in out
    assert in_process(capsys, "repro", str(path), "--engine", "reference")[0] == exits.GOOD


def test_what_cannot_be_exported_is_said(tmp_path: Path, capsys: Capsys) -> None:
    test, small = tmp_path / "test_bug.py", tmp_path / "small.safetensors"
    engine = ("--engine", "broken_engines:LosesWrites")
    code, out, err = in_process(capsys, "repro", GENERATED, *engine, "--export", str(test), "--shrink", str(small))
    assert code == exits.CANNOT_TELL
    assert f"{GENERATED}  fail" in out, "the outcome of the case is shown all the same"
    assert f"case in {small}" in " ".join(out.split())
    assert "does not say how its users call expand_batch_to_tokens" in err
    assert [err.count(once) for once in ("V-REPRO-EXPORT", "hint:", GENERATED)] == [1, 1, 0]
    assert not test.exists()
    code, _, _ = in_process(capsys, "repro", RRS_7, "--engine", "reference", "--export", str(test))
    assert (code, test.exists()) == (exits.GOOD, False), "a case that passes needs no test"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--export", "bug.txt"), "the name does not end in .py"),
        (("--export", "nowhere/test_bug.py"), "the folder does not exist"),
        (("--export", "mine.py"), "it exists and is not an exported test"),
        (("--shrink", "case.npz"), "the name does not end in .safetensors"),
        (("--shrink", "model.safetensors"), "cannot be read"),
    ],
    ids=str,
)
def test_nothing_of_ones_own_is_replaced(
    words: tuple[str, str], said: str, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("x = 1\n")
    Path("model.safetensors").write_text("weights")
    code, out, err = in_process(capsys, "repro", CRASH, *words)
    assert (code, out) == (exits.USAGE, "")
    assert said in err
    assert Path("mine.py").read_text() == "x = 1\n"


def test_a_folder_that_cannot_be_written_ends_the_run_and_keeps_its_results(tmp_path: Path, capsys: Capsys) -> None:
    calls, results = tmp_path / "calls", tmp_path / "run.jsonl"
    with patch.dict(os.environ, VERISPEC_TEST_FOLDER=str(calls)):
        code, out, err = in_process(
            capsys, "run", "--engine", "small_calls:RemovesTheFolder", "--only", "sampler/expand_batch_to_tokens:EXP-2",
            "--record", str(calls), "--out", str(results),
        )  # fmt: skip
    assert (code, out) == (exits.CANNOT_TELL, "")
    assert "V-RUN-RECORD" in err
    assert "No such file or directory" in err
    assert "go on with --resume" in err
    assert [r.outcome for r in runfile.read(results).records] == ["pass"], "the case before it is kept"


def test_a_bound_of_no_single_element_is_refused_with_its_reason() -> None:
    saved = file.SavedCase(RRS_7, 7, ENGINE, failure={"kind": "imprecise", "compare": "bound", "output": "output"})
    with pytest.raises(VerispecError, match="so that none is wrong alone"):
        list(_comparison(saved, "output", torch.zeros(1), np.zeros(1)))
