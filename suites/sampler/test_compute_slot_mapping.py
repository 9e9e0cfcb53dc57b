"""Requirements of compute_slot_mapping (contract CSM)."""

from __future__ import annotations

import numpy as np

from verispec.cases import case
from verispec.cases.strategies import DrawnCall, explore, structures
from verispec.judge import OpUnderTest, assert_same
from verispec.reference import contracts
from verispec.suites.sampler._drafting import slot_arguments as arguments
from verispec.suites.sampler._rejection import integers

CONTRACT = contracts.load("compute_slot_mapping")
REACH = "every scheduled token gets its KV slot here"
RANKS_REACH = "decode context parallelism"


@case("CSM-1", lengths=[(1,), (5, 1, 30), (1,) * 65], reach=REACH)
def test_slots(op: OpUnderTest, seed: int, lengths: tuple[int, ...]) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), lengths))


@case("CSM-1", block=[1, 7, 128, 1056, 1712, 65_600], reach=lambda p: None if p["block"] > 2**16 else REACH)
def test_any_block_size(op: OpUnderTest, seed: int, block: int) -> None:
    """Models with recurrent layers have blocks of 1,056 positions and more, as long as their states.

    One position is the first of a block. A product with 1 / 1,712 is below 1 there, in float32 and in float64.
    """
    values = arguments(np.random.default_rng(seed), [3, 8, 1], block=block, columns=max(8, 64 // block))
    values["positions_ptr"][:3] = block + np.arange(-1, 2)
    op.check_outputs(values)


@case("CSM-1", check="long request", lengths=[(1500, 3), (1024, 1025)], reach="a prefill is longer than a tile")
def test_a_request_longer_than_a_tile(op: OpUnderTest, seed: int, lengths: tuple[int, ...]) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), lengths, columns=100))


@case(
    "CSM-1",
    check="long texts",
    position=[2**15 - 2, 2**16 - 2, 100_000],
    reach="models have contexts of 131,072 tokens",
)
def test_positions_that_16_bits_do_not_hold(op: OpUnderTest, seed: int, position: int) -> None:
    values = arguments(np.random.default_rng(seed), [3, 2], columns=131_072 // 16)
    op.check_outputs({**values, "positions_ptr": position + np.arange(5)})


@case("CSM-2", ranks=[2, 4], rank=[0, 1], interleave=[1, 4], reach=RANKS_REACH)
def test_a_rank_of_several(op: OpUnderTest, seed: int, ranks: int, rank: int, interleave: int) -> None:
    cp = {"TOTAL_CP_WORLD_SIZE": ranks, "TOTAL_CP_RANK": rank, "CP_KV_CACHE_INTERLEAVE_SIZE": interleave}
    op.check_outputs(arguments(np.random.default_rng(seed), [5, 40, 1], **cp))


@case("CSM-3", rank=[0, 1], reach=RANKS_REACH)
def test_a_token_of_another_rank(op: OpUnderTest, seed: int, rank: int) -> None:
    cp = {"TOTAL_CP_WORLD_SIZE": 2, "TOTAL_CP_RANK": rank}
    op.check_outputs(arguments(np.random.default_rng(seed), [1, 1, 1, 2], **cp))


@case("CSM-4", tail=[1, 9, 1500, 5000], on="cuda", reach="batches are padded to the size of a captured graph")
def test_the_tail_is_padded(op: OpUnderTest, seed: int, tail: int) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), [3, 2], tail))


@case("CSM-5", spare=[1, 50])
def test_slots_past_the_tail_are_left_alone(op: OpUnderTest, seed: int, spare: int) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), [3, 2]), shapes={"slot_mapping_ptr": (5 + spare,)})


@case("CSM-5", check="tokens of no request")
def test_tokens_of_no_request_are_left_alone(op: OpUnderTest, seed: int) -> None:
    values = arguments(np.random.default_rng(seed), [3, 2, 4])
    values["query_start_loc_ptr"] = np.array([0, 3, 5, 6])
    op.check_outputs(values)


@case("CSM-6", block_id=[2**27 + 5, 2**31 - 1])
def test_slots_past_2_to_the_31(op: OpUnderTest, seed: int, block_id: int) -> None:
    values = arguments(np.random.default_rng(seed), [3, 2])
    op.check_outputs({**values, "block_table_ptr": np.full((2, 8), block_id)})


@case("CSM-7", lengths=[(0, 3, 0, 4), (2, 0)], layout=["dense", "padded"])
def test_each_request_reads_its_own_row(op: OpUnderTest, seed: int, lengths: tuple[int, ...], layout: str) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), lengths), layouts={"block_table_ptr": layout})


@case("CSM-8", position=[-1, 8 * 16, 2**40])
def test_a_position_beyond_the_table_never_indexes(op: OpUnderTest, seed: int, position: int) -> None:
    values = arguments(np.random.default_rng(seed), [3, 2])
    values["positions_ptr"][1] = position
    op.check_outputs(values)


@case("CSM-8", layout="padded")
def test_a_position_beyond_the_columns_of_a_padded_table(op: OpUnderTest, seed: int) -> None:
    """Behind the last column of a row lies what no request owns, and not yet the next row."""
    values = arguments(np.random.default_rng(seed), [3, 2])
    values["positions_ptr"][1] = 8 * 16
    op.check_outputs(values, layouts={"block_table_ptr": "padded"})


@case("CSM-8", requests=70)
def test_positions_beyond_the_table_late_in_a_batch(op: OpUnderTest, seed: int) -> None:
    """One token per request: before its table, at its last and its next position, and far beyond."""
    values = arguments(np.random.default_rng(seed), [1] * 70)
    values["positions_ptr"] = np.resize([-1, 8 * 16 - 1, 8 * 16, 2**40], 70)
    op.check_outputs(values)


@case("CSM-9", tail=[0, 5], lengths=[(), (0, 0)])
def test_no_tokens(op: OpUnderTest, seed: int, tail: int, lengths: tuple[int, ...]) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), lengths, tail))


@case("CSM-10", layout=["gapped", "transposed"])
def test_inner_strides(op: OpUnderTest, seed: int, layout: str) -> None:
    layouts = dict.fromkeys((t.name for t in CONTRACT.tensors), layout)
    op.check_outputs(arguments(np.random.default_rng(seed), [5, 0, 30]), layouts=layouts)


@case(
    "CSM-11",
    ids=["production", "int32", "int64", "mixed", "swapped"],
    reach=lambda p: REACH if p["ids"] == "production" else None,
)
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    values = arguments(np.random.default_rng(seed), [5, 0, 30])
    op.check_outputs(values, dtypes={} if ids == "production" else integers(CONTRACT, ids))


@case("CSM-1", mode="generated", reach=REACH)
def test_generated(op: OpUnderTest, seed: int) -> None:
    @explore(structures(CONTRACT, layouts=False, vocab=(1, 20), some_draft=True), 150, seed)
    def check(drawn: DrawnCall) -> None:
        rng, lengths = np.random.default_rng(drawn.seed), np.maximum(drawn.counts, 1)
        if drawn.seed % 2:  # as where every request verifies the same number of drafts
            lengths[:] = lengths[:1]
        op.check_outputs(arguments(rng, lengths, block=drawn.vocab))


@case("CSM-1", relation="injective", reach=REACH)
def test_slots_are_distinct(op: OpUnderTest, seed: int) -> None:
    """No two tokens of a batch share a slot if no two requests share a block."""
    values = arguments(np.random.default_rng(seed), [40, 1, 77, 128])
    slots = op.call_written(values)["slot_mapping_ptr"]
    assert_same("slots are distinct", len(slots), len(set(slots.tolist())))
