"""apply_top_k_top_p: keep the most likely tokens of each row, set all others to minus infinity."""

from verispec.reference.contracts._model import INTS, PROBS, Clause, Contract, Role, Tensor

_HOLTZMAN = "Holtzman et al. 2020 (arXiv 1904.09751), section 3.1"
_VLLM = "vllm 0.33.0 vllm.v1.sample.ops.topk_topp_triton.apply_top_k_top_p_triton"

CONTRACT = Contract(
    name="apply_top_k_top_p",
    family="shared",
    summary="Mask each row of logits to its k largest, then to the smallest set that holds the probability p.",
    axes={"B": "rows", "V": "vocabulary"},
    params=(
        Tensor(
            "output",
            ("B", "V"),
            PROBS,
            "masked logits; may be the memory of logits",
            role=Role.OUT,
            production="float32",
            like="logits",
            may_alias="logits",
        ),
        Tensor("logits", ("B", "V"), PROBS, "logits", production="float32"),
        Tensor(
            "k", ("B",), INTS, "tokens to keep; None, below 1 or at least V keep all", production="int32", optional=True
        ),
        Tensor(
            "p",
            ("B",),
            ("float32",),
            "probability to keep; None, 1 and above keep all",
            production="float32",
            optional=True,
        ),
    ),
    clauses=(
        Clause(
            "TKP-1",
            "Tokens are in order by logit, the larger first, and of equal logits by id, the lower first.",
            "contract: one rule for ties; vllm#50979",
        ),
        Clause(
            "TKP-2",
            "Exactly the first k tokens of the order are kept, whatever the ties, alone or in any batch.",
            "vllm#50979",
        ),
        Clause(
            "TKP-3",
            "Of these a token is kept if the probability of the tokens before it, normalised over the k, is "
            "below p: the smallest set that holds p.",
            f"{_HOLTZMAN}; {_VLLM}",
        ),
        Clause("TKP-4", "The first token is always kept, with p = 0 and below it alone.", _VLLM),
        Clause(
            "TKP-5",
            "A row whose k is at least V or below 1, or that has no k, has no top-k; a row whose p is 1 or above, "
            "or that has no p, has no top-p; rows of a batch are independent.",
            _VLLM,
        ),
        Clause("TKP-6", "Kept logits keep their value bit for bit, all others become minus infinity.", _VLLM),
        Clause(
            "TKP-7",
            "Minus infinity comes last in the order and stays; a row of nothing else is unchanged.",
            "vllm 0.19.0: grammar masks",
        ),
        Clause(
            "TKP-8",
            "NaN comes last in the order and becomes minus infinity; as p it keeps the first token alone.",
            "contract: NaN wins nothing",
        ),
        Clause(
            "TKP-9",
            "Where the float64 probability of the tokens before a token is within 2^-18 of p, either answer for "
            "it is right; the kept tokens still are the first of the order.",
            "contract: rounding of float32 exponentials and their sums",
        ),
        Clause(
            "TKP-10",
            "In place and out of place give the same; out of place leaves the logits as they are.",
            "vllm#30846",
        ),
        Clause("TKP-11", "Strides are honoured and rows past 2^31 elements are found.", "vllm#42779"),
        Clause("TKP-12", "A peaked row is as exact as a flat one.", "vllm#48927"),
        Clause(
            "TKP-13", "Positive infinity shares the whole probability among those that have it.", "limit of the softmax"
        ),
        Clause("TKP-14", "A batch of no rows is an empty batch, with limits or without.", "contract: nothing to mask"),
    ),
)
