"""Requests of a failing case again, each alone: does what is wrong depend on the other requests of its batch?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from verispec.engines.protocol.generation import GenerationRequest, GenerationResult, Generator

MOST = 8
"""Wrong requests that run again."""
CHANCE = 0.01
"""Largest probability of as many right places, at the share of wrong ones before, for which a request is called right.
"""


@dataclass(frozen=True)
class Again:
    """The requests of a call, which may run again after a failure.

    Attributes:
        generator: the engine's, as loaded for the case.
        asked: the requests in the order of their results.
        words: manner of running again; a request that was alone does not run again as "alone".
        more: further requests, where those of the case are too few.
    """

    generator: Generator
    asked: Sequence[GenerationRequest]
    words: str = "alone"
    more: Sequence[GenerationRequest] = ()

    def told(
        self, wrong: Sequence[int], share: float, count: Callable[[int, GenerationResult], tuple[int, int]]
    ) -> str:
        """Return if the wrong requests are right or wrong alone, to follow a message.

        It is empty if some are right and some are wrong, and if those that are right may be so by chance.

        Args:
            wrong: numbers of the wrong requests.
            share: fraction of wrong ones among their places.
            count: function of a request's number and its new result that returns how many places are wrong and right.
        """
        chosen = wrong[:MOST]
        if not chosen or (len(self.asked) == 1 and self.words == "alone"):
            return ""
        try:
            counts = [count(number, *self.results([self.asked[number]])) for number in chosen]
        except Exception:  # the failure that is known tells more
            return ""
        first = "first " if len(chosen) < len(wrong) else ""
        which = f"the {first}{len(chosen)} wrong requests are" if len(chosen) > 1 else "the wrong request is"
        if all(bad for bad, _ in counts):
            return f"; {self.words}, {which} wrong too"
        if not any(bad for bad, _ in counts) and (1 - share) ** sum(good for _, good in counts) <= CHANCE:
            return f"; {self.words}, {which} right"
        return ""

    def in_pieces(
        self, chunk: int, share: float, count: Callable[[GenerationRequest, GenerationResult], tuple[int, int]]
    ) -> str:
        """Return if drafts behind prompts of `chunk` tokens, each alone, are right or wrong, to follow a message.

        Args:
            chunk: tokens that a step reads in one piece.
            share: fraction of wrong steps behind longer prompts.
            count: function of a request and its result that returns how many steps are wrong and right.
        """
        asked = [replace(each, prompt_token_ids=each.prompt_token_ids[:chunk]) for each in self.more]
        try:
            counts = [count(each, *self.results([each])) for each in asked]
        except Exception:  # the failure that is known tells more
            return ""
        wrong, right = (sum(each) for each in zip(*counts, strict=True)) if counts else (0, 0)
        if wrong or (1 - share) ** right <= CHANCE:
            drafts = "wrong drafts too" if wrong else "right drafts"
            return f"; prompts of {chunk} tokens, read in one piece, have {drafts}"
        return ""

    def results(self, asked: Sequence[GenerationRequest]) -> list[GenerationResult]:
        """Return the results of requests; those of the case stay the ones that a repro keeps."""
        kept = getattr(self.generator, "requests", ())
        try:
            return self.generator.generate(asked)
        finally:
            if hasattr(self.generator, "requests"):
                self.generator.requests = kept
