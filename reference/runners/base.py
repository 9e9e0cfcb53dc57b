"""Shared parts of all runners: loading, the step from scheduled requests to emitted tokens, and generation.

A step flattens its requests' tokens: chunks of prompts, single tokens, and tokens with drafts behind them. It runs the
target once over the paged cache, verifies, emits, and lets the proposer draft for the next step. A rejected draft needs
no cleaning up: `num_computed` stops before it, so its slot is written again before anything reads it. Recurrent layers
start from the checkpoint of `num_computed` tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from verispec.engines.protocol.generation import (
    GenerationRequest,
    GenerationResult,
    LoadOptions,
    OnEmit,
    SpeculationMetrics,
    TokenLogprobs,
)
from verispec.engines.protocol.speculation import AUTO
from verispec.errors import VerispecError
from verispec.reference.models import (
    AuxiliaryStates,
    Eagle3Head,
    MTPHead,
    load_eagle3,
    load_mtp,
    load_target,
    load_tokenizer,
    mask_token,
)
from verispec.reference.models.attention import ATTENTION
from verispec.reference.models.decode_graphs import Recorder
from verispec.reference.models.kv_cache import KVCache
from verispec.reference.models.lora import LoraAdapters
from verispec.reference.models.recurrent import RecurrentPart, RecurrentStates, recurrent_layers
from verispec.reference.proposers.draft_model import DraftModelProposer
from verispec.reference.proposers.head import Head, HeadProposer
from verispec.reference.proposers.ngram import NgramProposer
from verispec.reference.proposers.parallel import ParallelProposer
from verispec.reference.proposers.protocol import DrawDrafts, Proposer
from verispec.reference.proposers.suffix import SuffixLimits, SuffixProposer
from verispec.reference.proposers.tree import DraftTree, TreeProposer

from .admission import check_model_length, check_recurrent_options, check_request, default_seed, eos_token_ids
from .backlog import keep_states, read_backlog
from .block_pool import BlockPool, pool_size
from .draft_depth import DraftDepths, PassCost, Speeds
from .request import RequestState
from .sampling import FlatSampling, RequestStateSampling, Sampling
from .scheduler import Scheduled, Scheduler
from .step_graphs import SPARE_SLOTS, StepGraphs
from .step_inputs import StepInputs, flatten_step, record_prompt_logprobs, verified_step
from .tree import TreeVerification, check_tree_model, check_tree_request, compact
from .verification import Verified, verify


class BaseRunner(ABC):
    """A runner of requests on one target; subclasses define where tensors live.

    Args:
        target: checkpoint folder.
        options: options of generation.

    Raises:
        VerispecError: V-MODEL-..., V-LORA-... or V-EAGLE3-... for a checkpoint that cannot be used, V-GEN-VOCAB for a
            draft model with another vocabulary, V-GEN-OPTION for options that do not fit the model.
    """

    device: torch.device
    speeds: Speeds
    recorder: Recorder | None = None
    """Records chains of drafting passes; None for platforms without graphs."""
    fuses_trees: bool
    """True if the platform's own kernels attend to the nodes of draft trees."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        self.options = options
        self._target = target
        self._tokenizer: Any = None
        self._dtype: torch.dtype = getattr(torch, options.dtype)
        self._model = self._load_model(target)
        self.vocab_size: int = self._model.config.vocab_size
        """V, the number of tokens of the target."""
        self._lora = LoraAdapters(options.lora_adapters, self._model) if options.lora_adapters else None
        self._recurrent = self._make_recurrent_states()
        tree = options.speculative_token_tree
        self._tree = DraftTree(tree) if tree is not None else None
        hooked = self._lora is not None or self._recurrent is not None
        self._forward = self._model if hooked else self._callable_of(self._model)
        self.max_model_len = self._limit()
        num_blocks = pool_size(options, self.max_model_len)
        self.pool = BlockPool(num_blocks, options.block_size)
        self.cache = self._make_cache(self._model, num_blocks)
        self._aux: AuxiliaryStates | None = None
        self._draft_cost: PassCost | None = None
        self.proposer = self._make_proposer(num_blocks)
        self._depths = self._make_depths() if options.num_speculative_tokens == AUTO else None
        self._draws = options.draft is not None and options.draft_sample_method == "probabilistic"
        self._sampling: Sampling = (
            FlatSampling(self._upload, options, self.device)
            if options.sampler == "flat"
            else RequestStateSampling(options, self.vocab_size, self._draws, self.recorder is not None, self.device)
        )
        self._step_graphs = StepGraphs.of(
            self._forward, self.cache, self.proposer, self._aux, self.recorder, options, self._sampling, self.vocab_size
        )
        self._scheduler = Scheduler(
            self.pool,
            max_num_seqs=options.max_num_seqs,
            token_budget=options.max_num_batched_tokens,
            max_model_len=self.max_model_len,
            lookahead=self.proposer.lookahead if self.proposer else 0,
            spare=0 if self._step_graphs is None else SPARE_SLOTS,
            repeatable=self.proposer is not None and options.sampler == "request_state",
        )
        self._trees = TreeVerification(self._tree, self.device) if self._tree is not None else None
        self._eos_token_ids = eos_token_ids(self._model)
        self._arrived = 0
        self._accepted = np.zeros(options.max_drafts, dtype=np.int64)
        self._num_drafts = 0
        self._num_draft_tokens = 0

    @staticmethod
    @abstractmethod
    def _upload(array: np.ndarray) -> torch.Tensor:
        """Return a tensor of `array` on the runner's device.

        Without a reference to the runner: in a cycle its caches would outlive it until the next garbage collection.
        """

    @abstractmethod
    def _callable(self, model: PreTrainedModel) -> nn.Module:
        """Return the callable of a loaded model: the model, or a faster equivalent of the platform."""

    def _callable_of(self, model: PreTrainedModel) -> nn.Module:
        return model if self._tree is not None and not self.fuses_trees else self._callable(model)

    @abstractmethod
    def _callable_head(self, head: Eagle3Head | MTPHead) -> Head:
        """Return the callable of a loaded head."""

    # Loading

    def _load_model(self, folder: Path) -> PreTrainedModel:
        model = load_target(folder, self._dtype, self.device)
        model.set_attn_implementation(ATTENTION)
        return model

    def _limit(self) -> int:
        return check_model_length(self.options.max_model_len, self._model.config.max_position_embeddings)

    def _make_cache(self, model: PreTrainedModel, num_blocks: int) -> KVCache:
        config = model.config
        slots = num_blocks * self.options.block_size
        return KVCache(config, config.num_hidden_layers, slots, self._dtype, self.device)

    def _make_recurrent_states(self) -> RecurrentStates | None:
        """Return the states of the target's recurrent layers; None if it has none."""
        if not recurrent_layers(self._model):
            return None
        check_recurrent_options(self.options)
        drafts = self.options.max_drafts if self.options.method != "none" else 0
        return RecurrentStates(self._model, self.options.max_num_seqs, drafts, self._upload)

    def _make_proposer(self, num_blocks: int) -> Proposer | None:
        options = self.options
        if options.method == "ngram":
            return NgramProposer(options.ngram_min, options.ngram_max)
        if options.method == "suffix":
            limits = SuffixLimits(
                options.suffix_decoding_max_tree_depth,
                options.suffix_decoding_max_spec_factor,
                options.suffix_decoding_min_token_prob,
            )
            return SuffixProposer(limits, options.suffix_decoding_max_cached_requests)
        if options.draft is None:
            return None
        chain: dict[str, Any] = {
            "num_drafts": options.max_drafts,
            "block_size": options.block_size,
            "max_model_len": self.max_model_len,
            "vocab_size": self.vocab_size,
            "record": self.recorder,
        }
        make = self._make_head_proposer if options.method in ("eagle3", "mtp") else self._make_model_proposer
        return make(options.draft, num_blocks, chain)

    def _make_head_proposer(self, draft: Path, num_blocks: int, chain: dict[str, Any]) -> Proposer:
        """Return the proposer of an Eagle3 head or an MTP layer, which reads hidden states of the target."""
        options = self.options
        if options.parallel_drafting:
            raise VerispecError(
                "V-GEN-OPTION",
                f"parallel_drafting must be False with method {options.method}, got True",
                where="parallel_drafting",
                hint="use method draft_model, whose models alone draft in parallel here",
            )
        load = load_eagle3 if options.method == "eagle3" else load_mtp
        head: Eagle3Head | MTPHead = load(draft, self._model)
        head.set_attn_implementation(ATTENTION)
        self._set_up_auxiliary_states(head)
        slots = num_blocks * options.block_size
        cache = KVCache(head.config, 1, slots, self._dtype, self.device)
        self._draft_cost = PassCost(head, cache, self.speeds)
        return HeadProposer(self._callable_head(head), cache, **chain)

    def _make_model_proposer(self, draft: Path, num_blocks: int, chain: dict[str, Any]) -> Proposer:
        """Return the proposer of a draft model: token by token, all at once, or a tree."""
        options = self.options
        model = self._load_model(draft)
        if recurrent_layers(model):
            raise VerispecError(
                "V-GEN-OPTION",
                "the draft model has recurrent layers, whose state the drafter does not roll back",
                where=str(draft),
                hint="use a draft model with attention layers alone",
            )
        if model.config.vocab_size != self.vocab_size:
            raise VerispecError(
                "V-GEN-VOCAB",
                f"the draft model has {model.config.vocab_size} tokens, the target {self.vocab_size}",
                where=str(draft),
                cause="a draft token must mean the same to both",
                hint="use a draft model trained with the target's tokenizer",
            )
        kept = self._make_cache(model, num_blocks)
        self._draft_cost = PassCost(model, kept, self.speeds)
        if self._tree is not None:
            check_tree_model(self._model)
            check_tree_model(model)
            return TreeProposer(self._callable_of(model), kept, self._tree, options.block_size)
        if options.parallel_drafting:
            return ParallelProposer(self._callable(model), kept, mask_token(draft), **chain)
        return DraftModelProposer(self._callable(model), kept, **chain)

    def _make_depths(self) -> DraftDepths:
        target, options = PassCost(self._model, self.cache, self.speeds), self.options
        costs = self.speeds, target, self._draft_cost, options.parallel_drafting
        return DraftDepths(*costs, most=options.max_drafts, max_num_seqs=options.max_num_seqs)

    def _set_up_auxiliary_states(self, head: Eagle3Head | MTPHead) -> None:
        """Make the target hand out the hidden states that the head reads; nothing else does this."""
        self._aux = AuxiliaryStates(self._forward, head.config.aux_layers(self._model.config.num_hidden_layers))

    # Generation

    def generate(self, requests: Sequence[GenerationRequest], on_emit: OnEmit | None = None) -> list[GenerationResult]:
        """Run all requests to their end, batched continuously.

        A request's tokens do not depend on the others beyond rounding: greedy requests take the argmax, sampled
        requests have random numbers of their own. The slot-indexed sampler derives them from seed and position. Its
        drafts are neither shortened for other requests nor lost by preemption.

        Args:
            requests: any number of requests; the scheduler batches as many as fit.
            on_emit: function called after each step with the new tokens of a request; None for no calls.

        Returns:
            Results in the order of the requests.

        Raises:
            VerispecError: V-GEN-PROMPT for a prompt that leaves no room for a token or has unknown ids.
        """
        samples = [self._admit_samples(index, request) for index, request in enumerate(requests)]
        states = [state for states in samples for state in states]
        self._scheduler.waiting.extend(states)
        with torch.inference_mode():
            while any(state.finish_reason is None for state in reversed(states)):  # the last ones end last
                self.step(on_emit)
            if self._step_graphs is not None:
                self._step_graphs.settle()
        return [
            replace(first.result(), samples=tuple(state.result() for state in others)) if others else first.result()
            for first, *others in samples
        ]

    def metrics(self) -> SpeculationMetrics:
        """Return the counts of speculation since this runner was made."""
        return SpeculationMetrics(
            num_drafts=self._num_drafts,
            num_draft_tokens=self._num_draft_tokens,
            num_accepted_tokens=int(self._accepted.sum()),
            accepted_per_position=tuple(self._accepted.tolist()) if self.proposer else (),
        )

    def close(self) -> None:
        """Detach from the target's hidden layers."""
        if self._aux is not None:
            self._aux.close()

    def _admit_samples(self, index: int, request: GenerationRequest) -> list[RequestState]:
        """Return one state per sample of the prompt; sample i has the request's seed plus i."""
        if request.n == 1:
            return [self._admit(index, request)]
        seeds = [None if request.seed is None else request.seed + sample for sample in range(request.n)]
        return [self._admit(index, replace(request, seed=seed)) for seed in seeds]

    def _admit(self, index: int, request: GenerationRequest) -> RequestState:
        check_request(index, request, self.max_model_len, self.vocab_size, len(self.options.lora_adapters))
        if self._tree is not None:
            check_tree_request(index, request)
        seed = default_seed(self.options.seed, self._arrived) if request.seed is None else request.seed
        self._arrived += 1
        return RequestState.begin(
            index,
            request,
            number=self._arrived,
            max_model_len=self.max_model_len,
            max_drafts=self.options.max_drafts if self.proposer else 0,
            eos_token_ids=self._eos_token_ids,
            seed=seed,
            device=self.device,
            decode=self._decode if request.stop else None,
        )

    def _decode(self, token_ids: Sequence[int]) -> str:
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self._target)
        return str(self._tokenizer.decode(token_ids, skip_special_tokens=True))

    # One step

    def step(self, on_emit: OnEmit | None = None) -> None:
        """Run one step: schedule, run the target, verify, emit, draft."""
        scheduled = self._scheduler.schedule()
        if not self._replay(scheduled, on_emit):
            self._launch(scheduled, on_emit)
        for part in scheduled:
            if part.request.finish_reason is not None:
                self._scheduler.finish(part.request)

    def _replay(self, scheduled: Sequence[Scheduled], on_emit: OnEmit | None) -> bool:
        """Run a step as one graph, and return False if it cannot be one."""
        depth = 0 if self.proposer is None else self.options.num_drafts(len(scheduled))
        replayed = None if self._step_graphs is None else self._step_graphs.run(scheduled, depth)
        if replayed is None:
            return False
        emitted, drafts = replayed
        self._advance(scheduled, scheduled, emitted, [[] for _ in emitted], on_emit)
        if depth:
            for part, count, token_ids in zip(scheduled, self._wanted_drafts(scheduled), drafts, strict=True):
                if count:
                    part.request.propose(token_ids[:count], None)
        return True

    def _launch(self, scheduled: Sequence[Scheduled], on_emit: OnEmit | None) -> None:
        """Run a step of any kind."""
        inputs = self._prepare(scheduled)
        if self._lora is not None:
            adapters = [part.request.params.lora_adapter for part in scheduled]
            self._lora.select(adapters, inputs.query_lens, self._upload)
        if self._recurrent is not None:
            self._recurrent.select(
                [RecurrentPart(p.request.slot, p.request.num_computed, p.num_tokens, p.num_drafts) for p in scheduled]
            )
        output = self._forward(
            input_ids=inputs.token_ids[None],
            position_ids=inputs.position_ids[None],
            logits_to_keep=inputs.logit_rows,
            use_cache=False,
            paged=inputs.paged,
        )
        sampling = [part for part in scheduled if part.samples]
        logits = output.logits[0]
        record_prompt_logprobs(scheduled, logits[inputs.num_sample_rows :])
        verified = None
        if sampling and self._trees is not None:
            verified, paths = self._trees.verify(logits[: inputs.num_sample_rows], sampling)
            compact(self.cache, sampling, paths, self.options.block_size)
        elif sampling:
            verified = verify(self._sampling, logits[: inputs.num_sample_rows], sampling, self.options.logprobs_mode)
        emitted, logprobs = ([], []) if verified is None else (verified.emitted, verified.logprobs)
        self._advance(scheduled, sampling, emitted, logprobs, on_emit)
        unfinished = any(part.request.finish_reason is None for part in scheduled)
        if self.proposer is not None and (unfinished or self.proposer.reads_last_tokens):
            self._draft(scheduled, inputs, verified)

    def _prepare(self, scheduled: Sequence[Scheduled]) -> StepInputs:
        return flatten_step(scheduled, self.cache, self.options.block_size, self._upload, self._tree)

    def _advance(
        self,
        scheduled: Sequence[Scheduled],
        sampling: Sequence[Scheduled],
        emitted: Sequence[list[int]],
        logprobs: Sequence[list[TokenLogprobs]],
        on_emit: OnEmit | None,
    ) -> None:
        """Count the computed tokens, and append the emitted tokens to every request that sampled."""
        for part in scheduled:
            part.request.num_computed += part.num_tokens
        for part, token_ids, more in zip(sampling, emitted, logprobs, strict=True):
            request, accepted = part.request, len(token_ids) - 1
            request.num_computed -= part.num_drafts - accepted
            if part.num_drafts:
                self._num_drafts += 1
                self._num_draft_tokens += part.num_drafts
                self._accepted[:accepted] += 1
            count = request.emit(token_ids, part.num_drafts)
            request.logprobs.extend(more[:count])
            if on_emit is not None:
                on_emit(request.index, token_ids[:count], request.kinds[-count:])

    def _wanted_drafts(self, scheduled: Sequence[Scheduled]) -> list[int]:
        """Return the number of drafts of each request for the next step."""
        able = [p.drafts and p.request.finish_reason is None and p.request.draft_room > 0 for p in scheduled]
        if self._depths is None:
            depth = self.options.num_drafts(len(scheduled))
            return [depth if is_able else 0 for is_able in able]
        requests = [part.request for part, is_able in zip(scheduled, able, strict=True) if is_able]
        chosen = iter(self._depths.choose(requests))
        return [next(chosen) if is_able else 0 for is_able in able]

    def _draw_drafts(self, requests: Sequence[RequestState], num_drafts: Sequence[int]) -> DrawDrafts | None:
        """Return the function that draws drafts; None if every request takes the most likely tokens."""
        draws = self._draws and any(k and not r.params.greedy for k, r in zip(num_drafts, requests, strict=True))
        return self._sampling.drafting(requests, num_drafts) if draws else None

    def _draft(self, scheduled: Sequence[Scheduled], inputs: StepInputs, verified: Verified | None) -> None:
        """Let the proposer draft for the next step."""
        assert self.proposer is not None
        states = None if self._aux is None else self._aux.take()[0]
        wanted = self._wanted_drafts(scheduled)
        requests = [part.request for part in scheduled]
        if self._depths is not None and self.proposer.catches_up:
            if states is not None:
                keep_states(scheduled, states)
            requests = [request for request, count in zip(requests, wanted, strict=True) if count]
            wanted = [count for count in wanted if count]
            if not requests:
                return
            step = read_backlog(requests, wanted, self._draw_drafts(requests, wanted), self._upload)
        else:
            step = verified_step(
                scheduled, inputs, verified, states, wanted, self._draw_drafts(requests, wanted), self._upload
            )
        drafts = self.proposer.propose(step)
        for row, (request, count) in enumerate(zip(requests, wanted, strict=True)):
            if count:
                request.propose(
                    drafts.token_ids[row][:count],
                    None if drafts.probs is None or request.params.greedy else drafts.probs[row],
                    None if self._tree is None else self.max_model_len - request.num_tokens,
                )
