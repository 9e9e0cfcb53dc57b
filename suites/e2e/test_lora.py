"""LoRA adapters: requests of several adapters share a batch, and each has its own under speculation (contract GEN)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verispec.cases import case
from verispec.engines.protocol.generation import GenerationRequest, GenerationResult
from verispec.judge import Mismatch
from verispec.suites.e2e._adapted import Adapted, save_adapted, with_other_scale
from verispec.suites.e2e._again import Again
from verispec.suites.e2e._lengths import LAYOUTS as CHUNKED
from verispec.suites.e2e._lengths import judge_lengths, requests_of_lengths
from verispec.suites.e2e._logprobs import check_batch
from verispec.suites.e2e._reference_model import reference_model
from verispec.suites.e2e._setups import LAYOUTS, METHODS, Load, greedy, layout_of, require_accepted_drafts
from verispec.suites.e2e._texts import check_texts

LENGTH = 24
ORDERS = {"several": (1, 0, 0), "several and none": (None, 0, 1)}
"""Adapters of the requests of a prompt. Three of them, so that a place of four has another one the next time."""
REACH = "requests with several LoRA adapters"


@pytest.fixture(scope="session")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    """Return the folders of the adapters and of the merged targets."""
    return save_adapted(tmp_path_factory.mktemp("adapted"))


def batch(prompts: Any, count: int, adapters: str, times: int = 2) -> list[GenerationRequest]:
    """Return requests for each prompt with each adapter; prompts repeat, so that prompt lookup drafts."""
    order = ORDERS[adapters]
    asked = greedy([prompt[:12] * times for prompt in prompts[:count] for _ in order], LENGTH)
    return [replace(request, lora_adapter=order[n % len(order)]) for n, request in enumerate(asked)]


@case("GEN-43", draft=METHODS, adapters=list(ORDERS), reach=REACH, quick=False)
def test_every_request_has_its_adapter(
    load: Load, adapted: Adapted, prompts: Any, draft: str, adapters: str, memory: str = ""
) -> None:
    """The greedy texts of one prompt differ by adapter. A prompt that is read in chunks has some in its middle."""
    chunks = " and a prompt in three chunks" if memory == LAYOUTS[0] else ""
    asked = batch(prompts, 3, adapters, 5 if chunks else 2)
    generator = load(draft, memory, lora_adapters=adapted.adapters)
    results = generator.generate(asked)

    def check(n: int, result: GenerationResult) -> None:
        judge(adapted, asked[n], result, f"request {n} ({named(asked[n].lora_adapter)}{chunks})")

    check_texts(asked, results, check, layout_of(memory), Again(generator, asked))
    require_accepted_drafts(results)


def judge(adapted: Adapted, request: GenerationRequest, result: GenerationResult, what: str) -> None:
    """Check a greedy text; a failure says whose text it is, if it is that of another adapter, or of none."""

    def mismatch_of(model: Path) -> Mismatch | None:
        try:
            reference_model(model).judge_greedy(request.prompt_token_ids, result.token_ids, what)
        except Mismatch as mismatch:
            return mismatch
        return None

    own = request.lora_adapter
    if (mismatch := mismatch_of(adapted.merged[own])) is None:
        return
    owner = next((named(other) for other, model in adapted.merged.items() if mismatch_of(model) is None), None)
    if owner is None and own is not None and mismatch_of(with_other_scale(adapted, own)) is None:
        owner = f"{named(own)} with the other rule of scales: use_rslora is misread"
    told = "" if owner is None else f"; the text is that of {owner}"
    raise Mismatch(replace(mismatch.failure, message=f"{mismatch.failure.message}{told}"))


@case("GEN-43", draft=METHODS, adapters="in turn", reach=f"{REACH}, one after another", quick=False)
def test_no_adapter_stays_behind(load: Load, adapted: Adapted, prompts: Any, draft: str) -> None:
    """Each call has one request, with another adapter than the last one's or with none.

    Prompts of one token are as long as a step without drafts, so that nothing but the adapter changes at a call.
    """
    generator, last, calls = load(draft, lora_adapters=adapted.adapters), "", 0
    for asked in greedy([(*prompts[0][:12], *prompts[0][:12]), prompts[0][:1]], LENGTH):
        for adapter in (0, None, 1, 0, None):
            request = replace(asked, lora_adapter=adapter)
            (result,) = generator.generate([request])
            judge(adapted, request, result, f"call {calls} ({named(adapter)}{last})")
            last, calls = f" after {named(adapter)}", calls + 1


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
    draft="draft_model k=3",
    memory=CHUNKED,
    adapters="several and none",
    check="lengths of prompts",
    reach=f"{REACH}, and a prompt or a last chunk of a few tokens",
    quick=False,
)
def test_prompts_of_any_length_have_their_adapter(
    load: Load, adapted: Adapted, prompts: Any, memory: str | None
) -> None:
    """Prompts as long as a step with drafts. One alone has another adapter than the requests before it."""
    orders = (0, None, 0, 1), (1, None, 1, 0)
    asked = [
        replace(request, lora_adapter=orders[n // 4 % 2][n % 4])
        for n, request in enumerate(requests_of_lengths(prompts, memory))
    ]
    generator = load("draft_model k=3", memory or "", lora_adapters=adapted.adapters)
    judge_lengths(generator, asked, lambda *told: judge(adapted, *told))


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


def named(adapter: int | None) -> str:
    """Return an adapter in words."""
    return "no adapter" if adapter is None else f"adapter {adapter}"


@case("GEN-43", draft=["draft_model k=3"], adapters="several", samples=2, reach=REACH, quick=False)
def test_every_sample_has_its_adapter(load: Load, adapted: Adapted, prompts: Any, draft: str) -> None:
    """A top-k of 1 makes sampled texts greedy ones."""
    asked = [replace(r, n=2, top_k=1, temperature=0.8, seed=n) for n, r in enumerate(batch(prompts, 1, "several"))]
    for request, result in zip(asked, load(draft, lora_adapters=adapted.adapters).generate(asked), strict=True):
        for sample in (result, *result.samples):
            judge(adapted, request, sample, f"a sample with {named(request.lora_adapter)}")
