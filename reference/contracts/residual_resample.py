"""residual_resample: sample the token after the accepted draft tokens of every request."""

from dataclasses import replace

from verispec.reference.contracts._model import INTS, Clause, Contract, Role, Tensor
from verispec.reference.contracts._request_state import (
    ACCEPTED,
    AXES,
    BLOCK_PAPER,
    DRAW,
    LOGITS,
    PAPER,
    REQUESTS,
    SAMPLED,
    VLLM,
    logsumexp,
)

_KERNEL = f"{VLLM}._resample_kernel"

CONTRACT = Contract(
    name="residual_resample",
    family="request_state",
    summary="Sample from norm(max(p - q, 0)) after a rejection, from p if all draft tokens were accepted.",
    axes=AXES,
    params=(
        replace(SAMPLED, role=Role.INOUT),
        Tensor("num_sampled", ("B",), INTS, "emitted tokens", role=Role.OUT, production="int32"),
        replace(ACCEPTED, role=Role.IN),
        logsumexp("target_logsumexp", Role.IN),
        logsumexp("draft_logsumexp", Role.IN),
        Tensor(
            "log_prefix_ratio",
            ("B",),
            ("float32",),
            "log of the block rule's joint ratio at the last accepted draft token; None after token-wise verification",
            production="float32",
            optional=True,
        ),
        *LOGITS,
        *REQUESTS,
        *DRAW,
    ),
    effect="the token after the accepted drafts does not follow the target's distribution",
    clauses=(
        Clause(
            "RSR-1",
            "After a rejection the token is sampled from norm(max(p - q, 0)) of the rejected row and follows the "
            "accepted draft tokens.",
            PAPER,
            outputs=("sampled",),
            mistakes=("the temperature were 1", "a temperature below 0.01 counted as 0.01"),
        ),
        Clause("RSR-2", "If all draft tokens were accepted, the token is sampled from p of the bonus row.", PAPER),
        Clause(
            "RSR-3",
            "Without draft logits the residual is p without the rejected draft token.",
            f"{PAPER}, one-hot q; {_KERNEL}",
        ),
        Clause(
            "RSR-4",
            "After a rejected padding token the token is sampled from p, not from a residual, since nothing was "
            "drafted.",
            "vllm 0.32.0; 0.27.0 subtracted another step's q",
        ),
        Clause(
            "RSR-5",
            "log(p - q) is log p + log1p(-q/p), never log(1 - q/p), so that rounding does not lose a small q.",
            "vllm#46665",
        ),
        Clause(
            "RSR-6",
            "With log_prefix_ratio the residual is max(r p - q, 0), where r is the ratio of the accepted prefix.",
            BLOCK_PAPER,
        ),
        Clause(
            "RSR-7",
            "At temperature 0 the bonus token is the argmax, and the argmax at a rejected position stays.",
            _KERNEL,
        ),
        Clause(
            "RSR-8",
            "num_sampled is num_accepted plus 1.",
            _KERNEL,
            outputs=("num_sampled",),
        ),
        Clause(
            "RSR-9",
            "The sample uses draw 0 at the rejected row's position and step, apart from the samples of draft tokens "
            "and acceptance tests.",
            "vllm#54282; vllm-ascend#16370; PHX-4",
        ),
        Clause(
            "RSR-10",
            "If the residual has no mass, by rounding or by NaN in the draft's row, the token is sampled from p.",
            "vllm#41834; sglang#22643",
        ),
        Clause(
            "RSR-11",
            "The token is an id that target and draft share, and every such id can be the token; NaN counts as minus "
            "infinity, and a row without any probability gives token 0.",
            "vllm#44744; vllm 0.32.0 test_all_nan_target_logits_in_range",
        ),
        Clause("RSR-12", "A padding request, state -1, reads no state and writes nothing.", "vllm#47066"),
        Clause("RSR-13", "Of equal scores the lowest id wins.", "contract: one rule for ties"),
        Clause(
            "RSR-14",
            "Scores are computed in float32 or better: a token is correct if it has the largest float64 score after "
            "moving each residual by 2^-16 p, times the largest of 1 and the row's |logits|.",
            "contract: rounding of a difference of two float32 probabilities",
        ),
        Clause("RSR-15", "Strides are honoured, and rows past 2^31 elements are read correctly.", "vllm#47383"),
    ),
    law="With draft tokens from q, token-wise verification and this op emit tokens distributed as p.",
)
