"""The end-to-end sampler of slot-indexed batches: logits and draft tokens of a batch in, tokens per request out.

Requests occupy states, rows of tables on the device. A batch names the state of each request, and -1 for padding of a
captured graph. Random samples are Philox words of the state's seed and the row's position, so that no sample depends on
the batch or the platform. No code here reads device memory from the host. Shapes alone determine the launches, so that
a step can be captured as a graph.

`verispec.reference.contracts._request_state` defines the terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from . import ops
from .fused import verify_rows
from .min_p import mask_below_min_p
from .ops import PADDING_TOKEN
from .top_k_top_p import apply_top_k_top_p


@dataclass(frozen=True, slots=True)
class RequestStates:
    """Sampling parameters per state; R is the engine's maximum number of requests.

    Attributes:
        temperature: [R] float32; 0 is greedy.
        seed: [R] int64 seed of the request's random samples; unseeded requests need one too.
        top_k: [R] int32, 0 or V keeps all tokens; None if no request uses it.
        top_p: [R] float32, 1 keeps all tokens; None if no request uses it.
        min_p: [R] float32, 0 keeps all tokens; None if no request uses it.
        draft_logits: [R, K, V] float32 logits of each step's draft token, before temperature, written by
            `drafting.sample_drafts_by_seed`. None for argmax and prompt lookup.
    """

    temperature: torch.Tensor
    seed: torch.Tensor
    top_k: torch.Tensor | None = None
    top_p: torch.Tensor | None = None
    min_p: torch.Tensor | None = None
    draft_logits: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class RequestRows:
    """The rows of a batch: B requests, L target rows, padding included.

    Attributes:
        draft_sampled: [L] int32 input token of each row, so that the next row's entry is the draft token of a row; -1
            is padding.
        cu_num_logits: [B + 1] int32 first row of each request, and the end of the last one.
        pos: [L] int64 position of each row's input token.
        idx_mapping: [B] int32 state of each request; -1 is padding.
        expanded_idx_mapping: [L] int32 state of each row; -1 is padding.
        expanded_local_pos: [L] int32 step of each row in its request.
        max_rows: maximum number of rows per request, the number of columns of the result.
    """

    draft_sampled: torch.Tensor
    cu_num_logits: torch.Tensor
    pos: torch.Tensor
    idx_mapping: torch.Tensor
    expanded_idx_mapping: torch.Tensor
    expanded_local_pos: torch.Tensor
    max_rows: int

    @classmethod
    def of(
        cls,
        inputs: Sequence[Sequence[int]],
        starts: Sequence[int],
        states: Sequence[int],
        device: torch.device,
    ) -> RequestRows:
        """Build the rows of a batch that the host knows.

        Args:
            inputs: per request its last token, then its draft tokens.
            starts: position of each request's last token.
            states: state of each request.
            device: device of the tensors.
        """
        counts = [len(tokens) for tokens in inputs]
        steps = [step for count in counts for step in range(count)]
        pos = [start + step for start, count in zip(starts, counts, strict=True) for step in range(count)]
        owners = [state for state, count in zip(states, counts, strict=True) for _ in range(count)]
        ends = [0, *accumulate(counts)]

        def upload(values: Sequence[int], dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)

        return cls(
            upload([token for tokens in inputs for token in tokens]),
            upload(ends),
            upload(pos, torch.int64),
            upload(states),
            upload(owners),
            upload(steps),
            max(counts, default=1),
        )


@dataclass(frozen=True, slots=True)
class Sampled:
    """The emitted tokens of a step; a padding request has none.

    Attributes:
        token_ids: [B, max_rows] int64, -1 after the last token.
        counts: [B] int32 number of tokens.
    """

    token_ids: torch.Tensor
    counts: torch.Tensor


class RequestStateSampler:
    """Verifies draft tokens and samples by the slot-indexed ops.

    Args:
        block_verification: True verifies the draft tokens of a request as one block (Sun et al. 2024).
        synthetic_rates: [K] float32 conditional acceptance rates of synthetic mode, which overrides
            `block_verification`; None verifies by the models.
        fused: True draws tokens by inverse CDF in the fused ops, which leave the logits unchanged. Batches with
            min-p and the two other methods are verified op by op.
    """

    def __init__(
        self, *, block_verification: bool = False, synthetic_rates: torch.Tensor | None = None, fused: bool = False
    ) -> None:
        self._block_verification = block_verification
        self._synthetic_rates = synthetic_rates
        self._fused = fused and not block_verification and synthetic_rates is None

    def sample(self, logits: torch.Tensor, rows: RequestRows, states: RequestStates) -> Sampled:
        """Verify and sample a batch that mixes greedy, sampled and padding requests.

        Args:
            logits: [L, V] float32 of the target, before temperature. They are divided by it and masked in place.
            rows: owners of the logits and draft tokens.
            states: sampling parameters of all states.
        """
        if self._fused and states.min_p is None:
            return Sampled(*verify_rows(logits, rows, states))
        constrain(logits, rows, states)
        device, batch_size = logits.device, rows.idx_mapping.shape[0]
        token_ids = torch.full((batch_size, rows.max_rows), PADDING_TOKEN, dtype=torch.int64, device=device)
        counts = torch.zeros(batch_size, dtype=torch.int32, device=device)
        if self._synthetic_rates is None:
            self._verify(token_ids, counts, logits, rows, states)
        else:
            self._accept_by_rate(token_ids, counts, logits, rows, states, self._synthetic_rates)
        # Mask the draft tokens that a verification may leave after the last emitted token.
        step = torch.arange(rows.max_rows, device=device)
        return Sampled(token_ids.masked_fill_(step >= counts[:, None], PADDING_TOKEN), counts)

    def _verify(
        self,
        token_ids: torch.Tensor,
        counts: torch.Tensor,
        logits: torch.Tensor,
        rows: RequestRows,
        states: RequestStates,
    ) -> None:
        accepted = torch.zeros_like(counts)
        target_logsumexp = torch.zeros(counts.shape, device=logits.device)
        draft_logsumexp = torch.zeros_like(target_logsumexp)
        log_prefix_ratio = torch.zeros_like(target_logsumexp) if self._block_verification else None
        handed_on = {
            "sampled": token_ids,
            "num_accepted": accepted,
            "target_logsumexp": target_logsumexp,
            "draft_logsumexp": draft_logsumexp,
        }
        read = {
            "target_logits": logits,
            "draft_logits": states.draft_logits,
            "draft_sampled": rows.draft_sampled,
            "cu_num_logits": rows.cu_num_logits,
            "pos": rows.pos,
            "idx_mapping": rows.idx_mapping,
            "temperature": states.temperature,
            "seed": states.seed,
        }
        expanded = {
            "expanded_idx_mapping": rows.expanded_idx_mapping,
            "expanded_local_pos": rows.expanded_local_pos,
        }
        if log_prefix_ratio is None:
            ops.run("probabilistic_rejection", logits.device, **handed_on, **read, **expanded)
        else:
            block = {"log_prefix_ratio": log_prefix_ratio}
            ops.run("block_verification", logits.device, **handed_on, **block, **read, **expanded)
        ops.run(
            "residual_resample",
            logits.device,
            num_sampled=counts,
            log_prefix_ratio=log_prefix_ratio,
            **handed_on,
            **read,
        )

    @staticmethod
    def _accept_by_rate(
        token_ids: torch.Tensor,
        counts: torch.Tensor,
        logits: torch.Tensor,
        rows: RequestRows,
        states: RequestStates,
        rates: torch.Tensor,
    ) -> None:
        target_sampled = torch.zeros(logits.shape[0], dtype=torch.int64, device=logits.device)
        ops.run(
            "gumbel_sample",
            logits.device,
            sampled=target_sampled,
            logits=logits,
            expanded_idx_mapping=rows.expanded_idx_mapping,
            temperature=states.temperature,
            seed=states.seed,
            pos=rows.pos,
            apply_temperature=False,
            is_drafting=False,
        )
        ops.run(
            "synthetic_rejection",
            logits.device,
            sampled=token_ids,
            num_sampled=counts,
            target_sampled=target_sampled,
            draft_sampled=rows.draft_sampled,
            cu_num_logits=rows.cu_num_logits,
            pos=rows.pos,
            idx_mapping=rows.idx_mapping,
            seed=states.seed,
            acceptance_rates=rates,
        )


def constrain(logits: torch.Tensor, rows: RequestRows, states: RequestStates) -> None:
    """Apply temperature, min-p, top-k and top-p in place; a state's value applies to all of its rows."""
    # A padding row uses state 0, since no op reads the row.
    owners = rows.expanded_idx_mapping.clamp(min=0)

    def expand(values: torch.Tensor | None) -> torch.Tensor | None:
        return None if values is None else values.index_select(0, owners)

    temperature = states.temperature.index_select(0, owners)
    logits /= temperature.masked_fill(temperature == 0, 1)[:, None]
    min_p, top_k, top_p = expand(states.min_p), expand(states.top_k), expand(states.top_p)
    if min_p is not None:
        mask_below_min_p(logits, min_p)
    if top_k is not None or top_p is not None:
        apply_top_k_top_p(logits, top_k, top_p, inplace=True)
