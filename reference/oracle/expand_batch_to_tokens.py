"""Oracle of expand_batch_to_tokens: the contract's clauses, executed."""

from __future__ import annotations

from verispec.reference.oracle._rows import Array, draft_rows


def expand_batch_to_tokens(
    *,
    output_ptr: Array,
    input_ptr: Array,
    cu_num_tokens_ptr: Array,
    replace_from: float,
    replace_to: float,
    MAX_NUM_TOKENS: int,
) -> dict[str, Array]:
    output = output_ptr.copy()
    # A number that the dtype cannot hold, such as 0.5 for integers, equals no value.
    wanted = output.dtype.type(replace_from)
    replaces = output.dtype.kind == "f" or wanted == replace_from
    for b, start, end in draft_rows(cu_num_tokens_ptr):
        replace = replaces and input_ptr[b] == wanted
        for i in range(start, end):
            output[i] = replace_to if replace else input_ptr[b]
    return {"output_ptr": output}
