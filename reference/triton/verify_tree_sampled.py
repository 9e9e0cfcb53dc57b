"""verify_tree_sampled: accept a child x while u q(x) < p(x); after a rejection

    p = norm(max(p - q, 0))          and, without replacement, q(x) = 0, q = norm(q)

Without draft probabilities q is 1 at x. The last token is drawn from the p of the last node. p and q are kept as
weights with their sums, so that there is no division.

One launch, with one program per request, which keeps the weights of its node in global memory.

Source: Miao et al. 2023 (arXiv 2305.09781); without replacement, Jeon et al. 2024 (arXiv 2402.14160).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ._tree import drawn_in_block, last_with_weight, power_of_two, rows_of, weight


@triton.jit
def _left_in_block(p, q, column, token, p_sum, q_sum, IS_DRAWN: tl.constexpr):
    if IS_DRAWN:
        return tl.maximum(q_sum * p - p_sum * q, 0.0)
    return tl.where(column == token, 0.0, p)


@triton.jit
def _p_in_block(row, stride, kept, rejected, column, mask):
    if rejected > 0:  # noqa: SIM108 -- a kernel loads from one of the two
        value = tl.load(kept + column, mask=mask, other=0.0)
    else:
        value = weight(row, column * stride, mask)
    return value


@triton.jit
def _q_in_block(row, stride, kept, rejected, column, mask, IS_DRAWN: tl.constexpr, WITHOUT_REPLACEMENT: tl.constexpr):
    if IS_DRAWN:
        if WITHOUT_REPLACEMENT:
            value = _p_in_block(row, stride, kept, rejected, column, mask)
        else:
            value = weight(row, column * stride, mask)
    else:
        value = tl.where(mask, 1.0, 0.0).to(tl.float64)
    return value


@triton.jit
def _sampled_kernel(
    predicts,
    predicts_stride,
    places,
    accept_index,
    accept_stride_0,
    accept_stride_1,
    columns,
    accept_token_num,
    count_stride,
    candidates,
    retrieve_index,
    next_token,
    next_sibling,
    uniform_samples,
    final_samples,
    target,
    target_stride_0,
    target_stride_1,
    target_stride_2,
    draft,
    draft_stride_0,
    draft_stride_1,
    draft_stride_2,
    kept_p,
    kept_q,
    nodes,
    vocabulary,
    WITHOUT_REPLACEMENT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    IS_DRAWN: tl.constexpr = draft is not None
    request = tl.program_id(0).to(tl.int64)
    candidates += request * nodes
    retrieve_index += request * nodes
    next_token += request * nodes
    next_sibling += request * nodes
    uniform_samples += request * nodes
    accept_index += request * accept_stride_0
    kept_p += request * vocabulary
    lanes = tl.arange(0, BLOCK).to(tl.int64)
    place = tl.load(retrieve_index).to(tl.int64)
    tl.store(accept_index, place)
    node, count = tl.zeros((), tl.int64), tl.zeros((), tl.int64)
    walking = (place >= 0) & (place < places)
    while walking:
        p_row = target + request * target_stride_0 + node * target_stride_1
        q_row = draft
        if IS_DRAWN:
            q_row = draft + request * draft_stride_0 + node * draft_stride_1
        p_sum, q_sum = tl.full((), 1.0, tl.float64), tl.full((), 1.0, tl.float64)
        rejected, tried = tl.zeros((), tl.int64), tl.zeros((), tl.int64)
        emitting = place
        child = tl.load(next_token + node).to(tl.int64)
        walking = place < 0  # false: the place was checked
        trying = (count + 1 < columns) & (child >= 0) & (child < nodes)
        while trying:
            there = tl.load(retrieve_index + child).to(tl.int64)
            token = tl.load(candidates + child).to(tl.int64)
            is_token = (token >= 0) & (token < vocabulary) & (there >= 0) & (there < places)
            p = _p_in_block(p_row, target_stride_2, kept_p, rejected, token, is_token)
            q = _q_in_block(
                q_row, draft_stride_2, kept_q + request * vocabulary, rejected, token, is_token, IS_DRAWN,
                WITHOUT_REPLACEMENT,
            )  # fmt: skip
            u = tl.load(uniform_samples + child).to(tl.float64)
            walking = is_token & (q > 0) & (u * (p_sum * q) < q_sum * p)
            tried += 1
            trying = walking == 0
            if trying & (q > 0):
                left_sum = tl.zeros((), tl.float64)
                for start in range(0, vocabulary, BLOCK):
                    column = start + lanes
                    mask = column < vocabulary
                    ps = _p_in_block(p_row, target_stride_2, kept_p, rejected, column, mask)
                    qs = _q_in_block(
                        q_row, draft_stride_2, kept_q + request * vocabulary, rejected, column, mask, IS_DRAWN,
                        WITHOUT_REPLACEMENT,
                    )  # fmt: skip
                    left_sum += tl.sum(_left_in_block(ps, qs, column, token, p_sum, q_sum, IS_DRAWN), axis=0)
                trying = left_sum > 0
                if trying:
                    scale = power_of_two(left_sum)
                    q_rest = tl.zeros((), tl.float64)
                    for start in range(0, vocabulary, BLOCK):
                        column = start + lanes
                        mask = column < vocabulary
                        ps = _p_in_block(p_row, target_stride_2, kept_p, rejected, column, mask)
                        qs = _q_in_block(
                            q_row, draft_stride_2, kept_q + request * vocabulary, rejected, column, mask, IS_DRAWN,
                            WITHOUT_REPLACEMENT,
                        )  # fmt: skip
                        left = _left_in_block(ps, qs, column, token, p_sum, q_sum, IS_DRAWN)
                        tl.store(kept_p + column, left * scale, mask=mask)
                        if IS_DRAWN and WITHOUT_REPLACEMENT:
                            qs = tl.where(column == token, 0.0, qs)
                            tl.store(kept_q + request * vocabulary + column, qs, mask=mask)
                            q_rest += tl.sum(qs, axis=0)
                    p_sum = left_sum * scale
                    # Each thread reads what others wrote.
                    tl.debug_barrier()
                    if IS_DRAWN and WITHOUT_REPLACEMENT:
                        q_scale = power_of_two(q_rest)
                        for start in range(0, vocabulary, BLOCK):
                            column = start + lanes
                            mask = column < vocabulary
                            qs = tl.load(kept_q + request * vocabulary + column, mask=mask, other=0.0)
                            tl.debug_barrier()
                            tl.store(kept_q + request * vocabulary + column, qs * q_scale, mask=mask)
                        q_sum = q_rest * q_scale
                        tl.debug_barrier()
                    rejected += 1
            if walking:
                count += 1
                tl.store(accept_index + count * accept_stride_1, there)
                tl.store(predicts + place * predicts_stride, token)
                node, place = child, there
            else:
                child = tl.load(next_sibling + child).to(tl.int64)
            trying = trying & (child >= 0) & (child < nodes) & (tried < nodes)
        if walking == 0:
            p_total = tl.zeros((), tl.float64)
            for start in range(0, vocabulary, BLOCK):
                column = start + lanes
                ps = _p_in_block(p_row, target_stride_2, kept_p, rejected, column, column < vocabulary)
                p_total += tl.sum(ps, axis=0)
            bound = tl.load(final_samples + request).to(tl.float64) * p_total
            before = tl.zeros((), tl.float64)
            drawn, last = tl.full((), -1, tl.int64), tl.full((), -1, tl.int64)
            for start in range(0, vocabulary, BLOCK):
                column = start + lanes
                ps = _p_in_block(p_row, target_stride_2, kept_p, rejected, column, column < vocabulary)
                found, before = drawn_in_block(ps, column, before, bound)
                drawn = tl.where(drawn < 0, found, drawn)
                last = tl.maximum(last, last_with_weight(ps, column))
            last = tl.where(last < 0, vocabulary - 1, last)
            tl.store(predicts + emitting * predicts_stride, tl.where(drawn < 0, last, drawn))
    tl.store(accept_token_num + request * count_stride, count)


def verify_tree_sampled(
    *,
    predicts: Any,
    accept_index: Any,
    accept_token_num: Any,
    candidates: Any,
    retrieve_index: Any,
    retrieve_next_token: Any,
    retrieve_next_sibling: Any,
    uniform_samples: Any,
    uniform_samples_for_final_sampling: Any,
    target_probs: Any,
    draft_probs: Any,
    WITHOUT_REPLACEMENT: bool,
) -> None:
    requests, nodes, vocabulary = target_probs.shape
    if requests == 0 or nodes == 0:
        return
    kept_p = torch.empty((requests, vocabulary), dtype=torch.float64, device=target_probs.device)
    _sampled_kernel[(requests,)](
        predicts,
        predicts.stride(0),
        predicts.shape[0],
        accept_index,
        *accept_index.stride(),
        accept_index.shape[1],
        accept_token_num,
        accept_token_num.stride(0),
        candidates.contiguous(),
        retrieve_index.contiguous(),
        retrieve_next_token.contiguous(),
        retrieve_next_sibling.contiguous(),
        uniform_samples.contiguous(),
        uniform_samples_for_final_sampling.contiguous(),
        *rows_of(target_probs),
        *rows_of(draft_probs),
        kept_p,
        torch.empty_like(kept_p) if WITHOUT_REPLACEMENT else kept_p,
        nodes,
        vocabulary,
        WITHOUT_REPLACEMENT=WITHOUT_REPLACEMENT,
        BLOCK=min(triton.next_power_of_2(vocabulary), 1024),
        num_warps=4,
        # The oracle rounds products: a comparison at equality must not depend on a fused multiply-add.
        enable_fp_fusion=False,
    )
