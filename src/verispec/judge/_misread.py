"""Misread inputs of any op, derived from its contract: another row, fewer bits, an ignored mask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from verispec.judge._compare import Array
from verispec.judge._mistake import Inputs
from verispec.judge._request_rows import RowsByRequest, first_axis, request_rows
from verispec.reference.contracts import Contract, Scalar, Tensor

Misread = Iterator[tuple[str, dict[str, Any]]]
"""Words of mistakes, and the arguments as they are then read."""


CHANCE = 0.01
"""Chance above which it says nothing that a neighbour's numbers give all wrong requests."""


def misread(contract: Contract, inputs: Inputs) -> Misread:
    """Yield the mistakes that may be made with the inputs of a call; each reads something else than the others.

    Args:
        contract: contract of the op.
        inputs: arguments of the call by parameter name; an output is as its memory was before the call.
    """
    seen = set()
    for words, changed in _all(contract, inputs):
        key = _key(changed)
        if key not in seen and key != _key({name: inputs[name] for name in changed}):
            seen.add(key)
            yield words, changed


def misread_in(contract: Contract, inputs: Inputs, wrong: Array) -> Misread:
    """Yield the mistakes of reading a neighbour's number in the requests that are wrong, and in no other.

    The requests are known from the wrong outputs. Few or common numbers would agree by chance, and yield nothing.

    Args:
        contract: contract of the op.
        inputs: arguments of the call by parameter name.
        wrong: mask of the requests with a wrong element, [B].
    """
    for tensor in contract.tensors:
        value = inputs.get(tensor.name)
        if not isinstance(value, np.ndarray) or value.ndim != 1 or first_axis(tensor) != "B" or tensor.written:
            continue
        if (
            value.dtype.kind == "b"
            or tensor.cumulative
            or tensor.within
            or not np.any(wrong)
            or len(value) < len(wrong)
        ):
            continue
        place = np.flatnonzero(wrong)
        for text, step in (("the request before", -1), ("the next request", 1)):
            other = value[np.clip(place + step, 0, len(value) - 1)]
            if np.prod([np.mean(value == number) for number in other]) < CHANCE:
                moved = value.copy()
                moved[place] = other
                yield f"{tensor.name} were read at {text} where requests are wrong", {tensor.name: moved}


def _key(arguments: Inputs) -> tuple[Any, ...]:
    return tuple((name, hash(v.tobytes()) if isinstance(v, np.ndarray) else v) for name, v in arguments.items())


def _all(contract: Contract, inputs: Inputs) -> Misread:
    rows = request_rows(contract, inputs)
    for param in contract.params:
        value = inputs.get(param.name)
        if isinstance(param, Scalar):
            yield from _of_scalar(param, value)
        elif isinstance(value, np.ndarray) and not param.written and not param.cumulative and not param.within:
            yield from _of_rows(param, value, rows)
            yield from _of_states(param, value, inputs)
            yield from _of_values(param, value)
            yield from _of_columns(param, value)
            if param.optional and not param.required_if and inputs.get(param.required_with) is None:
                yield f"{param.name} were None", {param.name: None}
    yield from _of_pairs(contract, inputs)
    if rows.axis and all(first_axis(tensor) == rows.axis for tensor in contract.outputs):
        yield from _of_drafts(contract, inputs, rows)


def _of_rows(tensor: Tensor, value: Array, of: RowsByRequest) -> Misread:
    """Yield the mistakes of reading another row."""
    name, axis = tensor.name, first_axis(tensor)

    def read(text: str, order: Array) -> Misread:
        if len(order) and len(order) <= len(value) and np.any(order != np.arange(len(order))):
            moved = value.copy()
            moved[: len(order)] = value[np.clip(order, 0, len(value) - 1)]
            yield f"{name} were read {text}", {name: moved}

    if axis == of.axis and axis:
        request, place = of.requests, of.places
        start, number = of.starts[request], of.counts[request]
        row = np.arange(len(request))
        yield from read("at the request's first row", start)
        for last in range(1, min(int(place.max(initial=0)), 9)):
            yield from read(f"at row {last} of a request from that row on", start + np.minimum(place, last))
        yield from read("at the request's last row", start + number - 1)
        yield from read("one row before, within the request", start + np.maximum(place - 1, 0))
        yield from read("one row behind, within the request", start + np.minimum(place + 1, number - 1))
        yield from read("one row before", row - 1)
        yield from read("one row behind", row + 1)
        yield from read("with each request at row 0", place)
        yield from read("at the number of the request", request)
        if value.ndim == 1 and value.dtype.kind == "i" and 0 < len(row) <= len(value):
            counted = value.copy()
            counted[: len(row)] = value[start] + place
            yield f"{name} counted up from the request's first row", {name: counted}
    elif axis == "B":
        row = np.arange(len(value))
        yield from read("at the request before", row - 1)
        yield from read("at the next request", row + 1)
        yield from read("at the first request", row * 0)
        for period in (16, 32, 64, 128, 256, 512, 1024, 2048):
            yield from read(f"at the request's number modulo {period}", row % period)
            yield from read(f"at request {period - 1} from there on", np.minimum(row, period - 1))
        for size in (2, 4, 8, 16, 32):
            yield from read(f"at the first request of every {size}", row - row % size)
        if len(of.counts) == len(value):
            yield from read("without counting requests that have no row", np.maximum(np.cumsum(of.counts > 0) - 1, 0))


def _of_states(tensor: Tensor, value: Array, inputs: Inputs) -> Misread:
    """Yield the mistakes of reading what a state holds at another state, or at another draft step of it."""
    name = tensor.name
    if first_axis(tensor) == "R" and len(value):
        state = np.arange(len(value))
        yield f"{name} were read at the first state", {name: value[state * 0]}
        yield f"{name} were read at the state before", {name: value[np.maximum(state - 1, 0)]}
        yield f"{name} were read at the next state", {name: value[np.minimum(state + 1, len(value) - 1)]}
        states = inputs.get("idx_mapping")
        if isinstance(states, np.ndarray):
            held = np.flatnonzero((states >= 0) & (states < len(value)))
            moved = value.copy()
            moved[states[held]] = value[np.minimum(held, len(value) - 1)]
            yield f"{name} were read at the number of the request, not at its state", {name: moved}
    if value.ndim > 1 and str(tensor.shape[1]) == "K" and value.shape[1]:
        step = np.arange(value.shape[1])
        yield f"{name} were read at step 0", {name: value[:, step * 0]}
        yield f"{name} were read one step before", {name: value[:, np.maximum(step - 1, 0)]}
        yield f"{name} were read one step behind", {name: value[:, np.minimum(step + 1, len(step) - 1)]}


def _of_drafts(contract: Contract, inputs: Inputs, of: RowsByRequest) -> Misread:
    """Yield the mistakes of reading a request's row by the number of a draft, as a batch of requests of one draft."""
    request, place = of.requests, of.places
    number = np.arange(len(request))
    given = [t for t in contract.tensors if isinstance(inputs.get(t.name), np.ndarray) and first_axis(t) == "B"]
    alone = {t.name: number + 1 if t.cumulative else inputs[t.name][request] for t in given}
    for tensor in given:
        if not tensor.cumulative and len(request):
            rows = inputs[tensor.name]
            yield f"{tensor.name} were read at the number of the draft", alone | {tensor.name: rows[number % len(rows)]}
            yield f"{tensor.name} were read at the place of the draft", alone | {tensor.name: rows[place % len(rows)]}


def _of_values(tensor: Tensor, value: Array) -> Misread:
    """Yield the mistakes of reading another value at the right place."""
    name = tensor.name
    if value.dtype.kind == "b":
        yield f"{name} were true everywhere", {name: np.ones_like(value)}
        yield f"{name} were false everywhere", {name: np.zeros_like(value)}
        yield f"{name} were inverted", {name: ~value}
    elif value.dtype.kind == "f":
        for dtype in ("float32", "bfloat16", "float16"):
            rounded = torch.from_numpy(np.ascontiguousarray(value)).to(getattr(torch, dtype)).to(torch.float64).numpy()
            yield f"{name} had been rounded to {dtype}", {name: rounded.astype(value.dtype)}
        if value.ndim == 1:
            for bits in (23, 16, 8):
                cut = np.floor(value.astype(np.float64) * 2.0**bits) / 2.0**bits
                yield f"{name} had {bits} bits behind the point", {name: cut.astype(value.dtype)}
            for end, way in ((np.inf, "larger"), (-np.inf, "smaller")):
                moved = np.where(value == 0, value, np.nextafter(value, value.dtype.type(end)))  # 0 has a meaning
                yield f"{name} were {way} by its last bit: an equality is decided otherwise", {name: moved}
    elif value.dtype.kind == "i":
        if value.dtype.itemsize > 4:
            yield f"{name} had its low 32 bits alone", {name: value.astype(np.int32).astype(value.dtype)}
            words = np.ascontiguousarray(value).view(np.int32).ravel()[: value.size].reshape(value.shape)
            yield f"{name} were numbers of 32 bits in memory", {name: words.astype(value.dtype)}
        for bits in (16, 8):
            yield f"{name} had its low {bits} bits alone", {name: value & (2**bits - 1)}
        for bits in (32, 16) if value.dtype.itemsize > 4 else (16,):
            low = value & (2**bits - 1)
            none = np.where(low == 2**bits - 1, -1, value).astype(value.dtype)
            yield f"{name} were compared with -1 in their low {bits} bits", {name: none}
        for token in (0, 1):
            yield f"-1 in {name} were {token}", {name: np.where(value == -1, token, value).astype(value.dtype)}


def _of_columns(tensor: Tensor, value: Array) -> Misread:
    """Yield the mistakes in a row over the vocabulary."""
    if value.ndim == 2 and value.dtype.kind == "i" and value.shape[1]:
        none = np.cumsum(value == -1, axis=1) > 0
        cut = np.where(none, -1, value).astype(value.dtype)
        yield f"rows of {tensor.name} ended at their first -1", {tensor.name: cut}
    if value.ndim != 2 or str(tensor.shape[-1]) != "V" or value.dtype.kind != "f":
        return
    name, width = tensor.name, value.shape[1]
    for kept in sorted({width & -tile for tile in (8, 16, 32, 64, 128, 256, 512, 1024, 8192)} - {0, width}):
        cut = value.copy()
        cut[:, kept:] = 0
        yield f"{name} ended at column {kept:,} of {width:,}", {name: cut}
    for period in (2**16, 2**15):
        if width > period:
            yield f"{name} were read at the id modulo {period:,}", {name: value[:, np.arange(width) % period]}
            cut = value.copy()
            cut[:, period:] = 0
            yield f"{name} ended at column {period:,} of {width:,}", {name: cut}


def _of_scalar(param: Scalar, value: Any) -> Misread:
    """Yield the mistakes of another number or flag; those of tuning and strides change no output."""
    if param.tuning or param.stride_of:
        return
    if isinstance(value, bool):
        yield f"{param.name} were {not value}", {param.name: not value}
    elif isinstance(value, int) and not param.upper_bound:
        yield f"{param.name} were one less", {param.name: value - 1}
        yield f"{param.name} were one more", {param.name: value + 1}


def _of_pairs(contract: Contract, inputs: Inputs) -> Misread:
    """Yield the mistakes of comparing two tensors of integers in some of their bits."""
    given = [t for t in contract.tensors if not t.written and not t.cumulative and not t.within]
    ids = [t for t in given if isinstance(inputs.get(t.name), np.ndarray) and inputs[t.name].dtype.kind == "i"]
    for i, one in enumerate(ids):
        for other in ids[i + 1 :]:
            a, b = inputs[one.name], inputs[other.name]
            if one.shape != other.shape or a.shape != b.shape:
                continue
            for bits in (16, 8):
                alike = (a.astype(np.int64) ^ b.astype(np.int64)) & (2**bits - 1) == 0
                if np.any(alike & (a != b)):
                    text = f"{one.name} and {other.name} were compared in their low {bits} bits"
                    yield text, {one.name: np.asarray(np.where(alike, b, a), a.dtype)}
