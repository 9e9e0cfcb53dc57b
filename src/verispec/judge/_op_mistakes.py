"""Mistakes of single ops."""

from __future__ import annotations

import numpy as np

from verispec.judge._compare import Array, oracle_outputs
from verispec.judge._limit_mistakes import LIMITED, WITHOUT_DRAFT
from verispec.judge._mistake import Inputs, Outputs, Rule, having, without
from verispec.judge._tree_mistakes import SAMPLED, TYPICAL


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
