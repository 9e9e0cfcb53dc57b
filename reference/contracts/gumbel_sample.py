"""gumbel_sample: sample one token per row from its logits, by the Gumbel-max rule and a counter-based RNG."""

from dataclasses import replace

from verispec.reference.contracts._model import INTS, PROBS, Clause, Contract, Role, Scalar, Tensor
from verispec.reference.contracts._request_state import EXPANDED_IDX_MAPPING, POS, SEED, TEMPERATURE

_VLLM = "vllm 0.33.0 vllm.v1.worker.gpu.sample.gumbel.gumbel_sample"

CONTRACT = Contract(
    name="gumbel_sample",
    family="shared",
    summary="Sample a token from each row of logits, and store a drafter's logits for verification.",
    axes={
        "T": "rows",
        "R": "request states",
        "C": "draft steps per state of the cache",
        "V": "vocabulary",
    },
    params=(
        Tensor("sampled", ("T",), INTS, "sampled token of each row", role=Role.OUT, production="int64"),
        Tensor("logits", ("T", "V"), PROBS, "logits", production="float32", also=("bfloat16",)),
        replace(EXPANDED_IDX_MAPPING, shape=("T",), doc="state of each row; -1 is a padding row"),
        TEMPERATURE,
        SEED,
        replace(POS, shape=("T",)),
        Scalar("apply_temperature", bool, "divide the logits by the temperature first", flag=True),
        Scalar("is_drafting", bool, "True for draft tokens", flag=True),
        Tensor(
            "logits_cache",
            ("R", "C", ">=V"),
            PROBS,
            "cache of a drafter's logits, before temperature",
            role=Role.INOUT,
            production="float32",
            also=("bfloat16",),
            optional=True,
            default=None,
        ),
        Tensor(
            "logits_cache_col",
            ("T",),
            INTS,
            "draft step of each row; a call with a cache and without it is refused",
            production="int32",
            optional=True,
            required_with="logits_cache",
            minimum=0,
            default=None,
        ),
    ),
    effect="sampled tokens do not follow their distribution, or not the seed of their request",
    clauses=(
        Clause(
            "GUM-1",
            "The token is the argmax of logits / temperature + g, with one Gumbel sample g per vocabulary entry from "
            "the row's seed, position and step.",
            f"Gumbel-max trick; {_VLLM}",
            outputs=("sampled",),
            mistakes=("the temperature were 1", "a temperature below 0.01 counted as 0.01"),
        ),
        Clause("GUM-2", "At temperature 0 the token is the argmax of the logits.", _VLLM),
        Clause("GUM-3", "Of equal scores the lowest id wins.", "contract: one rule for ties"),
        Clause(
            "GUM-4",
            "A draft token uses draw 1 and the row's draft step, every other token draw 0 and step 0.",
            "vllm#54282; PHX-4",
        ),
        Clause(
            "GUM-5",
            "The cache receives the logits before temperature at [state, step, 0 to V - 1], and the token is sampled "
            "from the logits rounded to the cache's dtype.",
            f"{_VLLM}; deepseek-ai/DeepSpec#48",
            outputs=("logits_cache",),
            mistakes=("the cache cut logits below 2^-14 and did not round them",),
        ),
        Clause("GUM-6", "A padding row writes neither a token nor logits.", "vllm#47066"),
        Clause(
            "GUM-7",
            "The token is below V for every V, and every id below V can be the token; NaN counts as minus infinity, "
            "and a row without any probability gives token 0.",
            "vllm#44744",
        ),
        Clause(
            "GUM-8",
            "Scores are computed in float32 or better; if two float64 scores differ by less than 2^-16 times the "
            "largest of 1, |logit| and |logit / temperature|, either token is correct.",
            "contract: rounding of two logarithms and a division",
        ),
        Clause("GUM-9", "Strides are honoured, and rows past 2^31 elements are read correctly.", "vllm#47383"),
        Clause(
            "GUM-10", "The same seed, position and step give the same token on every platform, in any batch.", _VLLM
        ),
    ),
    law="The token is distributed as softmax(logits / temperature).",
)
