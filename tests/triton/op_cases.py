"""Cases of every op of the reference, by name and size, and the check of a kernel's outputs.

The suite's maker of an op makes the arguments; the modules of alterations change them for kernels. Everything follows
from the names of op, variant and size, so a case is the same everywhere.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import altered_limits  # noqa: F401 -- registers its alterations
import numpy as np
from altered_calls import VARIANTS

from verispec.reference import oracle
from verispec.reference.contracts import REQUIRED, Scalar, Tensor, axis_sizes, load, shape_of
from verispec.reference.oracle.apply_top_k_top_p import order, probabilities_before
from verispec.suites.sampler._calls import MAKERS, BatchShape
from verispec.suites.sampler._calls import make as make_call

Array = np.ndarray[Any, Any]

POISON = -77
LOGSUMEXP = {"target_logsumexp", "draft_logsumexp", "log_prefix_ratio"}
SEVERAL_PARTS = {
    "apply_top_k_top_p": {"ends": 9001, "flat": 9001, "ties": 9001, "outliers": 9001, "unsampled": 20000},
    "sample_recovered_tokens": {"plain": 9001, "one_hot": 9001, "no_mass": 9001},
    "gather_draft_logits_and_target_argmax": {"large_blocks": 9001, "ties": 9001},
    "verify_greedy": {"plain": 9001},
    "verify_one_hot": {"plain": 9001, "limits": 9001},
    "verify_draft_logits": {"plain": 9001, "limits": 9001},
}
"""Vocabularies that are taken in parts, by variant: rows that have to be narrowed, winners that have to be settled."""


@dataclass(frozen=True)
class Size:
    """Sizes of the inputs of a case."""

    vocabulary: int
    requests: int = 5
    drafts: int = 3


@dataclass(frozen=True)
class Case:
    """One call of an op.

    Attributes:
        op: name of the op.
        name: variant and sizes.
        arguments: NumPy arrays and scalars by parameter name.
        narrow: tensors that a kernel gets as bfloat16, which holds their values exactly.
        inplace: outputs that are the memory of an input.
    """

    op: str
    name: str
    arguments: dict[str, Any]
    narrow: frozenset[str] = frozenset()
    inplace: dict[str, str] = field(default_factory=dict)

    def expected(self) -> dict[str, Array]:
        return oracle.load(self.op)(**self.arguments)

    def outputs(self) -> list[str]:
        return [t.name for t in load(self.op).outputs if self.arguments[t.name] is not None]


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
    """Return every op with a maker."""
    return tuple(MAKERS)


MODES: dict[str, dict[str, Any]] = {"plain": {}, "one_hot": {"draft": False}, "other": {"synthetic": True}}
"""Fields of the shape of the variants that every op has: the modes of its maker."""


def variants(op: str) -> tuple[str, ...]:
    """Return the op's modes and alterations."""
    return (*MODES, *VARIANTS.get(op, ()))


def draft_counts(rng: np.random.Generator, size: Size, drafts: int) -> tuple[int, ...]:
    """Return the drafts of each request: none, the maximum and in between, the special ones not first."""
    counts = rng.integers(0, drafts + 1, size.requests)
    counts[-1] = drafts
    counts[size.requests // 2] = 0
    return tuple(counts.tolist())


def made(op: str, rng: np.random.Generator, size: Size, **fields: Any) -> dict[str, Any]:
    """Return the arguments of a call of the suite's maker, with poisoned outputs and production dtypes."""
    contract = load(op)
    counts = draft_counts(rng, size, fields.pop("drafts", size.drafts))
    call = make_call(op, int(rng.integers(2**31)), BatchShape(counts, size.vocabulary, **fields))
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
            wanted = call.shapes[param.name] if param.name in call.shapes else spacious(param, sizes)
            arguments[param.name] = poisoned(tuple(wanted), dtype)
        else:
            arguments[param.name] = None
    return arguments


def spacious(tensor: Tensor, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of an output, with a few more elements on every axis that may be longer."""
    extra = [2 if str(axis).startswith(">=") else 0 for axis in tensor.shape]
    return tuple(size + more for size, more in zip(shape_of(tensor, sizes), extra, strict=True))


def poisoned(shape: tuple[int, ...], dtype: str) -> Array:
    """Return memory that no result equals; flags alternate."""
    if dtype == "bool":
        return np.arange(math.prod(shape)).reshape(shape) % 2 == 1
    return np.full(shape, POISON, dtype)


TILE = 64
"""Value of required tuning parameters."""


def make(op: str, variant: str, size: Size, *, narrow: bool = False, ints: str = "") -> Case:
    """Return one case.

    Args:
        op: name of the op.
        variant: one of `variants`.
        size: sizes of the inputs.
        narrow: make all logits or probabilities bfloat16.
        ints: dtype of all integers that the contract leaves open.
    """
    name = f"{variant};{size.requests}x{size.drafts}x{size.vocabulary}"
    name += ";bf16" * narrow + f";{ints}" * bool(ints)
    rng = np.random.default_rng(zlib.crc32(f"{op}:{name}".encode()))
    fields, alteration = (MODES[variant], None) if variant in MODES else VARIANTS[op][variant]
    arguments = made(op, rng, size, **fields)
    if alteration is not None:
        alteration(rng, arguments)
    contract, narrowed = load(op), set()
    for tensor in contract.tensors:
        value = arguments[tensor.name]
        if value is None:
            continue
        if narrow and "bfloat16" in tensor.dtypes:
            arguments[tensor.name] = to_bfloat16(value)
            narrowed.add(tensor.name)
        elif ints and set(tensor.dtypes) == {"int32", "int64"}:
            arguments[tensor.name] = value.astype(ints)
    for param in contract.params:
        if isinstance(param, Scalar) and param.stride_of:
            tensor = arguments[param.stride_of]
            arguments[param.name] = tensor.strides[0] // tensor.itemsize
    inplace = {"output": "logits"} if op == "apply_top_k_top_p" and "inplace" in variant else {}
    if inplace:
        arguments["output"] = arguments["logits"]
    return Case(op, name, arguments, frozenset(narrowed), inplace)


def small_cases(*names: str) -> Iterator[Case]:
    """Yield every variant of the ops, or of all, at sizes for Triton's interpreter."""
    for op in names or ops():
        for variant in variants(op):
            yield make(op, variant, Size(400))
        for variant, vocabulary in SEVERAL_PARTS.get(op, {}).items():
            yield make(op, variant, Size(vocabulary, requests=2))
        yield make(op, "plain", Size(37), ints="int64")
        yield make(op, "plain", Size(37), ints="int32")
        yield make(op, "plain", Size(1, requests=2, drafts=1))
        if any("bfloat16" in t.dtypes for t in load(op).tensors):
            yield make(op, "plain", Size(257), narrow=True)


def to_bfloat16(values: Array) -> Array:
    """float32 values rounded to what bfloat16 holds, by truncation, which is exact enough for an input."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(values), np.float32(np.nan), bits.view(np.float32))
