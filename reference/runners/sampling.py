"""Sampling of a runner: both families of samplers behind one protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch

from verispec.engines.protocol.generation import LoadOptions
from verispec.errors import VerispecError
from verispec.reference.proposers.protocol import DrawDrafts
from verispec.reference.sampler.drafting import SeededDraw, sample_drafts
from verispec.reference.sampler.flat import DraftBatch, FlatSampler, SamplingTensors
from verispec.reference.sampler.request_state import RequestRows, RequestStates, RequestStateSampler
from verispec.reference.sampler.synthetic_rates import conditional_rates, resolve_synthetic_acceptance_rates

from .request import RequestState
from .scheduler import Scheduled

Upload = Callable[[np.ndarray], torch.Tensor]


class Sampling(Protocol):
    """Verifies and drafts for the requests of a step, each from random numbers of its own."""

    def greedy(self, logits: torch.Tensor, parts: Sequence[Scheduled]) -> torch.Tensor:
        """Verify as `sample` does, for requests that all want the model's most likely token."""
        ...

    def sample(self, logits: torch.Tensor, parts: Sequence[Scheduled]) -> torch.Tensor:
        """Verify the drafts of `parts` and sample one more token for each part.

        Args:
            logits: [N + B, V] float32: for each part in turn the rows of its drafts, then its bonus row. They are
                tempered and masked in place.
            parts: those of the step that sample.

        Returns:
            [B, largest k + 1] int32: accepted drafts, then the recovered or the bonus token, then -1.
        """
        ...

    def drafting(self, requests: Sequence[RequestState], num_drafts: Sequence[int]) -> DrawDrafts:
        """Return the function that draws the drafts of a step; a request uses no number for those past its own."""
        ...


class FlatSampling:
    """Packed batches: one generator per request; the request carries its draft distributions."""

    def __init__(self, upload: Upload, options: LoadOptions, device: torch.device) -> None:
        if options.rejection_sample_method == "block":
            raise VerispecError(
                "V-GEN-OPTION",
                "rejection_sample_method block needs sampler request_state, got sampler flat",
                where="rejection_sample_method",
                cause="the ops of packed batches have no block verification",
                hint="set sampler to request_state",
            )
        rates = synthetic_rates(options, device)
        self._synthetic = rates is not None
        self._sampler = FlatSampler(rates)
        self._upload = upload

    def greedy(self, logits: torch.Tensor, parts: Sequence[Scheduled]) -> torch.Tensor:
        """Verify against the argmax of each row."""
        if self._synthetic:
            return self.sample(logits.float(), parts)
        return self._sampler.greedy(logits, self._drafts(logits, parts))

    def sample(self, logits: torch.Tensor, parts: Sequence[Scheduled]) -> torch.Tensor:
        """Verify with random numbers from each request's generator."""
        requests = [part.request for part in parts]
        generators = [request.generator for request in requests]
        return self._sampler.sample(logits, self._drafts(logits, parts), sampling_tensors(requests, logits), generators)

    def drafting(self, requests: Sequence[RequestState], num_drafts: Sequence[int]) -> DrawDrafts:
        """Return a function that draws from each request's generator."""
        limits = [(r.params.temperature, count) for r, count in zip(requests, num_drafts, strict=True)]
        generators = [request.generator for request in requests]
        return lambda logits, pos, step: sample_drafts(
            logits, [temperature if step < count else 0.0 for temperature, count in limits], generators
        )

    def _drafts(self, logits: torch.Tensor, parts: Sequence[Scheduled]) -> DraftBatch:
        counts = [part.num_drafts for part in parts]
        token_ids = np.concatenate([part.draft_token_ids for part in parts]).astype(np.int32)
        cumulative = self._upload(np.cumsum(counts, dtype=np.int32))
        return DraftBatch(counts, self._upload(token_ids), cumulative, _draft_probs(parts, logits))


class RequestStateSampling:
    """Slot-indexed batches: one state per slot, and a counter-based RNG.

    A step that is launched before the last one is read may be dropped, after its drafts were drawn. So slots have two
    states each where drafts are drawn by graphs: a step verifies the drafts of one state and leaves its own in the
    other. What a dropped step leaves is where the step before it has verified.

    Args:
        options: options of the engine.
        vocab_size: vocabulary size of the target.
        draws: True if a model draws drafts from a distribution that verification has to know.
        has_graphs: True if steps may be graphs.
        device: device of the runner.
    """

    def __init__(
        self, options: LoadOptions, vocab_size: int, draws: bool, has_graphs: bool, device: torch.device
    ) -> None:
        self._sampler = RequestStateSampler(
            block_verification=options.rejection_sample_method == "block",
            synthetic_rates=synthetic_rates(options, device),
        )
        self._device = device
        self._slots = options.max_num_seqs
        count = self._slots * (2 if draws and has_graphs else 1)
        self._owners: list[RequestState | None] = [None] * self._slots
        self._is_second = [False] * self._slots
        self._temperature = torch.zeros(count, device=device)
        self._seed = torch.zeros(count, dtype=torch.int64, device=device)
        self._top_k = torch.zeros(count, dtype=torch.int32, device=device)
        self._top_p = torch.zeros(count, device=device)
        self._min_p = torch.zeros(count, device=device)
        kept = (count, options.max_drafts, vocab_size)
        self._draft_logits = torch.zeros(kept, device=device) if draws else None

    def greedy(self, logits: torch.Tensor, parts: Sequence[Scheduled]) -> torch.Tensor:
        """Verify as `sample`: the slot's temperature of 0 selects the argmax."""
        return self.sample(logits.float(), parts)

    def sample(self, logits: torch.Tensor, parts: Sequence[Scheduled]) -> torch.Tensor:
        """Verify with random numbers that seed and position determine."""
        requests = [part.request for part in parts]
        states = self.states(requests)
        inputs = [
            [int(part.request.tokens[part.request.num_tokens - 1]), *part.draft_token_ids.tolist()] for part in parts
        ]
        starts = [request.num_tokens - 1 for request in requests]
        rows = RequestRows.of(inputs, starts, [self.state_of(request) for request in requests], self._device)
        return self.sample_rows(logits, rows, states)

    def sample_rows(self, logits: torch.Tensor, rows: RequestRows, states: RequestStates) -> torch.Tensor:
        """Verify and sample as `sample`, without a number of the host; see `RequestStateSampler.sample`."""
        return self._sampler.sample(logits, rows, states).token_ids.to(torch.int32)

    def drafting(self, requests: Sequence[RequestState], num_drafts: Sequence[int]) -> DrawDrafts:
        """Return the sampler that draws by seed and position, and keeps the logits for verification."""
        owners = [self.state_of(r) if wants else -1 for r, wants in zip(requests, num_drafts, strict=True)]
        return self.draft_rows(torch.tensor(owners, dtype=torch.int32, device=self._device), self.states(requests))

    def draft_rows(self, owners: torch.Tensor, states: RequestStates) -> SeededDraw:
        """Return the sampler of `drafting` for [B] int32 states; -1 is padding."""
        assert self._draft_logits is not None
        return SeededDraw(owners, states.temperature, states.seed, self._draft_logits)

    def state_of(self, request: RequestState) -> int:
        """Return the state with the distributions of the request's drafts."""
        return request.slot + self._slots * self._is_second[request.slot]

    def other(self, owners: torch.Tensor) -> torch.Tensor:
        """Return the other states of the slots of [B] int32 states; -1 is padding."""
        return torch.where(owners < 0, owners, (owners + self._slots) % (2 * self._slots))

    def turn(self, requests: Sequence[RequestState]) -> None:
        """Note that the drafts of each request are those of its other state."""
        for request in requests:
            self._is_second[request.slot] = not self._is_second[request.slot]

    @property
    def draws(self) -> bool:
        """True if a model draws drafts from a distribution that verification has to know."""
        return self._draft_logits is not None

    def states(self, requests: Sequence[RequestState]) -> RequestStates:
        """Return all states, those of `requests` written; filters that none of them uses are None."""
        for request in requests:
            if self._owners[request.slot] is not request:
                self._write(request)
        params = [request.params for request in requests]
        return RequestStates(
            self._temperature,
            self._seed,
            self._top_k if any(p.top_k for p in params) else None,
            self._top_p if any(p.top_p < 1 for p in params) else None,
            self._min_p if any(p.min_p for p in params) else None,
            self._draft_logits,
        )

    def _write(self, request: RequestState) -> None:
        params, states = request.params, slice(request.slot, None, self._slots)
        self._owners[request.slot] = request
        self._temperature[states] = params.temperature
        self._seed[states] = request.seed_word
        # Any k past the vocabulary keeps all tokens, so clamp to int32.
        self._top_k[states] = min(params.top_k, torch.iinfo(torch.int32).max)
        self._top_p[states] = params.top_p
        self._min_p[states] = params.min_p


def synthetic_rates(options: LoadOptions, device: torch.device) -> torch.Tensor | None:
    """Return the conditional acceptance rates of synthetic verification, [K]; None for the other methods."""
    if options.rejection_sample_method != "synthetic":
        return None
    rates = resolve_synthetic_acceptance_rates(
        options.max_drafts, options.synthetic_acceptance_rates, options.synthetic_acceptance_length
    )
    return conditional_rates(rates, device)


def _draft_probs(parts: Sequence[Scheduled], logits: torch.Tensor) -> torch.Tensor | None:
    """Return the distributions of the drafts, [N, V]; zeros for a greedy request, where nothing was drawn."""
    if all(part.request.draft_probs is None for part in parts):
        return None
    rows = [
        logits.new_zeros(part.num_drafts, logits.shape[1], dtype=torch.float32)
        if part.request.draft_probs is None
        else part.request.draft_probs[: part.num_drafts]
        for part in parts
    ]
    return torch.cat(rows)


def sampling_tensors(requests: Sequence[RequestState], logits: torch.Tensor) -> SamplingTensors:
    """Return the sampling parameters of requests, on the device of their logits [., V]."""
    device, vocab_size = logits.device, logits.shape[1]
    params = [request.params for request in requests]

    def column(values: list[float], off: float, dtype: torch.dtype) -> torch.Tensor | None:
        unused = values.count(off) == len(values)
        return None if unused else torch.tensor(values, dtype=dtype, device=device)

    return SamplingTensors(
        temperature=torch.tensor([p.temperature for p in params], dtype=torch.float32, device=device),
        top_k=column([min(p.top_k or vocab_size, vocab_size) for p in params], vocab_size, torch.int32),
        top_p=column([p.top_p for p in params], 1, torch.float32),
        min_p=column([p.min_p for p in params], 0, torch.float32),
    )
