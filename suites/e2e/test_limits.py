"""Ends of outputs, counters, and prompts of every length (contract GEN)."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from verispec import fixtures
from verispec.cases import case
from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Generator,
    TokenKind,
)
from verispec.judge import Inconclusive, Kind
from verispec.judge.statistics.budget import p_value_level
from verispec.suites.e2e._again import Again
from verispec.suites.e2e._lengths import DRAFTS, HOW, judge_lengths, requests_of_lengths
from verispec.suites.e2e._lengths import LAYOUTS as CHUNKED
from verispec.suites.e2e._reference_model import greedy_text, reference_model
from verispec.suites.e2e._setups import (
    CUT,
    FURTHER,
    LIMIT,
    METHODS,
    MODELS,
    MTP,
    PARALLEL,
    SPECULATIVE,
    TREE,
    Load,
    NotTold,
    counted,
    greedy,
    require,
    stepped,
)
from verispec.suites.e2e._tiny import EOS, WORDS, save_very_long

REACH = "any request"
TARGET = fixtures.model("target")


@case("GEN-8", draft=[*SPECULATIVE, *FURTHER], reach="speculation is configured")
def test_drafts_are_made_and_counted(load: Load, prompts: Any, draft: str, memory: str = "") -> None:
    generator, asked = load(draft, memory), greedy(prompts[:16], 24)
    try:
        results, metrics = counted(generator, asked)
    except NotTold:
        require_drafts(generator.generate(asked), draft)
        return
    drafted, accepted, falling = metrics.num_draft_tokens, metrics.num_accepted_tokens, metrics.accepted_per_position
    require(metrics.num_drafts > 0, "no draft was verified: speculation is configured and off")
    require(0 <= accepted <= drafted, f"{accepted} accepted of {drafted} drafted")
    require(list(falling) == sorted(falling, reverse=True), f"accepted per position must fall: {falling}")
    require(sum(falling) == accepted, f"positions {falling} do not add up to the {accepted} accepted tokens")
    emitted = sum(len(result.token_ids) for result in results)
    cut = (1 + len(falling)) * len(results)  # of the last step of each request, which its end cuts
    claimed = f"{accepted} accepted drafts and {metrics.num_drafts} verifications with a token each"
    require(accepted + metrics.num_drafts <= emitted + cut, f"{claimed}, but only {emitted} emitted tokens")
    if all(result.steps for result in results):
        steps = [step for result in results for step in result.steps if step.drafted]
        told = len(steps), sum(step.drafted for step in steps), sum(step.accepted for step in steps)
        message = f"steps tell {told}, the metrics {metrics}"
        if told[1:] == (drafted, accepted) and told[0] < metrics.num_drafts:
            message += f": num_drafts counts {metrics.num_drafts - told[0]} steps without drafts too"
        require(told == (metrics.num_drafts, drafted, accepted), message)


def require_drafts(results: Sequence[GenerationResult], draft: str) -> None:
    """Check that drafts were made, as far as the steps of results or the kinds of their tokens tell.

    Raises:
        UnsupportedCall: the engine reports neither, so that speculation may be off.
        Inconclusive: a lookup may have found nothing.
        Mismatch: a draft model or head drafted nothing.
    """
    steps = [step for result in results for step in result.steps]
    kinds = [kind for result in results for kind in result.kinds]
    if any(step.drafted for step in steps) or any(kind is not TokenKind.PLAIN for kind in kinds):
        return
    if not steps and not kinds:
        raise UnsupportedCall("the engine tells neither counts, steps nor kinds of tokens: speculation may be off")
    if draft.startswith(("ngram", "suffix")):
        raise Inconclusive("no step had a draft: speculation is off, or the lookup found nothing")
    require(False, "no step had a draft: speculation is configured and off")


@case("GEN-8", draft="draft_model k=3", memory=CUT, reach="steps without room for the drafts of all requests")
def test_drafts_of_small_steps_are_counted(load: Load, prompts: Any) -> None:
    test_drafts_are_made_and_counted(load, [prompt[:6] for prompt in prompts[:6]], "draft_model k=3", CUT)


@case("GEN-9", draft=[*MODELS, PARALLEL, MTP], reach="trained drafters", p_values=1)
def test_the_fixtures_drafters_are_accepted_as_trained(load: Load, prompts: Any, draft: str) -> None:
    """The measured prompts, lengths and K again: the same text, except after a tie within rounding.

    Steps after a changed tie are new draws at worst, so the difference of two rates is within Hoeffding's bound. A
    quarter and half of the prompts come first, which end the case if all rates are within half of their bound. They end
    it too if one is far outside: an engine that accepts little takes several times as long for all prompts. Their own
    rates differ from those of all prompts by less than the bound of training: by 0.043 at most, as measured.
    """
    facts = fixtures.provenance()
    measured = {**facts["acceptance"], **facts["parallel_and_mtp"]["acceptance"]}
    trained = measured["parallel" if draft == PARALLEL else draft.partition(" ")[0]]
    wanted = trained["acceptance_by_position"]
    parts = (prompts[1::4], prompts[3::4], prompts[::2])
    tests = 2 * len(wanted) * len(parts) / p_value_level()  # Sides, positions and parts share the level.

    def bound(steps: int, others: int) -> float:
        return float(np.sqrt(np.log(tests) / 2 * (1 / steps + 1 / others)))

    of_training = bound(trained["steps"], trained["steps"])

    generator = load(draft, max_num_seqs=len(prompts))
    counted(generator, greedy(prompts[:1], 4))
    before = generator.metrics()
    depth, asked = len(wanted), 0
    for part in parts:
        generator.generate(greedy(part, facts["recipe"]["measured_length"]))
        metrics = generator.metrics().since(before)
        require(metrics.num_drafts > 0, "no draft was verified")
        rates = metrics.acceptance_per_position
        if all(abs(rate - own) <= of_training / 2 for rate, own in zip(rates, wanted, strict=True)):
            return
        asked += len(part)
        cut = asked * depth * (depth - 1) // 2  # The ends of texts have no room for all drafts.
        if metrics.num_draft_tokens < depth * metrics.num_drafts - cut:
            continue
        steps, is_whole = metrics.num_drafts, asked >= len(prompts)
        limit = bound(steps, trained["steps"]) if is_whole else bound(steps, steps) + of_training
        for place, (rate, own) in enumerate(zip(rates, wanted, strict=True), start=1):
            require(
                abs(rate - own) <= limit,
                f"draft {place} is accepted in {rate:.3f} of the steps, when trained in {own:.3f}; "
                f"rounding explains {limit:.3f}",
                Kind.LAW,
            )
    if metrics.num_draft_tokens < depth * metrics.num_drafts - cut:
        mean = metrics.num_draft_tokens / metrics.num_drafts
        raise Inconclusive(f"the engine chose {mean:.2f} drafts per verification; the rates of training are of {depth}")


@case("GEN-10", draft=[*METHODS, TREE], budget=[1, 2, 7], reach=REACH)
def test_max_tokens_is_exact(load: Load, prompts: Any, draft: str, budget: int) -> None:
    """K is larger than the number of remaining tokens, and accepted drafts must not spill over."""
    for result in load(draft).generate(greedy(prompts[:6], budget)):
        require(len(result.token_ids) == budget, f"{len(result.token_ids)} tokens, max_tokens is {budget}")
        require(result.finish_reason is FinishReason.LENGTH, f"finished by {result.finish_reason}, expected length")


def require_reason(result: GenerationResult, room: int, stops: Collection[int], what: str = "") -> None:
    """Check the reason of an end by its last token and the tokens that were allowed; `what` begins a message."""
    count, last = len(result.token_ids), result.token_ids[-1]
    wanted = FinishReason.STOP if last in stops else FinishReason.LENGTH
    place = f"{count} token{'s' * (count > 1)}" + (", all that max_tokens allows" if count == room else f" of {room}")
    told = f"the last is the stop token {last}" if last in stops else f"the last, {last}, is no stop token"
    message = f"finished by {result.finish_reason} after {place}; {told}: expected {wanted}"
    require(result.finish_reason is wanted, f"{what} {message}".lstrip())


def require_stopped(
    results: Sequence[GenerationResult], stops: Collection[int], what: str = "a stop token of theirs"
) -> None:
    """Check that no text goes on past one of its stop tokens; a failure tells at which others texts end."""
    passed = [set(result.token_ids[:-1]).intersection(stops) for result in results]
    if not (count := sum(map(bool, passed))):
        return
    missed = set().union(*passed)
    told = ", ".join(map(str, sorted(missed)))
    message = f"{count} of {len(results)} texts go on past {told}, {what}"
    ends = sorted({token for result in results for token in result.token_ids[-1:]}.intersection(stops) - missed)
    require(False, message + (f"; texts end at {', '.join(map(str, ends))}" if ends else ""))


def require_end(
    generator: Generator, request: GenerationRequest, result: GenerationResult, stop: int, text: Sequence[int]
) -> None:
    """Check that a text ends at its stop token; a failure tells if it does so where ends of sequence count too."""
    wanted = tuple(text[: text.index(stop) + 1])
    if result.token_ids != wanted:
        message = f"stop token {stop}: got {list(result.token_ids)}, expected {list(wanted)}"
        counting = Again(generator, [replace(request, ignore_eos=False)], "without ignore_eos")
        message += counting.told([0], 1.0, lambda _, again: (int(again.token_ids != wanted), 1))
        require(False, message)
    require_reason(result, request.max_tokens, {stop})


@case("GEN-10", draft=[*METHODS, *FURTHER, TREE], stop="any token", reach="stop tokens")
def test_output_ends_at_the_first_stop_token(load: Load, prompts: Any, draft: str) -> None:
    """Every token of a greedy output in turn is made the stop token, wherever it lies among accepted drafts.

    A stop token that is the last that max_tokens allows ends the output by stop, as every other does. It is the only
    one there, and elsewhere the last of nine, of which the text has no other.
    """
    generator, prompt = load(draft), prompts[2]
    plain = generator.generate(greedy([prompt], 24))[0].token_ids
    stops = list(dict.fromkeys(plain))
    absent = [token for token in range(64) if token not in stops][:8]
    asked = [
        GenerationRequest(prompt, max_tokens=room, ignore_eos=True, stop_token_ids=(*before, stop))
        for stop in stops
        for room, before in ((24, absent), (plain.index(stop) + 1, ()))
    ]
    for request, result in zip(asked, generator.generate(asked), strict=True):
        require_end(generator, request, result, request.stop_token_ids[-1], plain)


@case("GEN-10", target="tiny", draft="draft_model k=8", stop="late in a step", reach="stop tokens")
def test_output_ends_at_a_stop_token_late_in_a_step(load: Load, tiny: dict[str, Path]) -> None:
    """The target drafts for itself: after the first token a step emits nine, and the stop token is past its fourth."""
    prompts = [(first, second, third) for first in (1, 2, 3, 5) for second in (4, 6, 7) for third in (1, 2)]
    texts = [greedy_text(tiny["target"], prompt, 10) for prompt in prompts]
    late = [(p, text, token) for p, text in zip(prompts, texts, strict=True) for token in text if text.index(token) > 4]
    late = list(dict.fromkeys(late))[:8]
    generator = load("draft_model k=8", target=tiny["target"], drafter=tiny["target"])
    asked = [GenerationRequest(prompt, 24, ignore_eos=True, stop_token_ids=(token,)) for prompt, _, token in late]
    for request, (_, text, token), result in zip(asked, late, generator.generate(asked), strict=True):
        require_end(generator, request, result, token, text)


@case(
    "GEN-10",
    target="tiny",
    draft="draft_model k=3",
    stop=["end of sequence", "end of sequence by its id"],
    reach="texts that end",
)
def test_output_ends_at_the_end_of_sequence(load: Load, tiny: dict[str, Path], stop: str) -> None:
    """The target drafts for itself, so every draft is accepted, those behind the end of the sequence too.

    A request that ignores the model's own end, and names its token as a stop token, ends there too.
    """
    named: dict[str, Any] = {"ignore_eos": True, "stop_token_ids": (EOS,)} if stop.endswith("id") else {}
    prompts = [(first, second, 1) for first in (1, 2, 3, 5) for second in (4, 6, 7)]
    whole = [greedy_text(tiny["target"], prompt, 16) for prompt in prompts]
    generator = load("draft_model k=3", target=tiny["target"], drafter=tiny["target"])
    results = generator.generate([GenerationRequest(prompt, max_tokens=16, **named) for prompt in prompts])
    inside = 0
    require_stopped(results, {EOS})
    for prompt, text, result in zip(prompts, whole, results, strict=True):
        end = text.index(EOS) + 1 if EOS in text else len(text)
        reference_model(tiny["target"]).judge_equal(prompt, text[:end], result.token_ids, f"prompt {prompt}")
        require_reason(result, 16, {EOS})
        # The prefill emits one token, every later step four; the last of a step has no draft behind it.
        inside += EOS in text and end > 1 and (end - 1) % 4 != 0
    if not inside:
        raise Inconclusive("no text ends inside accepted drafts")


@case(
    "GEN-10", target="tiny", draft="draft_model k=3", stop="several ends of sequence", reach="Llama 3 has two of them"
)
def test_output_ends_at_every_end_of_sequence(load: Load, tiny: dict[str, Path]) -> None:
    """The generation configuration lists the ends of sequence; the first of them is the one in the configuration.

    A minimum of 14 tokens forbids both where the engine takes one.
    """
    folder, other = with_two_ends(tiny["target"]), OTHER_END
    prompts = [(first, second, 1) for first in (1, 2, 3, 4) for second in (4, 6, 7)]
    whole = [greedy_text(tiny["target"], prompt, 16) for prompt in prompts]
    generator = load("draft_model k=3", target=folder, drafter=tiny["target"])
    results = generator.generate([GenerationRequest(prompt, max_tokens=16) for prompt in prompts])
    ended = 0
    require_stopped(results, {EOS, other}, f"an end of sequence: the generation configuration lists {[EOS, other]}")
    for prompt, text, result in zip(prompts, whole, results, strict=True):
        places = [place for place, token in enumerate(text) if token in (EOS, other)]
        end = places[0] + 1 if places else len(text)
        reference_model(tiny["target"]).judge_equal(prompt, text[:end], result.token_ids, f"prompt {prompt}")
        require_reason(result, 16, {EOS, other})
        ended += bool(places) and text[places[0]] == other
    if not ended:
        raise Inconclusive(f"no text has the end of sequence {other} before {EOS}")
    with contextlib.suppress(UnsupportedCall):
        asked = [GenerationRequest(prompt, max_tokens=16, min_tokens=14) for prompt in prompts]
        for prompt, result in zip(prompts, generator.generate(asked), strict=True):
            early = {EOS, other}.intersection(result.token_ids[:14])
            what = f"prompt {prompt}: min_tokens is 14, the text {list(result.token_ids)}"
            require(not early, f"{what} has {early} before")


OTHER_END = 5


def with_two_ends(target: Path) -> Path:
    """Return the folder of the small target whose generation configuration lists two ends of sequence."""
    folder = target.parent / "two ends"
    if not folder.exists():
        shutil.copytree(target, folder)
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [EOS, OTHER_END]}))
    return folder


@case(
    "GEN-10",
    target="tiny",
    draft=["none", "draft_model k=3"],
    stop="ignored ends of sequence",
    reach="ignore_eos, and a model with two ends of sequence",
)
def test_ignored_ends_of_sequence_do_not_end(load: Load, tiny: dict[str, Path], draft: str) -> None:
    """Requests that ignore the model's ends go on past both of them, but end at one that they name as a stop token.

    Engines may keep all ends but one among the stop tokens of a request. Others name the token that comes last.
    """
    drafter = tiny["target"] if draft != "none" else None
    generator = load(draft, target=with_two_ends(tiny["target"]), drafter=drafter)
    prompts = [(first, second, 1) for first in (1, 2, 3, 4) for second in (4, 6, 7)]
    whole, asked = [], []
    for prompt in prompts:
        text = greedy_text(tiny["target"], prompt, 16)
        last = max(text, key=text.index)
        for stops in [(), *((token,) for token in dict.fromkeys((EOS, OTHER_END, last)) if token in text)]:
            whole.append(text)
            asked.append(GenerationRequest(prompt, max_tokens=16, ignore_eos=True, stop_token_ids=stops))
    passed = set()
    for request, text, result in zip(asked, whole, generator.generate(asked), strict=True):
        end = next((n + 1 for n, token in enumerate(text) if token in request.stop_token_ids), len(text))
        what = f"prompt {request.prompt_token_ids} with the stop tokens {list(request.stop_token_ids)}"
        reference_model(tiny["target"]).judge_equal(request.prompt_token_ids, text[:end], result.token_ids, what)
        require_reason(result, 16, request.stop_token_ids, what)
        passed |= {EOS, OTHER_END}.intersection(text[: end - 1])
    if len(passed) < 2:
        raise Inconclusive(f"the texts pass the ends of sequence {sorted(passed)}, expected two")


@case("GEN-11", draft=[*METHODS, TREE], length=[1, 2, 3, 15, 16, 17], reach=REACH)
def test_prompts_of_any_length(load: Load, prompts: Any, draft: str, length: int) -> None:
    """One token, fewer than an n-gram, and around the end of a block."""
    prompt = prompts[0][:length]
    result = load(draft).generate(greedy([prompt], 12))[0]
    require(len(result.token_ids) == 12, f"{len(result.token_ids)} tokens of 12")
    reference_model(TARGET).judge_greedy(prompt, result.token_ids, f"a prompt of {length} tokens")


@pytest.fixture(scope="module")
def very_long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a target that reads texts of `VERY_LONG` tokens."""
    return save_very_long(tmp_path_factory.mktemp("very long") / "target")


@case("GEN-11", draft=METHODS[:3], length=[1100, 4200], reach="a prompt of thousands of tokens")
def test_prompts_of_thousands_of_tokens(load: Load, very_long: Path, draft: str, length: int) -> None:
    """More tokens than kernels read at once, or than a step takes by default. The target is its own draft model."""
    numbers = Random(1)
    prompt = tuple(numbers.randrange(1, WORDS) for _ in range(length))
    drafter = very_long if draft.startswith("draft_model") else None
    generator = load(draft, target=very_long, drafter=drafter, max_num_seqs=1)
    [result] = generator.generate(greedy([prompt], 24))
    require(len(result.token_ids) == 24, f"{len(result.token_ids)} tokens of 24")
    reference_model(very_long).judge_greedy(prompt, result.token_ids, f"a prompt of {length} tokens")


@case("GEN-11", draft=["ngram k=3"], length=[32_900], reach="positions past 32,767", quick=False)
def test_prompts_past_16_bits(load: Load, very_long: Path, draft: str, length: int) -> None:
    test_prompts_of_thousands_of_tokens(load, very_long, draft, length)


@case(
    "GEN-11",
    memory="blocks of 32, chunks of 24",
    draft=["none", "draft_model k=3"],
    check="around a chunk",
    reach=REACH,
)
def test_prompts_around_the_end_of_a_chunk(load: Load, prompts: Any, draft: str) -> None:
    """Alone, a prompt of 25 or 49 tokens leaves one token for the step after a full one."""
    generator = load(draft, "blocks of 32, chunks of 24")
    for length in (24, 25, 49):
        result = generator.generate(greedy([prompts[0][:length]], 3))[0]
        reference_model(TARGET).judge_greedy(prompts[0][:length], result.token_ids, f"a prompt of {length} tokens")


@case(
    "GEN-11",
    draft=MODELS,
    memory=CHUNKED,
    check="as long as a step with drafts",
    reach="a prompt or a last chunk of a few tokens",
)
def test_prompts_as_long_as_a_step_with_drafts(load: Load, prompts: Any, draft: str, memory: str | None) -> None:
    """Prompts and last chunks of 1 to 2 (K + 1) tokens, alone, with one as long and with those of all lengths."""
    judge_lengths(
        load(draft, memory or ""),
        requests_of_lengths(prompts, memory),
        lambda asked, result, what: reference_model(TARGET).judge_greedy(
            asked.prompt_token_ids, result.token_ids, what
        ),
    )


@case(
    "GEN-11",
    draft=MODELS,
    check="beside a step with drafts",
    reach="a prompt of a few tokens that arrives while another request has drafts",
)
def test_short_prompts_beside_a_step_with_drafts(load: Load, prompts: Any, draft: str) -> None:
    """One request has drafts all the time, and prompts of 1 to 2 (K + 1) tokens come one after the other beside it."""
    asked = [*greedy(prompts[:1], 100), *requests_of_lengths(prompts[1:], None)[:: len(HOW)]]
    for request, result in zip(asked, load(draft, max_num_seqs=2).generate(asked), strict=True):
        prompt = request.prompt_token_ids
        what = f"a prompt of {len(prompt)} tokens beside a request that verifies {DRAFTS} drafts a step"
        reference_model(TARGET).judge_greedy(prompt, result.token_ids, what)


@case(
    "GEN-11",
    memory="blocks of 32, chunks of 24",
    draft=[*METHODS, *FURTHER],
    edge="length limit",
    reach="a text as long as allowed",
)
def test_generation_reaches_the_length_limit(load: Load, prompts: Any, draft: str) -> None:
    """A prompt of 64 tokens leaves room for 48 under the limit, whatever K would still draft."""
    result = load(draft, "blocks of 32, chunks of 24").generate(greedy([prompts[1]], 100))[0]
    room = LIMIT - len(prompts[1])
    require(len(result.token_ids) == room, f"{len(result.token_ids)} tokens, the limit leaves room for {room}")
    reference_model(TARGET).judge_greedy(prompts[1], result.token_ids, "the sequence at the limit")


@case(
    "GEN-11",
    memory="one sequence",
    draft=["none", *MODELS, PARALLEL, MTP, TREE],
    edge="length limit",
    reach="a KV cache of minimum size",
)
def test_the_length_limit_is_reached_in_the_smallest_cache(load: Load, prompts: Any, draft: str) -> None:
    """Two requests follow each other: drafts past the limit need no block, or no text would ever end.

    The second one loses its block to the first one while its prompt is read, and starts anew.
    """
    chosen = prompts[1:3]
    for prompt, result in zip(chosen, load(draft, "one sequence").generate(greedy(chosen, 100)), strict=True):
        room = 96 - len(prompt)
        require(len(result.token_ids) == room, f"{len(result.token_ids)} tokens, the limit leaves room for {room}")
        reference_model(TARGET).judge_greedy(prompt, result.token_ids, "the sequence at the limit")


MANY_SHORT = 40
"""Steps that accept all drafts but the last one, of which some must accept that too."""


@case("GEN-16", draft=[*SPECULATIVE, *FURTHER], reach="any step with drafts")
def test_a_step_emits_its_accepted_drafts_and_one_token(load: Load, prompts: Any, draft: str) -> None:
    """The steps account for every token; only what the last one emitted may be cut by max_tokens.

    These drafters' last draft behind right ones is right in half of the steps: never in `MANY_SHORT` with 1e-12.
    """
    results = stepped(load(draft), greedy(prompts[:12], 40))
    steps = [step for result in results for step in result.steps]
    most = max((step.drafted for step in steps), default=0)
    if not any(step.accepted == most for step in steps):
        short = sum(0 < step.accepted == step.drafted - 1 == most - 1 for step in steps)
        message = f"{short} steps accept {most - 1} of {most} drafts, and no step accepts all {most}"
        require(short < MANY_SHORT, f"{message}: the last draft of a step is lost, or the bonus token behind it")
    if not any(0 < step.drafted == step.accepted for step in steps):
        raise Inconclusive("no step accepted all its drafts")
    for n, result in enumerate(results):
        emitted = [step.accepted + 1 for step in result.steps]
        require(
            sum(emitted[:-1]) < len(result.token_ids) <= sum(emitted),
            f"prompt {n}: {len(result.token_ids)} tokens, the accepted drafts and one more a step are {sum(emitted)}; "
            "a recovered or bonus token is missing",
        )
