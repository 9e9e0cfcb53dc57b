"""Requirements of copy_and_expand_dflash_inputs (contract CDI)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.strategies import DrawnCall, explore, structures
from verispec.judge import OpUnderTest, assert_same, exact
from verispec.reference import contracts
from verispec.suites.sampler._drafting import flash_arguments as arguments
from verispec.suites.sampler._rejection import integers

CONTRACT = contracts.load("copy_and_expand_dflash_inputs")
REACH = "a DFlash drafter prepares each of its steps here"
REJECTED_REACH = "drafts were rejected in the step before"
LENGTHS = (5, 4, 1, 6)
REJECTED = (0, 3, 0, 2)
UNEVEN = np.array([40, 40, 43, 40, 9, 7, 3, 3, 21, 26, 26, 20, 0, 26, 1, 30])
"""Positions of `LENGTHS` that do not count up."""


def anything(expected: Any, got: Any, inputs: Mapping[str, Any]) -> Any:
    """Accept every value of queries, whose place after rejected tokens is the subject of CDI-4."""
    return np.zeros(expected.shape, dtype=bool)


CONTEXT_ALONE = dict.fromkeys(("out_query_positions_ptr", "out_query_slot_mapping_ptr"), anything)


@case("CDI-1", lengths=[(1,), (4, 1, 7), (3,) * 33], reach=REACH)
def test_context_positions(op: OpUnderTest, seed: int, lengths: tuple[int, ...]) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), lengths))


@case("CDI-1", check="rejected tokens", rejected=[(0, 3, 0, 2), (4, 0, 0, 5)], reach=REJECTED_REACH)
def test_positions_of_rejected_tokens(op: OpUnderTest, seed: int, rejected: tuple[int, ...]) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), LENGTHS, rejected), compare=CONTEXT_ALONE)


@case("CDI-1", check="positions that do not count up")
def test_context_positions_are_copied(op: OpUnderTest, seed: int) -> None:
    """Tokens of an image share a position."""
    op.check_outputs(arguments(np.random.default_rng(seed), LENGTHS, target_positions_ptr=UNEVEN))


def block_reach(params: Mapping[str, Any]) -> str | None:
    """Return the reach of a block size: no page of a state is 16 bits long."""
    return None if params["block"] > 2**16 else REACH


@case("CDI-2", block=[1, 7, 16, 128, 1056, 1712, 65_600], reach=block_reach)
def test_context_slots(op: OpUnderTest, seed: int, block: int) -> None:
    """Models with recurrent layers have blocks of 1,056 positions and more, as long as their states.

    One position is the first of a block. A product with 1 / 1,712 is below 1 there, in float32 and in float64.
    """
    given: dict[str, Any] = {"block_size": block, "columns": max(8, 64 // block)}
    values = arguments(np.random.default_rng(seed), [3, 6, 1], **given)
    values["target_positions_ptr"][:3] = block + np.arange(-1, 2)
    op.check_outputs(values)


@case("CDI-2", check="rejected tokens", rejected=[(0, 3, 0, 2), (4, 0, 0, 5)], reach=REJECTED_REACH)
def test_slots_of_rejected_tokens(op: OpUnderTest, seed: int, rejected: tuple[int, ...]) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), LENGTHS, rejected), compare=CONTEXT_ALONE)


@case(
    "CDI-2",
    check="long texts",
    position=[2**15 - 2, 2**16 - 2, 100_000],
    reach="models have contexts of 131,072 tokens",
)
def test_positions_that_16_bits_do_not_hold(op: OpUnderTest, seed: int, position: int) -> None:
    values = arguments(np.random.default_rng(seed), [3, 2], columns=131_072 // 16)
    op.check_outputs({**values, "target_positions_ptr": position + np.arange(5)})


@case("CDI-3", drafts=[1, 3, 16], reach=REACH)
def test_query_positions_follow_the_last_token(op: OpUnderTest, seed: int, drafts: int) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), LENGTHS, drafts=drafts))


@case("CDI-3", check="positions that do not count up")
def test_query_positions_follow_one_position(op: OpUnderTest, seed: int) -> None:
    """Only the position of the last token is read: not the first one, nor a number of tokens."""
    op.check_outputs(arguments(np.random.default_rng(seed), LENGTHS, target_positions_ptr=UNEVEN))


@case("CDI-4", rejected=[(0, 3, 0, 2), (4, 0, 0, 5), (1, 1, 0, 1)], drafts=[1, 5], reach=REJECTED_REACH)
def test_queries_start_after_the_last_accepted_token(
    op: OpUnderTest, seed: int, rejected: tuple[int, ...], drafts: int
) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), LENGTHS, rejected, drafts))


@case("CDI-4", check="positions that do not count up")
def test_queries_start_after_the_position_of_the_last_accepted_token(op: OpUnderTest, seed: int) -> None:
    """Its own position is read: one of a rejected token less their number is another."""
    op.check_outputs(arguments(np.random.default_rng(seed), LENGTHS, REJECTED, target_positions_ptr=UNEVEN))


@case("CDI-4", relation="without the rejected tokens", reach=REJECTED_REACH)
def test_queries_are_those_of_a_batch_without_rejected_tokens(op: OpUnderTest, seed: int) -> None:
    """Removing the rejected tokens beforehand, as unpadded batches do, changes no query."""
    padded = arguments(np.random.default_rng(seed), LENGTHS, REJECTED)
    starts = padded["query_start_loc_ptr"]
    is_accepted = np.concatenate([np.arange(n) < n - r for n, r in zip(LENGTHS, REJECTED, strict=True)])
    lengths = np.diff(starts) - REJECTED
    bare = {
        **padded,
        "target_positions_ptr": padded["target_positions_ptr"][is_accepted],
        "query_start_loc_ptr": np.concatenate([[0], np.cumsum(lengths)]),
        "num_rejected_tokens_ptr": None,
        "total_input_tokens": int(lengths.sum()),
        "HAS_NUM_REJECTED": False,
    }
    given, removed = op.call_written(padded), op.call_written(bare)
    for name in ("out_input_ids_ptr", "out_query_positions_ptr", "out_query_slot_mapping_ptr"):
        assert_same(name, given[name].tolist(), removed[name].tolist())


@case("CDI-5", drafts=[1, 3], reach="batches without padding hold no rejected tokens")
def test_every_token_is_accepted_without_counts(op: OpUnderTest, seed: int, drafts: int) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), LENGTHS, None, drafts))


@case("CDI-5", check="counts that are not read")
def test_counts_that_are_not_read(op: OpUnderTest, seed: int) -> None:
    values = arguments(np.random.default_rng(seed), LENGTHS, None)
    op.check_outputs({**values, "num_rejected_tokens_ptr": np.array(REJECTED)})


@case("CDI-6", position=[13, 14, 15, 16, 31], drafts=[1, 20], reach=REACH)
def test_query_slots(op: OpUnderTest, seed: int, position: int, drafts: int) -> None:
    """The first query is on either side of a block's end, or the queries fill more than a block."""
    values = arguments(np.random.default_rng(seed), LENGTHS, drafts=drafts)
    ends = values["query_start_loc_ptr"][1:] - 1
    values["target_positions_ptr"][ends[[1, 3]]] = position
    op.check_outputs(values)


@case("CDI-6", check="block size", block=[1, 7, 128, 1056, 1712, 65_600], reach=block_reach)
def test_query_slots_of_any_block_size(op: OpUnderTest, seed: int, block: int) -> None:
    given: dict[str, Any] = {"block_size": block, "columns": max(8, 64 // block)}
    values = arguments(np.random.default_rng(seed), [3, 4, 1], **given)
    values["target_positions_ptr"] = np.maximum(block + np.array([-3, -2, -1, -5, -4, -3, -2, 0]), 0)
    op.check_outputs(values)


@case("CDI-6", relation="injective", reach=REACH)
def test_slots_of_a_batch_are_distinct(op: OpUnderTest, seed: int) -> None:
    """Accepted tokens and queries have a slot each, in blocks of their own request."""
    values = arguments(np.random.default_rng(seed), LENGTHS, REJECTED)
    outputs = op.call_written(values)
    is_accepted = np.concatenate([np.arange(n) < n - r for n, r in zip(LENGTHS, REJECTED, strict=True)])
    slots = outputs["out_context_slot_mapping_ptr"][is_accepted].tolist()
    slots += outputs["out_query_slot_mapping_ptr"].tolist()
    assert_same("slots are distinct", len(slots), len(set(slots)))


@case("CDI-7", drafts=[1, 4], lengths=[(1, 1, 1), (5, 2)], reach=REACH)
def test_tokens_of_queries(op: OpUnderTest, seed: int, drafts: int, lengths: tuple[int, ...]) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), lengths, drafts=drafts))


@case("CDI-7", check="a next token that is the mask token")
def test_a_next_token_that_is_the_mask_token(op: OpUnderTest, seed: int) -> None:
    for mask in (0, 151_669):
        values = arguments(np.random.default_rng(seed), LENGTHS, parallel_drafting_token_id=mask)
        values["next_token_ids_ptr"][1::2] = mask
        op.check_outputs(values)


@case("CDI-8", drafts=[1, 2, 8], requests=[1, 3, 33], reach=REACH)
def test_indices_of_mask_tokens(op: OpUnderTest, seed: int, drafts: int, requests: int) -> None:
    rng = np.random.default_rng(seed)
    op.check_outputs(arguments(rng, rng.integers(1, 6, requests), drafts=drafts))


@case("CDI-9", drafts=[1, 2, 7], lengths=[(1, 9, 2), (3,) * 33], reach=REACH)
def test_queries_are_packed_by_request(op: OpUnderTest, seed: int, drafts: int, lengths: tuple[int, ...]) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), lengths, drafts=drafts))


@case("CDI-10", spare=[1, 40], reach="drafting buffers are as long as the largest batch")
def test_entries_past_the_batch(op: OpUnderTest, seed: int, spare: int) -> None:
    sizes = {">=T": 16 + spare, ">=B*Q": 4 * 4 + spare}
    shapes = {t.name: (sizes[str(t.shape[0])],) for t in CONTRACT.outputs if t.shape[0] in sizes}
    op.check_outputs(arguments(np.random.default_rng(seed), LENGTHS), shapes=shapes)


@case("CDI-10", check="no batch")
def test_no_batch(op: OpUnderTest, seed: int) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), []))


@case("CDI-11", lengths=[(1500, 3), (64, 65, 63), (5000, 3)], reach="a prefill is longer than a tile")
def test_a_request_longer_than_a_tile(op: OpUnderTest, seed: int, lengths: tuple[int, ...]) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), lengths))


@case("CDI-11", check="queries at the edge of a tile", block=[64, 128, 256, 1024, 4096])
def test_queries_at_the_edge_of_a_tile(op: OpUnderTest, seed: int, block: int) -> None:
    """Of some request the queries begin a tile, end it, or lie on both sides of its end."""
    op.check_outputs(arguments(np.random.default_rng(seed), range(block - 6, block + 3)))


@case("CDI-11", check="queries longer than a tile", drafts=[255, 1030])
def test_more_queries_than_a_tile_holds(op: OpUnderTest, seed: int, drafts: int) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), [3, 700, 2], drafts=drafts))


@case(
    "CDI-12",
    ids=["production", "int32", "int64", "mixed", "swapped"],
    reach=lambda p: REACH if p["ids"] == "production" else None,
)
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    values = arguments(np.random.default_rng(seed), LENGTHS, REJECTED)
    op.check_outputs(values, dtypes={} if ids == "production" else integers(CONTRACT, ids))


@case("CDI-13", columns=[1, 3], layout=["dense", "padded"])
def test_a_block_past_the_table(op: OpUnderTest, seed: int, columns: int, layout: str) -> None:
    """The last column of a padded row is not the last element before the next row."""
    rng = np.random.default_rng(seed)
    values = arguments(rng, LENGTHS)
    values["block_table_ptr"] = rng.permutation(4 * columns).reshape(4, columns) + 1
    values["target_positions_ptr"] = 16 * columns + np.arange(-9, 7)
    op.check_outputs(values, layouts={"block_table_ptr": layout})


@case("CDI-13", check="large batch", columns=[1, 3])
def test_blocks_past_the_tables_of_a_large_batch(op: OpUnderTest, seed: int, columns: int) -> None:
    rng, b = np.random.default_rng(seed), 1100
    values = arguments(rng, rng.integers(1, 5, b))
    values["block_table_ptr"] = rng.permutation(b * columns).reshape(b, columns) + 1
    op.check_outputs(values)


@case("CDI-14", rejected=[(0, 4, 0, 6), (5, 0, 1, 0), LENGTHS])
def test_requests_whose_tokens_are_all_rejected(op: OpUnderTest, seed: int, rejected: tuple[int, ...]) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), LENGTHS, rejected))


def of_requests_with_tokens(expected: Any, got: Any, inputs: Mapping[str, Any]) -> Any:
    """Compare the queries of requests that have target tokens."""
    has_tokens = np.diff(inputs["query_start_loc_ptr"]) > 0
    return exact(expected, got, inputs) & has_tokens.repeat(inputs["num_query_per_req"])


@case("CDI-15", lengths=[(3, 0, 4), (2, 0, 0, 5, 1)])
def test_a_request_without_target_tokens(op: OpUnderTest, seed: int, lengths: tuple[int, ...]) -> None:
    """Nothing follows a position there: positions and slots of its queries are compared with nothing."""
    names = ("out_query_positions_ptr", "out_query_slot_mapping_ptr")
    values = arguments(np.random.default_rng(seed), lengths)
    op.check_outputs(values, compare=dict.fromkeys(names, of_requests_with_tokens))


@case("CDI-16", block_id=[2**27 + 5, 2**31 - 1])
def test_slots_past_2_to_the_31(op: OpUnderTest, seed: int, block_id: int) -> None:
    values = arguments(np.random.default_rng(seed), [3, 2])
    op.check_outputs({**values, "block_table_ptr": np.full((2, 8), block_id)})


@case("CDI-17", layout="padded")
def test_the_row_stride_of_the_block_table(op: OpUnderTest, seed: int) -> None:
    values = arguments(np.random.default_rng(seed), LENGTHS)
    op.check_outputs(values, layouts={"block_table_ptr": "padded"})


@case("CDI-18", layout=["gapped", "transposed"])
def test_inner_strides(op: OpUnderTest, seed: int, layout: str) -> None:
    layouts = dict.fromkeys((t.name for t in CONTRACT.tensors), layout)
    op.check_outputs(arguments(np.random.default_rng(seed), LENGTHS, REJECTED), layouts=layouts)


@case("CDI-1", mode="generated", reach=REACH)
def test_generated(op: OpUnderTest, seed: int) -> None:
    @explore(structures(CONTRACT, layouts=False, vocab=(1, 6), some_draft=True), 75, seed)
    def check(drawn: DrawnCall) -> None:
        lengths = np.array(drawn.counts, dtype=np.int64) + 1
        op.check_outputs(arguments(np.random.default_rng(drawn.seed), lengths, drafts=drawn.vocab))


@case("CDI-4", mode="generated", reach=REJECTED_REACH)
def test_generated_with_rejected_tokens(op: OpUnderTest, seed: int) -> None:
    @explore(structures(CONTRACT, layouts=False, vocab=(1, 6), some_draft=True), 75, seed)
    def check(drawn: DrawnCall) -> None:
        rng = np.random.default_rng(drawn.seed)
        lengths = np.array(drawn.counts, dtype=np.int64) + 1
        op.check_outputs(arguments(rng, lengths, rng.integers(0, lengths), drawn.vocab))
