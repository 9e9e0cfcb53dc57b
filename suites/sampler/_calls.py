"""A call of every op at a wanted size: what the cases of ANY-* are made of.

A plain shape (`draft`, neither `synthetic` nor one of the options after it) gives a call that `Contract.caller` makes.
The others add what no caller on every platform passes: padded tails, several ranks, tokens outside the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from verispec.cases.batches import random_batch
from verispec.cases.request_state import RequestBatch, random_requests
from verispec.judge import Compare
from verispec.reference import oracle
from verispec.suites.sampler import _drafting, _fused, _rejection, _request_state, _trees
from verispec.suites.sampler._edges import cool, raise_logits, raise_probabilities, raise_requests
from verispec.suites.sampler._few_tokens import impossible, leave_few
from verispec.suites.sampler._sampling import (
    counter_arguments,
    expand_arguments,
    flatten_arguments,
    gather_arguments,
    gumbel_arguments,
    limit_arguments,
    synthetic_arguments,
    with_cache,
)
from verispec.suites.sampler._special import (
    adversarial_rows,
    certain_drafts,
    impossible_drafts,
    pass_all_but_last,
    spoil,
)

Rng = np.random.Generator


@dataclass(frozen=True, slots=True)
class BatchShape:
    """Requested form of a call: drafts of each request, vocabulary, and the op's modes.

    Attributes:
        counts: draft tokens of each request.
        vocab: vocabulary size V.
        draft: False omits the draft distribution, or takes the op's second mode.
        synthetic: True takes acceptance by rates, or the op's third mode.
        exact: True takes values whose quotients and products float32 holds, so that an equality is one everywhere.
        draft_vocab: vocabulary size of the draft logits, None for `vocab`.
        temperature: temperature of every request, None for a mix that includes greedy requests.
        left: possible tokens of a row, one of `LEFT` of `_few_tokens`, or empty for all.
        sure: True for drafts that pass whatever the random numbers are, but for the last one of each request.
        special: True for padding tokens, ids outside the vocabulary, NaN, minus infinity and positions outside of
            limits in the batch. The draft then has fewer steps, and ids, than the target.
        edges: ids among which the likeliest tokens of each row are; limits then keep few, by top-p alone without draft.
        cold: temperature near 0 of every second sampled request, or of its logits where an op reads none; 0 for none.
    """

    counts: tuple[int, ...] = (3, 1, 5, 3)
    vocab: int = 11
    draft: bool = True
    synthetic: bool = False
    exact: bool = False
    draft_vocab: int | None = None
    temperature: float | None = None
    left: str = ""
    sure: bool = False
    special: bool = False
    edges: tuple[int, ...] = ()
    cold: float = 0.0

    @property
    def requests(self) -> int:
        return len(self.counts)


@dataclass(slots=True)
class MadeCall:
    """Arguments of one call, with the sizes that `OpUnderTest.check_outputs` needs beside them."""

    values: dict[str, Any]
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    compare: Mapping[str, Compare] = field(default_factory=dict)
    same: Sequence[tuple[str, ...]] = ()
    """Groups of parameters that share one dtype."""


Maker = Callable[[Rng, BatchShape], MadeCall]
MAKERS: dict[str, Maker] = {}


def maker(function: Maker) -> Maker:
    MAKERS[function.__name__] = function
    return function


def make(op: str, seed: int, shape: BatchShape) -> MadeCall:
    """Return a call of `op`, the same for a seed and a shape."""
    return MAKERS[op](np.random.default_rng([seed, len(shape.counts), shape.vocab]), shape)


def _flat(rng: Rng, shape: BatchShape, greedy: float = 0.3) -> Any:
    batch = random_batch(rng, shape.counts, shape.vocab, draft=shape.draft, greedy=greedy)
    batch.is_greedy[:1] = greedy > 0.5  # the op writes a request at least
    if shape.exact:
        n = batch.tokens
        batch.target_probs = rng.choice([0.0, 0.125, 0.25, 0.375, 0.5], size=(n, shape.vocab))
        batch.inv_q = rng.choice([0.25, 0.5, 1.0, 2.0], size=batch.inv_q.shape)
        batch.uniform = rng.integers(0, 16, size=n) / 16 + 2.0**-6
        if batch.draft_probs is not None:
            batch.draft_probs = rng.choice([0.0, 0.125, 0.25, 0.5, 1.0], size=(n, shape.vocab))
    if shape.left:
        leave_few(rng, batch, shape.left)
    if shape.edges:
        raise_probabilities(rng, batch, shape.edges)
    if shape.sure:
        pass_all_but_last(batch)
    if shape.special:
        spoil(rng, batch, shape.sure)
    return batch


def _rates(shape: BatchShape) -> Any:
    if not shape.synthetic:
        return None
    longest = max([1, *shape.counts])
    return np.array([1.0] * (longest - 1) + [0.0]) if shape.sure else np.linspace(0.875, 0.25, longest)


@maker
def rejection_greedy_sample(rng: Rng, shape: BatchShape) -> MadeCall:
    return MadeCall(_rejection.greedy_arguments(_flat(rng, shape, greedy=0.7), _rates(shape)))


@maker
def rejection_random_sample(rng: Rng, shape: BatchShape) -> MadeCall:
    values = _rejection.random_arguments(_flat(rng, shape), _rates(shape))
    return MadeCall(values, same=(("target_probs_ptr", "draft_probs_ptr"),))


@maker
def sample_recovered_tokens(rng: Rng, shape: BatchShape) -> MadeCall:
    values = _rejection.recovered_arguments(_flat(rng, shape))
    return MadeCall(values, same=(("target_probs_ptr", "draft_probs_ptr"),))


@maker
def expand_batch_to_tokens(rng: Rng, shape: BatchShape) -> MadeCall:
    values = rng.choice([0, 1, 2, 5], size=shape.requests)
    return MadeCall(
        *expand_arguments(values, shape.counts, (0, 1), spare=int(shape.synthetic)), same=(("input_ptr", "output_ptr"),)
    )


@maker
def eagle_prepare_inputs_padded(rng: Rng, shape: BatchShape) -> MadeCall:
    return MadeCall(_drafting.random_inputs(rng, shape.counts))


@maker
def eagle_prepare_next_token_padded(rng: Rng, shape: BatchShape) -> MadeCall:
    columns = max([1, *shape.counts]) + 1
    # A rejection sampler emits one token or more per request, and none outside the vocabulary.
    rows = rng.integers(0, shape.vocab + 2 * shape.synthetic, size=(shape.requests, columns))
    valid = np.asarray(shape.counts, dtype=np.int64) + (not shape.synthetic)
    rows[np.arange(columns)[None, :] >= valid[:, None]] = -1
    if shape.synthetic:
        rows[rng.random(rows.shape) < 0.05] = -1
    return MadeCall(_drafting.next_token_arguments(rows, rng.random(shape.requests) < 0.2, vocab=shape.vocab))


@maker
def eagle_step_slot_mapping_metadata(rng: Rng, shape: BatchShape) -> MadeCall:
    block, limit = _drafting.STEP_BLOCK, _drafting.STEP_LIMIT
    ends = [0, 5, block - 2, block - 1, block, limit - 2, limit - 1]
    values = _drafting.step_arguments(rng, rng.choice(ends, size=shape.requests), rows=3 * shape.synthetic)
    if shape.synthetic:  # the last positions are past the table, whose rows may be padded
        values["block_table_ptr"] = values["block_table_ptr"][:, :-1].copy()
        values["n_blocks_per_req"] -= 1
    if shape.special:
        for name, value in (("positions_ptr", -2), ("seq_lens_ptr", _drafting.STEP_LIMIT)):
            values[name][rng.random(shape.requests) < 0.1] = value
    return MadeCall(values)


@maker
def copy_and_expand_eagle_inputs(rng: Rng, shape: BatchShape) -> MadeCall:
    lengths = np.asarray(shape.counts, dtype=np.int64) + 1
    rejected = rng.integers(0, lengths)
    slots = rng.choice([2, 3, 5, 9, 17] if shape.draft else [1])
    return MadeCall(_drafting.expanded_arguments(rng, lengths, rejected, int(slots), not shape.synthetic))


@maker
def copy_and_expand_dflash_inputs(rng: Rng, shape: BatchShape) -> MadeCall:
    lengths = np.asarray(shape.counts, dtype=np.int64) + 1
    # Without counts of rejected tokens callers have removed these from the batch.
    rejected = rng.integers(0, lengths) if shape.draft else None
    values = _drafting.flash_arguments(rng, lengths, rejected, int(rng.choice([1, 2, 4, 8, 16])))
    if shape.synthetic:  # the last positions are past the table
        values["block_table_ptr"] = values["block_table_ptr"][:, : len(values["block_table_ptr"].T) // 2].copy()
    return MadeCall(values)


@maker
def compute_slot_mapping(rng: Rng, shape: BatchShape) -> MadeCall:
    # One token per request and its drafts; no caller schedules a request without any.
    lengths = np.asarray(shape.counts, dtype=np.int64) + (not shape.special)
    options: dict[str, Any] = {"columns": max([1, *lengths]) // 16 + 2}
    if shape.synthetic:
        options |= {"TOTAL_CP_WORLD_SIZE": 2, "TOTAL_CP_RANK": 1, "CP_KV_CACHE_INTERLEAVE_SIZE": 4}
    values = _drafting.slot_arguments(rng, lengths, tail=5 * shape.synthetic, **options)
    if shape.special:
        wrong = rng.random(len(values["positions_ptr"])) < 0.1
        values["positions_ptr"][wrong] = rng.choice([-1, -40, 10_000], int(wrong.sum()))
        values["positions_ptr"][-1:] = 16 * options["columns"] * values["TOTAL_CP_WORLD_SIZE"]
    return MadeCall(values)


def _random_requests(rng: Rng, shape: BatchShape, **options: Any) -> RequestBatch:
    """Return a batch of the shape, with padding among enough requests."""
    padding = [1] if shape.requests > 3 else []
    draft_vocab = max(shape.vocab + int(rng.integers(-1, 3)), 1) if shape.special else shape.draft_vocab
    given = {"draft": shape.draft, "temperature": shape.temperature, "draft_vocab": draft_vocab} | options
    batch = random_requests(rng, shape.counts, shape.vocab, padding=padding, **given)
    out = impossible(rng, batch.target_logits.shape, shape.left)
    batch.target_logits[out] = -np.inf
    for row in np.flatnonzero(out.any(axis=1))[:-1]:
        if rng.random() < 0.7:  # a grammar excludes drafts before they are verified
            batch.draft_sampled[row + 1] = rng.choice(np.flatnonzero(~out[row]))
    if shape.edges:
        raise_requests(rng, batch, shape.edges)
    if shape.cold:
        cool(rng, batch, shape.cold)
    return batch


def _requests(rng: Rng, shape: BatchShape, **options: Any) -> RequestBatch:
    batch = _random_requests(rng, shape, **options)
    if shape.exact:
        impossible_drafts(rng, batch)
    if shape.sure:
        certain_drafts(batch)
    if shape.special:
        adversarial_rows(rng, batch, shape.sure)
    return batch


def _fewer_steps(requests: RequestBatch, shape: BatchShape) -> RequestBatch:
    """Return a special batch whose states hold one draft step less than its longest request has."""
    if shape.special and requests.draft_logits is not None and requests.draft_logits.shape[1] > 1:
        requests.draft_logits = requests.draft_logits[:, :-1].copy()
    return requests


def _verification(op: str, rng: Rng, shape: BatchShape) -> MadeCall:
    from verispec.reference import contracts

    requests = _fewer_steps(_requests(rng, shape), shape)
    values = requests.arguments(contracts.load(op))
    logits = ("target_logits", "draft_logits")
    return MadeCall(
        values, {"sampled": (requests.requests, requests.columns)}, _request_state.compared(op), same=(logits,)
    )


@maker
def probabilistic_rejection(rng: Rng, shape: BatchShape) -> MadeCall:
    return _verification("probabilistic_rejection", rng, shape)


@maker
def block_verification(rng: Rng, shape: BatchShape) -> MadeCall:
    return _verification("block_verification", rng, shape)


@maker
def residual_resample(rng: Rng, shape: BatchShape) -> MadeCall:
    """Return arguments after a verification by the oracle, so that rejections, bonus rows and padding all occur."""
    requests = _fewer_steps(_requests(rng, shape), shape)
    rows, columns = requests.requests, requests.columns
    before = {
        "sampled": np.full((rows, columns), 11),
        "num_accepted": np.zeros(rows, np.int64),
        "target_logsumexp": np.zeros(rows, np.float32),
        "draft_logsumexp": np.zeros(rows, np.float32),
    }
    from verispec.reference import contracts

    verified = oracle.load("probabilistic_rejection")(
        **requests.arguments(contracts.load("probabilistic_rejection"), **before)
    )
    ratio = -rng.choice([0.0, 0.125, 0.5, 1.0, 2.0], rows) if shape.synthetic else None
    return MadeCall(
        requests.arguments(contracts.load("residual_resample"), **verified, log_prefix_ratio=ratio),
        same=(("target_logits", "draft_logits"),),
    )


@maker
def gather_draft_logits_and_target_argmax(rng: Rng, shape: BatchShape) -> MadeCall:
    from verispec.reference import contracts

    requests = _requests(rng, shape)
    if not shape.draft:  # of sampled requests nothing is written then
        requests.temperature[requests.idx_mapping[0]] = 0.0
    if shape.exact:
        requests.target_logits = np.round(requests.target_logits / 3)
    contract = contracts.load("gather_draft_logits_and_target_argmax")
    # The largest batches have 20 ids, and special ones a column less than blocks: two columns are left.
    block = 8 if shape.vocab < 32 else 16 if shape.vocab < 4096 else 1024
    values, shapes = gather_arguments(requests, contract, block, 1 - 2 * shape.special)
    return MadeCall(values, shapes, same=(("target_logits", "draft_logits", "gathered_draft_logits"),))


@maker
def synthetic_rejection(rng: Rng, shape: BatchShape) -> MadeCall:
    from verispec.reference import contracts

    requests = _requests(rng, replace(shape, vocab=11))
    rates = _rates(shape) if shape.sure and shape.synthetic else np.linspace(0.9, 0.3, max([1, *shape.counts]))
    return MadeCall(*synthetic_arguments(requests, contracts.load("synthetic_rejection"), rates))


@maker
def flatten_sampled(rng: Rng, shape: BatchShape) -> MadeCall:
    rows = np.asarray(shape.counts, dtype=np.int64) + 1
    return MadeCall(*flatten_arguments(rng, rows, rng.integers(0, rows + 1 + 2 * shape.special)))


def _fused_verification(op: str, rng: Rng, shape: BatchShape) -> MadeCall:
    from verispec.reference import contracts

    draft, temperature = op == "verify_draft_logits", 0.0 if op == "verify_greedy" else shape.temperature
    requests = _requests(rng, replace(shape, exact=False), draft=draft, temperature=temperature)
    if shape.exact:  # whole numbers, so that limits fall among ties
        requests.target_logits = np.round(requests.target_logits)
    requests = _fewer_steps(_fused.raw(requests), shape)
    limited = (shape.synthetic or shape.exact) and op != "verify_greedy"
    k, p = _fused.some_limits(rng, shape.vocab, shape.edges, by_mass=not shape.draft, special=shape.special)
    given = _fused.limits(requests, k, p) if limited else {}
    if shape.exact and "top_k" in given:
        requests = _fused.draft_at_limit(requests, given["top_k"])
    if shape.special and op != "verify_greedy" and not shape.sure:  # an infinite logit ends a chain
        _fused.infinite_rows(rng, requests)
        if limited:
            given, kept = _fused.limits_of_ties(requests, given)
            requests = _fused.adjacent_ties(requests, kept, every=2)
    if draft and shape.draft and shape.synthetic:
        given["draft_normaliser"] = _fused.draft_normalisers(requests)
    compare = {} if op == "verify_greedy" else _fused.by_rule(op)
    same = (("target_logits", "draft_logits"),) if draft else ()
    values = requests.arguments(contracts.load(op), **given)
    return MadeCall(values, {"sampled": (requests.requests, requests.columns)}, compare, same)


@maker
def verify_greedy(rng: Rng, shape: BatchShape) -> MadeCall:
    return _fused_verification("verify_greedy", rng, shape)


@maker
def verify_one_hot(rng: Rng, shape: BatchShape) -> MadeCall:
    return _fused_verification("verify_one_hot", rng, shape)


@maker
def verify_draft_logits(rng: Rng, shape: BatchShape) -> MadeCall:
    return _fused_verification("verify_draft_logits", rng, shape)


@maker
def gumbel_sample(rng: Rng, shape: BatchShape) -> MadeCall:
    from verispec.suites.sampler.test_gumbel_sample import within

    draw = "draft" if shape.draft else "target"
    values = gumbel_arguments(rng, draw, shape.vocab, shape.requests, apply_temperature=not shape.synthetic)
    values["logits"][impossible(rng, values["logits"].shape, shape.left)] = -np.inf
    if shape.edges:
        raise_logits(rng, values["logits"], shape.edges)
    if shape.cold:
        values["logits"][1::2] /= np.float32(shape.cold)
    if shape.special:
        values["temperature"] *= rng.choice([1e-5, 1e-3, 1.0], len(values["temperature"])).astype(np.float32)
        values["logits"] *= np.float32(1e-3)
        values["logits"][rng.random(values["logits"].shape) < 0.1] = rng.choice([np.nan, -np.inf])
        values["logits"][rng.random(shape.requests) < 0.1] = -np.inf
        values["expanded_idx_mapping"][rng.random(shape.requests) < 0.1] = -1
    values = with_cache(values, rng) if shape.draft else values
    return MadeCall(values, compare={"sampled": within}, same=(("logits", "logits_cache"),))


@maker
def apply_top_k_top_p(rng: Rng, shape: BatchShape) -> MadeCall:
    from verispec.suites.sampler.test_apply_top_k_top_p import within

    values = limit_arguments(rng, "both", shape.vocab, shape.requests)
    if shape.exact or shape.special:
        # Whole numbers: a limit falls among ties, more of them than any tile holds where the vocabulary is large.
        values["logits"] = np.round(values["logits"] / 3)
    if shape.exact:
        values["k"] = rng.integers(1, max(shape.vocab, 2), shape.requests)
    if shape.edges:
        raise_logits(rng, values["logits"], shape.edges)
        values["k"] = rng.integers(1, 5, shape.requests)
    if shape.cold:
        values["logits"][1::2] /= np.float32(shape.cold)
    values["logits"][impossible(rng, values["logits"].shape, shape.left)] = -np.inf
    if shape.special:
        values["logits"][rng.random(values["logits"].shape) < 0.1] = -np.inf
        has_limit = shape.draft or not shape.synthetic  # without one, nothing need be read
        values["logits"][rng.random(values["logits"].shape) < 0.05] = np.nan if has_limit else -np.inf
        values["k"] = rng.choice([1, shape.vocab - 1, shape.vocab, shape.vocab + 5], shape.requests)
        values["p"] = rng.choice([1e-6, 0.5, 1.0], shape.requests).astype(np.float32)
    if shape.synthetic:
        values["k"] = None
    if not shape.draft:
        values["p"] = None
    return MadeCall(values, compare={"output": within}, same=(("logits", "output"),))


@maker
def philox(rng: Rng, shape: BatchShape) -> MadeCall:
    return MadeCall(counter_arguments(rng, max(sum(shape.counts), 1)))


@maker
def build_draft_tree(rng: Rng, shape: BatchShape) -> MadeCall:
    # Drafters select as many nodes for every request; a batch of the other mode has padding.
    counts = shape.counts if shape.synthetic else (max([0, *shape.counts]),) * shape.requests
    selection = _trees.random_selection(rng, counts, 1 if shape.sure else int(rng.integers(1, 6)), shape.special)
    lengths = rng.integers(0, 40, shape.requests)
    return MadeCall(*_trees.build_arguments(selection, lengths, int(not shape.draft), 5 * shape.synthetic))


def _tree_batch(rng: Rng, shape: BatchShape) -> tuple[_trees.Trees, Any]:
    """Return trees of the shape, chains for sure drafts, and the mask of impossible tokens or None."""
    trees = _trees.random_trees(rng, shape.counts, shape.vocab, "chain" if shape.sure else "any")
    if shape.special:
        _trees.shuffle_places(rng, trees)
    out = impossible(rng, (trees.parents.size, shape.vocab), shape.left) if shape.left else None
    return trees, None if out is None else out.reshape(*trees.parents.shape, shape.vocab)


@maker
def verify_tree_greedy(rng: Rng, shape: BatchShape) -> MadeCall:
    trees, _ = _tree_batch(rng, shape)
    depth = max(trees.depth - shape.synthetic, 0)
    values, shapes = _trees.greedy_arguments(rng, trees, shape.vocab, 1.0 if shape.sure else 0.8, depth)
    if shape.special:
        _trees.spoil(rng, trees, values, shape.vocab)
    return MadeCall(values, shapes)


def _with_rows(rng: Rng, shape: BatchShape, trees: _trees.Trees, values: dict[str, Any]) -> MadeCall:
    if shape.exact:
        values["uniform_samples"] = rng.integers(0, 16, trees.parents.shape) / 16
        values["uniform_samples_for_final_sampling"] = rng.integers(0, 16, trees.requests) / 16
    if shape.sure:
        _trees.make_sure(trees, values)
    if shape.special:
        _trees.spoil(rng, trees, values, shape.vocab)
    depth = max(trees.depth - shape.synthetic, 0)
    return MadeCall(values, trees.shapes(depth), same=(("target_probs", "draft_probs"),))


@maker
def verify_tree_sampled(rng: Rng, shape: BatchShape) -> MadeCall:
    trees, out = _tree_batch(rng, shape)
    options: dict[str, Any] = {"draft": shape.draft or shape.synthetic, "without_replacement": shape.synthetic}
    values = _trees.sampled_arguments(rng, trees, shape.vocab, out=out, edges=shape.edges, **options)
    return _with_rows(rng, shape, trees, values)


@maker
def verify_tree_typical(rng: Rng, shape: BatchShape) -> MadeCall:
    trees, out = _tree_batch(rng, shape)
    thresholds = (0.5, 0.5) if shape.synthetic else (1.0, 1.0) if shape.draft else (0.25, 1.0)
    values = _trees.typical_arguments(rng, trees, shape.vocab, thresholds, out, shape.edges)
    call = _with_rows(rng, shape, trees, values)
    return MadeCall(call.values, call.shapes)
