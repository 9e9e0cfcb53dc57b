"""apply_top_k_top_p: keep the most likely tokens of each row, set all other logits to minus infinity."""

from verispec.reference.contracts._model import INTS, PROBS, Clause, Contract, Origin, Role, Sighting, Tensor

_HOLTZMAN = "Holtzman et al. 2020 (arXiv 1904.09751), section 3.1"
_VLLM = "vllm 0.33.0 vllm.v1.sample.ops.topk_topp_triton.apply_top_k_top_p_triton"
TIES_ARE_KEPT = (
    "a token that ties with the k-th is as likely as it, and vLLM and Hugging Face transformers keep all of them "
    "(vllm#15478, vllm#12156)"
)

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
            "masked logits; may share the memory of logits",
            role=Role.OUT,
            production="float32",
            like="logits",
            may_alias="logits",
        ),
        Tensor("logits", ("B", "V"), PROBS, "logits", production="float32"),
        Tensor(
            "k",
            ("B",),
            INTS,
            "tokens to keep; None, values below 1 and values of at least V keep all",
            production="int32",
            optional=True,
        ),
        Tensor(
            "p",
            ("B",),
            ("float32",),
            "probability to keep; None and values of at least 1 keep all",
            production="float32",
            optional=True,
        ),
    ),
    effect="tokens outside of a request's top_k and top_p can be sampled, or those inside at wrong probabilities",
    clauses=(
        Clause(
            "TKP-1",
            "The tokens of the whole vocabulary are ordered by decreasing logit, and equal logits by increasing id.",
            "contract: one rule for ties; vllm#50979",
        ),
        Clause(
            "TKP-2",
            "Exactly the first k tokens of the order are kept, whatever the ties, alone and in any batch.",
            "vllm#50979",
            harmless=TIES_ARE_KEPT,
            effect="a token that top_k excludes can be sampled, or one that it keeps cannot",
            mistakes=("top_k did not count",),
        ),
        Clause(
            "TKP-3",
            "Of these, a token is kept if the probability of the tokens before it, normalised over the k, is below p: "
            "the smallest set with probability p.",
            f"{_HOLTZMAN}; {_VLLM}",
            mistakes=(
                "top_p counted the mass of the whole row, not of what top_k keeps",
                "the tokens that tie with the last one of top_k counted once in the mass of top_p",
                "top_p did not count",
            ),
        ),
        Clause("TKP-4", "The first token is always kept; with p <= 0 it is the only one.", _VLLM),
        Clause(
            "TKP-5",
            "A k below 1 or of at least V, or a missing k, disables top-k; a p of 1 and above, or a missing p, "
            "disables top-p; rows of a batch are independent.",
            _VLLM,
        ),
        Clause("TKP-6", "Kept logits keep their value bit for bit, all others become minus infinity.", _VLLM),
        Clause(
            "TKP-7",
            "Minus infinity comes last in the order and stays; a row of minus infinity alone is unchanged.",
            "vllm 0.19.0: grammar masks",
        ),
        Clause(
            "TKP-8",
            "NaN comes last in the order and becomes minus infinity; a p of NaN keeps the first token alone.",
            "contract: NaN never wins",
        ),
        Clause(
            "TKP-9",
            "If the float64 probability of the tokens before a token is within 2^-18 of p, either decision is correct; "
            "the kept tokens are still the first of the order.",
            "contract: rounding of float32 exponentials and their sums",
        ),
        Clause(
            "TKP-10",
            "In place and out of place give the same result; out of place leaves the logits unchanged.",
            "vllm#30846",
        ),
        Clause("TKP-11", "Strides are honoured, and rows past 2^31 elements are read correctly.", "vllm#42779"),
        Clause("TKP-12", "The tolerance is the same for rows of low and of high entropy.", "vllm#48927"),
        Clause("TKP-13", "Tokens with positive infinity share the whole probability.", "limit of the softmax"),
        Clause(
            "TKP-14",
            "A batch without rows is valid, with limits or without.",
            "contract: nothing to mask",
            origin=Origin(
                "vllm.v1.worker.gpu_model_runner.GPUModelRunner._sample", "sampler_output = self.rejection_sampler("
            ),
            sightings=(
                Sighting(
                    "vllm",
                    "0.32.0",
                    "the prefill of sampled requests with a top-k raises; without speculation it runs",
                    "vllm_cpu_0_32_0.py top_k",
                ),
            ),
        ),
    ),
    caller="vllm.v1.sample.rejection_sampler.apply_sampling_constraints",
)
