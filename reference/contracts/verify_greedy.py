"""verify_greedy: from raw logits to the tokens of a greedy batch, in one pass over the rows."""

from verispec.reference.contracts._fused import AXES, OUTPUTS, ROWS, TARGET
from verispec.reference.contracts._model import Clause, Contract
from verispec.reference.contracts._request_state import PAPER, VLLM

CONTRACT = Contract(
    name="verify_greedy",
    family="fused",
    summary="Accept drafts while they are the argmax of their row, and emit the argmax of the row after them.",
    axes=AXES,
    params=(*OUTPUTS, TARGET, *ROWS),
    effect="a greedy request emits other tokens than the target's own",
    clauses=(
        Clause(
            "VGR-1",
            "A draft is accepted exactly while it is the argmax of its row.",
            f"{PAPER}, temperature 0",
            outputs=("sampled",),
        ),
        Clause("VGR-2", "Of equal maxima the lowest id is the argmax.", "contract: one rule for ties"),
        Clause(
            "VGR-3",
            "The token after the accepted drafts is the argmax of the first rejected draft's row, or of the bonus row; "
            "every id of the vocabulary can be the token.",
            f"{VLLM}._rejection_kernel",
        ),
        Clause("VGR-4", "Emitted tokens stand in the first columns, -1 in all others.", "contract: a row is whole"),
        Clause(
            "VGR-5",
            "num_sampled is num_accepted plus 1, and num_rejected the drafts less num_accepted.",
            "eagle_prepare_inputs_padded",
            outputs=("num_sampled", "num_rejected"),
        ),
        Clause(
            "VGR-6",
            "next_token is the last emitted token and next_row the row that it is the argmax of.",
            "eagle_prepare_next_token_padded; eagle_prepare_inputs_padded",
            outputs=("next_token", "next_row"),
        ),
        Clause(
            "VGR-7",
            "NaN counts as minus infinity, and a row without any probability gives token 0.",
            "vllm 0.32.0 test_all_nan_target_logits_in_range",
        ),
        Clause("VGR-8", "A padding token, any id outside the vocabulary, is rejected.", "vllm#46533"),
        Clause("VGR-9", "A padding request, state -1, writes nothing.", "vllm#47066"),
        Clause("VGR-10", "Logits of every dtype are compared exactly.", "contract: no rounding in an argmax"),
        Clause("VGR-11", "Strides are honoured and rows past 2^31 elements are found.", "vllm#47383"),
        Clause(
            "VGR-12",
            "A request's tokens depend on its own rows alone: not on its neighbours, on its place in the batch, on the "
            "number of threads or on the instruction set.",
            "contract: requests are independent",
        ),
    ),
)
