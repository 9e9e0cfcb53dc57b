"""Outputs that pass values from verification to resampling: a step that resampling reads none of may have any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.faulty_engines.oracle_engine import from_oracle

from verispec.judge import Mismatch, OpUnderTest
from verispec.reference import contracts
from verispec.suites.sampler import test_block_verification as blocks
from verispec.suites.sampler import test_probabilistic_rejection as ratios
from verispec.suites.sampler._calls import BatchShape, make
from verispec.suites.sampler._request_state import batch, verify

SCRATCH = ("target_logsumexp", "draft_logsumexp", "log_prefix_ratio")
OPS = ("probabilistic_rejection", "block_verification")


def writing(name: str, change: Callable[[dict[str, Any], dict[str, torch.Tensor]], None]) -> OpUnderTest:
    """Return the oracle of an op, after which `change` gets the arguments and copies of its outputs before the call."""
    function = from_oracle(name)

    def op(**arguments: Any) -> None:
        before = {t.name: arguments[t.name].clone() for t in contracts.load(name).outputs}
        function(**arguments)
        change(arguments, before)

    return OpUnderTest(contracts.load(name), op)


def in_every_row(arguments: dict[str, Any], before: dict[str, torch.Tensor]) -> None:
    """Write the scratch values of each request that is not padding, as a kernel does that stores them at its end."""
    for name in SCRATCH:
        if name in arguments:
            kept = arguments[name].eq(before[name]) | (arguments[name].isnan() & before[name].isnan())
            arguments[name][kept & (arguments["idx_mapping"] >= 0)] = 7.0


@pytest.mark.parametrize("draft", ["present", "absent"])
@pytest.mark.parametrize("temperature", ["0", "0.7"])
def test_a_rejected_padding_token_may_have_normalisers(draft: str, temperature: str) -> None:
    """PRJ-7 and BLK-9 ask for them where p/q rejects, and resampling reads no others."""
    ratios.test_padding_tokens(writing(OPS[0], in_every_row), 5, -1, temperature, draft)
    blocks.test_greedy(writing(OPS[1], in_every_row), 5, "ragged", draft)
    for op in OPS:
        verify(writing(op, in_every_row), batch(5, "gaps", draft, temperature=float(temperature)))
        call = make(op, 5, BatchShape(draft=draft == "present", special=True))
        writing(op, in_every_row).check_outputs(call.values, shapes=call.shapes, compare=call.compare)


def test_positions_after_the_accepted_block_are_undefined() -> None:
    """BLK-8: a kernel may store all drafts, and count those that pass."""

    def all_drafts(arguments: dict[str, Any], before: dict[str, torch.Tensor]) -> None:
        for b, state in enumerate(arguments["idx_mapping"].tolist()):
            if state >= 0 and float(arguments["temperature"][state]) > 0:
                first, end = arguments["cu_num_logits"][b : b + 2].tolist()
                drafts = arguments["draft_sampled"][first + 1 : end]
                arguments["sampled"][b, : len(drafts)] = drafts.to(arguments["sampled"].dtype)

    for counts in ("ragged", "gaps"):
        verify(writing("block_verification", all_drafts), batch(5, counts, temperature=0.7))
    with pytest.raises(Mismatch, match="sampled"):
        verify(writing("probabilistic_rejection", all_drafts), batch(5, "ragged", temperature=0.7))


@pytest.mark.parametrize("op", OPS)
def test_padding_and_rejected_rows_keep_their_rules(op: str) -> None:
    def padding(arguments: dict[str, Any], before: dict[str, torch.Tensor]) -> None:
        arguments["target_logsumexp"][arguments["idx_mapping"] < 0] = 7.0

    def rejected(arguments: dict[str, Any], before: dict[str, torch.Tensor]) -> None:
        arguments["target_logsumexp"] += 0.01

    with pytest.raises(Mismatch, match="target_logsumexp"):
        verify(writing(op, padding), batch(5, "ragged", padding=[1]))
    with pytest.raises(Mismatch, match="target_logsumexp"):
        verify(writing(op, rejected), batch(5, "ragged", temperature=0.7))
