"""Runners that go wrong at the end of a block, behind accepted drafts or in long prompts: ``first_mutants:<name>``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from runner_mutants import engine_with

from verispec.engines.protocol.generation import LoadOptions
from verispec.reference.proposers import ngram
from verispec.reference.proposers.chain import ChainProposer
from verispec.reference.proposers.protocol import Drafts, VerifiedStep
from verispec.reference.runners import base
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.sampling import RequestStateSampling


class NoRoomAhead(CPURunner):
    """No blocks are reserved for the keys of drafts."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        self._scheduler.lookahead = 0


class DraftedKeysKept(CPURunner):
    """Keys of accepted drafts stay those of a head's own states (vllm#14649)."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        proposer = self.proposer
        assert isinstance(proposer, ChainProposer)
        expand = proposer._expand

        def keeping(step: VerifiedStep, *rest: Any) -> Any:
            token_ids, positions, unused, sample_rows = expand(step, *rest)
            return token_ids, positions, unused | drafted_rows(step), sample_rows

        proposer._expand = keeping  # type: ignore[method-assign]


def drafted_rows(step: VerifiedStep) -> torch.Tensor:
    """Return the rows of accepted drafts whose keys the drafting passes have written, [T] bool."""
    counts = torch.diff(step.cu_num_draft_tokens, prepend=step.cu_num_draft_tokens.new_zeros(1))
    accepted = (step.sampled_token_ids >= 0).sum(dim=1) - 1
    row = torch.arange(step.token_ids.shape[0])
    owner = torch.searchsorted(step.query_start_loc[1:].contiguous(), row, right=True)
    place = row - (step.query_start_loc[1:] - counts - 1)[owner]
    return (place >= 0) & (place < torch.minimum(accepted, counts - 1)[owner])


class SlotsInARow(CPURunner):
    """Accepted nodes of a tree are moved as if their slots followed the root (text-generation-inference#2711)."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)

        def compact(cache: Any, parts: Sequence[Any], paths: Sequence[Sequence[int]], block_size: int) -> None:
            for part, path in zip(parts, paths, strict=True):
                root = part.request.num_tokens - 1
                first = part.request.blocks[root // block_size] * block_size + root % block_size
                for layer in cache.layers:
                    moved = layer[[min(first + node, cache.num_slots - 1) for node in path]]
                    layer[first : first + len(path)] = moved[: cache.num_slots - first]

        base.compact = compact


class LongPromptsCut(CPURunner):
    """Of more than 48 tokens in a pass only the first 48 count for the logits."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        forward = self._forward

        def cut(*, logits_to_keep: torch.Tensor, **given: Any) -> Any:
            return forward(logits_to_keep=logits_to_keep.clamp(max=47), **given)

        self._forward = cut


class LimitOfTheSlotKept(CPURunner):
    """A slot keeps the min_p of an earlier request where the next one has none."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        sampling = self._sampling
        assert isinstance(sampling, RequestStateSampling)
        write = sampling._write

        def keeping(request: Any) -> None:
            before = sampling._min_p[request.slot].item()
            write(request)
            if not request.params.min_p:
                sampling._min_p[request.slot] = before

        sampling._write = keeping  # type: ignore[method-assign]


class TextsOfPlacesKept(CPURunner):
    """Prompt lookup keeps the text of the request that had a place in the batch before (llama.cpp#27852)."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        proposer, seen = self.proposer, dict[int, np.ndarray]()
        assert isinstance(proposer, ngram.NgramProposer)

        def propose(step: VerifiedStep) -> Drafts:
            found = []
            for row, (own, wanted) in enumerate(zip(step.sequences, step.num_drafts, strict=True)):
                text = seen.get(row, own[:0])
                seen[row] = text = np.concatenate((text, own[len(text) :]))
                found.append(ngram.lookup(text, 2, 4, wanted) if wanted else [])
            return Drafts(found)

        proposer.propose = propose  # type: ignore[method-assign]


class LookedUp(CPURunner):
    """Base of the runners whose prompt lookup takes other lengths or places of the suffix."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        ngram.lookup = self.lookup  # type: ignore[assignment]

    @staticmethod
    def lookup(sequence: np.ndarray, shortest: int, longest: int, num_drafts: int) -> list[int]:
        """Return drafts as `ngram.lookup` does."""
        raise NotImplementedError


class ShortestLookedUp(LookedUp):
    """Only suffixes of the minimum length are looked up (vllm#15348)."""

    @staticmethod
    def lookup(sequence: np.ndarray, shortest: int, longest: int, num_drafts: int) -> list[int]:
        return _lookup(sequence, shortest, shortest, num_drafts)


class LongestIsExclusive(LookedUp):
    """Suffixes of the maximum length are not looked up."""

    @staticmethod
    def lookup(sequence: np.ndarray, shortest: int, longest: int, num_drafts: int) -> list[int]:
        return _lookup(sequence, shortest, max(longest - 1, shortest), num_drafts)


class NoOverlap(LookedUp):
    """A place that overlaps the suffix is not found."""

    @staticmethod
    def lookup(sequence: np.ndarray, shortest: int, longest: int, num_drafts: int) -> list[int]:
        tokens = sequence.tolist()
        for length in range(longest, shortest - 1, -1):
            for start in range(len(tokens) - 2 * length, -1, -1):
                if tokens[start : start + length] == tokens[len(tokens) - length :]:
                    return tokens[start + length : start + length + num_drafts]  # type: ignore[no-any-return]
        return []


class FirstInLongTexts(LookedUp):
    """The first place of a suffix counts in texts of more than 64 tokens, and the last place in others."""

    @staticmethod
    def lookup(sequence: np.ndarray, shortest: int, longest: int, num_drafts: int) -> list[int]:
        tokens: list[int] = sequence.tolist()
        if len(tokens) <= 64:
            return _lookup(sequence, shortest, longest, num_drafts)
        for length in range(longest, shortest - 1, -1):
            for start in range(len(tokens) - length):
                if tokens[start : start + length] == tokens[len(tokens) - length :]:
                    return tokens[start + length : start + length + num_drafts]
        return []


_lookup = ngram.lookup
no_room_ahead = engine_with(NoRoomAhead)
drafted_keys_kept = engine_with(DraftedKeysKept)
slots_in_a_row = engine_with(SlotsInARow)
long_prompts_cut = engine_with(LongPromptsCut)
limit_of_the_slot_kept = engine_with(LimitOfTheSlotKept)
texts_of_places_kept = engine_with(TextsOfPlacesKept)
shortest_looked_up = engine_with(ShortestLookedUp)
longest_is_exclusive = engine_with(LongestIsExclusive)
no_overlap = engine_with(NoOverlap)
first_in_long_texts = engine_with(FirstInLongTexts)
