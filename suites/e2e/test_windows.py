"""Targets with sliding windows: no token sees further back, whatever is drafted (contract GEN)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import transformers

from verispec import fixtures
from verispec.cases import case
from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import GenerationResult, Generator
from verispec.errors import VerispecError
from verispec.judge import Mismatch
from verispec.suites.e2e._again import Again
from verispec.suites.e2e._drafts import Drafter, Text, enough, explained, judge_texts
from verispec.suites.e2e._explained_texts import Mistakes, explained_texts
from verispec.suites.e2e._lengths import LAYOUTS as CHUNKED
from verispec.suites.e2e._lengths import judge_lengths, requests_of_lengths
from verispec.suites.e2e._reference_model import reference_model
from verispec.suites.e2e._setups import LAYOUTS, METHODS, Load, greedy, layout_of, require, stepped
from verispec.suites.e2e._texts import check_texts
from verispec.suites.e2e._windowed import MIXED, ORDERS, WINDOWS, save_mixed, save_windowed

LENGTH = 40
PROMPTS = 6
REACH = "a model with sliding windows"


@pytest.fixture(scope="session")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders of the target and the draft model with sliding windows."""
    return save_windowed(tmp_path_factory.mktemp("windowed"))


@pytest.fixture(scope="session")
def windows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders of targets with other windows, by the mistake in words."""
    return {
        told: save_windowed(tmp_path_factory.mktemp("window") / "models", window)["target"]
        for told, window in WINDOWS.items()
    }


@case("GEN-41", target="windowed", draft=METHODS, reach=REACH)
def test_every_token_sees_its_window(
    load: Load, windowed: dict[str, Path], windows: dict[str, Path], prompts: Any, draft: str, memory: str = ""
) -> None:
    """Greedy texts that outgrow the window, with drafts and rejections at its edge; the draft model has one too."""
    chosen = prompts[:PROMPTS]
    drafter = windowed["draft"] if draft.startswith("draft_model") else None
    generator, asked = load(draft, memory, target=windowed["target"], drafter=drafter), greedy(chosen, LENGTH)
    model, results = reference_model(windowed["target"]), generator.generate(asked)

    def check(n: int, result: GenerationResult) -> None:
        model.judge_greedy(chosen[n], result.token_ids, f"prompt {n}")

    try:
        check_texts(asked, results, check, layout_of(memory), Again(generator, asked))
    except Mismatch as mismatch:
        texts = [(each.prompt_token_ids, result.token_ids) for each, result in zip(asked, results, strict=True)]
        raise explained_texts(mismatch, model, models_of(windows), texts) from None


def models_of(folders: Mapping[str, Path]) -> Mistakes:
    """Return the models of folders by the mistake in words, each loaded when it is needed."""
    return {told: partial(lambda folder: [reference_model(folder)], folder) for told, folder in folders.items()}


@case("GEN-41", target="windowed", memory=LAYOUTS, draft=METHODS, reach=f"{REACH}, and chunked prefill or preemption")
def test_every_token_sees_its_window_in_any_layout(
    load: Load, windowed: dict[str, Path], windows: dict[str, Path], prompts: Any, memory: str, draft: str
) -> None:
    """Blocks that a window has left may be used again, those that a rejection brings back may not."""
    test_every_token_sees_its_window(load, windowed, windows, prompts, draft, memory)


@case(
    "GEN-41",
    target="windowed",
    draft="draft_model k=3",
    memory=CHUNKED,
    check="lengths of prompts",
    reach=f"{REACH}, and a prompt or a last chunk of a few tokens",
)
def test_prompts_of_any_length_see_their_window(
    load: Load, windowed: dict[str, Path], prompts: Any, memory: str | None
) -> None:
    """Prompts as long as a step with drafts. Those behind a chunk are longer than the window."""
    model = reference_model(windowed["target"])
    generator = load("draft_model k=3", memory or "", target=windowed["target"], drafter=windowed["draft"])
    judge_lengths(
        generator,
        requests_of_lengths(prompts, memory),
        lambda request, result, what: model.judge_greedy(request.prompt_token_ids, result.token_ids, what),
    )


@case(
    "GEN-14",
    target="windowed",
    memory="preemption",
    draft="draft_model k=3",
    sampler="request_state",
    rate=1,
    reach=f"{REACH}, and preemption",
)
def test_drafts_of_resumed_requests_see_the_window(load: Load, windowed: dict[str, Path], prompts: Any) -> None:
    """A resumed request drafts before it samples. Its drafter sees the tokens before the next one, and that one.

    Synthetic rates of 1 emit every draft. A window without its last token changes one draft in four.
    """
    generator = load(
        "draft_model k=3",
        "preemption",
        target=windowed["target"],
        drafter=windowed["draft"],
        sampler="request_state",
        rejection_sample_method="synthetic",
        synthetic_acceptance_rates=(1.0,) * 3,
    )
    chosen = prompts[:24]
    asked = greedy(chosen, LENGTH)
    results = stepped(generator, asked)
    if not any(result.preemptions for result in results):
        raise UnsupportedCall("the engine does not report preemptions")
    texts = list(zip(chosen, results, strict=True))
    judge_texts(reference_model(windowed["draft"]), texts, 3, layout_of("preemption"), Again(generator, asked))


@case("GEN-14", target="windowed", draft="draft_model k=3", drafter="without a window", reach=REACH)
def test_a_draft_model_sees_past_its_targets_window(load: Load, windowed: dict[str, Path], prompts: Any) -> None:
    """The draft model has no window of its own. Blocks that the target's window has left are still the drafter's."""
    chosen = prompts[:4]
    generator = load("draft_model k=3", target=windowed["target"])
    results = stepped(generator, greedy(chosen, LENGTH))
    judge = reference_model(fixtures.model("draft"))
    judged = judge_texts(judge, list(zip(chosen, results, strict=True)), 3, target=windowed["target"])
    require(judged > 0, "no step had a draft")


MIXED_REACH = "a model in which some layers have sliding windows and others none"
Orders = dict[str, dict[str, Path]]
"""Folders of the models by the layers that have a window; see `ORDERS`."""


@pytest.fixture(scope="session")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Orders:
    """Return the models with a window in every second layer, and those that an engine may take them for."""
    return {order: save_mixed(tmp_path_factory.mktemp("mixed") / "models", order) for order in ORDERS}


def load_mixed(load: Load, mixed: Orders, draft: str, memory: str = "") -> Generator:
    """Load the target with windows in some layers, with a draft model of its kind where one drafts.

    Raises:
        UnsupportedCall: the engine, or this transformers, has no such models.
    """
    if not hasattr(transformers, "MinistralForCausalLM"):
        raise UnsupportedCall("this transformers has no Ministral to compare with")
    models = mixed[MIXED]
    drafter = models["draft"] if draft.startswith("draft_model") else None
    try:
        return load(draft, memory, target=models["target"], drafter=drafter)
    except UnsupportedCall:
        raise
    except Exception as error:
        told = error.diagnostic.cause or error.diagnostic.message if isinstance(error, VerispecError) else str(error)
        first = told.partition("\n")[0]
        raise UnsupportedCall(f"the engine does not load a MinistralForCausalLM: {first}") from error


def other_orders(mixed: Orders, name: str) -> dict[str, Path]:
    """Return the folders of a model with the window in other layers, by the mistake in words."""
    return {f"{order} had the window": models[name] for order, models in mixed.items() if order != MIXED}


@case("GEN-41", target="mixed windows", draft=METHODS, reach=MIXED_REACH)
def test_every_layer_has_its_own_window(load: Load, mixed: Orders, prompts: Any, draft: str, memory: str = "") -> None:
    """Greedy texts that outgrow the windows of half of the layers."""
    generator, asked = load_mixed(load, mixed, draft, memory), greedy(prompts[:PROMPTS], LENGTH)
    model, results = reference_model(mixed[MIXED]["target"]), generator.generate(asked)

    def check(n: int, result: GenerationResult) -> None:
        model.judge_greedy(asked[n].prompt_token_ids, result.token_ids, f"prompt {n}")

    try:
        check_texts(asked, results, check, layout_of(memory), Again(generator, asked))
    except Mismatch as mismatch:
        mistakes = models_of(other_orders(mixed, "target"))
        texts = [(each.prompt_token_ids, result.token_ids) for each, result in zip(asked, results, strict=True)]
        raise explained_texts(mismatch, model, mistakes, texts) from None


@case(
    "GEN-41",
    target="mixed windows",
    memory="preemption",
    draft="draft_model k=3",
    reach=f"{MIXED_REACH}, and preemption",
)
def test_every_layer_has_its_own_window_in_any_layout(load: Load, mixed: Orders, prompts: Any) -> None:
    test_every_layer_has_its_own_window(load, mixed, prompts, "draft_model k=3", "preemption")


@case("GEN-14", target="mixed windows", draft="draft_model k=3", reach=MIXED_REACH)
def test_every_layer_of_a_draft_model_has_its_own_window(load: Load, mixed: Orders, prompts: Any) -> None:
    chosen = prompts[:PROMPTS]
    generator, asked = load_mixed(load, mixed, "draft_model k=3"), greedy(chosen, LENGTH)
    texts: Sequence[Text] = list(zip(chosen, stepped(generator, asked), strict=True))
    right = [(reference_model(mixed[MIXED]["draft"]), 3)]
    again = Again(generator, asked, more=greedy(prompts[PROMPTS : 4 * PROMPTS], LENGTH))
    try:
        judged = judge_texts(right[0][0], texts, 3, again=again)
    except Mismatch as mismatch:
        texts = enough(right, texts, again)
        mistakes: dict[str, Callable[[], Sequence[Drafter]]] = {
            told: partial(lambda folder: [(reference_model(folder), 3)], folder)
            for told, folder in other_orders(mixed, "draft").items()
        }
        raise explained(mismatch, right, mistakes, texts) from None
    require(judged > 0, "no step had a draft")
