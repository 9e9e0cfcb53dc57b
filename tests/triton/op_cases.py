"""Inputs for every op of the reference, by name and size, and the check of a kernel's outputs.

Every op gets calls from the suite's maker; the modules of the families add variants for kernels.

The family modules make the arguments. `Case.narrow` names those that a kernel gets as
bfloat16, whose values bfloat16 holds exactly.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import flat_cases
import fused_cases
import numpy as np
import request_state_cases
import shared_cases
from case_parts import MAKERS, POISON, Array, Case, Size, draft_counts

from verispec.reference.contracts import REQUIRED, Scalar, axis_sizes, load, shape_of
from verispec.reference.oracle.apply_top_k_top_p import order, probabilities_before
from verispec.suites.sampler import _calls

__all__ = ["Array", "Case", "Size", "make", "ops", "small_cases", "to_bfloat16", "variants", "verdict"]

FAMILIES = (request_state_cases, shared_cases, flat_cases, fused_cases)
"""Their makers have registered themselves."""
LOGSUMEXP = {"target_logsumexp", "draft_logsumexp", "log_prefix_ratio"}
SEVERAL_PARTS = {
    "apply_top_k_top_p": {"both": 9001, "flat": 9001, "ties": 9001, "outliers": 9001, "unsampled": 20000},
    "sample_recovered_tokens": {"draft": 9001, "one_hot": 9001, "no_mass": 9001},
    "gather_draft_logits_and_target_argmax": {"draft": 9001, "ties": 9001},
    "verify_greedy": {"greedy": 9001},
    "verify_one_hot": {"one_hot": 9001, "limits": 9001},
    "verify_draft_logits": {"draft": 9001, "limits": 9001},
}
"""Vocabularies that are taken in parts, by variant: rows that have to be narrowed, winners that have to be settled."""


def verdict(case: Case, got: dict[str, Array], expected: dict[str, Array] | None = None) -> str:
    """Return the problem with the outputs `got`, or an empty string."""
    expected = case.expected() if expected is None else expected
    for name, want in expected.items():
        have = got[name]
        if case.op == "apply_top_k_top_p":
            problem = _masked_rows(case, have)
        elif name in LOGSUMEXP:
            # A float32 sum over the vocabulary: some rounding steps of 2^-24 each, in log space.
            close = np.isclose(have, want, rtol=2e-6, atol=2e-5, equal_nan=True)
            problem = "" if close.all() else _first_difference(have, want, ~close)
        else:
            differs = (have != want) & ~(np.isnan(have) & np.isnan(want)) if have.dtype.kind == "f" else have != want
            problem = _first_difference(have, want, differs) if differs.any() else ""
        if problem:
            return f"{name}: {problem}"
    return ""


def _first_difference(have: Array, want: Array, differs: Array) -> str:
    at = tuple(int(i) for i in np.argwhere(differs)[0])
    return f"{int(differs.sum())} of {differs.size} differ, first at {list(at)}: expected {want[at]}, got {have[at]}"


def _masked_rows(case: Case, have: Array) -> str:
    """TKP-1 to TKP-9: a prefix of the order is kept, of the right length but for tokens at the bound."""
    logits, k, p = (case.arguments[name] for name in ("logits", "k", "p"))
    for b, row in enumerate(logits):
        ids = order(row)
        values = np.where(np.isnan(row), -np.inf, row)
        if k is not None and 0 < k[b] < len(row):
            ids = ids[: k[b]]
        least = most = len(ids)
        if p is not None and not p[b] >= 1.0:
            before = probabilities_before(values[ids].astype(np.float64))
            bound = np.nan_to_num(p[b])
            least = max(1, int((before < bound - 2**-18).sum()))
            most = max(1, int((before < bound + 2**-18).sum()))
        finite = values[ids] > -np.inf
        wanted = np.full(len(row), -np.inf, dtype=row.dtype)
        kept = int((have[b] > -np.inf).sum())
        least, most = int(finite[:least].sum()), int(finite[:most].sum())
        if not least <= kept <= most:
            return f"row {b} keeps {kept} tokens, expected {least} to {most}"
        wanted[ids[:kept]] = values[ids[:kept]]
        if not np.array_equal(wanted, have[b]):
            return f"row {b}: " + _first_difference(have[b], wanted, wanted != have[b])
    return ""


def ops() -> tuple[str, ...]:
    """Return every op with a maker; the suite's maker suffices."""
    return tuple(dict.fromkeys((*MAKERS, *_calls.MAKERS)))


def variants(op: str) -> tuple[str, ...]:
    """Return the variants of the op's own maker and those of the suite's."""
    return (*(MAKERS[op][1] if op in MAKERS else ()), *SUITE_VARIANTS)


SUITE_VARIANTS = {"suite": True, "suite_one_hot": False}
"""Variants of the suite's maker: with draft probabilities or logits, and without."""


def _suite_arguments(op: str, rng: np.random.Generator, size: Size, draft: bool) -> dict[str, Any]:
    """Return a call of the suite's maker, with poisoned outputs and production dtypes."""
    contract = load(op)
    shape = _calls.BatchShape(tuple(draft_counts(rng, size).tolist()), size.vocabulary, draft=draft)
    call = _calls.make(op, int(rng.integers(2**31)), shape)
    arrays = {t.name: np.asarray(call.values[t.name]) for t in contract.tensors if call.values.get(t.name) is not None}
    sizes = axis_sizes(contract, {name: a.shape for name, a in arrays.items()} | dict(call.shapes), call.values)
    arguments: dict[str, Any] = {}
    for param in contract.params:
        if isinstance(param, Scalar):
            value = call.values.get(param.name, sizes.get(param.axis, param.default))
            arguments[param.name] = TILE if value is REQUIRED and param.tuning else value
            continue
        dtype = param.production or param.dtypes[0]
        if param.name in arrays:
            arguments[param.name] = arrays[param.name].astype(dtype)
        elif param.written and param.name not in call.values:
            wanted = call.shapes[param.name] if param.name in call.shapes else shape_of(param, sizes)
            arguments[param.name] = np.full(tuple(wanted), POISON).astype(dtype)
        else:
            arguments[param.name] = None
    for param in contract.params:
        if isinstance(param, Scalar) and param.stride_of:
            tensor = arguments[param.stride_of]
            arguments[param.name] = tensor.strides[0] // tensor.itemsize
    return arguments


TILE = 64
"""Value of required tuning parameters."""


def make(op: str, variant: str, size: Size, *, narrow: bool = False, ints: str = "") -> Case:
    """One case. `narrow` makes all logits or probabilities bfloat16, `ints` all integers of choice that dtype."""
    name = f"{variant};{size.requests}x{size.drafts}x{size.vocabulary}"
    name += ";bf16" * narrow + f";{ints}" * bool(ints)
    rng = np.random.default_rng(zlib.crc32(f"{op}:{name}".encode()))
    if variant in SUITE_VARIANTS:
        arguments = _suite_arguments(op, rng, size, SUITE_VARIANTS[variant])
    else:
        arguments = MAKERS[op][0](rng, size, variant)
    narrowed = set()
    for tensor in load(op).tensors:
        value = arguments[tensor.name]
        if value is None:
            continue
        if narrow and "bfloat16" in tensor.dtypes:
            arguments[tensor.name] = to_bfloat16(value)
            narrowed.add(tensor.name)
        elif ints and set(tensor.dtypes) == {"int32", "int64"}:
            arguments[tensor.name] = value.astype(ints)
    inplace = {"output": "logits"} if op == "apply_top_k_top_p" and "inplace" in variant else {}
    if inplace:
        arguments["output"] = arguments["logits"]
    return Case(op, name, arguments, frozenset(narrowed), inplace)


def small_cases(*names: str) -> Iterator[Case]:
    """Every variant of the ops, or of all, at sizes for Triton's interpreter."""
    for op in names or ops():
        for variant in variants(op):
            yield make(op, variant, Size(400, draft_vocabulary=370 if variant == "narrow_draft" else None))
        for variant, vocabulary in SEVERAL_PARTS.get(op, {}).items():
            yield make(op, variant, Size(vocabulary, requests=2))
        first = variants(op)[0]
        yield make(op, first, Size(37), ints="int64")
        yield make(op, first, Size(37), ints="int32")
        yield make(op, first, Size(1, requests=2, drafts=1))
        if any("bfloat16" in t.dtypes for t in load(op).tensors):
            yield make(op, first, Size(257), narrow=True)


def to_bfloat16(values: Array) -> Array:
    """float32 values rounded to what bfloat16 holds, by truncation, which is exact enough for an input."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(values), np.float32(np.nan), bits.view(np.float32))
