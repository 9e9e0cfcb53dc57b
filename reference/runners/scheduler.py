"""Selection of the requests of the next step and their numbers of tokens.

First come, first served. A step has a budget of tokens; a prompt that does not fit goes in chunks, and drafts are
the first to be cut. When a running request cannot get KV blocks, the youngest one loses all of its own and is computed
again later. There is no difference between prefill and decode: a request always wants its uncomputed tokens and drafts.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from .block_pool import BlockPool
from .request import RequestState


class Scheduled(NamedTuple):
    """A request's part of a step.

    Attributes:
        num_tokens: number of tokens that it computes, `num_drafts` of them drafts, which come last.
        samples: True if it reaches the end of the sequence, so that a token follows; a chunk of a prompt does not.
        drafts: True if drafts follow: behind that token, or behind the last one that a resumed request already has.
    """

    request: RequestState
    num_tokens: int
    num_drafts: int
    samples: bool
    drafts: bool

    @property
    def draft_token_ids(self) -> np.ndarray:
        """Drafts that this step verifies, [num_drafts] int64."""
        return self.request.tokens[self.request.num_tokens : self.request.num_tokens + self.num_drafts]


class Scheduler:
    """Continuous batching over a pool of KV blocks.

    Args:
        pool: the KV blocks.
        max_num_seqs: maximum number of requests in a step.
        token_budget: maximum number of tokens in a step.
        max_model_len: maximum number of tokens of a sequence.
        lookahead: slots that a drafter writes behind the last token of a step.
        spare: slots that a request gets besides while half of the pool is free, for the steps after this one.
        repeatable: True if the drafts that a request verifies must not depend on the other requests. They are then
            never cut to the rest of the budget, and a resumed request drafts again before it samples.
    """

    def __init__(
        self,
        pool: BlockPool,
        *,
        max_num_seqs: int,
        token_budget: int,
        max_model_len: int,
        lookahead: int,
        spare: int,
        repeatable: bool,
    ) -> None:
        self.pool = pool
        self.repeatable = repeatable
        self._free_slots = list(range(max_num_seqs))
        self.max_num_seqs = max_num_seqs
        self.token_budget = token_budget
        self.max_model_len = max_model_len
        self.lookahead = lookahead
        self.spare = spare
        self.waiting: deque[RequestState] = deque()
        self.running: list[RequestState] = []

    def schedule(self) -> list[Scheduled]:
        """Choose the requests of the next step and give them the blocks that they need."""
        scheduled: list[Scheduled] = []
        budget = self.token_budget
        preempted = False
        position = 0
        while position < len(self.running) and budget > 0:
            part = self._part(self.running[position], budget)
            if part is None:
                position += 1
                continue
            while not self._reserve(part):
                preempted = True
                if self._preempt_youngest() is part.request:
                    break
            else:
                scheduled.append(part)
                budget -= part.num_tokens
            position += 1
        while self.waiting and budget > 0 and not preempted and len(self.running) < self.max_num_seqs:
            part = self._part(self.waiting[0], budget)
            if part is None or not self._reserve(part):
                break
            part.request.slot = self._free_slots.pop()
            self.running.append(self.waiting.popleft())
            scheduled.append(part)
            budget -= part.num_tokens
        return scheduled

    def finish(self, request: RequestState) -> None:
        """Take a finished request's blocks back."""
        self.running.remove(request)
        self._release(request)

    def _part(self, request: RequestState, budget: int) -> Scheduled | None:
        """Return the part of `request` that fits the remaining `budget`; None if it has to wait for more."""
        uncomputed = request.num_tokens - request.num_computed
        if self.repeatable:
            resumed = uncomputed > 1 and request.num_tokens > request.num_prompt_tokens
            if resumed:
                num_tokens = min(uncomputed - 1, budget)
                return Scheduled(request, num_tokens, 0, samples=False, drafts=num_tokens == uncomputed - 1)
            if request.drafts and budget < min(uncomputed + request.drafts, self.token_budget):
                return None
        num_tokens = min(uncomputed + request.drafts, budget)
        samples = num_tokens >= uncomputed
        return Scheduled(request, num_tokens, max(num_tokens - uncomputed, 0), samples, drafts=samples)

    def _reserve(self, part: Scheduled) -> bool:
        end = part.request.num_computed + part.num_tokens + self.lookahead
        if not self.pool.grow(part.request.blocks, min(end, self.max_model_len)):
            return False
        if self.pool.half_free:
            self.pool.grow(part.request.blocks, min(end + self.spare, self.max_model_len))
        return True

    def _preempt_youngest(self) -> RequestState:
        request = self.running.pop()
        self._release(request)
        request.preempt()
        self.waiting.appendleft(request)
        return request

    def _release(self, request: RequestState) -> None:
        self.pool.release(request.blocks)
        self._free_slots.append(request.slot)
        request.slot = -1
