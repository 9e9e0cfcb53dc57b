"""philox: the counter-based random numbers of every platform.

This is the one place that says which number belongs to which draw.

Philox4x32-10 (Salmon et al. 2011) maps a counter of four 32-bit words, under a key of two, to four
random words.

    key     = (seed & 0xffffffff, seed >> 32)                         the request's 64-bit seed
    counter = (lane // 4, step << 8 | draw, pos & 0xffffffff, pos >> 32)
    number  = word lane % 4 of the result

``pos`` is the position of the row's input token, ``step`` the row's step in its request's block of
drafts, and ``draw`` what the number is for: 0 a token from the target or from the residual, 1 a
draft token, 2 an acceptance test. A draw of a token takes one lane a vocabulary entry, an acceptance
test takes lane 0.

A word w stands for the uniform number (w + 1/2) * 2^-32, which is never 0 and never 1. A token is
drawn by Gumbel-max: the argmax of log p + g with g = -log(-log(1 - u)), whose upper tail comes from
small u and so keeps the full resolution of 32 bits.
"""

from verispec.reference.contracts._model import Clause, Contract, Role, Tensor

_PAPER = "Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3"

CONTRACT = Contract(
    name="philox",
    family="shared",
    summary="Philox4x32-10: four random 32-bit words of a counter and a key.",
    axes={"N": "counters"},
    params=(
        Tensor("words", ("N", 4), ("int64",), "random words, from 0 to 2^32 - 1", role=Role.OUT, production="int64"),
        Tensor("counter", ("N", 4), ("int64",), "counters, a word from 0 to 2^32 - 1 each", production="int64"),
        Tensor("key", ("N", 2), ("int64",), "keys, a word from 0 to 2^32 - 1 each", production="int64"),
    ),
    clauses=(
        Clause("PHX-1", "The words are those of Philox4x32-10, bit for bit, on every platform.", _PAPER),
        Clause(
            "PHX-2",
            "The published known answers hold: counter and key of zeros, of ones, and of the digits of pi.",
            "Random123, kat_vectors, philox4x32 10",
        ),
        Clause(
            "PHX-3",
            "The counter of a draw is (lane // 4, step << 8 | draw, pos low, pos high), the key is the seed's low and "
            "high half, and its number is word lane % 4.",
            "contract: one layout everywhere",
        ),
        Clause(
            "PHX-4",
            "Draft tokens, acceptance tests and target tokens never share a counter, and neither do two steps.",
            "vllm#54282; vllm-ascend#16370; vllm 0.33.0 vllm.v1.worker.gpu.sample.gumbel.spec_step_seed",
        ),
        Clause("PHX-5", "A word w is the uniform number (w + 1/2) * 2^-32, above 0 and below 1.", "sglang#35771"),
        Clause("PHX-6", "Strides are honoured; no counters is a no-op.", "contract: tensors, not pointers"),
    ),
)
