"""Places of the wrong elements of a failing call, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from verispec.judge._compare import Array, exact
from verispec.judge._compared import ComparedCall
from verispec.judge._failure import Mismatch
from verispec.judge._request_kinds import element_kinds, place_kinds, request_kinds
from verispec.judge._request_rows import RowsByRequest, first_axis, request_rows, requests_of, slots_of
from verispec.reference.contracts import Contract

CHANCE = 0.2
"""Chance above which it says nothing that all wrong elements lie in one kind of rows."""
RARE = 5.0
"""Evidence, in powers of ten, above which a kind is named by the values of its inputs: there are about 400 of them."""
OTHERS = 3
"""Elements of other kinds beside which a single wrong one shows its kind."""

Shares = Iterator[tuple[float, str]]
"""Descriptions of wrong elements, each with the share of all elements that it holds for."""
Trait = tuple[str, float, float, float]
"""A kind in which all wrong elements lie, in words; its share of all elements; the share of it that is wrong; and the
evidence, in powers of ten, that this is no chance."""


def places(compared: ComparedCall) -> list[str]:
    """Return descriptions that hold for all wrong elements and for few others, the rarest first."""
    inputs, tensor = compared.inputs, compared.wrong_output
    if tensor is None or compared.outputs[tensor.name].ndim == 0:
        return []
    name = tensor.name
    got, expected = compared.outputs[name], compared.expected[name]
    try:
        wrong: Array = np.asarray(compared.compare.get(name, exact)(expected, got, inputs))
    except Mismatch:  # a comparison that has its own words for what is wrong
        return []
    rows = request_rows(compared.contract, inputs)
    must_change = exact(inputs[name], expected, inputs)
    hit, written = _any_of_row(wrong), _any_of_row(must_change)
    if np.any(hit & ~written):
        written = np.ones_like(hit)
    axis, found = first_axis(tensor), []
    if axis == "B":
        found = list(_of_requests(compared.contract, inputs, rows.counts, hit, written))
        if str(tensor.shape[-1]) == "K+1" and len(rows.counts) == len(hit):
            found += list(_of_columns(rows.counts, wrong, must_change, alone=not found))
    elif axis == rows.axis and axis and len(hit) >= rows.counts.sum():
        found = list(_of_rows(compared.contract, inputs, rows, hit, written))
    elif (slots := slots_of(compared.contract, inputs, tensor)) and len(hit) >= slots.counts.sum():
        found = list(_of_slots(slots, hit, written))
    alike = {t.name for t in compared.contract.outputs if t.shape == tensor.shape}
    masks = {of: mask for of, mask in compared.expected.items() if of in alike}
    found += list(_of_masks(masks, wrong, must_change | wrong.astype(bool)))
    told = [text for _, text in sorted(found, key=lambda pair: pair[0])][:2]
    rare = [(share, text) for text, share, _, evidence in traits(compared) if evidence > RARE]
    least = min((share for share, _ in found), default=1.0)
    return [*told, *(text for share, text in sorted(rare, key=lambda pair: pair[0])[:1] if share < least)]


def traits(compared: ComparedCall) -> list[Trait]:
    """Return the kinds of requests, rows and slots in which all wrong elements lie, however likely by chance."""
    inputs, tensor = compared.inputs, compared.wrong_output
    if tensor is None or compared.outputs[tensor.name].ndim == 0:
        return []
    got, expected = compared.outputs[tensor.name], compared.expected[tensor.name]
    try:
        wrong = np.asarray(compared.compare.get(tensor.name, exact)(expected, got, inputs), dtype=bool)
    except Mismatch:  # a comparison that has its own words for what is wrong
        return []
    must_change = exact(inputs[tensor.name], expected, inputs)
    hit, written = _any_of_row(wrong), _any_of_row(must_change | wrong)
    contract, requests = compared.contract, requests_of(compared.contract, inputs)
    rows, axis = request_rows(contract, inputs), first_axis(tensor)
    found: list[Trait] = []

    def add(kinds: Iterator[tuple[str, Array]], hit: Array, written: Array) -> None:
        for text, kind in kinds:
            if np.all(kind[hit]):
                size, number, count = (int(np.count_nonzero(m)) for m in (kind & written, written, hit))
                evidence = _choices(number, count) - _choices(size, count)
                found.append((f"wrong only {text}", size / number, count / max(size, 1), evidence))

    def add_requests(owner: Array, hit: Array, written: Array) -> None:
        of, used = np.zeros(requests, bool), np.zeros(requests, bool)
        of[owner[hit]], used[owner[written]] = True, True
        add(request_kinds(contract, inputs, requests), of, used)

    if axis == "B":
        if np.any(hit[requests:]):
            add(iter([("behind the last request", np.arange(len(hit)) >= requests)]), hit, written)
            return found
        add_requests(np.arange(requests), hit[:requests], written[:requests])
        add(element_kinds(contract, inputs, expected, axis, requests), hit[:requests], written[:requests])
        if str(tensor.shape[-1]) == "K+1" and rows.axis and len(rows.counts) == requests:
            decisive, decided, right = _decisions(rows, wrong[:requests], must_change[:requests], expected)
            if np.any(decisive):
                add(place_kinds(contract, inputs, rows, "draft"), decisive, decided)
                add(element_kinds(contract, inputs, right, rows.axis, len(right)), decisive, decided)
        return found
    is_row = bool(axis) and axis == rows.axis
    units = rows if is_row else slots_of(contract, inputs, tensor)
    if units is None or len(units.counts) != requests or len(hit) < (total := int(units.counts.sum())):
        return found
    hit, written, owner = hit[:total], written[:total], units.requests
    if np.any(hit):
        add_requests(owner, hit, written)
        add(place_kinds(contract, inputs, units, "row" if is_row else "slot"), hit, written)
        add(element_kinds(contract, inputs, expected, axis, total), hit, written)
    return found


def _decisions(rows: RowsByRequest, wrong: Array, written: Array, expected: Array) -> tuple[Array, Array, Array]:
    """Return which drafts an output of decided drafts decides, and which of them wrongly.

    The first wrong token of a request is where a decision went wrong; those behind follow from it.

    Args:
        rows: rows of each request.
        wrong: mask of the wrong elements, [B, K + 1].
        written: mask of the elements that the op must write, likewise.
        expected: right output.

    Returns:
        Masks of the rows that were decided wrongly and of those that were decided, and the right token of each row;
        empty if a bonus token is the first wrong one of a request.
    """
    request, place = rows.requests, rows.places
    first = np.where(wrong.any(axis=1), wrong.argmax(axis=1), wrong.shape[1])
    if np.any((first >= rows.counts) & wrong.any(axis=1)):
        return np.zeros(0, bool), np.zeros(0, bool), np.zeros(0, np.int64)
    decisive = place == first[request]
    decided = (written | wrong)[request, place] & (place <= first[request])
    return decisive, decided, expected[request, place]


def _choices(number: int, count: int) -> float:
    """Return the logarithm to base 10 of the number of ways to choose `count` of `number`."""
    return (math.lgamma(number + 1) - math.lgamma(count + 1) - math.lgamma(number - count + 1)) / math.log(10)


def _any_of_row(elements: Array) -> Array:
    return np.asarray(elements.reshape(len(elements), -1).any(axis=1))


def _of_requests(contract: Contract, inputs: Mapping[str, Any], counts: Array, wrong: Array, written: Array) -> Shares:
    """Yield descriptions of all wrong requests that do not hold for all `written` ones.

    Args:
        contract: contract of the op.
        inputs: arguments by parameter name.
        counts: rows of each request, [B]; empty if the op has none.
        wrong: mask of the requests with a wrong element, [B].
        written: mask of the requests with an element that the op must write, [B].
    """
    requests = len(wrong)
    number = np.arange(requests)

    def kind(text: str, those: Array) -> Shares:
        return _kind(text, those[written], wrong[written])

    if len(counts) == requests:
        yield from kind("in requests without drafts", counts == 0)
    for tensor in contract.tensors:
        value = inputs.get(tensor.name)
        if not isinstance(value, np.ndarray) or tensor.written or tensor.cumulative or tensor.within:
            continue
        if first_axis(tensor) == "B" and value.dtype.kind == "b" and value.shape == (requests,):
            yield from kind(f"where {tensor.name} is true", value)
            yield from kind(f"where {tensor.name} is false", ~value)
        elif value.dtype.kind == "i" and value.ndim == 1 and len(counts) == requests and len(value) == counts.sum():
            holds = np.zeros(requests, bool)
            holds[np.repeat(number, counts)[value == -1]] = True
            yield from kind(f"in requests with -1 in {tensor.name}", holds)
    yield from _from_on("request {} on", number[written], wrong[written])
    for period in (1024, 512, 256, 128, 64, 32, 16, 8):
        if np.count_nonzero(wrong[period::period]) < 2:  # one request makes no period
            continue
        if told := list(kind(f"in requests {period}, {2 * period} and so on", (number % period == 0) & (number > 0))):
            yield from told
            break


def _of_masks(expected: Mapping[str, Array], wrong: Array, written: Array) -> Shares:
    """Yield the right masks, other outputs of the call, in which all wrong elements lie."""
    for name, mask in expected.items():
        if mask.dtype.kind == "b" and mask.shape == wrong.shape:
            yield from _kind(f"where {name} is true", mask[written.astype(bool)], wrong[written.astype(bool)])


def _of_rows(
    contract: Contract, inputs: Mapping[str, Any], rows: RowsByRequest, wrong: Array, written: Array
) -> Shares:
    """Yield descriptions of all wrong rows, or of their requests; masks are those of `_of_requests`, by row."""
    request = rows.requests
    wrong, written = wrong[: len(request)], written[: len(request)]
    hit, used = np.zeros(len(rows.counts), bool), np.zeros(len(rows.counts), bool)
    hit[request[wrong]], used[request[written]] = True, True
    yield from _of_requests(contract, inputs, rows.counts, hit, used)
    yield from _from_on("row {} of a request on", rows.places, wrong)


def _of_columns(counts: Array, wrong: Array, written: Array, alone: bool) -> Shares:
    """Yield descriptions of all wrong elements of rows that have one per draft and one more.

    Args:
        counts: drafts of each request.
        wrong: mask of the wrong elements.
        written: mask of the elements that the op must write.
        alone: True if nothing else is known of them; the first one is then described.
    """
    column = np.broadcast_to(np.arange(wrong.shape[1]), wrong.shape)
    inside = column <= counts[:, None]
    found = []
    if not np.any(written & wrong) and np.all(_any_of_row(written)[_any_of_row(wrong)]):
        found.append((0.0, "wrong only behind the last token of a request"))
    if np.all(inside[wrong]):
        found += list(_kind("at bonus tokens", (column == counts[:, None])[inside], wrong[inside]))
        found += list(_kind("at the last draft of a request", (column == counts[:, None] - 1)[inside], wrong[inside]))
        found += list(_from_on("place {} of a request on", column[inside], wrong[inside]))
    yield from found
    request, place = (int(i) for i in np.argwhere(wrong)[0])
    if alone and not found and counts[request] in (place, place + 1):
        count = int(counts[request])
        drafts = "without drafts" if not count else f"of {count} draft{'s' * (count > 1)}"
        kind = "the bonus token" if place == count else "the last draft"
        yield 1.0, f"the first wrong one is {kind} of a request {drafts}"


def _kind(text: str, kind: Array, wrong: Array) -> Shares:
    """Yield the text if all wrong elements are of a kind that they would hardly be by chance."""
    share, count = float(np.mean(kind)) if len(kind) else 1.0, int(np.count_nonzero(wrong))
    alone = np.array_equal(kind, wrong) and len(kind) - count >= OTHERS
    if count and np.all(kind[wrong]) and share < 1 and (alone or (count > 1 and share**count < CHANCE)):
        yield share, f"wrong only {text}"


def _from_on(text: str, numbers: Array, wrong: Array) -> Shares:
    """Yield the text with the lowest number of a wrong element, if elements before it are many."""
    if np.any(wrong) and (first := int(numbers[wrong].min())) > 0:
        yield from _kind(f"from {text.format(first)}", numbers >= first, wrong)


def _of_slots(slots: RowsByRequest, wrong: Array, written: Array) -> Shares:
    """Yield descriptions of all wrong slots, where requests have slots beside those of their rows."""
    total = int(slots.counts.sum())
    wrong, written = wrong[:total], written[:total]
    yield from _from_on("slot {} of a request on", slots.places[written], wrong[written])
    hit, used = (np.zeros(len(slots.counts), bool) for _ in range(2))
    hit[slots.requests[wrong]], used[slots.requests[written]] = True, True
    yield from _from_on("request {} on", np.flatnonzero(used), hit[used])
