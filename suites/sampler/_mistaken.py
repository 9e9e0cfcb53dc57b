"""Distributions of a step whose sampler makes one mistake with the parameters of its requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from verispec.cases.orders import LIMITS, Steps, law_in_order, mistaken, steps_of, swapped
from verispec.cases.sampling import rows_of
from verispec.engines.protocol.generation import GenerationRequest
from verispec.suites.sampler._parameters import FAULTS, Array, Law, Step, masked, misread, outcomes


def request_of(step: Step, b: int) -> GenerationRequest:
    """Return the parameters of request b with the temperature and the limits that the batch holds."""
    batch, off = step.batch, {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    given = {name: getattr(batch, name)[b].item() for name in off if getattr(batch, name) is not None}
    if given.get("top_k") == batch.vocab_size:
        given["top_k"] = 0
    return replace(step.contexts[b].params, temperature=float(batch.temperature[b]), **given)


def in_order_of(order: Steps, places: str = "all") -> Law:
    """Return the law of rows whose parameters apply in `order`, in the rows of drafts, the bonus row, or all."""

    def law(step: Step, b: int, j: int) -> Array:
        drafts = step.batch.draft_token_ids[b]
        if places not in ("all", "drafts" if j < len(drafts) else "bonus"):
            return step.law(b, j)
        context = step.contexts[b]
        row = masked(step.batch.logits[rows_of(step.batch, b)][j].double().numpy(), context, j)
        output = [*context.output_token_ids, *drafts[:j]]
        return law_in_order(row, request_of(step, b), output, context.stop_token_ids, order)

    return law


def telling_laws(step: Step, b: int) -> list[Law]:
    """Return laws of request b that no step shows all: two neighbours in turn, and limits of some rows alone."""
    steps = steps_of(request_of(step, b))
    without = tuple(name for name in steps if name not in LIMITS)
    places = [in_order_of(without, places) for places in ("drafts", "bonus")] if without != steps else []
    return [*places, *(in_order_of(order) for _, order in swapped(steps))]


def mistaken_outcomes(step: Step, b: int) -> dict[str, Array]:
    """Return the flat `outcomes` of request b by mistake, in words.

    A mistake under which a row has no token has none.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        found = {words: outcomes(step, b, law).ravel() for words, law in _mistaken_laws(step, b)}
    return {words: exact for words, exact in found.items() if np.isfinite(exact).all()}


def _mistaken_laws(step: Step, b: int) -> Iterator[tuple[str, Law]]:
    steps = steps_of(request_of(step, b))
    for words, order in mistaken(steps):
        yield words, in_order_of(order)
        if len(order) < len(steps):
            yield f"{words} in the bonus row", in_order_of(order, "bonus")
            yield f"{words} in the rows of drafts", in_order_of(order, "drafts")
    processors = [name for name in steps if name not in (*LIMITS, "the temperature")]
    for words, fields in (FAULTS | {words: {"misread": words} for words, _ in misread(step.contexts[b])}).items():
        if "ignores" in fields and len(processors) < 2:  # The laws above tell more.
            continue
        faulty = replace(step, **fields)  # type: ignore[arg-type]
        yield words, lambda _, b, j, faulty=faulty: faulty.law(b, j)  # type: ignore[misc]
