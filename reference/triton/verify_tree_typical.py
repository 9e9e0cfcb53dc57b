"""verify_tree_typical: accept a child x with p(x) > 0 if u < a / threshold_acc or p(x) >= threshold_single

where a is the sum of p over x and the siblings before it. The last token is drawn from p without rejected children.

One launch, with one program per request.

Source: SGLang 0.5.23, TreeSpeculativeSamplingTargetOnly.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ._tree import drawn_in_block, last_with_weight, rows_of, weight


@triton.jit
def _left_in_block(p_row, stride, candidates, retrieve_index, next_sibling, first, nodes, places, column, mask):
    """Return a block of p without the children of a list, all of which were rejected."""
    left = weight(p_row, column * stride, mask)
    child, tried = first, tl.zeros((), tl.int64)
    while (child >= 0) & (child < nodes) & (tried < nodes):
        there = tl.load(retrieve_index + child).to(tl.int64)
        token = tl.load(candidates + child).to(tl.int64)
        is_place = (there >= 0) & (there < places)
        left = tl.where(is_place & (column == token), 0.0, left)
        child = tl.load(next_sibling + child).to(tl.int64)
        tried += 1
    return left


@triton.jit
def _typical_kernel(
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
    thresholds,
    nodes,
    vocabulary,
    BLOCK: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    candidates += request * nodes
    retrieve_index += request * nodes
    next_token += request * nodes
    next_sibling += request * nodes
    uniform_samples += request * nodes
    accept_index += request * accept_stride_0
    # float64 scalars would arrive as float32.
    single, divisor = tl.load(thresholds), tl.load(thresholds + 1)
    lanes = tl.arange(0, BLOCK).to(tl.int64)
    place = tl.load(retrieve_index).to(tl.int64)
    tl.store(accept_index, place)
    node, count = tl.zeros((), tl.int64), tl.zeros((), tl.int64)
    walking = (place >= 0) & (place < places)
    while walking:
        p_row = target + request * target_stride_0 + node * target_stride_1
        u = tl.load(uniform_samples + node).to(tl.float64)
        emitting = place
        first = tl.load(next_token + node).to(tl.int64)
        first = tl.where(count + 1 < columns, first, -1)
        child, tried = first, tl.zeros((), tl.int64)
        sum_of_tried = tl.zeros((), tl.float64)
        walking = place < 0  # false: the place was checked
        trying = (child >= 0) & (child < nodes)
        while trying:
            there = tl.load(retrieve_index + child).to(tl.int64)
            token = tl.load(candidates + child).to(tl.int64)
            is_token = (token >= 0) & (token < vocabulary) & (there >= 0) & (there < places)
            p = weight(p_row, token * target_stride_2, is_token)
            sum_of_tried += p
            walking = (p > 0) & ((u < sum_of_tried / divisor) | (p >= single))
            if walking:
                count += 1
                tl.store(accept_index + count * accept_stride_1, there)
                tl.store(predicts + place * predicts_stride, token)
                node, place = child, there
            else:
                child = tl.load(next_sibling + child).to(tl.int64)
            tried += 1
            trying = (walking == 0) & (child >= 0) & (child < nodes) & (tried < nodes)
        if walking == 0:
            total = tl.zeros((), tl.float64)
            for start in range(0, vocabulary, BLOCK):
                column = start + lanes
                left = _left_in_block(
                    p_row, target_stride_2, candidates, retrieve_index, next_sibling, first, nodes, places, column,
                    column < vocabulary,
                )  # fmt: skip
                total += tl.sum(left, axis=0)
            bound = tl.load(final_samples + request).to(tl.float64) * total
            before = tl.zeros((), tl.float64)
            drawn, last = tl.full((), -1, tl.int64), tl.full((), -1, tl.int64)
            for start in range(0, vocabulary, BLOCK):
                column = start + lanes
                left = _left_in_block(
                    p_row, target_stride_2, candidates, retrieve_index, next_sibling, first, nodes, places, column,
                    column < vocabulary,
                )  # fmt: skip
                found, before = drawn_in_block(left, column, before, bound)
                drawn = tl.where(drawn < 0, found, drawn)
                last = tl.maximum(last, last_with_weight(left, column))
            last = tl.where(last < 0, vocabulary - 1, last)
            tl.store(predicts + emitting * predicts_stride, tl.where(drawn < 0, last, drawn))
    tl.store(accept_token_num + request * count_stride, count)


def verify_tree_typical(
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
    threshold_single: float,
    threshold_acc: float,
) -> None:
    requests, nodes, vocabulary = target_probs.shape
    if requests == 0 or nodes == 0:
        return
    thresholds = torch.empty(2, dtype=torch.float64, device=target_probs.device)
    for place, threshold in enumerate((threshold_single, max(threshold_acc, 1e-9))):
        thresholds[place].fill_(threshold)  # an assignment would wait for the GPU
    _typical_kernel[(requests,)](
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
        thresholds,
        nodes,
        vocabulary,
        BLOCK=min(triton.next_power_of_2(vocabulary), 1024),
        num_warps=4,
    )
