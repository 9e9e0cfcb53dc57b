"""Helpers shared by the suites of the fused family.

Tokens are compared one by one: the numbers are given, so that the rule leaves one result. If a request differs, the
oracle takes each of its decisions that lies within the contract's tolerance either way. The request is right if it
equals one of these results. Counts and the drafter's numbers must follow from the tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from verispec.cases.request_state import Array, RequestBatch, random_requests
from verispec.judge import Compare, Failure, Kind, Mismatch, OpUnderTest, assert_same
from verispec.reference.oracle._fused import OUTPUTS, allowed_results
from verispec.reference.oracle._request_state import clean, logsumexp

REACH = "the reference's samplers verify every batch this way"
OFFSETS = ["-80", "0", "80", "3000000"]
"""Summands of all logits of a row. The product of a scale and the last one has more bits than float32 keeps."""


def of_temperature(params: Mapping[str, Any]) -> str | None:
    """Return the reach of rows with one of `OFFSETS`: no model has logits in the millions."""
    return None if params["offset"] == OFFSETS[-1] else "temperatures of requests"


ENOUGH = 32
"""Wrong requests of a call after which no further one is tried within rounding: a wrong kernel has thousands."""


def many_logits(seed: int, **fields: Any) -> RequestBatch:
    """Return eight requests of up to nine drafts: more than 32 MB of logits if each had as many."""
    return random_requests(np.random.default_rng(seed), (2, 9, 0, 1, 0, 3, 0, 0), 151_936, spare=0, **fields)


STEP = 16
"""Elements from a row of `thousands_of_rows` to the next one."""


def thousands_of_rows(op: OpUnderTest, seed: int, *, is_slow: bool, temperature: float) -> None:
    """Verify 5,200 rows of 36,900 tokens; a kernel that gives each program several parts of such a row has a last one.

    The rows overlap in memory, each 16 elements behind the one before, so that they take little of it. One of the first
    16 tokens of a row has all of its mass. Of five requests with three drafts two have a rejected one, at each step.
    """
    count, vocab = (5, 300) if is_slow else (1300, 36_900)
    rng = np.random.default_rng(seed)
    requests = random_requests(rng, (3,) * count, STEP, draft=False, spare=0, temperature=temperature)
    rows = len(requests.target_logits)
    best = rng.integers(0, STEP, rows)
    memory = rng.normal(size=(rows - 1) * STEP + vocab).astype(np.float32)
    memory[np.arange(rows) * STEP + best] = 40.0 * np.arange(rows, 0, -1)
    logits = torch.from_numpy(memory).to(op.device).as_strided((rows, vocab), (STEP, 1))
    expected = np.full((count, 4), -1)
    for b in range(count):
        first, accepted = requests.row(b, 0), min(int(rng.integers(0, 5)), 3)
        requests.draft_sampled[first + 1 : first + 4] = best[first : first + 3]
        if accepted < 3:
            requests.draft_sampled[first + 1 + accepted] = vocab - 1
        expected[b, : accepted + 1] = best[first : first + accepted + 1]
    sampled = torch.full((count, 4), -7, dtype=torch.int64, device=op.device)
    values = requests.arguments(op.contract)
    op.run(values, sampled=sampled, target_logits=logits)
    got = sampled.cpu().numpy()
    for b in np.flatnonzero((got != expected).any(axis=1))[:1].tolist():
        message = f"request {b} of {count:,} emits {got[b].tolist()}, expected {expected[b].tolist()}"
        raise Mismatch(Failure(Kind.VALUE, message, "sampled", int((got != expected).sum()), got.size))


def verify(op: OpUnderTest, requests: RequestBatch, **options: Any) -> dict[str, Array]:
    """Call a fused op and compare it, whole; `options` with a parameter's name are arguments."""
    names = {p.name for p in op.contract.params}
    given = {name: options.pop(name) for name in list(options) if name in names}
    shapes = {"sampled": (requests.requests, requests.columns)}
    compare: dict[str, Compare] = {} if op.contract.name == "verify_greedy" else by_rule(op.contract.name)
    got = op.check_outputs(requests.arguments(op.contract, **given), shapes=shapes, compare=compare, **options)
    _consistent(requests, got)
    return got


def by_rule(op: str) -> dict[str, Compare]:
    """Return comparisons that allow the results of decisions within the contract's tolerance."""

    def of(output: str) -> Compare:
        def wrong(expected: Array, got: Array, inputs: Mapping[str, Any]) -> Array:
            different: Array = expected != got
            failing = 0
            for b in np.flatnonzero(different.reshape(len(got), -1).any(axis=1)):
                if any(np.array_equal(result[output], got[b]) for result in allowed_results(op, inputs, int(b))):
                    different[b] = False
                    continue
                failing += 1
                if failing == ENOUGH:
                    break
            return different

        return wrong

    return {output: of(output) for output in OUTPUTS}


def _consistent(requests: RequestBatch, got: Mapping[str, Array]) -> None:
    """Check that counts, next token and next row match the row of tokens."""
    for b, state in enumerate(requests.idx_mapping):
        if state < 0:
            continue
        count = int(got["num_sampled"][b])
        row = got["sampled"][b].tolist()
        told = [int(got[name][b]) for name in ("num_rejected", "next_token", "next_row")]
        assert_same(
            f"what request {b} tells its drafter",
            [requests.drafts(b) + 1 - count, row[count - 1], requests.row(b, count - 1)],
            told,
        )
        assert_same(f"the columns of request {b} after its tokens", [-1] * (len(row) - count), row[count:])


def raw(requests: RequestBatch) -> RequestBatch:
    """Undo the temperature that the slot-indexed family wants in the target's logits."""
    for row, state in enumerate(requests.expanded_idx_mapping):
        scale = float(requests.temperature[state]) if state >= 0 else 1.0
        requests.target_logits[row] *= scale or 1.0
    return requests


def limits(requests: RequestBatch, k: Any = None, p: Any = None) -> dict[str, Any]:
    """Return top-k and top-p by state, the same for all or in turn where a list is given."""
    states = len(requests.temperature)
    given = {"top_k": k, "top_p": p}
    return {name: np.resize(np.asarray(value), states) for name, value in given.items() if value is not None}


EVERY_LIMIT: tuple[tuple[int | None, float | None], ...] = ((None, None), (5, None), (None, 0.9), (5, 0.9))
"""Top-k and top-p, alone and together, None for a limit that is not given."""


def draft_at_limit(requests: RequestBatch, ks: Array) -> RequestBatch:
    """Make each draft a token whose logit is the k-th largest: the first of them in one request, the last in the next.

    The first one is kept by top-k. The last one is dropped if more tokens are equal than fit.

    Args:
        requests: the batch; its drafts are written over, where k is a limit.
        ks: top-k by state.
    """
    for b, state in enumerate(requests.idx_mapping):
        k = int(ks[state])
        for step in range(requests.drafts(b) if state >= 0 else 0):
            row = requests.row(b, step)
            logits = requests.target_logits[row]
            if 0 < k < len(logits):
                requests.draft_sampled[row + 1] = np.flatnonzero(logits == np.sort(logits)[-k])[-(b % 2)]
    return requests


def kept_ids(logits: Array, k: int) -> Array:
    """Return the ids of the k largest logits of a row, ascending."""
    ids: Array = np.sort(np.argsort(-logits, kind="stable")[:k])
    return ids


def draft_inside(requests: RequestBatch, k: int, share: float = 0.4) -> RequestBatch:
    """Draft a token in the first, the middle or the last third of the kept ids, in turn, of flat rows without ties.

    Args:
        requests: the batch; its drafts are written over, and its logits have a fourth of their size.
        k: tokens that top-k keeps.
        share: part of the kept mass that the draft has.
    """
    requests.target_logits *= 0.25
    turn = 0
    for b, state in enumerate(requests.idx_mapping):
        for step in range(requests.drafts(b) if state >= 0 else 0):
            row = requests.row(b, step)
            logits, ids = requests.target_logits[row], kept_ids(requests.target_logits[row], k)
            draft = int(ids[(turn % 3 * k + turn % k) // 3])
            others = np.exp(logits[ids[ids != draft]].astype(np.float64)).sum()
            logits[draft] = np.log(others * share / (1 - share))
            requests.draft_sampled[row + 1] = draft
            turn += 1
    return requests


INSIDE = "a draft among the kept tokens"
INSIDE_K = ["2", "3", "9", "50", "2500"]
"""Top-k of rows of 4,100 tokens: of few tokens, and of more than a tile."""


def inside(k: str, *, is_slow: bool) -> tuple[int, str, int]:
    """Return top-k, counts and vocabulary of a case of `INSIDE`, smaller ones for a slow engine."""
    return (min(int(k), 400), "one", 700) if is_slow else (int(k), "wide", 4100)


DROPPING = {"top-p drops some candidates": 0.6, "top-p drops all candidates": 0.008}
"""Top-p for flat rows of 2,000 tokens, by the fate of their candidates."""


APART = "top-p drops all candidates of uneven parts"
"""Check of rows whose kept tokens lie in parts with other maxima."""


UNEVEN_P = 0.02
"""Top-p that keeps about these tokens of `uneven` rows: one draw of four finds none of them in 64 candidates."""


def uneven(seed: int, *, draft: bool, is_slow: bool) -> RequestBatch:
    """Return requests without drafts, whose rows have likely tokens in each part of 4,096 tokens.

    The rows are flat but for six tokens of each part, which are likelier by 0.3 from part to part.
    """
    count, vocab = (24, 9000) if is_slow else (60, 20_000)
    rng = np.random.default_rng(seed)
    requests = raw(random_requests(rng, (0,) * count, vocab, draft=draft, spare=0, temperature=1.0))
    requests.target_logits *= 0.25
    for row, logits in enumerate(requests.target_logits):
        for part, begin in enumerate(range(0, vocab, 4096)):
            ids = begin + (97 * np.arange(6) + 13 * row) % min(4096, vocab - begin)
            logits[ids] = 1.5 + 0.3 * ((part + row) % 5) + 0.01 * np.arange(6)
    return requests


def quantised(requests: RequestBatch) -> RequestBatch:
    """Make the target's rows flat and their logits multiples of 1/4, so that about twelve of 2,000 are the largest."""
    requests.target_logits[:] = np.round(requests.target_logits) * 0.25
    return requests


def third(requests: RequestBatch) -> Array:
    """Return a top-k of 3 by state, for `draft_at_limit`."""
    return np.full(len(requests.temperature), 3)


def draft_normalisers(requests: RequestBatch) -> Array:
    """Return the log-sum-exp of every draft row of every state, at the state's temperature, [R, K]."""
    assert requests.draft_logits is not None
    scale = np.where(requests.temperature == 0, 1.0, requests.temperature)[:, None, None]
    return np.asarray(logsumexp(clean(requests.draft_logits) / scale))


def adjacent_ties(requests: RequestBatch, ks: Array, every: int = 1) -> RequestBatch:
    """Make tokens of adjacent ids the likeliest of each row, two more than k, all equal; draft those at the limit.

    The drafts are in turn the first one that is dropped, the last one that is kept, and the first of all. The ids are
    on both sides of a multiple of 128 where the row is long enough.

    Args:
        requests: the batch; its rows and drafts are changed, where k leaves room for two more tokens.
        ks: number of kept tokens by state.
        every: step from one changed request to the next.
    """
    vocab = requests.target_logits.shape[1]
    for b in range(0, requests.requests, every):
        state = requests.idx_mapping[b]
        k = int(ks[state])
        if state < 0 or not 0 < k <= vocab - 2:
            continue
        for step in range(requests.drafts(b) + 1):
            row = requests.row(b, step)
            begin = max(min(128 * (1 + row % 2), vocab - 2) - k, 0)
            requests.target_logits[row, begin : begin + k + 2] = 40
            if step < requests.drafts(b):
                requests.draft_sampled[row + 1] = begin + (k, k - 1, 0)[(b + step) % 3]
    return requests


def limits_of_ties(requests: RequestBatch, given: dict[str, Any]) -> tuple[dict[str, Any], Array]:
    """Return limits by state, and the number of tokens that they keep of rows of `adjacent_ties`.

    Top-p alone keeps one to three of them for every second request.
    """
    if "top_k" in given:
        return given, given["top_k"]
    masses = given["top_p"].astype(np.float64)
    kept = 1 + np.arange(len(masses)) % 3
    states = requests.idx_mapping[::2]
    states = states[states >= 0]
    masses[states] = (kept[states] - 0.5) / (kept[states] + 2)
    return given | {"top_p": masses}, kept


def infinite_rows(rng: np.random.Generator, requests: RequestBatch) -> None:
    """Give one or two tokens of some target rows the logit positive infinity; every second draft of these is one."""
    rows, vocab = requests.target_logits.shape
    for row in np.flatnonzero(rng.random(rows) < 0.1):
        places = rng.integers(0, vocab, 2)
        requests.target_logits[row, places] = np.inf
        if row % 2 and row + 1 < rows and requests.draft_sampled[row + 1] >= 0:
            requests.draft_sampled[row + 1] = places[0]


def some_limits(
    rng: np.random.Generator, vocab: int, edges: Any, *, by_mass: bool, special: bool = False
) -> tuple[Any, Any]:
    """Return lists of top-k and of top-p, one of them None at times.

    Args:
        rng: source of the choice.
        vocab: vocabulary size V.
        edges: ids of the likeliest tokens, which top-k then keeps a few of; empty for any limits.
        by_mass: True takes top-p alone if there are `edges` or `special` rows, False top-k.
        special: True for rows with special values.
    """
    some = [1, 2, -1, 3, 4, 0] if edges else [0, max(vocab // 2, 1), -1, max(vocab - 1, 1), 1, 2]
    masses = [0.9, 1.0, 0.5, 0.6]
    kinds = [(some, masses), (some, None), (None, masses)]
    if edges or special:
        kinds = kinds[2:] if by_mass else kinds[:2]
    return kinds[rng.integers(len(kinds))]


def cluster(rng: np.random.Generator, logits: Array) -> Array:
    """Give each row about a hundred adjacent tokens with nearly all of its mass; every second row has no others.

    A grammar leaves such rows, whose mass cannot be estimated from a sample of places. In two rows of four these tokens
    weigh nearly the same, so that all of them are near any limit.
    """
    vocab = logits.shape[1]
    for row in range(len(logits)):
        begin = int(rng.integers(0, vocab - 250))
        inside = np.zeros(vocab, dtype=bool)
        inside[begin : begin + int(rng.integers(60, 250))] = True
        if row // 2 % 2:
            logits[row, inside] *= np.float32(0.01)
        logits[row, ~inside] -= np.inf if row % 2 else 20
    return logits


STRIPES = (256, 64)
"""Parts of a row of which one half is likely: kernels sample about as many places."""


def stripes(vocab: int, row: int) -> Array:
    """Mark the ids of a row in the first half of each of many equal parts; in every second row the others."""
    parts = STRIPES[row // 2 % len(STRIPES)]
    is_first: Array = np.arange(vocab) * parts % vocab < vocab * 0.45
    return ~is_first if row % 2 else is_first


def stripe(logits: Array) -> Array:
    """Lower the logits outside of `stripes`: a sample of evenly spread places misjudges the limits of such rows."""
    rows, vocab = logits.shape
    for row in range(rows):
        logits[row, ~stripes(vocab, row)] -= 4
    return logits


PART = 128
"""Tokens of which one is likely in a row of `one_per_part`."""


def one_per_part(logits: Array) -> Array:
    """Leave one likely token in each part of a row: the later the likelier in one row, the less likely in the next.

    A search that begins with the maxima of parts then sees each large token as the only one of its part.
    """
    rows, vocab = logits.shape
    parts = np.arange(vocab // PART)
    logits -= 40
    for row in range(rows):
        logits[row, parts * PART + row % PART] = parts * (0.0625 if row % 2 else -0.0625)
    return logits


def equal_pairs(requests: RequestBatch) -> RequestBatch:
    """Leave pairs of equal tokens in each row, of which a top-p of 0.5 keeps the first halves; draft one at the limit.

    The mass before the first token that is dropped is 0.5, without rounding.
    """
    rows, vocab = requests.target_logits.shape
    for row in range(rows):
        kept = 2 ** (row % 4)
        ids = np.linspace(row % 3, vocab - 1, 2 * kept).astype(int)
        requests.target_logits[row] = -np.inf
        requests.target_logits[row, ids] = 0.0
        if row + 1 < rows and requests.draft_sampled[row + 1] >= 0:
            requests.draft_sampled[row + 1] = ids[kept - row // 4 % 2]
    return requests


def overshooting(requests: RequestBatch) -> RequestBatch:
    """Give two tokens of each row 0.5 and 0.45 of its mass, and draft the second: top-p of 0.51 keeps 0.95."""
    rows, vocab = requests.target_logits.shape
    logits = requests.target_logits
    for row in range(rows - 1):
        if 0 <= (draft := int(requests.draft_sampled[row + 1])) < vocab:
            logits[row] = np.log(0.05 / (vocab - 2))
            logits[row, [(draft + 1 + row % (vocab - 1)) % vocab, draft]] = np.log([0.5, 0.45])
    return requests


def heavy_end(logits: Array, count: int) -> Array:
    """Give the last `count` tokens of each row more than half of its mass."""
    logits[:] = np.clip(logits, -1, 1) / 16
    logits[:, -count:] += np.log(2 * logits.shape[1] / count)
    return logits


def adjacent(rng: np.random.Generator, requests: RequestBatch) -> RequestBatch:
    """Make each target logit one of three adjacent numbers, so that a search among them ends with many ties."""
    near = np.float32(1) + np.float32(2.0**-23) * np.arange(3, dtype=np.float32)
    requests.target_logits[:] = near[rng.integers(0, 3, requests.target_logits.shape)]
    return requests
