"""Oracle of verify_tree_greedy: the contract's clauses, executed."""

from __future__ import annotations

from verispec.reference.oracle._rows import Array
from verispec.reference.oracle._tree import children, walk


def verify_tree_greedy(
    *,
    predicts: Array,
    accept_index: Array,
    accept_token_num: Array,
    candidates: Array,
    retrieve_index: Array,
    retrieve_next_token: Array,
    retrieve_next_sibling: Array,
    target_predict: Array,
) -> dict[str, Array]:
    argmax = target_predict.reshape(-1)

    def step(b: int, node: int, place: int, is_full: bool) -> tuple[int | None, int]:
        wanted = int(argmax[place])
        for child in () if is_full else children(retrieve_next_token[b, node], retrieve_next_sibling[b]):
            if candidates[b, child] == wanted and 0 <= retrieve_index[b, child] < len(predicts):
                return child, wanted
        return None, wanted

    return walk(predicts, accept_index, accept_token_num, retrieve_index, step)
