"""Requirements of build_draft_tree (contract BDT)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.strategies import DrawnCall, explore, structures
from verispec.engines import Engine
from verispec.judge import OpUnderTest, assert_same
from verispec.reference import contracts
from verispec.suites.sampler._rejection import integers
from verispec.suites.sampler._trees import REACH, Selection, build_arguments, random_selection
from verispec.suites.sampler.test_every_op import is_slow

CONTRACT = contracts.load("build_draft_tree")
LENGTHS = {"zero": [0, 0, 0], "even": [7, 7, 7], "ragged": [5, 0, 31], "long": [2, 131_072, 9]}


def check(op: OpUnderTest, selection: Selection, lengths: Any, mode: int = 0, spare: int = 0, **options: Any) -> None:
    values, shapes = build_arguments(selection, lengths, mode, spare)
    op.check_outputs(values, shapes=shapes, **options)


def selected(seed: int, nodes: int, topk: int, requests: int = 3) -> Selection:
    """Return the selections of requests with trees of as many nodes each."""
    return random_selection(np.random.default_rng(seed), (nodes - 1,) * requests, topk)


def given(topk: int, depth: int, parent_list: list[int], *candidates: list[int]) -> Selection:
    """Return a selection written out: the beams of all requests, and the candidates of each."""
    lists = np.tile(np.array(parent_list, dtype=np.int64), (len(candidates), 1))
    return Selection(lists, np.array(candidates), topk, depth)


@case("BDT-1", topk=[1, 2, 4, 8], n=[2, 8, 33, 64], reach=REACH)
def test_parents_of_selected_candidates(op: OpUnderTest, seed: int, topk: int, n: int) -> None:
    check(op, selected(seed, n, topk), LENGTHS["ragged"])


@case("BDT-2", mode=["full", "tree"], reach=REACH)
def test_the_first_child_has_the_lowest_number(op: OpUnderTest, mode: str) -> None:
    """Children of the root alone; a chain; and nodes with two children each."""
    one_step = given(4, 1, [], [0, 1, 2], [1, 2, 3], [0, 2, 3])
    two_steps = given(2, 2, [-1, 0, 1], [0, 1, 2, 3, 4], [0, 1, 3, 4, 5], [0, 1, 2, 3, 5])
    for selection in (one_step, two_steps):
        check(op, selection, LENGTHS["ragged"], int(mode == "tree"))


@case("BDT-2", check="trees of hundreds of nodes")
def test_links_of_more_nodes_than_a_tile_holds(op: OpUnderTest, engine: Engine, seed: int) -> None:
    """Some nodes have their first child, or their next sibling, in the first tile of 256 or 1,024, others behind it."""
    nodes = 260 if is_slow(engine) else 1100
    check(op, selected(seed, nodes, nodes // 3, 1), [5], 1)


@case("BDT-3", topk=[2, 3, 10], reach=REACH)
def test_siblings_follow_each_other(op: OpUnderTest, seed: int, topk: int) -> None:
    check(op, selected(seed, 2 * topk + 1, topk), LENGTHS["ragged"])


@case("BDT-3", check="any order", topk=[2, 3, 10])
def test_candidates_in_any_order(op: OpUnderTest, seed: int, topk: int) -> None:
    """Siblings have consecutive numbers only where candidates ascend; others are up to a hundred nodes apart."""
    for nodes in (20, 130):
        selection = selected(seed, nodes, topk)
        selection.selected = np.random.default_rng(seed).permuted(selection.selected, axis=1)
        check(op, selection, LENGTHS["ragged"])


@case("BDT-4", requests=[1, 2, 5, 67], reach=REACH)
def test_places_count_the_nodes_of_all_requests(op: OpUnderTest, seed: int, requests: int) -> None:
    check(op, selected(seed, 6, 3, requests), np.arange(requests) % 7)


@case("BDT-5", lengths=list(LENGTHS), reach=REACH)
def test_positions_are_length_and_depth(op: OpUnderTest, seed: int, lengths: str) -> None:
    for topk in (1, 3):
        check(op, selected(seed, 9, topk), LENGTHS[lengths], int(lengths == "long"))


@case("BDT-6", n=[2, 7, 31, 32, 33], mode=["full", "tree"], reach=REACH)
def test_nodes_attend_to_their_ancestors(op: OpUnderTest, seed: int, n: int, mode: str) -> None:
    check(op, selected(seed, n, 2), LENGTHS["ragged"], int(mode == "tree"))


@case("BDT-7", lengths=list(LENGTHS), reach=REACH)
def test_columns_of_the_text_keep_their_value(op: OpUnderTest, seed: int, lengths: str) -> None:
    check(op, selected(seed, 5, 2), LENGTHS[lengths])


@case("BDT-7", spare=[1, 40], reach="the mask's buffer is as long as the largest batch")
def test_the_rest_of_the_mask_keeps_its_value(op: OpUnderTest, seed: int, spare: int) -> None:
    for mode in (0, 1):
        check(op, selected(seed, 5, 2), LENGTHS["ragged"], mode, spare)


@case("BDT-8", lengths=list(LENGTHS), reach=REACH)
def test_a_mask_of_the_tree_alone(op: OpUnderTest, seed: int, lengths: str) -> None:
    check(op, selected(seed, 5, 2), LENGTHS[lengths], 1)


@case("BDT-9", mode=["full", "tree"], reach=REACH)
def test_a_root_alone(op: OpUnderTest, seed: int, mode: str) -> None:
    check(op, selected(seed, 1, 2), LENGTHS["ragged"], int(mode == "tree"))


@case("BDT-10", lost=["parent", "grandparent"])
def test_a_node_without_a_selected_parent(op: OpUnderTest, lost: str) -> None:
    """Candidate 4 was drafted from beam 1, whose candidate 1 is not selected, but is the first of the next request."""
    below = {"parent": [0, 2, 4], "grandparent": [0, 4, 8]}[lost]
    check(op, given(2, 3, [-1, 0, 1, 2, 4], [0, 1, 2], below, [1, 2, 4]), LENGTHS["ragged"])


@case("BDT-11", mode=["full", "tree"], counts=["gaps", "ragged"])
def test_trees_of_unequal_size(op: OpUnderTest, seed: int, mode: str, counts: str) -> None:
    sizes = {"gaps": (0, 3, 0, 0, 4, 1, 0), "ragged": (3, 1, 5, 3)}[counts]
    selection = random_selection(np.random.default_rng(seed), sizes, 2)
    check(op, selection, np.arange(len(sizes)), int(mode == "tree"))


@case("BDT-12", links=["entry", "last entry", "depth", "cycle"])
def test_lists_that_lead_nowhere(op: OpUnderTest, links: str) -> None:
    """Entries past the list, with a selected candidate there; too long a chain; nodes that are each other's parent.

    Past the last list is memory that holds the ids of lists.
    """
    wrong = {
        "last entry": given(2, 2, [1, 0, 1], [0, 1, 2, 3], [0, 1, 6, 7]),
        "entry": given(2, 2, [-1, 0, 1], [0, 1, 2, 3], [0, 6, 8, 900], [0, 1, 3, 5]),
        "depth": given(1, 2, [-1, 0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3]),
        "cycle": given(1, 4, [-1, 2, 1, 0], [0, 1, 3], [0, 1, 2], [1, 2, 3]),
    }[links]
    check(op, wrong, [3] * len(wrong.selected))


@case("BDT-13", layout=["gapped", "padded", "transposed"])
def test_strides(op: OpUnderTest, seed: int, layout: str) -> None:
    layouts = dict.fromkeys((t.name for t in CONTRACT.tensors), layout)
    check(op, selected(seed, 7, 2), LENGTHS["ragged"], layouts=layouts)


def width_reach(params: Mapping[str, Any]) -> str | None:
    return REACH if params["ids"] == "production" else None


@case("BDT-14", ids=["production", "int32", "int64", "mixed", "swapped"], reach=width_reach)
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    dtypes = {} if ids == "production" else integers(CONTRACT, ids)
    check(op, selected(seed, 7, 2), LENGTHS["ragged"], dtypes=dtypes)


@case("BDT-1", mode="generated", reach=REACH)
def test_generated(op: OpUnderTest, seed: int) -> None:
    @explore(structures(CONTRACT, layouts=False), 150, seed)
    def check_one(drawn: DrawnCall) -> None:
        rng = np.random.default_rng(drawn.seed)
        counts = (max([0, *drawn.counts]),) * len(drawn.counts)
        selection = random_selection(rng, counts, int(rng.integers(1, 5)))
        check(op, selection, rng.integers(0, 20, len(counts)), int(rng.integers(0, 2)))


@case("BDT-6", relation="split", reach=REACH)
def test_requests_do_not_see_each_other(op: OpUnderTest, seed: int) -> None:
    selection = selected(seed, 8, 3)
    values, shapes = build_arguments(selection, LENGTHS["ragged"], 1)
    whole = op.call_written(values, shapes=shapes)
    for b, length in enumerate(LENGTHS["ragged"]):
        alone = Selection(selection.parent_list[b : b + 1], selection.selected[b : b + 1], 3, selection.depth)
        values, shapes = build_arguments(alone, [length], 1)
        got = op.call(values, shapes=shapes)[1]
        for name in ("tree_mask", "positions"):
            size = len(got[name])
            assert_same(f"{name} of request {b} alone", whole[name][b * size : (b + 1) * size], got[name])
        for name in ("retrieve_next_token", "retrieve_next_sibling"):
            assert_same(f"{name} of request {b} alone", whole[name][b], got[name][0])
