"""Runners with faults that concern every request, as engines: ``--engine general_mutants:<name>``."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from runner_mutants import engine_with

from verispec.engines.protocol.generation import FinishReason, GenerationRequest, LoadOptions, TokenKind
from verispec.reference.models.kv_cache import PAD_SLOT
from verispec.reference.runners import base, verification
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.request import RequestState
from verispec.reference.sampler.processors import process_logits

_emitted = verification._emitted


class LastDraftKept(CPURunner):
    """Instead of the recovered token of the last draft, the draft itself is emitted."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        verify = base.verify

        def kept(sampling: Any, logits: torch.Tensor, parts: Any, mode: str) -> Any:
            verified = verify(sampling, logits, parts, mode)
            for row, (part, emitted) in enumerate(zip(parts, verified.emitted, strict=True)):
                if len(emitted) == part.num_drafts > 0:
                    emitted[-1] = int(part.draft_token_ids[-1])
                    verified.token_ids[row, len(emitted) - 1] = emitted[-1]
            return verified

        base.verify = kept


class ChunksShifted(CPURunner):
    """The second and later chunks of a prompt stand one position too far."""

    def _prepare(self, scheduled: Any) -> Any:
        inputs = super()._prepare(scheduled)
        late = [0 < part.request.num_computed < part.request.num_prompt_tokens - 1 for part in scheduled]
        inputs.positions.add_(torch.tensor(late).long().repeat_interleave(torch.from_numpy(inputs.query_lens)))
        return inputs


class BonusCounted(CPURunner):
    """The token behind the drafts counts as an accepted one (vllm#44056)."""

    def metrics(self) -> Any:
        told = super().metrics()
        return replace(told, num_accepted_tokens=told.num_accepted_tokens + told.num_drafts)


class DraftsReversed(CPURunner):
    """The drafts of a step are verified in reverse order: the text is right, and little is accepted."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        propose = self.proposer.propose

        def reversed_(step: Any) -> Any:
            drafts = propose(step)
            return replace(drafts, token_ids=[row[::-1] for row in drafts.token_ids])

        self.proposer.propose = reversed_


class StopsAtStepEnd(CPURunner):
    """A stop token among accepted drafts does not end the request; one at the end of a step does."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        emit = RequestState.emit

        def emit_then_look(request: RequestState, sampled: list[int], drafted: int) -> int:
            stops, request.stop_token_ids = request.stop_token_ids, frozenset()
            emitted = emit(request, sampled, drafted)
            request.stop_token_ids = stops
            if int(request.tokens[request.num_tokens - 1]) in stops:
                request.finish_reason = FinishReason.STOP
            return emitted

        RequestState.emit = emit_then_look


class BlockStartNotWritten(CPURunner):
    """Keys and values of the first token of a second block are not written."""

    def _prepare(self, scheduled: Any) -> Any:
        inputs = super()._prepare(scheduled)
        inputs.paged.slot_mapping[inputs.positions == self.options.block_size] = PAD_SLOT
        return inputs


class OneShortOfTheLimit(CPURunner):
    """A sequence ends one token before `max_model_len`."""

    def _admit(self, index: int, request: GenerationRequest) -> Any:
        state = super()._admit(index, request)
        state.max_tokens = min(state.max_tokens, self.max_model_len - 1)
        return state


class SeedWithArrival(CPURunner):
    """A request's random numbers depend on how many requests arrived before it."""

    def _admit(self, index: int, request: GenerationRequest) -> Any:
        seed = None if request.seed is None else request.seed + self._arrived
        return super()._admit(index, replace(request, seed=seed))


class AsyncAccepted(CPURunner):
    """No fault: `async_scheduling` is an accepted option that changes nothing."""


class AsyncForgetsLast(AsyncAccepted):
    """Scheduled ahead, penalties do not see the last token, which was not known yet (vllm#38419)."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)

        def behind(logits: torch.Tensor, histories: Any, drafts: Any) -> None:
            known = [replace(history, output_token_ids=history.output_token_ids[:-1]) for history in histories]
            process_logits(logits, known, drafts)

        if options.async_scheduling:
            verification.process_logits = behind


class LimitNotChecked(CPURunner):
    """A length beyond the model's own is accepted; positions stop at the model's last one."""

    def _limit(self) -> int:
        return self.options.max_model_len or self._model.config.max_position_embeddings

    def _prepare(self, scheduled: Any) -> Any:
        inputs = super()._prepare(scheduled)
        inputs.positions.clamp_(max=self._model.config.max_position_embeddings - 1)
        return inputs


class UnknownTokenTaken(CPURunner):
    """An unknown token in a prompt is taken for the last known one."""

    def _admit(self, index: int, request: GenerationRequest) -> Any:
        known = tuple(min(token, self.vocab_size - 1) for token in request.prompt_token_ids)
        return super()._admit(index, replace(request, prompt_token_ids=known))


class OneStopString(CPURunner):
    """Only the first of a request's stop strings ends it."""

    def _admit(self, index: int, request: GenerationRequest) -> Any:
        return super()._admit(index, replace(request, stop=request.stop[:1]))


class OneEndOfSequence(CPURunner):
    """Of several ends of sequence only the smallest ends a text."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        self._eos_token_ids = frozenset([min(self._eos_token_ids)])


class TellsBeyondTheEnd(CPURunner):
    """Callers hear of the accepted drafts behind a stop token too."""

    def _advance(self, scheduled: Any, sampling: Any, emitted: Any, logprobs: Any, on_emit: Any) -> None:
        whole = {part.request.index: list(row) for part, row in zip(sampling, emitted, strict=True)}

        def tell(index: int, tokens: Any, kinds: Any) -> None:
            on_emit(index, whole[index], kinds)

        super()._advance(scheduled, sampling, emitted, logprobs, tell if on_emit else None)


class TellsFirstKinds(CPURunner):
    """Callers hear the kinds of the first tokens of a text with each step's tokens."""

    def _advance(self, scheduled: Any, sampling: Any, emitted: Any, logprobs: Any, on_emit: Any) -> None:
        own = {part.request.index: part.request.kinds for part in sampling}

        def tell(index: int, tokens: Any, kinds: Any) -> None:
            on_emit(index, tokens, own[index][: len(kinds)])

        super()._advance(scheduled, sampling, emitted, logprobs, tell if on_emit else None)


class LastIsCalledBonus(CPURunner):
    """Recovered tokens are reported as bonus tokens."""

    def _advance(self, scheduled: Any, sampling: Any, *rest: Any) -> None:
        super()._advance(scheduled, sampling, *rest)
        for part in sampling:
            kinds = part.request.kinds
            kinds[:] = [TokenKind.BONUS if kind is TokenKind.RECOVERED else kind for kind in kinds]


class ShortBadWordsIgnored(CPURunner):
    """Bad words of one token are not forbidden."""

    def _admit(self, index: int, request: GenerationRequest) -> Any:
        return super()._admit(index, replace(request, bad_words=tuple(w for w in request.bad_words if len(w) > 1)))


class KeysKept(CPURunner):
    """A megabyte of each call stays in memory."""

    kept: list[torch.Tensor] = []  # noqa: RUF012

    def generate(self, requests: Any, on_emit: Any = None) -> Any:
        self.kept.append(torch.ones(1 << 18))
        return super().generate(requests, on_emit)


class StoppedAtTheLimitByLength(CPURunner):
    """A stop string that the last token of max_tokens completes ends the text by length (ohdearquant/lattice#334)."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        emit = RequestState.emit

        def cut(state: Any, sampled: Any, drafted: int) -> int:
            count: int = emit(state, sampled, drafted)
            if state.params.stop and state.finish_reason and state.num_tokens == state.max_tokens:
                state.finish_reason = FinishReason.LENGTH
            return count

        RequestState.emit = cut  # type: ignore[method-assign]


class BonusLost(CPURunner):
    """A step whose drafts are all right ends with the last of them (hao-ai-lab/LookaheadDecoding#56)."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        verification._emitted = lambda sampled: _emitted(sampled[:, : max(sampled.shape[1] - 1, 1)])


class ThreadPerCall(CPURunner):
    """A thread of each call never ends."""

    def generate(self, requests: Any, on_emit: Any = None) -> Any:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        return super().generate(requests, on_emit)


last_draft_kept = engine_with(LastDraftKept)
stopped_at_the_limit_by_length = engine_with(StoppedAtTheLimitByLength)
bonus_lost = engine_with(BonusLost)
keys_kept = engine_with(KeysKept)
thread_per_call = engine_with(ThreadPerCall)
chunks_shifted = engine_with(ChunksShifted)
bonus_counted = engine_with(BonusCounted)
drafts_reversed = engine_with(DraftsReversed)
stops_at_step_end = engine_with(StopsAtStepEnd)
block_start_not_written = engine_with(BlockStartNotWritten)
one_short_of_the_limit = engine_with(OneShortOfTheLimit)
seed_with_arrival = engine_with(SeedWithArrival)
async_accepted = engine_with(AsyncAccepted)
async_forgets_last = engine_with(AsyncForgetsLast)
limit_not_checked = engine_with(LimitNotChecked)
unknown_token_taken = engine_with(UnknownTokenTaken)
one_stop_string = engine_with(OneStopString)
one_end_of_sequence = engine_with(OneEndOfSequence)
tells_beyond_the_end = engine_with(TellsBeyondTheEnd)
tells_first_kinds = engine_with(TellsFirstKinds)
last_is_called_bonus = engine_with(LastIsCalledBonus)
short_bad_words_ignored = engine_with(ShortBadWordsIgnored)
