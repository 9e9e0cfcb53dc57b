"""Declaring the cases that each request parameter has: greedy, drawn, and with the numbers of a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from verispec.cases import case
from verispec.judge import Inconclusive
from verispec.suites.e2e._counter_rng import Definition
from verispec.suites.e2e._lookup import looked_up
from verispec.suites.e2e._parameters import Setting, check_distribution, check_greedy
from verispec.suites.e2e._reference_model import reference_model
from verispec.suites.e2e._setups import ARGMAX, METHODS, Load, options_of, with_steps

Test = Callable[..., None]


def greedy_cases(clause: str, parameters: list[str], drafts: Sequence[str] = METHODS) -> Test:
    """Declare cases of greedy requests, among sampled and greedy requests without the parameter."""

    @case(
        clause,
        sampling="greedy",
        parameter=parameters,
        draft=drafts,
        reach=lambda params: f"a greedy request with {params['parameter']}",
    )
    def check(load: Load, tiny: dict[str, Path], prompts: Any, parameter: str, draft: str) -> None:
        check_greedy(load, Setting.of(draft, tiny, prompts), parameter)

    return check


DRAWN = [*METHODS[1:3], ARGMAX]
"""Drafters whose drafts are certain, and those whose are drawn."""


def drawn_cases(clause: str, parameters: list[str], drafts: Sequence[str] = DRAWN) -> Test:
    """Declare cases that test sequences of sampled tokens against their exact probabilities."""

    @case(
        clause,
        target="tiny",
        sampling="drawn",
        parameter=parameters,
        draft=drafts,
        reach=lambda params: f"a sampled request with {params['parameter']}",
        p_values=2,
    )
    def check(load: Load, tiny: dict[str, Path], seed: int, parameter: str, draft: str) -> None:
        check_distribution(load, tiny, draft, parameter, seed)

    return check


def seeded_cases(clause: str, parameters: list[str]) -> Test:
    """Declare cases that test every draft, acceptance and token against the numbers of the request's seed."""

    @case(
        clause,
        target="tiny",
        sampler="request_state",
        parameter=parameters,
        draft=METHODS[:3],
        reach=lambda params: f"a request with a seed and {params['parameter']}",
    )
    def check(load: Load, tiny: dict[str, Path], seed: int, parameter: str, draft: str) -> None:
        check_seeded(load, tiny, parameter, draft, seed)

    return check


def check_seeded(load: Load, tiny: dict[str, Path], parameter: str, draft: str, seed: int) -> None:
    setting = Setting.of(draft, tiny, ())
    asked = [
        (request, plain)
        for n, heat in enumerate((0.7, 1.0, 1.6))
        for request, plain in zip(
            setting.requests(parameter, temperature=heat, seed=seed % 2**31 + n),
            setting.requests("temperature", temperature=heat * (n % 2), seed=n),
            strict=True,
        )
    ]
    generator = load(draft, target=setting.target, drafter=setting.drafter, sampler="request_state")
    results = generator.generate([request for requests in asked for request in reversed(requests)])[1::2]
    most = options_of(draft).get("num_speculative_tokens", 0)
    proposer: dict[str, Any] = {"most": most}
    if setting.drafter is not None:
        proposer["drafter"] = reference_model(setting.drafter)
    elif draft != "none":
        proposer["known"] = lambda sequence: looked_up(sequence, 2, 4, most)
    judged = 0
    for n, ((request, _), result) in enumerate(zip(asked, with_steps(results), strict=True)):
        definition = Definition(request, result.token_ids, setting.reference, **proposer)
        judged += definition.judge(result, f"request {2 * n + 1} with {parameter}")
    if draft != "none" and not judged:
        raise Inconclusive("no draft was verified")
