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
    # Floats compare in their dtype, integers exactly. 0.5 and NaN therefore equal no integer.
    wanted = output.dtype.type(replace_from) if output.dtype.kind == "f" else replace_from
    values = input_ptr.tolist()
    for b, start, end in draft_rows(cu_num_tokens_ptr):
        value = values[b]
        output[start:end] = replace_to if value == wanted else value
    return {"output_ptr": output}
