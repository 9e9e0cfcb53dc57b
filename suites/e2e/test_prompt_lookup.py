"""Prompt lookup: a request drafts what followed its own last token, whatever runs beside it (contract GEN)."""

from __future__ import annotations

from typing import Any

from verispec import fixtures
from verispec.cases import case
from verispec.engines.protocol.generation import GenerationRequest
from verispec.suites.e2e._lookup import judge_lookups
from verispec.suites.e2e._reference_model import reference_model
from verispec.suites.e2e._setups import SUFFIX, Load, require, with_steps

TARGET = fixtures.model("target")


@case(
    "GEN-49", draft=["ngram k=3", "ngram k=8", SUFFIX], requests="that come and go", reach="several requests at a time"
)
def test_a_request_drafts_what_followed_its_own_token(load: Load, prompts: Any, draft: str) -> None:
    """Prompts with a repeated phrase beside prompts without one, four of twelve requests at a time.

    They end apart, so that some read their prompt and some have no draft while others have one. A seed of its own gives
    this case a generator that has no texts yet.
    """
    chosen = [(*p[:9], *p[:9], *p[:4]) if n % 3 else p[: 40 - 2 * n] for n, p in enumerate(prompts[:12])]
    asked = [GenerationRequest(p, max_tokens=6 + 7 * n % 30, ignore_eos=True) for n, p in enumerate(chosen)]
    results = with_steps(load(draft, max_num_seqs=4, seed=49).generate(asked))
    for n, (prompt, result) in enumerate(zip(chosen, results, strict=True)):
        reference_model(TARGET).judge_greedy(prompt, result.token_ids, f"prompt {n}")
    require(judge_lookups(list(zip(chosen, results, strict=True))) > 0, "no step had a draft")
