"""Requirements of eagle_step_slot_mapping_metadata (contract ESM)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.strategies import DrawnCall, explore, structures
from verispec.judge import OpUnderTest, assert_same
from verispec.reference import contracts
from verispec.suites.sampler._drafting import STEP_BLOCK as BLOCK
from verispec.suites.sampler._drafting import STEP_LIMIT as LIMIT
from verispec.suites.sampler._drafting import step_arguments as arguments
from verispec.suites.sampler._rejection import integers

CONTRACT = contracts.load("eagle_step_slot_mapping_metadata")
REACH = "every drafted token after the first goes through this kernel"


def positions_of(rng: np.random.Generator, b: int) -> Any:
    return rng.integers(0, LIMIT, size=b)


def limit_reach(params: Mapping[str, Any]) -> str | None:
    """Return the reach of the last position; the step after it starts at position 0 again."""
    return "a request drafts on to its last position" if params["at"] == "last" else None


def padding_reach(params: Mapping[str, Any]) -> str | None:
    return "batches are padded to the size of a captured graph" if params["b"] else None


@case("ESM-1", b=[1, 5, 257], reach=REACH)
def test_the_next_position(op: OpUnderTest, seed: int, b: int) -> None:
    rng = np.random.default_rng(seed)
    op.check_outputs(arguments(rng, rng.integers(0, LIMIT - 1, size=b)))


@case("ESM-2", at=["last", "limit", "far past"], reach=limit_reach)
def test_past_the_limit(op: OpUnderTest, seed: int, at: str) -> None:
    """The request at its limit is between two that continue."""
    position = {"last": LIMIT - 1, "limit": LIMIT, "far past": LIMIT + 1000}[at]
    op.check_outputs(arguments(np.random.default_rng(seed), [3, position, LIMIT - 2]))


@case("ESM-3", position=[0, BLOCK - 2, BLOCK - 1, BLOCK, LIMIT - 2], reach=REACH)
def test_the_slot(op: OpUnderTest, seed: int, position: int) -> None:
    """Positions on both sides of a block's end."""
    op.check_outputs(arguments(np.random.default_rng(seed), [position, 5, position]))


def block_reach(params: Mapping[str, Any]) -> str | None:
    """Return the reach of a block size: no page of a state is 16 bits long."""
    return None if params["block_size"] > 2**16 else REACH


@case("ESM-3", block_size=[1, 7, 128, 1056, 1712, 65_600], check="block size", reach=block_reach)
def test_any_block_size(op: OpUnderTest, seed: int, block_size: int) -> None:
    """Models with recurrent layers have blocks of 1,056 positions and more, as long as their states.

    One position is the first of a block. A product with 1 / 1,712 is below 1 there, in float32 and in float64.
    """
    rng, limit = np.random.default_rng(seed), max(LIMIT, 2 * block_size)
    columns = -(-limit // block_size)
    table = rng.permutation(3 * columns).reshape(3, columns)
    given: dict[str, Any] = {"block_table_ptr": table, "n_blocks_per_req": columns, "max_model_len": limit}
    op.check_outputs(arguments(rng, [0, block_size - 1, limit - 2], block_size=block_size, **given))


@case(
    "ESM-3",
    check="long texts",
    position=[2**15 - 1, 2**16 - 1, 100_000],
    reach="models have contexts of 131,072 tokens",
)
def test_positions_that_16_bits_do_not_hold(op: OpUnderTest, seed: int, position: int) -> None:
    rng, limit = np.random.default_rng(seed), 131_072
    table = rng.permutation(3 * limit // BLOCK).reshape(3, -1)
    given: dict[str, Any] = {"block_table_ptr": table, "n_blocks_per_req": limit // BLOCK, "max_model_len": limit}
    op.check_outputs(arguments(rng, [position, 5, position + 1], **given, seq_lens_ptr=[position + 1, 6, position + 2]))


@case("ESM-4", length=["grows", "at the limit"], reach=REACH)
def test_the_sequence_length(op: OpUnderTest, seed: int, length: str) -> None:
    values = arguments(np.random.default_rng(seed), [4, 9, 20])
    op.check_outputs({**values, "seq_lens_ptr": [5, 10, 21] if length == "grows" else [LIMIT, LIMIT, LIMIT - 1]})


@case("ESM-4", check="lengths past the block table")
def test_a_sequence_length_past_the_block_table(op: OpUnderTest, seed: int) -> None:
    """The limit of lengths is max_model_len, whatever the table holds: positions of a draft may lag behind."""
    values = arguments(np.random.default_rng(seed), [4, 9, 2])
    table = values["block_table_ptr"][:, :1]
    op.check_outputs(
        {**values, "seq_lens_ptr": [BLOCK - 1, BLOCK, LIMIT - 1], "block_table_ptr": table, "n_blocks_per_req": 1}
    )


@case("ESM-5", rows=[1, 7, 600, 2100], b=[0, 3], on="cuda", reach=padding_reach)
def test_padding_rows(op: OpUnderTest, seed: int, rows: int, b: int) -> None:
    """The other outputs have as many rows, as the buffers of a captured graph do; the inputs have the batch's."""
    rng = np.random.default_rng(seed)
    values = arguments(rng, positions_of(rng, b), rows)
    values["seq_lens_ptr"] = np.concatenate([values["seq_lens_ptr"], rng.integers(1, 50, rows)])
    op.check_outputs(values, shapes={"out_clamped_positions_ptr": (b + rows,)})


@case("ESM-6", columns=[1, 3])
def test_a_block_past_the_table(op: OpUnderTest, seed: int, columns: int) -> None:
    """The table covers less than the limit; the op must not read past the row."""
    rng = np.random.default_rng(seed)
    table = rng.permutation(3 * columns).reshape(3, columns) + 1
    op.check_outputs(arguments(rng, [columns * BLOCK - 1, 60, 2], block_table_ptr=table, n_blocks_per_req=columns))


@case("ESM-6", columns=[1, 3], layout="padded")
def test_a_block_past_the_columns_of_a_padded_table(op: OpUnderTest, seed: int, columns: int) -> None:
    """The last column of a row is not the last element before the next row."""
    rng = np.random.default_rng(seed)
    table = rng.permutation(3 * columns).reshape(3, columns) + 1
    values = arguments(rng, [columns * BLOCK, 60, 2], block_table_ptr=table, n_blocks_per_req=columns)
    op.check_outputs(values, layouts={"block_table_ptr": "padded"})


@case("ESM-6", columns=[1, 3], check="large batch")
def test_blocks_past_the_tables_of_a_large_batch(op: OpUnderTest, seed: int, columns: int) -> None:
    rng, b = np.random.default_rng(seed), 1100
    table = rng.permutation(b * columns).reshape(b, columns) + 1
    op.check_outputs(arguments(rng, positions_of(rng, b), block_table_ptr=table, n_blocks_per_req=columns))


@case("ESM-7", b=[1, 5], reach="the proposer passes one buffer as both")
def test_positions_advance_in_place(op: OpUnderTest, seed: int, b: int) -> None:
    rng = np.random.default_rng(seed)
    op.check_aliased(arguments(rng, positions_of(rng, b)), "out_clamped_positions_ptr", "positions_ptr")


@case("ESM-7", check="every position", reach="the proposer passes one buffer as both")
def test_every_position_advances_in_place(op: OpUnderTest, seed: int) -> None:
    """A position that is read again after the new one was written is in another block at the end of one alone."""
    values = arguments(np.random.default_rng(seed), np.arange(LIMIT))
    op.check_aliased(values, "out_clamped_positions_ptr", "positions_ptr")


@case("ESM-8", position=[-2, -(2**31)])
def test_a_negative_position_never_indexes(op: OpUnderTest, seed: int, position: int) -> None:
    op.check_outputs(arguments(np.random.default_rng(seed), [3, position, 5]))


@case("ESM-9", block=[2**27 + 5, 2**31 - 1])
def test_slots_past_2_to_the_31(op: OpUnderTest, seed: int, block: int) -> None:
    op.check_outputs(
        arguments(np.random.default_rng(seed), [3, 20], block_table_ptr=np.full((2, LIMIT // BLOCK), block))
    )


@case("ESM-10", layout="padded")
def test_the_row_stride_of_the_block_table(op: OpUnderTest, seed: int) -> None:
    rng = np.random.default_rng(seed)
    op.check_outputs(arguments(rng, positions_of(rng, 5)), layouts={"block_table_ptr": "padded"})


@case("ESM-11", layout=["gapped", "transposed"])
def test_inner_strides(op: OpUnderTest, seed: int, layout: str) -> None:
    rng = np.random.default_rng(seed)
    layouts = dict.fromkeys((t.name for t in CONTRACT.tensors), layout)
    op.check_outputs(arguments(rng, positions_of(rng, 5)), layouts=layouts)


@case(
    "ESM-12",
    ids=["production", "int32", "int64", "mixed", "swapped"],
    reach=lambda p: REACH if p["ids"] == "production" else None,
)
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    rng = np.random.default_rng(seed)
    op.check_outputs(
        arguments(rng, positions_of(rng, 5)), dtypes={} if ids == "production" else integers(CONTRACT, ids)
    )


@case("ESM-1", mode="generated", reach=REACH)
def test_generated(op: OpUnderTest, seed: int) -> None:
    @explore(structures(CONTRACT, layouts=False, some_draft=True), 150, seed)
    def check(drawn: DrawnCall) -> None:
        rng = np.random.default_rng(drawn.seed)
        op.check_outputs(arguments(rng, positions_of(rng, len(drawn.counts))))


@case("ESM-3", relation="injective", reach=REACH)
def test_slots_of_one_sequence_are_distinct(op: OpUnderTest, seed: int) -> None:
    """Stepping through a whole sequence visits each slot once."""
    rng = np.random.default_rng(seed)
    values = arguments(rng, [0, 0])
    slots = []
    for position in range(LIMIT - 1):
        values["positions_ptr"] = np.array([position, position])
        slots += op.call_written(values)["out_slot_mapping_ptr"].tolist()
    assert_same("slots are distinct", len(slots), len(set(slots)))
