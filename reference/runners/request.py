"""The state of one request from its arrival to its end."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch

from verispec.engines.protocol.generation import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    SpeculativeStep,
    TokenKind,
    TokenLogprobs,
)
from verispec.reference.sampler.processors import needs_processing

from .draft_depth import Acceptance


@cache
def _step(drafted: int, accepted: int) -> SpeculativeStep:
    """Return the step with these counts, of which a runner has few; making one takes as long as the rest of `emit`."""
    return SpeculativeStep(drafted, accepted)


@dataclass(eq=False, slots=True)
class RequestState:
    """Tokens, KV blocks, drafts and results of a request.

    Attributes:
        index: index of the request among those given to `generate`.
        number: number of the request among all that the runner has had.
        max_tokens: tokens of the sequence at which it ends, prompt included.
        stop_token_ids: tokens that end it.
        seed: seed of its random numbers, and `generator` seeded with it, from which the flat sampler draws.
        tokens: prompt, output, and behind them the drafts that the next step verifies.
        num_tokens: prompt and output.
        num_computed: tokens whose keys and values are in the cache; those behind are stale and never read.
        drafts: number of drafts behind `num_tokens`.
        draft_probs: [drafts, vocabulary] that the drafts were drawn from; None for drafts without probabilities.
        blocks: KV blocks in the order of the sequence.
        decode: token ids to text, for stop strings; None where no text is wanted.
        grammar_state: state of the request's grammar after the output; drafts do not change it.
        is_processed: True if the request changes its logits before temperature.
        slot: a number that no other running request has; -1 while it waits.
        acceptance: acceptance of its drafts so far.
        num_read: tokens that the drafter has read, where it reads them when it drafts.
        unread_states: hidden states of the target that a head needs for the tokens between `num_read` and
            `num_computed`: the states of a step, and where the request's rows begin and end in them.
    """

    index: int
    number: int
    params: GenerationRequest
    max_tokens: int
    stop_token_ids: frozenset[int]
    seed: int
    generator: torch.Generator
    tokens: np.ndarray
    num_tokens: int
    num_computed: int = 0
    drafts: int = 0
    draft_probs: torch.Tensor | None = None
    blocks: list[int] = field(default_factory=list)
    slot: int = -1
    kinds: list[TokenKind] = field(default_factory=list)
    steps: list[SpeculativeStep] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs | None] = field(default_factory=lambda: [None])
    preemptions: int = 0
    decode: Callable[[Sequence[int]], str] | None = None
    grammar_state: Hashable = None
    finish_reason: FinishReason | None = None
    is_processed: bool = False
    acceptance: Acceptance = field(default_factory=Acceptance)
    num_read: int = 0
    unread_states: list[tuple[torch.Tensor, int, int]] = field(default_factory=list)

    @classmethod
    def begin(
        cls,
        index: int,
        params: GenerationRequest,
        *,
        number: int,
        max_model_len: int,
        max_drafts: int,
        eos_token_ids: frozenset[int],
        seed: int,
        device: torch.device,
        decode: Callable[[Sequence[int]], str] | None = None,
    ) -> RequestState:
        """Return the state of a request that just arrived."""
        prompt = np.asarray(params.prompt_token_ids, dtype=np.int64)
        max_tokens = min(len(prompt) + params.max_tokens, max_model_len)
        tokens = np.zeros(max_tokens + max_drafts, dtype=np.int64)
        tokens[: len(prompt)] = prompt
        stop = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else eos_token_ids)
        generator = torch.Generator(device).manual_seed(seed)
        state = cls(index, number, params, max_tokens, stop, seed, generator, tokens, len(prompt), decode=decode)
        state.is_processed = params.grammar is not None or needs_processing(params)
        if params.grammar is not None:
            state.grammar_state = params.grammar.start()
        return state

    @property
    def unprocessed(self) -> bool:
        """True if the request's tokens follow from the model's own logits, by temperature and limits alone."""
        return self.params.logprobs is None and not self.is_processed

    @property
    def plain(self) -> bool:
        """True if the request asks only for the most likely token of the model's own logits."""
        return self.params.greedy and self.unprocessed

    @property
    def seed_word(self) -> int:
        """The seed as a signed 64-bit number with the same bits."""
        return (self.seed + 2**63) % 2**64 - 2**63

    @property
    def num_prompt_tokens(self) -> int:
        """Number of prompt tokens."""
        return len(self.params.prompt_token_ids)

    @property
    def output_token_ids(self) -> np.ndarray:
        """Emitted tokens, [num_tokens - num_prompt_tokens] int64, as a view of `tokens`."""
        return self.tokens[self.num_prompt_tokens : self.num_tokens]

    def grammar_rows(self, drafts: Sequence[int], vocab_size: int) -> torch.Tensor | None:
        """Return the tokens [drafts + 1, V] that the grammar allows at each row; None without a grammar.

        Rows after a draft that is not allowed are never used and allow everything.
        """
        grammar, state = self.params.grammar, self.grammar_state
        if grammar is None:
            return None
        rows = torch.ones((len(drafts) + 1, vocab_size), dtype=torch.bool)
        for row, draft in zip(rows, [*drafts, None], strict=True):
            allowed = grammar.allowed(state)
            row[:] = False
            row[list(allowed)] = True
            if draft is None or draft not in allowed:
                break
            state = grammar.advance(state, draft)
        return rows

    @property
    def draft_room(self) -> int:
        """Drafts that can be of use: with the token that always follows them they must fit under `max_tokens`."""
        return max(self.max_tokens - self.num_tokens - 1, 0)

    def propose(self, draft_token_ids: list[int], probs: torch.Tensor | None, room: int | None = None) -> None:
        """Put drafts behind the sequence, at most `room` or else `draft_room`; `probs` is [drafts, V] or None.

        More nodes of a tree can be of use than tokens: `room` is then the number of places in the KV cache.
        """
        self.drafts = min(len(draft_token_ids), self.draft_room if room is None else room)
        self.tokens[self.num_tokens : self.num_tokens + self.drafts] = draft_token_ids[: self.drafts]
        self.draft_probs = None if probs is None else probs[: self.drafts]

    def preempt(self) -> None:
        """Forget the tokens in the caches, with the drafts behind them."""
        self.num_computed = self.num_read = 0
        self.unread_states.clear()
        self.drop_drafts()
        self.preemptions += 1

    def drop_drafts(self) -> None:
        """Forget the drafts that no step has verified yet."""
        self.drafts = 0
        self.draft_probs = None

    def emit(self, sampled: list[int], drafted: int) -> int:
        """Append the tokens that a verification of `drafted` drafts emitted, up to the end of the request.

        Returns how many tokens were appended; the drafts that were verified are gone afterwards.
        """
        accepted = len(sampled) - 1
        last = TokenKind.PLAIN if not drafted else TokenKind.BONUS if accepted == drafted else TokenKind.RECOVERED
        self.steps.append(_step(drafted, accepted))
        self.acceptance.count(drafted, accepted)
        self.drop_drafts()
        tokens = sampled[: self.max_tokens - self.num_tokens]
        self.tokens[self.num_tokens : self.num_tokens + len(tokens)] = tokens
        emitted, is_stopped = self._until_stop(tokens)
        self.num_tokens += emitted
        self.kinds += [TokenKind.ACCEPTED] * min(emitted, accepted)
        self.kinds += [last] * (emitted - accepted)
        if is_stopped:
            self.finish_reason = FinishReason.STOP
            return emitted
        limit = self.params.abort_after
        if self.num_tokens == self.max_tokens:
            self.finish_reason = FinishReason.LENGTH
        elif limit is not None and len(self.output_token_ids) >= limit:
            self.finish_reason = FinishReason.ABORT
        return emitted

    @property
    def text(self) -> str:
        """The decoded output before the first stop string; empty without a tokenizer."""
        if self.decode is None:
            return ""
        text = self.decode(self.output_token_ids.tolist())
        return text[: min((text.find(stop) for stop in self.params.stop if stop in text), default=len(text))]

    def _until_stop(self, tokens: Sequence[int]) -> tuple[int, bool]:
        """Return the number of new tokens up to the end of the request, and whether the last one ends it."""
        grammar, is_text = self.params.grammar, self.decode is not None and bool(self.params.stop)
        if grammar is None and not is_text and self.stop_token_ids.isdisjoint(tokens):
            return len(tokens), False
        for count, token in enumerate(tokens, 1):
            if grammar is not None:
                self.grammar_state = grammar.advance(self.grammar_state, token)
            if token in self.stop_token_ids or (is_text and self._ends_by_text(count)):
                return count, True
        return len(tokens), False

    def _ends_by_text(self, new: int) -> bool:
        """Return True if the output and `new` tokens behind it have a stop string."""
        assert self.decode is not None
        text = self.decode(self.tokens[self.num_prompt_tokens : self.num_tokens + new].tolist())
        return any(stop in text for stop in self.params.stop)

    def result(self) -> GenerationResult:
        """Return the result of a request that has ended."""
        assert self.finish_reason is not None
        return GenerationResult(
            token_ids=tuple(self.output_token_ids.tolist()),
            finish_reason=self.finish_reason,
            kinds=tuple(self.kinds),
            steps=tuple(self.steps),
            logprobs=tuple(self.logprobs),
            preemptions=self.preemptions,
            text=self.text,
            prompt_logprobs=() if self.params.prompt_logprobs is None else tuple(self.prompt_logprobs),
        )
