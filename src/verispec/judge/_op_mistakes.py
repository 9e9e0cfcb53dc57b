"""Mistakes of single ops."""

from __future__ import annotations

import numpy as np

from verispec.judge._compare import Array, oracle_outputs
from verispec.judge._mistake import Inputs, Outputs, Rule, having, without
from verispec.reference.oracle._tree import children, draw, power_of_two, total, walk, weights


def _limits_apart(op: str, inputs: Inputs) -> Outputs | None:
    if inputs["k"] is None or inputs["p"] is None:
        return None
    by_k, by_p = (oracle_outputs(op, inputs, **{name: None})["output"] for name in ("p", "k"))
    return {"output": np.minimum(by_k, by_p)}


def _last_rates(op: str, inputs: Inputs) -> Outputs:
    rates, starts = inputs["acceptance_rates"], inputs["cu_num_logits"]
    outputs = oracle_outputs(op, inputs)
    for b, drafts in enumerate((np.diff(starts) - 1).tolist()):
        own = oracle_outputs(op, inputs, acceptance_rates=rates[max(len(rates) - max(drafts, 0), 0) :])
        for name, values in own.items():
            outputs[name][b] = values[b]
    return outputs


def _last_sibling_alone(op: str, inputs: Inputs) -> Outputs:
    given = dict(inputs)
    divisor = max(given["threshold_acc"], 1e-9)
    vocab, places = given["target_probs"].shape[2], len(given["predicts"])

    def step(b: int, node: int, place: int, is_full: bool) -> tuple[int | None, int]:
        p = weights(given["target_probs"][b, node])
        left, u = p.copy(), np.float64(given["uniform_samples"][b, node])
        links = given["retrieve_next_token"][b, node], given["retrieve_next_sibling"][b]
        for child in () if is_full else children(*links):
            token = int(given["candidates"][b, child])
            if 0 <= token < vocab and 0 <= given["retrieve_index"][b, child] < places:
                if p[token] > 0 and (u < p[token] / divisor or p[token] >= given["threshold_single"]):
                    return child, token
                left[token] = 0.0
        return None, draw(left, given["uniform_samples_for_final_sampling"][b])

    tokens, path, counts = given["predicts"], given["accept_index"], given["accept_token_num"]
    return walk(tokens, path, counts, given["retrieve_index"], step)


def _kept_weight(op: str, inputs: Inputs) -> Outputs | None:
    if inputs["draft_probs"] is None or not inputs["WITHOUT_REPLACEMENT"]:
        return None
    given = dict(inputs)
    vocab, places, request, q_sum = given["target_probs"].shape[2], len(given["predicts"]), -1, 1.0

    def step(b: int, node: int, place: int, is_full: bool) -> tuple[int | None, int]:
        nonlocal request, q_sum
        if b != request:
            request, q_sum = b, 1.0
        p, p_sum, q = weights(given["target_probs"][b, node]), 1.0, weights(given["draft_probs"][b, node])
        links = given["retrieve_next_token"][b, node], given["retrieve_next_sibling"][b]
        for child in () if is_full else children(*links):
            token = int(given["candidates"][b, child])
            if not (0 <= token < vocab and 0 <= given["retrieve_index"][b, child] < places and q[token] > 0):
                continue
            if np.float64(given["uniform_samples"][b, child]) * (p_sum * q[token]) < q_sum * p[token]:
                return child, token
            left = np.maximum(q_sum * p - p_sum * q, 0.0)
            if not total(left) > 0:
                break
            scale = power_of_two(total(left))
            p, p_sum = left * scale, total(left) * scale
            q[token] = 0.0
            scale = power_of_two(total(q))
            q, q_sum = q * scale, total(q) * scale
        return None, draw(p, given["uniform_samples_for_final_sampling"][b])

    tokens, path, counts = given["predicts"], given["accept_index"], given["accept_token_num"]
    return walk(tokens, path, counts, given["retrieve_index"], step)


def _whole_blocks(op: str, inputs: Inputs) -> Outputs | None:
    outputs, size = oracle_outputs(op, inputs), inputs["BLOCK_SIZE"]
    draft = inputs["draft_logits"]
    width = inputs["target_logits"].shape[1]
    whole = (width if draft is None else min(width, draft.shape[2])) // size
    for name in ("local_max", "local_argmax"):
        outputs[name][:, whole:] = inputs[name][:, whole:]
    return outputs


def _compared_wide(op: str, inputs: Inputs) -> Outputs | None:
    given, wanted = inputs["input_ptr"], inputs["replace_from"]
    if given.dtype.kind != "i":
        return None
    same = np.array(int(wanted), given.dtype) if float(wanted).is_integer() else given
    return oracle_outputs(op, inputs, input_ptr=np.where(given.astype(np.float64) == float(wanted), same, given))


def _same_rates(rates: Array) -> Array:
    return np.full_like(rates, rates[0]) if len(rates) else rates


_HEAT = {"the temperature were 1": having("temperature", lambda heat: np.where(heat > 0, 1, heat).astype(heat.dtype))}
_TOP = {"top_k did not count": without("top_k"), "top_p did not count": without("top_p")}
_RATES = {"every draft had the first rate": having("synthetic_conditional_rates_ptr", _same_rates)}

OP_MISTAKES: dict[str, dict[str, Rule]] = {
    "apply_top_k_top_p": {
        "top_p counted the mass of the whole row, not of what top_k keeps": _limits_apart,
        "top_k did not count": without("k"),
        "top_p did not count": without("p"),
    },
    "expand_batch_to_tokens": {"integers were compared with replace_from as floats of 64 bits": _compared_wide},
    "gather_draft_logits_and_target_argmax": {"a last block that is not whole were left out": _whole_blocks},
    "gumbel_sample": _HEAT,
    "probabilistic_rejection": _HEAT,
    "rejection_greedy_sample": _RATES,
    "rejection_random_sample": _RATES,
    "residual_resample": _HEAT,
    "synthetic_rejection": {
        "a request with fewer drafts had the last rates": _last_rates,
        "every draft had the first rate": having("acceptance_rates", _same_rates),
    },
    "verify_draft_logits": {**_HEAT, **_TOP},
    "verify_one_hot": {**_HEAT, **_TOP},
    "verify_tree_sampled": {"the sum of q without rejected drafts were kept for the next node": _kept_weight},
    "verify_tree_typical": {
        "the probabilities of rejected siblings were not added up": _last_sibling_alone,
        "threshold_single did not count": having("threshold_single", lambda _: float("inf")),
        "threshold_acc did not count": having("threshold_acc", lambda _: 1.0),
    },
}
"""Mistakes by op and by their words."""
