"""Greedy generation: token by token the target's own text, whatever is drafted (contract GEN)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verispec import fixtures
from verispec.cases import case
from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import GenerationRequest, GenerationResult
from verispec.judge import Inconclusive, Mismatch
from verispec.suites.e2e._again import Again
from verispec.suites.e2e._configured import save_configured
from verispec.suites.e2e._drafts import (
    judge_by_any,
    judge_chains,
    judge_of,
    judge_texts,
)
from verispec.suites.e2e._greedy_checks import (
    LENGTH,
    PROMPTS,
    TARGET,
    check_drafts,
    check_equal,
    check_head,
    check_own,
    further,
    longer,
    own_texts,
)
from verispec.suites.e2e._head import save_own_head
from verispec.suites.e2e._reference_model import (
    reference_chain,
    reference_head,
    reference_model,
)
from verispec.suites.e2e._setups import (
    CHUNKS,
    CUT,
    DRAFTERS,
    DRAFTS,
    FURTHER,
    LAYOUTS,
    METHODS,
    MODELS,
    MTP,
    PARALLEL,
    RESUMED,
    SPECULATIVE,
    TREE,
    Load,
    counted,
    greedy,
    layout_of,
    require,
    stepped,
    with_steps,
)
from verispec.suites.e2e._texts import check_texts

REACH = "temperature=0"


@pytest.fixture(scope="module")
def own_head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a head with an embedding of its own, and its residual behind its norm."""
    return save_own_head(tmp_path_factory.mktemp("own head"))


@case("GEN-1", draft=DRAFTS, reach=REACH)
def test_every_token_is_the_targets(load: Load, prompts: Any, draft: str) -> None:
    chosen = prompts[:PROMPTS]
    asked = greedy(chosen, LENGTH)
    generator = load(draft)
    check_own(asked, generator.generate(asked), "prompt {}", generator)


SIZES = (
    1, 2, 3, 5, 7, 8, 9, 12, 13, 15, 16, 17, 24, 31, 32, 33,
    47, 48, 49, 63, 64, 65, 95, 96, 97, 127, 128, 129, 193, 257,
)  # fmt: skip
"""Lengths of prompts around those at which kernels begin another tile, chunk or block."""


@case("GEN-1", draft="none", check="lengths of prompts", reach=REACH)
def test_a_prompt_of_any_length_is_read(load: Load, prompts: Any) -> None:
    """Prompts of `SIZES`, each alone, so that a forward pass has as many rows; two tokens of each are checked."""
    text = [token for part in prompts for token in part]
    generator, found = load("none"), {}
    for n, size in enumerate(SIZES):
        prompt = tuple(text[7 * n :][:size])
        [result] = generator.generate(greedy([prompt], 2))
        try:
            reference_model(TARGET).judge_greedy(prompt, result.token_ids, f"a prompt of {size} tokens")
        except Mismatch as mismatch:
            found[size] = mismatch.failure
    if found:
        first, right = min(found), [size for size in SIZES if size not in found]
        told = f"wrong are prompts of {', '.join(map(str, found))} tokens, of {len(SIZES)} lengths"
        if right and max(right) < first:
            told = f"all prompts of up to {max(right)} tokens are right, all of {first} and more are wrong"
        raise Mismatch(replace(found[first], message=f"{told}: {found[first].message}"))


@case("GEN-1", draft="draft_model k=24", drafter="target", reach=f"{REACH}, and num_speculative_tokens above 16")
def test_chains_over_several_blocks(load: Load, prompts: Any) -> None:
    """The target drafts for itself, so that a step emits up to 25 tokens, more than a block of 16 holds."""
    chosen = [prompt[: 9 + 5 * n] for n, prompt in enumerate(prompts[:4])]
    generator, asked = load("draft_model k=24", drafter=TARGET), greedy(chosen, 2 * LENGTH)
    check_own(asked, generator.generate(asked), "prompt {}", generator)


@case("GEN-1", draft=[*METHODS, TREE], length="almost that of the model", reach=f"{REACH}, and long prompts")
def test_a_text_of_a_thousand_tokens(load: Load, prompts: Any, draft: str) -> None:
    """A text grows from 900 to 1,000 tokens of the model's 1,024: 63 blocks of 16."""
    prompt = tuple([token for part in prompts for token in part][:900])
    [result] = load(draft).generate(greedy([prompt], 100))
    reference_model(TARGET).judge_greedy(prompt, result.token_ids, "a prompt of 900 tokens")


@case("GEN-2", draft=[name for name in DRAFTS if name != "none"], reach=REACH)
def test_the_text_is_that_without_speculation(load: Load, prompts: Any, draft: str) -> None:
    """Judged against the float64 target's own greedy text, so that the engine is not started twice."""
    chosen = prompts[PROMPTS : PROMPTS + 4]
    check_equal(load(draft), chosen, "prompt {}")


@case("GEN-3", draft=METHODS, others=["none", "2", "20"], reach="requests come and go")
def test_the_batch_does_not_matter(load: Load, prompts: Any, draft: str, others: str) -> None:
    """Two prompts among others that end earlier, shorter ones and longer ones in turn.

    The twenty do not fit into one batch of 16.
    """
    count = 0 if others == "none" else int(others)
    around = [
        GenerationRequest((p * 3)[: 5 + 7 * n % 50 + 90 * (n % 2)], max_tokens=3 + 5 * n % 30, ignore_eos=True)
        for n, p in enumerate(prompts[16 : 16 + count])
    ]
    for n, own in enumerate(own_texts(prompts[:2])):
        among = load(draft).generate([*around, *greedy([prompts[n]], LENGTH)])[-1].token_ids
        what = f"prompt {n} among {count} others"
        reference_model(TARGET).judge_equal(prompts[n], own, among, what)


@case("GEN-3", draft=METHODS, others="sampled", reach="greedy and sampled requests in one batch")
def test_sampled_neighbours_do_not_matter(load: Load, prompts: Any, draft: str) -> None:
    """Greedy requests at every second place of a batch; the others are sampled, each in its own way.

    They are shorter and longer in turn.
    """
    styles: list[dict[str, Any]] = [{}, {"top_k": 20}, {"top_p": 0.9}]
    asked = []
    for n, request in enumerate(greedy(prompts[:4], LENGTH)):
        sampled = {"temperature": 0.7 + 0.1 * n, "seed": n, **styles[n % 3]}
        around = (prompts[8 + n] * 2)[: 90 if n % 2 else 30]
        asked += [GenerationRequest(around, max_tokens=20, ignore_eos=True, **sampled), request]
    own, model, generator = own_texts(prompts[:4]), reference_model(TARGET), load(draft)

    def check(n: int, result: GenerationResult) -> None:
        model.judge_equal(prompts[n], own[n], result.token_ids, f"prompt {n} among sampled ones")

    check_texts(asked[1::2], generator.generate(asked)[1::2], check, again=Again(generator, asked[1::2]))


@case("GEN-4", memory=LAYOUTS, draft=[*METHODS, *FURTHER], reach="the engine's own settings")
def test_memory_layout_does_not_matter(load: Load, prompts: Any, memory: str, draft: str) -> None:
    chosen = prompts[:4]
    check_equal(load(draft, memory), chosen, f"prompt {{}} with {memory}", memory)


@case(
    "GEN-4",
    memory=RESUMED,
    draft=METHODS[:3],
    reach="chunked prefill, and more requests than the KV cache holds",
)
def test_resumed_requests_may_be_read_in_chunks(load: Load, prompts: Any, draft: str) -> None:
    """A chunk of a resumed request that ends behind its prompt is not its last one, and samples no token.

    The youngest requests, which are preempted first, have the shortest prompts: early chunks reach their output.
    """
    chosen = [prompt[: 60 - 10 * n] for n, prompt in enumerate(prompts[:6])]
    check_equal(load(draft, RESUMED), chosen, f"prompt {{}} with {RESUMED}", RESUMED)


@case("GEN-4", memory="budget of 10", draft=SPECULATIVE, reach="more requests than the token budget has room for")
def test_a_token_budget_may_cut_drafts(load: Load, prompts: Any, draft: str) -> None:
    """Short prompts, so that most steps have drafts of all four requests."""
    chosen = [prompt[:10] for prompt in prompts[:4]]
    check_equal(load(draft, "budget of 10"), chosen, "prompt {} with a budget of 10 tokens", "budget of 10")


@case("GEN-4", target="tiny", memory="budget of 1", draft="none", reach="max_num_batched_tokens=1")
def test_a_step_may_have_one_token(load: Load, tiny: dict[str, Path]) -> None:
    generator, prompt = load("none", target=tiny["target"], max_num_batched_tokens=1, max_num_seqs=1), (1, 5, 2)
    [result] = generator.generate(greedy([prompt], 4))
    require(len(result.token_ids) == 4, f"{len(result.token_ids)} tokens of 4")
    reference_model(tiny["target"]).judge_greedy(prompt, result.token_ids, "a budget of one token per step")


@case("GEN-13", draft=[*SPECULATIVE, *FURTHER], reach="temperature=0, drafts that are rejected")
def test_a_rejection_leaves_nothing_behind(load: Load, prompts: Any, draft: str) -> None:
    """Prompts of a repeated phrase: drafts come, are rejected, are accepted, and with n-grams come not at all."""
    chosen = [(*p[:9], *p[:9], *p[:4]) for p in prompts[20:28]]
    generator, asked = load(draft), greedy(chosen, LENGTH)
    results, metrics = counted(generator, asked)
    check_own(asked, results, "repeated phrase {}", generator)
    rejected = metrics.num_draft_tokens - metrics.num_accepted_tokens
    if not rejected or not metrics.num_accepted_tokens:
        raise Inconclusive(f"{metrics.num_accepted_tokens} drafts were accepted and {rejected} rejected")
    steps = [step for result in results for step in result.steps[1:-1]]
    if steps and draft.startswith("ngram") and all(step.drafted for step in steps):
        raise Inconclusive("every step had drafts; steps with and without them must alternate")


@case("GEN-14", draft=["draft_model k=3", "draft_model k=8", "eagle3 k=3"], reach=REACH)
def test_drafts_are_the_drafters_own(load: Load, prompts: Any, tmp_path: Path, draft: str) -> None:
    """A draft model's whole chains; of an Eagle3 head the first draft, since the next ones read its own states.

    Prompts have 8 to 64 tokens, so that a batch mixes lengths. Each step accepts exactly the drafts that the float64
    drafter, fed with the emitted text, agrees to;
    where it does not, its two logits must be within its own rounding.
    """
    if draft.startswith("eagle3"):
        check_head(load(draft), prompts, fixtures.model("eagle3"), tmp_path)
    else:
        check_drafts(load(draft), longer(prompts), *judge_of(draft, TARGET))


@case("GEN-14", draft="draft_model k=3", dtype="float64", reach=REACH)
def test_drafts_in_another_dtype_are_the_drafters_own(load: Load, prompts: Any) -> None:
    """An engine may run its models by other code in another dtype, where drafts may miss the keys of those before.

    Requests run in pairs of one length, so that keys of the longest sequence of a batch are none to spare.
    """
    chosen = [prompt[:24] for prompt in prompts[:6]]
    check_drafts(load("draft_model k=3", dtype="float64", max_num_seqs=2), chosen, *judge_of("draft_model k=3", TARGET))


@case("GEN-14", draft="eagle3 speculators k=3", reach=REACH)
def test_a_heads_own_embedding_and_layers_are_read(load: Load, prompts: Any, own_head: Path, tmp_path: Path) -> None:
    """The head has an embedding and auxiliary layers of its own, and takes its residual behind its norm.

    That place of the residual is speculators' default.
    """
    check_head(load("eagle3 speculators k=3", drafter=own_head), prompts, own_head, tmp_path)


@case("GEN-14", draft="eagle3 speculators k=3", check="residual before the norm", reach=REACH)
def test_a_head_takes_its_residual_where_its_configuration_says(load: Load, prompts: Any, tmp_path: Path) -> None:
    """A field of the configuration that is false counts too, although vLLM takes an absent one for true."""
    folder = fixtures.model(DRAFTERS["eagle3 speculators"])
    check_head(load("eagle3 speculators k=3"), prompts, folder, tmp_path)


@case(
    "GEN-14",
    draft="eagle3 k=3",
    configuration=["rotary base", "epsilon of norms", "large epsilon of norms", "size of heads"],
    reach="a head whose configuration differs from its target's",
)
def test_a_head_has_a_configuration_of_its_own(
    load: Load, prompts: Any, tmp_path_factory: pytest.TempPathFactory, configuration: str
) -> None:
    """The same weights under another field, where an engine may read the target's."""
    head = save_configured(tmp_path_factory.mktemp("head") / "own", DRAFTERS["eagle3"], configuration)
    unread = {f"its own {configuration} did not count": reference_head(fixtures.model(DRAFTERS["eagle3"]), TARGET)}
    generator, more = load("eagle3 k=3", drafter=head), further(prompts)
    check_drafts(generator, longer(prompts)[1::2], reference_head(head, TARGET), 1, more=more, mistakes=unread)


@case(
    "GEN-14",
    draft="eagle3 k=3",
    configuration="layers in eagle_config",
    reach="a head that names its layers in eagle_config",
)
def test_a_heads_layers_may_be_in_its_eagle_config(
    load: Load, prompts: Any, tmp_path_factory: pytest.TempPathFactory, configuration: str = "layers in eagle_config"
) -> None:
    """An engine may read other layers where it finds none at the usual place.

    Layers there are those whose inputs, or whose outputs, the head reads: engines differ about it.
    """
    folder = tmp_path_factory.mktemp("head")
    head, other = (
        save_configured(folder / name, DRAFTERS["eagle3"], name) for name in (configuration, "layers by their outputs")
    )
    chosen = longer(prompts)[1::2]
    results = stepped(load("eagle3 k=3", drafter=head), greedy(chosen, LENGTH))
    judge_by_any(
        [(reference_head(folder, TARGET), 1) for folder in (head, other)],
        list(zip(chosen, results, strict=True)),
        target=TARGET,
    )


@case(
    "GEN-14",
    draft="draft_model k=3",
    configuration=["rotary base", "scaled positions", "epsilon of norms", "size of heads", "sliding window"],
    reach="a draft model whose configuration differs from its target's",
)
def test_a_draft_model_has_a_configuration_of_its_own(
    load: Load, prompts: Any, tmp_path_factory: pytest.TempPathFactory, configuration: str
) -> None:
    """The same weights under another field. A window of the draft model alone bounds what it alone sees."""
    model = save_configured(tmp_path_factory.mktemp("draft model") / "own", DRAFTERS["draft_model"], configuration)
    unread = {f"its own {configuration} did not count": reference_model(fixtures.model(DRAFTERS["draft_model"]))}
    generator, more = load("draft_model k=3", drafter=model), further(prompts)
    check_drafts(generator, longer(prompts)[1::2], reference_model(model), 3, more=more, mistakes=unread)


@case(
    "GEN-14",
    draft=MODELS,
    memory=[*LAYOUTS, RESUMED],
    reach="chunked prefill, or more requests than the KV cache holds",
)
def test_drafts_are_the_drafters_own_in_any_layout(load: Load, prompts: Any, draft: str, memory: str) -> None:
    """Faults in the drafter's keys and values at the end of a chunk or a block leave the text as it is."""
    check_drafts(load(draft, memory), prompts[:PROMPTS], *judge_of(draft, TARGET), memory, further(prompts))


@case("GEN-14", draft=MODELS, memory=CHUNKS, reach="a prompt that is read in chunks")
def test_a_drafter_reads_the_token_behind_a_chunk(load: Load, prompts: Any, draft: str) -> None:
    """A head reads each position with the next token, which the prompt has and the target has not sampled yet."""
    chosen = [prompt[: 21 + n] for n, prompt in enumerate(prompts[:PROMPTS])]
    check_drafts(load(draft, CHUNKS), chosen, *judge_of(draft, TARGET), CHUNKS, further(prompts))


@case("GEN-14", draft=MODELS, memory=CUT, reach="steps without room for the drafts of all requests")
def test_the_first_drafts_remain_in_a_small_step(load: Load, prompts: Any, draft: str) -> None:
    judge, depth = judge_of(draft, TARGET)
    chosen = [prompt[: 6 + n] for n, prompt in enumerate(prompts[:PROMPTS])]
    generator, asked = load(draft, CUT), greedy(chosen, LENGTH)
    results = stepped(generator, asked)
    again = Again(generator, asked, more=further(prompts))
    judge_texts(judge, list(zip(chosen, results, strict=True)), depth, layout_of(CUT), again, TARGET)
    if not any(0 < step.drafted < 3 for result in results for step in result.steps[:-2]):
        raise Inconclusive("no step cut the drafts of a request")


@case(
    "GEN-14",
    draft=["draft_model k=auto", "eagle3 k=auto"],
    check="preemption",
    reach="num_speculative_tokens='auto', and more requests than the KV cache holds",
)
def test_drafts_of_a_chosen_k_are_the_drafters_own(load: Load, prompts: Any, draft: str) -> None:
    """A drafter that reads a request's tokens only before it drafts reads all of them again after a preemption.

    A head's requests share the memory of one sequence, so that some are preempted while their prompt is read.
    """
    judge, depth = judge_of(draft, TARGET)
    is_head = draft.startswith("eagle3")
    chosen = [prompt[: 40 + 20 * (n % 2)] if is_head else prompt for n, prompt in enumerate(prompts[:4])]
    memory = "one sequence" if is_head else "preemption"
    generator, asked = load(draft, memory), greedy(chosen, LENGTH)
    results = stepped(generator, asked)
    if not any(result.preemptions for result in results):
        raise UnsupportedCall("the engine does not report preemptions")
    texts = list(zip(chosen, results, strict=True))
    if not judge_texts(judge, texts, depth, layout_of(memory), Again(generator, asked), TARGET):
        raise Inconclusive("the engine chose no draft")


@case("GEN-14", draft="draft_model k=8", edge="length limit", reach="a text as long as allowed")
def test_drafts_up_to_the_length_limit_are_the_drafters_own(load: Load, prompts: Any) -> None:
    """Chains go past the last place of a text. The drafts of the steps after it read the same keys as before.

    Texts have 12 tokens in all, so that no key is one of many. A step that accepts nothing decides nothing: vLLM fills
    steps without room for all drafts with zeros.
    """
    judge, depth = judge_of("draft_model k=8", TARGET)
    chosen = [prompt[: 10 - n % 8] for n, prompt in enumerate(prompts[:24])]
    results = stepped(load("draft_model k=8", max_model_len=12), greedy(chosen, 12))
    texts = []
    for prompt, result in zip(chosen, results, strict=True):
        steps = tuple(step if step.accepted else replace(step, drafted=0) for step in result.steps)
        texts.append((prompt, replace(result, steps=steps)))
    if not judge_texts(judge, texts, depth):
        raise Inconclusive("no step accepted a draft")


@case("GEN-14", draft="eagle3 k=5", check="chains", reach=REACH)
def test_later_drafts_read_the_heads_own_states(load: Load, prompts: Any) -> None:
    """Whole chains of a head: each draft after the first reads the head's state of the draft before it."""
    chosen = [p[: 8 * (n + 1)] for n, p in enumerate(prompts[:PROMPTS])]
    generator, asked = load("eagle3 k=5"), greedy(chosen, LENGTH)
    results = stepped(generator, asked)
    long = sum(step.accepted > 2 for result in results for step in result.steps)
    texts = list(zip(chosen, results, strict=True))
    judge_chains("eagle3 k=5", TARGET, texts, again=Again(generator, asked, more=further(prompts)))
    if not long:
        raise Inconclusive("no step accepted three drafts, so that no later one was checked")


@case("GEN-14", draft=["draft_model k=3", "eagle3 k=5"], requests=20, reach="more than eight requests in a batch")
def test_drafts_of_many_requests_are_the_drafters_own(load: Load, prompts: Any, draft: str) -> None:
    """Whole chains of twenty requests, sixteen at a time.

    Half of the prompts have 30 tokens: the third draft after them is the first one of a block of 16 or 32.
    """
    name, _, k = draft.partition(" k=")
    folder = fixtures.model(DRAFTERS[name])
    judge = reference_chain(folder, TARGET, int(k)) if name == "eagle3" else reference_model(folder)
    chosen = [prompt[: 30 if n % 2 else 5 + n] for n, prompt in enumerate(prompts[:20])]
    generator, asked = load(draft), greedy(chosen, 16)
    texts = list(zip(chosen, stepped(generator, asked), strict=True))
    judged = judge_texts(judge, texts, int(k), again=Again(generator, asked), target=TARGET)
    require(judged > 0, "no step had a draft")


@case("GEN-15", memory="preemption", draft=[*MODELS, PARALLEL, MTP], reach="more requests than the KV cache holds")
def test_a_resumed_request_drafts_anew(load: Load, prompts: Any, draft: str) -> None:
    """A model drafts in every step but the first one after a prefill; a resumed request has one such step more."""
    results = load(draft, "preemption").generate(greedy(prompts[:6], LENGTH))
    if not any(result.preemptions for result in results):
        raise UnsupportedCall("the engine does not report preemptions")
    for n, result in enumerate(with_steps(results)):
        plain = sum(step.drafted == 0 for step in result.steps)
        require(
            plain >= 1 + result.preemptions,
            f"prompt {n} was preempted {result.preemptions} times and had {plain} steps without drafts: "
            "drafts from before a preemption were verified after it",
        )
