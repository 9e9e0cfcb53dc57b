"""Calls at the boundaries of an oracle's comparisons: what a changed call must keep to be one."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.judge import OpUnderTest
from verispec.reference import contracts
from verispec.reference.contracts import Contract
from verispec.suites.sampler._calls import MadeCall

STRUCTURE = frozenset({
    "expanded_idx_mapping", "expanded_local_pos", "idx_mapping", "num_accepted", "num_sampled", "num_reqs",
    "batch_size", "num_tokens", "max_num_tokens", "total_input_tokens", "max_spec_len", "vocab_size",
    "parent_list", "selected_index", "verified_seq_len", "topk", "depth", "draft_token_num", "tree_mask_mode",
    "retrieve_index", "retrieve_next_token", "retrieve_next_sibling", "TOTAL_CP_RANK",
    "num_rejected_tokens_ptr",
})  # fmt: skip
"""Parameters that describe the layout of a batch or a group: one value alone cannot change without the others."""


def structure(op: str) -> frozenset[str]:
    """Return the parameters of an op whose values depend on each other, cumulative sums among them."""
    return STRUCTURE | {t.name for t in contracts.load(op).tensors if t.cumulative or t.within}


def complete(op: OpUnderTest, call: MadeCall) -> tuple[dict[str, Any], MadeCall]:
    """All arguments of a call as the oracle takes them, outputs included."""
    inputs, _ = op.call(call.values, shapes=call.shapes)
    return inputs, call


def made_by_the_harness(contract: Contract) -> set[str]:
    return {t.name for t in contract.outputs if t.role == "out"}


def shapes_of(contract: Contract, values: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the outputs, which no change of a value affects."""
    return {t.name: values[t.name].shape for t in contract.outputs if values.get(t.name) is not None}


def fits(contract: Contract, values: dict[str, Any]) -> bool:
    """Return True if a changed call still fits the contract, in its values too."""
    from verispec.reference.contracts._check import ContractError, bind, check

    for tensor in contract.tensors:
        value = values.get(tensor.name)
        if tensor.minimum is not None and value is not None and np.any(np.asarray(value) < tensor.minimum):
            return False
    try:
        check(contract, bind(contract, (), values))
    except ContractError:
        return False
    return True
