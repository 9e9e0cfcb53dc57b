"""End-to-end samplers at extremes (contract WS).

Limits at their edges, extreme temperatures, logits one bit apart, rare tokens, drafts of the sampler's own, and large
batches. A case id names this file, so that its cases cannot move to another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from verispec.cases import case
from verispec.cases.sampling import greedy_tokens, random_sampler_batch, rows_of, select
from verispec.engines import Engine
from verispec.engines.protocol.sampling import SamplerBatch
from verispec.judge import Failure, Kind, Mismatch, SamplerUnderTest, sampler_of
from verispec.judge.statistics import assert_distribution, binomial_tail

FAMILIES = [None, "request_state", "fused"]
"""The packed family, the slot-indexed family, and the fused ops."""
REQUESTS = 128
VOCAB = 4096


@pytest.fixture
def sampler(engine: Engine, seed: int, family: str | None) -> SamplerUnderTest:
    torch.manual_seed(seed)
    return SamplerUnderTest(sampler_of(engine, family))


def refuse(message: str) -> None:
    raise Mismatch(Failure(Kind.VALUE, message))


NEAR = 4e-5
"""Relative distance of a row from a limit; 16-bit numbers of the limits below are three times as far from them."""
TOP_P = ["top_p 0.3", "top_p 0.03", "top_p 0.8"]
EDGE = ["edge", "edge without seeds"]


@case("WS-6", family=FAMILIES, limit=TOP_P, check=EDGE, reach="a request with top_p")
def test_top_p_is_exact(sampler: SamplerUnderTest, seed: int, limit: str, check: str) -> None:
    """The most likely token has just less than top_p, so that the second one stays, or just more.

    The second one has 0.15, and 128 requests emit it with a chance of 1 - 1e-9 if it stays. A top-p of 0.03 is the
    smallest that keeps one of 50 tokens; its distance is larger, as float32 sums of all tokens round more than it.
    """
    value = float(limit.split()[1])
    second, near = (0.15, NEAR) if value > 0.15 else (0.025, 10 * NEAR)
    for side in (-1, 1):
        first = value * (1 + side * near)
        check_edge(sampler, seed, limit, check, (first, second, 1 - second - first), stays=side < 0)


def where_wrong(counts: Sequence[int], wrong: Sequence[bool]) -> str:
    """Return words for the rows that gave wrong tokens: those of drafts alone, bonus rows alone, or empty."""
    kinds = {count > 0 for count, is_wrong in zip(counts, wrong, strict=True) if is_wrong}
    if len(kinds) != 1 or len({count > 0 for count in counts}) != 2:
        return ""
    return " by rows of drafts alone" if True in kinds else " by bonus rows alone"


WIDE: dict[str, dict[str, float]] = {"top_k": {"top_k": 3000}, "top_p": {"top_p": 0.75}, "min_p": {"min_p": 0.5}}
KEPT = {"top_k": 3000, "top_p": 3072, "min_p": VOCAB}
"""Tokens that a wide limit keeps in a row that is flat within 1 %, about."""


@case("WS-6", family=FAMILIES, limit=list(WIDE), check="wide", reach="a request whose limit keeps thousands of tokens")
def test_wide_limits_keep_thousands_of_tokens(sampler: SamplerUnderTest, seed: int, limit: str) -> None:
    """On a flat row each of 128 tokens has a rank past 2,048 with a chance of 0.3 at least: none has with 1e-20.

    A limit that is cut to 64, 1,024 or 2,048 tokens, as a buffer of survivors may be, gives none.
    """
    rng = np.random.default_rng(seed)
    values: dict[str, Any] = dict(WIDE[limit])
    if "min_p" in values:
        values["min_p"] = torch.full((REQUESTS,), values["min_p"])
    step = random_sampler_batch(
        rng, [0, 1] * (REQUESTS // 2), VOCAB, draft=False, spread=0.003, seeds=list(range(REQUESTS)), **values
    )
    ranks = []
    for b, tokens in enumerate(sampler(step)):
        row = step.logits[rows_of(step, b)][len(tokens) - 1]
        ranks.append(int((row > row[tokens[-1]]).sum()))
    if max(ranks) < 2048:
        refuse(f"{limit} keeps {KEPT[limit]} tokens of a flat row; none of {REQUESTS} has a rank past {max(ranks)}")
    if max(ranks) > KEPT[limit] + 64:
        said = where_wrong(step.counts, [rank > KEPT[limit] + 64 for rank in ranks])
        refuse(f"{limit} keeps {KEPT[limit]} tokens of a flat row; one that was emitted{said} has rank {max(ranks)}")


@case("WS-6", family=FAMILIES, limit="top_k", check="ties")
def test_a_top_k_of_ties_keeps_k_tokens(sampler: SamplerUnderTest, seed: int) -> None:
    """Two tokens lead and eight tie behind them; a top-k of 4 keeps the same two of the eight in equal rows.

    Half of the requests have a draft, which top-k excludes, so that their token is a recovered one. Several engines
    keep all that reach a threshold, without harm: for them the case is a note.
    """
    rng = np.random.default_rng(seed)
    step = random_sampler_batch(rng, [0, 1] * (REQUESTS // 2), draft=False, top_k=4)
    *tokens, drafted = rng.choice(step.vocab_size, 11, replace=False).tolist()
    step.logits[:] = -20.0
    step.logits[:, tokens] = 0.0
    step.logits[:, tokens[:2]] = 1.0
    for ids in step.draft_token_ids:
        ids[:] = [drafted] * len(ids)  # type: ignore[index]
    seen = {emitted[0] for emitted in sampler(step)}
    if len(seen) > 4:
        refuse(f"{len(seen)} tokens were emitted of equal rows with a top-k of 4")


@case("WS-21", family=FAMILIES, check="one", heat=["1", "mixed"], reach="a request with min_p=1")
def test_a_min_p_of_one_is_greedy(sampler: SamplerUnderTest, seed: int, heat: str) -> None:
    """The most likely token has exactly the fraction 1 of its own probability, so that it is kept."""
    counts = (2, 0, 3, 1)
    temperature = 1.0 if heat == "1" else np.array([0.7, 0.0, 1.3, 0.9])
    rng = np.random.default_rng(seed)
    for _ in range(5):
        step = random_sampler_batch(rng, counts, temperature=temperature, draft=False, min_p=torch.ones(len(counts)))
        for b, tokens in enumerate(sampler(step)):
            if tokens != (expected := greedy_tokens(step, b)):
                # A row without any token has token 0 in most engines.
                lost = tokens[-1] == 0 and tokens[:-1] == expected[: len(tokens) - 1]
                said = ", as if a min_p of 1 dropped the most likely token too" if lost else ""
                refuse(f"request {b} with min_p = 1 emitted {tokens}, expected {expected}{said}")


CLOSE = 2**-17
"""Distance of a sum from top_p, twice that within which TKP-9 leaves the decision to rounding."""


@case("WS-6", family=FAMILIES, limit=["top_p 0.6", "top_p 0.8"], check="closer edge", reach="a request with top_p")
def test_top_p_is_exact_to_seventeen_bits(sampler: SamplerUnderTest, seed: int, limit: str) -> None:
    """The most likely token is as close to top_p as float32 sums still tell, so that a coarser sum shows."""
    value = float(limit.split()[1])
    for side in (-1, 1):
        first = value + side * CLOSE
        check_edge(sampler, seed, limit, "edge", (first, 0.15, 0.85 - first), stays=side < 0)


@case("WS-21", family=FAMILIES, limit=["min_p 0.3", "min_p 0.8"], check=EDGE, reach="a request with min_p")
def test_min_p_is_exact(sampler: SamplerUnderTest, seed: int, limit: str, check: str) -> None:
    """The second token has just less than the fraction of the most likely one, so that it is out, or just more."""
    for side in (-1, 1):
        second = float(limit.split()[1]) * (1 + side * NEAR)
        check_edge(sampler, seed, limit, check, (1.0, second, 1e-9), stays=side > 0)


@case(
    "WS-22",
    family=FAMILIES,
    limit=["min_p 0.3", "top_p 0.3"],
    heat=["0.5", "2"],
    check=EDGE,
    reach="a request with a limit and a temperature",
)
def test_limits_come_after_temperature(sampler: SamplerUnderTest, seed: int, limit: str, heat: str, check: str) -> None:
    """The second token is in or out by its probability at a temperature, as close to the limit as above.

    By that of the logits themselves it is in wherever the temperature is 0.5, and out where it is 2.
    """
    name, value = limit.split()
    for side in (-1, 1):
        if name == "min_p":
            masses, stays = (1.0, float(value) * (1 + side * NEAR), 1e-9), side > 0
        else:
            first = float(value) * (1 + side * NEAR)
            masses, stays = (first, 0.15, 0.85 - first), side < 0
        check_edge(sampler, seed, limit, check, masses, stays=stays, heat=float(heat))


def check_edge(
    sampler: SamplerUnderTest,
    seed: int,
    limit: str,
    check: str,
    masses: tuple[float, float, float],
    *,
    stays: bool,
    heat: float = 1.0,
) -> None:
    """Check that the second of the tokens is emitted if it `stays`; `masses` are those of two tokens and the rest.

    They are probabilities at the temperature `heat`, but for a factor. Every second request has a draft, which its
    limit excludes. Without seeds none has: some engines have no seeds.
    """
    rng = np.random.default_rng(seed)
    name, value = limit.split()
    limits: dict[str, Any] = {name: torch.full((REQUESTS,), float(value))}
    counts, seeds = ([0, 1] * (REQUESTS // 2), list(range(REQUESTS))) if check == "edge" else ([0] * REQUESTS, None)
    step = random_sampler_batch(rng, counts, draft=False, seeds=seeds, temperature=heat, **limits)
    first, second, drafted = rng.choice(step.vocab_size, 3, replace=False).tolist()
    step.logits[:] = heat * float(np.log(masses[2] / (step.vocab_size - 2)))
    step.logits[:, first], step.logits[:, second] = heat * float(np.log(masses[0])), heat * float(np.log(masses[1]))
    for ids in step.draft_token_ids:
        ids[:] = [drafted] * len(ids)  # type: ignore[index]
    tokens = [emitted[0] for emitted in sampler(step)]
    seen, wanted = set(tokens), {first, second} if stays else {first}
    if seen != wanted:
        what = f"{name} = {value} and masses {masses[0]:.6f} and {masses[1]:.6f} of two tokens"
        if heat != 1:
            what = f"at a temperature of {heat}, after which a limit comes, {what}"
        said = where_wrong(counts, [token not in wanted for token in tokens])
        refuse(f"{what} keep {sorted(wanted)}; emitted were {sorted(seen)}{f', others{said}' if said else ''}")


@case(
    "WS-4",
    family=FAMILIES,
    heat=["0.02", "0.05", "0.2"],
    check=["tie", "tie without seeds"],
    reach="a sampled request with a low temperature",
)
def test_low_temperatures_still_sample(sampler: SamplerUnderTest, seed: int, heat: str, check: str) -> None:
    """Two tokens share the whole mass of every row, so that 128 requests choose one of them with a chance of 2^-127.

    The draft is a third token. Bonus tokens come of requests without drafts, recovered ones of the others.
    """
    rng = np.random.default_rng(seed)
    first, second, third = rng.choice(50, 3, replace=False).tolist()
    for count in (0, 1):
        logits = torch.full((REQUESTS * (count + 1), 50), -20.0)
        logits[:, [first, second]] = 3.0
        step = SamplerBatch(
            logits,
            [[third] * count for _ in range(REQUESTS)],
            torch.full((REQUESTS,), float(heat)),
            seeds=list(range(REQUESTS)) if check == "tie" else None,
        )
        seen = {tokens[0] for tokens in sampler(step)}
        if seen != {first, second}:
            what = "recovered" if count else "bonus"
            refuse(
                f"at T = {heat} {REQUESTS} {what} tokens are {sorted(seen)}; {first} and {second} are equally likely"
            )


@case("WS-1", family=FAMILIES, check="neighbours", batch=["all greedy", "mixed"], reach="greedy requests in float32")
def test_the_argmax_is_that_of_the_logits(sampler: SamplerUnderTest, seed: int, batch: str) -> None:
    """The two largest logits of each row are neighbours in float32, so that their probabilities round to the same.

    The larger one has the higher id.
    """
    rng = np.random.default_rng(seed)
    counts = (2, 0, 1, 3, 0)
    heat = np.where(np.arange(len(counts)) % 2, 0.7, 0.0) if batch == "mixed" else 0.0
    step = random_sampler_batch(rng, counts, temperature=heat, draft=False)
    for row in step.logits:
        low, high = sorted(rng.choice(50, 2, replace=False).tolist())
        row.sub_(row.max() + 1)
        row[low] = 0.01
        row[high] = float(np.nextafter(np.float32(0.01), np.float32(1)))
    for b, ids in enumerate(step.draft_token_ids):
        ids[:] = step.logits[rows_of(step, b)].argmax(dim=1).tolist()[: len(ids)]  # type: ignore[index]
    for b, tokens in enumerate(sampler(step)):
        if float(step.temperature[b]) == 0 and tokens != greedy_tokens(step, b):
            refuse(f"greedy request {b} emitted {tokens}, expected {greedy_tokens(step, b)} by one bit of its logits")


@case(
    "WS-10", family=FAMILIES[:2], check="synthetic", mode="law", reach="rejection_sample_method=synthetic", p_values=1
)
def test_synthetic_mode_draws_its_own_token_from_the_target(sampler: SamplerUnderTest, seed: int) -> None:
    """The token after the drafts follows the target under temperature, also where rates accepted all drafts.

    Half of the requests have one draft, which a rate of 1 accepts; the others have none.
    """
    row = np.random.default_rng(seed).normal(scale=1.5, size=8).astype(np.float32)
    seen = np.zeros(8, dtype=np.int64)
    for call in range(20):
        count = call % 2
        step = SamplerBatch(
            torch.from_numpy(np.tile(row, (REQUESTS * (count + 1), 1))),
            [[call % 8] * count for _ in range(REQUESTS)],
            torch.full((REQUESTS,), 1.7),
            seeds=[seed % 2**31 + REQUESTS * call + b for b in range(REQUESTS)],
            synthetic_rates=[1.0],
        )
        for tokens in sampler(step):
            if len(tokens) != count + 1:
                refuse(f"{len(tokens)} tokens of {count} drafts at a rate of 1")
            seen[tokens[-1]] += 1
    weights = np.exp(row.astype(np.float64) / 1.7)
    names = [f"token {token}" for token in range(len(seen))]
    assert_distribution(seen.tolist(), weights / weights.sum(), "tokens after the drafts in synthetic mode", names)


@case(
    "WS-26", family=["request_state"], rates="near 1", mode="law", reach="rejection_sample_method=synthetic", p_values=1
)
def test_rates_keep_their_distance_to_one(sampler: SamplerUnderTest, seed: int) -> None:
    """Conditional rates that 16 bits round to 1 reject one of 64 drafts in 1.5 % of the chains."""
    drafts, distance = 64, 15 * 2.0**-16
    whole = np.zeros(2, dtype=np.int64)
    for call in range(16):
        step = SamplerBatch(
            torch.zeros((REQUESTS * (drafts + 1), 8)),
            [[(b + n) % 8 for n in range(drafts)] for b in range(REQUESTS)],
            torch.ones(REQUESTS),
            seeds=[seed % 2**31 + REQUESTS * call + b for b in range(REQUESTS)],
            synthetic_rates=[(1 - distance) ** (n + 1) for n in range(drafts)],
        )
        for tokens in sampler(step):
            whole[int(len(tokens) == drafts + 1)] += 1
    chance = (1 - distance) ** drafts
    names = ["a chain with a rejected draft", "a whole chain"]
    assert_distribution(whole.tolist(), np.array([1 - chance, chance]), "chains that synthetic rates keep", names)


@case("WS-25", heat=["0.02", "0.002", "mixed"], reach="every request whose drafts are sampled")
def test_drafts_come_from_their_own_rows(engine: Engine, seed: int, heat: str) -> None:
    """One token of each row leads by 0.5, which a temperature of 0.02 makes certain and one of 50 does not.

    At 0.002 it leads by 0.05, which 0.02 would not make certain. Of a mixed batch request 1 is greedy, and request 4 is
    hot. Its 160 drafts hold 4 leading tokens on average, and more than 30 with a chance of
    1e-18.
    """
    torch.manual_seed(seed)
    sampler = SamplerUnderTest(sampler_of(engine))
    rng = np.random.default_rng(seed)
    counts = (2, 3, 0, 1, 4)
    temperature = np.array([0.02, 0.0, 0.02, 0.02, 50.0]) if heat == "mixed" else float(heat)
    lead = 0.05 if heat == "0.002" else 0.5
    hot = 0
    for _ in range(40):
        step = random_sampler_batch(rng, counts, temperature=temperature, draft=False, seeds=list(range(len(counts))))
        leaders = rng.integers(0, step.vocab_size, sum(counts))
        logits = torch.from_numpy(rng.uniform(-1, 0, (sum(counts), step.vocab_size)).astype(np.float32))
        logits[torch.arange(len(leaders)), torch.from_numpy(leaders)] = lead
        told = [token for ids in sampler.draft_and_verify(step, logits).draft_token_ids for token in ids]
        cold = sum(counts[:4]) if heat == "mixed" else sum(counts)
        if told[:cold] != leaders.tolist()[:cold]:
            refuse(f"drafts are {told[:cold]}; the rows' only likely tokens are {leaders.tolist()[:cold]}")
        hot += sum(map(int.__eq__, told[cold:], leaders.tolist()[cold:]))
    if hot > 30:
        refuse(f"{hot} of 160 drafts at T = 50 are the most likely tokens")


@case(
    "WS-4",
    family=FAMILIES,
    heat=["0.002", "0.02", "30"],
    check="odds",
    p_values=1,
    reach="a sampled request with a low or a high temperature",
)
def test_extreme_temperatures_keep_their_odds(sampler: SamplerUnderTest, seed: int, heat: str) -> None:
    """One token is four times as likely as another at its own temperature, and less so at a higher one.

    3,072 requests find a temperature of 0.03 instead of 0.02, at which it is 2.5 times as likely.
    """
    first, second = np.random.default_rng(seed).choice(50, 2, replace=False).tolist()
    logits = torch.full((REQUESTS, 50), -20.0 * max(float(heat), 1.0))
    logits[:, first] = 0.0
    logits[:, second] = -float(heat) * float(np.log(4))
    seen = np.zeros(2, dtype=np.int64)
    for call in range(24):
        seeds = [seed % 2**31 + REQUESTS * call + b for b in range(REQUESTS)]
        step = SamplerBatch(logits, [[]] * REQUESTS, torch.full((REQUESTS,), float(heat)), seeds=seeds)
        for [token] in sampler(step):
            if token not in (first, second):
                refuse(f"at T = {heat} token {token} was emitted, whose probability is 0")
            seen[int(token == second)] += 1
    names = [f"token {token}" for token in (first, second)]
    assert_distribution(seen.tolist(), np.array([0.8, 0.2]), f"two tokens at T = {heat}", names)


RARE = 1e-8
"""Probability of a token that certainly follows, given the drafts."""


@case(
    "WS-10",
    family=FAMILIES,
    check="rare drafts",
    probability=[1e-4, RARE],
    reach="every request whose drafts are sampled",
)
def test_rare_tokens_are_accepted_and_recovered(sampler: SamplerUnderTest, seed: int, probability: float) -> None:
    """Rare drafts are twice as likely for the target as for the draft, so that they must be accepted.

    The last draft of every second request is impossible, and the draft's likely token is as likely for the target. All
    of the residual lies on one rare token.
    """
    rng = np.random.default_rng(seed)
    counts = (2, 3, 1, 4)
    step = random_sampler_batch(rng, counts, seeds=list(range(len(counts))), temperature=1.0)
    assert step.draft_probs is not None
    expected = []
    for b, ids in enumerate(step.draft_token_ids):
        first = sum(counts[:b])
        likely, *others = rng.permutation(step.vocab_size).tolist()
        rows, tokens = step.logits[rows_of(step, b)], []
        rows[:] = -200.0
        rows[:, likely] = 0.0
        for j in range(len(ids)):
            rare, impossible = others[2 * j], others[2 * j + 1]
            is_rejected = b % 2 == 1 and j == len(ids) - 1
            rows[j, rare] = float(np.log(probability))
            ids[j] = impossible if is_rejected else rare  # type: ignore[index]
            step.draft_probs[first + j] = 0.0
            step.draft_probs[first + j, likely] = 1 - probability / 2
            step.draft_probs[first + j, ids[j]] = probability / 2
            tokens.append(rare)
        expected.append(tokens if b % 2 else [*tokens, likely])
    for b, tokens in enumerate(sampler(step)):
        if tokens != expected[b]:
            refuse(f"request {b} emitted {tokens}; tokens of probability {probability} make it {expected[b]}")


MANY = 2000


@case(
    "WS-10",
    family=FAMILIES,
    check="rare decisions",
    probability=[0.01, 0.99],
    reach="every sampled request with drafts",
)
def test_random_numbers_reach_both_ends(sampler: SamplerUnderTest, seed: int, probability: float) -> None:
    """Of 2,000 drafts, 20 are expected to be accepted or to be rejected: none, or more than 80, has a chance of e^-20.

    Random numbers between 0.02 and 0.98, as a bound on them may leave, decide all drafts alike.
    """
    step = random_sampler_batch(np.random.default_rng(seed), [1] * MANY, 8, draft=False)
    step.logits[:] = float(np.log((1 - probability) / 7))
    step.logits[:, 3] = float(np.log(probability))
    for ids in step.draft_token_ids:
        ids[:] = [3]  # type: ignore[index]
    accepted = sum(tokens[0] == 3 for tokens in sampler(step))
    rare = min(accepted, MANY - accepted)
    if not 0 < rare <= 80 or (accepted == rare) != (probability < 0.5):
        refuse(f"{accepted} of {MANY} drafts with a probability of {probability} were accepted")


@case("WS-25", check="tail", reach="every request whose drafts are sampled")
def test_drafts_come_from_the_tail_too(engine: Engine, seed: int) -> None:
    """One token has half of the mass, 1,000 others a thousandth of it: a limit on drafts would exclude these."""
    torch.manual_seed(seed)
    sampler = SamplerUnderTest(sampler_of(engine))
    step = random_sampler_batch(
        np.random.default_rng(seed), [1] * REQUESTS, 1001, draft=False, seeds=list(range(REQUESTS))
    )
    logits = torch.zeros(REQUESTS, 1001)
    logits[:, 0] = float(np.log(1000))
    drafts = [ids[0] for ids in sampler.draft_and_verify(step, logits).draft_token_ids]
    rare = sum(token > 0 for token in drafts)
    if not REQUESTS // 4 <= rare <= 3 * REQUESTS // 4:
        refuse(f"{rare} of {REQUESTS} drafts are other tokens than the most likely one, whose probability is 1/2")


@case("WS-25", check="odds", reach="every request whose drafts are sampled", p_values=1)
def test_drafts_have_the_odds_of_their_row(engine: Engine, seed: int) -> None:
    """Find a probability of 1/2 that is 0.535 with a chance of 0.99, by 20,000 drafts of one row.

    An exponent of 1.09 on the weights makes it so.
    """
    torch.manual_seed(seed)
    sampler = SamplerUnderTest(sampler_of(engine))
    row = torch.tensor([0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
    seen = np.zeros(len(row), dtype=np.int64)
    for call in range(20):
        seeds = [seed % 2**31 + 1000 * call + b for b in range(1000)]
        step = SamplerBatch(torch.zeros(2000, len(row)), [[0]] * 1000, torch.ones(1000), seeds=seeds)
        drafted = sampler.draft_and_verify(step, row.log().repeat(1000, 1))
        seen += np.bincount([token for [token] in drafted.draft_token_ids], minlength=len(row))
    names = [f"draft {token}" for token in range(len(row))]
    assert_distribution(seen.tolist(), row.double().numpy(), "drafts of one row", names)


HEATS = (0.02, 0.5, 0.0, 1.7, 30.0)
SHARE = 0.8
"""Probability of the first of two drafts at the temperature of its request."""
UNLIKELY = 1e-12


@case("WS-25", heat="of each", check="odds", reach="every request whose drafts are sampled")
def test_drafts_have_the_odds_of_their_temperature(engine: Engine, seed: int) -> None:
    """Count two draft tokens at four temperatures, beside greedy requests, and the tokens that are emitted for them.

    Both emitted tokens are equally likely. Drafts that are drawn at 1.4 times their temperature, or verified as if,
    move a share of 4,000 by nine standard deviations.
    """
    torch.manual_seed(seed)
    sampler = SamplerUnderTest(sampler_of(engine))
    heats = np.tile(HEATS, 200)
    row = np.log([SHARE, 1 - SHARE])
    draft_logits = torch.from_numpy(np.maximum(heats, 0.5 * (heats == 0))[:, None] * row).float()
    first_drafts, first_tokens = np.zeros(len(heats), dtype=np.int64), np.zeros(len(heats), dtype=np.int64)
    for call in range(20):
        seeds = [seed % 2**31 + len(heats) * call + b for b in range(len(heats))]
        step = SamplerBatch(
            torch.zeros(2 * len(heats), 2), [[0]] * len(heats), torch.from_numpy(heats).float(), seeds=seeds
        )
        drafted = sampler.draft_and_verify(step, draft_logits)
        first_drafts += np.array([token == 0 for [token] in drafted.draft_token_ids])
        first_tokens += np.array([tokens[0] == 0 for tokens in drafted.tokens])
    for heat in HEATS:
        if heat:
            own = heats == heat
            check_odds(int(first_drafts[own].sum()), 20 * int(own.sum()), SHARE, f"drafts at T = {heat}")
            check_odds(int(first_tokens[own].sum()), 20 * int(own.sum()), 0.5, f"tokens after drafts at T = {heat}")


def check_odds(first: int, total: int, share: float, what: str) -> None:
    """Check that the number of first tokens is one of independent draws."""
    tail = min(binomial_tail(first, total, share), binomial_tail(total - first, total, 1 - share))
    if tail < UNLIKELY:
        message = f"{first} of {total} {what} are the first token, whose probability is {share}"
        raise Mismatch(Failure(Kind.LAW, message))


WIDE_ROWS = 70_001
"""A vocabulary of which a sampler that shares its rows out by size puts one or few into a part."""
BATCH = {"many requests": ([0, 2, 1, 3] * 40, 50), "wide rows": ([0, 2, 1, 3], WIDE_ROWS)}
"""Drafts of each request, and the vocabulary."""
SEEN_ALONE = {"many requests": (0, 63, 64, 67, 128, 159), "wide rows": (0, 1, 3)}


def is_many(params: Mapping[str, Any]) -> str:
    wide = "a batch of a model with more than 65,536 tokens"
    return wide if "wide" in params["check"] else "more than 64 requests in a batch"


@case("WS-2", family=FAMILIES, change="alone", check=list(BATCH), reach=is_many)
def test_requests_of_a_large_batch_do_not_see_the_others(sampler: SamplerUnderTest, seed: int, check: str) -> None:
    """A row of 70,001 nearly flat logits shows whose random numbers its token was drawn by."""
    counts, vocab = BATCH[check]
    step = random_sampler_batch(
        np.random.default_rng(seed), counts, vocab, draft=False, spread=0.5, seeds=list(range(len(counts)))
    )
    together = sampler(step)
    for b in SEEN_ALONE[check]:
        alone = sampler(select(step, [b]))[0]
        if alone != together[b]:
            refuse(f"request {b} of {len(counts)} emitted {together[b]}, and {alone} alone")


@case("WS-2", change="alone", check=["drafts", "drafts of wide rows"], reach=is_many)
def test_drafts_of_a_large_batch_do_not_see_the_others(engine: Engine, seed: int, check: str) -> None:
    sampler = SamplerUnderTest(sampler_of(engine))
    rng = np.random.default_rng(seed)
    count, vocab = (160, 50) if check == "drafts" else (4, WIDE_ROWS)
    step = random_sampler_batch(rng, [1] * count, vocab, draft=False, seeds=list(range(count)))
    logits = torch.from_numpy(rng.normal(size=(count, step.vocab_size)).astype(np.float32))
    together = sampler.draft_and_verify(step, logits).draft_token_ids
    for b in SEEN_ALONE["many requests" if check == "drafts" else "wide rows"]:
        alone = sampler.draft_and_verify(select(step, [b]), logits[b : b + 1]).draft_token_ids[0]
        if list(alone) != list(together[b]):
            refuse(f"request {b} of {count} drafted {together[b]}, and {alone} alone")


LARGE = 151_936
TAIL = 9e-7
"""Probability of each token but one; 150 tokens hold 20 of them on average, and none with a chance of 3e-10."""


@case("WS-10", family=FAMILIES, check="tail", size="large", reach="a large vocabulary")
def test_a_tail_of_rare_tokens_is_kept(sampler: SamplerUnderTest, seed: int) -> None:
    """Bonus tokens of requests without drafts; those of the case above are certain."""
    logits = torch.full((30, LARGE), float(np.log(TAIL)))
    logits[:, 0] = float(np.log(1 - (LARGE - 1) * TAIL))
    rare = 0
    for call in range(5):
        seeds = [seed % 2**31 + 30 * call + b for b in range(30)]
        rare += sum(token != 0 for [token] in sampler(SamplerBatch(logits, [[]] * 30, torch.ones(30), seeds=seeds)))
    if not rare:
        refuse(f"none of 150 tokens is one of {LARGE - 1:,} with probability {TAIL} each; 20 are expected")
