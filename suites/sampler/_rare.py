"""Calls in which a random number near the end of its range decides a Gumbel sample, an acceptance or an inverse CDF.

The seed and the positions were searched for: one word among 2^32 is as small, or as large, as these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verispec.cases.request_state import Array, RequestBatch, normal, random_requests, select_requests
from verispec.reference import contracts
from verispec.reference.oracle._fused import INVERSE
from verispec.reference.oracle.philox import Draw, gumbel, uniform
from verispec.suites.sampler import _fused, _request_state
from verispec.suites.sampler._calls import MadeCall
from verispec.suites.sampler._sampling import gumbel_arguments, synthetic_arguments

SEED = 0x0123456789ABCDEF
POSITIONS: dict[tuple[int, str], tuple[int, int]] = {
    (Draw.ACCEPT, "small"): (35_442_263, 0),
    (Draw.ACCEPT, "large"): (60_717_056, 0),
    (Draw.TARGET, "small"): (3_431_115, 21),
    (Draw.TARGET, "large"): (13_331_609, 20),
    (Draw.DRAFT, "small"): (375_792, 20),
    (Draw.DRAFT, "large"): (50_151_150, 21),
    (INVERSE, "small"): (208_158_663, 0),
    (INVERSE, "large"): (80_069_710, 0),
}
"""Position and lane of each extreme word of step 0 under `SEED`."""
VOCAB = 24
ACCEPT_GAP = 0.002
"""Relative distance of p from a small u: half of the change if u were w * 2^-32, at the word w = 105."""
SCORE_GAP = 0.004
"""Distance of two scores: half of that change at the word 54, and above the rounding of float32."""
EDGE = 5
"""Tokens without mass on each side of a row that an inverse CDF draws from."""

RARE = (
    "gumbel_sample", "residual_resample", "probabilistic_rejection", "block_verification", "synthetic_rejection",
    "verify_one_hot", "verify_draft_logits",
)  # fmt: skip
"""Ops that draw Gumbel samples, and ops that test acceptance."""
DRAWING = ("verify_one_hot", "verify_draft_logits")
"""Ops that draw by inverse CDF."""
ROWS = 10
"""Requests without and with a draft for which such an op draws."""


def racing_rows(rng: np.random.Generator, draw: Draw, size: str) -> Array:
    """Return two rows of logits [2, VOCAB]: the rare lane wins the first by `SCORE_GAP`, and loses the second by it."""
    pos, lane = POSITIONS[draw, size]
    noise = gumbel(SEED, pos, 0, draw, VOCAB)
    rows = normal(rng, 2, VOCAB).astype(np.float64)
    for row, gap in zip(rows, (SCORE_GAP, -SCORE_GAP), strict=True):
        row[20:] = -1000.0  # the lane's block: a kernel that skips blocks which cannot win must not skip this one
        row[lane] = (row + noise).max() - noise[lane] + gap
    return rows.astype(np.float32)


def gumbel_calls(rng: np.random.Generator, size: str) -> list[MadeCall]:
    """Return one call of gumbel_sample per draw."""
    from verispec.suites.sampler.test_gumbel_sample import within

    calls = []
    for draw in (Draw.TARGET, Draw.DRAFT):
        values = gumbel_arguments(rng, draw.name.lower(), VOCAB, 2, temperature=np.ones(5))
        values |= {"logits": racing_rows(rng, draw, size), "pos": np.full(2, POSITIONS[draw, size][0])}
        values["seed"][:] = SEED
        calls.append(MadeCall(values, compare={"sampled": within}))
    return calls


def _requests(rng: np.random.Generator, counts: Sequence[int], pos: int, *, draft: bool) -> RequestBatch:
    """Return requests with `counts` drafts at a position, at temperature 1."""
    batch = random_requests(rng, counts, VOCAB, draft=draft, temperature=1.0)
    batch.seed[:], batch.pos[:] = SEED, pos
    return batch


def bonus_call(rng: np.random.Generator, size: str) -> MadeCall:
    """Return a call of residual_resample that draws the bonus tokens of two requests without drafts."""
    batch = select_requests(_requests(rng, (0, 0), POSITIONS[Draw.TARGET, size][0], draft=False), (0, 1))
    batch.target_logits[:] = racing_rows(rng, Draw.TARGET, size)
    zeros = np.zeros(2)
    verified = {"sampled": np.full((2, 1), 11), "num_accepted": np.zeros(2, np.int64)}
    verified |= {"target_logsumexp": zeros, "draft_logsumexp": zeros}
    values = batch.arguments(contracts.load("residual_resample"), **verified, log_prefix_ratio=None)
    return MadeCall(values)


def accepting_calls(op: str, rng: np.random.Generator, size: str, *, draft: bool) -> list[MadeCall]:
    """Return two requests with one draft each: a p just above u and just below it, or p = 1 under the largest u."""
    contract, pos = contracts.load(op), POSITIONS[Draw.ACCEPT, size][0]
    batch = _requests(rng, (1, 1), pos, draft=draft)
    u = uniform(SEED, pos, 0, Draw.ACCEPT, 0)
    for b, gap in enumerate((ACCEPT_GAP, -ACCEPT_GAP)):
        row, state = batch.row(b, 0), batch.idx_mapping[b]
        token = batch.draft_sampled[row + 1]
        p = u * (1 + gap)
        batch.target_logits[row] = 0.0 if size == "small" else -np.inf
        batch.target_logits[row, token] = np.log(p / (1 - p) * (VOCAB - 1)) if size == "small" else 0.0
        if batch.draft_logits is not None:
            batch.draft_logits[state] = -np.inf
            batch.draft_logits[state, :, token] = 0.0
    if op == "synthetic_rejection":
        rates = (u * (1 + ACCEPT_GAP), u * (1 - ACCEPT_GAP)) if size == "small" else (1.0,)
        return [MadeCall(*synthetic_arguments(batch, contract, np.array([rate]))) for rate in rates]
    shapes = {"sampled": (batch.requests, batch.columns)}
    compare = _fused.by_rule(op) if op.startswith("verify") else _request_state.compared(op)
    return [MadeCall(batch.arguments(contract), shapes, compare)]


def drawing_calls(op: str, rng: np.random.Generator, size: str) -> list[MadeCall]:
    """Return draws by inverse CDF from rows with mass in the middle alone, without limits and with each of them.

    Half of the requests have a draft without mass. If rounding leaves the number past the sum of all masses, the last
    token with mass is right. Of many rows the sums of some round down.
    """
    pos = POSITIONS[INVERSE, size][0]
    batch = _requests(rng, (0, 1) * ROWS, pos, draft=op == "verify_draft_logits")
    batch.target_logits[:, :EDGE] = batch.target_logits[:, -EDGE:] = -np.inf
    for b in range(1, batch.requests, 2):
        batch.draft_sampled[batch.row(b, 0) + 1] = (EDGE - 1, VOCAB - EDGE)[b // 2 % 2]
    shapes, compare = {"sampled": (batch.requests, batch.columns)}, _fused.by_rule(op)
    given = [_fused.limits(batch, k, p) for k, p in _fused.EVERY_LIMIT]
    return [MadeCall(batch.arguments(contracts.load(op), **limits), shapes, compare) for limits in given]


def rare_calls(op: str, rng: np.random.Generator, size: str) -> list[MadeCall]:
    """Return calls of an op in which a number of the given size decides, "small" or "large"."""
    if op == "gumbel_sample":
        return gumbel_calls(rng, size)
    if op == "residual_resample":
        return [bonus_call(rng, size)]
    given = {"verify_one_hot": (False,), "verify_draft_logits": (True,), "synthetic_rejection": (False,)}
    calls = [call for draft in given.get(op, (False, True)) for call in accepting_calls(op, rng, size, draft=draft)]
    return calls + (drawing_calls(op, rng, size) if op in DRAWING else [])
