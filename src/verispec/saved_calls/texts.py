"""Generated text: the smallest set of requests whose text is certainly wrong, or whose generation raises.

Only a greedy request without further parameters has one expected text, which the float64 reference model writes.
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import GenerationRequest, Generator, LoadOptions
from verispec.judge import Kind, Mismatch
from verispec.saved_calls.steps import Wrong

Requests = tuple[GenerationRequest, ...]
SHORT = (4, 12)
"""Lengths of prompts to try."""
NEIGHBOURS = 2
"""Requests that are tried as the only other one."""
LONGEST = 60.0
"""Seconds that shrinking may take: a trial generates, and after an exception loads the engine again."""
TRIALS = 16
"""Trials that are made however long they take, on a busy machine; the case's own limit still holds."""


@dataclass(frozen=True, slots=True)
class WrongText(Wrong):
    """The fault of a call of a generator; `expected` and `got` end at the first wrong token."""

    did: ClassVar[str] = "generated"


def wrong_in(generator: Generator, target: Path, requests: Sequence[GenerationRequest]) -> WrongText | None:
    """Return the fault in the text of `requests`; None if nothing is certainly wrong."""
    from verispec.suites.e2e._reference_model import greedy_text, reference_model

    try:
        results = generator.generate(requests)
    except Mismatch as mismatch:
        return WrongText(mismatch.failure.message) if mismatch.failure.kind == Kind.RAISED else None
    except UnsupportedCall:
        return None
    for n, (request, result) in enumerate(zip(requests, results, strict=True)):
        if not _plain(request):
            continue
        expected = greedy_text(target, tuple(request.prompt_token_ids), request.max_tokens)
        try:
            reference_model(target).judge_equal(request.prompt_token_ids, expected, result.token_ids, "")
        except Mismatch as mismatch:
            end = mismatch.failure.details.get("position", len(expected) - 1) + 1
            return WrongText("", n, expected[:end], tuple(result.token_ids[:end]))
    return None


def smallest(
    generator: Generator,
    load: Callable[[], Generator],
    target: Path,
    requests: Sequence[GenerationRequest],
    seconds: float,
) -> tuple[Requests, WrongText] | None:
    """Return the fewest and shortest requests found that fail like `requests`; None if nothing certain is wrong.

    Args:
        generator: the target with its drafter; closed at the end.
        load: function that loads another one after an exception, which a generator may not survive.
        target: folder of the target.
        requests: requests of the last call of a failing case.
        seconds: time from the first trial on, after which the smallest requests so far are returned.
    """
    trials = 0

    def check(asked: Requests) -> WrongText | None:
        nonlocal generator, trials
        trials += 1
        found = wrong_in(generator, target, asked)
        if found and found.error:
            generator.close()
            generator = load()
        return found

    try:
        best, wrong = tuple(requests), check(tuple(requests))
        deadline = time.monotonic() + seconds
        progress = wrong is not None
        while progress and wrong:
            progress = False
            for candidate in _variants(best, wrong):
                if trials >= TRIALS and time.monotonic() > deadline:
                    break
                found = check(candidate)
                if found and found.like(wrong):
                    best, wrong, progress = candidate, found, True
                    break
        return (best, wrong) if wrong else None
    finally:
        generator.close()


def _plain(request: GenerationRequest) -> bool:
    """Return whether the request has one text: greedy, and nothing else asked for."""
    bare = replace(request, prompt_token_ids=(1,), max_tokens=1)
    return bare == GenerationRequest((1,), max_tokens=1, ignore_eos=True)


def _variants(requests: Requests, wrong: WrongText) -> Iterator[Requests]:
    count, keep = len(requests), () if wrong.error else (wrong.request,)
    if count > 2:  # at one stroke: most faults need one neighbour
        for other in [n for n in range(count) if n not in keep][:NEIGHBOURS]:
            yield tuple(requests[n] for n in sorted({*keep, other}))
    step = count
    while count > 1 and step:
        for start in range(0, count, step):
            left = tuple(r for n, r in enumerate(requests) if n in keep or not start <= n < start + step)
            if left and len(left) < count:
                yield left
        step //= 2
    length = len(wrong.expected) if wrong.expected else 1
    longest = max(len(request.prompt_token_ids) for request in requests)
    if any(request.max_tokens > length for request in requests):
        yield _cut(requests, longest, length)
    for short in SHORT:
        if longest > short:
            yield _cut(requests, short, max(request.max_tokens for request in requests))


def _cut(requests: Requests, prompt: int, length: int) -> Requests:
    """Return the requests with prompts and outputs of at most so many tokens."""
    return tuple(
        replace(r, prompt_token_ids=tuple(r.prompt_token_ids)[-prompt:], max_tokens=min(r.max_tokens, length))
        for r in requests
    )


def to_json(target: Path, options: Mapping[str, Any], requests: Requests, wrong: WrongText) -> dict[str, Any]:
    """Return the requests, the options that are not the defaults, and the fault, as JSON."""
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}
    return {
        "target": str(target),
        "options": plain,
        "requests": [_given(request) for request in requests],
        **dataclasses.asdict(wrong),
    }


def _given(request: GenerationRequest) -> dict[str, Any]:
    """Return the fields of a request that are not the defaults."""
    default = GenerationRequest((1,), max_tokens=1)
    fields = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
    always = {"prompt_token_ids": list(request.prompt_token_ids), "max_tokens": request.max_tokens}
    return {name: value for name, value in fields.items() if value != getattr(default, name)} | always


def from_json(text: Mapping[str, Any]) -> tuple[LoadOptions, Requests]:
    """Return the options and requests that `to_json` wrote."""
    options = _tuples(text["options"])
    if options.get("draft"):
        options["draft"] = Path(options["draft"])
    return LoadOptions(**options), tuple(GenerationRequest(**_tuples(fields)) for fields in text["requests"])


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def copy_checkpoints(text: Mapping[str, Any], beside: Path) -> dict[str, Any]:
    """Copy target and drafter to folders beside the file `beside`; return the text with their paths."""
    moved = {**text, "options": dict(text["options"])}
    for role, place in (("target", moved), ("draft", moved["options"])):
        if place.get(role):
            folder = beside.with_name(f"{beside.stem}_{role}")
            if Path(place[role]) != folder:
                shutil.copytree(place[role], folder, dirs_exist_ok=True)
            place[role] = str(folder)
    return moved
