"""Autoregressive drafting by a model, one token at a time, for a whole padded batch.

The first pass of a step reads all tokens that the target just computed, rejected ones included. The batch keeps its
shape, and nothing waits for the number of accepted tokens. Rejected tokens are masked, and their keys go to the null
block. The pass ends at the token that the target sampled and yields the first draft token. Every further pass adds one
token per request.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from verispec.reference.models.attention import PagedBatch
from verispec.reference.models.decode_graphs import DecodeGraphs, Recorder
from verispec.reference.models.kv_cache import PAD_SLOT, KVCache
from verispec.reference.runners.slots import slot_mapping
from verispec.reference.sampler import ops
from verispec.reference.sampler.drafting import SeededDraw

from .protocol import Drafts, DrawDrafts, VerifiedStep

_TILE = 256
"""Tokens that a program of a kernel copies at a time."""


class ChainProposer(ABC):
    """Base class of autoregressive drafters.

    Args:
        cache: the drafter's own KV cache, under the target's block tables.
        num_drafts: maximum K, draft tokens per step.
        block_size: tokens per block.
        max_model_len: maximum number of tokens per sequence.
        vocab_size: vocabulary size of the target.
        record: records the passes after the first one as a graph; None runs them one by one.
        shift: True if the row of position i reads token i + 1, as a head on top of the target does. False if it reads
            token i, as a separate model does, which gets one more row.
    """

    reads_last_tokens = False
    catches_up = True

    def __init__(
        self,
        cache: KVCache,
        *,
        num_drafts: int,
        block_size: int,
        max_model_len: int,
        vocab_size: int,
        shift: bool,
        record: Recorder | None = None,
    ) -> None:
        self.cache = cache
        self.lookahead = num_drafts
        self._block_size = block_size
        self._max_model_len = max_model_len
        self._vocab_size = vocab_size
        self._shift = shift
        self._graphs = [DecodeGraphs(record) for _ in range(num_drafts)]
        """Recorded chains, by their number of passes."""
        self._no_graphs = DecodeGraphs(None)

    @abstractmethod
    def _run(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        hidden: torch.Tensor | None,
        paged: PagedBatch,
        rows: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Run the drafter over [T] tokens.

        `hidden` [T, H] and the second result, [B, H], are for drafters that read their output for the previous token.

        Returns:
            Logits of `rows` (None: of all tokens) over the drafter's own vocabulary, [B, Vd], and their hidden states.
        """

    def _first_hidden(self, step: VerifiedStep) -> torch.Tensor | None:
        """Return the hidden states that the first pass reads, [T, H]."""
        return None

    def _to_target(self, draft_ids: torch.Tensor) -> torch.Tensor:
        """Map ids of the drafter's vocabulary to the target's."""
        return draft_ids

    def _target_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """Map logits over the drafter's vocabulary to the target's, [B, V]."""
        return logits

    def propose(self, step: VerifiedStep) -> Drafts:
        """Return K draft tokens per request, K that of the request that can use most."""
        ids, probs = self.draft(step)
        return Drafts(ids.tolist(), probs)

    def draft(self, step: VerifiedStep) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the draft tokens of `propose`, [B, K], and their distributions [B, K, V] if some were drawn."""
        batch_size, depth = len(step.query_lens), step.depth
        logits, hidden, last = self._read(step)
        if not depth:
            return step.token_ids.new_empty((batch_size, 0)), None
        followed = last + 1 if self._shift else last
        ids, probs = self._draw(step.draw, logits, followed)
        drafts, draft_probs = [ids[:, None]], [] if probs is None else [probs[:, None]]
        if depth > 1:
            ones = np.ones(batch_size, dtype=np.int64)
            ones_start_loc = torch.arange(batch_size + 1, dtype=torch.int32, device=last.device)
            seq_lens = (last + 1).to(torch.int32)
            no_slots = torch.full_like(last, PAD_SLOT)
            ahead = self._batch(step, no_slots, last, ones, ones_start_loc, seq_lens, depth - 1)
            tensors = {"ids": ids, "followed": followed} | ({} if hidden is None else {"hidden": hidden})
            graphs = self._graphs[depth - 1]
            if isinstance(step.draw, SeededDraw):
                tensors["idx_mapping"] = step.draw.idx_mapping
            elif step.draw is not None:
                graphs = self._no_graphs  # generators of the host draw the noise
            more, *more_probs = graphs(partial(self._continue, step.draw, depth), tensors, ahead)
            drafts.append(more)
            draft_probs += more_probs
        return torch.cat(drafts, dim=1), torch.cat(draft_probs, dim=1) if draft_probs else None

    def _continue(
        self, draw: DrawDrafts | None, num_drafts: int, tensors: Mapping[str, torch.Tensor], paged: PagedBatch
    ) -> tuple[torch.Tensor, ...]:
        """Draft the tokens after the first one.

        Args:
            draw: function that draws the tokens of the step.
            num_drafts: K, the first draft token included.
            tensors: ids and hidden states of the first draft tokens, their positions before drafting, and the slots of
                their requests.
            paged: positions and sequence lengths after the first pass; its slots are not read.

        Returns:
            Ids [B, K - 1], and the probabilities [B, K - 1, V] if `draw` returns some.
        """
        ids, hidden, last = tensors["ids"], tensors.get("hidden"), paged.positions
        if isinstance(draw, SeededDraw):
            draw = replace(draw, idx_mapping=tensors["idx_mapping"])
        drafts, draft_probs = [], []
        for ahead in range(1, num_drafts):
            positions, slots = torch.empty_like(last), torch.empty_like(last)
            ops.run(
                "eagle_step_slot_mapping_metadata",
                last.device,
                positions_ptr=last,
                block_table_ptr=paged.block_table,
                block_table_stride=paged.block_table.stride(0),
                seq_lens_ptr=paged.seq_lens,
                out_clamped_positions_ptr=positions,
                out_slot_mapping_ptr=slots,
                block_size=self._block_size,
                max_model_len=self._max_model_len,
                n_blocks_per_req=paged.block_table.shape[1],
                PAD_ID=PAD_SLOT,
                batch_size=len(last),
            )
            last = last + 1  # and not `positions`: the position after the limit is 0 there, and would go on from it
            batch = PagedBatch(
                self.cache,
                slots,
                positions,
                paged.block_table,
                paged.query_lens,
                paged.query_start_loc,
                paged.seq_lens,
                paged.max_seq_lens,
                self._block_size,
            )
            logits, hidden = self._run(ids, positions, hidden, batch, None)
            ids, probs = self._draw(draw, logits, tensors["followed"], ahead)
            drafts.append(ids)
            if probs is not None:
                draft_probs.append(probs)
        stacked = torch.stack(drafts, dim=1)
        return (stacked, torch.stack(draft_probs, dim=1)) if draft_probs else (stacked,)

    def _read(
        self, step: VerifiedStep, new_tokens: int = 1, mask_id: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Run the first pass of a step: all tokens that the target just computed, and the new ones behind them.

        Args:
            step: the verified step.
            new_tokens: P, tokens per request to sample from: the one that the target sampled, and mask tokens.
            mask_id: the mask token.

        Returns:
            Logits [B * P, Vd] and hidden states of the new tokens, and the position of the first of each request, [B].
        """
        token_ids, positions, unused, sample_rows = self._expand(step, new_tokens, mask_id)
        batch_size = len(step.query_lens)
        extra = new_tokens - 1 if self._shift else new_tokens
        requests = torch.arange(batch_size + 1, dtype=torch.int32, device=token_ids.device)
        query_start_loc = step.query_start_loc + requests * extra
        first = positions[sample_rows.view(batch_size, new_tokens)[:, 0]]
        if new_tokens > 1:
            # Mask tokens may reach past the longest sequence: nothing reads what they draft, and they have no slot.
            unused = unused | (positions >= self._max_model_len)
            positions = positions.clamp(max=self._max_model_len - 1)
        seq_lens = (first + new_tokens).clamp(max=self._max_model_len).to(torch.int32)
        slots = slot_mapping(query_start_loc, positions, step.block_table, self._block_size)
        slots.masked_fill_(unused, PAD_SLOT)
        query_lens = step.query_lens + extra
        paged = self._batch(step, slots, positions, query_lens, query_start_loc, seq_lens, new_tokens - 1)
        logits, hidden = self._run(token_ids, positions, self._first_hidden(step), paged, sample_rows)
        return logits, hidden, first

    def _expand(
        self, step: VerifiedStep, new_tokens: int, mask_id: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the drafter's token ids, positions, rejected mask and rows to sample from, given the target's rows."""
        device = step.token_ids.device
        batch_size = len(step.sampled_token_ids)
        num_tokens = step.token_ids.shape[0]
        next_token_ids, query_end_loc = self._verified(step)
        out_tokens = num_tokens + batch_size * (new_tokens - 1 if self._shift else new_tokens)
        token_ids = torch.empty(out_tokens, dtype=torch.int32, device=device)
        positions = torch.empty(out_tokens, dtype=torch.int64, device=device)
        is_rejected = torch.empty(out_tokens, dtype=torch.bool, device=device)
        is_masked = torch.empty_like(is_rejected)
        sample_rows = torch.empty(batch_size * new_tokens, dtype=torch.int32, device=device)
        ops.run(
            "copy_and_expand_eagle_inputs",
            device,
            target_token_ids_ptr=step.token_ids,
            target_positions_ptr=step.positions,
            next_token_ids_ptr=next_token_ids,
            out_input_ids_ptr=token_ids,
            out_positions_ptr=positions,
            out_is_rejected_token_mask_ptr=is_rejected,
            out_is_masked_token_mask_ptr=is_masked,
            out_new_token_indices_ptr=sample_rows,
            out_hidden_state_mapping_ptr=torch.empty(num_tokens, dtype=torch.int32, device=device),
            query_start_loc_ptr=step.query_start_loc,
            query_end_loc_ptr=query_end_loc,
            padding_token_id=0,
            parallel_drafting_token_id=mask_id,
            total_input_tokens=num_tokens,
            num_padding_slots_per_request=new_tokens,
            shift_input_ids=self._shift,
            BLOCK_SIZE_TOKENS=_TILE,
        )
        return token_ids, positions, is_rejected, sample_rows

    def _verified(self, step: VerifiedStep) -> tuple[torch.Tensor, torch.Tensor]:
        """Return each request's next token and the index of its last valid row, [B] int32 each."""
        device = step.token_ids.device
        batch_size, width = step.sampled_token_ids.shape
        next_token_ids = torch.empty(batch_size, dtype=torch.int32, device=device)
        valid_counts = torch.empty_like(next_token_ids)
        ops.run(
            "eagle_prepare_next_token_padded",
            device,
            sampled_token_ids_ptr=step.sampled_token_ids,
            discard_request_mask_ptr=step.discarded,
            backup_next_token_ids_ptr=step.backup_token_ids,
            next_token_ids_ptr=next_token_ids,
            valid_sampled_tokens_count_ptr=valid_counts,
            vocab_size=self._vocab_size,
            num_sampled_tokens_per_req=width,
            num_reqs=batch_size,
            stride_sampled_token_ids=step.sampled_token_ids.stride(0),
            BLOCK_SIZE_TOKENS=1 << (width - 1).bit_length(),
        )
        query_end_loc = torch.empty_like(next_token_ids)
        num_rejected = torch.empty_like(next_token_ids)
        ops.run(
            "eagle_prepare_inputs_padded",
            device,
            cu_num_draft_tokens_ptr=step.cu_num_draft_tokens,
            valid_sampled_tokens_count_ptr=valid_counts,
            query_start_loc_gpu_ptr=step.query_start_loc,
            token_indices_to_sample_ptr=query_end_loc,
            num_rejected_tokens_gpu_ptr=num_rejected,
            num_reqs=batch_size,
        )
        return next_token_ids, query_end_loc

    def _batch(
        self,
        step: VerifiedStep,
        slots: torch.Tensor,
        positions: torch.Tensor,
        query_lens: np.ndarray,
        query_start_loc: torch.Tensor,
        seq_lens: torch.Tensor,
        ahead: int,
    ) -> PagedBatch:
        bounds = np.minimum(step.context_lens + ahead, self._max_model_len)
        return PagedBatch(
            self.cache,
            slots,
            positions,
            step.block_table,
            query_lens,
            query_start_loc,
            seq_lens,
            bounds,
            self._block_size,
        )

    def _draw(
        self, draw: DrawDrafts | None, logits: torch.Tensor, followed: torch.Tensor, ahead: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Sample draft token number `ahead` of each request; `followed` [B] is the position before the first one."""
        if draw is None:
            return self._to_target(logits.argmax(dim=-1)), None
        return draw(self._target_logits(logits), followed + ahead, ahead)
