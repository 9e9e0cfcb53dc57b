"""Request parameters under speculation: what is asked, and how an output is checked against them in float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from verispec import fixtures
from verispec.cases.orders import one_sign
from verispec.cases.request_parameters import distribution, forbidding, is_possible, processed, slack_after
from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import FinishReason, GenerationRequest, GenerationResult
from verispec.engines.protocol.grammar import TransitionTable
from verispec.judge import Failure, Inconclusive, Kind, Mismatch
from verispec.judge.statistics import assert_distribution, fits
from verispec.judge.statistics.supposed import MOST, Sample, assert_law
from verispec.run.record import ALTERNATIVELY, AS_IF, FAULT
from verispec.suites.e2e._miscounts import GreedyText, mistake_of, offsets
from verispec.suites.e2e._reference_model import Array, ReferenceModel, greedy_text, greedy_texts, reference_model
from verispec.suites.e2e._sequences import JUDGED, law_of_sequences, mistaken_sequences, sequence_names, stops_of
from verispec.suites.e2e._setups import MANY, Load, require, sampled_in_parts
from verispec.suites.e2e._tiny import EOS, VOCAB

LENGTH = 24
"""Tokens of a text whose every token is checked."""

TINY_PROMPTS = [(first, second, third) for first, second, third in itertools.product((1, 3, 6), (2, 5, 7), (4, 7))]
"""Prompts of the models over eight tokens."""


def fields(parameter: str, text: Sequence[int]) -> dict[str, Any]:
    """Return request fields that change `text`, the target's own greedy continuation, in many places.

    Values lie within what every engine accepts, e.g. penalties up to 2.
    """
    own = list(dict.fromkeys(text))
    pairs, triples = list(zip(text[::2], text[1::2], strict=False)), list(zip(text, text[1:], text[2:], strict=False))
    table: dict[str, dict[str, Any]] = {
        "allowed ids": {"allowed_token_ids": tuple(range(own[0] % 2, VOCAB if max(text) < VOCAB else 2048, 2))},
        "bad words": {"bad_words": tuple(dict.fromkeys([*pairs, *triples[1::3]]))},
        "long bad words": {"bad_words": (tuple(text[4:9]), *others_than(text))},
        "bad words of one token": {"bad_words": tuple((token,) for token in own[:2])},
        "min tokens": {"min_tokens": 6, "stop_token_ids": tuple(own[1:4]), "ignore_eos": False},
        "logit bias": {"logit_bias": {own[0]: -4.0, own[1 % len(own)]: -4.0, (own[0] + 3) % VOCAB: 1.5}},
        "grammar": {"grammar": residues(VOCAB if max(text) < VOCAB else 2048)},
        "presence penalty": {"presence_penalty": 1.5},  # at 2 no draft of prompt lookup before a change is accepted
        "negative presence penalty": {"presence_penalty": -1.5},
        "frequency penalty": {"frequency_penalty": 0.75},
        "repetition penalty": {"repetition_penalty": 2.0},
        "repetition reward": {"repetition_penalty": 0.6},
        "min-p": {"min_p": 0.3},
        "top-k": {"top_k": 3},
        "top-p": {"top_p": 0.7},
        "temperature": {},
        "none": {},
    }
    if max(text) >= VOCAB:  # Some engines keep a limited number of entries.
        own_bias = table["logit bias"]["logit_bias"]
        weak = {token: -0.125 for token in range(100, 200) if token not in own_bias}
        table["logit bias"] = {"logit_bias": weak | own_bias}
    table["penalties"] = {"presence_penalty": 0.5, "frequency_penalty": 0.4, "repetition_penalty": 1.4}
    table["penalties and limits"] = table["penalties"] | {"top_k": 5, "top_p": 0.85}
    table["ids, bias and penalties"] = table["allowed ids"] | table["logit bias"] | table["penalties"]
    table["grammar and penalties"] = table["grammar"] | table["penalties"]
    table["grammar and top-k"] = table["grammar"] | table["top-k"]
    table["everything"] = {**table["ids, bias and penalties"], **table["bad words"], "top_k": 3, "top_p": 0.9}
    table["min-p and top-p"] = {"min_p": 0.15, "top_p": 0.8}
    table["all limits"] = {"min_p": 0.15, "top_k": 7, "top_p": 0.8}
    table["top-k and top-p"] = {"top_k": 3, "top_p": 0.8}
    return table[parameter]


def others_than(text: Sequence[int]) -> list[tuple[int, ...]]:
    """Return words of four tokens that end like windows of a text over eight tokens and begin otherwise."""
    windows = list(zip(text, text[1:], text[2:], text[3:], strict=False))
    return [word for first, *rest in windows if (word := ((first + 1) % VOCAB, *rest)) not in windows]


@cache
def residues(vocab: int) -> TransitionTable:
    """Return a grammar whose state is the sum of the output modulo 3; each state forbids one residue of tokens."""
    states = range(3)
    return TransitionTable(
        tuple({token: (state + token) % 3 for token in range(vocab) if token % 3 != state} for state in states)
    )


@dataclass(frozen=True)
class Setting:
    """A target, its drafter, and their requests.

    Attributes:
        draft: one of `_setups.DRAFTS` or `ARGMAX`.
        target: folder of the target.
        drafter: folder of the draft model; None for the fixture that `draft` names.
        prompts: token ids.
    """

    draft: str
    target: Path
    drafter: Path | None
    prompts: Sequence[tuple[int, ...]]

    @classmethod
    def of(cls, draft: str, tiny: Mapping[str, Path], prompts: Sequence[tuple[int, ...]]) -> Setting:
        """Return models over eight tokens, whose texts repeat within a few tokens; the fixtures if a head drafts.

        The small target drafts for itself, so every rejection is an effect of the parameter.
        """
        if draft.startswith("eagle3"):
            return cls(draft, fixtures.model("target"), None, [prompt[:20] for prompt in prompts[:6]])
        return cls(draft, tiny["target"], tiny["target"] if draft.startswith("draft_model") else None, TINY_PROMPTS)

    @cached_property
    def reference(self) -> ReferenceModel:
        """The float64 reference model of the target."""
        return reference_model(self.target)

    def requests(self, parameter: str, **common: Any) -> list[GenerationRequest]:
        """Return one request per prompt, with the parameter's fields made from the prompt's own greedy text."""
        texts = greedy_texts(self.target, self.prompts, LENGTH)
        return [
            GenerationRequest(
                prompt, **{"max_tokens": LENGTH, "ignore_eos": True, **common, **self._fields(prompt, text, parameter)}
            )
            for prompt, text in zip(self.prompts, texts, strict=True)
        ]

    def _fields(self, prompt: tuple[int, ...], text: Sequence[int], parameter: str) -> dict[str, Any]:
        """Return a parameter's fields, without bad words that the prompt may begin: engines differ about them.

        A third of the models' prompts has biases far above all logits, which a bound of 10 or 20 would make equal.
        """
        wanted = fields(parameter, text)
        if parameter == "logit bias" and prompt[0] == TINY_PROMPTS[-1][0]:
            wanted["logit_bias"] = {text[0]: 24.0, (text[0] + 3) % VOCAB: 21.5}
        if words := wanted.get("bad_words"):
            wanted["bad_words"] = tuple(word for word in words if not begins_in(prompt, word))
        return wanted


def begins_in(prompt: tuple[int, ...], word: tuple[int, ...]) -> bool:
    """Return True if a text after the prompt could complete a word whose first tokens end the prompt."""
    return any(prompt[-n:] == word[:n] for n in range(1, len(word)))


OPPOSITE = {
    "presence penalty": "negative presence penalty",
    "negative presence penalty": "presence penalty",
    "repetition penalty": "repetition reward",
    "repetition reward": "repetition penalty",
}
"""Penalties of one sign with that of the other; a repetition penalty is one above 1 and a reward below."""


def check_greedy(load: Load, setting: Setting, parameter: str, memory: str = "") -> None:
    """Check every token of greedy requests that stand among others, none of them first, and of the greedy others.

    Raises:
        Mismatch: a token is not the processed argmax, or a request without the parameter has another text than alone.
        Inconclusive: the parameter changed no token, or none behind an accepted draft of its step.
    """
    try:
        _check_greedy(load, setting, parameter, memory)
    except Mismatch as mismatch:
        failure = mismatch.failure
        fault = failure.details.get(FAULT, "")
        if parameter not in OPPOSITE or not fault.endswith(" penalty was missing"):
            raise
        try:
            _check_greedy(load, setting, OPPOSITE[parameter], memory)
        except (Mismatch, Inconclusive, UnsupportedCall):
            raise mismatch from None
        [(field, value)] = fields(parameter, (1, 2, 3, 4)).items()
        sign, other = one_sign(field, value)
        own = f"{sign} was missing, and {other} was not"
        message = failure.message.replace(f"{AS_IF}{fault}", f"{AS_IF}{own}")
        raise Mismatch(replace(failure, message=message, details={**failure.details, FAULT: own})) from None


def _check_greedy(load: Load, setting: Setting, parameter: str, memory: str) -> None:
    asked = setting.requests(parameter)
    plain = [GenerationRequest(p, max_tokens=5 + 3 * n % 9, ignore_eos=True) for n, p in enumerate(setting.prompts)]
    others = [request if n % 2 else replace(request, temperature=0.8, seed=n) for n, request in enumerate(plain)]
    batch = [request for pair in zip(others, asked, strict=True) for request in pair]
    results = load(setting.draft, memory, target=setting.target, drafter=setting.drafter).generate(batch)
    texts = list(zip(asked, results[1::2], strict=True))
    drafter = None if setting.drafter is None else reference_model(setting.drafter)
    changed = inside = steps = 0
    for n, (request, result) in enumerate(texts):
        what = f"request {2 * n + 1} with {parameter}"
        places = check_tokens(setting.reference, request, result, what, texts, drafter)
        after_draft = offsets(result)
        changed += len(places)
        inside += sum(after_draft[place] > 0 for place in places) if after_draft else 0
        steps += len(result.steps)
    for n, (request, result) in enumerate(zip(others, results[::2], strict=True)):
        if request.greedy:
            what = f"request {2 * n}, whose neighbours alone have {parameter},"
            check_tokens(setting.reference, request, result, what)
    if not changed:
        raise Inconclusive(f"{parameter} changed no token")
    if setting.draft != "none" and steps and not inside:
        raise Inconclusive(f"{parameter} changed no token after an accepted draft")


def check_tokens(
    model: ReferenceModel,
    request: GenerationRequest,
    result: GenerationResult,
    what: str,
    among: Sequence[tuple[GenerationRequest, GenerationResult]] = (),
    drafter: ReferenceModel | None = None,
) -> list[int]:
    """Check every token of a result against the processed rows; return where processing changed the argmax.

    A greedy token must be the argmax or within rounding of it; a sampled one must be within every limit. A stop token
    ends the output once `min_tokens` allows it.

    Args:
        model: the target.
        request: the request.
        result: its answer.
        what: name of the request in a message.
        among: requests of the same call with their answers, all of which a mistake must explain to be named.
        drafter: draft model, where there is one.
    """
    tokens = result.token_ids
    require(len(tokens) > 0, f"{what} emitted nothing")
    stops = stops_of(request)
    rows = model.logits(request.prompt_token_ids, tokens)
    changed = []

    def slack() -> float:
        """Return the error of a processed logit, for which the float32 model reads the text."""
        return slack_after(model.rounding(request.prompt_token_ids, tokens), request)

    def named(message: str) -> tuple[str, dict[str, Any]]:
        """Return a message with the mistake that explains all greedy tokens, and its details."""
        if _is_sure(request) and (mistake := mistake_in(model, among or [(request, result)], drafter)):
            return f"{message}; all tokens are {AS_IF}{mistake}", {FAULT: mistake}
        return message, {}

    for i, token in enumerate(tokens):
        row = processed(rows[i], request, tokens[:i], stops)
        best = int(row.argmax())
        origin = f" ({result.kinds[i]})" if result.kinds else ""
        where = f"{what} emitted {token}{origin} at position {i}"
        if not np.isfinite(row[token]):
            why = forbidding(request, token, len(row), tokens[:i], stops)
            message, known = named(f"{where}, which {why} forbids; expected {best}")
            raise Mismatch(Failure(Kind.VALUE, message, total=len(tokens), details=known))
        if request.greedy:
            margin = float(row[best] - row[token])
            if margin and margin > slack():
                message = f"{where}; expected {best}, ahead by {margin:.3g} where rounding explains {slack():.2g}"
                message, known = named(message)
                details: dict[str, Any] = {"position": i, "argmax": best, **known}
                raise Mismatch(Failure(Kind.VALUE, message, total=len(tokens), details=details))
        else:
            inside = is_possible(row, request, token) or is_possible(row, request, token, slack())
            message, known = ("", {}) if inside else named(f"{where}, outside of its {limits_of(request)}")
            if not inside:
                raise Mismatch(Failure(Kind.VALUE, message, total=len(tokens), details=known))
        if best != rows[i].argmax() or not request.greedy:
            changed.append(i)
    _check_end(request, result, stops, what)
    return changed


def mistake_in(
    model: ReferenceModel,
    texts: Sequence[tuple[GenerationRequest, GenerationResult]],
    drafter: ReferenceModel | None = None,
) -> str:
    """Return the mistake that explains every token of all greedy texts, or two of them; else nothing."""

    def chain(known: tuple[int, ...], most: int) -> list[int]:
        assert drafter is not None
        found: list[int] = []
        for _ in range(most):
            found.append(int(drafter.logits(known, (*found, 0))[-1].argmax()))
        return found

    own = []
    for request, result in texts:
        if _is_sure(request):
            error = slack_after(model.rounding(request.prompt_token_ids, result.token_ids), request)
            rows = model.logits(request.prompt_token_ids, result.token_ids)
            own.append(GreedyText(replace(request, temperature=0.0), result, rows, error))
    found = mistake_of(own, [chain] if drafter is not None else [])
    return ALTERNATIVELY.join(found) if len(found) <= MOST else ""


def _is_sure(request: GenerationRequest) -> bool:
    """Return True if a request gets the most likely token of each row."""
    return request.greedy or request.top_k == 1


def limits_of(request: GenerationRequest) -> str:
    """Return the limits that a sampled request has, in words."""
    limits = {"min_p": request.min_p > 0, "top_k": request.top_k > 0, "top_p": request.top_p < 1}
    return " or ".join(f"{name} of {getattr(request, name):g}" for name, has in limits.items() if has)


def _check_end(request: GenerationRequest, result: GenerationResult, stops: frozenset[int], what: str) -> None:
    """Check that the output ends at its first stop token, which min_tokens may delay, or at max_tokens."""
    first = next((i for i, token in enumerate(result.token_ids) if token in stops), None)
    kind = f", {result.kinds[first]}" if first is not None and first < len(result.kinds) else ""
    wanted = request.max_tokens if first is None else first + 1
    require(
        len(result.token_ids) == wanted,
        f"{what} has {len(result.token_ids)} tokens, expected {wanted}: max_tokens is {request.max_tokens}, "
        f"ignore_eos is {request.ignore_eos}, "
        f"the first stop token {'absent' if first is None else f'at position {first}{kind}'}",
    )
    reason = FinishReason.LENGTH if first is None else FinishReason.STOP
    require(result.finish_reason is reason, f"{what} finished by {result.finish_reason}, expected {reason}")


SURE = 19.0
"""A right engine is off by more than a bound with a chance of 2 e^-19 = 1e-8."""


@dataclass
class TokenShare:
    """Number of tokens of one kind in texts, and the number that the target's distributions give.

    Attributes:
        what: name of these tokens in a message.
    """

    what: str
    seen: int = 0
    expected: float = 0.0
    variance: float = 0.0

    def add(self, chances: Array, token: int) -> None:
        """Count a token; `chances` [V] has the probability of each token of the kind, and 0 for others."""
        chance = float(chances.sum())
        self.seen += int(chances[token] > 0)
        self.expected += chance
        self.variance += chance * (1 - chance)

    @property
    def fits(self) -> bool:
        """True if the number is within a standard deviation and one, so that more texts may be left out."""
        return abs(self.seen - self.expected) <= 1 + float(np.sqrt(self.variance))

    def check(self) -> None:
        """Check the number within Freedman's bound for `SURE`.

        Raises:
            Mismatch: there are too many or too few.
        """
        bound = SURE / 3 + (SURE**2 / 9 + 2 * self.variance * SURE) ** 0.5
        message = f"{self.seen} {self.what}, {self.expected:.0f} are expected"
        require(abs(self.seen - self.expected) <= bound, message, Kind.LAW)


def check_share(
    model: ReferenceModel,
    texts: Sequence[tuple[GenerationRequest, GenerationResult]],
    rare: Callable[[Array], Array],
    what: str,
) -> None:
    """Check that tokens of which `rare` is true come as often as they must, within Freedman's bound for `SURE`.

    Args:
        model: the target.
        texts: requests with their results.
        rare: function from distributions [tokens, V] to the mask of the tokens that count.
        what: name of these tokens in a message.
    """
    share = TokenShare(f"{what} at a temperature of {texts[0][0].temperature}")
    for request, result in texts:
        rows = model.distributions(request, result.token_ids)
        for row, token in zip(rows * rare(rows), result.token_ids, strict=True):
            share.add(row, token)
    share.check()


SEQUENCES = 3000


def check_distribution(
    load: Load, tiny: Mapping[str, Path], draft: str, parameter: str, seed: int, **options: Any
) -> None:
    """Compare sequences of three tokens with their exact probabilities: 512 outcomes over eight tokens.

    Three more tokens are asked for, so that blocks of drafts are full.

    Every ninth request has no parameter, the first of them. At `SEQUENCES` = 3,000 a total variation distance of 0.12
    from the distribution of the parameter is found with a chance above 0.98. The widest distribution has 67 cells.
    """
    drafter = tiny["draft"] if draft.startswith("draft_model") else None
    prompt, number = (1, 5, 2), itertools.count(seed % 2**31)
    temperature = {"temperature": 0.6, "none": 2.0}.get(parameter, 1.2)
    common: dict[str, Any] = {"max_tokens": JUDGED + 3, "ignore_eos": True, "temperature": temperature}

    def asked_of(prompt: tuple[int, ...], count: int) -> list[GenerationRequest]:
        wanted = fields(parameter, greedy_text(tiny["target"], prompt, LENGTH))
        if parameter == "min tokens":
            wanted = {"min_tokens": 2, "stop_token_ids": (3, 6), "ignore_eos": False}
        return [GenerationRequest(prompt, **{**common, **wanted, "seed": next(number)}) for _ in range(count)]

    asked = asked_of(prompt, SEQUENCES)
    batch: list[GenerationRequest] = []
    for n, request in enumerate(asked):
        if n % 8 == 0:
            batch.append(GenerationRequest((4, 4), max_tokens=3, ignore_eos=True, temperature=0.9 * (n // 8 % 2)))
        batch.append(request)
    generator = load(draft, target=tiny["target"], drafter=drafter, max_num_seqs=MANY, **options)
    model = reference_model(tiny["target"])
    exact = sequence_distribution(model, asked[0])
    repeats = [pattern(*tokens) for tokens in np.ndindex(exact.shape)]
    repeated = np.bincount(repeats, exact.ravel(), 5)

    def counted(requests: Sequence[GenerationRequest], results: Sequence[GenerationResult]) -> Array:
        """Return the counts of sequences, of the requests with the parameter."""
        counts = np.zeros((VOCAB,) * JUDGED, dtype=np.int64)
        for request, result in zip(requests, results, strict=False):
            if request.prompt_token_ids != (4, 4):
                counts[tuple((*result.token_ids, EOS, EOS, EOS)[:JUDGED])] += 1
        return counts.ravel()

    def tables(results: Sequence[GenerationResult]) -> tuple[Array, Array]:
        """Return the counts of sequences and of their repeats."""
        counts = counted(batch, results)
        return counts, np.bincount(repeats, counts, 5)

    def fit(results: Sequence[GenerationResult], part: float) -> bool:
        counts, seen = tables(results)
        return fits(counts, exact.ravel(), part) and fits(seen, repeated, part)

    others = iter(TINY_PROMPTS)

    def further() -> Sample:
        """Return sequences behind another prompt, whose laws tell mistakes apart that are one behind the first."""
        requests = asked_of(next(others), SEQUENCES // 2)
        counts, right = counted(requests, generator.generate(requests)), sequence_distribution(model, requests[0])
        return Sample(counts.tolist(), right.ravel(), lambda: mistaken_sequences(model, requests[0]))

    counts, seen = tables(sampled_in_parts(generator, batch, fit))
    sample = Sample(counts.tolist(), exact.ravel(), lambda: mistaken_sequences(model, asked[0]))
    assert_law(sample, f"sequences of three tokens with {parameter}", sequence_names(asked[0]), further)
    assert_distribution(seen.tolist(), repeated, f"repeated tokens in sequences with {parameter}", REPEATS)


REPEATS = ("no equal tokens", "equal first and last ones", "equal last two", "equal first two", "three equal ones")
"""Names of the outcomes of `pattern`."""


def pattern(a: int, b: int, c: int) -> int:
    """Return which of three tokens are equal, from 0 (none) to 4 (all): penalties change this most."""
    return 4 if a == b == c else 3 if a == b else 2 if b == c else 1 if a == c else 0


def sequence_distribution(model: ReferenceModel, request: GenerationRequest) -> Array:
    """Return the exact probability of every start of three tokens, [V, V, V]; tokens after a stop token count as 0."""
    stops = stops_of(request)
    return law_of_sequences(
        model, request, lambda row, output: distribution(processed(row, request, output, stops), request)
    )
