"""cap_draft_tokens: an op of one's own, with its contract, its oracle and its suite in one file."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.cases import case
from verispec.judge import OpUnderTest
from verispec.reference.contracts import Clause, Contract, Role, Scalar, Tensor, register

CONTRACT = Contract(
    name="cap_draft_tokens",
    family="shared",
    summary="Limit the number of draft tokens of each request so that it stays below its maximum length.",
    axes={"B": "requests"},
    params=(
        Tensor("capped", ("B",), ("int32", "int64"), "draft tokens to verify", role=Role.OUT, production="int32"),
        Tensor("num_drafts", ("B",), ("int32", "int64"), "proposed draft tokens", production="int32"),
        Tensor("seq_lens", ("B",), ("int32", "int64"), "tokens so far", production="int32"),
        Scalar("max_len", int, "largest number of tokens of a request"),
    ),
    clauses=(
        Clause("CAP-1", "capped is num_drafts where seq_lens + num_drafts is below max_len.", "this example"),
        Clause("CAP-2", "capped leaves room for the bonus token, and is never negative.", "this example"),
    ),
)


def cap_draft_tokens(*, capped: Any, num_drafts: Any, seq_lens: Any, max_len: int) -> dict[str, Any]:
    """Return the expected output: the clauses, executed with plain loops."""
    result = capped.copy()
    for b in range(len(num_drafts)):
        result[b] = max(0, min(num_drafts[b], max_len - seq_lens[b] - 1))
    return {"capped": result}


register(CONTRACT, cap_draft_tokens)
MAX_LEN = 64


@case("CAP-1", requests=[1, 3, 65], reach="every step")
def test_room_for_all(op: OpUnderTest, seed: int, requests: int) -> None:
    rng = np.random.default_rng(seed)
    drafts, lengths = rng.integers(0, 8, requests), rng.integers(1, MAX_LEN - 9, requests)
    op.check_outputs({"num_drafts": drafts, "seq_lens": lengths, "max_len": MAX_LEN})


@case("CAP-2", left=[0, 1, 2, 5], reach="a request that nears its maximum length")
def test_little_room(op: OpUnderTest, seed: int, left: int) -> None:
    lengths = np.asarray([3, MAX_LEN - left, 7])
    op.check_outputs({"num_drafts": np.asarray([4, 4, 4]), "seq_lens": lengths, "max_len": MAX_LEN})
