"""verify_tree_greedy: from the root on, go to the first child x with x = argmax p, and emit each node's argmax.

One launch, with one program per request.

Source: SGLang 0.5.23, verify_tree_greedy_triton.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def _greedy_kernel(
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
    target_predict,
    nodes,
):
    request = tl.program_id(0).to(tl.int64)
    candidates += request * nodes
    retrieve_index += request * nodes
    next_token += request * nodes
    next_sibling += request * nodes
    accept_index += request * accept_stride_0
    place = tl.load(retrieve_index).to(tl.int64)
    tl.store(accept_index, place)
    node, count = tl.zeros((), tl.int64), tl.zeros((), tl.int64)
    walking = (place >= 0) & (place < places)
    while walking:
        wanted = tl.load(target_predict + place).to(tl.int64)
        tl.store(predicts + place * predicts_stride, wanted)
        child, tried = tl.load(next_token + node).to(tl.int64), tl.zeros((), tl.int64)
        walking = place < 0  # false: the place was checked
        trying = (count + 1 < columns) & (child >= 0) & (child < nodes)
        while trying:
            there = tl.load(retrieve_index + child).to(tl.int64)
            token = tl.load(candidates + child).to(tl.int64)
            walking = (token == wanted) & (there >= 0) & (there < places)
            if walking:
                count += 1
                tl.store(accept_index + count * accept_stride_1, there)
                node, place = child, there
            else:
                child = tl.load(next_sibling + child).to(tl.int64)
            tried += 1
            trying = (walking == 0) & (child >= 0) & (child < nodes) & (tried < nodes)
    tl.store(accept_token_num + request * count_stride, count)


def verify_tree_greedy(
    *,
    predicts: Any,
    accept_index: Any,
    accept_token_num: Any,
    candidates: Any,
    retrieve_index: Any,
    retrieve_next_token: Any,
    retrieve_next_sibling: Any,
    target_predict: Any,
) -> None:
    requests, nodes = candidates.shape
    if requests == 0 or nodes == 0:
        return
    _greedy_kernel[(requests,)](
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
        target_predict.contiguous(),
        nodes,
        num_warps=1,
    )
