"""Log-probabilities of generated texts against the rows of a float64 model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from verispec.cases.request_parameters import distribution, possible, processed, slack_after
from verispec.engines.protocol.generation import GenerationRequest, GenerationResult, TokenLogprobs
from verispec.judge import Mismatch
from verispec.suites.e2e._reference_model import Array, ReferenceModel
from verispec.suites.e2e._sequences import stops_of
from verispec.suites.e2e._setups import require, require_accepted_drafts
from verispec.suites.e2e._texts import check_texts

ARITHMETIC = 1e-5
"""Error of a float32 log-softmax over 2,048 tokens."""


def check_batch(
    results: Sequence[GenerationResult],
    asked: Sequence[GenerationRequest],
    mode: str,
    model_of: Callable[[GenerationRequest], ReferenceModel],
) -> None:
    """Check the log-probabilities of a batch.

    Args:
        results: results of the batch.
        asked: its requests.
        mode: one of `LOGPROBS_MODES`.
        model_of: function from a request to the float64 model that its rows come from.

    Raises:
        Inconclusive: drafts were verified and none was accepted.
        Mismatch: a token has no entry, or an entry has a wrong value.
    """
    pairs = list(zip(asked, results, strict=True))
    texts = [
        Text(f"request {n}", model_of(request), request, result.token_ids) for n, (request, result) in enumerate(pairs)
    ]

    def check(n: int, result: GenerationResult) -> None:
        check_result(texts[n], result, mode, beside=[text for text in texts if text is not texts[n]])

    # Without log-probabilities nothing in a text would be wrong.
    told = [result if request.logprobs is not None else replace(result, steps=()) for request, result in pairs]
    check_texts(asked, told, check, what="the first tokens with a wrong log-probability in {} texts")
    require_accepted_drafts(results)


@dataclass(frozen=True)
class Text:
    """The tokens of a request, and the float64 model whose rows they come from.

    Attributes:
        name: name of the text in messages.
        model: the model.
        request: the request.
        tokens: tokens whose log-probabilities are checked.
    """

    name: str
    model: ReferenceModel
    request: GenerationRequest
    tokens: Sequence[int]

    @property
    def logits(self) -> Array:
        """The model's own rows, [tokens, V]."""
        return self.model.logits(self.request.prompt_token_ids, tuple(self.tokens))

    def row(self, place: int, mode: str) -> tuple[Array, float] | None:
        """Return a row whose log-softmax holds the log-probabilities of a token, and the error of each of these.

        None where a token at the edge of a limit may be in or out.
        """
        row, off = self.logits[place], self.model.rounding(self.request.prompt_token_ids, tuple(self.tokens))
        if mode == "processed":
            row = processed(row, self.request, self.tokens[:place], stops_of(self.request))
            off = slack_after(off, self.request)
        if mode == "processed" and not self.request.greedy:
            exact = distribution(row, self.request)
            if (possible(row, self.request, off) != (exact > 0)).any():
                return None
            with np.errstate(divide="ignore"):
                row = np.log(exact)
            off /= self.request.temperature
        return row, 2 * off + ARITHMETIC


def check_result(text: Text, result: GenerationResult, mode: str, beside: Sequence[Text] = ()) -> None:
    """Check the log-probabilities of one result: as many as its tokens if its request asks for them, else none."""
    entries, wanted = result.logprobs, 0 if text.request.logprobs is None else len(result.token_ids)
    message = f"{text.name} has {len(entries)} log-probabilities, expected {wanted}"
    verified = sum(step.accepted + 1 for step in result.steps)
    if wanted < len(entries) == verified:
        message += f"; its steps verified {verified} tokens, of which it has {wanted}: those behind its end count too"
    require(len(entries) == wanted, message)
    if wanted:
        check_entries(text, entries, mode, beside)


def check_entries(text: Text, entries: Sequence[TokenLogprobs], mode: str, beside: Sequence[Text] = ()) -> None:
    """Check the value of each token and the most likely tokens of its row.

    Args:
        text: the tokens.
        entries: their log-probabilities.
        mode: one of `LOGPROBS_MODES`.
        beside: other texts of the batch, whose rows an engine may take by mistake.
    """
    top = text.request.logprobs or 0
    for i, (token, entry) in enumerate(zip(text.tokens, entries, strict=True)):
        if (found := text.row(i, mode)) is None:
            continue
        row, bound = found
        try:
            check_row(row, token, entry, top, bound, f"{text.name}, token {i}")
        except Mismatch as mismatch:
            logits, message = text.logits[i], mismatch.failure.message
            others = {"the raw logits": logits, **_shaped(logits, text.request, text.tokens[:i])}
            if other := _confused(_log_softmax(row)[token], others, token, entry.sampled, bound):
                message += f"; it is that of {other}, and the mode is {mode}"
            elif len(entry.top) != top:
                same = [
                    other.name for other in beside if other.request.logprobs == len(entry.top) and other is not text
                ]
                message += f"; {same[0]} asks for as many" if same else ""
            elif other := _elsewhere(text, i, entry, mode, beside):
                message += f"; the entry is that of the row of {other}"
            details = {**mismatch.failure.details, "position": i}
            raise Mismatch(replace(mismatch.failure, message=message, details=details)) from mismatch


def _elsewhere(text: Text, place: int, entry: TokenLogprobs, mode: str, beside: Sequence[Text]) -> str:
    """Return the token whose row gives a wrong entry, whole; empty if none or several do.

    Requests with one text up to a token have one row, whose first name is returned.
    """
    top = text.request.logprobs or 0
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], str] = {}
    for other in (text, *beside) if top else (text,):  # one number alone agrees with one of many rows by chance
        for i in range(len(other.tokens)):
            with suppress(Mismatch, IndexError):  # another text may have ids outside of the vocabulary
                if (other is text and i == place) or (read := other.row(i, mode)) is None:
                    continue
                check_row(read[0], text.tokens[place], entry, top, read[1], "")
                row = (other.request.prompt_token_ids, tuple(other.tokens[:i]))
                found.setdefault(row, f"token {i}" + f" of {other.name}" * (other is not text))
    return "".join(found.values()) if len(found) == 1 else ""


def _shaped(logits: Array, request: GenerationRequest, before: Sequence[int]) -> dict[str, Array]:
    """Return rows that an engine may take the log-probability from by mistake, each with its name."""
    after = processed(logits, request, before, stops_of(request))
    rows = {"the logits after the processors": after}
    if not request.greedy:
        with np.errstate(divide="ignore"):
            rows["the distribution that was sampled from"] = np.log(distribution(after, request))
        rows["the logits over the temperature"] = logits / request.temperature
    return rows


def _confused(expected: float, others: Mapping[str, Array], token: int, got: float, bound: float) -> str:
    """Return the name of the row whose log-probability of `token` is `got`; empty for none, and if `got` is right."""
    if abs(got - expected) <= bound:
        return ""
    found = (name for name, row in others.items() if abs(got - _log_softmax(row)[token]) <= bound)
    return next(found, "a token that is certain" if abs(got) <= bound else "")


def _log_softmax(row: Array) -> Array:
    best = row.max()
    exact: Array = row - best - np.log(np.exp(row - best).sum())
    return exact


def check_prompt_entries(
    model: ReferenceModel, request: GenerationRequest, result: GenerationResult, what: str
) -> None:
    """Check the log-probabilities of a prompt: one entry per token that asks for them, and None for the first."""
    first, *following = request.prompt_token_ids
    entries, top = result.prompt_logprobs, request.prompt_logprobs
    wanted = 0 if top is None else 1 + len(following)
    message = f"{what} has {len(entries)} log-probabilities of its prompt, expected {wanted}"
    if following and entries[1:] == entries[1:wanted] * 2:
        message += ": those of all tokens after the first come twice"
    require(len(entries) == wanted, message)
    if top is None:
        return
    require(entries[0] is None, f"{what}: the first token of its prompt has a log-probability")
    if following:
        own = [entry for entry in entries[1:] if entry is not None]
        missing = len(following) - len(own)
        require(not missing, f"{what}: {missing} tokens of its prompt have no log-probability")
        read = GenerationRequest((first,), logprobs=top)
        check_entries(Text(f"the prompt of {what}", model, read, following), own, "raw")


def check_row(row: Array, token: int, entry: TokenLogprobs, top: int, bound: float, what: str) -> None:
    """Check one entry against the log-softmax of `row`; every value may be off by `bound`."""
    exact = _log_softmax(row)
    off = abs(entry.sampled - exact[token])
    require(bool(off <= bound), f"{what}: log-probability {entry.sampled:.5f} of {token}, expected {exact[token]:.5f}")
    ids, values = [id_ for id_, _ in entry.top], [value for _, value in entry.top]
    require(len(set(ids)) == len(ids) == top, f"{what}: {len(ids)} most likely tokens {ids}, expected {top}")
    require(values == sorted(values, reverse=True), f"{what}: most likely tokens do not fall: {values}")
    if not top:
        return
    least = float(np.sort(exact)[-top])
    for id_, value in entry.top:
        same = (np.isneginf(exact[id_]) and value < -1e4) or abs(value - exact[id_]) <= bound
        require(bool(same), f"{what}: log-probability {value:.5f} of {id_}, expected {exact[id_]:.5f}")
        among = exact[id_] >= least - 2 * bound or np.isneginf(least)
        require(bool(among), f"{what}: {id_} at {exact[id_]:.5f} is not among the {top} most likely")
