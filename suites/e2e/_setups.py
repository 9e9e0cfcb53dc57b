"""Set-ups of the cases, by the names in their ids, and their common requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from verispec import fixtures
from verispec.engines.protocol.generation import (
    GenerationRequest,
    GenerationResult,
    Generator,
    SpeculationMetrics,
    SpeculativeStep,
)
from verispec.engines.protocol.speculation import AUTO
from verispec.judge import Failure, Inconclusive, Kind, Mismatch, NotOffered
from verispec.suites.e2e._where import MemoryLayout

ARGMAX = "draft_model argmax k=3"
"""A draft model that proposes its most likely tokens for sampled requests too; others sample their tokens."""

DRAFTERS = {
    "draft_model": "draft",
    "draft_model argmax": "draft",
    "draft_model parallel": "draft_parallel",
    "draft_model tree": "draft",
    "eagle3": "eagle3",
    "eagle3 speculators": "eagle3_speculators",
    "mtp": "mtp",
}
"""Fixtures by drafting method, with how it draws or the checkpoint format where that is not the usual one."""

METHODS = ["none", "ngram k=3", "draft_model k=3", "eagle3 k=3"]
SPECULATIVE = METHODS[1:]
MODELS = METHODS[2:]
SUFFIX, PARALLEL, MTP = "suffix k=8", "draft_model parallel k=3", "mtp k=3"
FURTHER = [SUFFIX, PARALLEL, MTP]
"""Drafters that few engines have: they are tested where the drafter itself counts."""

TREE = "draft_model tree k=8"
FORKS = ((0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 1, 0), (1, 0, 0))
"""Paths of the nodes of `TREE`."""

DRAFTS = [
    "none",
    "ngram k=3",
    *(f"draft_model k={k}" for k in (1, 3, 8)),
    *(f"eagle3 k={k}" for k in (1, 3, 5)),
    "eagle3 speculators k=3",
    *FURTHER,
]

LIMIT = 112
"""`max_model_len` of the cramped layouts; prompts of 64 tokens and 40 more fit."""

MEMORY: dict[str, dict[str, Any]] = {
    "": {},
    "blocks of 32, chunks of 24": {
        "block_size": 32,
        "max_num_batched_tokens": 24,
        "max_num_seqs": 4,
        "max_model_len": LIMIT,
    },
    "preemption": {"block_size": 32, "num_blocks": 11, "max_num_seqs": 4, "max_model_len": LIMIT},
    "preemption, chunks of 24": {
        "block_size": 32,
        "num_blocks": 11,
        "max_num_batched_tokens": 24,
        "max_num_seqs": 4,
        "max_model_len": LIMIT,
    },
    "one sequence": {
        "block_size": 32,
        "num_blocks": 4,
        "max_num_batched_tokens": 24,
        "max_num_seqs": 2,
        "max_model_len": 96,
    },
    "budget of 10": {"block_size": 32, "max_num_batched_tokens": 10, "max_num_seqs": 4, "max_model_len": LIMIT},
    "budget of 10 for three": {
        "block_size": 32,
        "max_num_batched_tokens": 10,
        "max_num_seqs": 3,
        "max_model_len": LIMIT,
    },
    "chunks of 5": {"block_size": 32, "max_num_batched_tokens": 5, "max_num_seqs": 1, "max_model_len": LIMIT},
}
"""With preemption, 10 usable blocks of 32 tokens hold 320; four requests of 64 + 40 tokens come to need 16 blocks. In
chunks of 24 a resumed request reads its own output in pieces too: its third chunk ends eight tokens behind the prompt.
Three usable blocks of 32 are what one sequence of 96 tokens needs, without room for drafts past its end. A second one
is preempted while its prompt is read.

A budget of 10 tokens per step cuts the drafts of four requests, which want 4 tokens each with three drafts. Of three
requests it cuts those of the last one in every step; a fourth one would read its prompt in their place.

In chunks of 5 one token in five is the last one of a chunk.
"""

MANY = 224
"""`max_num_seqs` of cases that ask thousands of short requests of a small model: 14 times fewer steps than with the
default of 16. Drafts of all of them, a tree's eight nodes too, fit the default budget of 2,048 tokens."""

PARTS = 3
"""Calls that a large sample takes at most."""

CUT, CHUNKS = "budget of 10 for three", "chunks of 5"
LAYOUTS = ["blocks of 32, chunks of 24", "preemption"]
RESUMED = "preemption, chunks of 24"


class NotTold(NotOffered):
    """The engine does not report a value that a case compares; the option or parameter itself may well work.

    An engine need not report it, so that cases which all compare it are no gap in what was tested.
    """


class Load(Protocol):
    """Loads a generator: `draft` one of `DRAFTS`, `memory` of `MEMORY`; the fixtures where no folder is given.

    `more` are options of `LoadOptions` beyond those.
    """

    def __call__(
        self,
        draft: str,
        memory: str = "",
        target: Path | None = None,
        drafter: Path | None = None,
        sampler: str = "flat",
        **more: Any,
    ) -> Generator: ...


def options_of(draft: str, memory: str = "", drafter: Path | None = None) -> dict[str, Any]:
    """Return the `LoadOptions` of a drafter and a memory layout by their names."""
    name, _, k = draft.partition(" k=")
    options: dict[str, Any] = {"method": name.split()[0], **MEMORY[memory]}
    if k:
        options["num_speculative_tokens"] = k if k == AUTO else int(k)
    if draft == ARGMAX:
        options["draft_sample_method"] = "greedy"
    if name == "draft_model parallel":
        options["parallel_drafting"] = True
    if draft == TREE:
        options |= {"speculative_token_tree": FORKS, "draft_sample_method": "greedy"}
    if name in DRAFTERS:
        options["draft"] = drafter or fixtures.model(DRAFTERS[name])
    return options


def layout_of(memory: str) -> MemoryLayout:
    """Return the blocks, chunks and batches of a layout in `MEMORY`."""
    return MemoryLayout.of(MEMORY[memory])


def greedy(prompts: Sequence[Sequence[int]], length: int) -> list[GenerationRequest]:
    """Return requests for `length` greedy tokens that ignore the end-of-sequence token."""
    return [GenerationRequest(tuple(p), max_tokens=length, ignore_eos=True) for p in prompts]


def sampled_in_parts(
    generator: Generator,
    requests: Sequence[GenerationRequest],
    fits: Callable[[Sequence[GenerationResult], float], bool],
) -> list[GenerationResult]:
    """Return the results of the first requests, as many as a test of their distribution needs.

    Args:
        generator: the engine's.
        requests: the whole sample.
        fits: function of the results so far and their part of the sample; True if the rest may be left out, which may
            not fail (`verispec.judge.statistics.fits`).
    """
    size = -(-len(requests) // PARTS)
    results: list[GenerationResult] = []
    for start in range(0, len(requests), size):
        results += generator.generate(requests[start : start + size])
        if len(results) < len(requests) and fits(results, len(results) / len(requests)):
            break
    return results


def counted(
    generator: Generator, requests: Sequence[GenerationRequest]
) -> tuple[list[GenerationResult], SpeculationMetrics]:
    """Return the results and their counts.

    Raises:
        NotTold: the engine has no counters.
    """
    generator.generate([replace(requests[0], max_tokens=4)])
    before = generator.metrics()
    if not before.accepted_per_position:
        raise NotTold("the engine does not count drafts")
    results = generator.generate(requests)
    return results, generator.metrics().since(before)


def stepped(generator: Generator, requests: Sequence[GenerationRequest]) -> Sequence[GenerationResult]:
    """Return results with their steps, after a short request that shows if the engine reports steps.

    Raises:
        NotTold: the engine does not report steps.
    """
    with_steps(generator.generate([replace(requests[0], max_tokens=4)]))
    return with_steps(generator.generate(requests))


def with_steps(results: Sequence[GenerationResult]) -> Sequence[GenerationResult]:
    """Return the results.

    Raises:
        NotTold: the engine does not report the steps of all of them.
    """
    if not all(result.steps for result in results):
        raise NotTold("the engine does not tell what it drafted and accepted in each step")
    return results


def first_verification(result: GenerationResult, depth: int = 0) -> SpeculativeStep:
    """Return the verification of the drafts after the first token.

    Args:
        result: result of a request with room for all drafts.
        depth: drafts of which the case knows the law; 0 for any number.

    Raises:
        Inconclusive: the first token was drafted too, or the engine chose fewer drafts than `depth`, so that the
            outcomes have other probabilities.
        Mismatch: there are more drafts than `depth`.
    """
    if result.steps[0].drafted:
        raise Inconclusive("the engine drafts the first token too; this case knows the law of the drafts after it")
    step = result.steps[1]
    if step.drafted < depth:
        raise Inconclusive(
            f"the engine chose {step.drafted} drafts for the first verification; this case knows the law of {depth}"
        )
    require(step.drafted <= (depth or step.drafted), f"the first verification has {step.drafted} drafts of {depth}")
    return step


def require(good: bool, message: str, kind: Kind = Kind.VALUE) -> None:
    """Raise `Mismatch` with `message` unless `good`."""
    if not good:
        raise Mismatch(Failure(kind, message))


def require_accepted(metrics: SpeculationMetrics) -> None:
    """Raise Inconclusive if every draft was rejected: the seeds of the drafts then decided nothing."""
    if metrics.num_drafts and not metrics.num_accepted_tokens:
        raise Inconclusive(f"none of {metrics.num_draft_tokens} drafts was accepted, so that no seed of theirs counted")


def require_accepted_drafts(results: Sequence[GenerationResult]) -> None:
    """Raise Inconclusive if drafts were verified and none was accepted; an engine may not report its steps."""
    steps = [step for result in results for step in result.steps]
    if any(step.drafted for step in steps) and not any(step.accepted > 0 for step in steps):
        raise Inconclusive("no draft was accepted")
