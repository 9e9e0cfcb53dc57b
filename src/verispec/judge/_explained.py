"""The reason of a failure: what its wrong elements have in common, and the mistakes that give the engine's outputs.

The oracle runs again per mistake. If its outputs are then the engine's, whole, the failure says so. That is true of the
call, whatever the engine does. Nothing here decides whether a case passes.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from verispec.engines import UnsupportedCall
from verispec.errors import describe_exception, without_remark
from verispec.judge._compare import Array, exact, oracle_outputs
from verispec.judge._compared import COPY, ComparedCall
from verispec.judge._copies import row_sizes
from verispec.judge._failure import DeviceLost, Failure, Kind, Mismatch
from verispec.judge._misread import misread, misread_in
from verispec.judge._mistake import Mistake, Outputs, reading
from verispec.judge._number_mistakes import NUMBER_MISTAKES
from verispec.judge._op_mistakes import OP_MISTAKES
from verispec.judge._request_rows import first_axis, slots_of
from verispec.judge._rule_mistakes import of_rule
from verispec.judge._wrong_elements import places, traits
from verispec.judge._wrong_values import sources

LARGEST, ROWS = 8_000_000, 4_000
"""Elements, and rows of drafts or requests, of a call for which the oracle runs once per mistake."""
SECONDS = 2.0
"""Processor time of the search for mistakes of one failure."""
MOST = 3
"""Mistakes that a failure names at most; more of them explain nothing."""
FRUITLESS = 20
"""Failures of one op, in one process, for which every mistake is tried in vain; later ones try only what was found."""
IN_VAIN = 10.0
"""Processor time of such failures after which there are no more of them: those of wide rows take seconds each."""
SEARCHING = 6.0
"""Processor time of one process for mistakes in the rule of one op; later failures try what was found."""
FURTHER = 4
"""Wrong calls with other numbers that tell mistakes apart."""
MOST_CALLS = 16
"""Further calls that are made until `FURTHER` of them are wrong."""
COMPARED = (Kind.VALUE, Kind.UNWRITTEN, Kind.OVERWRITTEN, Kind.IMPRECISE, Kind.OUTSIDE)
"""Kinds of failures of which all outputs are known."""
AS_IF, WRONG_AS_IF = "all outputs are as if", "the wrong values are as if"
"""Words before the mistakes in a failure's message: those that give all outputs, and those that give the wrong ones."""
FAULT, ALTERNATIVELY, TRAITS = "fault", ", or ", "traits"
AGREEING, PARTLY = "agreeing", "agreeing where wrong"
"""Keys of a failure's details, and words between mistakes, as in `verispec.run.record`, which may not be imported."""
SEVERAL = 3
"""Different wrong values that a misread input hardly gives by chance."""
MOST_AGREEING = 24
"""Mistakes that agree with a call, above which they say nothing about its fault."""


def explained(failure: Failure, compared: ComparedCall | None) -> Failure:
    """Return a failure whose message says what its wrong elements have in common, where anything is.

    The words are in the last parentheses of the message, which reports leave out where they compare messages. Listed
    mistakes are the fault by which reports group cases, unless the case has named another.

    Args:
        failure: failure of a case; the case may have put words behind its message.
        compared: the last call of the case that failed.

    Raises:
        DeviceLost: a further call broke the process's CUDA context.
    """
    if compared is None or failure.kind not in COMPARED or not _is_of(failure, compared.failure):
        return failure
    named: dict[str, Any] = {}
    try:
        if copy := failure.details.get(COPY):
            said = [_of_copy(compared, int(copy))]
        else:
            said = [*places(compared), *sources(compared)[:1]]
            agreeing = Agreeing()
            mistakes = mistakes_of(compared, agreeing)
            words = ALTERNATIVELY.join(mistake.words for mistake in mistakes)
            if mistakes:
                said.append(f"{AS_IF} {words}")
            else:
                some = agreeing.where_wrong(compared)
                wrong_as_if = [f"{WRONG_AS_IF} {one}" for one in some] or _when_right(compared)
                said += [*_others(compared), *wrong_as_if]
            named = {FAULT: words} if any(mistake.is_listed for mistake in mistakes) else {}
            named[TRAITS] = {text: [round(evidence, 2), round(hit, 2)] for text, _, hit, evidence in traits(compared)}
            if agreeing.were_tried and len(agreeing.words) + len(agreeing.partly) <= MOST_AGREEING:
                named |= {AGREEING: agreeing.words, PARTLY: agreeing.partly}
    except DeviceLost:
        raise
    except Exception as error:  # an engine's outputs may be anything, and the failure counts without an explanation
        said = [f"no explanation: {describe_exception(error)}"]
    return replace(failure, message=_with_words(failure.message, said), details={**named, **failure.details})


def _is_of(failure: Failure, known: Failure) -> bool:
    return (failure.kind, failure.output, failure.wrong, failure.examples) == (
        known.kind, known.output, known.wrong, known.examples,
    )  # fmt: skip


def _with_words(message: str, said: list[str]) -> str:
    """Return a message with words in its last parentheses."""
    if not said:
        return message
    begin, end = without_remark(message)
    return f"{begin} ({'; '.join([*filter(None, [end]), *said])})"


def _of_copy(compared: ComparedCall, copy: int) -> str:
    """Return a description of the first wrong copy of a batch; those before it are right."""
    requests = row_sizes(compared.contract, compared.inputs).get("B", 1)
    tensor, first = compared.wrong_output, copy * requests
    if tensor is not None and first_axis(tensor) == "B":
        request = first + compared.failure.examples[0]["index"][0]
        return f"right up to request {request} of copies of {requests} requests"
    return f"right up to request {first} or a later one, in copies of {requests} requests"


def _others(compared: ComparedCall) -> list[str]:
    """Return the other outputs that are wrong."""
    tensor = compared.wrong_output
    wrong = [
        name for name in compared.outputs if tensor is not None and name != tensor.name and _is_wrong(compared, name)
    ]
    return [f"{', '.join(wrong)} {'is' if len(wrong) == 1 else 'are'} wrong, too"] if wrong else []


def _is_wrong(compared: ComparedCall, name: str) -> bool:
    compare = compared.compare.get(name, exact)
    try:
        return bool(np.any(compare(compared.expected[name], compared.outputs[name], compared.inputs)))
    except Mismatch:  # a comparison that has its own words for what is wrong
        return True


def _when_right(compared: ComparedCall) -> list[str]:
    """Return the conditions under which the call is right."""
    if compared.again is None or not _is_small(compared):
        return []
    if compared.again(0):
        return ["the same call is right when it is made again: it depends on calls, threads or memory beside it"]
    if compared.again(1):
        return ["the same call is right in one thread"]
    return _when_other(compared)


def _when_other(compared: ComparedCall) -> list[str]:
    """Return that two more calls with the same arguments and the same memory differ, if they do."""
    if compared.repeated is None:
        return []
    try:
        one, other = compared.repeated(), compared.repeated()
    except (Mismatch, UnsupportedCall):
        return []
    if not any(np.any(exact(one[name], other[name], {})) for name in one):
        return []
    return ["two more of the same call differ: it depends on calls, threads or memory beside it"]


def _is_small(compared: ComparedCall) -> bool:
    arrays = [value for value in compared.inputs.values() if isinstance(value, np.ndarray)]
    return sum(a.size for a in arrays) <= LARGEST and all(a.shape[0] <= ROWS for a in arrays if a.ndim)


# Mistakes


@dataclass
class Agreeing:
    """Mistakes that agree with a call, many of them by chance: a report compares those of several calls.

    Attributes:
        words: the mistakes that give all outputs, in words.
        partly: those that give the wrong elements alone.
        were_tried: True if they were searched.
    """

    words: list[str] = field(default_factory=list)
    partly: list[str] = field(default_factory=list)
    were_tried: bool = False

    def where_wrong(self, compared: ComparedCall) -> list[str]:
        """Return the misread input that gives all wrong elements, if one alone does and their values differ."""
        tensor = compared.wrong_output
        if tensor is None or not self.partly or compared.outputs[tensor.name].dtype.kind == "b":
            return []
        got = compared.outputs[tensor.name]
        values = np.unique(got[got != compared.expected[tensor.name]])
        return self.partly if len(values) >= SEVERAL and len(self.partly) == 1 else []


def mistakes_of(compared: ComparedCall, agreeing: Agreeing | None = None) -> list[Mistake]:
    """Return the mistakes to name; none if many explain the call, or the call is large.

    A listed mistake and one with a misread input may be the same, such as a limit that is ignored. The listed one says
    what it does to the outputs, and is named alone. It may also explain a small call by chance. Calls with other
    numbers tell then; where there can be none, misread inputs are not tried. Mistakes in the rule of the op come last.
    Those that explained another call of it are tried first, and alone: large calls leave time for few.

    Args:
        compared: the call.
        agreeing: gets all mistakes that agree with the call.
    """
    op = compared.contract.name
    agreeing = agreeing or Agreeing()
    if not _is_small(compared):
        return []
    if known := _told_apart(compared, explaining(compared, _found.get(op, []), agreeing=agreeing), least=FURTHER):
        return known
    least = int("seed" in compared.inputs)
    earlier = [mistake for mistake in listed(compared) if mistake.words in _named[op]] if _named[op] else []
    if known := _told_apart(compared, explaining(compared, earlier), least=least):
        return known
    if _fruitless[op] == FRUITLESS or _in_vain[op] > IN_VAIN:
        return []
    begin = time.process_time()
    end = begin + SECONDS
    found = explaining(compared, listed(compared), end)
    if not found or compared.otherwise:
        found += explaining(compared, of_inputs(compared), end, agreeing=agreeing)
    found = _told_apart(compared, found, end, least=least)
    named = [mistake for mistake in found if mistake.is_listed]
    _named[op] |= {mistake.words for mistake in named} if len(named) == 1 else set()
    named = named or found or in_rule(compared, agreeing)
    if not named:
        _fruitless[op] += 1
        _in_vain[op] += time.process_time() - begin
    return named if len(named) <= MOST else []


_fruitless: Counter[str] = Counter()
"""Failures of each op that no mistake explained."""
_in_vain: dict[str, float] = defaultdict(float)
"""Processor time that they took."""
_searched: dict[str, float] = defaultdict(float)
"""Processor time for each op."""
_named: dict[str, set[str]] = defaultdict(set)
"""Words of listed mistakes that explained a call of each op."""
_found: dict[str, list[Mistake]] = {}
"""Mistakes in the rule of an op that explained a call of this process."""


def in_rule(compared: ComparedCall, agreeing: Agreeing | None = None) -> list[Mistake]:
    """Return the mistakes in the rule of an op that explain a call and further ones; one of those of a single line.

    There are many of them: without further calls, more than one element has to be wrong. A call that wrote nothing says
    so, and any statement could have been left out.
    """
    op = compared.contract.name
    if _searched[op] > SEARCHING:
        return []
    before = compared.inputs
    if all(name in before and np.array_equal(before[name], got) for name, got in compared.outputs.items()):
        return []
    begin = time.process_time()
    found = explaining(compared, of_rule(op), begin + SECONDS, agreeing=agreeing)
    _searched[op] += time.process_time() - begin
    if compared.otherwise is None and compared.failure.wrong < 2:
        return []
    found = _told_apart(compared, found, least=FURTHER)
    if len({mistake.words.rpartition(" in line ")[2] for mistake in found}) == 1:
        found = found[:1]
    if len(found) <= MOST:
        _found.setdefault(op, []).extend(found)
    return found


def listed(compared: ComparedCall) -> Iterator[Mistake]:
    """Yield the mistakes that are listed for the op of a call, and those of its random numbers."""
    rules = OP_MISTAKES.get(compared.contract.name, {}) | (NUMBER_MISTAKES if "seed" in compared.inputs else {})
    yield from (Mistake(words, rule, is_listed=True) for words, rule in rules.items())


def of_inputs(compared: ComparedCall) -> Iterator[Mistake]:
    """Yield the mistakes of misread inputs that a call can show."""
    for words, changed in misread(compared.contract, compared.inputs):
        yield Mistake(words, reading(changed), is_listed=False)
    if (wrong := wrong_requests(compared)) is not None:
        for words, changed in misread_in(compared.contract, compared.inputs, wrong):
            yield Mistake(words, reading(changed), is_listed=False)


def wrong_requests(compared: ComparedCall) -> Array | None:
    """Return the mask of the requests with a wrong element; None where an output's elements belong to none."""
    expected, wrong = oracle_outputs(compared.contract.name, compared.inputs), np.zeros(0, bool)
    for tensor in compared.contract.outputs:
        if tensor.name not in compared.outputs:
            continue
        slots = slots_of(compared.contract, compared.inputs, tensor)
        rows = (compared.outputs[tensor.name] != expected[tensor.name]).reshape(len(expected[tensor.name]), -1).any(1)
        if slots is None or len(rows) < slots.counts.sum():
            return None
        hit = np.zeros(len(slots.counts), bool)
        hit[slots.requests[rows[: slots.counts.sum()]]] = True
        wrong = wrong | hit if len(wrong) else hit
    return wrong


@np.errstate(all="ignore")
def explaining(
    compared: ComparedCall, mistakes: Iterable[Mistake], end: float = np.inf, *, agreeing: Agreeing | None = None
) -> list[Mistake]:
    """Return those of `mistakes` that give all outputs of a call; none is tried after the processor time `end`.

    Args:
        compared: the call.
        mistakes: mistakes to try.
        end: processor time.
        agreeing: gets those that agree with the call.
    """
    found = []
    for mistake in mistakes:
        if time.process_time() > end:
            break
        outputs = _outputs_with(mistake, compared)
        if outputs is None:
            continue
        if compared.is_given_by(outputs):
            found.append(mistake)
        elif agreeing is not None and _is_partly(mistake, compared, outputs):
            agreeing.partly.append(mistake.words)
    if agreeing is not None:
        agreeing.were_tried = True
        agreeing.words += [mistake.words for mistake in found if mistake.words not in agreeing.words]
    return found


def _is_partly(mistake: Mistake, compared: ComparedCall, outputs: Outputs) -> bool:
    """Return True if a misread input gives the wrong elements alone. Any omission gives unwritten elements."""
    if mistake.is_listed or compared.failure.kind is Kind.UNWRITTEN:
        return False
    return compared.is_given_where_wrong(outputs)


def _outputs_with(mistake: Mistake, compared: ComparedCall) -> Outputs | None:
    try:
        return mistake.rule(compared.contract.name, compared.inputs)
    except Exception:  # what a mistake leads to need not make sense
        return None


def _told_apart(compared: ComparedCall, mistakes: list[Mistake], end: float = np.inf, *, least: int) -> list[Mistake]:
    """Return those of `mistakes` that also explain the same call with other numbers, where it can be made with others.

    A small call agrees with some mistake by chance, which other numbers show. A mistake that does not explain every
    further call is none. One that explains fewer than `least` wrong ones, of enough further calls, is none either: most
    mistakes agree with calls that are right.
    """
    made, wrong, latest = 0, 0, time.monotonic() + SECONDS
    for offset in range(1, MOST_CALLS + 1):
        if compared.otherwise is None or not mistakes or wrong == FURTHER:
            break
        if time.process_time() > end or time.monotonic() > latest:
            break
        try:
            inputs, outputs = compared.otherwise(offset)
        except (Mismatch, UnsupportedCall):
            break
        other, known = replace(compared, inputs=inputs, outputs=outputs), {mistake.words for mistake in mistakes}
        sources = (listed, of_inputs, lambda _: of_rule(compared.contract.name))
        every = (mistake for of in sources for mistake in of(other) if mistake.words in known)
        found = explaining(other, every, end)
        if time.process_time() > end:  # some were not tried
            break
        mistakes, made = found, made + 1
        wrong += not other.is_given_by(oracle_outputs(compared.contract.name, inputs))
    is_open = compared.otherwise is None or (least < 2 and made < FURTHER)
    return mistakes if wrong >= least or is_open else []
