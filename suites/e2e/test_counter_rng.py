"""Sampled generation with the counter-based RNG: a seed decides the text, on every platform (contract GEN)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from verispec import fixtures
from verispec.cases import case
from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import GenerationRequest
from verispec.judge import Inconclusive, Kind
from verispec.suites.e2e._counter_rng import Definition
from verispec.suites.e2e._lookup import looked_up
from verispec.suites.e2e._parameters import check_tokens
from verispec.suites.e2e._reference_model import ReferenceModel, reference_head, reference_model
from verispec.suites.e2e._setups import CUT, DRAFTERS, LAYOUTS, Load, options_of, require, with_steps
from verispec.suites.e2e._tiny import VOCAB

TARGET = fixtures.model("target")
LENGTH = 20
TEXTS = 4
METHODS = ["none", "ngram k=3", "draft_model k=3", "draft_model parallel k=1", "eagle3 k=1", "mtp k=1"]
"""The reference model of a head knows first drafts only, since later ones read the head's own states; so with masks."""


@case("GEN-17", draft=METHODS, sampler="request_state", memory=[None, *LAYOUTS], reach="a request with a seed")
def test_a_seed_decides_the_text(load: Load, prompts: Any, seed: int, draft: str, memory: str | None) -> None:
    """Each decision is compared with the numbers of the request's seed, the position and the step.

    Greedy requests stand among the sampled ones, and prompts repeat a phrase, so that prompt lookup finds drafts and
    some are rejected. The phrase of the last one returns after other
    text, 150 tokens long but where memory is short, and 406 where it is looked up. Seeds differ in their upper 32 bits
    too; one is below 0, and one is 2^63 or above. In chunks, a head reads the first token of the next one.
    """
    between = prompts[0][:24] if memory else (*prompts[0], *prompts[1], *prompts[2][:22])
    if draft.startswith("ngram") and not memory:
        between = (*prompts[3], *prompts[4], *prompts[5], *prompts[6], *between)
    asked = [
        GenerationRequest(
            (*prompt[:24], *(between if n == TEXTS - 1 else prompt[:24]), *prompt[:8]),
            max_tokens=LENGTH,
            temperature=(0.6, 1.0, 1.4)[n % 3],
            ignore_eos=True,
            seed=(seed + 1000 * n + (n << 36)) % 2**63 + (0, -(2**63), 2**63, 0)[n % 4],
        )
        for n, prompt in enumerate(prompts[24 : 24 + TEXTS])
    ]
    greedy = [GenerationRequest(prompt[:24], max_tokens=LENGTH, ignore_eos=True) for prompt in prompts[:2]]
    results = load(draft, memory or "", sampler="request_state").generate([greedy[0], *asked, greedy[1]])
    if memory == "preemption" and not any(result.preemptions for result in results):
        raise UnsupportedCall("the engine does not report preemptions")
    options = options_of(draft)
    most = options.get("num_speculative_tokens", 0)
    judged = 0
    for n, (request, result) in enumerate(zip(asked, with_steps(results[1:-1]), strict=True)):
        proposer: dict[str, Any] = {"drafter": drafter(draft), "most": most}
        if options["method"] == "ngram":
            proposer["known"] = lambda sequence: looked_up(sequence, 2, 4, most)
        definition = Definition(request, result.token_ids, reference_model(TARGET), **proposer)
        judged += definition.judge(result, f"prompt {n}")
    if draft != "none" and not judged:
        raise Inconclusive("no draft was verified")


@case("GEN-17", draft="draft_model k=6", sampler="request_state", reach="a request with a seed")
def test_a_seed_decides_long_chains(load: Load, prompts: Any, seed: int) -> None:
    test_a_seed_decides_the_text(load, prompts, seed, "draft_model k=6", None)


@case(
    "GEN-17",
    draft=["ngram k=3", "draft_model k=3"],
    sampler="request_state",
    memory=CUT,
    reach="steps without room for the drafts of all requests",
)
def test_a_small_step_cuts_no_drafts(load: Load, prompts: Any, seed: int, draft: str) -> None:
    """Steps have room for the drafts of two of three requests, or of one of two: the last one waits.

    A shorter chain would draw other numbers. Prompts are short, so that most steps read drafts alone.
    """
    proposer: dict[str, Any] = {"drafter": drafter(draft), "most": 3}
    if draft.startswith("ngram"):
        proposer["known"] = lambda sequence: looked_up(sequence, 2, 4, 3)
    small: dict[str, Any] = {"max_num_batched_tokens": 7}
    for chosen, memory, options in ((prompts[40:46], CUT, {}), (prompts[3:5], "", small)):
        asked = [
            GenerationRequest(
                (*prompt[: 4 + n], *prompt[: 3 * (n % 2)]),
                max_tokens=LENGTH,
                temperature=1.0,
                ignore_eos=True,
                seed=seed + n,
            )
            for n, prompt in enumerate(chosen)
        ]
        results = load(draft, memory, sampler="request_state", **options).generate(asked)
        for n, (request, result) in enumerate(zip(asked, with_steps(results), strict=True)):
            definition = Definition(request, result.token_ids, reference_model(TARGET), **proposer)
            definition.judge(result, f"prompt {n} of {len(asked)}, whose drafts do not all fit a step")


@case(
    "GEN-17",
    draft="draft_model k=16",
    sampler="request_state",
    memory="model limit",
    reach="requests that reach max_model_len",
)
def test_chains_that_pass_the_model_limit(load: Load, prompts: Any, seed: int) -> None:
    """The last drafts of a chain have positions past the longest sequence; they leave the request's own keys alone."""
    draft, length = "draft_model k=16", 64
    asked = [
        GenerationRequest(
            prompt[:24], max_tokens=length - 24, temperature=(0.6, 1.0, 1.4)[n % 3], ignore_eos=True, seed=seed + n
        )
        for n, prompt in enumerate(prompts[24:30])
    ]
    results = with_steps(load(draft, sampler="request_state", max_model_len=length).generate(asked))
    for n, (request, result) in enumerate(zip(asked, results, strict=True)):
        definition = Definition(request, result.token_ids, reference_model(TARGET), drafter(draft), most=16)
        definition.judge(result, f"prompt {n}")


@case("GEN-17", draft="draft_model parallel k=8", rate=1, sampler="request_state", reach="a request with a seed")
def test_parallel_drafts_have_numbers_of_their_own(load: Load, prompts: Any, seed: int) -> None:
    """Synthetic rates of 1 emit every draft, from almost flat rows of 2,048 tokens at a temperature of 60.

    Four equal ones among the eight of a step have a chance of C(8, 4) / 2048^3 = 8e-9, in at most twelve steps.
    """
    generator = load(
        "draft_model parallel k=8",
        sampler="request_state",
        rejection_sample_method="synthetic",
        synthetic_acceptance_rates=(1.0,) * 8,
    )
    asked = [
        GenerationRequest(prompt[:12], max_tokens=19, temperature=60.0, ignore_eos=True, seed=seed + n)
        for n, prompt in enumerate(prompts[:4])
    ]
    whole = 0
    for n, result in enumerate(with_steps(generator.generate(asked))):
        place = 0
        for step in result.steps:
            drafts = result.token_ids[place : place + step.accepted]
            most = max(map(drafts.count, drafts), default=0)
            told = f"request {n}: a step of drafts {list(drafts)} has a token {most} times"
            require(most < 4, f"{told}, as if its drafts had one random number", Kind.LAW)
            whole += len(drafts) == 8
            place += step.accepted + 1
    if not whole:
        raise Inconclusive("no step accepted eight drafts")


@case("GEN-17", draft="draft_model k=3", sampler="request_state", memory="two blocks", reach="short requests")
def test_a_short_request_that_resumes_drafts_first(load: Load, prompts: Any, seed: int) -> None:
    """Two blocks of 32 tokens hold a request of 24 tokens and one of two, until the first one grows into both.

    The second one then has fewer than a dozen tokens. It starts again, and its numbers are those of a text that was
    never interrupted.
    """
    options: dict[str, Any] = {"block_size": 32, "num_blocks": 3, "max_num_seqs": 2, "max_model_len": 64}
    preempted = 0
    for n in range(3):
        generator = load("draft_model k=3", sampler="request_state", **options)
        asked = [
            GenerationRequest(
                prompts[n][start:end], max_tokens=LENGTH, temperature=1.0, ignore_eos=True, seed=seed + 10 * n + start
            )
            for start, end in ((0, 24 + n), (30, 32))
        ]
        for request, result in zip(asked, with_steps(generator.generate(asked)), strict=True):
            definition = Definition(
                request, result.token_ids, reference_model(TARGET), drafter("draft_model k=3"), most=3
            )
            definition.judge(result, f"a prompt of {len(request.prompt_token_ids)} tokens")
            preempted += result.preemptions
    if not preempted:
        raise UnsupportedCall("the engine does not report preemptions")


def drafter(draft: str) -> ReferenceModel | None:
    name = draft.partition(" k=")[0]
    if name not in DRAFTERS:
        return None
    folder = fixtures.model(DRAFTERS[name])
    return reference_model(folder) if name.startswith("draft_model") else reference_head(folder, TARGET)


FILTERS: list[dict[str, Any]] = [{}, {"top_p": 0.15}, {"top_k": 1}, {"min_p": 0.9}, {}, {"top_k": 2}, {"top_p": 0.1}]
"""Limits of requests that follow each other in a slot; two of them have none."""


@case("GEN-17", draft=["none", "ngram k=3"], sampler="request_state", check="slots", reach="a request after another")
def test_a_slot_forgets_its_last_request(load: Load, prompts: Any, seed: int, draft: str) -> None:
    """Two slots serve fourteen requests in two calls, then two more one by one.

    Requests without limits follow those with narrow ones. A request alone has the place of the one before it in its
    call, and its slot.
    """
    generator = load(draft, sampler="request_state", max_num_seqs=2)
    most = options_of(draft).get("num_speculative_tokens", 0)
    known = (lambda sequence: looked_up(sequence, 2, 4, most)) if draft != "none" else None
    for call, places in enumerate((range(7), range(7), range(2, 3), range(2, 3))):
        asked = [
            GenerationRequest(
                (*prompt[:12], *prompt[:12]),
                max_tokens=10,
                temperature=(0.8, 1.7)[(n + call) % 2],
                ignore_eos=True,
                seed=seed + 100 * call + n,
                **FILTERS[(n + 3 * call) % len(FILTERS)],
            )
            for n, prompt in ((n, prompts[24 + n]) for n in places)
        ]
        for n, request, result in zip(places, asked, with_steps(generator.generate(asked)), strict=True):
            what = f"request {n} of call {call}"
            if FILTERS[(n + 3 * call) % len(FILTERS)]:
                check_tokens(reference_model(TARGET), request, result, what)
            else:
                definition = Definition(request, result.token_ids, reference_model(TARGET), known=known, most=most)
                definition.judge(result, what)


@case("GEN-17", draft="draft_model k=3", sampler="request_state", check="slots", reach="a request after another")
def test_a_slot_keeps_the_drafts_of_its_request(load: Load, prompts: Any, seed: int) -> None:
    """A long request has the last of three slots, while short ones come and go in the others.

    A short request drafts nothing in its last steps, in which the long one drafts.
    """
    draft = "draft_model k=3"
    asked = [
        GenerationRequest(prompts[24 + n][:12], max_tokens=length, temperature=1.2, ignore_eos=True, seed=seed + n)
        for n, length in enumerate((3, 4, 30, 5, 2, 7, 3))
    ]
    results = load(draft, sampler="request_state", max_num_seqs=3).generate(asked)
    for n, (request, result) in enumerate(zip(asked, with_steps(results), strict=True)):
        definition = Definition(request, result.token_ids, reference_model(TARGET), drafter=drafter(draft), most=3)
        definition.judge(result, f"request {n}")


MATCHES = {"lookup": (2, 4), "lookup of one token": (1, 1)}
"""Lengths of the suffixes that prompt lookup may match."""


@case(
    "GEN-17",
    target="tiny",
    draft="ngram k=3",
    sampler="request_state",
    check=list(MATCHES),
    reach="prompts in which a suffix occurs several times",
)
def test_the_latest_of_several_matches_is_drafted(load: Load, tiny: dict[str, Path], seed: int, check: str) -> None:
    """Prompts of 24 to 35 tokens out of seven: every suffix of two tokens stands at several places, before others."""
    shortest, longest = MATCHES[check]
    rng = np.random.default_rng(seed)
    asked = [
        GenerationRequest(
            tuple(rng.integers(1, VOCAB, 24 + n).tolist()),
            max_tokens=LENGTH,
            temperature=1.0,
            ignore_eos=True,
            seed=seed + n,
        )
        for n in range(12)
    ]
    lengths: dict[str, Any] = {} if check == "lookup" else {"ngram_min": shortest, "ngram_max": longest}
    results = load("ngram k=3", target=tiny["target"], sampler="request_state", **lengths).generate(asked)
    for n, (request, result) in enumerate(zip(asked, with_steps(results), strict=True)):
        definition = Definition(
            request,
            result.token_ids,
            reference_model(tiny["target"]),
            known=lambda sequence: looked_up(sequence, shortest, longest, 3),
            most=3,
        )
        definition.judge(result, f"prompt {n}")


@case("GEN-17", draft="ngram k=3", sampler="request_state", check="ids", reach="a prompt with small and large ids")
def test_a_match_begins_at_a_token(load: Load) -> None:
    """256 times an id has its bytes one place further. The output is 5 alone, and each prompt has 5, 5 once.

    The shortest prompt has a match that is as long as it may be; the last one has 7, 5 instead. The numbers of drafts
    and of accepted ones show what was found.
    """
    asked = [
        GenerationRequest(prompt, max_tokens=6, ignore_eos=True, allowed_token_ids=(5,))
        for prompt in (
            (5, 5, 9, 11, 12, 1280, 1280, 1536, 17, 5),
            (9, 1280, 1280, 1536, 5, 5, 11, 17, 5),
            (5, 5),
            (7, 5, 5, 5, 9, 1792, 1280, 1536, 17, 7),
        )
    ]
    for request, result in zip(
        asked, with_steps(load("ngram k=3", sampler="request_state").generate(asked)), strict=True
    ):
        emitted = 0
        for place, step in enumerate(result.steps):
            room = request.max_tokens - emitted - 1
            found = looked_up((*request.prompt_token_ids, *(5,) * emitted), 2, 4, 3) if place else []
            wanted = len(found[:room])
            right = next((n for n, token in enumerate(found[:room]) if token != 5), wanted)
            what = f"step {place} after {request.prompt_token_ids} and {emitted} tokens"
            drafts = f"{step.drafted} drafts, {step.accepted} of them accepted"
            require(
                (step.drafted, step.accepted) == (wanted, right),
                f"{what} has {drafts}, expected {wanted} and {right}: {found}",
            )
            emitted += step.accepted + 1


@case("GEN-5", requests=40, draft=["none", "ngram k=3"], sampler="request_state", reach="requests without a seed")
def test_no_request_repeats_another(load: Load, prompts: Any, draft: str) -> None:
    """Equal requests without a seed follow each other in four slots, in two calls: equal texts have no chance."""
    generator = load(draft, sampler="request_state", max_num_seqs=4)
    asked = [GenerationRequest(prompts[0][:8], max_tokens=8, ignore_eos=True, temperature=2.0)] * 20
    texts = [result.token_ids for _ in range(2) for result in generator.generate(asked)]
    own = len(set(texts))
    require(own == len(texts), f"{len(texts)} requests without a seed have {own} texts", Kind.LAW)
