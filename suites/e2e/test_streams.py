"""Tokens that a caller hears of while its request runs (contract GEN)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from verispec import fixtures
from verispec.cases import case
from verispec.engines.protocol.generation import GenerationRequest, TokenKind
from verispec.reference.models import load_tokenizer
from verispec.suites.e2e._reference_model import greedy_text
from verispec.suites.e2e._setups import METHODS, TREE, Load, NotTold, greedy

TARGET = fixtures.model("target")
LENGTH = 30


@case("GEN-52", draft=[*METHODS, TREE], memory=[None, "preemption"], reach="a client that streams")
def test_streamed_tokens_are_those_of_the_result(load: Load, prompts: Any, draft: str, memory: str | None) -> None:
    """Texts end at stop tokens, stop strings and lengths at many places, among the accepted drafts of a step too.

    The generator of every case compares what is streamed; these requests end in all ways. Whole texts are no stream.
    """
    asked = []
    for n, prompt in enumerate(prompts[:4]):
        own = greedy_text(TARGET, prompt, LENGTH)
        text = load_tokenizer(TARGET).decode(own)
        asked += greedy([prompt], LENGTH - n)
        asked += [
            GenerationRequest(prompt, LENGTH, ignore_eos=True, stop_token_ids=(own[5 + n + 3 * i],)) for i in (0, 1)
        ]
        asked += [GenerationRequest(prompt, LENGTH, ignore_eos=True, stop=(text[8 + 9 * i + n :][:4],)) for i in (0, 1)]
        asked.append(GenerationRequest(prompt, 9 + n, ignore_eos=True, temperature=0.9, seed=n))
    parts: Counter[int] = Counter()

    def listen(index: int, tokens: Sequence[int], kinds: Sequence[TokenKind]) -> None:
        parts[index] += 1

    load(draft, memory or "").generate(asked, listen)
    if max(parts.values(), default=0) < 2:
        raise NotTold("nothing is streamed here: texts are handed on whole")
