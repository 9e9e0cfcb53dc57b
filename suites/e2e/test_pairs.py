"""Every two features of a request together, where drafts are accepted, cut and rejected (contract GEN)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verispec.cases import case
from verispec.suites.e2e._pairs import (
    ADAPTERS,
    CRAMPED,
    ONE_SEQUENCE,
    Models,
    check_result,
    lookup_numbers,
    pairs_of,
    save_models,
    taken,
)
from verispec.suites.e2e._setups import Load

MEMORY: dict[str, tuple[str, str | None, dict[str, Any]]] = {
    "ample": ("draft_model k=3", "itself", {}),
    "cramped": ("draft_model k=3", "another", dict(CRAMPED)),
    "cramped slots": ("ngram k=3", None, {**CRAMPED, "sampler": "request_state", "logprobs_mode": "processed"}),
    "one sequence": ("draft_model k=3", "another", dict(ONE_SEQUENCE)),
    "one sequence, slots": (
        "ngram k=3",
        None,
        {**ONE_SEQUENCE, "max_num_batched_tokens": 6, "sampler": "request_state"},
    ),
}
"""Drafter, its model and options by memory: the target drafts for itself, or requests lose drafts and blocks."""
CLAUSES = {
    "penalties": "GEN-22",
    "bad words": "GEN-19",
    "min tokens": "GEN-20",
    "stop tokens": "GEN-10",
    "logit bias": "GEN-21",
    "allowed ids": "GEN-18",
    "grammar": "GEN-39",
    "logprobs": "GEN-29",
    "prompt logprobs": "GEN-31",
    "samples": "GEN-33",
    "limits": "GEN-23",
    "min-p": "GEN-23",
    "seed": "GEN-12",
    "abort": "GEN-34",
    "stop strings": "GEN-32",
    "adapter": "GEN-43",
}
"""The clause of each feature, which is checked beside every other one."""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory, tiny: dict[str, Path]) -> Models:
    """Return the small target with a tokenizer, its drafters and its adapters."""
    return save_models(tmp_path_factory.mktemp("pairs"), tiny)


def pair_cases(feature: str) -> Callable[..., None]:
    """Declare the cases of one feature beside every other one."""

    @case(
        CLAUSES[feature],
        target="tiny",
        memory=list(MEMORY),
        feature=feature,
        reach=f"a request with {feature} and a second parameter",
        quick=False,
    )
    def check(load: Load, models: Models, seed: int, memory: str) -> None:
        draft, drafter, options = MEMORY[memory]
        more = {**options, "lora_adapters": models.adapted.adapters} if feature in ADAPTERS else options
        generator = load(draft, target=models.target, drafter=models.drafters[drafter] if drafter else None, **more)
        mode, numbers = options.get("logprobs_mode", "raw"), lookup_numbers(3) if "sampler" in options else {}
        # Processed log-probabilities of every request show a wrong row whose most likely token is right.
        common = {"logprobs": 0} if mode == "processed" else {}
        for name, request, result in taken(generator, list(pairs_of(feature, models, seed, common)), feature):
            check_result(models, request, result, mode, numbers, f"the request with {name}")

    return check


test_penalties_beside_others = pair_cases("penalties")
test_bad_words_beside_others = pair_cases("bad words")
test_min_tokens_beside_others = pair_cases("min tokens")
test_stop_tokens_beside_others = pair_cases("stop tokens")
test_logit_bias_beside_others = pair_cases("logit bias")
test_allowed_ids_beside_others = pair_cases("allowed ids")
test_a_grammar_beside_others = pair_cases("grammar")
test_logprobs_beside_others = pair_cases("logprobs")
test_prompt_logprobs_beside_others = pair_cases("prompt logprobs")
test_samples_beside_others = pair_cases("samples")
test_limits_beside_others = pair_cases("limits")
test_min_p_beside_others = pair_cases("min-p")
test_seeds_beside_others = pair_cases("seed")
test_aborts_beside_others = pair_cases("abort")
test_stop_strings_beside_others = pair_cases("stop strings")
test_adapters_beside_others = pair_cases("adapter")
