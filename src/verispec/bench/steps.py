"""One step of an engine, from raw logits to tokens, as a call without arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from verispec.bench.inputs import BenchShape
from verispec.engines import Engine, Unsupported
from verispec.errors import VerispecError
from verispec.reference import contracts, oracle
from verispec.reference.oracle._fused import allowed_results

CHECKED = 2
"""Requests whose results are compared with the oracle before a shape is timed."""


@dataclass(frozen=True, slots=True)
class BenchStep:
    """A call, how it is made ("fused" or "ops"), and its outputs: tokens [B, k + 1] and counts [B] of them."""

    run: Callable[[], object]
    way: str
    tokens: Any
    counts: Any


def step_of(engine: Engine, shape: BenchShape, inputs: dict[str, Any], way: str = "") -> BenchStep:
    """Return the step of an engine over `inputs`.

    Args:
        engine: the engine; its fused op is taken, else its verification and resampling ops.
        shape: shape of the measured call.
        inputs: tensors of `inputs.make`; outputs are written there.
        way: "fused" or "ops" to ask for one of them.

    Raises:
        VerispecError: V-BENCH-OP when the engine lacks these ops.
    """
    if way != "ops":
        op = engine.op(shape.op)
        if not isinstance(op, Unsupported):
            return BenchStep(lambda: op(**inputs), "fused", inputs["sampled"], inputs["num_sampled"])
        if way == "fused":
            raise _missing(engine, shape, op)
    return _separate_ops(engine, shape, inputs)


def _separate_ops(engine: Engine, shape: BenchShape, inputs: dict[str, Any]) -> BenchStep:
    """Return a step of the slot-indexed family's separate ops: verification and resampling after top-k and top-p."""
    import torch

    target = inputs["target_logits"]
    count, device = shape.batch, target.device
    greedy = shape.op == "verify_greedy"
    rows = torch.arange(target.shape[0], dtype=torch.int32, device=device)
    owner = rows // (shape.drafts + 1)
    known = {
        **inputs,
        "draft_logits": inputs.get("draft_logits"),
        "sampled": torch.full_like(inputs["sampled"], -1),
        "num_sampled": torch.zeros(count, dtype=torch.int32, device=device),
        "num_accepted": torch.zeros(count, dtype=torch.int32, device=device),
        "target_logsumexp": torch.zeros(count, device=device),
        "draft_logsumexp": torch.zeros(count, device=device),
        "log_prefix_ratio": None,
        "expanded_idx_mapping": owner,
        "expanded_local_pos": rows % (shape.drafts + 1),
        "pos": rows.long() + 1000,
        "temperature": torch.zeros(count, device=device) if greedy else inputs["temperature"],
        "seed": torch.zeros(count, dtype=torch.int64, device=device) if greedy else inputs["seed"],
    }
    calls = []
    if shape.limits != "none" and not greedy:
        masked = torch.empty_like(target)
        known["target_logits"] = masked
        limits = {n: inputs[f"top_{n}"][owner.long()] if f"top_{n}" in inputs else None for n in ("k", "p")}
        calls.append(_bound(engine, shape, "apply_top_k_top_p", {"output": masked, "logits": target, **limits}))
    calls += [_bound(engine, shape, name, known) for name in ("probabilistic_rejection", "residual_resample")]

    def run() -> None:
        for call in calls:
            call()

    return BenchStep(run, "ops", known["sampled"], known["num_sampled"])


def _bound(engine: Engine, shape: BenchShape, name: str, known: dict[str, Any]) -> Callable[[], object]:
    op = engine.op(name)
    if isinstance(op, Unsupported):
        raise _missing(engine, shape, op)
    arguments = {p.name: known[p.name] for p in contracts.load(name).params}
    return lambda: op(**arguments)


def _missing(engine: Engine, shape: BenchShape, why: Unsupported) -> VerispecError:
    return VerispecError(
        "V-BENCH-OP",
        f"{engine.describe().name} has no way from logits to tokens for {shape.op}",
        where="--engine",
        cause=why.reason,
        hint="bench needs the fused op, or probabilistic_rejection and residual_resample; see verispec ops",
    )


def check(step: BenchStep, shape: BenchShape, inputs: dict[str, Any]) -> None:
    """Run the step once and compare the first requests with the oracle of the fused op.

    The tokens of a fused step must be the oracle's. Separate ops draw their last token from other random numbers:
    their accepted draft tokens must be.

    Raises:
        VerispecError: V-BENCH-WRONG with the first request that differs.
    """
    step.run()
    first = min(CHECKED, shape.batch)
    rows = first * (shape.drafts + 1)
    whole = {"draft_logits", "temperature", "seed", "top_k", "top_p"}
    few = {
        name: _numpy(
            value[
                : first + 1
                if name == "cu_num_logits"
                else first
                if name in whole or len(value) == shape.batch
                else rows
            ]
        )
        for name, value in inputs.items()
    }
    counts, tokens = _numpy(step.counts), _numpy(step.tokens)
    for b in range(first):
        n = int(counts[b]) - (step.way == "ops")
        if not any(
            counts[b] == right["num_sampled"] and tokens[b, :n].tolist() == right["sampled"][:n]
            for right in allowed_results(shape.op, few, b)
        ):
            expected = oracle.load(shape.op)(**few)["sampled"][b]
            raise VerispecError(
                "V-BENCH-WRONG",
                f"request {b} of {shape.op} {shape.name} is {tokens[b, : int(counts[b])].tolist()}, "
                f"expected {expected.tolist()}",
                where=f"--engine, {step.way}",
                hint="verispec run shows what is wrong; a wrong engine is not timed",
            )


def needed_bytes(step: BenchStep, shape: BenchShape, inputs: dict[str, Any]) -> int:
    """Return the bytes of the rows that decide the results: those up to the first rejected draft of each request."""
    counts = _numpy(step.counts).astype(np.int64)
    rows = int(counts.sum())
    if shape.op == "verify_draft_logits":
        rows += int(np.minimum(counts, shape.drafts).sum())
    return rows * shape.vocabulary * int(inputs["target_logits"].element_size())


def _numpy(tensor: Any) -> Any:
    return (tensor.float() if tensor.dtype.is_floating_point else tensor).cpu().numpy()
