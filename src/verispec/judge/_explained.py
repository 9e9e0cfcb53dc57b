"""Common traits of the wrong elements of a failing call, and the misread input that gives all of them.

The oracle runs again with one input changed as a kernel may misread it: another row, fewer bits, an ignored mask. If
its outputs are then the engine's, whole, the failure says so. Mistakes of single ops, and of random numbers, are in
`_mistakes`. Nothing here decides whether a case passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from verispec.errors import describe_exception
from verispec.judge._compare import Array, Compare, exact
from verispec.judge._copies import row_sizes
from verispec.judge._failure import Failure, Kind, Mismatch
from verispec.judge._mistakes import AS_IF
from verispec.reference import oracle
from verispec.reference.contracts import Contract, Scalar, Tensor

LARGEST, ROWS = 8_000_000, 4_000
"""Elements, and rows of drafts or requests, of a call for which the oracle runs once per mistake."""
SECONDS = 2.0
"""Processor time of the oracle's calls for one failure."""
MOST = 3
"""Mistakes that a failure names at most; more of them explain nothing."""
CHANCE = 0.2
"""Chance above which it says nothing that all wrong elements lie in one kind of rows."""
COMPARED = (Kind.VALUE, Kind.UNWRITTEN, Kind.OVERWRITTEN)
"""Kinds of failures of which all outputs are known."""

COPY = "copy of the batch"
"""Detail of a failure in a batch that is copies of a small one: the number of the first wrong copy."""

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ComparedCall:
    """A call that was compared, and failed.

    Attributes:
        contract: contract of the op.
        failure: the failure as the comparison raised it.
        inputs: arguments by parameter name; an output is as its memory was before the call.
        outputs: outputs of the engine, by parameter name.
        expected: outputs of the oracle, by parameter name.
        compare: comparison by output name, instead of `exact`.
    """

    contract: Contract
    failure: Failure
    inputs: Values
    outputs: Mapping[str, Array]
    expected: Mapping[str, Array]
    compare: Mapping[str, Compare]
    again: Callable[[int], bool] | None = None
    """Make the same call in a number of threads, 0 for as many as before, and return True if it is right; None for a
    call that cannot be made alone.
    """

    def differ(self, expected: Mapping[str, Array]) -> bool:
        """Return True if an output of the engine is none of `expected`."""
        return any(
            bool(np.any(self.compare.get(name, exact)(expected[name], got, self.inputs)))
            for name, got in self.outputs.items()
        )


def explained(failure: Failure, compared: ComparedCall | None) -> Failure:
    """Return a failure whose message says what its wrong elements have in common, where anything is.

    Args:
        failure: failure of a case; the case may have put words behind its message.
        compared: the last call of the case that failed.
    """
    if compared is None or failure.kind not in COMPARED or not _is_of(failure, compared.failure):
        return failure
    try:
        said = _said(failure, compared)
    except Exception as error:  # an engine's outputs may be anything, and the failure counts without an explanation
        said = [f"no explanation: {describe_exception(error)}"]
    if not said:
        return failure
    begin, end = failure.message, ""
    if begin.endswith(")") and " (" in begin:  # a report leaves what is in the last parentheses out of comparisons
        begin, _, end = begin[:-1].rpartition(" (")
    words = "; ".join([*filter(None, [end]), *said])
    return replace(failure, message=f"{begin} ({words})")


def _said(failure: Failure, compared: ComparedCall) -> list[str]:
    """Return descriptions of the wrong elements, and the mistakes that explain them."""
    if copy := failure.details.get(COPY):
        return [_of_copy(compared, int(copy))]
    known = [*places(compared)[:2], *_sources(compared)[:1]]
    return known if AS_IF in failure.message else known + _as_if(compared)


def _as_if(compared: ComparedCall) -> list[str]:
    """Return the mistakes that give the outputs of the engine, or the conditions under which the call is right."""
    if found := mistakes(compared):
        return [f"as if {', or '.join(found)}"]
    if compared.again is None or not _is_small(compared.inputs):
        return []
    if compared.again(0):
        return ["the same call is right when it is made again: it depends on calls, threads or memory beside it"]
    return ["the same call is right in one thread"] if compared.again(1) else []


def _of_copy(compared: ComparedCall, copy: int) -> str:
    """Return a description of the first wrong copy of a batch; those before it are right."""
    requests = row_sizes(compared.contract, compared.inputs).get("B", 1)
    name, first = compared.failure.output, copy * requests
    if any(t.name == name and _axis(t) == "B" for t in compared.contract.tensors):
        return (
            f"right up to request {first + compared.failure.examples[0]['index'][0]} of copies of {requests} requests"
        )
    return f"right up to request {first} or a later one, in copies of {requests} requests"


def _is_of(failure: Failure, known: Failure) -> bool:
    return (failure.kind, failure.output, failure.wrong, failure.examples) == (
        known.kind, known.output, known.wrong, known.examples,
    )  # fmt: skip


# Mistakes


def mistakes(compared: ComparedCall) -> list[str]:
    """Return the mistakes that give all outputs of the engine; none if they are many, or the call is large."""
    if not _is_small(compared.inputs):
        return []
    end = time.process_time() + SECONDS
    function = oracle.load(compared.contract.name)
    found: list[str] = []
    seen: set[Any] = set()
    for text, changed in _changes(compared.contract, compared.inputs):
        key = tuple((k, v.tobytes() if isinstance(v, np.ndarray) else v) for k, v in changed.items())
        if key in seen:
            continue
        seen.add(key)
        given = {**compared.inputs, **changed}
        with suppress(Exception), np.errstate(all="ignore"):  # what a misread number leads to need not make sense
            answer = function(**{k: v.copy() if isinstance(v, np.ndarray) else v for k, v in given.items()})
            if not compared.differ(answer):
                found.append(text)
        if len(found) > MOST:
            return []
        if time.process_time() > end:
            break
    return found


def _is_small(inputs: Values) -> bool:
    arrays = [value for value in inputs.values() if isinstance(value, np.ndarray)]
    return sum(a.size for a in arrays) <= LARGEST and all(a.shape[0] <= ROWS for a in arrays if a.ndim)


def _changes(contract: Contract, inputs: Values) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (mistake, changed arguments)."""
    starts, counts, limit = _rows_of_requests(contract, inputs)
    for param in contract.params:
        value = inputs.get(param.name)
        if isinstance(param, Scalar):
            yield from _of_scalar(param, value)
        elif isinstance(value, np.ndarray) and not param.written and not param.cumulative and not param.within:
            yield from _of_rows(param, value, starts, counts, limit)
            yield from _of_values(param, value)
            yield from _of_columns(param, value)
            if param.optional and not param.required_if:
                yield f"{param.name} were None", {param.name: None}
    yield from _of_pairs(contract, inputs)
    if limit and all(_axis(tensor) == limit for tensor in contract.outputs):
        yield from _of_drafts(contract, inputs, counts)


def _rows_of_requests(contract: Contract, inputs: Values) -> tuple[Array, Array, str]:
    """Return the first row and the number of rows of each request, and the axis of these rows; empty without one."""
    for tensor in contract.tensors:
        sums = inputs.get(tensor.name)
        if tensor.cumulative and tensor.cumulative.limit and isinstance(sums, np.ndarray) and sums.ndim == 1:
            ends = sums[1:] if tensor.shape == ("B+1",) else sums
            starts = sums[:-1] if tensor.shape == ("B+1",) else np.concatenate(([0], sums[:-1]))[: len(sums)]
            return starts.astype(np.int64), (ends - starts).astype(np.int64), tensor.cumulative.limit
    return np.zeros(0, np.int64), np.zeros(0, np.int64), ""


def _axis(tensor: Tensor) -> str:
    """Return the first axis of a tensor, of which a buffer may have more."""
    return str(tensor.shape[0]).removeprefix(">=") if tensor.shape else ""


def _of_rows(
    tensor: Tensor, value: Array, starts: Array, counts: Array, limit: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the mistakes of reading another row."""
    name, axis, rows = tensor.name, _axis(tensor), len(value)

    def read(text: str, order: Array) -> Iterator[tuple[str, dict[str, Any]]]:
        if len(order) and len(order) <= rows and np.any(order != np.arange(len(order))):
            moved = value.copy()
            moved[: len(order)] = value[np.clip(order, 0, rows - 1)]
            yield f"{name} were read {text}", {name: moved}

    if axis == limit and limit:
        request, start = np.repeat(np.arange(len(counts)), counts), np.repeat(starts, counts)
        place, number = np.arange(len(start)) - start, np.repeat(counts, counts)
        row = np.arange(len(start))
        yield from read("at the request's first row", start)
        for last in range(1, min(int(place.max(initial=0)), 9)):
            yield from read(f"at row {last} of a request from that row on", start + np.minimum(place, last))
        yield from read("at the request's last row", start + number - 1)
        yield from read("one row before, within the request", start + np.maximum(place - 1, 0))
        yield from read("one row behind, within the request", start + np.minimum(place + 1, number - 1))
        yield from read("one row before", row - 1)
        yield from read("one row behind", row + 1)
        yield from read("as if each request began at row 0", place)
        yield from read("at the number of the request", request)
    elif axis == "B":
        row = np.arange(rows)
        yield from read("at the request before", row - 1)
        yield from read("at the next request", row + 1)
        yield from read("at the first request", row * 0)
        for period in (16, 32, 64, 128, 256, 512, 1024, 2048):
            yield from read(f"at the request's number modulo {period}", row % period)
            yield from read(f"at request {period - 1} from there on", np.minimum(row, period - 1))
        if len(counts) == rows:
            yield from read("without counting requests that have no row", np.maximum(np.cumsum(counts > 0) - 1, 0))


def _of_drafts(contract: Contract, inputs: Values, counts: Array) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the mistakes of reading a request's row by the number of a draft, as a batch of requests of one draft."""
    request = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(request))
    place = number - np.repeat(np.cumsum(counts) - counts, counts)
    given = [t for t in contract.tensors if isinstance(inputs.get(t.name), np.ndarray) and _axis(t) == "B"]
    alone = {t.name: number + 1 if t.cumulative else inputs[t.name][request] for t in given}
    for tensor in given:
        if not tensor.cumulative and len(request):
            rows = inputs[tensor.name]
            yield f"{tensor.name} were read at the number of the draft", alone | {tensor.name: rows[number % len(rows)]}
            yield f"{tensor.name} were read at the place of the draft", alone | {tensor.name: rows[place % len(rows)]}


def _of_values(tensor: Tensor, value: Array) -> Iterator[tuple[str, dict[str, Any]]]:
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
        for bits in (16, 8):
            yield f"{name} had its low {bits} bits alone", {name: value & (2**bits - 1)}
        for token in (0, 1):
            yield f"-1 in {name} were {token}", {name: np.where(value == -1, token, value).astype(value.dtype)}


def _of_columns(tensor: Tensor, value: Array) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the mistakes in a row over the vocabulary."""
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


def _of_scalar(param: Scalar, value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if param.tuning or param.stride_of:
        return
    if isinstance(value, bool):
        yield f"{param.name} were {not value}", {param.name: not value}
    elif isinstance(value, int) and not param.upper_bound:
        for other in (value - 1, value + 1):
            yield f"{param.name} were {other}", {param.name: other}


def _of_pairs(contract: Contract, inputs: Values) -> Iterator[tuple[str, dict[str, Any]]]:
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


# Places


def places(compared: ComparedCall) -> list[str]:
    """Return descriptions that hold for all wrong elements and for few others, the rarest first."""
    contract, inputs = compared.contract, compared.inputs
    starts, counts, limit = _rows_of_requests(contract, inputs)
    name = compared.failure.output
    tensor = next((t for t in contract.tensors if t.name == name), None)
    if tensor is None or name not in compared.outputs or compared.outputs[name].ndim == 0:
        return []
    got, expected = compared.outputs[name], compared.expected[name]
    try:
        wrong: Array = np.asarray(compared.compare.get(name, exact)(expected, got, inputs))
    except Mismatch:  # a comparison that has its own words for what is wrong
        return []
    axis, found = _axis(tensor), []
    rows: Any = wrong.reshape(len(wrong), -1).any(axis=1)
    written: Any = exact(inputs[name], expected, inputs).reshape(len(wrong), -1).any(axis=1)
    if np.any(rows & ~written):
        written = np.ones_like(rows)
    if axis == "B":
        found = list(_of_requests(contract, inputs, counts, rows, written))
    elif axis == limit and limit and len(rows) >= counts.sum():
        rows, written = rows[: int(counts.sum())], written[: int(counts.sum())]
        request = np.repeat(np.arange(len(counts)), counts)
        place = np.arange(len(request)) - np.repeat(starts, counts)
        hit, used = np.zeros(len(counts), bool), np.zeros(len(counts), bool)
        hit[request[rows]], used[request[written]] = True, True
        found = list(_of_requests(contract, inputs, counts, hit, used))
        found += list(_from_on("row {} of a request on", place, rows))
    if axis == "B" and str(tensor.shape[-1]) == "K+1" and len(counts) == len(rows):
        found += list(_of_places(counts, wrong, exact(inputs[name], expected, inputs) != 0, alone=not found))
    return [text for _, text in sorted(found, key=lambda pair: pair[0])]


def _of_places(counts: Array, wrong: Array, written: Array, alone: bool) -> Iterator[tuple[float, str]]:
    """Yield (share, text) of the places of wrong elements in rows that have one per draft and one more.

    Args:
        counts: drafts of each request.
        wrong: mask of the wrong elements.
        written: mask of the elements that the op must write.
        alone: True if nothing else is known of them; the first one is then described.
    """
    column = np.broadcast_to(np.arange(wrong.shape[1]), wrong.shape)
    inside = column <= counts[:, None]
    found = []
    if not np.any(written & wrong) and np.all(written[wrong.any(axis=1)].any(axis=1)):
        found.append((0.0, "wrong only behind the last token of a request"))
    if np.all(inside[wrong]):
        found += list(_kind("at bonus tokens", (column == counts[:, None])[inside], wrong[inside]))
        found += list(_from_on("place {} of a request on", column[inside], wrong[inside]))
    yield from found
    request, place = (int(i) for i in np.argwhere(wrong)[0])
    if alone and not found and place == counts[request]:
        drafts = "without drafts" if not place else f"of {place} draft{'s' * (place > 1)}"
        yield 1.0, f"the first wrong one is the bonus token of a request {drafts}"


def _sources(compared: ComparedCall) -> list[str]:
    """Return inputs, or other places of the output, that have the wrong values."""
    contract, inputs, name = compared.contract, compared.inputs, compared.failure.output
    starts, counts, limit = _rows_of_requests(contract, inputs)
    tensor = next((t for t in contract.tensors if t.name == name), None)
    if tensor is None or not limit or name not in compared.outputs or compared.failure.kind == Kind.UNWRITTEN:
        return []
    got, expected = compared.outputs[name], compared.expected[name]
    rows, axis, found = int(counts.sum()), _axis(tensor), []
    if axis == limit and got.ndim == 1 and len(got) >= rows > 0:
        request = np.repeat(np.arange(len(counts)), counts)
        first, row = starts[request], np.arange(rows)
        last = first + counts[request] - 1
        for text, order in (("in reverse order", first + last - row), ("one row behind", np.maximum(row - 1, first))):
            if np.any(got[:rows] != expected[:rows]) and np.array_equal(got[:rows], expected[order]):
                found.append(f"the values of each request are {text}")
    if axis != "B" or str(tensor.shape[-1]) != "K+1" or len(counts) != len(got):
        return found
    request, place = np.nonzero(got != expected)
    inside = place < counts[request]
    if not len(request):
        return found
    values = got[request, place]
    for other in contract.tensors:
        given = inputs.get(other.name)
        if not isinstance(given, np.ndarray) or given.dtype.kind != "i" or other.written or other.cumulative:
            continue
        flat = given.reshape(len(given), -1)[:, 0] if given.size else given
        if _axis(other) == limit and np.all(inside) and len(flat) >= rows:
            if np.array_equal(flat[starts[request] + place], values):
                found.append(f"the wrong values are those of {other.name} at their place")
        elif _axis(other) == "B" and len(flat) == len(counts) and np.array_equal(flat[request], values):
            found.append(f"the wrong values are those of {other.name} of their request")
    return found


def _of_requests(
    contract: Contract, inputs: Values, counts: Array, wrong: Array, written: Array
) -> Iterator[tuple[float, str]]:
    """Yield (share of the requests, description) that holds for all wrong requests and not for all `written` ones."""
    requests = len(wrong)
    number = np.arange(requests)

    def kind(text: str, those: Array) -> Iterator[tuple[float, str]]:
        return _kind(text, those[written], wrong[written])

    if len(counts) == requests:
        yield from kind("in requests without drafts", counts == 0)
    for tensor in contract.tensors:
        value = inputs.get(tensor.name)
        if not isinstance(value, np.ndarray) or tensor.written or tensor.cumulative or tensor.within:
            continue
        if _axis(tensor) == "B" and value.dtype.kind == "b" and value.shape == (requests,):
            yield from kind(f"where {tensor.name} is true", value)
            yield from kind(f"where {tensor.name} is false", ~value)
        elif value.dtype.kind == "i" and value.ndim == 1 and len(counts) == requests and len(value) == counts.sum():
            holds = np.zeros(requests, bool)
            holds[np.repeat(number, counts)[value == -1]] = True
            yield from kind(f"in requests with -1 in {tensor.name}", holds)
    yield from _from_on("request {} on", number[written], wrong[written])
    for period in (1024, 512, 256, 128, 64, 32, 16, 8):
        if told := list(kind(f"in requests {period}, {2 * period} and so on", (number % period == 0) & (number > 0))):
            yield from told
            break


def _kind(text: str, kind: Array, wrong: Array) -> Iterator[tuple[float, str]]:
    """Yield the text if all wrong elements are of a kind that they would hardly be by chance."""
    share, count = float(np.mean(kind)) if len(kind) else 1.0, int(np.count_nonzero(wrong))
    alone = np.array_equal(kind, wrong) and len(kind) - count >= MOST
    if count and np.all(kind[wrong]) and share < 1 and (alone or (count > 1 and share**count < CHANCE)):
        yield share, f"wrong only {text}"


def _from_on(text: str, numbers: Array, wrong: Array) -> Iterator[tuple[float, str]]:
    """Yield the text with the lowest number of a wrong element, if elements before it are many."""
    if np.any(wrong) and (first := int(numbers[wrong].min())) > 0:
        yield from _kind(f"from {text.format(first)}", numbers >= first, wrong)
