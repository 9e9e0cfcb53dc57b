"""Every op of the reference, in Triton's interpreter and in C++, against the oracle over the same cases.

Where an op draws random numbers, oracle, C++ and Triton draw the same ones, so tokens and counts must be
equal on all three; only normalisers may differ by rounding.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from altered_calls import VARIANTS
from op_cases import Size, make, ops, small_cases, variants, verdict
from op_running import cache_holds_what_was_drawn_from, columns, negative_lengths_write_inside, run

from verispec.reference import contracts, cpu, oracle

HERE = Path(__file__).parent


def test_there_is_a_kernel_for_every_op_that_has_outputs() -> None:
    """An op without a case here would not be tested, nor one with alterations that has no maker."""
    assert set(VARIANTS) <= set(ops())
    assert set(ops()) == {name for name in contracts.names() if contracts.load(name).outputs}


@pytest.mark.parametrize("op", ops())
def test_triton_in_the_interpreter(op: str, interpreted: dict[str, dict[str, str]]) -> None:
    results = interpreted[op]
    assert any(case.endswith(";column") for case in results) == bool(columns(op))
    assert len(results) >= len(variants(op)) + 9, "two layouts of three modes and three sizes"
    assert not {case: problem for case, problem in results.items() if problem}


@pytest.mark.parametrize("op", ops())
@pytest.mark.parametrize("layout", ["dense", "strided"])
def test_cpp(op: str, layout: str) -> None:
    for case in small_cases(op):
        outputs, misdeeds = run(case, cpu.op(op), "cpu", layout=layout)
        assert not verdict(case, outputs), case.name
        assert not misdeeds, case.name


def test_cpp_draws_a_draft_from_what_its_cache_holds() -> None:
    assert cache_holds_what_was_drawn_from(cpu.op("gumbel_sample"))


def test_cpp_writes_inside_of_its_mask_under_negative_lengths() -> None:
    assert negative_lengths_write_inside(cpu.op("build_draft_tree"))


@pytest.mark.parametrize(
    ("op", "output"),
    [
        ("probabilistic_rejection", "num_accepted"),
        ("block_verification", "num_accepted"),
        ("residual_resample", "sampled"),
        ("synthetic_rejection", "num_sampled"),
        ("gumbel_sample", "sampled"),
        ("flatten_sampled", "flat_sampled"),
        ("philox", "words"),
        ("gather_draft_logits_and_target_argmax", "local_argmax"),
    ],
)
def test_the_verdict_sees_one_wrong_number(op: str, output: str) -> None:
    """The negative control: one number off is a problem that names the output."""
    case = make(op, variants(op)[0], Size(64))
    outputs = dict(case.expected())
    outputs[output] = outputs[output].copy()
    outputs[output].reshape(-1)[-1] += 1
    assert verdict(case, outputs).startswith(output)


def test_the_verdict_sees_a_token_too_many_and_a_wrong_tie() -> None:
    case = make("apply_top_k_top_p", "ties", Size(64))
    expected = case.expected()["output"]
    row = expected.shape[0] // 2
    logits = case.arguments["logits"]
    dropped = int((expected[row] == -float("inf")).nonzero()[0][0])
    more = expected.copy()
    more[row, dropped] = logits[row, dropped]
    assert "keeps" in verdict(case, {"output": more})
    other = more.copy()
    other[row, int(logits[row].argmax())] = -float("inf")
    assert "differ" in verdict(case, {"output": other})


def test_nothing_imports_triton_before_it_is_used() -> None:
    code = (
        "import sys, verispec.reference.triton, verispec.reference.contracts as c\n"
        "assert c.names() and 'triton' not in sys.modules and 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_oracles_take_what_contracts_say() -> None:
    """Parameter names of an oracle are its contract's, in the same order."""
    import inspect

    for op in ops():
        assert list(inspect.signature(oracle.load(op)).parameters) == [p.name for p in contracts.load(op).params]


def test_a_call_after_a_failed_launch_is_whole() -> None:
    """Programs of the failed launch took tickets of the scratch that the next launch uses."""
    command = [sys.executable, HERE / "interpreted_failure.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {"one": "", "two": "", "of top-p": ""}


def test_fused_ops_of_large_batches() -> None:
    """Small cases take one launch, which reads one chunk per program."""
    command = [sys.executable, HERE / "interpreted_two_launches.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    problems = json.loads(done.stdout)
    assert len(problems) > 20
    assert not {case: problem for case, problem in problems.items() if problem}
