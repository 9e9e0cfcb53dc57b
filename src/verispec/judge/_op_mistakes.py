"""Mistakes of single ops."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from verispec.judge._compare import Array, oracle_outputs
from verispec.judge._limit_mistakes import LIMITED, WITHOUT_DRAFT, replaced
from verispec.judge._mistake import Inputs, Outputs, Rule, having, without
from verispec.judge._tree_mistakes import SAMPLED, TYPICAL
from verispec.reference.oracle import block_verification, build_draft_tree
from verispec.reference.oracle._request_state import DraftRow, clean
from verispec.reference.oracle.apply_top_k_top_p import order


def _limits_apart(op: str, inputs: Inputs) -> Outputs | None:
    if inputs["k"] is None or inputs["p"] is None:
        return None
    by_k, by_p = (oracle_outputs(op, inputs, **{name: None})["output"] for name in ("p", "k"))
    return {"output": np.minimum(by_k, by_p)}


def _last_tie_once(op: str, inputs: Inputs) -> Outputs | None:
    if inputs["k"] is None or inputs["p"] is None:
        return None
    output = oracle_outputs(op, inputs)["output"]
    for b, (k, p) in enumerate(zip(inputs["k"].tolist(), inputs["p"].tolist(), strict=True)):
        logits = clean(inputs["logits"][b])
        if not 0 < k < len(logits) or p >= 1:
            continue
        ids = order(logits)[:k]
        ties = int((logits[ids] == logits[ids[-1]]).sum())
        if ties > 1 and np.isfinite(logits[ids]).all():
            weights = np.exp(logits[ids] - logits[ids[0]])
            mass = weights.sum() - (ties - 1) * weights[-1]
            dropped = ids[max(int((np.cumsum(weights) - weights < p * mass).sum()), 1) :]
            output[b, dropped] = -np.inf
    return {"output": output}


def _last_rates(op: str, inputs: Inputs) -> Outputs:
    rates, starts = inputs["acceptance_rates"], inputs["cu_num_logits"]
    outputs = oracle_outputs(op, inputs)
    for b, drafts in enumerate((np.diff(starts) - 1).tolist()):
        own = oracle_outputs(op, inputs, acceptance_rates=rates[max(len(rates) - max(drafts, 0), 0) :])
        for name, values in own.items():
            outputs[name][b] = values[b]
    return outputs


def _whole_blocks(op: str, inputs: Inputs) -> Outputs | None:
    outputs, size = oracle_outputs(op, inputs), inputs["BLOCK_SIZE"]
    draft = inputs["draft_logits"]
    width = inputs["target_logits"].shape[1]
    whole = (width if draft is None else min(width, draft.shape[2])) // size
    for name in ("local_max", "local_argmax"):
        outputs[name][:, whole:] = inputs[name][:, whole:]
    return outputs


def _lanes_of_zero(op: str, inputs: Inputs) -> Outputs:
    outputs, size = oracle_outputs(op, inputs), inputs["BLOCK_SIZE"]
    draft, target = inputs["draft_logits"], inputs["target_logits"]
    width = target.shape[1] if draft is None else min(target.shape[1], draft.shape[2])
    lanes = 1 << (size - 1).bit_length()
    for g in range(outputs["local_max"].shape[1]):
        count = min(size, width - g * size)
        top, best = outputs["local_max"][:, g], outputs["local_argmax"][:, g]
        if 0 < count < lanes:
            # Rows that the op leaves alone keep what they held.
            lost = (top < 0) & ((top != inputs["local_max"][:, g]) | (best != inputs["local_argmax"][:, g]))
            top[lost], best[lost] = 0, g * size + count
    return outputs


def _compared_wide(op: str, inputs: Inputs) -> Outputs | None:
    given, wanted = inputs["input_ptr"], inputs["replace_from"]
    if given.dtype.kind != "i":
        return None
    same = np.array(int(wanted), given.dtype) if float(wanted).is_integer() else given
    return oracle_outputs(op, inputs, input_ptr=np.where(given.astype(np.float64) == float(wanted), same, given))


def _compared_unrounded(op: str, inputs: Inputs) -> Outputs | None:
    given, wanted = inputs["input_ptr"], float(inputs["replace_from"])
    if given.dtype.kind != "f" or wanted == float(given.dtype.type(wanted)):
        return None
    return oracle_outputs(op, inputs, replace_from=float("nan"))


def _signed_zeros(op: str, inputs: Inputs) -> Outputs | None:
    given, wanted = inputs["input_ptr"], float(inputs["replace_from"])
    if given.dtype.kind != "f" or wanted != 0:
        return None
    apart = (given == 0) & (np.signbit(given) != np.signbit(wanted))
    kept = oracle_outputs(op, inputs, replace_from=float("nan"))["output_ptr"]
    marked = oracle_outputs(op, inputs, input_ptr=np.where(apart, np.inf, 1).astype(given.dtype), replace_to=1)
    replaced = oracle_outputs(op, inputs)["output_ptr"]
    return {"output_ptr": np.where(np.isposinf(marked["output_ptr"]), kept, replaced)}


def _rejected(valid: Callable[[Array, Array], Array]) -> Rule:
    """Return the mistake of other counts of valid tokens, from those of drafts and the right ones of each request."""

    def rule(op: str, inputs: Inputs) -> Outputs:
        name, requests = "valid_sampled_tokens_count_ptr", inputs["num_reqs"]
        drafts = np.diff(inputs["cu_num_draft_tokens_ptr"][:requests].astype(np.int64), prepend=0)
        counts = inputs[name].copy()
        counts[:requests] = valid(drafts, counts[:requests])
        return oracle_outputs(op, inputs, **{name: counts})

    return rule


def _dense_rows(op: str, inputs: Inputs) -> Outputs:
    outputs, tokens = oracle_outputs(op, inputs), inputs["sampled_token_ids_ptr"]
    for b in range(inputs["num_reqs"]):
        if count := int(outputs["valid_sampled_tokens_count_ptr"][b]):
            outputs["next_token_ids_ptr"][b] = tokens[b, count - 1]
    return outputs


def _to_the_first_gap(op: str, inputs: Inputs) -> Outputs:
    counts = inputs["num_sampled"]
    return oracle_outputs(op, inputs, num_sampled=np.where((counts <= 0).cumsum() > 0, 0, counts).astype(counts.dtype))


def _side_by_side(op: str, inputs: Inputs) -> Outputs:
    rows, tokens = np.diff(inputs["cu_num_logits"]), inputs["sampled"]
    counts = np.clip(np.minimum(inputs["num_sampled"], rows), 0, tokens.shape[1])
    flat, place = inputs["flat_sampled"].copy(), 0
    for b, count in enumerate(counts.tolist()):
        flat[place : place + count] = tokens[b, :count]
        place += count
    return {"flat_sampled": flat}


def _rates_go_on(op: str, inputs: Inputs) -> Outputs | None:
    rates, most = inputs["acceptance_rates"], int(max(np.diff(inputs["cu_num_logits"]), default=0))
    if not 0 < len(rates) < most:
        return None
    return oracle_outputs(op, inputs, acceptance_rates=np.concatenate([rates, np.repeat(rates[-1:], most)]))


def _cut_below_normal(op: str, inputs: Inputs) -> Outputs | None:
    cache, logits = inputs["logits_cache"], inputs["logits"]
    if cache is None or cache.dtype != np.float16:
        return None
    wide = logits.astype(np.float64)
    cut = np.where(np.abs(wide) < 2.0**-14, np.trunc(wide * 2.0**24) * 2.0**-24, wide)
    return oracle_outputs(op, inputs, logits=cut.astype(logits.dtype))


def _cut_at_the_end(op: str, inputs: Inputs) -> Outputs:
    def ratios(steps: list[DraftRow]) -> list[float]:
        found, log_r = [], 0.0
        for step in itertools.takewhile(lambda step: step.is_valid, steps):
            log_r = -np.inf if -np.inf in (log_r, step.p_draft) else log_r + step.p_draft - step.q_draft
            found.append(min(log_r, 0.0))
        return found

    with replaced(block_verification, "log_joint_ratios", ratios):
        return oracle_outputs(op, inputs)


def _placed_by(changed: Callable[[Array], Array]) -> Rule:
    """Return the mistake of mask rows that stand where other lengths of the texts before would have put them."""

    def rule(op: str, inputs: Inputs) -> Outputs | None:
        mask, nodes = inputs["tree_mask"], inputs["draft_token_num"]
        if inputs["tree_mask_mode"] != 0:
            return None
        right = build_draft_tree.first_places
        behind = np.zeros(len(mask) + nodes * nodes * len(inputs["verified_seq_len"]), mask.dtype)
        with replaced(build_draft_tree, "first_places", lambda before, nodes: right(changed(before), nodes)):
            outputs = oracle_outputs(op, inputs, tree_mask=np.concatenate([mask, behind]))
        return outputs | {"tree_mask": outputs["tree_mask"][: len(mask)]}

    return rule


def _same_rates(rates: Array) -> Array:
    return np.full_like(rates, rates[0]) if len(rates) else rates


def _sure_where_nan(rates: Array) -> Array:
    return np.where(np.isnan(rates), 2, rates).astype(rates.dtype)


_HEAT = {
    "the temperature were 1": having("temperature", lambda heat: np.where(heat > 0, 1, heat).astype(heat.dtype)),
    "a temperature below 0.01 counted as 0.01": having(
        "temperature", lambda heat: np.where((heat > 0) & (heat < 0.01), 0.01, heat).astype(heat.dtype)
    ),
}
_TOP = {"top_k did not count": without("top_k"), "top_p did not count": without("top_p")}
_RATES = {
    "every draft had the first rate": having("synthetic_conditional_rates_ptr", _same_rates),
    "a rate of NaN accepted": having("synthetic_conditional_rates_ptr", _sure_where_nan),
}

OP_MISTAKES: dict[str, dict[str, Rule]] = {
    "apply_top_k_top_p": {
        "top_p counted the mass of the whole row, not of what top_k keeps": _limits_apart,
        "the tokens that tie with the last one of top_k counted once in the mass of top_p": _last_tie_once,
        "top_k did not count": without("k"),
        "top_p did not count": without("p"),
    },
    "build_draft_tree": {
        "mask rows stood as if every request had the text of the first": _placed_by(
            lambda before: 0 * before + before[0]
        ),
        "mask rows stood as if a request without text had a token": _placed_by(lambda before: np.maximum(before, 1)),
    },
    "block_verification": {"the joint ratio were cut at 1 behind the last draft alone": _cut_at_the_end},
    "eagle_prepare_inputs_padded": {
        "a request with drafts of which no token is valid had rejected none": _rejected(
            lambda drafts, valid: np.where((drafts > 0) & (valid <= 0), drafts + 1, valid)
        ),
        "a request rejected as many tokens as it has drafts, less its valid ones": _rejected(
            lambda drafts, valid: np.where(drafts > 0, valid + 1, valid)
        ),
    },
    "eagle_prepare_next_token_padded": {
        "the last valid token were that at the number of valid ones, gaps or not": _dense_rows,
    },
    "expand_batch_to_tokens": {
        "integers were compared with replace_from as floats of 64 bits": _compared_wide,
        "floats were compared with replace_from before it is rounded to their dtype": _compared_unrounded,
        "zeros of the two signs were not equal": _signed_zeros,
    },
    "flatten_sampled": {
        "requests behind one without tokens were left out": _to_the_first_gap,
        "the tokens of all requests stood side by side": _side_by_side,
    },
    "gather_draft_logits_and_target_argmax": {
        "a last block that is not whole were left out": _whole_blocks,
        "places of a block without an id counted as logits of 0": _lanes_of_zero,
    },
    "gumbel_sample": {**_HEAT, "the cache cut logits below 2^-14 and did not round them": _cut_below_normal},
    "probabilistic_rejection": _HEAT,
    "rejection_greedy_sample": _RATES,
    "rejection_random_sample": _RATES,
    "residual_resample": _HEAT,
    "sample_recovered_tokens": {
        "the first draft of a request had the noise of the request before it": having(
            "cu_num_draft_tokens_ptr", lambda ends: np.minimum(ends + 1, ends[-1:]).astype(ends.dtype)
        ),
    },
    "synthetic_rejection": {
        "a request with fewer drafts had the last rates": _last_rates,
        "every draft had the first rate": having("acceptance_rates", _same_rates),
        "a rate of NaN accepted": having("acceptance_rates", _sure_where_nan),
        "a step without a rate had the last rate": _rates_go_on,
    },
    "verify_draft_logits": {**_HEAT, **_TOP, **LIMITED},
    "verify_one_hot": {**_HEAT, **_TOP, **LIMITED, **WITHOUT_DRAFT},
    "verify_tree_sampled": SAMPLED,
    "verify_tree_typical": {
        **TYPICAL,
        "threshold_single did not count": having("threshold_single", lambda _: float("inf")),
        "threshold_acc did not count": having("threshold_acc", lambda _: 1.0),
    },
}
"""Mistakes by op and by their words."""
