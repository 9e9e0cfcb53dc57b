"""Steps of end-to-end samplers whose requests have logits processors, and their exact tokens in float64."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from verispec.cases.distribution import limited
from verispec.cases.orders import in_order, mistaken, repetitions, steps_of
from verispec.cases.request_parameters import processed
from verispec.cases.sampling import random_sampler_batch, rows_of
from verispec.engines.protocol.generation import GenerationRequest
from verispec.engines.protocol.sampling import RequestContext, SamplerBatch

Array = np.ndarray[Any, Any]

COUNTS = (2, 3, 1, 0, 4, 5, 3, 2)
"""Draft tokens per request."""

PENALTIES: dict[str, dict[str, Any]] = {
    "presence penalty": {"presence_penalty": 1.5},
    "negative presence penalty": {"presence_penalty": -1.2},
    "frequency penalty": {"frequency_penalty": 1.6},
    "frequency reward": {"frequency_penalty": -1.1},
    "repetition penalty": {"repetition_penalty": 1.7},
    "repetition reward": {"repetition_penalty": 0.6},
    "penalties": {"presence_penalty": 1.2, "frequency_penalty": 0.8, "repetition_penalty": 1.45},
}
"""16 bits hold none of these numbers exactly."""
LIMITS: dict[str, dict[str, float]] = {
    "min-p": {"min_p": 0.25},
    "penalties and limits": {"top_k": 4, "top_p": 0.8},
    "everything": {"top_k": 3, "top_p": 0.9},
    "min-p and top-p": {"min_p": 0.15, "top_p": 0.8},
    "all limits": {"min_p": 0.15, "top_k": 8, "top_p": 0.8},
}
"""Limits of the batch that belong to a parameter; other requests of the batch have none."""


AND = " + "
"""Joins the names of parameters that a request has together."""
MASKS = ("allowed ids", "bad words", "min tokens", "grammar")
"""Parameters that forbid tokens."""
FAR = 60.0
"""Subtracted from all logits of some requests, which changes no distribution: a mask must lie below any logit."""


@dataclass(frozen=True)
class Step:
    """A batch with the contexts of its requests.

    Attributes:
        batch: the step.
        contexts: one per request.
        special: requests that have parameters.
        forgets: rows that count no drafts as output, which is wrong: "all", "drafts", "bonus" or none.
        ignores: rows whose parameters are ignored, likewise.
        words: part of a bad word that counts where it is wrong: "last" for its last two tokens, "one" for words of
            one token alone, "any" for its last token whatever stands before it. "short" is the end of a word that is
            longer than the text.
        counts: tokens that count as output where it is wrong: "last" for the last one alone, "drafts" for drafts
            alone. In presence and frequency penalties "prompt" is those of the prompt too, "ids" all but id 0.
        misread: mistake of `misread` in words, of requests that have its parameters.
        order: wrong order of `mistaken` in words, of requests that have its parameters.
        repeats: mistake of `repetitions` in words, of requests that have a repetition penalty.
    """

    batch: SamplerBatch
    contexts: list[RequestContext]
    special: tuple[int, ...]
    forgets: str = ""
    ignores: str = ""
    words: str = ""
    counts: str = ""
    misread: str = ""
    order: str = ""
    repeats: str = ""

    def row(self, b: int, j: int, processors: bool = True) -> Array:
        """Return row j of request b [V] in float64, as processors leave it or as the model gave it."""
        logits: Array = self.batch.logits[rows_of(self.batch, b)][j].double().numpy()
        drafts = self.batch.draft_token_ids[b]
        rows = ("all", "drafts" if j < len(drafts) else "bonus")
        output = [] if self.forgets in rows else drafts[:j]
        is_processed = processors and self.ignores not in rows
        if not is_processed:
            return logits
        context = with_words(self.contexts[b], self.words, len(self.contexts[b].output_token_ids) + len(output))
        context = dict(misread(context)).get(self.misread, context)
        order = dict(mistaken(steps_of(context.params))).get(self.order) if self.order else None
        if order is not None:
            text = [*context.output_token_ids, *output]
            return in_order(masked(logits, context, j), context.params, text, context.stop_token_ids, order)
        if self.repeats:
            text = [*context.output_token_ids, *output]
            repeats = repetitions(context.params, text)[self.repeats]
            return processed(masked(logits, context, j), context.params, text, context.stop_token_ids, repeats)
        row = processed_row(logits, *counted(context, output, self.counts), j)
        if self.counts == "ids":
            row[0] += of_first_id(context, output)
        return row - of_prompt(context, output, len(row)) if self.counts == "prompt" else row

    def law(self, b: int, j: int) -> Array:
        """Return the distribution [V] of a sampled token at row j of request b."""
        top_k = 0 if self.batch.top_k is None else int(self.batch.top_k[b])
        top_p, min_p = (
            none if values is None else float(values[b])
            for values, none in ((self.batch.top_p, 1.0), (self.batch.min_p, 0.0))
        )
        return limited(self.row(b, j), float(self.batch.temperature[b]), top_k, top_p, min_p)


def of_prompt(context: RequestContext, drafts: Sequence[int], vocab: int) -> Array:
    """Return the further penalties [V] by presence and frequency if the prompt counts as output too."""
    params, output, more = context.params, {*context.output_token_ids, *drafts}, np.zeros(vocab)
    for token, count in Counter(params.prompt_token_ids).items():
        more[token] = params.frequency_penalty * count + (0.0 if token in output else params.presence_penalty)
    return more


def of_first_id(context: RequestContext, drafts: Sequence[int]) -> float:
    """Return the presence and frequency penalties of token 0."""
    count = [*context.output_token_ids, *drafts].count(0)
    return context.params.frequency_penalty * count + (context.params.presence_penalty if count else 0.0)


def with_words(context: RequestContext, words: str, tokens: int) -> RequestContext:
    """Return `context` with bad words as a sampler reads them that is wrong in the way of `Step.words`.

    `tokens` is the length of the text before the row.
    """
    own = context.params.bad_words
    if not words or not own:
        return context
    lengths = {"last": 2, "any": 1, "short": max(tokens, 1) + 1}
    kept = tuple(word[-lengths[words] :] if words in lengths else word for word in own)
    if words == "one":
        kept = tuple(word for word in own if len(word) == 1)
    return replace(context, params=replace(context.params, bad_words=kept))


def misread(context: RequestContext) -> Iterator[tuple[str, RequestContext]]:
    """Yield a context with parameters as a sampler reads them wrongly, after the words that say so."""
    params, stops, rows = context.params, tuple(context.stop_token_ids), context.allowed_rows
    if params.logit_bias:
        whole = {token: float(int(bias)) for token, bias in params.logit_bias.items()}
        yield (
            "the logit bias counts by its whole part alone",
            replace(context, params=replace(params, logit_bias=whole)),
        )
    if len(stops) > 1:
        yield "min_tokens forbids the first of several stop tokens alone", replace(context, stop_token_ids=stops[:1])
        yield "min_tokens forbids the last of several stop tokens alone", replace(context, stop_token_ids=stops[-1:])
    if rows is not None and rows.shape[1] % WORD:
        open_end = rows.clone()
        open_end[:, rows.shape[1] // WORD * WORD :] = True
        yield (
            f"a grammar forbids no token past the last whole word of {WORD} bits",
            replace(context, allowed_rows=open_end),
        )


def counted(context: RequestContext, drafts: Sequence[int], counts: str) -> tuple[RequestContext, Sequence[int]]:
    """Return `context` and drafts with the tokens that count as output in the way of `Step.counts`."""
    output = [*context.output_token_ids, *drafts]
    if counts == "last" and output:
        return replace(context, output_token_ids=[]), output[-1:]
    return (replace(context, output_token_ids=[]), drafts) if counts == "drafts" else (context, drafts)


def processed_row(logits: Array, context: RequestContext, drafts: Sequence[int], j: int) -> Array:
    """Return row j after its grammar and its processors; the drafts before it count as output."""
    row = masked(logits, context, j)
    return processed(row, context.params, [*context.output_token_ids, *drafts], context.stop_token_ids)


def masked(logits: Array, context: RequestContext, j: int) -> Array:
    """Return a copy of row j in which a grammar's rows forbid tokens."""
    row = np.array(logits, dtype=np.float64)
    if context.allowed_rows is not None:
        row[~context.allowed_rows[j].numpy()] = -np.inf
    return row


WORD = 32
"""Bits of a word of a grammar's mask, as engines pack it."""
GRAMMAR_VOCAB = 45
"""A vocabulary whose mask ends inside of a word."""
LONG = 700
"""Tokens of a long output, of which the commonest has about half: counts of 8 bits hold neither."""
LONG_VOCAB = 256
"""A vocabulary that a long prompt does not use up."""


def long_history(rng: np.random.Generator, best: Sequence[int], vocab: int) -> tuple[tuple[int, ...], list[int]]:
    """Return a prompt and an output: of ten tokens, the most likely ones first, each next one is half as common.

    The four commonest tokens come first in the output: a window of its last tokens has none of them.
    """
    common = list(dict.fromkeys([*best, *rng.permutation(vocab).tolist()]))[:10]
    share = 0.5 ** np.arange(1, 11)
    output = rng.choice(common, LONG, p=share / share.sum())
    prompt = rng.choice([*best, *rng.integers(0, vocab, 60)], 100)
    return tuple(prompt.tolist()), sorted(output.tolist(), key=lambda token: common.index(token) > 3)


def context_of(
    parameter: str, rng: np.random.Generator, logits: Array, count: int, *, varied: bool = True, is_long: bool = False
) -> RequestContext:
    """Return a context whose `parameter`, or parameters with `AND` between them, change many rows `logits` [k + 1, V].

    If `varied`, one request in four has no output yet, and bad words have one token in some requests, more in others.
    A long output has a frequency penalty of a hundredth, so that counts above 15 still matter.
    """
    vocab = logits.shape[1]
    best = logits.argmax(axis=1).tolist()
    if is_long:
        long_prompt, long_output = long_history(rng, best, vocab)
        stops = tuple(sorted(set(best))) if parameter == "min tokens" else ()
        given = dict(PENALTIES.get(parameter, {}))
        if "frequency_penalty" in given:
            given["frequency_penalty"] /= 100
        if parameter == "min tokens":
            given["min_tokens"] = LONG + 1 + count // 2
        return RequestContext(GenerationRequest(long_prompt, **given), long_output, stops)
    prompt = tuple(rng.choice([*best, *rng.integers(0, vocab, 3)], 3).tolist())
    output = rng.choice([*best, *rng.integers(0, vocab, 2)], 4).tolist() if not varied or rng.random() < 0.75 else []
    half = set(rng.permutation(vocab)[: vocab // 2].tolist())
    words: list[tuple[int, ...]] = [(x, token) for token in set(best) for x in half] + [
        (y, x, best[-1]) for x in range(vocab) for y in half
    ]
    if varied and rng.random() < 0.25:
        words = [(token,) for token in best]
    strong, weak = 9.25 if varied and rng.random() < 0.25 else 3.4, 2.6
    if varied and rng.random() < 0.25:
        strong, weak = 24.0, 21.5  # far above all logits: the rest of the row decides nothing
    table: dict[str, dict[str, Any]] = {
        "none": {},
        "min-p": {},
        "min-p and top-p": {},
        "all limits": {},
        "grammar": {},
        "allowed ids": {"allowed_token_ids": tuple(sorted(half))},
        "bad words": {"bad_words": tuple(words)},
        "min tokens": {"min_tokens": len(output) + 1 + count // 2},
        "logit bias": {
            "logit_bias": {
                best[0]: -5.0,
                best[-1]: -40.0,
                best[count // 2]: -2.75,
                int(min(half)): strong,
                int(max(half)): weak,
            }
        },
        **PENALTIES,
        "penalties and limits": PENALTIES["penalties"],
    }
    table["everything"] = table["allowed ids"] | table["bad words"] | table["logit bias"] | table["penalties"]
    names = parameter.split(AND)
    stops = tuple(sorted(set(best))) if "min tokens" in names else ()
    rows = torch.from_numpy(rng.random(logits.shape) < 0.5) if "grammar" in names else None
    if rows is not None:
        rows[:, 0] = True
    given = {name: value for each in names for name, value in table[each].items()}
    return RequestContext(GenerationRequest(prompt, **given), output, stops, rows)


def random_step(
    rng: np.random.Generator,
    parameter: str,
    draft: str,
    heat: Any,
    counts: Sequence[int] = COUNTS,
    vocab: int = 32,
    *,
    varied: bool = True,
    is_long: bool = False,
) -> Step:
    """Return a step whose every second request has `parameter`; three of four drafts follow the processed rows.

    Args:
        rng: source of all values.
        parameter: parameter of `context_of`.
        draft: "present" for drafts with probabilities, "absent" for certain ones.
        heat: temperature of all requests, or one per request.
        counts: draft tokens per request.
        vocab: V.
        varied: False gives every request an output and longer bad words, which one step for all draws needs.
        is_long: True gives every request `long_history`.
    """
    batch = random_sampler_batch(
        rng, counts, vocab, temperature=heat, draft=draft == "present", spread=2.0, seeds=list(range(len(counts)))
    )
    special = tuple(range(1, len(counts), 2))
    contexts, drafts = [], []
    for b, count in enumerate(counts):
        if varied and parameter in MASKS and b % 4 == 1:
            batch.logits[rows_of(batch, b)] -= FAR
        logits = batch.logits[rows_of(batch, b)].double().numpy()
        own_parameter = parameter if b in special else "none"
        contexts.append(context_of(own_parameter, rng, logits, count, varied=varied, is_long=is_long))
        own: list[int] = []
        for j in range(count):
            best = int(processed_row(logits[j], contexts[b], own, j).argmax())
            own.append(best if rng.random() < 0.75 else int(rng.integers(0, vocab)))
        drafts.append(own)
    return Step(
        replace(batch, draft_token_ids=drafts, **limits_of(parameter, special, len(counts), vocab)), contexts, special
    )


def pairs_step(rng: np.random.Generator, pair: Sequence[str], draft: str, heat: Any) -> Step:
    """Return a step whose every second request has two parameters, which leave a token in each row."""
    while True:
        step = random_step(rng, AND.join(pair), draft, heat)
        rows = [step.row(b, j) for b in step.special for j in range(step.batch.counts[b] + 1)]
        if all(np.isfinite(row).any() for row in rows):
            return step


def long_words_step(rng: np.random.Generator, draft: str, heat: Any) -> Step:
    """Return a step whose every second request has bad words of three to six tokens, which end at its own rows.

    A word forbids the most likely token of its row, or it differs from the text in its first token alone and forbids
    nothing. Drafts are the tokens that remain, so that most are accepted.
    """
    step = random_step(rng, "none", draft, heat)
    vocab = step.batch.vocab_size
    contexts, drafts = list(step.contexts), [list(ids) for ids in step.batch.draft_token_ids]
    for b in step.special:
        logits = step.batch.logits[rows_of(step.batch, b)].double().numpy()
        output = rng.integers(0, vocab, 4).tolist()
        words: list[tuple[int, ...]] = []
        for j, row in enumerate(logits):
            text = [*output, *drafts[b][:j]]
            for length in rng.permutation([2, 3, 4, 5])[:2].tolist():
                start = list(text[-length:])
                if rng.random() < 0.5:
                    start[0] = (start[0] + 1) % vocab
                words.append((*start, int(row.argmax())))
            context = replace(contexts[b], output_token_ids=output)
            contexts[b] = replace(context, params=replace(context.params, bad_words=tuple(words)))
            if j < len(drafts[b]):
                drafts[b][j] = int(processed_row(row, contexts[b], drafts[b][:j], j).argmax())
    return Step(replace(step.batch, draft_token_ids=drafts), contexts, step.special)


def limits_of(parameter: str, special: Sequence[int], requests: int, vocab: int) -> dict[str, torch.Tensor]:
    """Return the limits of a batch, which only the requests `special` have."""
    fields = {}
    for name, value in LIMITS.get(parameter, {}).items():
        off, dtype = {"top_k": (vocab, torch.int32), "top_p": (1.0, torch.float32), "min_p": (0.0, torch.float32)}[name]
        fields[name] = torch.full((requests,), off, dtype=dtype)
        fields[name][list(special)] = torch.tensor(value, dtype=dtype)
    return fields


TIE = 1e-4
"""Distance of two logits below which a float32 engine may choose the other one."""


def greedy_by_rule(step: Step, b: int) -> tuple[list[int], list[int]] | None:
    """Return the tokens of greedy request b, and the rows in which processing changed its token; None at a near tie."""
    emitted: list[int] = []
    changed: list[int] = []
    drafts = step.batch.draft_token_ids[b]
    for j in range(len(drafts) + 1):
        row = step.row(b, j)
        second, first = np.sort(row)[-2:]
        if first - second < TIE:
            return None
        emitted.append(int(row.argmax()))
        if emitted[-1] != int(step.row(b, j, processors=False).argmax()):
            changed.append(j)
        if j < len(drafts) and drafts[j] != emitted[-1]:
            break
    return emitted, changed


IGNORED = "the parameter is ignored"
FAULTS: dict[str, dict[str, str]] = {
    "the bonus row does not count the accepted drafts as output": {"forgets": "bonus"},
    "no row counts the drafts before it as output": {"forgets": "all"},
    "the bonus row ignores the parameter": {"ignores": "bonus"},
    "the rows of drafts ignore the parameter": {"ignores": "drafts"},
    IGNORED: {"ignores": "all"},
    "of a bad word the last two tokens alone count": {"words": "last"},
    "a bad word forbids its last token whatever stands before it": {"words": "any"},
    "bad words of several tokens are ignored": {"words": "one"},
    "of a bad word that is longer than the text its end alone counts": {"words": "short"},
    "the last token alone counts as output": {"counts": "last"},
    "drafts alone count as output": {"counts": "drafts"},
    "presence and frequency penalties count the prompt as output": {"counts": "prompt"},
    "token 0 has no presence and frequency penalties": {"counts": "ids"},
}
"""Faults of a sampler in words, each with the fields of a `Step` that has it."""


OR = " or "
"""Joins faults that explain the same tokens."""


def faults_of(step: Step) -> dict[str, dict[str, str]]:
    """Return `FAULTS`, and those of repetition penalties and of requests with several parameters, likewise."""
    several = [steps for context in step.contexts if len(steps := steps_of(context.params)) > 1]
    repeating = [context.params for context in step.contexts if context.params.repetition_penalty != 1]
    return (
        FAULTS
        | {words: {"misread": words} for context in step.contexts for words, _ in misread(context)}
        | {words: {"repeats": words} for request in repeating[:1] for words in repetitions(request, ())}
        | {words: {"order": words} for steps in several for words, _ in mistaken(steps)}
    )


def fault_of(step: Step, tokens: Sequence[Sequence[int]]) -> str:
    """Return those of `faults_of` that give every greedy request its wrong tokens; empty if none does.

    Args:
        step: the step that a sampler got wrong.
        tokens: tokens that the sampler emitted, per request.
    """
    greedy = np.flatnonzero(step.batch.temperature.numpy() == 0).tolist()
    faults = []
    for fault, fields in faults_of(step).items():
        ruled = [(greedy_by_rule(replace(step, **fields), b), list(tokens[b])) for b in greedy]  # type: ignore[arg-type]
        if all(found is None or found[0] == got for found, got in ruled) and any(found for found, _ in ruled):
            faults.append(fault)
    return OR.join(faults)


Law = Callable[[Step, int, int], Array]
"""The distribution [V] at row j of request b of a step."""


def right(step: Step, b: int, j: int) -> Array:
    """Return the distribution that the row must have."""
    return step.law(b, j)


def unprocessed(step: Step, b: int, j: int) -> Array:
    """Return the distribution without processors and limits."""
    return limited(step.row(b, j, processors=False), float(step.batch.temperature[b]))


def min_p_last(step: Step, b: int, j: int) -> Array:
    """Return the distribution with min-p after top-k and top-p; `unprocessed` where the order does not matter."""
    if step.batch.min_p is None or step.batch.top_p is None:
        return unprocessed(step, b, j)
    others = Step(replace(step.batch, min_p=None), step.contexts, step.special).law(b, j)
    weights = np.where(others >= float(step.batch.min_p[b]) * others.max(), others, 0.0)
    own: Array = weights / weights.sum()
    return own


def drafts_forgotten(step: Step, b: int, j: int) -> Array:
    """Return the distribution when drafts do not count as output; `unprocessed` where they do not matter."""
    forgetful = Step(step.batch, step.contexts, step.special, forgets="all")
    same = np.array_equal(forgetful.row(b, 1), step.row(b, 1)) and np.array_equal(forgetful.row(b, 2), step.row(b, 2))
    return unprocessed(step, b, j) if same else forgetful.law(b, j)


def drafts_unprocessed(step: Step, b: int, j: int) -> Array:
    """Return the distribution when rows of drafts are not processed; `unprocessed` where that changes nothing."""
    last = len(step.batch.draft_token_ids[b])
    same = all(np.array_equal(step.row(b, i), step.row(b, i, processors=False)) for i in range(last))
    return unprocessed(step, b, j) if same or j < last else right(step, b, j)


WRONG = (unprocessed, min_p_last, drafts_forgotten, drafts_unprocessed)
"""Distributions that the outcomes of a step must differ from, so that a faulty sampler shows."""


def distances(step: Step, b: int, laws: Iterable[Law]) -> Iterator[float]:
    """Yield the total variation distance of the outcomes of request b from those under each of `laws`."""
    exact = outcomes(step, b)
    for law in laws:
        yield float(np.abs(exact - outcomes(step, b, law)).sum() / 2)


def outcomes(step: Step, b: int, law: Law = right) -> Array:
    """Return [k + 1, V]: the exact probability of the number of accepted drafts and of the token after them.

    Source: Leviathan et al. 2023, algorithm 1; without draft probabilities q is 1 at the draft.
    """
    drafts, vocab = step.batch.draft_token_ids[b], step.batch.vocab_size
    first = sum(step.batch.counts[:b])
    exact, reached = np.zeros((len(drafts) + 1, vocab)), 1.0
    for j, token in enumerate(drafts):
        p = law(step, b, j)
        probs = step.batch.draft_probs
        q = np.eye(vocab)[token] if probs is None else probs[first + j].double().numpy()
        accept = min(1.0, p[token] / q[token])
        residual = np.maximum(p - q, 0.0)
        if accept < 1:
            exact[j] = reached * (1 - accept) * residual / residual.sum()
        reached *= accept
    exact[-1] = reached * law(step, b, len(drafts))
    return exact
