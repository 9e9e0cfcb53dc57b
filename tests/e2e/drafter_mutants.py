"""Runners with one fault in a drafter beyond chains: ``--engine drafter_mutants:<name>``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from runner_mutants import engine_with

from verispec.engines.protocol.generation import LoadOptions
from verispec.reference.models import AuxiliaryStates, eagle3
from verispec.reference.proposers import suffix
from verispec.reference.proposers.protocol import Drafts
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.sampler import ops


class OutputsForgotten(CPURunner):
    """Suffix decoding keeps no output."""

    def _make_proposer(self, num_blocks: int) -> Any:
        proposer: Any = super()._make_proposer(num_blocks)
        proposer._most = 0
        return proposer


class NeverEvicted(CPURunner):
    """Suffix decoding keeps every output, whatever the limit."""

    def _make_proposer(self, num_blocks: int) -> Any:
        proposer: Any = super()._make_proposer(num_blocks)
        proposer._most = proposer._most and 10**6
        return proposer


def limits(**changed: Any) -> type[CPURunner]:
    """Return a runner whose suffix decoding has other limits than those asked for."""

    class OtherLimits(CPURunner):
        def _make_proposer(self, num_blocks: int) -> Any:
            proposer: Any = super()._make_proposer(num_blocks)
            proposer._limits = replace(proposer._limits, **changed)
            return proposer

    return OtherLimits


def drafts_by(change: Callable[..., tuple[list[int], float]]) -> type[CPURunner]:
    """Return a runner whose suffix decoding finds its continuations by another function."""

    class OtherContinuations(CPURunner):
        def _make_proposer(self, num_blocks: int) -> Any:
            suffix.most_frequent_continuation = change
            return super()._make_proposer(num_blocks)

    return OtherContinuations


def _longest_match(texts: Any, context: Any, num_drafts: int, given: Any) -> tuple[list[int], float]:
    """Take the draft of the longest suffix instead of that with the highest score."""
    for length in range(len(context) - 1, 0, -1):
        places = range(length - 1, len(texts) - 1)
        ends = [n for n in places if (texts[n - length + 1 : n + 1] == context[-length:]).all()]
        room = min(num_drafts, int(length * given.max_factor), given.max_depth - length)
        if ends and room > 0:
            found: tuple[list[int], float] = suffix._follow(texts, suffix.np.array(ends), room, given.min_probability)
            return found
    return [], 0.0


def _probability_of_one(texts: Any, ends: Any, room: int, least: float) -> tuple[list[int], float]:
    """Compare each token's own probability with the limit, not that of all before it too."""
    tokens: list[int] = []
    while len(tokens) < room:
        following = texts[ends + 1]
        ids, counts = suffix.np.unique(following[following != -1], return_counts=True)
        if not len(ids) or counts.max() / len(ends) < least:
            break
        tokens.append(int(ids[counts.argmax()]))
        ends = ends[following == tokens[-1]] + 1
    return tokens, float(len(tokens))


def _ends_left_out(texts: Any, ends: Any, room: int, least: float) -> tuple[list[int], float]:
    """Take probabilities among the occurrences that go on."""
    tokens: list[int] = []
    score, chance = 0.0, 1.0
    while len(tokens) < room:
        following = texts[ends + 1]
        ids, counts = suffix.np.unique(following[following != -1], return_counts=True)
        chance *= float(counts.max() / counts.sum()) if len(ids) else 0.0
        if not len(ids) or chance < least:
            break
        tokens.append(int(ids[counts.argmax()]))
        score += chance
        ends = ends[following == tokens[-1]] + 1
    return tokens, score


class EndsLeftOut(CPURunner):
    """Suffix decoding does not count occurrences at the end of a text."""

    def _make_proposer(self, num_blocks: int) -> Any:
        suffix._follow = _ends_left_out
        return super()._make_proposer(num_blocks)


class ProbabilityOfOne(CPURunner):
    """Suffix decoding limits the probability of one token."""

    def _make_proposer(self, num_blocks: int) -> Any:
        suffix._follow = _probability_of_one
        return super()._make_proposer(num_blocks)


class AnotherMask(CPURunner):
    """Parallel drafting reads token 0 as its mask."""

    def _make_proposer(self, num_blocks: int) -> Any:
        proposer: Any = super()._make_proposer(num_blocks)
        proposer._mask_id = 0
        return proposer


class MasksStay(CPURunner):
    """Keys of accepted drafts are not written: those of the mask tokens at their places stay."""

    def _make_proposer(self, num_blocks: int) -> Any:
        proposer: Any = super()._make_proposer(num_blocks)
        expand = proposer._expand

        def expanded(step: Any, *more: Any) -> Any:
            token_ids, positions, unused, rows = expand(step, *more)
            if (step.query_lens <= 4).all():
                first = torch.zeros_like(unused)
                first[step.query_start_loc[:-1] + torch.arange(len(step.query_lens)) * more[0]] = True
                unused = unused | ((token_ids != proposer._mask_id) & ~first)
                unused[rows.view(len(step.query_lens), -1)[:, 0]] = False
            return token_ids, positions, unused, rows

        proposer._expand = expanded
        return proposer


class HeadsKeysStay(CPURunner):
    """A head's keys of accepted drafts are not written again: those of its drafting passes stay (vllm#14649)."""

    def _make_proposer(self, num_blocks: int) -> Any:
        proposer: Any = super()._make_proposer(num_blocks)
        expand = proposer._expand

        def expanded(step: Any, *more: Any) -> Any:
            token_ids, positions, unused, rows = expand(step, *more)
            drafted = step.cu_num_draft_tokens.diff(prepend=step.cu_num_draft_tokens.new_zeros(1))
            accepted = (step.sampled_token_ids >= 0).sum(dim=1) - 1
            for first, count in zip(step.query_start_loc, torch.minimum(accepted, drafted - 1), strict=False):
                unused[first : first + max(count, 0)] = True
            return token_ids, positions, unused, rows

        proposer._expand = expanded
        return proposer


class MasksInOnePlace(CPURunner):
    """All mask tokens stand at the position of the first."""

    def _make_proposer(self, num_blocks: int) -> Any:
        proposer: Any = super()._make_proposer(num_blocks)
        expand = proposer._expand

        def expanded(step: Any, *more: Any) -> Any:
            token_ids, positions, unused, rows = expand(step, *more)
            places = rows.view(len(step.query_lens), -1)
            positions[places[:, 1:]] = positions[places[:, :1]] + 1
            return token_ids, positions, unused, rows

        proposer._expand = expanded
        return proposer


class StateBeforeTheLastLayer(CPURunner):
    """The MTP layer reads the state before the target's last layer."""

    def _set_up_auxiliary_states(self, head: Any) -> None:
        self._aux = AuxiliaryStates(self._forward, [self._model.config.num_hidden_layers - 1])


class StateAfterTheNorm(CPURunner):
    """The MTP layer reads the target's state after its final norm."""

    def _callable_head(self, head: Any) -> Any:
        made: Any = super()._callable_head(head)
        made.combine = self._model.model.norm
        return made


class FirstOfTheBatch(CPURunner):
    """The embedding at position 0 is left out for the first request of a batch alone."""

    def _callable_head(self, head: Any) -> Any:
        called = super()._callable_head(head)
        run = type(called).__call__

        def with_first(own: Any, ids: torch.Tensor, hidden: torch.Tensor, positions: torch.Tensor, **more: Any) -> Any:
            moved = torch.where(positions == 0, -1, positions)
            moved[:, 0] = positions[:, 0]
            return run(own, ids, hidden, moved, **more)

        called.__class__ = type("FirstOfTheBatch", (type(called),), {"__call__": with_first})
        return called


class StateOfTheTarget(CPURunner):
    """Later drafts of an MTP layer read the state that the first one read."""

    def _make_proposer(self, num_blocks: int) -> Any:
        proposer: Any = super()._make_proposer(num_blocks)
        run = proposer._run

        def same_state(token_ids: Any, positions: Any, hidden: Any, paged: Any, rows: Any) -> Any:
            logits, _ = run(token_ids, positions, hidden, paged, rows)
            return logits, hidden if rows is None else hidden.index_select(0, rows)

        proposer._run = same_state
        return proposer


class StateOfTheFirst(CPURunner):
    """Drafts after the second read the head's state of the first one again."""

    def _make_proposer(self, num_blocks: int) -> Any:
        proposer: Any = super()._make_proposer(num_blocks)
        run = proposer._run

        def first_state(token_ids: Any, positions: Any, hidden: Any, paged: Any, rows: Any) -> Any:
            logits, following = run(token_ids, positions, hidden, paged, rows)
            return logits, hidden if rows is None else following

        proposer._run = first_state
        return proposer


class TokenNotShifted(CPURunner):
    """The MTP layer reads the token of its own position, not the next one."""

    def _make_proposer(self, num_blocks: int) -> Any:
        proposer: Any = super()._make_proposer(num_blocks)
        expand = proposer._expand

        def expanded(step: Any, *more: Any) -> Any:
            token_ids, positions, unused, rows = expand(step, *more)
            return torch.cat((token_ids[:1], token_ids[:-1])), positions, unused, rows

        proposer._expand = expanded
        return proposer


class LookupsMoveUp(CPURunner):
    """Requests that cannot draft are left out of prompt lookup, and the drafts of the others move up in the batch."""

    def _make_proposer(self, num_blocks: int) -> Any:
        proposer: Any = super()._make_proposer(num_blocks)
        propose = proposer.propose

        def moved(step: Any) -> Any:
            drafts = propose(step).token_ids
            able = [row for row, count in zip(drafts, step.num_drafts, strict=True) if count]
            return Drafts(able + [[]] * (len(drafts) - len(able)))

        proposer.propose = moved
        return proposer


class PastTheLimit(CPURunner):
    """Draft tokens past the last place of a text are written to its first place."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        run = ops.run

        def written(name: str, device: torch.device, **given: Any) -> None:
            run(name, device, **given)
            if name == "eagle_step_slot_mapping_metadata":
                slots = given["out_slot_mapping_ptr"]
                slots.copy_(torch.where(slots < 0, given["block_table_ptr"][:, 0] * given["block_size"], slots))

        ops.run = written


class ChunksOfOutputs(CPURunner):
    """A head reads token 0 at the end of a chunk that ends in the output of a resumed request."""

    def _make_proposer(self, num_blocks: int) -> Any:
        proposer: Any = super()._make_proposer(num_blocks)
        propose = proposer.propose

        def read(step: Any) -> Any:
            is_output = torch.from_numpy(step.context_lens > np.array(step.prompt_lens))
            return propose(replace(step, backup_token_ids=step.backup_token_ids.masked_fill(is_output, 0)))

        proposer.propose = read
        return proposer


class BoundOfKeysStays(CPURunner):
    """Drafts after the first one miss the keys of those before, where transformers runs the draft model."""

    def _make_proposer(self, num_blocks: int) -> Any:
        proposer: Any = super()._make_proposer(num_blocks)
        batch = proposer._batch
        proposer._batch = lambda *step: batch(*step[:-1], 0)  # the last one is how far the drafter goes ahead
        return proposer


class FalseFieldIgnored(CPURunner):
    """A head in speculators' format takes its residual behind its norm, though its configuration says otherwise."""

    def _make_proposer(self, num_blocks: int) -> Any:
        read = eagle3.read_head_config

        def by_default(folder: Path) -> Any:
            config = read(folder)
            config.norm_before_residual |= "speculators" in (folder / "config.json").read_text(encoding="utf-8")
            return config

        eagle3.read_head_config = by_default
        return super()._make_proposer(num_blocks)


outputs_forgotten = engine_with(OutputsForgotten)
never_evicted = engine_with(NeverEvicted)
depth_ignored = engine_with(limits(max_depth=24))
factor_ignored = engine_with(limits(max_factor=1.0))
probability_ignored = engine_with(limits(min_probability=0.1))
longest_match = engine_with(drafts_by(_longest_match))
ends_left_out = engine_with(EndsLeftOut)
probability_of_one = engine_with(ProbabilityOfOne)
another_mask = engine_with(AnotherMask)
masks_stay = engine_with(MasksStay)
heads_keys_stay = engine_with(HeadsKeysStay)
masks_in_one_place = engine_with(MasksInOnePlace)
state_before_the_last_layer = engine_with(StateBeforeTheLastLayer)
state_after_the_norm = engine_with(StateAfterTheNorm)
first_of_the_batch = engine_with(FirstOfTheBatch)
state_of_the_first = engine_with(StateOfTheFirst)
state_of_the_target = engine_with(StateOfTheTarget)
token_not_shifted = engine_with(TokenNotShifted)
lookups_move_up = engine_with(LookupsMoveUp)
past_the_limit = engine_with(PastTheLimit)
bound_of_keys_stays = engine_with(BoundOfKeysStays)
chunks_of_outputs = engine_with(ChunksOfOutputs)
false_field_ignored = engine_with(FalseFieldIgnored)
