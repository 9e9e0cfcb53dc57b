"""Requirements of copy_and_expand_eagle_inputs (contract CEE)."""

from __future__ import annotations

import numpy as np

from verispec.cases import case
from verispec.cases.strategies import DrawnCall, explore, structures
from verispec.judge import OpUnderTest
from verispec.reference import contracts
from verispec.suites.sampler._drafting import expanded_arguments as arguments
from verispec.suites.sampler._rejection import integers

CONTRACT = contracts.load("copy_and_expand_eagle_inputs")
REACH = "draft models and parallel drafting prepare their inputs here"
SHIFT = [True, False]


@case("CEE-1", lengths=[(1,), (4, 1, 7), (3,) * 33], shift=SHIFT, p=[1, 2, 5], reach=REACH)
def test_the_layout_of_requests(op: OpUnderTest, seed: int, lengths: tuple[int, ...], shift: bool, p: int) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), lengths, p=p, shift=shift))


@case("CEE-2", shift=SHIFT, rejected=[0, 2], reach=REACH)
def test_valid_tokens_are_copied(op: OpUnderTest, seed: int, shift: bool, rejected: int) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), [4, 1, 7], rejected, shift=shift))


@case("CEE-3", shift=SHIFT, lengths=[(1, 1, 1), (5, 2)], reach=REACH)
def test_the_bonus_token_follows(op: OpUnderTest, seed: int, shift: bool, lengths: tuple[int, ...]) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), lengths, p=1, shift=shift))


@case("CEE-4", shift=SHIFT, p=[2, 8], reach="parallel drafting")
def test_mask_tokens(op: OpUnderTest, seed: int, shift: bool, p: int) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), [4, 1, 7], 1, p=p, shift=shift))


@case("CEE-5", shift=SHIFT, rejected=[(0, 3, 1), (4, 0, 4)], reach="drafts were rejected in the step before")
def test_rejected_slots(op: OpUnderTest, seed: int, shift: bool, rejected: tuple[int, ...]) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), [5, 4, 6], np.array(rejected), shift=shift))


@case("CEE-6", shift=SHIFT, reach=REACH)
def test_positions_count_up(op: OpUnderTest, seed: int, shift: bool) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), [5, 4, 6], [1, 0, 3], p=3, shift=shift))


@case("CEE-6", check="positions that do not count up", shift=SHIFT)
def test_positions_count_from_the_first_one(op: OpUnderTest, seed: int, shift: bool) -> None:
    """Only a request's first position is read: tokens of an image share one, and positions of a batch may be stale."""
    values = arguments(np.random.default_rng(seed), [5, 1, 6], [1, 0, 3], p=3, shift=shift)
    values["target_positions_ptr"] = np.array([40, 40, 40, 7, 3, 9, 20, 26, 26, 0, 26, 1])
    op.check_outputs(values)


@case("CEE-7", shift=SHIFT, p=[1, 4], reach=REACH)
def test_indices_of_new_tokens(op: OpUnderTest, seed: int, shift: bool, p: int) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), [5, 4, 6], [1, 0, 3], p=p, shift=shift))


@case("CEE-7", p=1030, shift=SHIFT)
def test_indices_of_more_new_tokens_than_a_tile_holds(op: OpUnderTest, seed: int, shift: bool) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), [33_000, 4, 33_000], [1, 0, 3], p=1030, shift=shift))


@case("CEE-8", shift=SHIFT, reach="EAGLE maps hidden states")
def test_the_hidden_state_mapping(op: OpUnderTest, seed: int, shift: bool) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), [5, 1, 6], [2, 0, 3], shift=shift))


@case("CEE-8", check="more new slots", p=[1, 3, 9], reach="parallel drafting maps hidden states")
def test_the_hidden_state_mapping_beside_new_slots(op: OpUnderTest, seed: int, p: int) -> None:
    """A rejected token's state keeps its slot, which the new tokens of the request do not move."""
    op.check_outputs(arguments(np.random.default_rng(seed), [5, 1, 6, 4], [2, 0, 3, 3], p=p))


@case("CEE-9", spare=[1, 40], shift=SHIFT, reach="drafting buffers are as long as the largest batch")
def test_slots_past_the_last_request(op: OpUnderTest, seed: int, spare: int, shift: bool) -> None:
    values = arguments(np.random.default_rng(seed), [5, 1, 6], shift=shift)
    slots = 12 + 3 * 2 - 3 * shift + spare
    names = [t.name for t in CONTRACT.outputs if t.shape[0] == CONTRACT.outputs[0].shape[0]]
    op.check_outputs(values, shapes=dict.fromkeys(names, (slots,)))


@case("CEE-9", check="no batch", shift=SHIFT)
def test_no_batch(op: OpUnderTest, seed: int, shift: bool) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), [], shift=shift))


@case("CEE-10", lengths=[(1500, 3), (64, 65, 63), (5000, 3)], shift=SHIFT, reach="a prefill is longer than a tile")
def test_a_request_longer_than_a_tile(op: OpUnderTest, seed: int, lengths: tuple[int, ...], shift: bool) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), lengths, [1, 2] + [0] * (len(lengths) - 2), shift=shift))


@case("CEE-10", check="rejected slots begin a tile", shift=SHIFT)
def test_rejected_slots_at_the_edge_of_a_tile(op: OpUnderTest, seed: int, shift: bool) -> None:
    """Of some request the two rejected slots are the only ones of the last tile, or of the last turn of a loop."""
    op.check_outputs(arguments(np.random.default_rng(seed), range(4091, 4102), 2, shift=shift))


@case(
    "CEE-11",
    ids=["production", "int32", "int64", "mixed", "swapped"],
    reach=lambda p: REACH if p["ids"] == "production" else None,
)
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    values = arguments(np.random.default_rng(seed), [5, 1, 6], [2, 0, 3])
    op.check_outputs(values, dtypes={} if ids == "production" else integers(CONTRACT, ids))


@case("CEE-12", layout="gapped", shift=SHIFT)
def test_strides(op: OpUnderTest, seed: int, shift: bool) -> None:
    layouts = dict.fromkeys((t.name for t in CONTRACT.tensors), "gapped")
    op.check_outputs(arguments(np.random.default_rng(seed), [5, 1, 6], [2, 0, 3], shift=shift), layouts=layouts)


@case("CEE-1", mode="generated", shift=SHIFT, reach=REACH)
def test_generated(op: OpUnderTest, seed: int, shift: bool) -> None:
    @explore(structures(CONTRACT, layouts=False, vocab=(1, 6), some_draft=True), 150, seed)
    def check(drawn: DrawnCall) -> None:
        rng = np.random.default_rng(drawn.seed)
        lengths = np.array(drawn.counts, dtype=np.int64) + 1
        op.check_outputs(arguments(rng, lengths, rng.integers(0, lengths), p=drawn.vocab, shift=shift))
