"""Requirements of verify_tree_greedy (contract VTG)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.batches import COUNTS
from verispec.cases.strategies import DrawnCall, explore, structures
from verispec.engines import Engine
from verispec.judge import OpUnderTest, assert_same, check_repeated
from verispec.reference import contracts, oracle
from verispec.suites.sampler._rejection import integers
from verispec.suites.sampler._trees import (
    REACH,
    Trees,
    emitted,
    greedy_arguments,
    linked,
    random_trees,
    shuffle_places,
    some_child,
)
from verispec.suites.sampler.test_every_op import PROGRAMS, is_slow

CONTRACT = contracts.load("verify_tree_greedy")
VOCAB = 11
STAR = [-1, 0, 0, 0, 0]
FORK = [-1, 0, 0, 1, 1, 2, 2]
TIED = "a draft probability of 1 ties a child with its parent: top-k may select it alone, and no link names it then"


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def check(
    op: OpUnderTest, seed: int, trees: Trees, agree: float = 0.8, depth: int | None = None, **options: Any
) -> None:
    values, shapes = greedy_arguments(rng_of(seed), trees, VOCAB, agree, depth)
    op.check_outputs(values, shapes=shapes, **options)


def check_written(op: OpUnderTest, trees: Trees, argmax: Any, depth: int | None = None) -> None:
    """Check trees whose argmax after each node is written out."""
    values = {**trees.links(), "target_predict": trees.by_place(np.asarray(argmax))}
    op.check_outputs(values, shapes=trees.shapes(depth))


@case(
    "VTG-1",
    counts=["one", "even", "ragged", "gaps", "wide", "longest"],
    tree=["any", "chain", "star"],
    reach=lambda params: None if params["counts"] == "gaps" else REACH,
)
def test_the_walk_follows_the_argmax(op: OpUnderTest, seed: int, counts: str, tree: str) -> None:
    check(op, seed, random_trees(rng_of(seed), COUNTS[counts], VOCAB, tree))


@case("VTG-2", agree=[0.0, 0.5], reach=REACH)
def test_the_argmax_of_the_last_node_is_emitted(op: OpUnderTest, seed: int, agree: float) -> None:
    """Tokens of siblings differ, and the argmax is another one where they do not agree."""
    trees = linked([FORK] * 40, tokens=[[0, 1, 2, 3, 4, 5, 6]] * 40)
    argmax = np.full((40, 7), 9)
    wanted = np.take_along_axis(trees.tokens, np.maximum(some_child(rng_of(seed), trees), 0), axis=1)
    is_agreed = (trees.next_token >= 0) & (rng_of(seed).random(argmax.shape) < agree)
    check_written(op, trees, np.where(is_agreed, wanted, argmax))


@case("VTG-3", tree=["any", "chain"], reach=REACH)
def test_predictions_of_the_path(op: OpUnderTest, seed: int, tree: str) -> None:
    check(op, seed, random_trees(rng_of(seed), COUNTS["ragged"], VOCAB, tree), agree=1.0)


@case("VTG-4", counts=["ragged", "longest"], reach=REACH)
def test_the_number_of_accepted_drafts(op: OpUnderTest, seed: int, counts: str) -> None:
    for agree in (0.0, 0.5, 1.0):
        check(op, seed, random_trees(rng_of(seed), COUNTS[counts], VOCAB, "chain"), agree)


@case("VTG-5", spare=[1, 5], reach=REACH)
def test_other_places_keep_their_value(op: OpUnderTest, seed: int, spare: int) -> None:
    trees = random_trees(rng_of(seed), COUNTS["ragged"], VOCAB)
    check(op, seed, trees, depth=trees.depth + spare)


@case("VTG-6", place=["first", "middle", "last", "none"], reach=REACH)
def test_all_siblings_are_tried(op: OpUnderTest, seed: int, place: str) -> None:
    """The matching sibling is the first, the third or the last of its list, in lists of any order.

    In every second request the siblings before it are padding.
    """
    batch = linked([STAR] * 9, tokens=[[0, 1, 2, 3, 4]] * 9, order=rng_of(seed))
    argmax = np.full((9, 5), 8)
    for b in range(9):
        node = batch.next_token[b, 0]
        for _ in range({"first": 0, "middle": 2, "last": 3, "none": 0}[place]):
            if b % 2:
                batch.tokens[b, node] = -1
            node = batch.next_sibling[b, node]
        argmax[b, 0] = 7 if place == "none" else batch.tokens[b, node]
    check_written(op, batch, argmax)


@case("VTG-6", check="equal tokens", reach="an n-gram corpus or a draft model may propose a token twice")
def test_the_first_of_equal_siblings_wins(op: OpUnderTest, seed: int) -> None:
    """Only the second sibling with the token leads on, so that the path shows which was taken."""
    batch = linked([[-1, 0, 0, 0, 1, 2, 3]] * 5, tokens=[[0, 4, 4, 2, 5, 6, 7]] * 5, order=rng_of(seed))
    check_written(op, batch, [[4, 5, 6, 7, 8, 8, 8]] * 5)


@case("VTG-7", depth=[0, 1, 2, 4])
def test_a_path_ends_at_the_depth(op: OpUnderTest, seed: int, depth: int) -> None:
    for tree in ("chain", "any"):
        check(op, seed, random_trees(rng_of(seed), (5, 7, 6), VOCAB, tree), 1.0, depth)


@case("VTG-8", requests=[1, 3], reach=REACH)
def test_a_root_alone(op: OpUnderTest, seed: int, requests: int) -> None:
    check(op, seed, random_trees(rng_of(seed), (0,) * requests, VOCAB))
    check(op, seed, random_trees(rng_of(seed), (0,) * requests, VOCAB), depth=3)


@case("VTG-9", counts=["ragged", "gaps"], reach=lambda params: TIED if params["counts"] == "ragged" else None)
def test_padding_nodes(op: OpUnderTest, seed: int, counts: str) -> None:
    """Padding has the tokens that the target would accept."""
    trees = random_trees(rng_of(seed), COUNTS[counts], VOCAB)
    values, shapes = greedy_arguments(rng_of(seed), trees, VOCAB, 0.5)
    is_padding = (trees.parents < 0) & (np.arange(trees.nodes) > 0)
    values["candidates"] = np.where(is_padding, values["target_predict"][:, :1], trees.tokens)
    op.check_outputs(values, shapes=shapes)


@case("VTG-10", place=["first", "middle", "last"])
def test_a_padding_token(op: OpUnderTest, seed: int, place: str) -> None:
    trees = linked([STAR] * 3, tokens=[[0, 1, 2, 3, 4]] * 3)
    trees.tokens[1:, {"first": 1, "middle": 3, "last": 4}[place]] = -1
    check_written(op, trees, [[2, 8, 8, 8, 8], [4, 8, 8, 8, 8], [1, 8, 8, 8, 8]])
    for token in (0, VOCAB - 1):  # those of a clamped id and of a wrapped one
        check_written(op, trees, [[2, 8, 8, 8, 8], [token, 8, 8, 8, 8], [token, 8, 8, 8, 8]])


@case("VTG-11", tree=["any", "chain", "star"])
def test_places_in_any_order(op: OpUnderTest, seed: int, tree: str) -> None:
    trees = random_trees(rng_of(seed), COUNTS["ragged"], VOCAB, tree)
    shuffle_places(rng_of(seed), trees)
    check(op, seed, trees, 0.9)


@case("VTG-12", links=["past", "below", "cycle"])
def test_links_out_of_the_tree(op: OpUnderTest, links: str) -> None:
    trees = linked([STAR] * 4, tokens=[[0, 1, 2, 3, 4]] * 4)
    wrong = {"past": [5, 9], "below": [-2, -7], "cycle": [1, 1]}[links]
    trees.next_token[1, 0], trees.next_sibling[2, 2] = wrong
    check_written(op, trees, [[4, 9, 9, 9, 9]] * 4, depth=2)


@case("VTG-12", links="to the root", requests=[4, 66_012])
def test_links_to_the_root(op: OpUnderTest, engine: Engine, requests: int) -> None:
    """A root is a child of its own child, or of itself: the walk meets it again, until K drafts are accepted.

    Many requests are copies of four.
    """
    trees = linked([STAR] * 4, tokens=[[0, 1, 2, 3, 4]] * 4)
    argmax = np.tile([4, 9, 9, 9, 0], (4, 1))
    trees.next_token[1, 4] = 0
    trees.next_sibling[2, 4], argmax[2, 0] = 0, 0
    values = {**trees.links(), "target_predict": trees.by_place(argmax)}
    copies = min(requests, PROGRAMS if is_slow(engine) else requests) // 4
    check_repeated(op, values, copies, shapes=trees.shapes(3), compare={})


@case("VTG-13", node=["root", "child"])
def test_places_out_of_the_batch(op: OpUnderTest, node: str) -> None:
    trees = linked([STAR] * 4, tokens=[[0, 1, 2, 4, 4]] * 4)
    argmax = trees.by_place(np.array([[4, 9, 9, 9, 9]] * 4))
    at = 0 if node == "root" else 3
    trees.places[1, at], trees.places[2, at] = -1, trees.places.size
    op.check_outputs({**trees.links(), "target_predict": argmax}, shapes=trees.shapes())


@case("VTG-14", layout=["gapped", "padded", "transposed"])
def test_strides(op: OpUnderTest, seed: int, layout: str) -> None:
    layouts = dict.fromkeys((t.name for t in CONTRACT.tensors), layout)
    check(op, seed, random_trees(rng_of(seed), (0, 3, 5, 4, 2) * 8, VOCAB), layouts=layouts)


def width_reach(params: Mapping[str, Any]) -> str | None:
    return REACH if params["ids"] == "production" else None


@case("VTG-15", ids=["production", "int32", "int64", "mixed", "swapped"], reach=width_reach)
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    """Some drafts of 64 bits differ from the argmax in their upper 32 bits alone."""
    dtypes = {} if ids == "production" else integers(CONTRACT, ids)
    trees = random_trees(rng_of(seed), COUNTS["ragged"], VOCAB)
    values, shapes = greedy_arguments(rng_of(seed), trees, VOCAB)
    if dtypes.get("candidates") == "int64":
        is_far = rng_of(seed).random(values["candidates"].shape) < 0.2
        values["candidates"] = np.asarray(values["candidates"], dtype=np.int64) + 2**32 * is_far
    op.check_outputs(values, shapes=shapes, dtypes=dtypes)


@case("VTG-1", mode="generated", reach=REACH)
def test_generated(op: OpUnderTest, seed: int) -> None:
    @explore(structures(CONTRACT, layouts=False), 150, seed)
    def check_one(drawn: DrawnCall) -> None:
        rng = rng_of(drawn.seed)
        trees = random_trees(rng, drawn.counts, drawn.vocab)
        values, shapes = greedy_arguments(rng, trees, drawn.vocab, float(rng.choice([0.6, 1.0])))
        # Another token may have the same lower 16 bits.
        values["target_predict"] = values["target_predict"] + 2**16 * (rng.random(values["target_predict"].shape) < 0.1)
        op.check_outputs(values, shapes=shapes)


@case("VTG-1", relation="chain", reach=REACH)
def test_chains_emit_what_the_chain_op_emits(op: OpUnderTest, seed: int) -> None:
    """A tree without branches is a request of rejection_greedy_sample."""
    trees = random_trees(rng_of(seed), COUNTS["ragged"], VOCAB, "chain")
    values, shapes = greedy_arguments(rng_of(seed), trees, VOCAB, 0.9)
    outputs = op.call_written(values, shapes=shapes)
    for b in range(trees.requests):
        nodes = [0]
        while trees.next_token[b, nodes[-1]] >= 0:
            nodes.append(int(trees.next_token[b, nodes[-1]]))
        argmax = values["target_predict"].reshape(-1)[trees.places[b, nodes]]
        chain = oracle.load("rejection_greedy_sample")(
            output_token_ids_ptr=np.full((1, len(nodes)), -1),
            cu_num_draft_tokens_ptr=np.array([len(nodes) - 1]),
            draft_token_ids_ptr=trees.tokens[b, nodes[1:]],
            target_argmax_ptr=argmax[:-1],
            bonus_token_ids_ptr=argmax[-1:],
            is_greedy_ptr=None,
            max_spec_len=len(nodes) - 1,
            uniform_probs_ptr=None,
            synthetic_conditional_rates_ptr=None,
            SYNTHETIC_MODE=False,
        )["output_token_ids_ptr"][0]
        assert_same(f"chain of request {b}", chain[chain >= 0], emitted(outputs, b))


@case("VTG-1", relation="split", reach=REACH)
def test_requests_do_not_see_each_other(op: OpUnderTest, seed: int) -> None:
    trees = random_trees(rng_of(seed), COUNTS["ragged"], VOCAB)
    values, shapes = greedy_arguments(rng_of(seed), trees, VOCAB)
    whole = op.call_written(values, shapes=shapes)
    for b in range(trees.requests):
        alone = {name: value[b : b + 1] for name, value in values.items()}
        alone["retrieve_index"] = alone["retrieve_index"] - b * trees.nodes
        got = op.call(alone, shapes={"accept_index": (1, trees.depth + 1)})[1]
        assert_same(f"request {b} alone", emitted(whole, b), emitted(got, 0))
