"""Helpers shared by the suites of the slot-indexed family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verispec.cases.request_state import Array, RequestBatch, random_requests
from verispec.judge import Compare, OpUnderTest, exact
from verispec.reference.oracle._request_state import clean, logsumexp

REACH = "the GPU model runner verifies every batch of drafts this way"


def drafted_reach(params: Mapping[str, Any]) -> str | None:
    """Return `REACH` for calls with a draft token: vLLM's GPU model runner samples other batches without these ops."""
    return None if params["counts"] == "none" else REACH


COUNTS: dict[str, tuple[int, ...]] = {
    "one": (3,),
    "ragged": (3, 1, 5, 3),
    "gaps": (0, 3, 0, 4, 1, 0),
    "none": (0, 0, 0),
    "wide": (1,) * 33,
    "longest": (32, 1),
}
"""Draft tokens of each request, by name. The ragged ones are on average as many as the first, so that no total is right
for equal counts alone.
"""

DRAFT = ["present", "absent"]


def batch(seed: int, counts: str, draft: str = "present", vocab: int = 37, **options: Any) -> RequestBatch:
    """Return a batch without rows to spare, as engines pass it."""
    rng = np.random.default_rng(seed)
    return random_requests(rng, COUNTS[counts], vocab, draft=draft == "present", spare=0, **options)


def _left_free(name: str, expected: Array, inputs: Mapping[str, Any]) -> Array:
    """Return a mask of the elements that a verification may write and that resampling does not read, by requests.

    The contract gives them no value: the oracle leaves them as they are. A padding request writes nothing at all.
    """
    untouched: Array = exact(inputs[name], expected, inputs) == 0
    free: Array = untouched & (inputs["idx_mapping"] >= 0).reshape(-1, *(1,) * (expected.ndim - 1))
    return free


def _normaliser(name: str) -> Compare:
    """Return the comparison of an output that passes a number of the rejected row to resampling.

    It allows for a few rounding steps of 2^-24 in a float32 log-sum-exp. Requests without such a row may have any.
    """

    def compare(expected: Array, got: Array, inputs: Mapping[str, Any]) -> Array:
        wrong: Array = ~np.isclose(got, expected, rtol=2e-6, atol=2e-5, equal_nan=True)
        return wrong & ~_left_free(name, expected, inputs)

    return compare


def _block_tokens(expected: Array, got: Array, inputs: Mapping[str, Any]) -> Array:
    """Return a mask of the wrong tokens of block verification, whose later positions are undefined (BLK-8)."""
    wrong: Array = (exact(expected, got, inputs) != 0) & ~_left_free("sampled", expected, inputs)
    return wrong


NORMALISERS = {name: _normaliser(name) for name in ("target_logsumexp", "draft_logsumexp", "log_prefix_ratio")}


def compared(op: str) -> dict[str, Compare]:
    """Return the comparisons of the outputs of a verification, by name."""
    return {**NORMALISERS, "sampled": _block_tokens} if op == "block_verification" else NORMALISERS


def normalisers(values: Mapping[str, Any], accepted: Array) -> tuple[Array, Array]:
    """Return the log-sum-exps of target and draft, [B], at each request's rejected row; 0 if it has none.

    Args:
        values: arguments of a slot-indexed batch.
        accepted: accepted drafts of each request, [B].
    """
    target, draft = np.zeros(len(accepted)), np.zeros(len(accepted))
    starts, logits, draft_logits = (values[name] for name in ("cu_num_logits", "target_logits", "draft_logits"))
    for b, state in enumerate(values["idx_mapping"]):
        step = accepted[b]
        if state < 0 or step >= starts[b + 1] - starts[b] - 1:
            continue
        shared = logits.shape[1]
        if draft_logits is not None:
            shared = min(shared, draft_logits.shape[2])
            scale = float(values["temperature"][state]) or 1.0
            draft[b] = logsumexp(clean(draft_logits[state, step, :shared]) / scale)
        target[b] = logsumexp(clean(logits[starts[b] + step, :shared]))
    return target, draft


def verify(op: OpUnderTest, requests: RequestBatch, **options: Any) -> dict[str, Array]:
    """Call a verification op and compare all of its outputs."""
    shapes = {"sampled": (requests.requests, requests.columns)}
    return op.check_outputs(
        requests.arguments(op.contract), shapes=shapes, compare=compared(op.contract.name), **options
    )


def widths(op: OpUnderTest, which: str) -> dict[str, str]:
    """Return the same integer width for every parameter that accepts both."""
    return {t.name: which for t in op.contract.tensors if set(t.dtypes) == {"int32", "int64"}}


def layouts(op: OpUnderTest, layout: str) -> dict[str, str]:
    return dict.fromkeys((t.name for t in op.contract.tensors), layout)
