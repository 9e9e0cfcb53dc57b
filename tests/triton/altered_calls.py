"""Alterations of the suite's calls: values that production rarely passes and kernels get wrong.

An alteration changes the arguments of a call in place, NumPy arrays by parameter name. `VARIANTS` names those of each
op, with the fields of `BatchShape` that they need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from verispec.reference.oracle._request_state import clean, logsumexp
from verispec.suites.sampler._request_state import normalisers

Rng = np.random.Generator
Values = dict[str, Any]
Alteration = Callable[[Rng, Values], None]

VARIANTS: dict[str, dict[str, tuple[dict[str, Any], Alteration | None]]] = {}
"""Fields of the shape and the alteration of each variant, by op."""


def alters(*ops: str, name: str = "", **fields: Any) -> Callable[[Alteration], Alteration]:
    """Register a variant of `ops` under the function's name, or `name`."""

    def register(alteration: Alteration) -> Alteration:
        for op in ops:
            VARIANTS.setdefault(op, {})[name or alteration.__name__] = fields, alteration
        return alteration

    return register


VERIFICATIONS = ("probabilistic_rejection", "block_verification", "residual_resample")
FUSED = ("verify_one_hot", "verify_draft_logits")
GATHER = "gather_draft_logits_and_target_argmax"
ROWS = (*VERIFICATIONS, GATHER)

for _op in (*ROWS, "verify_one_hot"):
    VARIANTS.setdefault(_op, {})["greedy"] = {"temperature": 0.0, "draft": False}, None
for _op in (*ROWS, "verify_draft_logits"):
    VARIANTS.setdefault(_op, {})["narrow_draft"] = {"draft_vocab": 370}, None
for _op in ("compute_slot_mapping", "copy_and_expand_dflash_inputs", "copy_and_expand_eagle_inputs"):
    VARIANTS.setdefault(_op, {})["long"] = {"drafts": 300}, None


@alters("rejection_greedy_sample", "rejection_random_sample", "sample_recovered_tokens")
def placeholder_drafts(rng: Rng, values: Values) -> None:
    values["draft_token_ids_ptr"][3::5] = -1


@alters("rejection_greedy_sample")
def all_greedy(rng: Rng, values: Values) -> None:
    values["is_greedy_ptr"] = values["uniform_probs_ptr"] = None


@alters("sample_recovered_tokens")
def float64(rng: Rng, values: Values) -> None:
    values["inv_q_ptr"] = 1.0 / rng.exponential(size=values["inv_q_ptr"].shape)
    values["USE_FP64_GUMBEL"] = True


@alters("sample_recovered_tokens", name="no_mass")
def no_residual_mass(rng: Rng, values: Values) -> None:
    values["draft_probs_ptr"][:] = values["target_probs_ptr"]
    values["target_probs_ptr"][1::2] = 0.0


@alters("rejection_random_sample", "sample_recovered_tokens", name="nan")
def nan_probabilities(rng: Rng, values: Values) -> None:
    values["target_probs_ptr"][::2, ::2] = np.nan
    values["draft_probs_ptr"][1::2] = np.nan


@alters("expand_batch_to_tokens")
def fractions(rng: Rng, values: Values) -> None:
    values["input_ptr"] = rng.choice([0.0, 0.7, 1.3, np.nan], len(values["input_ptr"])).astype(np.float32)
    values["output_ptr"] = values["output_ptr"].astype(np.float32)


@alters("expand_batch_to_tokens")
def wide_integers(rng: Rng, values: Values) -> None:
    values["input_ptr"] = rng.integers(0, 2, len(values["input_ptr"])) * (2**40 + 1)
    values["output_ptr"] = values["output_ptr"].astype(np.int64)


@alters("expand_batch_to_tokens")
def no_such_integer(rng: Rng, values: Values) -> None:
    values["input_ptr"] = rng.integers(0, 2, len(values["input_ptr"]))
    values["output_ptr"] = values["output_ptr"].astype(np.int64)
    values |= {"replace_from": 0.5, "replace_to": 9}


@alters("expand_batch_to_tokens")
def an_integer_of_no_dtype(rng: Rng, values: Values) -> None:
    no_such_integer(rng, values)
    values["replace_from"] = 2.0**70


@alters("expand_batch_to_tokens")
def flags(rng: Rng, values: Values) -> None:
    values["input_ptr"] = rng.random(len(values["input_ptr"])) < 0.5
    values["output_ptr"] = values["output_ptr"].astype(np.bool_)


@alters("copy_and_expand_dflash_inputs")
def positions_past_the_table(rng: Rng, values: Values) -> None:
    values["target_positions_ptr"][1::3] = 16 * values["block_table_ptr"].shape[1] + 3


@alters("copy_and_expand_dflash_inputs")
def all_rejected(rng: Rng, values: Values) -> None:
    values["num_rejected_tokens_ptr"][::2] += 2


@alters("compute_slot_mapping")
def four_ranks(rng: Rng, values: Values) -> None:
    values |= {"TOTAL_CP_WORLD_SIZE": 4, "TOTAL_CP_RANK": 2, "CP_KV_CACHE_INTERLEAVE_SIZE": 2}


@alters(*ROWS, *FUSED, "synthetic_rejection")
def placeholder(rng: Rng, values: Values) -> None:
    if "draft_sampled" in values:
        ids = values["draft_sampled"]
        ids[1:-2:3] = -1
        ids[-3] = 10**6
    _rejected_again(rng, values)


@alters(*ROWS, *FUSED, "verify_greedy")
def nan(rng: Rng, values: Values) -> None:
    values["target_logits"][::2, 1::2] = np.nan
    values["target_logits"][1] = np.nan
    if values.get("draft_logits") is not None:
        values["draft_logits"][:, -1] = np.nan
    _rejected_again(rng, values)


@alters(*ROWS, *FUSED, "verify_greedy")
def masked(rng: Rng, values: Values) -> None:
    values["target_logits"][:, values["target_logits"].shape[1] // 3 :] = -np.inf
    _rejected_again(rng, values)


@alters("residual_resample")
def no_mass(rng: Rng, values: Values) -> None:
    """Make the draft equal to the target, with a normaliser that makes q the larger one everywhere."""
    starts, draft = values["cu_num_logits"], values["draft_logits"]
    for b, state in enumerate(values["idx_mapping"]):
        for step in range(min(starts[b + 1] - starts[b], draft.shape[1]) if state >= 0 else 0):
            draft[state, step] = values["target_logits"][starts[b] + step] * values["temperature"][state]
    _rejected_again(rng, values)
    values["draft_logsumexp"] -= np.float32(1.0)


@alters("residual_resample")
def forced_rejections(rng: Rng, values: Values) -> None:
    _rejected_again(rng, values)


def _rejected_again(rng: Rng, values: Values) -> None:
    """Reject some requests where verification accepted, so that every kind of row is sampled from."""
    if not {"num_sampled", "log_prefix_ratio"} <= values.keys():
        return  # the op verifies by itself
    counts = np.maximum(np.diff(values["cu_num_logits"]) - 1, 0)
    accepted = np.where(rng.random(len(counts)) < 0.5, values["num_accepted"], counts // 2).astype(np.int32)
    target, draft = normalisers(values, accepted)
    values["num_accepted"] = np.where(values["idx_mapping"] < 0, 0, accepted).astype(np.int32)
    values |= {"target_logsumexp": target.astype(np.float32), "draft_logsumexp": draft.astype(np.float32)}


@alters(GATHER)
def large_blocks(rng: Rng, values: Values) -> None:
    """Take blocks that are larger than what the lanes of a program hold at once."""
    rows, vocabulary = values["target_logits"].shape
    values["BLOCK_SIZE"] = block = 300 if vocabulary < 5000 else 5000
    for name in ("local_max", "local_argmax"):
        values[name] = np.full((rows, -(-vocabulary // block) + 1), values[name].flat[0])


@alters(GATHER, temperature=0.0, draft=False)
def ties(rng: Rng, values: Values) -> None:
    large_blocks(rng, values)
    logits, block = values["target_logits"], values["BLOCK_SIZE"]
    logits[1::2] = np.minimum(np.round(logits[1::2]), np.float32(2.0))
    logits[1::2, ::3] = np.nan
    logits[0] = np.nan
    # The winner is the first of its block, and the block before has a length that is no power of two.
    logits[2::2, block] = 50.0


@alters(*FUSED)
def limits(rng: Rng, values: Values) -> None:
    states, vocabulary = len(values["temperature"]), values["target_logits"].shape[1]
    values["top_k"] = np.resize([0, 7, vocabulary // 2], states).astype(np.int32)
    values["top_p"] = np.resize([0.9, 1.0, 0.3, 0.7], states).astype(np.float32)


@alters("verify_draft_logits")
def normaliser(rng: Rng, values: Values) -> None:
    shared = min(values["target_logits"].shape[1], values["draft_logits"].shape[2])
    scale = np.where(values["temperature"] == 0, 1.0, values["temperature"])
    rows = zip(values["draft_logits"], scale, strict=True)
    sums = [[logsumexp(clean(row[:shared]) / t) for row in of_state] for of_state, t in rows]
    values["draft_normaliser"] = np.array(sums, np.float32)


@alters("gumbel_sample", synthetic=True, name="nan")
def nan_rows(rng: Rng, values: Values) -> None:
    values["logits"][0, ::2] = np.nan
    values["logits"][-1] = np.nan


@alters("gumbel_sample")
def padding(rng: Rng, values: Values) -> None:
    values["expanded_idx_mapping"][1] = -1


@alters("gumbel_sample")
def no_cache(rng: Rng, values: Values) -> None:
    values["logits_cache"] = values["logits_cache_col"] = None


KNOWN_COUNTERS = [(0, 0, 0, 0), (0xFFFFFFFF,) * 4, (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)]
KNOWN_KEYS = [(0, 0), (0xFFFFFFFF,) * 2, (0xA4093822, 0x299F31D0)]


@alters("philox")
def known(rng: Rng, values: Values) -> None:
    values |= {"words": np.zeros((3, 4), np.int64), "counter": np.array(KNOWN_COUNTERS), "key": np.array(KNOWN_KEYS)}
