"""generation: prompts in, tokens out, with the same text whatever is drafted."""

from verispec.reference.contracts._model import Clause, Contract

_PAPER = "Leviathan et al. 2023 (arXiv 2211.17192)"
STREAMED = "streamed tokens are not those of the result"
"""Fault of clause GEN-52, which a case of any clause may meet."""

CONTRACT = Contract(
    name="generation",
    family="generation",
    summary="Speculation changes only speed: greedy text is the target's own, sampled text follows its distribution.",
    axes={},
    params=(),
    clauses=(
        Clause(
            "GEN-1",
            "Every token of a greedy output is the target's most likely one after the tokens before it, or within the "
            "measured rounding of it.",
            "vllm#24771, vllm#35204: no share of matching outputs is good enough",
        ),
        Clause(
            "GEN-2",
            "A greedy output is the same with every proposer and every number of drafts, up to a tie within rounding.",
            f"{_PAPER}, theorem 1",
        ),
        Clause(
            "GEN-3",
            "A greedy output does not depend on the batch that it was made in, up to a tie within rounding.",
            "vllm#50979; requests are independent",
            is_relation=True,
        ),
        Clause(
            "GEN-4",
            "A greedy output does not depend on block size, prefill chunks or preemption, up to a tie within rounding: "
            "each token of text and drafts has its own slot in the blocks of its request.",
            "vllm#31540, vllm#46899",
        ),
        Clause(
            "GEN-5",
            "Each sampled token follows the target's distribution after the tokens before it, under temperature, "
            "top-k and top-p, independently of earlier tokens. No request has its own draws again, also where it was "
            "preempted; without a seed it has those of no other one and of no earlier call.",
            f"{_PAPER}, theorem 1; probability integral transform; NVIDIA/TensorRT-LLM#19487: calls with equal samples",
        ),
        Clause(
            "GEN-6",
            "Whole sequences follow the product of the target's distributions, whether the drafts of a step come one "
            "after another or in one pass.",
            f"{_PAPER}, theorem 1",
        ),
        Clause(
            "GEN-7",
            "A sampled request's first draft token is accepted with probability sum(min(p, q)), where p and q are the "
            "distributions of target and draft at that position.",
            f"{_PAPER}, corollary 3.6; vllm#40269",
        ),
        Clause(
            "GEN-8",
            "A configured proposer drafts: draft tokens are counted, accepted ones never exceed drafted ones, and "
            "the counts add up to the emitted tokens. A step without drafts is no verification.",
            "vllm#30319, vllm#44056, llama.cpp#25345",
            keeps_text=True,
            is_premise=True,
        ),
        Clause(
            "GEN-9",
            "A trained drafter has the acceptance rate of its training, at every draft position.",
            "vllm#50170: collapsed acceptance leaves text correct",
        ),
        Clause(
            "GEN-10",
            "Output ends at the first stop token, accepted draft tokens included, or at exactly max_tokens. Each end "
            "of sequence of the model is a stop token unless ignore_eos is set; those of the request are in either "
            "case. A stop token ends by stop, also as the last that max_tokens allows.",
            "transformers#31301",
        ),
        Clause(
            "GEN-11",
            "Prompts of any length work: one token, shorter than an n-gram, as long as a step with drafts, and up to "
            "the model's length limit.",
            "vllm#48894, sglang#18780",
        ),
        Clause(
            "GEN-12",
            "The same seed gives the same tokens, alone and in any batch, the last ones too, whatever numbers of "
            "drafts the requests beside it have.",
            "vllm#6034",
            is_relation=True,
        ),
        Clause(
            "GEN-13",
            "After a rejection the sequence continues after the last accepted token: positions and slots follow it, "
            "and keys and values of rejected draft tokens are never read.",
            "vllm#9730, transformers#30042: caches and positions that continued from a wrong place",
        ),
        Clause(
            "GEN-14",
            "Greedy drafting emits the drafter's most likely tokens after the whole text so far of the request itself, "
            "without rejected drafts, in a tree after each node's own path. The drafter reads each token once, one "
            "position and one slot after the token before it, at ends of chunks and blocks too. After a preemption it "
            "reads all of them again. An Eagle3 head reads the configured target layers, for later drafts its own last "
            "state before the norm, and maps its ids by d2t. A head's keys of verified tokens come from the target's "
            "states. A drafter has its own configuration, also where the target's differs.",
            "Li et al. 2025 (arXiv 2503.01840); sglang#32226, vllm#50170, NVIDIA-NeMo/Automodel#2447; sglang#26800: "
            "the wrong token at the end of a chunk; sglang#8409: nodes that read the keys of another branch; "
            "vllm#14649: keys of accepted drafts that stayed those of the head's own states",
            keeps_text=True,
        ),
        Clause(
            "GEN-15",
            "A preempted request drafts again when it resumes and never verifies its old draft tokens.",
            "vllm 0.33.0, Scheduler._preempt_request",
        ),
        Clause(
            "GEN-16",
            "Every step emits its accepted draft tokens, the last of its drafts too, and one target token: the "
            "recovered token at a rejection, else the bonus token.",
            f"{_PAPER}, algorithm 1",
        ),
        Clause(
            "GEN-17",
            "With a counter-based RNG, the seed, position and step alone determine each draft, acceptance and token, "
            "on every platform and regardless of batching, cache layout or preemption.",
            "contract philox; vllm#54282, vllm-ascend#16370",
        ),
        Clause(
            "GEN-18",
            "Only a request's allowed token ids are emitted, as accepted, as recovered and as bonus tokens; they limit "
            "no other request.",
            "vllm 0.33.0 vllm.v1.sample.sampler; RBLN-SW/vllm-rbln#1031",
        ),
        Clause(
            "GEN-19",
            "No bad word of emitted tokens is completed, wherever they meet a draft boundary. No other token and no "
            "other request is limited, and no token behind a part of a word's first tokens. Whether a word may begin "
            "in the prompt is left to the engine.",
            "vllm#52311, vllm#31908",
        ),
        Clause(
            "GEN-20",
            "No stop token of the request, its own or the model's, is emitted before its min_tokens tokens of "
            "output, the prompt not counted; after that one ends the output at once. Other requests stop as they would "
            "without.",
            "vllm 0.33.0 MinTokensLogitsProcessor: the limit may lie inside of a block of drafts",
        ),
        Clause(
            "GEN-21",
            "A logit bias is added, as the number that it is, to the logits of every token of its request, and of no "
            "other request.",
            "vllm 0.33.0 vllm.v1.sample.logits_processor",
        ),
        Clause(
            "GEN-22",
            "Penalties of either sign apply. Repetition penalties count each token of prompt and output once, presence "
            "penalties each one of the output once, frequency penalties each time. The drafts before a token count "
            "once, and rejected ones never. Penalties change no other request.",
            "Keskar et al. 2019 (arXiv 1909.05858); sglang#22049",
        ),
        Clause(
            "GEN-23",
            "Temperature, min-p, top-k and top-p of a request limit every token, accepted, recovered or bonus, of its "
            "own and of no other request. Limits change no greedy text.",
            "vllm#9834; Nguyen et al. 2024 (arXiv 2407.01082)",
        ),
        Clause(
            "GEN-24",
            "Parameters combine in one order: grammar, allowed ids, bad words, min tokens, logit bias, penalties, "
            "temperature, min-p, top-k, top-p.",
            "vllm 0.33.0 vllm.v1.sample.sampler.Sampler",
        ),
        Clause(
            "GEN-25",
            "The number of accepted drafts is that of the configured verification method and of the drafts' own "
            "distribution, given the text: token by token for standard, as one block for block.",
            "Leviathan et al. 2023; Sun et al. 2024 (arXiv 2403.10444), algorithm 2; vllm#40269",
        ),
        Clause(
            "GEN-26",
            "Block verification leaves the distribution of the text unchanged.",
            "Sun et al. 2024 (arXiv 2403.10444), theorem 1",
        ),
        Clause(
            "GEN-27",
            "Synthetic verification accepts drafts at the configured rate of every position, whatever their tokens, in "
            "every step anew, for greedy and for sampled requests, and the counters say so.",
            "contracts synthetic_rejection and resolve_synthetic_acceptance_rates; vllm#41035",
        ),
        Clause(
            "GEN-28",
            "Synthetic rates of zero accept nothing and leave the greedy text as it is; rates of one accept all.",
            "contract synthetic_rejection",
        ),
        Clause(
            "GEN-29",
            "Raw log-probabilities come one per token, accepted, recovered or bonus, and are those of the model's own "
            "logits at the token's place.",
            "vllm#29216, vllm#31082, vllm#30846",
        ),
        Clause(
            "GEN-30",
            "Processed log-probabilities come one per token, and are those of the token's own sampling distribution.",
            "vllm 0.33.0 LogprobsMode; vllm#42684",
        ),
        Clause(
            "GEN-31",
            "Prompt log-probabilities come one per prompt token after the first, whatever is drafted, however the "
            "prompt is cut into chunks, and if it is read anew after a preemption.",
            "vllm#53488, vllm#29071",
        ),
        Clause(
            "GEN-32",
            "The text ends before its first stop string, in the order of the text and not of the request. It may end "
            "inside of a block of accepted drafts. The token that completes the string is the last one, and ends the "
            "output by stop, also as the last that max_tokens allows.",
            "vllm 0.33.0 SamplingParams.stop; vllm#47616",
        ),
        Clause(
            "GEN-33",
            "The n samples of a prompt are independent draws of the target's own distribution.",
            "vllm 0.33.0 SamplingParams.n",
        ),
        Clause(
            "GEN-34",
            "Aborting a request keeps the tokens that it has, frees what it holds and changes no other request.",
            "vllm#9730: what rejected drafts leave behind",
        ),
        Clause(
            "GEN-35",
            "A prompt that was sent before gives the target's own text again, whatever is cached of it.",
            "vllm#46533, vllm#46899: padded draft tokens after a prefix-cache hit",
        ),
        Clause(
            "GEN-36",
            "Scheduling a step before the tokens of the last one are known changes no text.",
            "vllm#38419, vllm#43434",
        ),
        Clause(
            "GEN-37",
            "An option that is accepted takes effect, and changes no other option; what is not supported is refused.",
            "llama.cpp#25345; vllm#54843: options that were accepted and ignored",
        ),
        Clause(
            "GEN-38",
            "A configuration or a request that cannot work is refused before it starts, in words that name the option "
            "and the value; what runs goes on.",
            "vllm#44566, vllm#54498: start-up failures deep in the engine",
        ),
        Clause(
            "GEN-39",
            "Only tokens that a request's grammar allows are emitted, and it masks the rows of its own request and of "
            "no other: its state follows the drafts, and is that of the output again after a rejection or preemption.",
            "vllm 0.33.0 structured outputs under speculation; sglang#22049; vllm#22896: a neighbour lost all tokens",
        ),
        Clause(
            "GEN-40",
            "With tensor parallelism every rank emits the same tokens and accepts the same drafts, and the text is "
            "that of one rank.",
            "flagos-ai/vllm-plugin-FL#318, vllm#17498: random noise that differs between ranks",
        ),
        Clause(
            "GEN-41",
            "With sliding windows a query sees the last tokens of the window of its own layer alone, and all tokens in "
            "a layer without one, drafts that were verified or rejected at the edge included.",
            "Mistral's sliding window attention: a query sees as many tokens as the window has, itself included; "
            "transformers' layer_types: the kind of each layer; vllm#21863: the window in all layers",
        ),
        Clause(
            "GEN-42",
            "With a K for each batch size every step has the K of its batch; a K that the engine chooses grows while "
            "drafts are accepted, stays small where few are, and ends drafts that never are. A pause leaves texts and "
            "later drafts as they are.",
            "vllm 0.32.0 num_speculative_tokens_per_batch_size; Liu et al. 2024, arXiv 2406.14066",
        ),
        Clause(
            "GEN-43",
            "Each token of a request is the target's with the request's own LoRA adapter, scaled as its configuration "
            "says, drafts and the keys and values of every chunk of its prompt included, whatever adapters the "
            "requests beside and before it have.",
            "Hu et al. 2021 (arXiv 2106.09685); vllm#48421: requests without an adapter had the last one",
        ),
        Clause(
            "GEN-44",
            "With a draft tree the text is the target's own, and that of a sampled request follows its distribution: "
            "each node has the position of its depth, no token depends on a branch that was not accepted, and later "
            "ones read the keys of the accepted nodes. Each test and each draw has a random number of its own. A step "
            "lacks nodes only where they do not fit.",
            "Miao et al. 2023 (arXiv 2305.09781); vllm speculative_token_tree",
        ),
        Clause(
            "GEN-45",
            "The recurrent state of a hybrid target is that of all tokens so far, for prompts of every length, from "
            "each chunk of a prompt to the next, and after a rejection that of the accepted ones alone, whatever the "
            "preemptions and other requests; a new request starts from the empty state.",
            "vllm#39273, llama.cpp#20075: states that kept rejected drafts or were read at a wrong place; vllm#53051: "
            "a prompt of K + 1 tokens taken for a step that verifies K drafts; vllm#23279: chunks that began from "
            "a wrong state",
        ),
        Clause(
            "GEN-46",
            "Suffix decoding drafts the tokens that most often followed the text's suffix, in the text itself or in "
            "outputs so far: of all suffixes the draft with the most expected accepted tokens, within its limits. "
            "Tokens past K count for no choice. Of too many outputs the oldest go first. The least probability bounds "
            "each token together with the drafts before it.",
            "Oliaro et al. 2024 (arXiv 2411.04975); vllm 0.32.0 SuffixDecodingProposer",
            keeps_text=True,
        ),
        Clause(
            "GEN-47",
            "Parallel drafting proposes in one pass the most likely tokens at the sampled token and at the mask tokens "
            "behind it, and no later draft reads the keys of mask tokens.",
            "An et al. 2025 (arXiv 2504.18583); vllm 0.32.0 parallel_drafting",
            keeps_text=True,
        ),
        Clause(
            "GEN-48",
            "An MTP layer drafts from the target's state after the last layer, on the side of the final norm that its "
            "format has (MiMo: before it), and the embedding of the next token, at ends of chunks too. Each further "
            "draft is one position on and reads the layer's own output for the draft before it. Keys of verified "
            "tokens come from the target's states. The embedding at position 0 counts for every request or for none.",
            "DeepSeek-AI 2024 (arXiv 2412.19437), section 2.2; vllm 0.33.0 MiMoModel, whose output has no norm; "
            "llama.cpp#24025: the state on the other side of the norm; sglang#26800: the wrong token at the end of a "
            "chunk; vllm#14649: keys of accepted drafts that stayed those of the layer's own output",
            keeps_text=True,
        ),
        Clause(
            "GEN-49",
            "Each draft of prompt lookup is a token that followed the token before it in some text, and is verified "
            "for the request whose tokens it follows.",
            "Saxena 2023, Prompt Lookup Decoding; vllm#29779: drafts that another request of the batch got",
        ),
        Clause(
            "GEN-50",
            "Prompt lookup drafts what followed the longest suffix of ngram_min to ngram_max tokens that occurs "
            "earlier, in all steps by one rule: at its first place or at its last, places that overlap the suffix "
            "included.",
            "Saxena 2023, Prompt Lookup Decoding; vllm#15348: suffixes of the minimum length alone; vllm 0.33.0 "
            "NgramProposer: the first place",
            keeps_text=True,
        ),
        Clause(
            "GEN-51",
            "A request has its own parameters and seed, and none of those of a request before it: in the call before, "
            "or in its place of the batch.",
            "vllm 0.33.0 InputBatch.remove_request",
        ),
        Clause(
            "GEN-52",
            "The tokens that a caller hears of while a request runs, and their kinds, are those of its result, each "
            "once and in order; none of them lies behind its end.",
            "sglang#39826",
            fault=STREAMED,
        ),
    ),
    returns="the tokens of each request",
)
