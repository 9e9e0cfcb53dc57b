"""Requirements of verify_tree_sampled (contract VTS)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.batches import COUNTS
from verispec.cases.strategies import DrawnCall, explore, structures
from verispec.engines import Engine
from verispec.judge import OpUnderTest, assert_same
from verispec.reference import contracts, oracle
from verispec.suites.sampler import _ends
from verispec.suites.sampler._callers import of_vocabulary
from verispec.suites.sampler._refusals import check_each
from verispec.suites.sampler._rejection import integers
from verispec.suites.sampler._tree_laws import chain_batch, check_law, law_batch, many_requests
from verispec.suites.sampler._trees import (
    REACH,
    Trees,
    between,
    emitted,
    linked,
    random_trees,
    sampled_arguments,
    shuffle_places,
)

CONTRACT = contracts.load("verify_tree_sampled")
VOCAB = 11
DRAWN: dict[str, dict[str, Any]] = {"given": {"draft": False}, "alike": {}, "different": {"without_replacement": True}}
SAME = (("target_probs", "draft_probs"),)
Values = dict[str, Any]


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def batch(seed: int, counts: Any, drawn: str, tree: str = "any", vocab: int = VOCAB) -> tuple[Trees, Values]:
    rng = rng_of(seed)
    trees = random_trees(rng, COUNTS[counts] if isinstance(counts, str) else counts, vocab, tree)
    return trees, sampled_arguments(rng, trees, vocab, **DRAWN[drawn])


def check(op: OpUnderTest, trees: Trees, values: Values, depth: int | None = None, **options: Any) -> None:
    op.check_outputs(values, shapes=trees.shapes(depth), **options)


def star(tokens: list[int], requests: int = 3, **changes: Any) -> tuple[Trees, Values]:
    """Return requests whose drafts are all below the root, over four tokens; u is one half.

    The target has 2, 8, 1 and 5 sixteenths, the draft 8, 4, 2 and 2. Request 0 accepts its first draft.
    """
    trees = linked([[-1] + [0] * len(tokens)] * requests, tokens=[[0, *tokens]] * requests)
    shape = trees.parents.shape
    values = {
        "uniform_samples": np.full(shape, 0.5),
        "uniform_samples_for_final_sampling": np.linspace(0.03125, 0.96875, requests),
        "target_probs": np.tile(np.array([2, 8, 1, 5]) / 16, (*shape, 1)),
        "draft_probs": np.tile(np.array([8, 4, 2, 2]) / 16, (*shape, 1)),
        "WITHOUT_REPLACEMENT": False,
        **changes,
    }
    values["uniform_samples"][0] = 2.0**-10
    return trees, {**trees.links(), **values}


@case("VTS-1", counts=["one", "even", "ragged", "gaps", "wide"], drawn=list(DRAWN), tree=["any", "chain", "star"])
def test_children_are_accepted_by_their_ratio(op: OpUnderTest, seed: int, counts: str, drawn: str, tree: str) -> None:
    check(op, *batch(seed, counts, drawn, tree))


@case("VTS-1", u=["below", "equal", "above"])
def test_acceptance_is_strict(op: OpUnderTest, seed: int, u: str) -> None:
    """p(0) / q(0) is one quarter."""
    trees, values = star([0])
    values["uniform_samples"][1:] = 0.25 + {"below": -(2.0**-20), "equal": 0.0, "above": 2.0**-20}[u]
    check(op, trees, values)


@case("VTS-2", drawn=["alike", "different"])
def test_a_rejection_leaves_the_residual(op: OpUnderTest, seed: int, drawn: str) -> None:
    """Token 0 is rejected; the later ones are tried against what is left, around the bound of each."""
    for second in (1, 2, 3):
        for u in (0.25, 0.375, 0.75, 0.9375):
            for tokens in ([0, second], [0, second, 1]):
                trees, values = star(tokens, 40, WITHOUT_REPLACEMENT=drawn == "different")
                values["uniform_samples"][1:, 2:] = u
                check(op, trees, values)


@case("VTS-2", drawn=list(DRAWN), tree="any", reach=REACH)
def test_a_node_starts_from_its_own_rows(op: OpUnderTest, seed: int, drawn: str) -> None:
    """Paths go on after rejections at their first nodes, whose sums the next ones must not keep."""
    for vocab in (4, 20):
        check(op, *batch(seed, (12,) * 150, drawn, "any", vocab))


@case("VTS-2", drawn=list(DRAWN), vocab=66_010)
def test_a_rejection_leaves_the_last_of_many_tokens(op: OpUnderTest, seed: int, drawn: str) -> None:
    """A late token is drafted and rejected, which leaves token 1 and the last one, as likely as each other."""
    token = 66_000
    trees, values = star([token], 2, WITHOUT_REPLACEMENT=drawn == "different")
    target, draft = np.zeros((2, 2, 2, 66_010))
    target[:, :, token], target[:, :, [1, -1]], draft[:, :, token] = 0.25, 0.375, 1.0
    values |= {"target_probs": target, "draft_probs": None if drawn == "given" else draft}
    values["uniform_samples"][1:] = 0.75
    values["uniform_samples_for_final_sampling"][:] = 0.5625
    check(op, trees, values)


@case("VTS-3", n=[1, 2, 3])
def test_drafts_that_were_not_drawn(op: OpUnderTest, seed: int, n: int) -> None:
    for u in (0.0625, 0.1875, 0.3, 0.6):
        trees, values = star([0, 3, 1][:n], draft_probs=None)
        values["uniform_samples"][1:] = u
        check(op, trees, values)


@case("VTS-4", drawn=["alike", "different"], n=[2, 3, 4])
def test_with_and_without_replacement(op: OpUnderTest, seed: int, drawn: str, n: int) -> None:
    for vocab in (4, 20, 1300):
        check(op, *batch(seed, (n,) * 40, drawn, "star", vocab))


@case("VTS-4", drawn=["alike", "different"], vocab=66_010)
def test_rejected_late_tokens_with_and_without_replacement(op: OpUnderTest, seed: int, drawn: str) -> None:
    """After two rejections the third draft's fate tells whether q has lost the rejected tokens, which are late ones."""
    for ids in ([66_000, 1, 66_001, 65_537], [3, 66_000, 66_001, 4]):
        trees, values = star([0, 2, 1], 2, WITHOUT_REPLACEMENT=drawn == "different")
        values["candidates"][:, 1:] = np.array(ids)[values["candidates"][:, 1:]]
        for name in ("target_probs", "draft_probs"):
            wide = np.zeros((2, 4, 66_010))
            wide[..., ids] = values[name]
            values[name] = wide
        values["uniform_samples"][1:] = 0.75
        check(op, trees, values)


@case("VTS-4", drawn=["alike", "different"], tree="any")
def test_a_rejection_changes_its_own_node_alone(op: OpUnderTest, seed: int, drawn: str) -> None:
    """Paths go on after rejections at their first nodes."""
    for vocab in (4, 20):
        check(op, *batch(seed, (12,) * 150, drawn, "any", vocab))


@case("VTS-5", drawn=list(DRAWN))
def test_the_last_token_is_drawn_from_what_is_left(op: OpUnderTest, seed: int, drawn: str) -> None:
    """Forty final samples over the whole range, after one to four rejections."""
    for tokens in ([0], [0, 2], [2, 0, 2], [0, 3, 2, 1]):
        options: Values = {"WITHOUT_REPLACEMENT": drawn == "different"}
        if drawn == "given":
            options["draft_probs"] = None
        trees, values = star(tokens, 40, **options)
        values["uniform_samples"][1:] = 0.96875
        check(op, trees, values)


@case("VTS-5", u=["zero", "largest", "equal"])
def test_the_ends_of_the_final_sample(op: OpUnderTest, seed: int, u: str) -> None:
    """The first and the last token have no probability; one sample equals a cumulative probability."""
    trees, values = star([])
    values["target_probs"][1:, :] = [0.0, 0.5, 0.5, 0.0]
    values["uniform_samples_for_final_sampling"][1:] = {"zero": 0.0, "largest": 1 - 2.0**-24, "equal": 0.5}[u]
    check(op, trees, values)


@case("VTS-5", check=_ends.AT_ENDS, vocab=_ends.VOCABS, drawn=list(DRAWN), reach=_ends.REACH)
def test_an_id_at_an_end_is_drawn(op: OpUnderTest, seed: int, vocab: int, drawn: str) -> None:
    """It is the only possible token of each node, and each node's child has another token."""
    trees, values = batch(seed, (1,) * len(_ends.end_ids(vocab)), drawn, "any", vocab)
    _ends.leave_probabilities(trees, values)
    check(op, trees, values)


@case("VTS-6", depth=[0, 1, 2])
def test_the_end_of_a_path(op: OpUnderTest, seed: int, depth: int) -> None:
    def check_end(drawn: str) -> None:
        trees, values = batch(seed, (5, 7, 6, 3), drawn)
        values["uniform_samples"][:] = 2.0**-20
        check(op, trees, values, depth)

    check_each(partial(check_end, drawn) for drawn in DRAWN)


@case("VTS-7", drawn=list(DRAWN))
def test_tokens_places_and_length_of_the_path(op: OpUnderTest, seed: int, drawn: str) -> None:
    trees, values = batch(seed, "longest", drawn, "chain")
    values["uniform_samples"] **= 4
    check(op, trees, values)


@case("VTS-8", spare=[1, 5])
def test_other_places_keep_their_value(op: OpUnderTest, seed: int, spare: int) -> None:
    trees, values = batch(seed, "gaps", "alike")
    check(op, trees, values, trees.depth + spare)


@case("VTS-9", drawn=list(DRAWN))
def test_a_token_drafted_twice(op: OpUnderTest, seed: int, drawn: str) -> None:
    """The second draft of token 0 has the smallest u, but nothing of the token is left."""
    options: Values = {"WITHOUT_REPLACEMENT": drawn == "different"}
    if drawn == "given":
        options["draft_probs"] = None
    trees, values = star([0, 2, 0], **options)
    values["uniform_samples"][1:, 2:] = 0.96875, 2.0**-20
    check(op, trees, values)


@case("VTS-10", place=["first", "middle", "last"])
def test_a_padding_token(op: OpUnderTest, seed: int, place: str) -> None:
    def check_padding(drawn: str) -> None:
        trees, values = batch(seed, (4,) * 20, drawn, "star")
        for b in range(1, 20):
            order = [int(trees.next_token[b, 0])]
            while trees.next_sibling[b, order[-1]] >= 0:
                order.append(int(trees.next_sibling[b, order[-1]]))
            values["candidates"][b, order[{"first": 0, "middle": 1, "last": 3}[place]]] = -1
        check(op, trees, values)

    check_each(partial(check_padding, drawn) for drawn in DRAWN)


@case("VTS-11", token=[4, 5, 2**31 - 1, -2, "q = 0"])
def test_a_token_that_was_not_drawn(op: OpUnderTest, seed: int, token: Any) -> None:
    trees, values = star([0, 2, 1])
    if token == "q = 0":
        values["draft_probs"][1:, 0] = [0.5, 0.5, 0.0, 0.0]
    else:
        values["candidates"][1:, 2] = token
    check(op, trees, values)


@case("VTS-12", nan=["p", "q", "u", "final"])
def test_nan(op: OpUnderTest, seed: int, nan: str) -> None:
    trees, values = batch(seed, "ragged", "alike")
    if nan in "pq":
        rows = values[{"p": "target_probs", "q": "draft_probs"}[nan]]
        rows[1:, :, ::3], rows[1:, :, 1] = np.nan, np.inf
    elif nan == "u":
        values["uniform_samples"][1:] = np.nan
    else:
        values["uniform_samples_for_final_sampling"][1:] = np.nan
        values["target_probs"][1:, :, -1] = 0.0  # the last token with a weight is not the last token
        values["target_probs"][-1, :, 1:] = 0.0  # nor the second one
    check(op, trees, values)


@case("VTS-13", drawn=list(DRAWN))
def test_nothing_is_left(op: OpUnderTest, seed: int, drawn: str) -> None:
    """p equals q and u is 1, or p has one token, which is rejected: only rounding leads here.

    The second child's u of 0 accepts it wherever it is tried.
    """
    for requests, token in ((3, 0), (200, 0), (3, 1100)):
        row = [0.0] * token + ([1.0, 0.0, 0.0, 0.0] if drawn == "given" else [0.5, 0.25, 0.125, 0.125])
        same = np.tile(row, (requests, 3, 1))
        draft = None if drawn == "given" else same.copy()
        options = {"target_probs": same, "draft_probs": draft, "WITHOUT_REPLACEMENT": drawn == "different"}
        trees, values = star([token, token + 1], requests, **options)
        values["uniform_samples"][1:] = 1.0
        values["uniform_samples"][1:, 2] = 0.0
        check(op, trees, values)


@case("VTS-14", links=["past", "cycle", "place", "root", "to the root"])
def test_links_and_places_out_of_bounds(op: OpUnderTest, seed: int, links: str) -> None:
    trees, values = star([0, 2, 0], 4)
    values["uniform_samples"][1:] = 0.96875
    if links == "past":
        trees.next_token[1, 0], trees.next_sibling[2, 2] = 4, -3
    elif links == "cycle":
        trees.next_sibling[1:, 3] = 1
    elif links == "to the root":  # it is accepted as a child of its own, as often as a path has room
        trees.next_sibling[1:, 3], trees.tokens[1:, 0] = 0, 1
        values["uniform_samples"][1:, 0] = 2.0**-10
    else:
        trees.places[1:3, 0 if links == "root" else 2] = -1, 16
    check(op, trees, values, 3 if links == "to the root" else None)


@case("VTS-14", links="past 32 bits")
def test_links_of_64_bits(op: OpUnderTest, seed: int) -> None:
    """The low 32 bits of each link are those of a node; only late requests have such links."""
    trees, values = star([0, 2, 1], 70)
    values["uniform_samples"][1:] = 0.96875
    trees.next_token[66, 0] += 2**32
    trees.next_sibling[67, 2] += 2**33
    check(op, trees, values)


@case("VTS-15", above=["2^-30", "2^-50"])
def test_u_is_compared_in_its_own_precision(op: OpUnderTest, seed: int, above: str) -> None:
    """p(0) / q(0) is one quarter, and u is slightly less, which float32 rounds to it."""
    trees, values = star([0])
    values["uniform_samples"][1:] = 0.25 - (2.0**-30 if above == "2^-30" else 2.0**-50)
    check(op, trees, values, dtypes={"uniform_samples": "float64"})


@case("VTS-15", check="residual")
def test_the_residual_keeps_its_precision(op: OpUnderTest, seed: int) -> None:
    """After two rejections u is next to the ratio of the third child, by less than float32 weights round."""
    requests = 40
    target, draft = rng_of(seed).dirichlet([0.7] * 4, (2, 20_000)).astype(np.float32)
    left, mass, ratios = target.astype(np.float64), np.ones((20_000, 1)), []
    for token in range(3):
        ratios.append(left[:, token] / np.maximum(mass[:, 0] * draft[:, token], 1e-30))
        left = np.maximum(left - mass * draft, 0.0)
        mass = left.sum(axis=1, keepdims=True)
    first, second, third = ratios
    chosen = np.flatnonzero((first < 0.9) & (second < 0.9) & (third > 0.1) & (third < 0.9))[:requests]
    trees, values = star([0, 1, 2], requests)
    target, draft = (np.tile(rows[chosen, None], (4, 1)) for rows in (target, draft))
    values |= {"target_probs": target, "draft_probs": draft}
    beside = 1 + np.where(np.arange(requests) % 2, 1, -1) * 2.0**-40
    values["uniform_samples"][1:, 1:3] = 0.96875
    values["uniform_samples"][1:, 3] = (third[chosen] * beside)[1:]
    check(op, trees, values, dtypes={"uniform_samples": "float64"})


@case("VTS-15", check="final", above=["2^-30", "2^-50"])
def test_the_final_sample_is_compared_in_its_own_precision(op: OpUnderTest, seed: int, above: str) -> None:
    """The first two tokens have 5/8 together, and the final sample is slightly less, which float32 rounds to it."""
    trees, values = star([])
    beside = 2.0**-30 if above == "2^-30" else 2.0**-50
    values["uniform_samples_for_final_sampling"][1:] = 0.625 - beside
    check(op, trees, values, dtypes={"uniform_samples_for_final_sampling": "float64"})


@case("VTS-16", layout=["gapped", "padded", "transposed"], drawn=list(DRAWN))
def test_strides(op: OpUnderTest, seed: int, layout: str, drawn: str) -> None:
    layouts = dict.fromkeys((t.name for t in CONTRACT.tensors), layout)
    check(op, *batch(seed, (0, 3, 5, 4, 2) * 8, drawn), layouts=layouts)


def width_reach(params: Mapping[str, Any]) -> str | None:
    return REACH if params["ids"] == "production" else None


@case("VTS-17", ids=["production", "int32", "int64", "mixed", "swapped"], reach=width_reach)
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    dtypes = {} if ids == "production" else integers(CONTRACT, ids)
    check(op, *batch(seed, "gaps", "alike"), dtypes=dtypes)


@case("VTS-18", requests=[1, 3])
def test_a_root_alone(op: OpUnderTest, seed: int, requests: int) -> None:
    calls = [(*batch(seed, (0,) * requests, drawn), depth) for drawn in DRAWN for depth in (None, 3)]
    check_each(partial(check, op, *call) for call in calls)


@case("VTS-19", mode="law", drawn=list(DRAWN), p_values=2, reach=REACH)
def test_emitted_tokens_follow_the_target(op: OpUnderTest, engine: Engine, seed: int, drawn: str) -> None:
    trees, values = law_batch(rng_of(seed), many_requests(engine), drawn)
    values |= {"draft_probs": values.get("draft_probs"), "WITHOUT_REPLACEMENT": drawn == "different"}
    check_law(op, trees, values)


@case("VTS-19", mode="law", tree="chain", p_values=2, reach=REACH)
def test_chains_follow_the_target(op: OpUnderTest, engine: Engine, seed: int) -> None:
    trees, values = chain_batch(rng_of(seed), many_requests(engine))
    check_law(op, trees, values | {"WITHOUT_REPLACEMENT": False})


@case("VTS-1", mode="generated", drawn=list(DRAWN))
def test_generated(op: OpUnderTest, seed: int, drawn: str) -> None:
    @explore(structures(CONTRACT, layouts=False, same=SAME), 100, seed)
    def check_one(drawn_call: DrawnCall) -> None:
        trees, values = batch(drawn_call.seed, drawn_call.counts, drawn, vocab=drawn_call.vocab)
        check(op, trees, values)


@case("VTS-1", relation="chain", drawn=["given", "alike"], reach=REACH)
def test_chains_accept_what_the_chain_op_accepts(op: OpUnderTest, seed: int, drawn: str) -> None:
    """A tree without branches is a request of rejection_random_sample, but for its last token."""
    trees, values = batch(seed, (3, 1, 5, 2, 0, 4) * 6, drawn, "chain")
    outputs = op.call_written(values, shapes=trees.shapes())
    draft = values["draft_probs"]
    for b in range(trees.requests):
        nodes = [0]
        while trees.next_token[b, nodes[-1]] >= 0:
            nodes.append(int(trees.next_token[b, nodes[-1]]))
        chain = oracle.load("rejection_random_sample")(
            output_token_ids_ptr=np.full((1, len(nodes)), -1),
            cu_num_draft_tokens_ptr=np.array([len(nodes) - 1]),
            draft_token_ids_ptr=trees.tokens[b, nodes[1:]],
            draft_probs_ptr=None if draft is None else draft[b, nodes[:-1]],
            target_probs_ptr=values["target_probs"][b, nodes[:-1]],
            bonus_token_ids_ptr=np.array([-2]),
            recovered_token_ids_ptr=np.full(len(nodes) - 1, -2),
            uniform_probs_ptr=values["uniform_samples"][b, nodes[1:]],
            is_greedy_ptr=np.array([False]),
            max_spec_len=len(nodes) - 1,
            vocab_size=VOCAB,
            synthetic_conditional_rates_ptr=None,
            NO_DRAFT_PROBS=draft is None,
            SYNTHETIC_MODE=False,
        )["output_token_ids_ptr"][0]
        assert_same(f"accepted drafts of request {b}", chain[chain >= 0], emitted(outputs, b)[:-1])


@case("VTS-7", tree=["any", "star"], check="places")
def test_places_in_any_order(op: OpUnderTest, seed: int, tree: str) -> None:
    trees, values = batch(seed, "ragged", "alike", tree)
    shuffle_places(rng_of(seed), trees)
    check(op, trees, values | trees.links())


@case("VTS-5", vocab=[1, 2, 1023, 1024, 1025, 3000, 20_000], drawn=list(DRAWN), reach=of_vocabulary)
def test_vocabularies(op: OpUnderTest, seed: int, vocab: int, drawn: str) -> None:
    trees, values = batch(seed, (3, 0, 2), drawn, "any", vocab)
    values["uniform_samples_for_final_sampling"] = between(rng_of(seed + 1), 3)
    check(op, trees, values)
