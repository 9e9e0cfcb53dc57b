"""serving: a completions server over HTTP, tested from outside alone."""

from verispec.reference.contracts._model import Clause, Contract

_API = "completions API: https://platform.openai.com/docs/api-reference/completions"

CONTRACT = Contract(
    name="serving",
    family="serving",
    summary="A server's answers are those of its model, streamed or not, alone or among others, whatever it drafts.",
    axes={},
    params=(),
    clauses=(
        Clause(
            "SRV-1",
            "Every token of a greedy answer is the model's most likely one after the tokens before it, or within "
            "rounding of it.",
            "clause GEN-1; vllm#24771",
        ),
        Clause(
            "SRV-2",
            "Each sampled token follows the model's distribution after the tokens before it, at the request's own "
            "temperature and limits.",
            "Leviathan et al. 2023 (arXiv 2211.17192), theorem 1; vllm#9834",
        ),
        Clause(
            "SRV-3",
            "An answer has exactly max_tokens tokens unless it stops, says why it ended, and counts its tokens "
            "correctly.",
            f"{_API}: max_tokens, finish_reason, usage",
        ),
        Clause(
            "SRV-4",
            "An answer ends before its first stop string and at its first stop token, which may lie inside of a block "
            "of accepted drafts, and at the end of its text, but not before min_tokens.",
            f"{_API}: stop",
        ),
        Clause(
            "SRV-5",
            "A streamed answer has the text, tokens, log-probabilities and finish reason of the answer in one piece, "
            "and ends with its mark.",
            f"{_API}: stream",
        ),
        Clause(
            "SRV-6",
            "Log-probabilities come one per token and are those of the model at the token's place.",
            f"{_API}: logprobs; vllm#29216",
        ),
        Clause(
            "SRV-7",
            "The same seed gives the same answer, alone and among others, and another seed gives another one.",
            f"{_API}: seed; vllm#6034",
        ),
        Clause(
            "SRV-8",
            "A request for n samples gets n of them, numbered from 0, each with the request's parameters and drawn "
            "anew from the model's distribution.",
            f"{_API}: n",
        ),
        Clause(
            "SRV-9",
            "Penalties, biases and allowed tokens change the model's logits as documented, and penalties count every "
            "token before a place, accepted drafts included.",
            f"{_API}: presence_penalty, frequency_penalty; Keskar et al. 2019 (arXiv 1909.05858)",
        ),
        Clause(
            "SRV-10",
            "The requests in flight do not change an answer, nor do those before it.",
            "vllm#50979; requests are independent",
            is_relation=True,
        ),
        Clause(
            "SRV-11",
            "A client that closes its connection changes no other answer, and its request is computed no further.",
            "clause GEN-34; vllm 0.33.0 with_cancellation",
        ),
        Clause(
            "SRV-12",
            "A request that cannot work is answered with a status from 400 to 499 and a reason, and the server goes "
            "on.",
            "RFC 9110, section 15.5",
        ),
        Clause(
            "SRV-13",
            "The text of an answer is that of its tokens, characters of several tokens included.",
            f"{_API}: text",
        ),
    ),
    returns="the samples of each request",
)
