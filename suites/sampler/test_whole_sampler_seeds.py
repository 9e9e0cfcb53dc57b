"""Random numbers of end-to-end samplers: seeds, steps after each other, drafts of their own (contract WS)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from verispec.cases import case
from verispec.cases.sampling import random_sampler_batch, rows_of
from verispec.engines import Engine
from verispec.engines.protocol.sampling import SamplerBatch
from verispec.judge import Failure, Kind, Mismatch, SamplerUnderTest, sampler_of
from verispec.judge.statistics import assert_distribution
from verispec.suites.sampler._end_ids import ENDS, MASSES, check_ends


@pytest.fixture
def sampler(engine: Engine, seed: int, family: str | None) -> SamplerUnderTest:
    torch.manual_seed(seed)
    return SamplerUnderTest(sampler_of(engine, family))


@case("WS-3", family=["request_state", "fused"], check="bits past 32", reach="requests with different seeds")
def test_a_counters_seed_has_64_bits(sampler: SamplerUnderTest) -> None:
    """32 seeds that differ in one of bits 30 to 61, on a flat target of 50,000 tokens.

    The key of a counter-based RNG has 64 bits; a generator on a CPU reads 32 of them. Three answers of another seed
    have a chance of 2e-7.
    """
    seeds = [7 + (1 << bit) for bit in range(30, 62)]
    step = SamplerBatch(torch.zeros(len(seeds), 50_000), [[]] * len(seeds), torch.ones(len(seeds)), seeds=seeds)
    different = len({tuple(tokens) for tokens in sampler(step)})
    if different < len(seeds) - 2:
        message = f"{len(seeds)} seeds of up to 62 bits gave {different} different answers"
        raise Mismatch(Failure(Kind.RELATION, message))


LARGE, EACH = 100_003, 48
"""A vocabulary past the numbers of 16 bits, and requests without a draft; as many have one."""


@case(
    "WS-10",
    family=[None, "request_state", "fused"],
    check="large vocabulary",
    reach="a model with more than 65,536 tokens",
    quick=False,
)
def test_every_part_of_a_large_vocabulary_is_sampled(sampler: SamplerUnderTest) -> None:
    """Flat rows give bonus tokens, and recovered ones after drafts that are hardly ever accepted.

    That none of 48 tokens lies in a third of the vocabulary has a chance of 4e-9.
    """
    drafts = [[n] if n % 2 else [] for n in range(2 * EACH)]
    tokens = sampler(SamplerBatch(torch.zeros(3 * EACH, LARGE), drafts, torch.ones(2 * EACH)))
    for start, kind in ((0, "without"), (1, "with")):
        thirds = np.bincount([3 * ids[-1] // LARGE for ids in tokens[start::2]], minlength=3).tolist()
        if not all(thirds):
            message = f"requests {kind} a draft have {thirds} tokens in the thirds of {LARGE:,} equally likely ones"
            raise Mismatch(Failure(Kind.LAW, message))


@case("WS-10", family=[None, "request_state", "fused"], check="ends of the vocabulary", reach="any id", p_values=1)
def test_the_first_and_the_last_ids_have_their_probability(sampler: SamplerUnderTest) -> None:
    """Half of the requests have no draft, the others one of the six ids: whichever it is, the emitted token follows p.

    9,600 requests find an id that is emitted half as often as it should be, as bonus token, as draft or after a draft.
    """
    row = torch.full((300,), -40.0)
    row[list(ENDS)] = torch.tensor(MASSES).log()
    drafts = [[ENDS[n // 2 % 6]] if n % 2 else [] for n in range(1200)]
    step = SamplerBatch(row.repeat(1800, 1), drafts, torch.ones(1200))
    seen = np.zeros((7, 6), dtype=np.int64)
    for _ in range(8):
        for n, tokens in enumerate(sampler(step)):
            if tokens[0] not in ENDS:
                raise Mismatch(Failure(Kind.LAW, f"token {tokens[0]} was emitted, whose probability is 0"))
            seen[1 + n // 2 % 6 if n % 2 else 0, ENDS.index(tokens[0])] += 1
    check_ends(seen)


SIZES = {"5119": (5119, 5119, 800), "67071": (67_071, 1535, 165)}
"""Vocabulary, ids at each end that share all mass of a row, and requests.

Both vocabularies end just before a multiple of 512, inside of a last tile that may have no noise of its own. The large
one has 1,535 ids past those of 16 bits.
"""
OUTSIDE, RISE = -60.0, 0.02
EXPECTED = 24.0
"""Expected number of tokens of a part of the vocabulary from which none at all has a chance of 4e-11."""


@case(
    "WS-10",
    family=[None, "request_state", "fused"],
    size=list(SIZES),
    check="parts of the vocabulary",
    reach="any id",
    quick=False,
)
def test_no_two_ids_share_their_noise(sampler: SamplerUnderTest, size: str) -> None:
    """Logits that fall evenly by 0.02 in all, or rise: of two ids with the same noise only one is ever emitted.

    In falling rows, the only ones of the large vocabulary, the last ids are those that are never emitted. Half of the
    requests of the small one have a draft, whose probability is 0.
    """
    vocab, ends, requests = SIZES[size]
    is_whole = ends == vocab
    for row in even_rows(vocab, ends):
        if is_whole:
            row[vocab // 2] = OUTSIDE
        drafts = [[vocab // 2] if is_whole and n % 2 else [] for n in range(requests)]
        rows = requests + sum(map(len, drafts))
        tokens = sampler(SamplerBatch(row.repeat(rows, 1), drafts, torch.ones(requests)))
        for kind, has_draft in (("bonus", False), ("recovered", True)):
            own = [ids[-1] for given, ids in zip(drafts, tokens, strict=True) if bool(given) == has_draft]
            check_parts(row, own, kind)


@case(
    "WS-25",
    size=list(SIZES),
    check="parts of the vocabulary",
    reach="every request whose drafts are sampled",
    quick=False,
)
def test_no_two_ids_share_their_noise_in_drafting(engine: Engine, seed: int, size: str) -> None:
    torch.manual_seed(seed)
    sampler = SamplerUnderTest(sampler_of(engine))
    vocab, ends, requests = SIZES[size]
    requests = requests // 2 if ends == vocab else 64
    step = SamplerBatch(torch.zeros(2 * requests, vocab), [[0]] * requests, torch.ones(requests))
    for row in even_rows(vocab, ends):
        drafted = sampler.draft_and_verify(step, row.repeat(requests, 1)).draft_token_ids
        check_parts(row, [token for [token] in drafted], "draft")


def even_rows(vocab: int, ends: int) -> list[torch.Tensor]:
    """Return logits [vocab] that fall evenly in the first and the last `ends` ids, and exclude the others.

    Where these are all ids, the same logits that rise follow.
    """
    row = -torch.linspace(0, RISE, vocab)
    if ends == vocab:
        return [row, -row]
    row[ends : vocab - ends] = OUTSIDE
    return [row]


def parts(vocab: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield masks [vocab] of parts of the ids, with their names."""
    ids = torch.arange(vocab)
    for size in (2**n for n in range(6, 17)):
        yield f"the first {size} ids", ids < size
        yield f"the ids after the last multiple of {size}", ids >= vocab - vocab % size
    for start in range(0, vocab, 512):
        yield f"ids {start} to {start + 511}", ids // 512 == start // 512
    for step in (2, 3, 4, 8):
        for rest in range(step):
            yield f"ids that leave {rest} when divided by {step}", ids % step == rest


def check_parts(row: torch.Tensor, tokens: list[int], kind: str) -> None:
    """Check that a token of each part was emitted of which enough are expected."""
    law = torch.softmax(row.double(), dim=0)
    seen = torch.bincount(torch.tensor(tokens, dtype=torch.int64), minlength=len(row))
    for name, mask in parts(len(row)):
        expected = len(tokens) * float(law[mask].sum())
        if expected >= EXPECTED and not int(seen[mask].sum()):
            message = f"none of {len(tokens)} {kind} tokens is of {name}, {expected:.0f} are expected"
            raise Mismatch(Failure(Kind.LAW, message))


CHAINS, EACH_CHAIN = (2, 3, 4, 5, 6), 1200
EVEN_ROW, LAST_ROW = (0.5, 0.25, 0.25), (0.0, 0.5, 0.5)
"""Rows whose draft, token 0, is accepted half of the time; the token behind the drafts is 1 or 2."""


@case(
    "WS-10",
    family=[None, "request_state", "fused"],
    check="drafts of even odds",
    reach="every sampled request with several drafts",
    p_values=1,
)
def test_no_draft_is_decided_by_the_number_of_another_one(sampler: SamplerUnderTest) -> None:
    """Chains of two to six drafts: how many are accepted, and the token behind them.

    If a draft is decided by the number of one before it, it is accepted whenever it is reached, or never. If the token
    is drawn by such a number, it is the same one whenever that draft was rejected.
    """
    seen = {drafts: np.zeros((drafts + 1, 2), dtype=np.int64) for drafts in CHAINS}
    for drafts, counts in seen.items():
        rows = torch.tensor([*[EVEN_ROW] * drafts, LAST_ROW]).log().repeat(EACH_CHAIN, 1)
        for tokens in sampler(SamplerBatch(rows, [[0] * drafts] * EACH_CHAIN, torch.ones(EACH_CHAIN))):
            if tokens[-1] not in (1, 2) or any(tokens[:-1]):
                raise Mismatch(Failure(Kind.LAW, f"{tokens} of {drafts} drafts of token 0: probability 0"))
            counts[len(tokens) - 1, tokens[-1] - 1] += 1
    exact = [np.outer([*(0.5 ** np.arange(1, k + 1)), 0.5**k], [0.5, 0.5]) / len(CHAINS) for k in CHAINS]
    assert_distribution(
        [int(n) for counts in seen.values() for n in counts.ravel()],
        np.concatenate([table.ravel() for table in exact]),
        "accepted drafts of chains, and the token behind them",
        [f"token {1 + n} behind {accepted} of {k} drafts" for k in CHAINS for accepted, n in np.ndindex(k + 1, 2)],
    )


STEPS = 80
AGREEING = 0.9
"""Largest share of steps that may agree, or differ. With 40 steps a right sampler exceeds it with a chance of 1e-8."""
FIRST_ROW, SURE_ROW, BONUS_ROW = (0.5, 0.25, 0.25), (1.0, 0.0, 0.0), (0.0, 0.5, 0.5)
"""Probabilities of a request whose drafts are token 0: half of the first drafts are rejected, and no other."""


@case("WS-10", check="steps after each other", reach="a request without a seed, alone in its batch")
def test_a_step_shares_no_random_number_with_the_next(engine: Engine, seed: int) -> None:
    """The last token of a step, 1 or 2, says nothing about whether the next step keeps its first draft."""
    torch.manual_seed(seed)
    sampler = SamplerUnderTest(sampler_of(engine))
    for drafts in range(1, 5):
        rows = torch.tensor([FIRST_ROW, *[SURE_ROW] * (drafts - 1), BONUS_ROW]).log()
        step = SamplerBatch(rows, [[0] * drafts], torch.ones(1), draft_probs=torch.eye(3)[[0] * drafts])
        tokens = [sampler(step)[0] for _ in range(STEPS)]
        for kept, last in ((True, "bonus"), (False, "recovered")):
            pairs = [(a[-1], b[0]) for a, b in itertools.pairwise(tokens) if (a[0] == 0) == kept]
            agree = sum((a == 1) == (b == 0) for a, b in pairs)
            if max(agree, len(pairs) - agree) > AGREEING * max(len(pairs), STEPS // 3):
                message = f"whether the {last} token is 1, and whether the next step keeps the first of {drafts} drafts"
                raise Mismatch(Failure(Kind.LAW, f"{message}, agree in {agree} of {len(pairs)} steps"))


UNSEEDED, FLAT = 2000, 256
AGREE = 50
"""Equal tokens at one distance in a batch: eight are expected, and 50 have a chance of 1e-22."""
OWN = 300
"""Requests whose drafter is the target."""


@case("WS-3", seeds="none", reach="requests without a seed, whose drafts are sampled")
def test_requests_without_a_seed_repeat_no_other(engine: Engine, seed: int) -> None:
    """2,000 requests of three drafts and a bonus token from flat rows of 256 tokens: each is one of 2^32 texts.

    Two that repeat another one have a chance of 1e-7. Seeds of 16 bits give 30, those of 20 bits two. Nor do the tokens
    of one place alone repeat at any distance, such as that of a buffer of 256 rows.
    """
    torch.manual_seed(seed)
    sampler = SamplerUnderTest(sampler_of(engine))
    step = SamplerBatch(torch.zeros(4 * UNSEEDED, FLAT), [[0] * 3] * UNSEEDED, torch.ones(UNSEEDED))
    drafted = sampler.draft_and_verify(step, torch.zeros(3 * UNSEEDED, FLAT))
    texts = Counter((*ids, *tokens) for ids, tokens in zip(drafted.draft_token_ids, drafted.tokens, strict=True))
    repeated = UNSEEDED - len(texts)
    if repeated > 1:
        message = f"{repeated} of {UNSEEDED} requests without a seed have the drafts and tokens of another one"
        raise Mismatch(Failure(Kind.LAW, message))
    for place, column in enumerate(np.array([tokens[:1] + tokens[-1:] for tokens in drafted.tokens]).T):
        agree = [int((column[shift:] == column[:-shift]).sum()) for shift in range(1, UNSEEDED)]
        if max(agree) >= AGREE:
            what = f"the {('first', 'last')[place]} tokens of {max(agree)} requests without a seed"
            message = f"{what} are those of the request {agree.index(max(agree)) + 1} places before"
            raise Mismatch(Failure(Kind.LAW, message))


@case("WS-11", check="own drafts", reach="every request whose drafts are sampled")
def test_drafts_of_the_targets_own_rows_are_accepted(engine: Engine, seed: int) -> None:
    """The rows of draft and target are the same, so that p = q at any temperature: rounding rejects hardly a draft."""
    torch.manual_seed(seed)
    sampler = SamplerUnderTest(sampler_of(engine))
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 5, OWN).tolist()
    step = random_sampler_batch(
        rng, counts, temperature=rng.choice([0.02, 0.05, 0.4, 1.0, 2.5], OWN), draft=False, seeds=list(range(OWN))
    )
    rows = [row for b in range(OWN) for row in step.logits[rows_of(step, b)][:-1]]
    tokens = sampler.draft_and_verify(step, torch.stack(rows)).tokens
    rejected = sum(len(emitted) <= count for emitted, count in zip(tokens, counts, strict=True))
    if rejected > OWN // 100:
        message = f"{rejected} of {OWN} requests reject a draft, whose p and q are the same"
        raise Mismatch(Failure(Kind.LAW, message))


BATCHES, EACH_BATCH = 16, 500
SPREAD = 2.2
"""Distance of the first and last logits of the eight tokens of target and draft, which rise and fall evenly."""
OFFSET = 1900.3
"""A summand of all logits of a row. Float32 moves a probability by at most 1e-4 of itself there."""


@case("WS-25", check="precision", reach="every request whose drafts are sampled", p_values=1)
def test_drafts_are_verified_by_what_they_were_drawn_from(engine: Engine, seed: int) -> None:
    """Emitted tokens follow the target, whichever precision the draft's logits are kept in, if one serves both uses.

    A summand of a row changes no probability, unless its logits are cut: to 8 bits for bfloat16, to 11 for float16 or
    TF32. Drafts drawn from cut logits and verified by whole ones move 5 to 7 % of the emitted tokens. 8,000 requests
    then give a statistic near 180 or more, where the level is near 56.
    """
    torch.manual_seed(seed)
    sampler = SamplerUnderTest(sampler_of(engine))
    draft = torch.linspace(0, SPREAD, 8, dtype=torch.float64)
    target = draft.flip(0)
    seen = np.zeros(8, dtype=np.int64)
    step = SamplerBatch(target.float().repeat(2 * EACH_BATCH, 1), [[0]] * EACH_BATCH, torch.ones(EACH_BATCH))
    for _ in range(BATCHES):
        drafted = sampler.draft_and_verify(step, (draft + OFFSET).float().repeat(EACH_BATCH, 1))
        seen += np.bincount([tokens[0] for tokens in drafted.tokens], minlength=8)
    names = [f"token {token}" for token in range(len(seen))]
    law = torch.softmax(target, dim=0).numpy()
    assert_distribution(seen.tolist(), law, "first tokens after large draft logits", names)


NEARLY_SURE, SURE_CHAINS, DISTANCE = 32, 80_000, 0.75 * 2.0**-16


@case("WS-14", check="numbers of acceptance", mode="law", reach="drafts that the target is nearly sure of", p_values=1)
def test_numbers_of_acceptance_come_near_one(engine: Engine, seed: int) -> None:
    """Drafts of probability 1 - 0.75 / 2^16: of 80,000 chains of 32, 29 hold a rejected draft.

    Numbers below 1 of 16 bits or fewer reject none, with float16 or bfloat16 among them. Numbers that round to 1 reject
    each draft with half of their last bit: 20 chains in 16 bits, half of all in 8.
    """
    torch.manual_seed(seed)
    sampler = SamplerUnderTest(sampler_of(engine))
    row = torch.tensor([1 - DISTANCE, DISTANCE], dtype=torch.float64).log().float()
    step = SamplerBatch(
        row.repeat(EACH_BATCH * (NEARLY_SURE + 1), 1), [[0] * NEARLY_SURE] * EACH_BATCH, torch.ones(EACH_BATCH)
    )
    kept = np.zeros(2, dtype=np.int64)
    for _ in range(SURE_CHAINS // EACH_BATCH):
        kept += np.bincount([len(tokens) > NEARLY_SURE for tokens in sampler(step)], minlength=2)
    chance = (1 - DISTANCE) ** NEARLY_SURE
    names = ["a chain with a rejected draft", "a whole chain"]
    assert_distribution(kept.tolist(), np.array([1 - chance, chance]), "chains of nearly sure drafts", names)


RATE = 0.5


@case("WS-15", mode="synthetic", reach="rejection_sample_method=synthetic is an accepted configuration", p_values=1)
def test_rates_and_bonus_tokens_do_not_depend_on_the_draft(engine: Engine, seed: int) -> None:
    """Find a number that serves to draft one of three tokens too: most of its drafts are then rejected, or accepted.

    The law of a token after a rejection is left to the engine.
    """
    torch.manual_seed(seed)
    sampler = SamplerUnderTest(sampler_of(engine))
    row = torch.tensor([0.4, 0.35, 0.25], dtype=torch.float64)
    seen = np.zeros((3, 4), dtype=np.int64)
    for number in range(BATCHES):
        first = seed % 2**40 + number * EACH_BATCH
        step = SamplerBatch(
            torch.zeros(2 * EACH_BATCH, 3),
            [[0]] * EACH_BATCH,
            torch.ones(EACH_BATCH),
            seeds=list(range(first, first + EACH_BATCH)),
            synthetic_rates=[RATE],
        )
        drafted = sampler.draft_and_verify(step, row.log().float().repeat(EACH_BATCH, 1))
        for (draft,), tokens in zip(drafted.draft_token_ids, drafted.tokens, strict=True):
            seen[draft, tokens[1] if len(tokens) > 1 else 3] += 1
    exact = np.outer(row.numpy(), [RATE / 3] * 3 + [1 - RATE])
    bonus = [*(f"bonus token {n}" for n in range(3)), "no bonus token"]
    names = [f"draft {draft} with {token}" for draft in range(3) for token in bonus]
    assert_distribution(seen.ravel().tolist(), exact.ravel(), "draft token, and the bonus token or none", names)
