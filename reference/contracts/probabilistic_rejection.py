"""probabilistic_rejection: verify every request's draft tokens from logits, by ratio or by argmax."""

from verispec.reference.contracts._model import Clause, Contract
from verispec.reference.contracts._request_state import AXES, DRAW, EXPANDED, LOGITS, PAPER, REQUESTS, VERDICT, VLLM

_KERNEL = f"{VLLM}._rejection_kernel"

CONTRACT = Contract(
    name="probabilistic_rejection",
    family="request_state",
    summary="Accept draft tokens while p > u q, or at temperature 0 while they are the target's argmax.",
    axes=AXES,
    params=(*VERDICT, *LOGITS, *REQUESTS, *EXPANDED, *DRAW),
    effect="drafts are accepted wrongly, or emitted text does not follow the target",
    clauses=(
        Clause(
            "PRJ-1",
            "A draft token is accepted exactly if log p > log u + log q, with p and q of its row and step, and u the "
            "acceptance sample of the request's seed, position and step. p and q are softmaxes over every id that "
            "target and draft share.",
            f"{PAPER}; {_KERNEL}",
            mistakes=("the temperature were 1", "a temperature below 0.01 counted as 0.01"),
        ),
        Clause("PRJ-2", "Without draft logits q is 1 at the draft token.", f"{PAPER}, one-hot q; vllm#40651"),
        Clause(
            "PRJ-3",
            "At temperature 0 a draft token is accepted exactly if it is the target's argmax, the lowest id for "
            "ties; the first rejected position receives the argmax.",
            _KERNEL,
        ),
        Clause(
            "PRJ-4",
            "num_accepted counts the draft tokens before the first rejected one.",
            PAPER,
            outputs=("num_accepted",),
        ),
        Clause(
            "PRJ-5",
            "Accepted draft tokens are stored at the positions of their steps; no other position is written, except "
            "for the argmax of PRJ-3.",
            _KERNEL,
            outputs=("sampled",),
        ),
        Clause(
            "PRJ-6",
            "A padding token, an id outside the shared vocabulary, and a step past draft_logits are rejected and "
            "never used as an index.",
            "vllm#46533",
        ),
        Clause(
            "PRJ-7",
            "If p/q rejects a draft token, target_logsumexp and draft_logsumexp are the log-sum-exps of its target row "
            "and of its tempered draft row (0 for one-hot drafts); else a request's may have any value.",
            _KERNEL,
            outputs=("target_logsumexp", "draft_logsumexp"),
        ),
        Clause(
            "PRJ-8",
            "Ids past the draft's vocabulary contribute neither to p nor to q.",
            "vllm 0.27.0: MiMo v2.5 Pro with DFlash",
        ),
        Clause(
            "PRJ-9",
            "A padding request, state -1, reads no state and writes nothing; a request without draft tokens accepts "
            "none.",
            "vllm#47066",
        ),
        Clause(
            "PRJ-10",
            "NaN counts as minus infinity, which adds nothing to a sum, however many such ids stand side by side. A "
            "token without target probability is rejected, also where the draft gives it none, and so is every token "
            "in a row without any probability.",
            "vllm 0.32.0 test_all_nan_target_logits_in_range",
        ),
        Clause(
            "PRJ-11",
            "Logarithms are computed in float32 or better; if the sides of PRJ-1 differ by less than 2^-16 times the "
            "largest of 1 and the row's |logits|, either decision is correct.",
            "contract: rounding of a float32 softmax",
        ),
        Clause("PRJ-12", "Strides are honoured, and rows past 2^31 elements are read correctly.", "vllm#47383"),
    ),
    law="A draft token x sampled from q is accepted with probability min(1, p(x) / q(x)).",
)
