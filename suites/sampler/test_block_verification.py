"""Requirements of block_verification (contract BLK)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.request_state import draft_outside, random_requests
from verispec.judge import OpUnderTest, assert_same
from verispec.reference.oracle.philox import Draw, uniform
from verispec.suites.sampler import _ends
from verispec.suites.sampler._callers import of_vocabulary
from verispec.suites.sampler._request_state import COUNTS, DRAFT, REACH, batch, drafted_reach, layouts, verify, widths

BLOCK = "rejection_sample_method=block"


def block_reach(params: Mapping[str, Any]) -> str | None:
    return BLOCK if drafted_reach(params) else None


@case("BLK-1", counts=list(COUNTS), temperature=["0.7", "1.0"], reach=block_reach)
def test_joint_ratios(op: OpUnderTest, seed: int, counts: str, temperature: str) -> None:
    verify(op, batch(seed, counts, temperature=float(temperature)))


@case("BLK-2", counts=list(COUNTS), spread=["near", "far"], reach=block_reach)
def test_thresholds(op: OpUnderTest, seed: int, counts: str, spread: str) -> None:
    requests = batch(seed, counts, temperature=1.0)
    if spread == "far":
        requests.target_logits += np.random.default_rng(seed).standard_normal(requests.target_logits.shape)
    verify(op, requests)


@case("BLK-2", check="draft equals target", reach=BLOCK)
def test_a_draft_that_is_the_target_passes_whole(op: OpUnderTest, seed: int) -> None:
    """Powers of two make p and q equal in any arithmetic: r is 1, the mass 0, and 0/0 counts as 1."""
    requests = batch(seed, "ragged", temperature=1.0)
    requests.target_logits[:] = 0.0
    requests.draft_logits[:] = 0.0  # type: ignore[index]
    got = verify(op, requests)["num_accepted"]
    assert_same("every draft is accepted", [requests.drafts(b) for b in range(requests.requests)], got)


@case("BLK-2", check="draft equals target, the last impossible")
def test_equal_rows_pass_before_an_impossible_draft(op: OpUnderTest, seed: int) -> None:
    """The last draft has the probability 0 in both models, so that the mass of its row is 0 too: 0/0 counts as 1.

    One of 33 tokens is impossible in each row; 32 equal ones make p and q equal in any arithmetic.
    """
    requests = batch(seed, "ragged", vocab=33, temperature=1.0)
    requests.target_logits[:] = 0.0
    requests.draft_logits[:] = 0.0  # type: ignore[index]
    for b, state in enumerate(requests.idx_mapping):
        for step in range(requests.drafts(b)):
            row = requests.row(b, step)
            token = int(requests.draft_sampled[row + 1]) + (step + 1 < requests.drafts(b))
            requests.target_logits[row, token % 33] = requests.draft_logits[state, step, token % 33] = -np.inf  # type: ignore[index]
    got = verify(op, requests)["num_accepted"]
    assert_same("all drafts but the last", [requests.drafts(b) - 1 for b in range(requests.requests)], got)


@case("BLK-2", check="all mass at one token", token=[0, 36, 5000], reach=BLOCK)
def test_the_mass_of_the_first_and_of_the_last_token(op: OpUnderTest, seed: int, token: int) -> None:
    """Drafts have p / q = 10/11, but for an impossible last one, and `token` alone has more of p than of q."""
    requests = random_requests(np.random.default_rng(seed), (3,) * 5, max(37, token + 1), temperature=1.0)
    requests.target_logits[:], requests.draft_logits[:] = -np.inf, -np.inf  # type: ignore[index]
    for b, state in enumerate(requests.idx_mapping):
        for step in range(requests.drafts(b)):
            row, draft = requests.row(b, step), 1 + step
            requests.draft_sampled[row + 1] = draft
            is_last = step + 1 == requests.drafts(b)
            requests.target_logits[row, [token, token if is_last else draft]] = np.log([0.7, 0.3])
            requests.draft_logits[state, step, [draft, 30, token]] = np.log([0.33, 0.57, 0.1])  # type: ignore[index]
    verify(op, requests)


@case("BLK-2", check="rows of unlike mass", vocab=[37, 5000, 9000, 20_000], reach=BLOCK)
def test_each_threshold_takes_the_mass_of_its_own_row(op: OpUnderTest, seed: int, vocab: int) -> None:
    """A row at random has no mass, as its draft is its target, or much of it, at one token anywhere in the vocabulary.

    A mass of another row, or of a part of the row, changes what is accepted. The first drafts have p / q = 3/5, so that
    no ratio is near 1, where the threshold of a row without mass is a matter of rounding.
    """
    rng = np.random.default_rng(seed)
    requests = random_requests(rng, (3,) * 24, vocab, temperature=1.0, spare=0)
    assert requests.draft_logits is not None
    for b, state in enumerate(requests.idx_mapping):
        for step in range(requests.drafts(b)):
            row = requests.row(b, step)
            drafted = requests.draft_logits[state, step]
            if step and rng.random() < 0.5:
                drafted[:] = requests.target_logits[row]
                continue
            draft, theirs, ours = rng.choice(vocab, 3, replace=False)
            requests.draft_sampled[row + 1] = draft
            requests.target_logits[row] = drafted[:] = -np.inf
            requests.target_logits[row, [draft, ours]] = np.log([0.3, 0.7])
            drafted[[draft, theirs]] = np.log([0.5, 0.5])
    verify(op, requests)


@case("BLK-3", draft=DRAFT, reach=BLOCK)
def test_one_draft_is_judged_as_a_whole_block(op: OpUnderTest, seed: int, draft: str) -> None:
    verify(op, batch(seed, "wide", draft, temperature=1.0))


@case("BLK-4", check="a later prefix saves an earlier one", reach=BLOCK)
def test_the_longest_prefix_that_passes(op: OpUnderTest, seed: int) -> None:
    """The first draft token alone would be rejected, since its ratio is below its u.

    The u of the whole block is below its ratio, so both tokens are accepted, which no token-wise rule does.
    """
    requests = batch(seed, "one", "absent", temperature=1.0)
    requests.seed[:] = _seed_with_falling_numbers(int(requests.pos[0]), int(requests.pos[1]), int(requests.pos[2]))
    requests.target_logits[:] = 0.0
    for row in range(3):
        other = int(requests.draft_sampled[row + 1])
        requests.target_logits[row] = -60.0
        requests.target_logits[row, other] = 0.0
        if row == 0:
            requests.target_logits[row, (other + 1) % 37] = 0.0
    got = verify(op, requests)["num_accepted"]
    assert_same("all three drafts are accepted", [3], got)


def _seed_with_falling_numbers(*positions: int) -> int:
    """Return a seed whose first acceptance sample is above a half and whose last one is below it."""
    for seed in range(1, 1000):
        first, *_, last = (uniform(seed, pos, step, Draw.ACCEPT) for step, pos in enumerate(positions))
        if first > 0.9 and last < 0.1:
            return seed
    raise AssertionError("a thousand seeds hold such a pair")


@case("BLK-5", counts=list(COUNTS), reach=block_reach)
def test_one_hot_drafts(op: OpUnderTest, seed: int, counts: str) -> None:
    verify(op, batch(seed, counts, "absent", temperature=1.0))


@case(
    "BLK-6",
    token=[-1, 37],
    draft=DRAFT,
    reach=lambda p: "the scheduler pads drafts with -1" if p["token"] == -1 else None,
)
def test_a_padding_token_ends_the_block(op: OpUnderTest, seed: int, token: int, draft: str) -> None:
    """In some of 24 requests u lies between the threshold of a whole block and that of a prefix."""
    requests = batch(seed, "ragged", draft, temperature=1.0)
    draft_outside(requests, token, [2, 5, 9])
    verify(op, requests)
    rng = np.random.default_rng(seed)
    requests = random_requests(rng, (2,) * 24, 37, draft=draft == "present", spare=0, temperature=1.0)
    requests.draft_sampled[[requests.row(b, 1) + 1 for b in range(24)]] = token
    verify(op, requests)


@case("BLK-7", counts=list(COUNTS), draft=DRAFT, reach=block_reach)
def test_greedy(op: OpUnderTest, seed: int, counts: str, draft: str) -> None:
    verify(op, batch(seed, counts, draft, temperature=0.0))


@case("BLK-7", token=[-1, 37], draft=DRAFT, reach="the scheduler pads drafts with -1")
def test_a_greedy_padding_token(op: OpUnderTest, seed: int, token: int, draft: str) -> None:
    """Padding follows drafts that are the argmax, at every step: its row's argmax is stored there."""
    requests = batch(seed, "wide", draft, temperature=0.0)
    for b in range(requests.requests):
        for step in range(requests.drafts(b)):
            row = requests.row(b, step)
            is_padding = step >= b % (requests.drafts(b) + 1)
            best = np.nan_to_num(requests.target_logits[row, :37], nan=-np.inf).argmax()
            requests.draft_sampled[row + 1] = token if is_padding else best
    verify(op, requests)


@case("BLK-8", draft=DRAFT, reach=BLOCK)
def test_mixed_batches(op: OpUnderTest, seed: int, draft: str) -> None:
    verify(op, batch(seed, "gaps", draft))


@case("BLK-9", draft=DRAFT, reach=BLOCK)
def test_what_resampling_needs(op: OpUnderTest, seed: int, draft: str) -> None:
    """The last draft token of every request has no target probability: a draft row follows the accepted prefix."""
    requests = batch(seed, "ragged", draft, temperature=0.7)
    for b in range(requests.requests):
        row = requests.row(b, requests.drafts(b) - 1)
        requests.target_logits[row, requests.draft_sampled[row + 1]] = -np.inf
    verify(op, requests)


@case("BLK-10", target=[45, 8200], reach="MiMo v2.5 Pro with DFlash")
def test_a_target_wider_than_the_draft(op: OpUnderTest, seed: int, target: int) -> None:
    requests = batch(seed, "ragged", "present", target, draft_vocab=37, temperature=0.7)
    requests.target_logits[:, 37:] += 20.0
    verify(op, requests)


@case("BLK-11", padding=["first", "middle", "last"], draft=DRAFT)
def test_padding_touches_nothing(op: OpUnderTest, seed: int, padding: str, draft: str) -> None:
    at = {"first": [0], "middle": [1, 2], "last": [3]}[padding]
    verify(op, batch(seed, "ragged", draft, padding=at))


@case("BLK-12", rows=["some", "all"], draft=DRAFT)
def test_nan_rows(op: OpUnderTest, seed: int, rows: str, draft: str) -> None:
    requests = batch(seed, "ragged", draft, temperature=1.0)
    every = 2 if rows == "some" else 1
    requests.target_logits[::every, ::every] = np.nan
    verify(op, requests)


@case("BLK-12", check="zero stays zero")
def test_no_later_draft_revives_a_prefix(op: OpUnderTest, seed: int) -> None:
    """The first draft has p = 0, later ones q = 0: a ratio that began anew there would be infinite or NaN."""
    requests = batch(seed, "ragged", temperature=1.0)
    for b, state in enumerate(requests.idx_mapping):
        for step in range(requests.drafts(b)):
            row = requests.row(b, step)
            logits = requests.draft_logits[state, step] if step else requests.target_logits[row]  # type: ignore[index]
            logits[requests.draft_sampled[row + 1]] = -np.inf
    got = verify(op, requests)["num_accepted"]
    assert_same("no draft is accepted", [0] * requests.requests, got)


@case("BLK-12", check="an impossible draft between possible ones", step=[1, 2, 3])
def test_a_later_impossible_draft_ends_what_passes(op: OpUnderTest, seed: int, step: int) -> None:
    """Both models give it the probability 0 and are equal, so that all drafts before it pass and none after it.

    One of 33 tokens is impossible in its row; 32 equal ones make p and q equal in any arithmetic.
    """
    requests = batch(seed, "ragged", vocab=33, temperature=1.0)
    requests.target_logits[:] = 0.0
    requests.draft_logits[:] = 0.0  # type: ignore[index]
    for b, state in enumerate(requests.idx_mapping):
        if step < requests.drafts(b):
            row = requests.row(b, step)
            token = int(requests.draft_sampled[row + 1])
            requests.target_logits[row, token] = requests.draft_logits[state, step, token] = -np.inf  # type: ignore[index]
    got = verify(op, requests)["num_accepted"]
    passing = [min(step, requests.drafts(b)) for b in range(requests.requests)]
    assert_same("the drafts before an impossible one are accepted", passing, got)


@case("BLK-13", vocab=[1, 2, 127, 8193, 20_000], draft=DRAFT, reach=of_vocabulary)
def test_any_vocabulary(op: OpUnderTest, seed: int, vocab: int, draft: str) -> None:
    verify(op, batch(seed, "ragged", draft, vocab, temperature=1.0))


@case("BLK-1", check=_ends.AT_ENDS, vocab=_ends.VOCABS, draft=DRAFT, reach=_ends.REACH)
def test_the_mass_of_an_id_at_an_end(op: OpUnderTest, seed: int, vocab: int, draft: str) -> None:
    """Requests are sampled, then greedy."""
    for requests in _ends.both_fates(seed, vocab, draft=draft == "present", temperature=0.7):
        verify(op, requests)
        requests.temperature[:] = 0.0
        verify(op, requests)


@case("BLK-14", layout=["gapped", "padded", "transposed"], draft=DRAFT)
def test_strides(op: OpUnderTest, seed: int, layout: str, draft: str) -> None:
    verify(op, batch(seed, "gaps", draft), layouts=layouts(op, layout))


@case("BLK-1", ids=["int32", "int64"], reach=lambda p: REACH if p["ids"] == "int32" else None)
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    requests = batch(seed, "gaps")
    requests.pos %= 2**31
    verify(op, requests, dtypes=widths(op, ids))
