"""every_op: what holds for each op whatever it computes; cases are made for every op by one suite."""

from verispec.reference.contracts._model import Clause, Contract

_DESIGN = "contract: an op is a function of its arguments"

CONTRACT = Contract(
    name="every_op",
    family="every",
    summary="Give the oracle's answer at every size, number of threads, dtype and layout, and at every call.",
    axes={},
    params=(),
    clauses=(
        Clause(
            "ANY-1",
            "Sizes at, below and above the implementation's own block sizes, tile edges and thresholds give the "
            "oracle's answer.",
            "vllm-ascend#4441: a fixed BLOCK_SIZE smaller than a request",
        ),
        Clause("ANY-2", "Any number of requests gives the oracle's answer for every one of them.", _DESIGN),
        Clause("ANY-3", "The number of threads changes no answer.", _DESIGN),
        Clause(
            "ANY-4",
            "A call depends on its arguments alone: not on earlier calls, nor on what its buffers held.",
            "vllm#43434, vllm#53488: stale or shared buffers",
        ),
        Clause(
            "ANY-5",
            "At every comparison of the oracle, operands that are equal, just below and just above are decided as "
            "the oracle decides them.",
            _DESIGN,
        ),
        Clause(
            "ANY-6", "Accepted dtypes, layouts, sizes and modes give the oracle's answer in any combination.", _DESIGN
        ),
        Clause("ANY-7", "An output that may be the memory of an input gives the same answer when it is.", _DESIGN),
        Clause(
            "ANY-8",
            "An end-to-end sampler and a generator leave every field of their batch and requests unchanged, bit for "
            "bit.",
            "vllm#53488: buffers that others still read",
            forbids="input changed",
        ),
        Clause("ANY-9", "An op writes to no input, not even to put it back; others may read it meanwhile.", _DESIGN),
        Clause("ANY-10", "Calls keep neither memory nor threads.", _DESIGN),
        Clause(
            "ANY-11",
            "Another process gives the same answers, whatever its number and the seed of its hashes.",
            "vllm-plugin-FL#318: ranks that disagree",
        ),
        Clause(
            "ANY-12",
            "Elements past 2^31 of their tensor are found along every axis: no product of an index and a stride is "
            "computed in 32 bits.",
            "vllm#47383",
            fault="elements past 2^31 missed",
        ),
        Clause(
            "ANY-13",
            "The smallest and the largest random numbers decide as the oracle's do: none becomes 0, 1 or a number of "
            "fewer bits.",
            "PHX-5; sglang#35771",
        ),
        Clause(
            "ANY-14",
            "Rows of which few tokens are possible, in any part of the vocabulary, give the oracle's answer.",
            "vllm#42779: padded heads; grammars",
        ),
        Clause(
            "ANY-15",
            "A draft that both models give a small probability is decided by their quotient: no number is added to "
            "one, and none has a floor.",
            "RRS-1; an epsilon beside a draft's probability is common in engines",
        ),
        Clause(
            "ANY-16",
            "A scalar means its value, also where an element of a tensor equals it: it marks no element.",
            "vllm 0.33.0 pads with token 0, which is a token of every vocabulary",
        ),
    ),
    returns="nothing: each op is tested by suites/sampler/test_every_op.py",
)
