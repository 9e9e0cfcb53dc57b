"""Engines with one fault in their K for each batch size: ``--engine schedule_mutants:<name>``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from method_mutants import engine_with, with_options

from verispec.engines.protocol.generation import LoadOptions
from verispec.reference.proposers.protocol import Drafts, VerifiedStep
from verispec.reference.runners.cpu import CPURunner


class PauseForgets(CPURunner):
    """While K is 0 the drafter does not run, so that it never reads the tokens of the pause."""

    def _make_proposer(self, num_blocks: int) -> Any:
        proposer: Any = super()._make_proposer(num_blocks)
        propose = proposer.propose

        def paused(step: VerifiedStep) -> Drafts:
            return propose(step) if step.num_drafts else Drafts([[] for _ in step.query_lens])

        proposer.propose = paused
        return proposer


class EndsExclusive(CPURunner):
    """The last batch size of a range belongs to the next one."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        super().__init__(target, options)
        self.options = _OneMore(options)  # type: ignore[assignment]


class _OneMore:
    def __init__(self, options: LoadOptions) -> None:
        self._options = options

    def __getattr__(self, name: str) -> Any:
        return getattr(self._options, name)

    def num_drafts(self, batch_size: int) -> int:
        return self._options.num_drafts(batch_size + 1)


class KOfTheLargestBatch(CPURunner):
    """Every step has the K of a full batch."""

    def __init__(self, target: Path, options: LoadOptions) -> None:
        given = options.num_speculative_tokens_per_batch_size
        full = ((1, 1, options.num_drafts(options.max_num_seqs)),) if given else None
        super().__init__(target, replace(options, num_speculative_tokens_per_batch_size=full))


schedule_ignored = with_options(num_speculative_tokens_per_batch_size=lambda options: None)
pause_forgets = engine_with(PauseForgets)
ends_exclusive = engine_with(EndsExclusive)
k_of_the_largest_batch = engine_with(KOfTheLargestBatch)
