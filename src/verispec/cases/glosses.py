"""The meaning of every parameter of a case id, and of the values that do not explain themselves."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Gloss:
    """The meaning of a parameter.

    Attributes:
        text: a noun phrase.
        values: meaning of values, by value; other values mean themselves.
    """

    text: str
    values: dict[str, str] = field(default_factory=dict, hash=False)

    def of(self, value: str) -> str:
        """Return the meaning of the parameter with `value`."""
        return f"{self.text}: {self.values[value]}" if value in self.values else self.text


_FIRST = {"first": "the first one", "middle": "one in the middle", "last": "the last one"}
_DTYPES = {
    "production": "the dtypes that the engine's caller passes",
    "mixed": "int32 and int64 in turn",
    "swapped": "int64 and int32 in turn",
}

GLOSSES: dict[str, Gloss] = {
    "above": Gloss("distance of u above p/q"),
    "accepted": Gloss(
        "drafts that every verification accepts",
        {"first": "the first one", "two": "the first two"},
    ),
    "adapters": Gloss(
        "LoRA adapters of the requests in a batch",
        {"several": "each has one of two", "several and none": "some have one of two, others none"},
    ),
    "after": Gloss(
        "what a request follows",
        {"a call": "another call of the engine", "a request": "one that had its place of the batch before"},
    ),
    "agree": Gloss("share of the nodes whose argmax is the token of one of their children"),
    "at": Gloss("place of the tested value, such as a position of the draft or a tensor"),
    "axis": Gloss(
        "axis along which elements lie past 2^31",
        {"first": "the first axis, the rows", "others": "each other axis in turn"},
    ),
    "b": Gloss("requests in the batch"),
    "batch": Gloss("requests of the batch", {"mixed": "greedy and sampled ones"}),
    "beyond": Gloss("distance of the draft token's id from the vocabulary size"),
    "bits": Gloss("bits of the random numbers u, p and q"),
    "block": Gloss("block size of the KV cache or of the kernel, or a block id, in the clauses that speak of blocks"),
    "block_id": Gloss("id of the KV block"),
    "block_size": Gloss("positions per KV block"),
    "body": Gloss("malformed body of the HTTP request"),
    "budget": Gloss("maximum number of tokens to generate (max_tokens)"),
    "calls": Gloss("calls of the engine that are compared"),
    "change": Gloss("difference between two batches in which one request must get the same tokens"),
    "check": Gloss("the part of the clause that the case checks, in words"),
    "clients": Gloss("behaviour of the server's clients", {"leave": "some disconnect before their answer ends"}),
    "columns": Gloss("columns of the output or of the block table, beyond the needed ones where a clause says so"),
    "configuration": Gloss("configuration that the engine must reject, or answer without a wrong token"),
    "counters": Gloss("counters of the random number generator in one call"),
    "counts": Gloss(
        "draft tokens of each request",
        {
            "one": "a single request",
            "even": "the same number for all",
            "ragged": "another number for each",
            "gaps": "requests without drafts between others",
            "none": "no request has drafts",
            "empty": "no request",
            "longest": "up to the most that a request may have",
            "wide": "many requests with one draft each",
        },
    ),
    "cu": Gloss("dtype of the cumulative counts"),
    "depth": Gloss("maximum draft tokens of a path in a draft tree"),
    "draft": Gloss(
        "draft distribution, drafter, or size of the draft's vocabulary",
        {
            "present": "draft probabilities are passed",
            "absent": "no draft probabilities, as with n-gram drafts",
            "none": "no drafter",
        },
    ),
    "drafter": Gloss(
        "model that drafts",
        {"target": "the target itself", "sure": "one that gives its likeliest token more than 0.9"},
    ),
    "drafts": Gloss("draft tokens per request"),
    "draw": Gloss("purpose of a random number", {"accept": "the acceptance test"}),
    "drawn": Gloss(
        "how the children of a node were drafted",
        {
            "given": "not drawn at random",
            "alike": "drawn from one distribution each time",
            "different": "drawn without replacement",
        },
    ),
    "dtype": Gloss("dtype of the op's main tensor"),
    "edge": Gloss("limit at which the text ends"),
    "end": Gloss("end of the range of random words"),
    "extra": Gloss("elements of the buffers past the last count"),
    "family": Gloss(
        "kind of sampler; flat without it",
        {
            "request_state": "random numbers by seed and position, kernels over slots",
            "fused": "raw logits to tokens in one launch",
            "block": "block verification",
        },
    ),
    "finite": Gloss("tokens of a row that a mask leaves possible"),
    "first": Gloss("draft tokens of the first request"),
    "form": Gloss("form of the served answer, such as streamed"),
    "gap": Gloss("distance in logits between the draft's first token and all others"),
    "given": Gloss("which of the two options is given; exactly one must be"),
    "heat": Gloss("temperature", {"cold": "nearly 0 for all", "mixed": "another one per request"}),
    "history": Gloss("tokens of the requests before the step"),
    "hostile": Gloss("values in the part of the row that must not win"),
    "ids": Gloss("dtypes of the tensors of integers", _DTYPES),
    "infinite": Gloss("tokens with the logit plus infinity"),
    "interleave": Gloss("consecutive positions on one rank"),
    "k": Gloss("top-k of the requests", {"mixed": "another one per request", "random": "another one per row"}),
    "layout": Gloss(
        "layout of the tensors in memory",
        {
            "dense": "contiguous",
            "gapped": "a gap after each element",
            "padded": "a gap after each row",
            "shifted": "contiguous, at an odd address",
            "transposed": "column major",
        },
    ),
    "left": Gloss(
        "possible tokens of a row; all others have probability 0",
        {"ends": "three at an end", "few": "two to five", "range": "a range"},
    ),
    "length": Gloss("sequence length, prompt length, or mean accepted length, as the clause says"),
    "lengths": Gloss("tokens of each request of the batch"),
    "limit": Gloss("limits of the requests"),
    "limited": Gloss("whether requests have top-k and top-p"),
    "limits": Gloss("limits of the requests: top-k, top-p, min-p or a mask"),
    "links": Gloss("wrong links of a draft tree"),
    "lost": Gloss("ancestor that is not selected"),
    "logits": Gloss("dtype or values of the logits"),
    "max_tokens": Gloss("maximum number of tokens of the served answer"),
    "feature": Gloss("feature of a request that is paired with every other feature, one request per pair"),
    "memory": Gloss(
        "settings of the KV cache and the scheduler",
        {
            "blocks of 32, chunks of 24": "blocks of 32 positions, prompts in chunks of 24",
            "budget of 10": "ten tokens per step",
            "chunks of 5": "steps of five tokens, and one request at a time",
            "budget of 10 for three": "ten tokens per step, and three requests at a time",
            "model limit": "texts end at max_model_len",
            "one sequence": "as many blocks as one sequence of the maximum length needs",
            "preemption": "so few blocks that requests are preempted",
            "preemption, chunks of 24": "so few blocks that requests are preempted, prompts in chunks of 24",
        },
    ),
    "method": Gloss("rejection_sample_method of the engine"),
    "mode": Gloss(
        "kind of case, or mode of the op",
        {
            "generated": "calls that Hypothesis writes",
            "law": "frequencies against exact probabilities",
            "plain": "the call of the engine's usual caller",
            "other": "the op's second mode, such as acceptance by configured rates",
            "bare": "the call without draft probabilities, or with the second of two limits alone",
            "both": "the second mode beside draft probabilities, or the first of two limits alone",
            "standard": "acceptance by probabilities",
            "synthetic": "acceptance by configured rates",
            "raw": "log-probabilities of the raw logits",
            "processed": "log-probabilities after temperature, limits and penalties",
        },
    ),
    "n": Gloss("draft tokens per step"),
    "nan": Gloss("the argument that is NaN"),
    "node": Gloss("node of a draft tree"),
    "noise": Gloss("dtype of the exponential noise"),
    "number": Gloss("random number at an end of its range"),
    "offset": Gloss("number added to all logits, which changes no probability"),
    "op": Gloss("op whose callable is bound to its callers"),
    "option": Gloss("option of the generator that is probed"),
    "others": Gloss("other requests in the batch, or how many", {"none": "the request is alone"}),
    "p": Gloss("top-p of the requests, or new slots per request", {"mixed": "another one per request"}),
    "padding": Gloss("place of the padding rows in the batch", _FIRST),
    "parameter": Gloss("parameters of the request"),
    "part": Gloss("part of the combinations, so that one process does not run all of them; its number means no more"),
    "pause": Gloss("tokens that each other request emits before it ends, while the batch has no drafts"),
    "peak": Gloss("height of the most likely logit above the others"),
    "penalty": Gloss("penalty of the request"),
    "place": Gloss("place of the tested draft token in its request", _FIRST | {"first row": "the batch's first row"}),
    "position": Gloss("position of a token in its request"),
    "probability": Gloss("probability of the rare tokens"),
    "prompts": Gloss("prompts of the requests"),
    "rank": Gloss("this rank of the group"),
    "ranks": Gloss("ranks of the context-parallel or tensor-parallel group"),
    "rate": Gloss("configured acceptance rate"),
    "rates": Gloss(
        "configured acceptance rates per position",
        {"standard": "none, acceptance by probabilities", "synthetic": "random rates"},
    ),
    "ratio": Gloss("p/q beside u, or the logarithm of the accepted prefix's ratio"),
    "rejected": Gloss("rejected tokens at the end of each request"),
    "relation": Gloss(
        "two calls that must agree",
        {
            "permuted": "the batch in another order",
            "split": "the batch in two parts",
            "injective": "two inputs give two outputs",
        },
    ),
    "request_": Gloss("request that the engine must reject, or answer without a wrong token"),
    "requests": Gloss("requests of the batch, mostly their number"),
    "row": Gloss("values of the tested row"),
    "rows": Gloss("number of rows, or the rows with special values and which"),
    "rule": Gloss("limits of the rows", {"k": "top-k alone", "p": "top-p alone", "both": "top-k and top-p"}),
    "samples": Gloss("samples per served request"),
    "sampled": Gloss("sampled tokens per request"),
    "sampler": Gloss(
        "sampler of the generation",
        {"flat": "a generator per request", "request_state": "random numbers by seed and position"},
    ),
    "sampling": Gloss(
        "choice of tokens", {"seeded": "sampled, with a seed per request", "drawn": "sampled, as a statistical test"}
    ),
    "seeds": Gloss("seeds of the requests"),
    "shift": Gloss("whether the target's tokens move one place to the left"),
    "size": Gloss(
        "size that the case is about",
        {
            "large": "production sizes: a vocabulary of 151,936, or tensors of gigabytes",
            "tokens": "number of draft tokens of a request",
            "vocabulary": "vocabulary size",
            "parallel": "work for several threads",
        },
    ),
    "spare": Gloss("elements of the output past the last one to write"),
    "spread": Gloss(
        "spread of the logits",
        {"peaked": "few likely tokens", "flat": "many", "equal": "all alike", "quantised": "many, in groups of equals"},
    ),
    "step": Gloss("place of the rejection in the request", {"bonus": "all drafts were accepted"}),
    "steps": Gloss("draft steps that the draft's logits hold"),
    "stop": Gloss("what ends the text"),
    "stream": Gloss("whether the answer is streamed"),
    "style": Gloss("sampling parameters of the served requests"),
    "t": Gloss("columns of sampled tokens per request"),
    "tail": Gloss("padding tokens after the last request"),
    "target": Gloss(
        "target model, or size of the target's vocabulary",
        {
            "tiny": "the small trained model",
            "hybrid": "a trained model of attention and recurrent layers",
            "windowed": "a target with sliding windows",
            "mixed windows": "a target of which every second layer has a sliding window",
            "witness": "a target whose every row is known",
        },
    ),
    "temperature": Gloss("temperature of the requests"),
    "thresholds": Gloss("threshold_single and threshold_acc"),
    "threads": Gloss("threads of the kernel"),
    "ties": Gloss("tokens with equal logits"),
    "token": Gloss("id of the tested draft token"),
    "top": Gloss("most likely tokens whose log-probabilities are wanted"),
    "topk": Gloss("candidates drafted from each beam"),
    "tree": Gloss("shape of the draft tree", {"any": "each node below any earlier one", "star": "all below the root"}),
    "u": Gloss("uniform random number of the acceptance test, its dtype, or its place beside the rate"),
    "valid": Gloss("valid tokens per request"),
    "value": Gloss("value to expand"),
    "vector": Gloss("published test vector of the random number generator"),
    "vocab": Gloss("vocabulary size"),
    "width": Gloss("width or sign of the seed"),
    "work": Gloss("what there is much of, so that threads share it", {"rows": "wide rows", "tokens": "many requests"}),
    "zero": Gloss("tokens whose probability is 0"),
}
"""Glosses by parameter name."""


def meaning(name: str, value: str) -> str:
    """Return the meaning of a parameter with a value; empty for a parameter of a suite of the user's own."""
    return GLOSSES[name].of(value) if name in GLOSSES else ""
