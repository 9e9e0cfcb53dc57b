"""multi_draft_verify: a verification rule of one's own, its oracle, and a test of its distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.cases import case
from verispec.judge import OpUnderTest
from verispec.judge.statistics import assert_distribution
from verispec.reference.contracts import Clause, Contract, Role, Tensor, register

INTEGERS = ("int32", "int64")
SOURCE = "Miao et al. 2024 (arXiv 2305.09781), algorithm 2"

CONTRACT = Contract(
    name="multi_draft_verify",
    family="shared",
    summary="Choose the next token from K independent drafts of one position.",
    axes={"B": "requests", "K": "drafts", "V": "vocabulary"},
    params=(
        Tensor("output", ("B",), INTEGERS, "the token", role=Role.OUT, production="int32"),
        Tensor("drafts", ("B", "K"), INTEGERS, "drafts, each drawn from q", production="int32"),
        Tensor("p", ("B", "V"), ("float64",), "the target's probabilities", production="float64"),
        Tensor("q", ("B", "V"), ("float64",), "the draft's probabilities", production="float64"),
        Tensor("uniform", ("B", "K"), ("float64",), "uniform samples, one per draft", production="float64"),
        Tensor("last", ("B",), ("float64",), "uniform sample of the residual", production="float64"),
    ),
    clauses=(
        Clause("MDV-1", "Drafts are tried in turn against the residual that the rejected ones leave.", SOURCE),
        Clause("MDV-2", "The token follows p, whatever q is.", f"{SOURCE}, theorem 4.2"),
    ),
    law="With drafts from q and uniform samples the token follows p.",
)


def multi_draft_verify(*, output: Any, drafts: Any, p: Any, q: Any, uniform: Any, last: Any) -> dict[str, Any]:
    """Return the expected output: the clauses, executed with plain loops."""
    result = output.copy()
    for b in range(len(drafts)):
        residual = p[b]
        for k, draft in enumerate(drafts[b]):
            if uniform[b, k] * q[b, draft] < residual[draft]:
                result[b] = draft
                break
            residual = np.maximum(residual - q[b], 0)
            residual = residual / residual.sum()
        else:
            result[b] = np.searchsorted(residual.cumsum(), last[b] * residual.sum(), side="right")
    return {"output": result}


register(CONTRACT, multi_draft_verify)
VOCAB = 8


def random_calls(rng: np.random.Generator, requests: int, drafts: int) -> dict[str, Any]:
    """Return arguments of requests that share p and q, as `test_follows_the_target` needs them."""
    p, q = rng.dirichlet(np.ones(VOCAB), size=2)
    return {
        "drafts": rng.choice(VOCAB, size=(requests, drafts), p=q),
        "p": np.tile(p, (requests, 1)),
        "q": np.tile(q, (requests, 1)),
        "uniform": rng.random((requests, drafts)),
        "last": rng.random(requests),
    }


@case("MDV-1", requests=[1, 65], drafts=[1, 3], reach="every step")
def test_each_decision_is_the_oracles(op: OpUnderTest, seed: int, requests: int, drafts: int) -> None:
    op.check_outputs(random_calls(np.random.default_rng(seed), requests, drafts))


@case("MDV-2", drafts=[1, 2, 4], mode="law", p_values=1, quick=False, reach="every step")
def test_follows_the_target(op: OpUnderTest, seed: int, drafts: int) -> None:
    values = random_calls(np.random.default_rng(seed), 20_000, drafts)
    tokens = op.call_written(values)["output"]
    names = [f"token {token}" for token in range(VOCAB)]
    assert_distribution(np.bincount(tokens, minlength=VOCAB).tolist(), values["p"][0], "tokens", names)
