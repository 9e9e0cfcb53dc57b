"""probabilistic_rejection: verify the drafts of every request from the logits, by ratio or by argmax."""

from verispec.reference.contracts._model import Clause, Contract
from verispec.reference.contracts._request_state import AXES, DRAW, EXPANDED, LOGITS, PAPER, REQUESTS, VERDICT, VLLM

_KERNEL = f"{VLLM}._rejection_kernel"

CONTRACT = Contract(
    name="probabilistic_rejection",
    family="request_state",
    summary="Accept drafts while p > u q, or at temperature 0 while they are the target's argmax.",
    axes=AXES,
    params=(*VERDICT, *LOGITS, *REQUESTS, *EXPANDED, *DRAW),
    clauses=(
        Clause(
            "PRJ-1",
            "A draft is accepted exactly when log p > log u + log q, with p and q of its own row and step and u the "
            "acceptance number of the request's seed, the row's position and step.",
            f"{PAPER}; {_KERNEL}",
        ),
        Clause("PRJ-2", "Without draft logits q is 1 at the draft.", f"{PAPER}, one-hot q; vllm#40651"),
        Clause(
            "PRJ-3",
            "At temperature 0 a draft is accepted exactly when it is the target's argmax, of equal maxima the lowest "
            "id, and the argmax stands at the first rejected position.",
            _KERNEL,
        ),
        Clause("PRJ-4", "num_accepted counts the drafts before the first rejected one.", PAPER),
        Clause(
            "PRJ-5",
            "Accepted drafts stand at the positions of their steps; no other position is written, but for the argmax "
            "of PRJ-3.",
            _KERNEL,
        ),
        Clause(
            "PRJ-6",
            "A placeholder draft, any id below 0 or outside the vocabulary that target and draft share, is rejected "
            "and never indexes; so is a draft at a step that draft_logits does not hold.",
            "vllm#46533",
        ),
        Clause(
            "PRJ-7",
            "target_logsumexp and draft_logsumexp receive the normalisers of the rejected row when it was rejected by "
            "ratio, the draft's after division by the temperature and 0 for one-hot drafts.",
            _KERNEL,
        ),
        Clause(
            "PRJ-8",
            "Ids that only the target has, past the draft's vocabulary, count neither in p nor in q.",
            "vllm 0.27.0: MiMo v2.5 Pro with DFlash",
        ),
        Clause(
            "PRJ-9",
            "A padding request, state -1, reads no state and writes nothing; a request without drafts accepts none.",
            "vllm#47066",
        ),
        Clause(
            "PRJ-10",
            "NaN counts as minus infinity, and a row without any probability rejects.",
            "vllm 0.32.0 test_all_nan_target_logits_in_range",
        ),
        Clause(
            "PRJ-11",
            "Logarithms are computed in float32 or better; where the float64 sides of PRJ-1 differ by less than 2^-16 "
            "times the largest of 1 and the row's |logits| either answer is right.",
            "contract: rounding of a float32 softmax",
        ),
        Clause("PRJ-12", "Strides are honoured and rows past 2^31 elements are found.", "vllm#47383"),
    ),
    law="A draft x drawn from q is accepted with probability min(1, p(x) / q(x)).",
)
