"""Where outputs end, what is counted, and prompts of every length (contract GEN)."""

from __future__ import annotations

from typing import Any

import numpy as np

from verispec import fixtures
from verispec.cases import case
from verispec.engines import UnsupportedCall
from verispec.engines.generation import FinishReason, GenerationRequest
from verispec.judge import Failure, Kind, Mismatch
from verispec.judge.laws import ALPHA
from verispec.suites.e2e._teacher import teacher
from verispec.suites.e2e.conftest import Load

REACH = "any request"
METHODS = ["none", "ngram", "draft_model", "eagle3"]
DRAFTING = METHODS[1:]


def require(good: bool, message: str, kind: Kind = Kind.VALUE) -> None:
    if not good:
        raise Mismatch(Failure(kind, message))


@case("GEN-8", method=DRAFTING, reach="speculation is configured")
def test_drafts_are_made_and_counted(load: Load, prompts: Any, method: str) -> None:
    generator = load(method)
    before = generator.metrics()
    asked = [GenerationRequest(p, max_tokens=48, ignore_eos=True) for p in prompts[:16]]
    results = generator.generate(asked)
    counted = generator.metrics().since(before)
    if counted == type(counted)():
        raise UnsupportedCall("the engine does not count drafts")
    require(counted.num_drafts > 0, "no draft was verified: speculation is configured and off")
    require(
        0 <= counted.num_accepted_tokens <= counted.num_draft_tokens,
        f"{counted.num_accepted_tokens} accepted of {counted.num_draft_tokens} drafted",
    )
    falling = counted.accepted_per_position
    require(list(falling) == sorted(falling, reverse=True), f"accepted per position must fall: {falling}")
    require(sum(falling) == counted.num_accepted_tokens, f"positions {falling} do not add up to the accepted tokens")
    for n, result in enumerate(results):
        if result.steps:
            emitted = sum(step.accepted + 1 for step in result.steps)
            require(emitted >= len(result.token_ids), f"prompt {n}: {len(result.token_ids)} tokens from {emitted}")


@case("GEN-9", method=["draft_model", "eagle3"], reach="trained drafters")
def test_the_fixtures_drafters_are_accepted_as_trained(load: Load, prompts: Any, method: str) -> None:
    """The first position's rate on the same prompts, greedy, K = 3, within Hoeffding's bound of the measured one."""
    trained = fixtures.provenance()["acceptance"][method]
    generator = load(method, num_speculative_tokens=3)
    before = generator.metrics()
    generator.generate([GenerationRequest(p, max_tokens=64, ignore_eos=True) for p in prompts])
    counted = generator.metrics().since(before)
    if counted == type(counted)():
        raise UnsupportedCall("the engine does not count drafts")
    rate, wanted = counted.acceptance_per_position[0], trained["acceptance_by_position"][0]
    bound = float(np.sqrt(np.log(2 / ALPHA) / 2 * (1 / counted.num_drafts + 1 / trained["steps"])))
    require(
        abs(rate - wanted) <= bound,
        f"first drafts accepted at {rate:.3f}, when trained at {wanted:.3f}, and at most {bound:.3f} off",
        Kind.LAW,
    )


@case("GEN-10", method=METHODS, budget=[1, 2, 7], reach=REACH)
def test_max_tokens_is_exact(load: Load, prompts: Any, method: str, budget: int) -> None:
    """K is larger than what is left, and accepted drafts must not spill over."""
    for result in load(method).generate(
        [GenerationRequest(p, max_tokens=budget, ignore_eos=True) for p in prompts[:6]]
    ):
        require(len(result.token_ids) == budget, f"{len(result.token_ids)} tokens, max_tokens is {budget}")
        require(result.finish_reason is FinishReason.LENGTH, f"finished by {result.finish_reason}, expected length")


@case("GEN-10", method=METHODS, stop="inside accepted drafts", reach="stop tokens and end of sequence")
def test_output_ends_at_the_first_stop_token(load: Load, prompts: Any, method: str) -> None:
    """Every token of a greedy output in turn is made the stop token, wherever it lies among accepted drafts."""
    generator = load(method)
    plain = generator.generate([GenerationRequest(prompts[2], max_tokens=24, ignore_eos=True)])[0].token_ids
    for stop in dict.fromkeys(plain):
        asked = GenerationRequest(prompts[2], max_tokens=24, ignore_eos=True, stop_token_ids=(stop,))
        result = generator.generate([asked])[0]
        wanted = plain[: plain.index(stop) + 1]
        require(result.token_ids == wanted, f"stop token {stop}: got {list(result.token_ids)}, expected {list(wanted)}")
        require(result.finish_reason is FinishReason.STOP, f"finished by {result.finish_reason}, expected stop")


@case("GEN-11", method=METHODS, length=[1, 2, 3, 15, 16, 17], reach=REACH)
def test_prompts_of_any_length(load: Load, prompts: Any, method: str, length: int) -> None:
    prompt = prompts[0][:length]
    result = load(method).generate([GenerationRequest(prompt, max_tokens=12, ignore_eos=True)])[0]
    require(len(result.token_ids) == 12, f"{len(result.token_ids)} tokens of 12")
    teacher(fixtures.model("target")).judge_greedy(prompt, result.token_ids, f"a prompt of {length} tokens")


@case("GEN-11", method=METHODS, edge="length limit", reach="a sequence reaches the model's length limit")
def test_generation_reaches_the_length_limit(load: Load, prompts: Any, method: str) -> None:
    """max_model_len 96: a prompt of 64 tokens leaves room for 32, whatever K would still draft."""
    asked = GenerationRequest(prompts[1], max_tokens=100, ignore_eos=True)
    result = load(method, max_model_len=96).generate([asked])[0]
    require(len(result.token_ids) == 32, f"{len(result.token_ids)} tokens, the limit leaves room for 32")
    teacher(fixtures.model("target")).judge_greedy(prompts[1], result.token_ids, "the sequence at the limit")
