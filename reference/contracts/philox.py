"""philox: the counter-based RNG of every platform.

This contract alone defines which random word belongs to which draw.

Philox4x32-10 (Salmon et al. 2011) maps a counter of four 32-bit words, under a key of two, to four random words.

    key     = (seed & 0xffffffff, seed >> 32)                         the request's 64-bit seed
    counter = (lane // 4, step << 8 | draw, pos & 0xffffffff, pos >> 32)
    sample  = word lane % 4 of the result

``pos`` is the position of the row's input token and ``step`` the row's step in its request's block of draft tokens.
``draw`` is the purpose: 0 a token from the target or the residual, 1 a draft token, 2 an acceptance test. Sampling a
token uses one lane per vocabulary entry, an acceptance test uses lane 0.

A word w represents the uniform sample (w + 1/2) * 2^-32, which is never 0 and never 1. A token is the Gumbel-max argmax
of log p + g with g = -log(-log(1 - u)). Its upper tail comes from small u and so keeps the full resolution of 32 bits.
"""

from verispec.reference.contracts._model import Clause, Contract, Role, Tensor

_PAPER = "Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3"

CONTRACT = Contract(
    name="philox",
    family="shared",
    summary="Compute four random 32-bit words from a counter and a key, by Philox4x32-10.",
    axes={"N": "counters"},
    params=(
        Tensor("words", ("N", 4), ("int64",), "random words, from 0 to 2^32 - 1", role=Role.OUT, production="int64"),
        Tensor("counter", ("N", 4), ("int64",), "counters, a word from 0 to 2^32 - 1 each", production="int64"),
        Tensor("key", ("N", 2), ("int64",), "keys, a word from 0 to 2^32 - 1 each", production="int64"),
    ),
    effect="sampled tokens do not follow the seed of their request",
    clauses=(
        Clause("PHX-1", "The words are those of Philox4x32-10, bit for bit, on every platform.", _PAPER),
        Clause(
            "PHX-2",
            "The published known answers hold: counter and key of zeros, of ones, and of the digits of pi.",
            "Random123, kat_vectors, philox4x32 10",
        ),
        Clause(
            "PHX-3",
            "A draw's counter is (lane // 4, step << 8 | draw, pos low, pos high), its key the seed's low and high "
            "half, and its sample word lane % 4.",
            "contract: one layout everywhere",
        ),
        Clause(
            "PHX-4",
            "Draw 0 is for target tokens, draw 1 for draft tokens, draw 2 for acceptance tests: they "
            "never share a counter, and neither do two steps.",
            "vllm#54282; vllm-ascend#16370; vllm 0.33.0 vllm.v1.worker.gpu.sample.gumbel.spec_step_seed",
        ),
        Clause(
            "PHX-5",
            "A word w represents the uniform sample u = (w + 1/2) * 2^-32, above 0 and below 1. A Gumbel sample is "
            "-log(-log(1 - u)), that of a vocabulary's entry from the lane of its id.",
            "sglang#35771",
        ),
        Clause("PHX-6", "Strides are honoured; an empty batch is a no-op.", "contract: tensors, not pointers"),
    ),
)
