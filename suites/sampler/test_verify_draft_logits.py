"""verify_draft_logits: what every implementation must do (contract VDL)."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.request_state import RequestBatch, draft_outside, random_requests
from verispec.engines import Engine
from verispec.judge import OpUnderTest
from verispec.suites.sampler import _ends
from verispec.suites.sampler._fused import (
    APART,
    DROPPING,
    INSIDE,
    INSIDE_K,
    OFFSETS,
    REACH,
    UNEVEN_P,
    draft_at_limit,
    draft_inside,
    draft_normalisers,
    heavy_end,
    inside,
    kept_ids,
    limits,
    many_logits,
    of_temperature,
    overshooting,
    quantised,
    raw,
    third,
    uneven,
    verify,
)
from verispec.suites.sampler._request_state import COUNTS, batch, layouts, widths
from verispec.suites.sampler._shared_calls import (
    verify_a_mass_of_exactly_p,
    verify_clustered_tokens,
    verify_mixed_limits,
    verify_one_by_one,
    verify_one_kept_token,
    verify_one_token_of_each_part,
    verify_small_limits,
    verify_special_rows,
    verify_striped_rows,
    verify_ties,
    verify_ties_beside_others,
    verify_top_k_beside_a_top_p_of_one,
    verify_top_p,
)
from verispec.suites.sampler.test_every_op import is_slow

VOCABS = [1, 2, 127, 1024, 8193, 20_000]


def drafted(
    seed: int, counts: str, vocab: int = 37, *, temperature: float | None = 0.7, **options: Any
) -> RequestBatch:
    return raw(batch(seed, counts, "present", vocab, temperature=temperature, **options))


def draft_row(requests: RequestBatch, row: int) -> Any:
    """Return the draft's logits of a target row, as a view."""
    assert requests.draft_logits is not None
    return requests.draft_logits[requests.expanded_idx_mapping[row], requests.expanded_local_pos[row]]


def draft_rows(requests: RequestBatch) -> list[int]:
    """Return the target rows that verify a draft token."""
    return [requests.row(b, i) for b in range(requests.requests) for i in range(requests.drafts(b))]


def far(requests: RequestBatch, gain: float = 8.0) -> RequestBatch:
    """Raise the draft's own logit of every draft above the target's: most of them fail."""
    for row in draft_rows(requests):
        draft_row(requests, row)[requests.draft_sampled[row + 1]] += gain
    return requests


@case("VDL-1", counts=list(COUNTS), reach=REACH)
def test_accepted_by_ratio(op: OpUnderTest, seed: int, counts: str) -> None:
    verify(op, drafted(seed, counts))


@case("VDL-2", counts=list(COUNTS), reach=REACH)
def test_drawn_from_the_residual(op: OpUnderTest, seed: int, counts: str) -> None:
    verify(op, far(drafted(seed, counts)))


@case("VDL-2", check="only few candidates pass", vocab=[37, 1024, 8193], reach=REACH)
def test_many_candidates(op: OpUnderTest, seed: int, vocab: int) -> None:
    """The draft's distribution is nearly the target's: one candidate in ten passes, and so with a wide top-p."""
    requests = drafted(seed, "wide", vocab, temperature=1.0)
    for row in draft_rows(requests):
        draft_row(requests, row)[:] = requests.target_logits[row] + 0.1
        draft_row(requests, row)[: vocab // 8] -= 1.0
        requests.draft_sampled[row + 1] = draft_row(requests, row).argmin()
        draft_row(requests, row)[requests.draft_sampled[row + 1]] += 9.0
    verify(op, requests)
    verify(op, requests, **limits(requests, p=0.99))


@case("VDL-2", check=INSIDE, k=INSIDE_K, p=[None, "0.9"], reach="top-k and top-p of a request")
def test_drawn_after_a_draft_that_is_kept(op: OpUnderTest, engine: Engine, seed: int, k: str, p: str | None) -> None:
    """Drafters thought each draft likelier than it is, and its neighbours among the kept tokens less likely."""
    most, counts, vocab = inside(k, is_slow=is_slow(engine))
    requests = draft_inside(drafted(seed, counts, vocab, temperature=1.0), most)
    for row in draft_rows(requests):
        draft_row(requests, row)[:] = requests.target_logits[row] + np.random.default_rng(row).choice(
            [-0.5, 0.0], vocab
        )
        draft_row(requests, row)[requests.draft_sampled[row + 1]] += 2.0
    verify(op, requests, **limits(requests, most, None if p is None else float(p)))
    if p is not None:
        verify(op, requests, **limits(requests, p=float(p)))


@case("VDL-2", check=list(DROPPING), reach="top-p of a request")
def test_candidates_that_top_p_drops(op: OpUnderTest, seed: int, check: str) -> None:
    """Each draft is the third likeliest token of a flat row, and rejected: its drafter thought it very likely."""
    requests = drafted(seed, "wide", 2000, temperature=1.0)
    requests.target_logits *= 0.25
    verify(op, far(draft_at_limit(requests, third(requests))), **limits(requests, p=DROPPING[check]))


@case("VDL-2", check=list(DROPPING), spread="quantised", reach="quantised logits tie")
def test_equal_candidates_that_top_p_drops(op: OpUnderTest, seed: int, check: str) -> None:
    """Top-p keeps the first of a dozen equal tokens, of which the bonus token, or the one after a rejection, is drawn.

    A drafter without a favourite is mostly believed; then it thinks each draft very likely.
    """
    requests = quantised(drafted(seed, "wide", 2000, temperature=1.0))
    draft_at_limit(requests, third(requests))
    verify(op, requests, **limits(requests, p=DROPPING[check]))
    verify(op, far(requests), **limits(requests, p=DROPPING[check]))


@case("VDL-2", check=APART, vocab=20_000, reach="top-p of a request")
def test_candidates_of_uneven_parts_that_top_p_drops(op: OpUnderTest, engine: Engine, seed: int) -> None:
    """Bonus tokens without a kept candidate are drawn from all kept tokens: each part by its weight in the row."""
    requests = uneven(seed, draft=True, is_slow=is_slow(engine))
    verify(op, requests, **limits(requests, p=UNEVEN_P))


@case("VDL-3", vocab=[127, 1024, 5000], reach="a draft model that is nearly its target")
def test_a_residual_of_little_mass(op: OpUnderTest, seed: int, vocab: int) -> None:
    """No candidate passes: q is p up to 2^-8, but for the draft itself, which weighs next to nothing.

    The last part of a row of 5,000 holds much of the mass, so that a sum without it shows.
    """
    requests = drafted(seed, "wide", vocab, temperature=1.0)
    for row in draft_rows(requests):
        ripple = np.random.default_rng(row).choice([-(2.0**-8), 2.0**-8], vocab)
        draft_row(requests, row)[:] = requests.target_logits[row] + ripple
        requests.draft_sampled[row + 1] = token = int(requests.target_logits[row].argmin())
        requests.target_logits[row, token] -= 30.0
    verify(op, requests)


@case("VDL-3", check=["top-k", "top-p"], vocab=[127, 1024, 8193], reach="a drafter that limits its rows as its target")
def test_a_residual_of_the_tokens_that_a_limit_keeps(op: OpUnderTest, seed: int, check: str, vocab: int) -> None:
    """No candidate passes: q is p of the kept tokens up to 2^-8, and nothing of the others."""
    requests = drafted(seed, "wide", vocab, temperature=1.0)
    for row in draft_rows(requests):
        rng = np.random.default_rng(row)
        light = rng.permutation(vocab) < vocab // 2
        logits = requests.target_logits[row] = np.where(light, -9.0, 0.0) + rng.choice([-0.25, 0.25], vocab)
        draft_row(requests, row)[:] = np.where(light, -np.inf, logits + rng.choice([-(2.0**-8), 2.0**-8], vocab))
        requests.draft_sampled[row + 1] = token = int(rng.choice(np.flatnonzero(~light)))
        requests.target_logits[row, token] -= 30.0
    k, p = (vocab - vocab // 2 - 1, None) if check == "top-k" else (None, 0.995)
    verify(op, requests, **limits(requests, k, p))


@case(
    "VDL-3",
    check=INSIDE,
    k=["50", "200", "2500"],
    p=[None, "0.9"],
    reach="a drafter that limits its rows as its target",
)
def test_a_residual_around_a_draft_that_is_kept(
    op: OpUnderTest, engine: Engine, seed: int, k: str, p: str | None
) -> None:
    """Few candidates pass: q is p of the kept tokens up to 2^-8, but for the draft, which q has twice as often."""
    most, counts, vocab = inside(k, is_slow=is_slow(engine))
    requests = draft_inside(drafted(seed, counts, vocab, temperature=1.0), most, share=2 / most)
    for row in draft_rows(requests):
        target, own, token = requests.target_logits[row], draft_row(requests, row), requests.draft_sampled[row + 1]
        kept = kept_ids(target, most)
        own[:] = -np.inf
        own[kept] = target[kept] + np.random.default_rng(row).choice([-(2.0**-8), 2.0**-8], len(kept))
        target[token] -= np.log(2.0)
    verify(op, requests, **limits(requests, most, None if p is None else float(p)))


@case("VDL-4", counts=list(COUNTS), reach=REACH)
def test_the_bonus_token(op: OpUnderTest, seed: int, counts: str) -> None:
    """Every draft passes: the draft's distribution gives it less than the target's."""
    verify(op, far(drafted(seed, counts), -9.0))


@case("VDL-4", vocab=VOCABS, reach="vocabularies are no multiples of a tile")
def test_any_vocabulary(op: OpUnderTest, seed: int, vocab: int) -> None:
    verify(op, drafted(seed, "ragged", vocab))


@case("VDL-4", check=_ends.AT_ENDS, vocab=_ends.VOCABS, limited=["no", "yes"], reach=_ends.REACH)
def test_an_id_at_an_end_is_drawn(op: OpUnderTest, seed: int, vocab: int, limited: str) -> None:
    """Drafts are rejected, then accepted; the limits keep the token."""
    for requests in _ends.both_fates(seed, vocab, draft=True, temperature=0.7):
        verify(op, requests, **(limits(requests, 5, 0.9) if limited == "yes" else {}))


@case("VDL-4", check="a long request among short ones", vocab=151_936, reach=REACH)
def test_a_batch_of_many_logits(op: OpUnderTest, seed: int) -> None:
    verify(op, raw(many_logits(seed, temperature=0.7)))


@case("VDL-5", k=[None, "1", "5", "36", "mixed"], p=[None, "0.1", "0.9", "mixed"], reach="top-k and top-p of a request")
def test_limits(op: OpUnderTest, seed: int, k: str | None, p: str | None) -> None:
    verify_mixed_limits(op, drafted, seed, k, p)


@case("VDL-5", k=["50", "5000"], p=[None, "0.9"], vocab=[8193, 20_000], reach="top-k and top-p of a request")
def test_limits_of_a_large_vocabulary(op: OpUnderTest, seed: int, k: str, p: str | None, vocab: int) -> None:
    requests = drafted(seed, "ragged", vocab, temperature=1.3)
    verify(op, requests, **limits(requests, int(k), None if p is None else float(p)))


@case("VDL-5", check="few tokens of many", vocab=20_000, reach="top-k of a request")
def test_small_limits_of_a_large_vocabulary(op: OpUnderTest, seed: int) -> None:
    """Top-k keeps one to three tokens, fewer than a row has parts; each draft is the last one that is kept."""
    verify_small_limits(op, drafted, seed)


@case("VDL-5", check="top-k of flat rows beside top-p", vocab=20_000, reach="requests with and without top-p")
def test_top_k_beside_a_top_p_of_one(op: OpUnderTest, seed: int) -> None:
    """Each token weighs nearly as much as the first one; top-k counts them, also where the batch has a top-p."""
    verify_top_k_beside_a_top_p_of_one(op, drafted, seed)


@case("VDL-5", spread=["peaked", "flat", "equal"], p=["0.3", "0.95", "0.9999"], reach="top-p of a request")
def test_top_p(op: OpUnderTest, seed: int, spread: str, p: str) -> None:
    verify_top_p(op, drafted, seed, spread, p)


@case("VDL-5", check="late in a long chain", p="0.5")
def test_top_p_late_in_a_long_chain(op: OpUnderTest, engine: Engine, seed: int) -> None:
    """Every draft passes for certain but the last but three, which top-p drops and its drafter thought unlikely.

    Its logit is above those of the drafts before it: a bound of an earlier row would keep it.
    """
    drafts, vocab = 66 if is_slow(engine) else 1030, 8
    requests = raw(random_requests(np.random.default_rng(seed), (drafts,), vocab, spare=0, temperature=1.0))
    tokens = requests.draft_sampled[1:]
    for row, token in enumerate(tokens):
        requests.target_logits[row] = draft_row(requests, row)[:] = np.where(np.arange(vocab) == token, 0.0, -30.0)
    late = drafts - 4
    requests.target_logits[late, [tokens[late], tokens[late] - 1]] = 100.0, 102.0
    draft_row(requests, late)[tokens[late]] = -60.0
    verify(op, requests, **limits(requests, p=0.5))


@case("VDL-5", check="top-p of 0 and less", vocab=[37, 8193])
def test_top_p_that_keeps_one_token(op: OpUnderTest, seed: int, vocab: int) -> None:
    """Two thirds of the drafts are the token that is kept, which passes for certain."""
    verify_one_kept_token(op, drafted, seed, vocab)


@case("VDL-5", check="more is kept than p", p="0.51", vocab=[37, 8193], reach="top-p of a request")
def test_a_nucleus_of_more_than_p(op: OpUnderTest, seed: int, vocab: int) -> None:
    """A draft passes by its share of the mass that is kept, not of p. Its drafter was sure of it."""
    requests = overshooting(drafted(seed, "wide", vocab, temperature=1.0))
    for row in draft_rows(requests):
        draft_row(requests, row)[:] = -30.0
        draft_row(requests, row)[requests.draft_sampled[row + 1]] = 0.0
    verify(op, requests, **limits(requests, p=0.51))


@case(
    "VDL-5",
    check="a residual of more than p beside a long tail",
    p="0.51",
    vocab=[37, 8193],
    reach="top-p of a request",
)
def test_a_residual_of_more_than_p(op: OpUnderTest, seed: int, vocab: int) -> None:
    """Two tokens are kept, and the second is the residual: of p alone the first would have more than the draft gives.

    In the first request's rows the last kept token weighs next to nothing.
    """
    requests = overshooting(drafted(seed, "wide", vocab, temperature=1.0))
    for row in draft_rows(requests):
        second = int(requests.draft_sampled[row + 1])
        first = int(np.argmax(requests.target_logits[row]))
        dropped = next(token for token in range(3) if token not in (first, second))
        requests.draft_sampled[row + 1] = dropped
        draft_row(requests, row)[:] = -30.0
        draft_row(requests, row)[[first, second, dropped]] = np.log([0.55, 0.2, 0.25])
    requests.target_logits[: requests.row(1, 0)] = np.log(vocab - 1) * (np.arange(vocab) == 0)
    verify(op, requests, **limits(requests, p=0.51))


@case("VDL-5", check="a mass of exactly p", p="0.5", vocab=[37, 8193], reach="a grammar leaves few tokens")
def test_a_mass_of_exactly_p(op: OpUnderTest, seed: int, vocab: int) -> None:
    """A token before which the mass is p is dropped. No number of the call is rounded, so that none may differ."""
    verify_a_mass_of_exactly_p(op, drafted, seed, vocab)


@case("VDL-5", spread="clustered", p="0.95", reach="a grammar leaves few tokens")
def test_top_p_of_clustered_tokens(op: OpUnderTest, seed: int) -> None:
    verify_clustered_tokens(op, drafted, seed)


@case("VDL-5", spread="striped", reach="top-k and top-p of a request")
def test_limits_of_striped_rows(op: OpUnderTest, seed: int) -> None:
    """A sample of evenly spread places misjudges them, so that a guess from one is wrong."""
    verify_striped_rows(op, drafted, seed)


@case("VDL-5", spread="one token of each part", reach="top-k of a request")
def test_limits_of_rows_with_one_token_of_each_part(op: OpUnderTest, engine: Engine, seed: int) -> None:
    """More than a hundred wide rows, then short ones; each draft is the last token that top-k keeps."""
    verify_one_token_of_each_part(op, drafted, seed, is_slow=is_slow(engine))


@case("VDL-5", spread="heavy end", vocab=70_000, reach="top-k and top-p of a request")
def test_both_limits_keep_tokens_past_16_bits(op: OpUnderTest, seed: int) -> None:
    """Top-k drops some of the first tokens, and top-p some of the likely ones behind them."""
    requests = drafted(seed, "one", 70_000, temperature=1.0)
    heavy_end(requests.target_logits, 4000)
    verify(op, requests, **limits(requests, 66_000, 0.5))


@case("VDL-5", check="ties", k=["3", "40"], p=[None, "0.5", "0.9999"], reach="quantised logits tie")
def test_ties_at_the_limit(op: OpUnderTest, seed: int, k: str, p: str | None) -> None:
    """Of equal logits the lower ids are kept, be they drafted or drawn."""
    verify_ties(op, drafted, seed, k, p)


@case("VDL-5", check="neighbours in float32", p=["0.3", "0.7"], reach="quantised logits tie")
def test_many_ties_beside_others(op: OpUnderTest, seed: int, p: str) -> None:
    verify_ties_beside_others(op, drafted, seed, p)


@case("VDL-6", counts=list(COUNTS), reach=REACH)
def test_greedy(op: OpUnderTest, seed: int, counts: str) -> None:
    verify(op, drafted(seed, counts, temperature=0.0), top_k=None)


@case("VDL-6", check="mixed with sampled requests", limited=["no", "yes"], reach=REACH)
def test_mixed_batches(op: OpUnderTest, seed: int, limited: str) -> None:
    requests = drafted(seed, "gaps", temperature=None)
    verify(op, requests, **(limits(requests, 5, 0.9) if limited == "yes" else {}))


@case(
    "VDL-7",
    token=[-1, -5, 37, 2**31 - 1],
    temperature=["0", "0.7"],
    reach=lambda p: "the scheduler pads drafts with -1" if p["token"] == -1 else None,
)
def test_padding_tokens(op: OpUnderTest, seed: int, token: int, temperature: str) -> None:
    requests = drafted(seed, "ragged", temperature=float(temperature))
    draft_outside(requests, token)
    verify(op, requests)


@case("VDL-8", columns=[0, 1, 5], reach="the buffer is as wide as the longest request of any batch")
def test_all_columns_are_written(op: OpUnderTest, seed: int, columns: int) -> None:
    requests = drafted(seed, "gaps")
    width = requests.columns + columns
    op.check_outputs(requests.arguments(op.contract), shapes={"sampled": (requests.requests, width)})


@case("VDL-9", counts=["ragged", "longest"], reach="the drafter continues from there")
def test_outputs_for_the_drafter(op: OpUnderTest, seed: int, counts: str) -> None:
    verify(op, drafted(seed, counts))


@case("VDL-10", row=["one-hot target", "nan q"], reach=lambda p: REACH if p["row"] == "one-hot target" else None)
def test_a_residual_without_mass(op: OpUnderTest, seed: int, row: str) -> None:
    """Nothing is left without the rejected draft: the token is the draft again."""
    requests = drafted(seed, "wide", temperature=1.0)
    requests.draft_sampled[:] = 3
    if row == "nan q":
        requests.draft_logits[:] = np.nan  # type: ignore[index]
    else:
        requests.target_logits[:] = np.where(np.arange(37) == 5, 0.0, -np.inf)
        requests.draft_logits[:] = requests.target_logits[0]  # type: ignore[index]
    verify(op, requests)


@case("VDL-11", rows=["some", "all", "minus infinity", "one infinite", "two infinite"])
def test_rows_of_special_values(op: OpUnderTest, seed: int, rows: str) -> None:
    """Two tokens with positive infinity are in the first and in the last block of any size."""
    verify_special_rows(op, drafted, seed, rows)


@case("VDL-11", rows=["one infinite in the draft's", "two infinite in the draft's"])
def test_certain_drafts(op: OpUnderTest, seed: int, rows: str) -> None:
    """Half of the drafts are among the tokens with positive infinity."""
    requests = drafted(seed, "ragged", 2100)
    certain = [3, 2099][: 1 if rows.startswith("one") else 2]
    requests.draft_logits[..., certain] = np.inf  # type: ignore[index]
    requests.draft_sampled[::2] = certain[-1]
    requests.target_logits[:, certain] += 8.0
    verify(op, requests)
    verify(op, requests, **limits(requests, [3, 40], [0.9, 1.0]))


@case("VDL-12", row="draft's, equal", offset=["-1e30", "1e30"])
def test_equal_drafts_of_any_size(op: OpUnderTest, seed: int, offset: str) -> None:
    """Any logits of one size are equally likely, also where their normaliser is no larger than they are."""
    requests = drafted(seed, "wide", 37)
    requests.draft_logits[:] = float(offset)  # type: ignore[index]
    verify(op, requests)


@case("VDL-12", dtype=["bfloat16", "float16"], limited=["no", "yes"], reach="the language-model head's own dtype")
def test_narrow_logits(op: OpUnderTest, seed: int, dtype: str, limited: str) -> None:
    requests = drafted(seed, "ragged", 2_000, temperature=1.0)
    more = limits(requests, 50, 0.9) if limited == "yes" else {}
    verify(op, requests, dtypes={"target_logits": dtype, "draft_logits": dtype}, **more)


@case("VDL-12", temperature=["0.01", "0.5", "4"], offset=OFFSETS, reach=of_temperature)
def test_temperatures(op: OpUnderTest, seed: int, temperature: str, offset: str) -> None:
    """Some engines take no temperature below 0.01."""
    colder = [0.002] if (temperature, offset) == ("0.01", "0") else []
    for heat in (float(temperature), *colder):
        requests = drafted(seed, "wide", 1_500, temperature=heat)
        requests.target_logits += float(offset)
        verify(op, requests)


@case("VDL-12", row="draft's", temperature=["0.01", "4"], offset=OFFSETS, reach=of_temperature)
def test_temperatures_of_drafts(op: OpUnderTest, seed: int, temperature: str, offset: str) -> None:
    requests = drafted(seed, "wide", 300, temperature=float(temperature))
    requests.draft_logits += float(offset)  # type: ignore[assignment, operator]
    verify(op, requests)


@case("VDL-13", padding=["first", "middle", "last"], reach="captured graphs pad the batch")
def test_padding_touches_nothing(op: OpUnderTest, seed: int, padding: str) -> None:
    at = {"first": [0], "middle": [1, 2], "last": [3]}[padding]
    verify(op, drafted(seed, "ragged", padding=at))


@case("VDL-14", layout=["gapped", "padded", "transposed"], limited=["no", "yes"])
def test_strides(op: OpUnderTest, seed: int, layout: str, limited: str) -> None:
    requests = drafted(seed, "gaps", 300)
    more = limits(requests, 50, 0.9) if limited == "yes" else {}
    verify(op, requests, layouts=layouts(op, layout), **more)


@case("VDL-14", ids=["int32", "int64"])
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    requests = drafted(seed, "gaps")
    requests.pos %= 2**31
    verify(op, requests, dtypes=widths(op, ids), **limits(requests, 5))


@case("VDL-15", check="one by one and together", limited=["no", "yes"], reach=REACH)
def test_requests_are_independent(op: OpUnderTest, seed: int, limited: str) -> None:
    """A request alone is handled by all threads, one of many by a single one."""
    verify_one_by_one(op, drafted, seed, limited)


@case("VDL-16", temperature=["0.7", "1"], reach="the drafter hands over its normaliser")
def test_the_normaliser_of_the_drafter(op: OpUnderTest, seed: int, temperature: str) -> None:
    requests = far(drafted(seed, "ragged", 300, temperature=float(temperature)), 3.0)
    verify(op, requests, draft_normaliser=draft_normalisers(requests))


@case("VDL-16", check="the number decides", reach="the drafter hands over its normaliser")
def test_the_normaliser_is_taken_as_it_is(op: OpUnderTest, seed: int) -> None:
    """Too large a number makes q small: every draft passes that would fail otherwise."""
    requests = far(drafted(seed, "ragged", 300, temperature=1.0))
    verify(op, requests, draft_normaliser=draft_normalisers(requests) + 40.0)


@case("VDL-16", check="a number for each row", reach="the drafter hands over its normaliser")
def test_each_row_has_a_normaliser_of_its_own(op: OpUnderTest, seed: int) -> None:
    """Drafts of every second step of a state, and of every second state at the first step, pass for certain."""
    requests = far(raw(random_requests(np.random.default_rng(seed), (3,) * 16, 300, spare=0, temperature=1.0)))
    numbers = draft_normalisers(requests)
    states, steps = np.indices(numbers.shape)
    verify(op, requests, draft_normaliser=numbers + 40.0 * ((states + steps) % 2))


@case("VDL-17", target=[45, 8200], reach="MiMo v2.5 Pro with DFlash")
def test_a_target_wider_than_the_draft(op: OpUnderTest, seed: int, target: int) -> None:
    requests = drafted(seed, "ragged", target, draft_vocab=37)
    requests.target_logits[:, 37:] += 20.0
    verify(op, requests)


@case("VDL-17", draft=[45, 8200])
def test_a_draft_wider_than_the_target(op: OpUnderTest, seed: int, draft: int) -> None:
    verify(op, drafted(seed, "ragged", 37, draft_vocab=draft))


@case("VDL-17", steps=[1, 2], reach="a request that was given more drafts than its state holds")
def test_a_step_that_the_draft_does_not_hold(op: OpUnderTest, seed: int, steps: int) -> None:
    requests = far(drafted(seed, "ragged"), -9.0)
    assert requests.draft_logits is not None
    requests.draft_logits = requests.draft_logits[:, :steps].copy()
    verify(op, requests)
    verify(op, requests, draft_normaliser=draft_normalisers(requests))
