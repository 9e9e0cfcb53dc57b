"""verify_one_hot: what every implementation must do (contract VOH)."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.request_state import RequestBatch, draft_outside
from verispec.engines import Engine
from verispec.judge import OpUnderTest, assert_same
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
    heavy_end,
    inside,
    limits,
    many_logits,
    of_temperature,
    overshooting,
    quantised,
    raw,
    third,
    thousands_of_rows,
    uneven,
    verify,
)
from verispec.suites.sampler._level_rows import level_drafts, told_level
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


def one_hot(
    seed: int, counts: str, vocab: int = 37, *, temperature: float | None = 0.7, **options: Any
) -> RequestBatch:
    return raw(batch(seed, counts, "absent", vocab, temperature=temperature, **options))


def likely(requests: RequestBatch, gain: float = 60.0) -> RequestBatch:
    """Raise the logit of every draft, so that it passes; a negative `gain` lets every draft fail."""
    for row in range(len(requests.target_logits) - 1):
        requests.target_logits[row, requests.draft_sampled[row + 1]] += gain
    return requests


@case("VOH-1", counts=list(COUNTS), reach=REACH)
def test_accepted_with_its_probability(op: OpUnderTest, seed: int, counts: str) -> None:
    verify(op, likely(one_hot(seed, counts), 2.0))


@case("VOH-1", check="drafts as likely as u", reach=REACH)
def test_the_precision_of_an_acceptance_number(op: OpUnderTest, seed: int) -> None:
    with told_level():
        accepted = verify(op, level_drafts(seed))["num_sampled"] - 1
    assert_same("every second draft is accepted", np.arange(1, 1 + len(accepted)) % 2, accepted)


@case("VOH-2", counts=list(COUNTS), reach=REACH)
def test_drawn_without_the_draft(op: OpUnderTest, seed: int, counts: str) -> None:
    verify(op, likely(one_hot(seed, counts), -30.0))


@case("VOH-2", check="a likely draft is left out", vocab=VOCABS[1:], reach=REACH)
def test_a_rejected_favourite(op: OpUnderTest, seed: int, vocab: int) -> None:
    """The draft has most of the mass; where it is rejected, the token comes from the little that is left."""
    requests = one_hot(seed, "wide", vocab, temperature=1.0)
    requests.target_logits[:] = np.minimum(requests.target_logits, 3.0)
    for row in range(len(requests.target_logits) - 1):
        requests.target_logits[row, requests.draft_sampled[row + 1]] = 4.0 + np.log(vocab)
    verify(op, requests)


@case("VOH-2", check=INSIDE, k=INSIDE_K, p=[None, "0.9"], reach="top-k and top-p of a request")
def test_drawn_without_a_draft_that_is_kept(op: OpUnderTest, engine: Engine, seed: int, k: str, p: str | None) -> None:
    """Kept tokens before the rejected draft and behind it are drawn alike. Then top-p alone keeps it."""
    most, counts, vocab = inside(k, is_slow=is_slow(engine))
    requests = draft_inside(one_hot(seed, counts, vocab, temperature=1.0), most)
    verify(op, requests, **limits(requests, most, None if p is None else float(p)))
    if p is not None:
        verify(op, requests, **limits(requests, p=float(p)))


@case("VOH-2", check=list(DROPPING), reach="top-p of a request")
def test_candidates_that_top_p_drops(op: OpUnderTest, seed: int, check: str) -> None:
    """Each draft is the third likeliest token of a flat row, and mostly rejected."""
    requests = one_hot(seed, "wide", 2000, temperature=1.0)
    requests.target_logits *= 0.25
    verify(op, draft_at_limit(requests, third(requests)), **limits(requests, p=DROPPING[check]))


@case("VOH-2", check=list(DROPPING), spread="quantised", reach="quantised logits tie")
def test_equal_candidates_that_top_p_drops(op: OpUnderTest, seed: int, check: str) -> None:
    """Top-p keeps the first of a dozen equal tokens. The last one that it keeps is drawn as often as the others."""
    requests = quantised(one_hot(seed, "wide", 2000, temperature=1.0))
    verify(op, draft_at_limit(requests, third(requests)), **limits(requests, p=DROPPING[check]))


@case("VOH-2", check=APART, vocab=20_000, reach="top-p of a request")
def test_candidates_of_uneven_parts_that_top_p_drops(op: OpUnderTest, engine: Engine, seed: int) -> None:
    """Without a kept candidate, the token is drawn from all kept tokens: each part by its weight in the row."""
    requests = uneven(seed, draft=False, is_slow=is_slow(engine))
    verify(op, requests, **limits(requests, p=UNEVEN_P))


@case("VOH-3", counts=list(COUNTS), reach=REACH)
def test_the_bonus_token(op: OpUnderTest, seed: int, counts: str) -> None:
    requests = likely(one_hot(seed, counts))
    verify(op, requests)


@case("VOH-3", vocab=VOCABS, reach="vocabularies are no multiples of a tile")
def test_any_vocabulary(op: OpUnderTest, seed: int, vocab: int) -> None:
    verify(op, one_hot(seed, "none", vocab))


@case("VOH-3", check=_ends.AT_ENDS, vocab=_ends.VOCABS, limited=["no", "yes"], reach=_ends.REACH)
def test_an_id_at_an_end_is_drawn(op: OpUnderTest, seed: int, vocab: int, limited: str) -> None:
    """Drafts are rejected, then accepted; the limits keep the token."""
    for requests in _ends.both_fates(seed, vocab, draft=False, temperature=0.7):
        verify(op, requests, **(limits(requests, 5, 0.9) if limited == "yes" else {}))


@case("VOH-3", check="a long request among short ones", vocab=151_936, reach=REACH)
def test_a_batch_of_many_logits(op: OpUnderTest, seed: int) -> None:
    verify(op, likely(raw(many_logits(seed, draft=False, temperature=0.7)), 12.0))


@case("VOH-4", k=[None, "1", "5", "36", "mixed"], p=[None, "0.1", "0.9", "mixed"], reach="top-k and top-p of a request")
def test_limits(op: OpUnderTest, seed: int, k: str | None, p: str | None) -> None:
    verify_mixed_limits(op, one_hot, seed, k, p)


@case("VOH-4", k=["50", "5000"], p=[None, "0.9"], vocab=[8193, 20_000], reach="top-k and top-p of a request")
def test_limits_of_a_large_vocabulary(op: OpUnderTest, seed: int, k: str, p: str | None, vocab: int) -> None:
    requests = one_hot(seed, "ragged", vocab, temperature=1.3)
    verify(op, requests, **limits(requests, int(k), None if p is None else float(p)))


@case("VOH-4", check="few tokens of many", vocab=20_000, reach="top-k of a request")
def test_small_limits_of_a_large_vocabulary(op: OpUnderTest, seed: int) -> None:
    """Top-k keeps one to three tokens, fewer than a row has parts; each draft is the last one that is kept."""
    verify_small_limits(op, one_hot, seed)


@case("VOH-4", check="top-k of flat rows beside top-p", vocab=20_000, reach="requests with and without top-p")
def test_top_k_beside_a_top_p_of_one(op: OpUnderTest, seed: int) -> None:
    """Each token weighs nearly as much as the first one; top-k counts them, also where the batch has a top-p."""
    verify_top_k_beside_a_top_p_of_one(op, one_hot, seed)


@case("VOH-4", spread=["peaked", "flat", "equal"], p=["0.3", "0.95", "0.9999"], reach="top-p of a request")
def test_top_p(op: OpUnderTest, seed: int, spread: str, p: str) -> None:
    verify_top_p(op, one_hot, seed, spread, p)


@case("VOH-4", check="top-p of 0 and less", vocab=[37, 8193])
def test_top_p_that_keeps_one_token(op: OpUnderTest, seed: int, vocab: int) -> None:
    """Two thirds of the drafts are the token that is kept, which passes for certain."""
    verify_one_kept_token(op, one_hot, seed, vocab)


@case("VOH-4", check="more is kept than p", p="0.51", vocab=[37, 8193], reach="top-p of a request")
def test_a_nucleus_of_more_than_p(op: OpUnderTest, seed: int, vocab: int) -> None:
    """A draft passes by its share of the mass that is kept, not of p."""
    requests = overshooting(one_hot(seed, "wide", vocab, temperature=1.0))
    verify(op, requests, **limits(requests, p=0.51))


@case("VOH-4", check="a mass of exactly p", p="0.5", vocab=[37, 8193], reach="a grammar leaves few tokens")
def test_a_mass_of_exactly_p(op: OpUnderTest, seed: int, vocab: int) -> None:
    """A token before which the mass is p is dropped. No number of the call is rounded, so that none may differ."""
    verify_a_mass_of_exactly_p(op, one_hot, seed, vocab)


@case("VOH-4", spread="clustered", p="0.95", reach="a grammar leaves few tokens")
def test_top_p_of_clustered_tokens(op: OpUnderTest, seed: int) -> None:
    verify_clustered_tokens(op, one_hot, seed)


@case("VOH-4", spread="striped", reach="top-k and top-p of a request")
def test_limits_of_striped_rows(op: OpUnderTest, seed: int) -> None:
    """A sample of evenly spread places misjudges them, so that a guess from one is wrong."""
    verify_striped_rows(op, one_hot, seed)


@case("VOH-4", spread="one token of each part", reach="top-k of a request")
def test_limits_of_rows_with_one_token_of_each_part(op: OpUnderTest, engine: Engine, seed: int) -> None:
    """More than a hundred wide rows, then short ones; each draft is the last token that top-k keeps."""
    verify_one_token_of_each_part(op, one_hot, seed, is_slow=is_slow(engine))


@case("VOH-4", spread="heavy end", vocab=70_000, reach="top-k and top-p of a request")
def test_both_limits_keep_tokens_past_16_bits(op: OpUnderTest, seed: int) -> None:
    """Top-k drops some of the first tokens, and top-p some of the likely ones behind them.

    Of more equal tokens top-p keeps fewer than half.
    """
    requests = one_hot(seed, "one", 70_000, temperature=1.0)
    heavy_end(requests.target_logits, 4000)
    verify(op, requests, **limits(requests, 66_000, 0.5))
    requests = one_hot(seed, "none", 140_000, temperature=1.0)
    requests.target_logits[:] = 0
    verify(op, requests, **limits(requests, p=0.47))


@case("VOH-4", check="ties", k=["3", "40"], p=[None, "0.5", "0.9999"], reach="quantised logits tie")
def test_ties_at_the_limit(op: OpUnderTest, seed: int, k: str, p: str | None) -> None:
    """Of equal logits the lower ids are kept, be they drafted or drawn."""
    verify_ties(op, one_hot, seed, k, p)


@case("VOH-4", check="neighbours in float32", p=["0.3", "0.7"], reach="quantised logits tie")
def test_many_ties_beside_others(op: OpUnderTest, seed: int, p: str) -> None:
    verify_ties_beside_others(op, one_hot, seed, p)


@case("VOH-5", counts=list(COUNTS), reach=REACH)
def test_greedy(op: OpUnderTest, seed: int, counts: str) -> None:
    verify(op, one_hot(seed, counts, temperature=0.0), top_k=None)


@case("VOH-5", check="mixed with sampled requests", limited=["no", "yes"], reach=REACH)
def test_mixed_batches(op: OpUnderTest, seed: int, limited: str) -> None:
    requests = one_hot(seed, "gaps", temperature=None)
    verify(op, requests, **(limits(requests, 5, 0.9) if limited == "yes" else {}))


@case(
    "VOH-6",
    token=[-1, -5, 37, 2**31 - 1],
    temperature=["0", "0.7"],
    reach=lambda p: "the scheduler pads drafts with -1" if p["token"] == -1 else None,
)
def test_padding_tokens(op: OpUnderTest, seed: int, token: int, temperature: str) -> None:
    requests = one_hot(seed, "ragged", temperature=float(temperature))
    draft_outside(requests, token)
    verify(op, requests)


@case("VOH-7", columns=[0, 1, 5], reach="the buffer is as wide as the longest request of any batch")
def test_all_columns_are_written(op: OpUnderTest, seed: int, columns: int) -> None:
    requests = one_hot(seed, "gaps")
    width = requests.columns + columns
    op.check_outputs(requests.arguments(op.contract), shapes={"sampled": (requests.requests, width)})


@case("VOH-8", counts=["ragged", "longest"], reach="the drafter continues from there")
def test_outputs_for_the_drafter(op: OpUnderTest, seed: int, counts: str) -> None:
    verify(op, one_hot(seed, counts))


@case("VOH-9", row=["one-hot target"], reach=lambda p: REACH if p["row"] == "one-hot target" else None)
def test_a_residual_without_mass(op: OpUnderTest, seed: int, row: str) -> None:
    """Nothing is left without the rejected draft: the token is the draft again."""
    requests = one_hot(seed, "wide", temperature=1.0)
    requests.target_logits[:] = -np.inf
    requests.target_logits[:, 3] = 0.0
    requests.draft_sampled[:] = 3
    requests.draft_sampled[::2] = 5
    verify(op, requests)


@case("VOH-10", rows=["some", "all", "minus infinity", "one infinite", "two infinite"])
def test_rows_of_special_values(op: OpUnderTest, seed: int, rows: str) -> None:
    """Two tokens with positive infinity are in the first and in the last block of any size."""
    verify_special_rows(op, one_hot, seed, rows)


@case("VOH-11", dtype=["bfloat16", "float16"], limited=["no", "yes"], reach="the language-model head's own dtype")
def test_narrow_logits(op: OpUnderTest, seed: int, dtype: str, limited: str) -> None:
    requests = one_hot(seed, "ragged", 2_000, temperature=1.0)
    more = limits(requests, 50, 0.9) if limited == "yes" else {}
    verify(op, requests, dtypes={"target_logits": dtype}, **more)


@case("VOH-11", temperature=["0.01", "0.5", "4"], offset=OFFSETS, reach=of_temperature)
def test_temperatures(op: OpUnderTest, seed: int, temperature: str, offset: str) -> None:
    """Some engines take no temperature below 0.01."""
    colder = [0.002] if (temperature, offset) == ("0.01", "0") else []
    for heat in (float(temperature), *colder):
        requests = one_hot(seed, "wide", 1_500, temperature=heat)
        requests.target_logits += float(offset)
        verify(op, requests)


@case("VOH-12", padding=["first", "middle", "last"], reach="captured graphs pad the batch")
def test_padding_touches_nothing(op: OpUnderTest, seed: int, padding: str) -> None:
    at = {"first": [0], "middle": [1, 2], "last": [3]}[padding]
    verify(op, one_hot(seed, "ragged", padding=at))


@case("VOH-13", layout=["gapped", "padded", "transposed"], limited=["no", "yes"])
def test_strides(op: OpUnderTest, seed: int, layout: str, limited: str) -> None:
    requests = one_hot(seed, "gaps", 300)
    more = limits(requests, 50, 0.9) if limited == "yes" else {}
    verify(op, requests, layouts=layouts(op, layout), **more)


@case("VOH-13", ids=["int32", "int64"])
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    requests = one_hot(seed, "gaps")
    requests.pos %= 2**31
    verify(op, requests, dtypes=widths(op, ids), **limits(requests, 5))


@case("VOH-14", check="one by one and together", limited=["no", "yes"], reach=REACH)
def test_requests_are_independent(op: OpUnderTest, seed: int, limited: str) -> None:
    """A request alone is handled by all threads, one of many by a single one."""
    verify_one_by_one(op, one_hot, seed, limited)


@case("VOH-14", check="thousands of wide rows", reach=REACH)
def test_thousands_of_wide_rows(op: OpUnderTest, engine: Engine, seed: int) -> None:
    thousands_of_rows(op, seed, is_slow=is_slow(engine), temperature=0.7)
