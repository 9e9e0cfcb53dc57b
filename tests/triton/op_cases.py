"""Inputs for every op of the reference, by name and size, and the verdict on what a kernel made of them.

Inputs are NumPy arrays; `Case.narrow` names those that a kernel gets as bfloat16, whose values bfloat16
holds exactly. Everything follows from a case's seed, so a case is the same everywhere.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verispec.reference import oracle
from verispec.reference.contracts import load
from verispec.reference.oracle.apply_top_k_top_p import order, probabilities_before

Array = np.ndarray[Any, Any]

POISON = -77
LOGSUMEXP = {"target_logsumexp", "draft_logsumexp", "log_prefix_ratio"}


@dataclass(frozen=True)
class Size:
    """How large the inputs of a case are."""

    vocabulary: int
    requests: int = 5
    drafts: int = 3
    draft_vocabulary: int | None = None


@dataclass(frozen=True)
class Case:
    op: str
    name: str
    arguments: dict[str, Any]
    narrow: frozenset[str] = frozenset()
    inplace: dict[str, str] = field(default_factory=dict)
    """Outputs that are the memory of an input."""

    def expected(self) -> dict[str, Array]:
        return oracle.load(self.op)(**self.arguments)

    def outputs(self) -> list[str]:
        return [t.name for t in load(self.op).outputs if self.arguments[t.name] is not None]


def verdict(case: Case, got: dict[str, Array], expected: dict[str, Array] | None = None) -> str:
    """What is wrong with the outputs `got`; empty when nothing is."""
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


Maker = Callable[[np.random.Generator, Size, str], dict[str, Any]]
_MAKERS: dict[str, tuple[Maker, tuple[str, ...]]] = {}


def _maker(*variants: str) -> Callable[[Maker], Maker]:
    def register(make: Maker) -> Maker:
        _MAKERS[make.__name__] = make, variants
        return make

    return register


def ops() -> tuple[str, ...]:
    return tuple(_MAKERS)


def variants(op: str) -> tuple[str, ...]:
    return _MAKERS[op][1]


def make(op: str, variant: str, size: Size, *, narrow: bool = False, ints: str = "") -> Case:
    """One case. `narrow` makes all logits or probabilities bfloat16, `ints` all integers of choice that dtype."""
    name = f"{variant};{size.requests}x{size.drafts}x{size.vocabulary}"
    name += ";bf16" * narrow + f";{ints}" * bool(ints)
    rng = np.random.default_rng(zlib.crc32(f"{op}:{name}".encode()))
    arguments = _MAKERS[op][0](rng, size, variant)
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


def small_cases() -> Iterator[Case]:
    """Every op and variant at sizes for Triton's interpreter."""
    for op in ops():
        for variant in variants(op):
            yield make(op, variant, Size(400, draft_vocabulary=370 if variant == "narrow_draft" else None))
        if op == "apply_top_k_top_p":
            # Rows that have to be narrowed, over several chunks.
            for variant in ("both", "flat", "ties", "outliers"):
                yield make(op, variant, Size(9001, requests=2))
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


# Requests -----------------------------------------------------------------------------------------------------------


def _counts(rng: np.random.Generator, size: Size) -> Array:
    """Drafts of each request: none, all and in between, the special ones not first."""
    counts = rng.integers(0, size.drafts + 1, size.requests)
    counts[-1] = size.drafts
    counts[size.requests // 2] = 0
    return counts


def _logits(rng: np.random.Generator, *shape: int) -> Array:
    return (rng.standard_normal(shape, dtype=np.float32) * 3).astype(np.float32)


def _softmax(logits: Array) -> Array:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float32)


def _request_state(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    """Arguments of a verification: a batch with padding, unequal drafts, greedy requests and placeholders."""
    counts = _counts(rng, size)
    requests, vocabulary = size.requests, size.vocabulary
    width = size.draft_vocabulary or vocabulary
    states = requests + 3
    idx_mapping = rng.permutation(states)[:requests].astype(np.int32)
    if requests > 2:
        idx_mapping[1] = -1
    rows = [0 if state < 0 else count + 1 for state, count in zip(idx_mapping, counts, strict=True)]
    cu_num_logits = np.concatenate(([0], np.cumsum(rows))).astype(np.int32)
    used, padding = int(cu_num_logits[-1]), 2
    expanded_idx_mapping = np.concatenate((np.repeat(idx_mapping, rows), np.full(padding, -1))).astype(np.int32)
    expanded_local_pos = np.concatenate([np.arange(n) for n in rows] + [np.zeros(padding)]).astype(np.int32)
    temperature = rng.choice([0.0, 0.7, 1.0, 1.3], states).astype(np.float32)
    temperature[idx_mapping[-1]] = 0.0 if variant == "greedy" else 0.7
    if variant != "greedy":
        temperature[idx_mapping[0]] = 1.0
    draft_logits = _logits(rng, states, max(size.drafts, 1), width)
    target_logits = _logits(rng, used + padding, vocabulary)
    shared = min(width, vocabulary)
    draft_sampled = rng.integers(0, shared, used + padding).astype(np.int32)
    for row in range(used):
        state, step = expanded_idx_mapping[row], expanded_local_pos[row]
        if row + 1 < used and expanded_local_pos[row + 1] > 0:
            scale = temperature[state]
            if scale == 0.0:
                if rng.random() < 0.8:
                    draft_sampled[row + 1] = np.nanargmax(target_logits[row, :shared])
                continue
            # Near the target, so that some drafts are accepted.
            near = target_logits[row, :shared] * scale + rng.standard_normal(shared, dtype=np.float32) * 0.3
            draft_logits[state, step, :shared] = near
            draft_sampled[row + 1] = rng.choice(
                shared, p=_softmax(near / scale).astype(np.float64) / _softmax(near / scale).astype(np.float64).sum()
            )
    if variant == "placeholder":
        draft_sampled[1:used:3] = -1
        draft_sampled[used - 1] = vocabulary + 5
    if variant == "nan":
        target_logits[::2, 1::2] = np.nan
        target_logits[1] = np.nan
        draft_logits[:, -1] = np.nan
    if variant == "masked":
        target_logits[:, shared // 3 :] = -np.inf
    return {
        "target_logits": target_logits,
        "draft_logits": None if variant in {"one_hot", "greedy"} else draft_logits,
        "draft_sampled": draft_sampled,
        "cu_num_logits": cu_num_logits,
        "pos": (rng.integers(0, 2**40, used + padding) + np.arange(used + padding)).astype(np.int64),
        "idx_mapping": idx_mapping,
        "expanded_idx_mapping": expanded_idx_mapping,
        "expanded_local_pos": expanded_local_pos,
        "temperature": temperature,
        "seed": rng.integers(-(2**63), 2**63 - 1, states),
    }


def _verification_outputs(size: Size) -> dict[str, Any]:
    return {
        "sampled": np.full((size.requests, size.drafts + 2), POISON, np.int64),
        "num_accepted": np.full(size.requests, POISON, np.int32),
        "target_logsumexp": np.full(size.requests, POISON, np.float32),
        "draft_logsumexp": np.full(size.requests, POISON, np.float32),
    }


_VERIFY = ("draft", "one_hot", "greedy", "placeholder", "nan", "masked", "narrow_draft")


@_maker(*_VERIFY)
def probabilistic_rejection(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    return _verification_outputs(size) | _request_state(rng, size, variant)


@_maker(*_VERIFY)
def block_verification(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    ratio = {"log_prefix_ratio": np.full(size.requests, POISON, np.float32)}
    return _verification_outputs(size) | ratio | _request_state(rng, size, variant)


@_maker(*_VERIFY, "block", "no_mass")
def residual_resample(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    inputs = _request_state(rng, size, variant)
    if variant == "no_mass":
        # The draft is the target, and its normaliser makes q the larger everywhere.
        for row in range(len(inputs["target_logits"])):
            state, step = inputs["expanded_idx_mapping"][row], inputs["expanded_local_pos"][row]
            if state >= 0 and step < inputs["draft_logits"].shape[1]:
                inputs["draft_logits"][state, step] = inputs["target_logits"][row] * inputs["temperature"][state]
    verified = oracle.load("probabilistic_rejection")(**_verification_outputs(size), **inputs)
    # Some requests rejected where verification accepted, so that every kind of row is drawn from.
    counts = np.diff(inputs["cu_num_logits"]) - 1
    accepted = np.where(rng.random(size.requests) < 0.5, verified["num_accepted"], counts // 2)
    for b, first in enumerate(inputs["cu_num_logits"][:-1]):
        state, step = inputs["idx_mapping"][b], int(accepted[b])
        if state >= 0 and inputs["draft_logits"] is not None and 0 <= step < counts[b] and inputs["temperature"][state]:
            shared = min(inputs["target_logits"].shape[1], inputs["draft_logits"].shape[2])
            target = inputs["target_logits"][first + step, :shared].astype(np.float64)
            draft = inputs["draft_logits"][state, step, :shared].astype(np.float64) / inputs["temperature"][state]
            verified["target_logsumexp"][b] = _logsumexp(target)
            verified["draft_logsumexp"][b] = _logsumexp(draft) - (variant == "no_mass")
    return {
        "sampled": verified["sampled"],
        "num_sampled": np.full(size.requests, POISON, np.int32),
        "num_accepted": np.where(inputs["idx_mapping"] < 0, 0, accepted).astype(np.int32),
        "target_logsumexp": verified["target_logsumexp"],
        "draft_logsumexp": verified["draft_logsumexp"],
        "log_prefix_ratio": -rng.random(size.requests).astype(np.float32) if variant == "block" else None,
    } | {n: inputs[n] for n in inputs if n not in {"expanded_idx_mapping", "expanded_local_pos"}}


def _logsumexp(row: Array) -> float:
    row = np.where(np.isnan(row), -np.inf, row)
    top = row.max()
    return float(top if top == -np.inf else top + np.log(np.exp(row - top).sum()))


@_maker("draft", "one_hot", "greedy", "nan", "narrow_draft")
def gather_draft_logits_and_target_argmax(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    inputs = _request_state(rng, size, variant)
    rows, block = len(inputs["target_logits"]), 300
    draft_logits = inputs["draft_logits"]
    names = ("target_logits", "draft_logits", "expanded_idx_mapping", "expanded_local_pos", "temperature")
    return {
        "local_max": np.full((rows, -(-size.vocabulary // block) + 1), POISON, np.float32),
        "local_argmax": np.full((rows, -(-size.vocabulary // block) + 1), POISON, np.int64),
        "gathered_draft_logits": None
        if draft_logits is None
        else np.full((rows, draft_logits.shape[2] + 3), POISON, np.float32),
        **{name: inputs[name] for name in names},
        "BLOCK_SIZE": block,
    }


@_maker("draft", "placeholder")
def synthetic_rejection(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    inputs = _request_state(rng, Size(size.vocabulary, size.requests, size.drafts), variant)
    rates = np.concatenate(([1.0], rng.random(max(size.drafts - 1, 0)) * 0.5 + 0.4)).astype(np.float32)
    names = ("draft_sampled", "cu_num_logits", "pos", "idx_mapping", "seed")
    return {
        "sampled": np.full((size.requests, size.drafts + 2), POISON, np.int64),
        "num_sampled": np.full(size.requests, POISON, np.int32),
        "target_sampled": rng.integers(0, size.vocabulary, len(inputs["pos"])),
        **{name: inputs[name] for name in names},
        "acceptance_rates": rates,
    }


@_maker("ragged")
def flatten_sampled(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    rows = _counts(rng, size) + 1
    return {
        "flat_sampled": np.full(rows.sum() + 2, POISON, np.int64),
        "sampled": rng.integers(0, size.vocabulary, (size.requests, size.drafts + 1)),
        "num_sampled": rng.integers(0, rows + 1).astype(np.int32),
        "cu_num_logits": np.concatenate(([0], np.cumsum(rows))).astype(np.int32),
    }


_KNOWN_COUNTERS = [(0, 0, 0, 0), (0xFFFFFFFF,) * 4, (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)]
_KNOWN_KEYS = [(0, 0), (0xFFFFFFFF,) * 2, (0xA4093822, 0x299F31D0)]


@_maker("random", "known")
def philox(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    if variant == "known":
        counter, key = np.array(_KNOWN_COUNTERS, np.int64), np.array(_KNOWN_KEYS, np.int64)
        return {"words": np.zeros((3, 4), np.int64), "counter": counter, "key": key}
    words = size.vocabulary
    return {
        "words": np.full((words, 4), POISON, np.int64),
        "counter": rng.integers(0, 2**32, (words, 4)),
        "key": rng.integers(0, 2**32, (words, 2)),
    }


@_maker("target", "draft", "cached", "nan")
def gumbel_sample(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    rows, states = size.requests, size.requests + 2
    logits = _logits(rng, rows, size.vocabulary)
    if variant == "nan":
        logits[0, ::2] = np.nan
        logits[-1] = np.nan
    mapping = rng.permutation(states)[:rows].astype(np.int32)
    if rows > 2:
        mapping[1] = -1
    cache = np.full((states, size.drafts, size.vocabulary + 5), POISON, np.float32)
    return {
        "sampled": np.full(rows, POISON, np.int64),
        "logits": logits,
        "expanded_idx_mapping": mapping,
        "temperature": rng.choice([0.0, 0.5, 1.0, 1.7], states).astype(np.float32),
        "seed": rng.integers(-(2**63), 2**63 - 1, states),
        "pos": rng.integers(0, 2**40, rows),
        "apply_temperature": variant != "nan",
        "is_drafting": variant != "target",
        "logits_cache": cache if variant == "cached" else None,
        "logits_cache_col": rng.integers(0, size.drafts, rows).astype(np.int32) if variant == "cached" else None,
    }


@_maker(
    "both", "k", "p", "inplace", "ties", "masked", "few", "nan", "none", "peaked", "flat", "extreme", "grid", "outliers"
)
def apply_top_k_top_p(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    rows, vocabulary = max(size.requests, 2), size.vocabulary
    logits = _logits(rng, rows, vocabulary)
    k = rng.integers(1, max(vocabulary // 10, 2), rows).astype(np.int32)
    p = rng.uniform(0.05, 0.98, rows).astype(np.float32)
    k[-1], p[0] = vocabulary + 3, 1.0
    if variant == "ties":
        logits = np.round(logits)
        logits[0] = 0.0
        logits[0, ::2] = -0.0
    elif variant == "grid":
        logits = np.round(logits * 8) / 8
    elif variant == "masked":
        logits[:, vocabulary // 20 :] = -np.inf
        logits[-1] = -np.inf
    elif variant == "few":
        # Fewer tokens than k, and top-p over them.
        logits[:, 3:] = -np.inf
        k[:] = vocabulary - 1
    elif variant == "flat":
        # The answer has much on both sides of it.
        logits *= np.float32(0.1)
        p[:] = np.linspace(0.3, 0.9, rows)
    elif variant == "outliers":
        logits[:, ::7] = -1e30
        k[-1] = vocabulary - 1
    elif variant == "nan":
        logits[:, 1::3] = np.nan
        p[-1] = np.nan
    elif variant == "peaked":
        logits[:, vocabulary // 2] = 60.0
    elif variant == "extreme":
        k[: rows // 2] = 1
        p[rows // 2 :] = 0.0
        k[0], logits[1, 0] = 0, np.inf
    return {
        "output": np.full((rows, vocabulary), POISON, np.float32),
        "logits": logits,
        "k": None if variant in {"p", "flat", "none"} else k,
        "p": None if variant in {"k", "none"} else p,
    }


# The flat family ----------------------------------------------------------------------------------------------------


def _flat(rng: np.random.Generator, size: Size) -> tuple[Array, int]:
    counts = _counts(rng, size)
    return np.cumsum(counts).astype(np.int32), int(counts.sum())


@_maker("float32", "int64", "bool")
def expand_batch_to_tokens(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    cu, tokens = _flat(rng, size)
    values = {
        "float32": rng.choice([0.0, 0.7, 1.3, np.nan], size.requests).astype(np.float32),
        "int64": rng.integers(0, 2, size.requests) * (2**40 + 1),
        "bool": rng.integers(0, 2, size.requests).astype(np.bool_),
    }[variant]
    return {
        "output_ptr": np.zeros(tokens, values.dtype),
        "input_ptr": values,
        "cu_num_tokens_ptr": cu,
        "replace_from": 0.0,
        "replace_to": 1.0,
        "MAX_NUM_TOKENS": size.drafts,
    }


def _rejection(rng: np.random.Generator, size: Size, synthetic: bool) -> dict[str, Any]:
    cu, tokens = _flat(rng, size)
    drafts = rng.integers(0, size.vocabulary, tokens).astype(np.int32)
    drafts[3::5] = -1
    return {
        "output_token_ids_ptr": np.full((size.requests, size.drafts + 1), -1, np.int32),
        "cu_num_draft_tokens_ptr": cu,
        "draft_token_ids_ptr": drafts,
        "bonus_token_ids_ptr": rng.integers(0, size.vocabulary, (size.requests, 1)).astype(np.int32),
        "is_greedy_ptr": rng.integers(0, 2, size.requests).astype(np.bool_),
        "max_spec_len": size.drafts,
        "uniform_probs_ptr": rng.random(tokens),
        "synthetic_conditional_rates_ptr": rng.random(size.drafts).astype(np.float32) if synthetic else None,
        "SYNTHETIC_MODE": synthetic,
    }


@_maker("standard", "synthetic", "all_greedy")
def rejection_greedy_sample(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    arguments = _rejection(rng, size, variant == "synthetic")
    drafts = arguments["draft_token_ids_ptr"]
    argmax = np.where(rng.random(len(drafts)) < 0.7, drafts, rng.integers(0, size.vocabulary, len(drafts)))
    arguments["target_argmax_ptr"] = np.maximum(argmax, 0).astype(np.int64)
    if variant == "all_greedy":
        arguments["is_greedy_ptr"] = None
    if variant != "synthetic":
        arguments["uniform_probs_ptr"] = None
    return arguments


def _probs(rng: np.random.Generator, tokens: int, vocabulary: int) -> tuple[Array, Array]:
    logits = _logits(rng, tokens, vocabulary)
    return _softmax(logits), _softmax(logits + rng.standard_normal((tokens, vocabulary), dtype=np.float32))


@_maker("draft", "one_hot", "synthetic")
def rejection_random_sample(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    arguments = _rejection(rng, size, variant == "synthetic")
    tokens = len(arguments["draft_token_ids_ptr"])
    target, draft = _probs(rng, tokens, size.vocabulary)
    return arguments | {
        "target_probs_ptr": target,
        "draft_probs_ptr": None if variant == "one_hot" else draft,
        "recovered_token_ids_ptr": rng.integers(0, size.vocabulary, tokens).astype(np.int32),
        "vocab_size": size.vocabulary,
        "NO_DRAFT_PROBS": variant == "one_hot",
    }


@_maker("draft", "one_hot", "float64", "no_mass", "nan")
def sample_recovered_tokens(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    cu, tokens = _flat(rng, size)
    target, draft = _probs(rng, tokens, size.vocabulary)
    inv_q = (1.0 / rng.exponential(size=(size.requests, size.vocabulary))).astype(np.float32)
    if variant == "no_mass":
        draft[:] = target
        target[1::2] = 0.0
    if variant == "nan":
        target[::2, ::2] = np.nan
        draft[1::2] = np.nan
    drafts = rng.integers(0, size.vocabulary, tokens).astype(np.int32)
    drafts[2::4] = -1
    return {
        "output_token_ids_ptr": np.full(tokens, POISON, np.int32),
        "cu_num_draft_tokens_ptr": cu,
        "draft_token_ids_ptr": drafts,
        "draft_probs_ptr": None if variant == "one_hot" else draft,
        "target_probs_ptr": target,
        "inv_q_ptr": inv_q.astype(np.float64) if variant == "float64" else inv_q,
        "vocab_size": size.vocabulary,
        "BLOCK_SIZE": 8192,
        "NO_DRAFT_PROBS": variant == "one_hot",
        "USE_FP64_GUMBEL": variant == "float64",
    }


@_maker("padded")
def eagle_prepare_inputs_padded(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    counts, padding = _counts(rng, size), 2
    return {
        "cu_num_draft_tokens_ptr": np.cumsum(counts).astype(np.int32),
        "valid_sampled_tokens_count_ptr": rng.integers(0, counts + 2).astype(np.int32),
        "query_start_loc_gpu_ptr": np.concatenate(([0], np.cumsum(counts + 1))).astype(np.int32),
        "token_indices_to_sample_ptr": np.full(size.requests + padding, POISON, np.int32),
        "num_rejected_tokens_gpu_ptr": np.full(size.requests + padding, POISON, np.int32),
        "num_reqs": size.requests,
    }


@_maker("padded")
def eagle_prepare_next_token_padded(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    columns = size.drafts + 1
    sampled = rng.integers(0, size.vocabulary, (size.requests, columns)).astype(np.int32)
    sampled[np.arange(columns) >= rng.integers(0, columns + 1, (size.requests, 1))] = -1
    sampled[rng.random(sampled.shape) < 0.1] = size.vocabulary
    return {
        "sampled_token_ids_ptr": sampled,
        "discard_request_mask_ptr": rng.random(size.requests) < 0.3,
        "backup_next_token_ids_ptr": rng.integers(0, size.vocabulary, size.requests).astype(np.int32),
        "next_token_ids_ptr": np.full(size.requests + 1, POISON, np.int32),
        "valid_sampled_tokens_count_ptr": np.full(size.requests + 1, POISON, np.int32),
        "vocab_size": size.vocabulary,
        "num_sampled_tokens_per_req": columns,
        "num_reqs": size.requests,
        "stride_sampled_token_ids": columns,
        "BLOCK_SIZE_TOKENS": 256,
    }


@_maker("padded")
def eagle_step_slot_mapping_metadata(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    limit, block_size = 256, 16
    positions = rng.integers(0, limit - 1, size.requests)
    positions[-1] = limit - 1
    return {
        "positions_ptr": positions,
        "block_table_ptr": rng.integers(0, 1000, (size.requests, limit // block_size)).astype(np.int32),
        "block_table_stride": limit // block_size,
        "seq_lens_ptr": (positions + 1).astype(np.int32),
        "out_clamped_positions_ptr": np.full(size.requests + 1, POISON, np.int64),
        "out_slot_mapping_ptr": np.full(size.requests + 3, POISON, np.int64),
        "block_size": block_size,
        "max_model_len": limit,
        "n_blocks_per_req": limit // block_size,
        "PAD_ID": -1,
        "batch_size": size.requests,
    }


@_maker("shifted", "unshifted")
def copy_and_expand_eagle_inputs(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    shift, new_slots = variant == "shifted", 3
    lengths = rng.integers(1, 300, size.requests)
    starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    tokens = int(starts[-1])
    slots = tokens + size.requests * (new_slots - (1 if shift else 0)) + 4
    return {
        "target_token_ids_ptr": rng.integers(0, size.vocabulary, tokens).astype(np.int32),
        "target_positions_ptr": rng.integers(0, 10**6, tokens),
        "next_token_ids_ptr": rng.integers(0, size.vocabulary, size.requests).astype(np.int32),
        "out_input_ids_ptr": np.full(slots, POISON, np.int32),
        "out_positions_ptr": np.full(slots, POISON, np.int64),
        "out_is_rejected_token_mask_ptr": rng.random(slots) < 0.5,
        "out_is_masked_token_mask_ptr": rng.random(slots) < 0.5,
        "out_new_token_indices_ptr": np.full(size.requests * new_slots, POISON, np.int32),
        "out_hidden_state_mapping_ptr": np.full(tokens, POISON, np.int32),
        "query_start_loc_ptr": starts,
        "query_end_loc_ptr": (starts[1:] - 1 - rng.integers(0, lengths)).astype(np.int32),
        "padding_token_id": 5,
        "parallel_drafting_token_id": 6,
        "total_input_tokens": tokens,
        "num_padding_slots_per_request": new_slots,
        "shift_input_ids": shift,
        "BLOCK_SIZE_TOKENS": 64,
    }


@_maker("one_rank", "four_ranks")
def compute_slot_mapping(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    lengths = rng.integers(0, 50, size.requests)
    starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    tokens = int(starts[-1])
    ranks = 4 if variant == "four_ranks" else 1
    positions = np.concatenate([np.arange(n) + rng.integers(0, 100) for n in lengths]).astype(np.int64)
    return {
        "num_tokens": tokens,
        "max_num_tokens": tokens + 7,
        "query_start_loc_ptr": starts,
        "positions_ptr": positions,
        "block_table_ptr": rng.integers(0, 1000, (size.requests + 1, 12)).astype(np.int32),
        "block_table_stride": 12,
        "slot_mapping_ptr": np.full(tokens + 9, POISON, np.int64),
        "KV_CACHE_BLOCK_SIZE": 16,
        "TOTAL_CP_WORLD_SIZE": ranks,
        "TOTAL_CP_RANK": ranks // 2,
        "CP_KV_CACHE_INTERLEAVE_SIZE": 2 if ranks > 1 else 1,
        "PAD_ID": -1,
        "BLOCK_SIZE": 1024,
    }
