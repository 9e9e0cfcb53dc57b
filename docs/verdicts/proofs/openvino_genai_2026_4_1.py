"""Texts of OpenVINO GenAI 2026.4.1 with drafts that should be those without, and are not.

    optimum-cli export openvino --model FIXTURES/models/target --task text-generation-with-past --weight-format fp32 T
    optimum-cli export openvino --model FIXTURES/models/draft --task text-generation-with-past --weight-format fp32 D
    python openvino_genai_2026_4_1.py T D

Seen on 2026-11-23 on Linux, with these exports and with models that verispec converts: the lines in the comments. The
three parts after them are of 2026-11-26, that of waiting prompts of 2026-11-29, the last of 2026-11-30, with converted
models.
"""

import sys

import numpy as np
import openvino
import openvino_genai as genai

TARGET, DRAFT = sys.argv[1:]
FLOAT32 = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
GREEDY = {"max_new_tokens": 40, "ignore_eos": True}
DRAFTED = {"num_assistant_tokens": 3}
LOOKUP = {"prompt_lookup": True}
LOOKED_UP = {"num_assistant_tokens": 3, "max_ngram_size": 3}


def drafting(blocks: int | None = None) -> dict[str, object]:
    """Return the option of a draft model, with KV blocks of its own if given; it serves one pipeline."""
    if blocks is None:
        return {"draft_model": genai.draft_model(DRAFT, "CPU", **FLOAT32)}
    scheduler = genai.SchedulerConfig()
    scheduler.num_kv_blocks = blocks
    return {"draft_model": genai.draft_model(DRAFT, "CPU", scheduler_config=scheduler, **FLOAT32)}


def pipeline(budget: int = 256, blocks: int = 0, **more: object) -> genai.ContinuousBatchingPipeline:
    """Return a pipeline; the default is 256 tokens per step and as many KV blocks as are needed."""
    scheduler = genai.SchedulerConfig()
    scheduler.max_num_batched_tokens, scheduler.num_kv_blocks = budget, blocks
    return genai.ContinuousBatchingPipeline(TARGET, scheduler, "CPU", {**FLOAT32, **more})


def texts(engine: genai.ContinuousBatchingPipeline, prompts: list[list[int]], **options: object) -> list[list[int]]:
    """Return the tokens after each prompt; all prompts run in one batch."""
    tensors = [openvino.Tensor(np.array([prompt], np.int64)) for prompt in prompts]
    results = engine.generate(tensors, [genai.GenerationConfig(**options) for _ in prompts])
    return [result.m_generation_ids[0] for result in results]


def prompts(count: int, length: int, seed: int = 1) -> list[list[int]]:
    """Return random prompts."""
    rows = np.random.default_rng(seed).integers(3, 60, (count, length))
    return [[int(token) for token in row] for row in rows]


def differ(one: list[list[int]], other: list[list[int]]) -> str:
    """Return how many texts differ."""
    return f"{sum(a != b for a, b in zip(one, other, strict=True))} of {len(one)} texts differ"


plain = pipeline(65536)
for name, count, length, budget, blocks in (
    ("80 requests", 80, 10, 256, 0),  # draft model: 13 of 80 texts differ; prompt lookup: none
    ("40 requests", 40, 10, 256, 0),  # none
    ("a budget of 10 tokens", 4, 10, 10, 0),  # draft model: 2 of 4, prompt lookup: 1 of 4
    ("11 KV blocks", 4, 64, 2048, 11),  # prompt lookup: Check 'get_max_new_tokens() >= generated_and_verified_len'
):
    asked = prompts(count, length)
    expected = texts(plain, asked, **GREEDY)
    for drafter, more, options in (("draft model", drafting(), DRAFTED), ("prompt lookup", LOOKUP, LOOKED_UP)):
        try:
            found = texts(pipeline(budget, blocks, **more), asked, **GREEDY, **options)
            print(f"greedy, {name}, {drafter}: {differ(expected, found)}")
        except RuntimeError as error:
            print(f"greedy, {name}, {drafter}: {str(error)[:100]}")

# Whose KV blocks run out: the target's 10 give 12 of 32 wrong texts, the draft model's 10 give none.
# In 11 of the 12 the first wrong token is the draft model's own: it was emitted without verification.
alone = genai.ContinuousBatchingPipeline(DRAFT, genai.SchedulerConfig(), "CPU", FLOAT32)
for owner, target_blocks, draft_blocks in (("the target", 10, 64), ("the draft model", 64, 10)):
    wrong = own = 0
    for seed in range(8):
        asked = prompts(4, 64, seed)
        expected = texts(plain, asked, **GREEDY)
        found = texts(pipeline(2048, target_blocks, **drafting(draft_blocks)), asked, **GREEDY, **DRAFTED)
        for prompt, right, text in zip(asked, expected, found, strict=True):
            if text != right:
                wrong += 1
                place = next(i for i in range(40) if text[i] != right[i])
                drafted = texts(alone, [prompt + right[:place]], max_new_tokens=1, ignore_eos=True)
                own += drafted[0][0] == text[place]
    print(f"greedy, 10 KV blocks for {owner}: {wrong} of 32 texts differ, {own} of them first by the drafted token")

# Prompts that wait for room in a step: 6 of 40, 1 of 3 and 6 of 8 texts differ; 5, 1 and 6 begin with the drafted one.
for count, length, budget in ((40, 32, 256), (3, 300, 256), (8, 32, 24)):
    asked = prompts(count, length)
    expected = texts(plain, asked, **GREEDY)
    found = texts(pipeline(budget, **drafting()), asked, **GREEDY, **DRAFTED)
    drafted = [texts(alone, [prompt], max_new_tokens=1, ignore_eos=True)[0][0] for prompt in asked]
    first = [text[0] for text in found]
    own = sum(a != b[0] and a == c for a, b, c in zip(first, expected, drafted, strict=True))
    what = f"{count} prompts of {length} tokens, a budget of {budget}"
    print(f"greedy, {what}: {differ(expected, found)}, {own} of them begin with the drafted token")

stops = {"max_new_tokens": 24, "min_new_tokens": 20, "eos_token_id": 2, "stop_token_ids": {2, 7, 8, 30, 31}}
for name, more, options in (("draft model", drafting(), DRAFTED), ("prompt lookup", LOOKUP, LOOKED_UP)):
    engine = pipeline(**more)
    lengths = [len(texts(engine, [prompt], **stops, **options)[0]) for prompt in prompts(12, 12, 0)]
    print(f"20 tokens at least, {name}: the shortest text has {min(lengths)}")

sampled = {"max_new_tokens": 40, "ignore_eos": True, "do_sample": True}
try:  # Check 'content_length <= prompt_ids.size() + m_generated_ids.size()' failed
    default = genai.LLMPipeline(TARGET, "CPU", **drafting(), **FLOAT32)
    for prompt in prompts(10, 64):
        default.generate(openvino.Tensor(np.array([prompt], np.int64)), genai.GenerationConfig(**sampled, **DRAFTED))
    print("sampled, LLMPipeline with a draft model: no error")
except RuntimeError as error:
    print("sampled, LLMPipeline with a draft model:", str(error)[:80])

# The second of three sampled tokens, over 4,000 seeds: the probability of the token that is most often second.
seconds = []
for more, options in (({}, {}), (drafting(), DRAFTED)):
    engine, counts = pipeline(65536, **more), np.zeros(2048)
    tensors = [openvino.Tensor(np.array([[5, 9, 17]], np.int64))] * 4000
    configs = [
        genai.GenerationConfig(max_new_tokens=3, ignore_eos=True, do_sample=True, rng_seed=seed, **options)
        for seed in range(4000)
    ]
    for result in engine.generate(tensors, configs):
        counts[result.m_generation_ids[0][1]] += 1
    seconds.append(counts / counts.sum())
likely = seconds[0].argsort()[::-1][:4]
print("second sampled token:", *(f"{token}: {seconds[0][token]:.3f} and {seconds[1][token]:.3f};" for token in likely))

# One seeded request, again and again in one pipeline: without drafts no text differs from the first.
# With a draft model 7 and 8 of 48 did, in two runs on 2026-11-24.
for name, more, options in (("no drafts", {}, {}), ("draft model", drafting(), DRAFTED)):
    engine, others = pipeline(**more), 0
    for seed in range(16):
        asked = {"max_new_tokens": 24, "ignore_eos": True, "do_sample": True, "rng_seed": seed, **options}
        first, *again = (texts(engine, [[5, 9, 17]], **asked)[0] for _ in range(4))
        others += sum(text != first for text in again)
    print(f"sampled, the same seed again, {name}: {others} of 48 texts differ")

# Stop tokens that are the likeliest first tokens: texts that go on after one of them. Without drafts and with prompt
# lookup none does; with a draft model 21 of 80 do at a budget of 26 tokens per step, and 2 at the default of 256.
asked = prompts(80, 10)
ends = {text[0] for text in texts(plain, asked, max_new_tokens=1, ignore_eos=True)}
ending = {"max_new_tokens": 24, "eos_token_id": min(ends), "stop_token_ids": ends}
for budget in (65536, 256, 26):
    for name, more, options in (
        ("no drafts", {}, {}),
        ("draft model", drafting(), DRAFTED),
        ("prompt lookup", LOOKUP, LOOKED_UP),
    ):
        found = texts(pipeline(budget, **more), asked, **ending, **options)
        late = sum(not ends.isdisjoint(text[:-1]) for text in found)
        print(f"greedy, {budget} tokens per step, {name}: {late} of 80 texts go on after a stop token")

# A stop token that is the likeliest ninth token, and at least 8 tokens: with the target as its own draft model the stop
# token stays forbidden too long in 32 of 40 texts; with another draft model, 7 texts are too short, and 3 too long.
asked = prompts(40, 12, 0)
ninths = [text[8] for text in texts(plain, asked, max_new_tokens=24, ignore_eos=True)]
for name, model in (("itself", TARGET), ("another", DRAFT)):
    engine = pipeline(draft_model=genai.draft_model(model, "CPU", **FLOAT32))
    early = late = 0
    for prompt, stop in zip(asked, ninths, strict=True):
        bounds = {"max_new_tokens": 24, "min_new_tokens": 8, "eos_token_id": stop, "stop_token_ids": {stop}}
        [expected] = texts(plain, [prompt], **bounds)
        [text] = texts(engine, [prompt], **bounds, **DRAFTED)
        early, late = early + (len(text) < 8), late + (len(text) > len(expected))
    print(f"8 tokens at least, the draft model is {name}: {early} of 40 texts are shorter, {late} end too late")

# KV blocks that run out with prompt lookup: 2 of 16 texts have tokens of -1.
unknown = 0
for seed in range(4):
    found = texts(pipeline(2048, 12, **LOOKUP), prompts(4, 64, seed), **GREEDY, **LOOKED_UP)
    unknown += sum(-1 in text for text in found)
print(f"greedy, 12 KV blocks, prompt lookup: {unknown} of 16 texts have tokens of -1")

# A request that its caller cancels where the others find no free KV block: with 3 blocks all others are ignored.
# With 4, or when none is cancelled, none is.
for blocks, after in ((3, None), (3, 11), (4, 11)):
    scheduler = genai.SchedulerConfig()
    scheduler.max_num_batched_tokens, scheduler.num_kv_blocks, scheduler.max_num_seqs = 16, blocks, 2
    engine = genai.ContinuousBatchingPipeline(TARGET, scheduler, "CPU", FLOAT32)
    tensors = [openvino.Tensor(np.array([prompt], np.int64)) for prompt in prompts(4, 26)]
    config = genai.GenerationConfig(max_new_tokens=14, ignore_eos=True)
    handles = [engine.add_request(number, tensor, config) for number, tensor in enumerate(tensors)]
    told = [0] * 4
    while engine.has_non_finished_requests():
        engine.step()
        for number, handle in enumerate(handles):
            while handle.can_read():
                told[number] += sum(len(output.generated_ids) for output in handle.read().values())
        if told[0] == after and handles[0].get_status() == genai.GenerationStatus.RUNNING:
            handles[0].cancel()
    ignored = sum(handle.get_status() == genai.GenerationStatus.IGNORED for handle in handles[1:])
    end = "runs to its end" if after is None else f"is cancelled after {after} tokens"
    print(f"no drafts, {blocks} KV blocks, the first of 4 requests {end}: {ignored} of the others are ignored")
