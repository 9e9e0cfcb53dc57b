"""Requirements of verify_tree_typical (contract VTT)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from verispec.cases import case
from verispec.cases.batches import COUNTS
from verispec.cases.strategies import DrawnCall, explore, structures
from verispec.engines import Engine
from verispec.judge import OpUnderTest
from verispec.reference import contracts
from verispec.suites.sampler import _ends
from verispec.suites.sampler._callers import of_vocabulary
from verispec.suites.sampler._rejection import integers
from verispec.suites.sampler._tree_laws import check_law, law_batch, many_requests
from verispec.suites.sampler._trees import REACH, Trees, linked, random_trees, shuffle_places, typical_arguments

CONTRACT = contracts.load("verify_tree_typical")
VOCAB = 11
THRESHOLDS = {"1, 1": (1.0, 1.0), "0.25, 1": (0.25, 1.0), "1, 0.5": (1.0, 0.5), "0.5, 0.25": (0.5, 0.25)}
Values = dict[str, Any]


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def batch(
    seed: int, counts: Any, thresholds: str = "1, 1", tree: str = "any", vocab: int = VOCAB
) -> tuple[Trees, Values]:
    rng = rng_of(seed)
    trees = random_trees(rng, COUNTS[counts] if isinstance(counts, str) else counts, vocab, tree)
    return trees, typical_arguments(rng, trees, vocab, THRESHOLDS[thresholds])


def check(op: OpUnderTest, trees: Trees, values: Values, depth: int | None = None, **options: Any) -> None:
    op.check_outputs(values, shapes=trees.shapes(depth), **options)


def star(tokens: list[int], u: float, thresholds: str = "1, 1", requests: int = 3) -> tuple[Trees, Values]:
    """Return requests whose drafts are all below the root; u is 0 in request 0.

    The target has 1/8, 1/2, 1/8 and 1/4.
    """
    trees = linked([[-1] + [0] * len(tokens)] * requests, tokens=[[0, *tokens]] * requests)
    single, acc = THRESHOLDS[thresholds]
    uniform = np.full(trees.parents.shape, u)
    uniform[0] = 0.0
    return trees, {
        **trees.links(),
        "uniform_samples": uniform,
        "uniform_samples_for_final_sampling": np.linspace(0.03125, 0.96875, requests),
        "target_probs": np.tile([0.125, 0.5, 0.125, 0.25], (*uniform.shape, 1)),
        "threshold_single": single,
        "threshold_acc": acc,
    }


@case(
    "VTT-1",
    counts=["one", "ragged", "gaps", "wide"],
    thresholds=list(THRESHOLDS),
    tree=["any", "chain", "star"],
    reach=REACH,
)
def test_children_are_accepted_by_their_sum(
    op: OpUnderTest, seed: int, counts: str, thresholds: str, tree: str
) -> None:
    check(op, *batch(seed, counts, thresholds, tree))


@case("VTT-1", u=["below", "equal", "above"])
def test_the_sum_is_compared_strictly(op: OpUnderTest, seed: int, u: str) -> None:
    """Tokens 0 and 3 have 3/8 together, and 3/4 with a threshold of one half."""
    for thresholds, bound in (("1, 1", 0.375), ("1, 0.5", 0.75)):
        beside = {"below": -(2.0**-20), "equal": 0.0, "above": 2.0**-20}[u]
        check(op, *star([0, 3], bound + beside, thresholds))


@case("VTT-1", check="u of the parent")
def test_u_belongs_to_the_parent(op: OpUnderTest, seed: int) -> None:
    """Children of an accepted child are compared with its own number."""
    trees = linked([[-1, 0, 0, 1, 1, 2, 2]] * 6, tokens=[[0, 1, 3, 0, 1, 2, 1]] * 6)
    values = star([0] * 6, 0.5, requests=6)[1] | trees.links()
    values["uniform_samples"] = rng_of(seed).permuted(np.tile(np.linspace(0.05, 0.9, 7), (6, 1)), axis=1)
    check(op, trees, values)


@case("VTT-2", token=["below", "equal", "impossible"])
def test_a_likely_child_is_accepted_whatever_u_is(op: OpUnderTest, seed: int, token: str) -> None:
    """Token 3 has 1/4, the threshold; token 0 has less; and a threshold of 0 accepts no token without probability."""
    if token == "impossible":
        trees, values = star([0, 1], 0.96875)
        values["target_probs"][:, 0] = [0.0, 0.5, 0.25, 0.25]
        values["threshold_single"] = 0.0
    else:
        trees, values = star([0 if token == "below" else 3], 0.96875, "0.25, 1")
    check(op, trees, values)


@case("VTT-3", n=[1, 2, 3])
def test_the_last_token_is_none_of_the_rejected(op: OpUnderTest, seed: int, n: int) -> None:
    for tokens in ([0, 3, 2], [3, 2, 0]):
        check(op, *star(tokens[:n], 0.96875, requests=40))


@case("VTT-3", check=_ends.AT_ENDS, vocab=_ends.VOCABS, reach=_ends.REACH)
def test_an_id_at_an_end_is_drawn(op: OpUnderTest, seed: int, vocab: int) -> None:
    """It is the only possible token of each node, and each node's child has another token, or that one."""
    trees, values = batch(seed, (1,) * len(_ends.end_ids(vocab)), vocab=vocab)
    _ends.leave_probabilities(trees, values)
    check(op, trees, values)


@case("VTT-4", depth=[0, 1, 2])
def test_the_end_of_a_path(op: OpUnderTest, seed: int, depth: int) -> None:
    trees, values = batch(seed, (5, 7, 6, 3))
    values["uniform_samples"][:] = 2.0**-20
    check(op, trees, values, depth)


@case("VTT-5", spare=[0, 5], tree=["any", "chain"])
def test_outputs(op: OpUnderTest, seed: int, spare: int, tree: str) -> None:
    """With a threshold that any token reaches, paths fill the columns of accept_index."""
    trees, values = batch(seed, "gaps", "0.25, 1", tree)
    shuffle_places(rng_of(seed), trees)
    for threshold in (0.25, 1e-9):
        check(op, trees, values | trees.links() | {"threshold_single": threshold}, trees.depth + spare)


@case("VTT-6", u=[0.2, 0.3])
def test_a_token_drafted_twice_counts_twice(op: OpUnderTest, seed: int, u: float) -> None:
    check(op, *star([0, 0, 2], u))


@case("VTT-7", value=[0.0, 1e-12])
def test_a_threshold_near_zero(op: OpUnderTest, seed: int, value: float) -> None:
    """A child of 10^-10 passes for u below one tenth."""
    trees, values = star([0], 0.5)
    values["target_probs"][:, 0] = [1e-10, 0.5, 0.5, 0.0]
    values["uniform_samples"][1:] = [[0.05], [0.2]]
    check(op, trees, values | {"threshold_acc": value})


@case("VTT-8", place=["first", "middle", "last"])
def test_a_padding_token(op: OpUnderTest, seed: int, place: str) -> None:
    trees, values = star([0, 3, 2, 1], 0.4)
    values["candidates"][1:, {"first": 1, "middle": 2, "last": 4}[place]] = -1
    check(op, trees, values)


@case("VTT-9", links=["token", "past", "cycle", "place", "root", "to the root"])
def test_ids_and_links_out_of_bounds(op: OpUnderTest, seed: int, links: str) -> None:
    trees, values = star([0, 3, 2], 0.96875, requests=4)
    if links == "token":
        values["candidates"][1:, 2] = 4, 2**31 - 1, -2
    elif links == "past":
        trees.next_token[1, 0], trees.next_sibling[2, 2] = 4, -3
    elif links == "cycle":
        trees.next_sibling[1:, 3] = 2
    elif links == "to the root":  # it is accepted as a child of its own, as often as a path has room
        trees.next_sibling[1:, 3], trees.tokens[1:, 0] = 0, 1
        values["uniform_samples"][1:, 0] = 0.75
    else:
        trees.places[1:3, 0 if links == "root" else 2] = -1, 16
        values["uniform_samples_for_final_sampling"][1:3] = 0.875  # the token of the node that was not tried
    check(op, trees, values, 3 if links == "to the root" else None)


@case("VTT-9", links="past 32 bits")
def test_links_of_64_bits(op: OpUnderTest, seed: int) -> None:
    """The low 32 bits of each link are those of a node; only late requests have such links."""
    trees, values = star([0, 3, 2], 0.96875, requests=70)
    trees.next_token[66, 0] += 2**32
    trees.next_sibling[67, 2] += 2**33
    check(op, trees, values)


@case("VTT-10", nan=["p", "u", "final"])
def test_nan(op: OpUnderTest, seed: int, nan: str) -> None:
    trees, values = batch(seed, "ragged", "0.25, 1")
    if nan == "p":
        values["target_probs"][1:, :, ::3], values["target_probs"][1:, :, 1] = np.nan, np.inf
    else:
        name = "uniform_samples" if nan == "u" else "uniform_samples_for_final_sampling"
        values[name][1:] = np.nan
        values["target_probs"][-1, :, 1:] = 0.0  # the last token with a weight is the first one
    check(op, trees, values)
    if nan == "final":  # the last token with a weight is that of a rejected child
        trees, values = star([3], 0.96875)
        values["uniform_samples_for_final_sampling"][1:] = np.nan
        check(op, trees, values)


@case("VTT-11", layout=["gapped", "padded", "transposed"])
def test_strides(op: OpUnderTest, seed: int, layout: str) -> None:
    layouts = dict.fromkeys((t.name for t in CONTRACT.tensors), layout)
    check(op, *batch(seed, (0, 3, 5, 4, 2) * 8), layouts=layouts)


def width_reach(params: Mapping[str, Any]) -> str | None:
    return REACH if params["ids"] == "production" else None


@case("VTT-12", ids=["production", "int32", "int64", "mixed", "swapped"], reach=width_reach)
def test_integer_widths(op: OpUnderTest, seed: int, ids: str) -> None:
    dtypes = {} if ids == "production" else integers(CONTRACT, ids)
    check(op, *batch(seed, "gaps"), dtypes=dtypes)


@case("VTT-13", requests=[1, 3])
def test_a_root_alone(op: OpUnderTest, seed: int, requests: int) -> None:
    trees, values = batch(seed, (0,) * requests)
    check(op, trees, values)
    check(op, trees, values, 3)


@case("VTT-14", mode="law", p_values=2, reach=REACH)
def test_emitted_tokens_follow_the_target(op: OpUnderTest, engine: Engine, seed: int) -> None:
    trees, values = law_batch(rng_of(seed), many_requests(engine), "given")
    check_law(op, trees, values | {"threshold_single": 1.0, "threshold_acc": 1.0})


@case("VTT-15", number=["u", "final"], above=["2^-30", "2^-50"])
def test_samples_are_compared_in_their_own_precision(op: OpUnderTest, seed: int, number: str, above: str) -> None:
    """Token 0 has 1/8, the first two tokens 5/8; a sample is slightly less, which float32 rounds to it."""
    beside = 2.0**-30 if above == "2^-30" else 2.0**-50
    trees, values = star([0], 0.125 - beside) if number == "u" else star([], 0.5)
    values["uniform_samples_for_final_sampling"][1:] = 0.625 - beside
    check(op, trees, values, dtypes=dict.fromkeys(("uniform_samples", "uniform_samples_for_final_sampling"), "float64"))


@case("VTT-1", mode="generated", thresholds=list(THRESHOLDS))
def test_generated(op: OpUnderTest, seed: int, thresholds: str) -> None:
    @explore(structures(CONTRACT, layouts=False), 60, seed)
    def check_one(drawn: DrawnCall) -> None:
        check(op, *batch(drawn.seed, drawn.counts, thresholds, vocab=drawn.vocab))


@case("VTT-3", vocab=[1, 2, 1023, 1024, 1025, 3000, 20_000], reach=of_vocabulary)
def test_vocabularies(op: OpUnderTest, seed: int, vocab: int) -> None:
    check(op, *batch(seed, (3, 0, 2), vocab=vocab))
