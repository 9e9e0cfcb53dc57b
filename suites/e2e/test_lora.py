"""LoRA adapters: requests of several adapters share a batch, and each has its own under speculation (contract GEN)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from verispec.cases import case
from verispec.engines.protocol.generation import GenerationRequest, GenerationResult
from verispec.judge import Inconclusive
from verispec.suites.e2e._adapted import Adapted, save_adapted
from verispec.suites.e2e._reference_model import reference_model
from verispec.suites.e2e._setups import LAYOUTS, METHODS, Load, greedy, require

LENGTH = 24
ORDER = (None, 0, 1, 0, None, 1)
"""Adapters of the requests of a prompt: the same prompt with another adapter follows at once."""
REACH = "a request with a LoRA adapter"


@pytest.fixture(scope="session")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    """Return the folders of the adapters and of the merged targets."""
    return save_adapted(tmp_path_factory.mktemp("adapted"))


def batch(prompts: Any, count: int) -> list[GenerationRequest]:
    """Return requests for each prompt with each adapter; prompts repeat, so that prompt lookup drafts."""
    asked = greedy([(*prompt[:12], *prompt[:12]) for prompt in prompts[:count] for _ in ORDER], LENGTH)
    return [replace(request, lora_adapter=ORDER[n % len(ORDER)]) for n, request in enumerate(asked)]


def require_use(results: Sequence[GenerationResult]) -> None:
    """Raise Inconclusive if drafts were verified and none was accepted."""
    steps = [step for result in results for step in result.steps]
    if any(step.drafted for step in steps) and not any(step.accepted > 0 for step in steps):
        raise Inconclusive("no draft was accepted")


@case("GEN-43", memory=[None, *LAYOUTS], draft=METHODS, adapters="several", reach=REACH)
def test_every_request_has_its_adapter(
    load: Load, adapted: Adapted, prompts: Any, draft: str, memory: str | None
) -> None:
    """The greedy texts of one prompt differ by adapter; more requests than places follow each other in a layout."""
    asked = batch(prompts, 3)
    results = load(draft, memory or "", lora_adapters=adapted.adapters).generate(asked)
    require_use(results)
    for n, (request, result) in enumerate(zip(asked, results, strict=True)):
        model = reference_model(adapted.merged[request.lora_adapter])
        model.judge_greedy(request.prompt_token_ids, result.token_ids, f"request {n} ({named(request)})")


@case("GEN-43", draft=METHODS, adapters="several", check="log-probabilities", reach=f"{REACH} and logprobs")
def test_logprobs_are_those_of_the_adapter(load: Load, adapted: Adapted, prompts: Any, draft: str) -> None:
    """An adapter that a row lacks may leave its argmax as it is: the log-probabilities show it."""
    asked = [replace(request, logprobs=0) for request in batch(prompts, 1)]
    results = load(draft, lora_adapters=adapted.adapters).generate(asked)
    require_use(results)
    for n, (request, result) in enumerate(zip(asked, results, strict=True)):
        model, prompt = reference_model(adapted.merged[request.lora_adapter]), request.prompt_token_ids
        rows = model.logits(prompt, result.token_ids)
        largest = rows.max(axis=1)
        expected = rows[np.arange(len(rows)), list(result.token_ids)] - largest
        expected -= np.log(np.exp(rows - largest[:, None]).sum(axis=1))
        bound = 2 * model.rounding(prompt, result.token_ids)
        for place, (told, own) in enumerate(zip(result.logprobs, expected, strict=True)):
            seen = f"request {n} ({named(request)}): token {place} has log-probability {told.sampled:.6g}"
            require(abs(told.sampled - own) <= bound, f"{seen}, the model with its adapter {own:.6g}")


def named(request: GenerationRequest) -> str:
    """Return the request's adapter in words."""
    return "no adapter" if request.lora_adapter is None else f"adapter {request.lora_adapter}"
