"""LoRA adapters: requests of several adapters share a batch, and each has its own under speculation (contract GEN)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from verispec.cases import case
from verispec.engines.protocol.generation import GenerationRequest
from verispec.suites.e2e._adapted import Adapted, save_adapted
from verispec.suites.e2e._logprobs import check_batch
from verispec.suites.e2e._reference_model import reference_model
from verispec.suites.e2e._setups import LAYOUTS, METHODS, Load, greedy, require_accepted_drafts

LENGTH = 24
ORDERS = {"several": (1, 0, 0), "several and none": (None, 0, 1)}
"""Adapters of the requests of a prompt. Three of them, so that a place of four has another one the next time."""
REACH = "requests with several LoRA adapters"


@pytest.fixture(scope="session")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    """Return the folders of the adapters and of the merged targets."""
    return save_adapted(tmp_path_factory.mktemp("adapted"))


def batch(prompts: Any, count: int, adapters: str) -> list[GenerationRequest]:
    """Return requests for each prompt with each adapter; prompts repeat, so that prompt lookup drafts."""
    order = ORDERS[adapters]
    asked = greedy([(*prompt[:12], *prompt[:12]) for prompt in prompts[:count] for _ in order], LENGTH)
    return [replace(request, lora_adapter=order[n % len(order)]) for n, request in enumerate(asked)]


@case("GEN-43", draft=METHODS, adapters=list(ORDERS), reach=REACH, quick=False)
def test_every_request_has_its_adapter(
    load: Load, adapted: Adapted, prompts: Any, draft: str, adapters: str, memory: str = ""
) -> None:
    """The greedy texts of one prompt differ by adapter."""
    asked = batch(prompts, 3, adapters)
    results = load(draft, memory, lora_adapters=adapted.adapters).generate(asked)
    require_accepted_drafts(results)
    for n, (request, result) in enumerate(zip(asked, results, strict=True)):
        model = reference_model(adapted.merged[request.lora_adapter])
        model.judge_greedy(request.prompt_token_ids, result.token_ids, f"request {n} ({named(request)})")


@case(
    "GEN-43",
    memory=LAYOUTS,
    draft=METHODS,
    adapters="several",
    reach=f"{REACH}, and chunked prefill or preemption",
    quick=False,
)
def test_every_request_has_its_adapter_in_any_layout(
    load: Load, adapted: Adapted, prompts: Any, memory: str, draft: str
) -> None:
    """Nine requests share four places, so that each place has several adapters, one after another."""
    test_every_request_has_its_adapter(load, adapted, prompts, draft, "several", memory)


@case(
    "GEN-43",
    draft=METHODS,
    adapters=list(ORDERS),
    check="log-probabilities",
    reach=f"{REACH} and logprobs",
    quick=False,
)
def test_logprobs_are_those_of_the_adapter(
    load: Load, adapted: Adapted, prompts: Any, draft: str, adapters: str
) -> None:
    """An adapter that a row lacks may leave its argmax as it is: the log-probabilities show it."""
    asked = [replace(request, logprobs=0) for request in batch(prompts, 2, adapters)]
    results = load(draft, lora_adapters=adapted.adapters).generate(asked)
    check_batch(results, asked, "raw", lambda request: reference_model(adapted.merged[request.lora_adapter]))


def named(request: GenerationRequest) -> str:
    """Return the request's adapter in words."""
    return "no adapter" if request.lora_adapter is None else f"adapter {request.lora_adapter}"


@case("GEN-43", draft=["draft_model k=3"], adapters="several", samples=2, reach=REACH, quick=False)
def test_every_sample_has_its_adapter(load: Load, adapted: Adapted, prompts: Any, draft: str) -> None:
    """A top-k of 1 makes sampled texts greedy ones."""
    asked = [replace(r, n=2, top_k=1, temperature=0.8, seed=n) for n, r in enumerate(batch(prompts, 1, "several"))]
    for request, result in zip(asked, load(draft, lora_adapters=adapted.adapters).generate(asked), strict=True):
        for sample in (result, *result.samples):
            model = reference_model(adapted.merged[request.lora_adapter])
            model.judge_greedy(request.prompt_token_ids, sample.token_ids, f"a sample with {named(request)}")
