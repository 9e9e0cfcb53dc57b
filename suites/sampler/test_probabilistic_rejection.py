"""Requirements of probabilistic_rejection (contract PRJ)."""

from __future__ import annotations

import numpy as np

from verispec.cases import case
from verispec.cases.request_state import RequestBatch, draft_outside
from verispec.judge import OpUnderTest, assert_same
from verispec.suites.sampler import _ends
from verispec.suites.sampler._callers import of_vocabulary
from verispec.suites.sampler._level_rows import level_drafts, told_level
from verispec.suites.sampler._request_state import COUNTS, DRAFT, REACH, batch, drafted_reach, layouts, verify, widths


@case("PRJ-1", counts=list(COUNTS), reach=drafted_reach)
def test_accepted_by_ratio(op: OpUnderTest, seed: int, counts: str) -> None:
    verify(op, batch(seed, counts, temperature=0.7))


@case("PRJ-2", counts=list(COUNTS), reach=drafted_reach)
def test_one_hot_drafts(op: OpUnderTest, seed: int, counts: str) -> None:
    verify(op, batch(seed, counts, "absent", temperature=1.0))


@case("PRJ-3", counts=list(COUNTS), draft=DRAFT, reach=drafted_reach)
def test_greedy(op: OpUnderTest, seed: int, counts: str, draft: str) -> None:
    verify(op, batch(seed, counts, draft, temperature=0.0))


@case("PRJ-3", check="ties", vocab=[37, 8193, 20_000], reach="quantised logits tie")
def test_the_lowest_of_equal_maxima(op: OpUnderTest, seed: int, vocab: int) -> None:
    """Equal maxima in one block and across blocks; the draft tokens are the first and the last of them in turn."""
    requests = batch(seed, "ragged", "absent", vocab, temperature=0.0)
    requests.target_logits[:] = -1.0
    requests.target_logits[:, [5, vocab // 2, vocab - 1]] = 2.0
    requests.draft_sampled[:] = 5
    requests.draft_sampled[2::3] = vocab - 1
    verify(op, requests)


@case("PRJ-4", draft=DRAFT, reach=REACH)
def test_mixed_batches(op: OpUnderTest, seed: int, draft: str) -> None:
    verify(op, batch(seed, "ragged", draft))


@case("PRJ-5", draft=DRAFT, reach=REACH)
def test_all_accepted(op: OpUnderTest, seed: int, draft: str) -> None:
    """The draft token has nearly the whole target probability, so that all pass and no other position is written."""
    requests = batch(seed, "gaps", draft, temperature=1.0)
    for row in range(len(requests.target_logits) - 1):
        requests.target_logits[row, requests.draft_sampled[row + 1]] = 60.0
    verify(op, requests)


@case(
    "PRJ-6",
    token=[-1, -5, 37, 2**31 - 1],
    temperature=["0", "0.7"],
    draft=DRAFT,
    reach=lambda p: "the scheduler pads drafts with -1" if p["token"] == -1 else None,
)
def test_padding_tokens(op: OpUnderTest, seed: int, token: int, temperature: str, draft: str) -> None:
    requests = batch(seed, "ragged", draft, temperature=float(temperature))
    draft_outside(requests, token, [1, 5, 8])
    verify(op, requests)


@case("PRJ-6", steps=[1, 2])
def test_a_step_that_the_draft_does_not_hold(op: OpUnderTest, seed: int, steps: int) -> None:
    """Drafts pass by far, whatever row of the draft, or sum of one, is taken for the step's."""
    requests = batch(seed, "ragged", temperature=1.0)
    requests.draft_sampled[:] = np.random.default_rng(seed).integers(1, 37, len(requests.draft_sampled))
    drafts = requests.draft_sampled[1:]
    requests.target_logits[np.arange(len(drafts)), drafts] = 20.0
    assert requests.draft_logits is not None
    requests.draft_logits = np.full_like(requests.draft_logits[:, :steps], -200.0)
    requests.draft_logits[:, :, 0] = 0.0
    verify(op, requests)


@case("PRJ-7", temperature=["0.5", "1.0", "2.0"], draft=DRAFT, reach=REACH)
def test_normalisers_of_the_rejected_row(op: OpUnderTest, seed: int, temperature: str, draft: str) -> None:
    """Every second row gives its draft token no probability, so that it is rejected for every u."""
    requests = batch(seed, "ragged", draft, temperature=float(temperature))
    for row in range(1, len(requests.target_logits) - 1, 2):
        requests.target_logits[row, requests.draft_sampled[row + 1]] = -np.inf
    verify(op, requests)


@case("PRJ-8", target=[45, 8200], temperature=["0", "0.7"], reach="MiMo v2.5 Pro with DFlash")
def test_a_target_wider_than_the_draft(op: OpUnderTest, seed: int, target: int, temperature: str) -> None:
    """The ids that only the target has carry most of its probability, and none of it counts."""
    requests = batch(seed, "ragged", "present", target, draft_vocab=37, temperature=float(temperature))
    requests.target_logits[:, 37:] += 20.0
    verify(op, requests)


@case("PRJ-9", padding=["first", "middle", "last"], draft=DRAFT)
def test_padding_touches_nothing(op: OpUnderTest, seed: int, padding: str, draft: str) -> None:
    at = {"first": [0], "middle": [1, 2], "last": [3]}[padding]
    verify(op, batch(seed, "ragged", draft, padding=at))


@case("PRJ-10", rows=["some", "all", "masked"], temperature=["0", "0.7"], draft=DRAFT)
def test_nan_and_masked_rows(op: OpUnderTest, seed: int, rows: str, temperature: str, draft: str) -> None:
    requests = batch(seed, "ragged", draft, temperature=float(temperature))
    logits = requests.target_logits
    if rows == "masked":
        logits[:, 5:] = -np.inf
        wide = batch(seed, "ragged", draft, 9_000, temperature=float(temperature))
        wide.target_logits[:, :5_000] = -np.inf  # whole blocks of a kernel have no probability
        wide.draft_sampled[1::2] = 7_000
        verify(op, wide)
    else:
        logits[:: 2 if rows == "some" else 1, :: 2 if rows == "some" else 1] = np.nan
    verify(op, requests)


@case("PRJ-10", check="no probability in either row", temperature=["0.7", "1.0"])
def test_tokens_that_neither_target_nor_draft_has(op: OpUnderTest, seed: int, temperature: str) -> None:
    """The second draft of each request has a probability of 0 in both rows, which no u accepts."""
    requests = batch(seed, "ragged", temperature=float(temperature))
    pass_before_second(requests)
    accepted = verify(op, requests)["num_accepted"]
    assert_same("drafts before the one that neither row has", np.minimum(np.array(COUNTS["ragged"]), 1), accepted)


def pass_before_second(requests: RequestBatch) -> None:
    """Give each request's first draft nearly all of the target's probability, and its second one none in either row."""
    for b, state in enumerate(requests.idx_mapping):
        first, end = requests.cu_num_logits[b : b + 2]
        requests.target_logits[first, requests.draft_sampled[first + 1]] = 60.0
        if end - first > 2:
            token = requests.draft_sampled[first + 2]
            requests.target_logits[first + 1, token] = requests.draft_logits[state, 1, token] = -np.inf  # type: ignore[index]


@case("PRJ-1", vocab=[1, 2, 127, 8192, 8193, 20_000], draft=DRAFT, reach=of_vocabulary)
def test_any_vocabulary(op: OpUnderTest, seed: int, vocab: int, draft: str) -> None:
    verify(op, batch(seed, "ragged", draft, vocab))


@case("PRJ-1", check=_ends.AT_ENDS, vocab=_ends.VOCABS, draft=DRAFT, reach=_ends.REACH)
def test_the_mass_of_an_id_at_an_end(op: OpUnderTest, seed: int, vocab: int, draft: str) -> None:
    """Requests are sampled, then greedy."""
    for requests in _ends.both_fates(seed, vocab, draft=draft == "present", temperature=0.7):
        verify(op, requests)
        requests.temperature[:] = 0.0
        verify(op, requests)


@case("PRJ-11", check="drafts as likely as u", reach=REACH)
def test_the_precision_of_an_acceptance_number(op: OpUnderTest, seed: int) -> None:
    with told_level():
        accepted = verify(op, level_drafts(seed))["num_accepted"]
    assert_same("every second draft is accepted", np.arange(1, 1 + len(accepted)) % 2, accepted)


@case("PRJ-12", layout=["gapped", "padded", "transposed"], draft=DRAFT)
def test_strides(op: OpUnderTest, seed: int, layout: str, draft: str) -> None:
    verify(op, batch(seed, "gaps", draft), layouts=layouts(op, layout))


@case("PRJ-1", dtype=["bfloat16", "float16"], draft=DRAFT, reach="the language-model head's own dtype")
def test_narrow_logits(op: OpUnderTest, seed: int, dtype: str, draft: str) -> None:
    verify(op, batch(seed, "ragged", draft), dtypes={"target_logits": dtype, "draft_logits": dtype})


@case("PRJ-4", ids=["int32", "int64"], draft=DRAFT)
def test_integer_widths(op: OpUnderTest, seed: int, ids: str, draft: str) -> None:
    requests = batch(seed, "gaps", draft)
    requests.pos %= 2**31
    verify(op, requests, dtypes=widths(op, ids))


@case("PRJ-11", check="the same batch in another order of states", reach=REACH)
def test_states_may_lie_anywhere(op: OpUnderTest, seed: int) -> None:
    """Only the contents of a state count: a batch over other slots accepts the same tokens."""
    requests = batch(seed, "ragged")
    first = verify(op, requests)["num_accepted"]
    order = np.random.default_rng(seed).permutation(len(requests.seed))
    for name in ("seed", "temperature", "draft_logits"):
        moved = np.empty_like(getattr(requests, name))
        moved[order] = getattr(requests, name)
        setattr(requests, name, moved)
    for name in ("idx_mapping", "expanded_idx_mapping"):
        states = getattr(requests, name)
        setattr(requests, name, np.where(states < 0, -1, order[states]))
    assert_same("the accepted drafts", first, verify(op, requests)["num_accepted"])
