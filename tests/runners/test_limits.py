"""Ends of requests, and the steps just before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from verispec.engines.protocol.generation import FinishReason, GenerationRequest, LoadOptions, TokenKind
from verispec.errors import VerispecError

if TYPE_CHECKING:
    from conftest import Models

METHODS = ("none", "ngram", "suffix", "draft_model", "parallel", "eagle3", "mtp")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("max_tokens", [1, 2, 3, 4, 5])
def test_max_tokens(
    method: str, max_tokens: int, models: Models, prompts: list[tuple[int, ...]], expected: list[tuple[int, ...]]
) -> None:
    runner = models.runner(method)
    results = runner.generate([GenerationRequest(p, max_tokens=max_tokens, ignore_eos=True) for p in prompts])
    assert [result.token_ids for result in results] == [tokens[:max_tokens] for tokens in expected]
    assert {result.finish_reason for result in results} == {FinishReason.LENGTH}
    for result in results:
        emitted = 0
        for step in result.steps:
            assert emitted + step.drafted < max_tokens, "drafts are of no use behind the last token"
            emitted += step.accepted + 1


@pytest.mark.parametrize("method", METHODS)
def test_max_model_len(
    method: str, models: Models, prompts: list[tuple[int, ...]], expected: list[tuple[int, ...]]
) -> None:
    """A sequence may fill the model's length to the last token, and a drafter may not write behind it."""
    limit = 61
    runner = models.runner(method, max_model_len=limit, num_speculative_tokens=5, block_size=4)
    kept = [(p, tokens) for p, tokens in zip(prompts, expected, strict=True) if len(p) < limit]
    results = runner.generate([GenerationRequest(p, max_tokens=24, ignore_eos=True) for p, _ in kept])
    for (prompt, tokens), result in zip(kept, results, strict=True):
        assert result.token_ids == tokens[: limit - len(prompt)]
        assert result.finish_reason is FinishReason.LENGTH
    assert min(len(result.token_ids) for result in results) == 1


@pytest.mark.parametrize("method", METHODS)
def test_every_token_as_stop_token(
    method: str, models: Models, prompts: list[tuple[int, ...]], expected: list[tuple[int, ...]]
) -> None:
    """Whatever token ends a request, accepted drafts behind it are not emitted."""
    runner = models.runner(method, num_speculative_tokens=4)
    cases = [(p, tokens, stop) for p, tokens in zip(prompts, expected, strict=True) for stop in sorted(set(tokens))]
    results = runner.generate(
        [GenerationRequest(p, max_tokens=24, stop_token_ids=(stop,), ignore_eos=True) for p, _, stop in cases]
    )
    for (_, tokens, stop), result in zip(cases, results, strict=True):
        assert result.token_ids == tokens[: tokens.index(stop) + 1]
        assert result.finish_reason is FinishReason.STOP
    if method == "draft_model":
        cut = [r for r in results if r.kinds[-1] is TokenKind.ACCEPTED]
        assert cut, "a stop token must have been seen inside accepted drafts"


def test_end_of_sequence_ends_and_min_tokens_keeps_going(models: Models, prompts: list[tuple[int, ...]]) -> None:
    eos = models.reference.config.eos_token_id
    biased = {"logit_bias": {eos: 1000.0}, "max_tokens": 6}
    runner = models.runner("draft_model")
    ended, ignored, kept = runner.generate(
        [
            GenerationRequest(prompts[1], **biased),
            GenerationRequest(prompts[1], ignore_eos=True, **biased),
            GenerationRequest(prompts[1], min_tokens=4, **biased),
        ]
    )
    assert (ended.token_ids, ended.finish_reason) == ((eos,), FinishReason.STOP)
    assert (ignored.token_ids, ignored.finish_reason) == ((eos,) * 6, FinishReason.LENGTH)
    assert len(kept.token_ids) == 5 and kept.token_ids.index(eos) == 4


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_drafted_after_a_preemption(method: str, models: Models, prompts: list[tuple[int, ...]]) -> None:
    """A request that lost its blocks starts again without the drafts of before."""
    runner = models.runner(method, block_size=4, num_blocks=30, max_model_len=96)
    scheduler = runner._scheduler
    resumed: set[int] = set()
    schedule, preempt = scheduler.schedule, scheduler._preempt_youngest

    def watched_preempt() -> object:
        request = preempt()
        resumed.add(request.index)
        return request

    def watched_schedule() -> object:
        scheduled = schedule()
        for part in scheduled:
            if part.request.index in resumed and part.samples:
                assert part.num_drafts == 0
                resumed.discard(part.request.index)
        return scheduled

    scheduler.schedule, scheduler._preempt_youngest = watched_schedule, watched_preempt
    results = runner.generate([GenerationRequest(p, max_tokens=24, ignore_eos=True) for p in prompts])
    assert any(result.preemptions for result in results)


@pytest.mark.parametrize(
    ("request_fields", "code", "words"),
    [
        ({"prompt_token_ids": tuple(range(2, 66))}, "V-GEN-PROMPT", "64 tokens"),
        ({"prompt_token_ids": (5, 97)}, "V-GEN-PROMPT", r"\[97\]"),
        ({"prompt_token_ids": (5,), "bad_words": ((3, -1),)}, "V-GEN-PROMPT", r"\[-1\]"),
        ({"prompt_token_ids": (5,), "lora_adapter": 0}, "V-GEN-REQUEST", "number of loaded adapters, 0, got 0"),
        ({"prompt_token_ids": ()}, "V-GEN-REQUEST", "at least one token"),
        ({"prompt_token_ids": (5,), "top_p": 0.0}, "V-GEN-REQUEST", "top_p"),
        ({"prompt_token_ids": (5,), "max_tokens": 0}, "V-GEN-REQUEST", "max_tokens"),
    ],
)
def test_bad_requests(request_fields: dict[str, object], code: str, words: str, models: Models) -> None:
    runner = models.runner("none", max_model_len=64)
    with pytest.raises(VerispecError, match=words) as error:
        runner.generate([GenerationRequest(**request_fields)])
    assert error.value.diagnostic.code == code


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"num_speculative_tokens": 0}, "V-GEN-OPTION", "num_speculative_tokens must be an integer of at least 1"),
        ({"max_model_len": 257}, "V-GEN-OPTION", "256"),
        ({"num_blocks": 4, "block_size": 16}, "V-GEN-OPTION", "num_blocks must be at least 17"),
        ({"logprobs_mode": "cooked"}, "V-GEN-OPTION", "raw, processed"),
        ({"ngram_min": 5}, "V-GEN-OPTION", "ngram_max"),
    ],
)
def test_bad_options(settings: dict[str, object], code: str, words: str, models: Models) -> None:
    with pytest.raises(VerispecError, match=words) as error:
        models.runner("none", **settings)
    assert error.value.diagnostic.code == code


def test_a_method_and_its_draft_folder_belong_together(models: Models) -> None:
    for options in ({"method": "eagle3"}, {"method": "ngram", "draft": models.draft}, {"method": "medusa"}):
        with pytest.raises(VerispecError, match="V-GEN-OPTION"):
            LoadOptions(**options)
