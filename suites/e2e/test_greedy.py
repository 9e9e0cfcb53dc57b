"""Greedy generation: token by token the target's own text, whatever is drafted (contract GEN)."""

from __future__ import annotations

from typing import Any

from verispec import fixtures
from verispec.cases import case
from verispec.engines.generation import GenerationRequest
from verispec.suites.e2e._teacher import teacher
from verispec.suites.e2e.conftest import Load

REACH = "temperature=0"
LENGTH = 40
PROMPTS = 8
DRAFTING: dict[str, dict[str, Any]] = {
    "none": {"method": "none"},
    "ngram k=3": {"method": "ngram", "num_speculative_tokens": 3},
    "draft_model k=1": {"method": "draft_model", "num_speculative_tokens": 1},
    "draft_model k=3": {"method": "draft_model", "num_speculative_tokens": 3},
    "draft_model k=8": {"method": "draft_model", "num_speculative_tokens": 8},
    "eagle3 k=1": {"method": "eagle3", "num_speculative_tokens": 1},
    "eagle3 k=3": {"method": "eagle3", "num_speculative_tokens": 3},
    "eagle3 k=5": {"method": "eagle3", "num_speculative_tokens": 5},
}
SPECULATIVE = [name for name in DRAFTING if name != "none"]


def requests(prompts: Any, length: int = LENGTH) -> list[GenerationRequest]:
    return [GenerationRequest(tuple(p), max_tokens=length, ignore_eos=True) for p in prompts]


@case("GEN-1", draft=list(DRAFTING), reach=REACH)
def test_every_token_is_the_targets(load: Load, prompts: Any, draft: str) -> None:
    chosen = prompts[:PROMPTS]
    judge = teacher(fixtures.model("target"))
    for n, result in enumerate(load(**DRAFTING[draft]).generate(requests(chosen))):
        judge.judge_greedy(chosen[n], result.token_ids, f"prompt {n}")


@case("GEN-1", checkpoint="speculators", reach="Eagle3 heads in the speculators format")
def test_a_head_in_the_speculators_format(load: Load, prompts: Any) -> None:
    generator = load(method="eagle3", draft=fixtures.model("eagle3_speculators"), num_speculative_tokens=3)
    judge = teacher(fixtures.model("target"))
    for n, result in enumerate(generator.generate(requests(prompts[:PROMPTS]))):
        judge.judge_greedy(prompts[n], result.token_ids, f"prompt {n}")


@case("GEN-2", draft=SPECULATIVE, reach=REACH)
def test_the_text_is_that_without_speculation(load: Load, prompts: Any, draft: str) -> None:
    """Judged against the float64 target's own greedy text, so that the engine is not started twice."""
    chosen = prompts[PROMPTS : PROMPTS + 4]
    judge = teacher(fixtures.model("target"))
    for n, result in enumerate(load(**DRAFTING[draft]).generate(requests(chosen))):
        judge.judge_equal(chosen[n], greedy_text(chosen[n]), result.token_ids, f"prompt {n}")


def greedy_text(prompt: Any) -> list[int]:
    return teacher(fixtures.model("target")).greedy(tuple(prompt), LENGTH)


@case("GEN-3", batch=[1, 3, 16], draft=["none", "draft_model k=3", "eagle3 k=3"], reach="requests come and go")
def test_the_batch_does_not_matter(load: Load, prompts: Any, batch: int, draft: str) -> None:
    """The first two prompts again, among `batch` others of other lengths."""
    generator = load(**DRAFTING[draft])
    judge = teacher(fixtures.model("target"))
    others = [p[: 5 + 7 * n % 50] for n, p in enumerate(prompts[16 : 16 + batch - 1])]
    for n in (0, 1):
        alone = greedy_text(prompts[n])
        among = generator.generate(requests([*others, prompts[n]]))[-1].token_ids
        judge.judge_equal(prompts[n], alone, among, f"prompt {n} among {batch - 1} others")


VARIANTS: dict[str, dict[str, Any]] = {
    "block size 8": {"block_size": 8},
    "block size 64": {"block_size": 64},
    "chunks of 16": {"max_num_batched_tokens": 16},
    "preemption": {"num_blocks": 22, "max_num_seqs": 8},
}
"""22 blocks of 16 tokens hold 352 tokens; four requests of 64 + 40 tokens need 28."""


@case(
    "GEN-4", variant=list(VARIANTS), draft=["none", "draft_model k=3", "eagle3 k=3"], reach="the engine's own settings"
)
def test_memory_layout_does_not_matter(load: Load, prompts: Any, variant: str, draft: str) -> None:
    chosen = prompts[:4]
    judge = teacher(fixtures.model("target"))
    generator = load(**DRAFTING[draft], **VARIANTS[variant])
    for n, result in enumerate(generator.generate(requests(chosen))):
        judge.judge_equal(chosen[n], greedy_text(chosen[n]), result.token_ids, f"prompt {n} with {variant}")
