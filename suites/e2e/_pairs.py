"""Pairs of request features: every two of them in one request, whose result is checked for all that it asks for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from verispec.engines import UnsupportedCall
from verispec.engines.protocol.generation import FinishReason, GenerationRequest, GenerationResult, Generator
from verispec.reference.models import load_tokenizer
from verispec.suites.e2e._adapted import Adapted, save_adapted
from verispec.suites.e2e._counter_rng import Definition
from verispec.suites.e2e._logprobs import Text, check_entries, check_prompt_entries
from verispec.suites.e2e._lookup import looked_up
from verispec.suites.e2e._parameters import begins_in, check_tokens, residues
from verispec.suites.e2e._reference_model import ReferenceModel, greedy_text, reference_model
from verispec.suites.e2e._sequences import stops_of
from verispec.suites.e2e._setups import require
from verispec.suites.e2e._tiny import EOS, VOCAB

LENGTH = 14
WORDS = ("</s>", "ka", "lo", "mi", "nu", "pe", "ri", "so")
"""Texts of the eight tokens: a stop string of three letters reaches over the end of a token."""
ABSENT = "xy"
"""Stop string that no text contains."""
PROMPTS = [
    (*early * 3, *late * 4, late[0])
    for early, late in (
        ((5, 6, 3), (7, 1, 4, 2)), ((1, 2, 3), (7, 6, 5, 4)), ((6, 5, 3), (1, 2, 7, 4)), ((2, 3, 1), (4, 5, 7, 6))
    )
]  # fmt: skip
"""Prompts of 26 tokens, so that texts outgrow a block of 32; the first nine tokens do not return."""
CRAMPED: Mapping[str, Any] = {
    "block_size": 32, "num_blocks": 10, "max_num_seqs": 8, "max_num_batched_tokens": 26, "max_model_len": 64
}  # fmt: skip
"""Nine usable blocks hold eight requests until two outgrow theirs.

The budget of a step cuts prompts to chunks, and the drafts of eight requests.
"""
ONE_SEQUENCE: Mapping[str, Any] = {
    "block_size": 32, "num_blocks": 3, "max_num_seqs": 2, "max_num_batched_tokens": 16, "max_model_len": 64
}  # fmt: skip
"""Two usable blocks hold one text. The request beside it loses its block while its prompt is read, in parts."""
APART = (
    {"min tokens", "stop strings"},  # Engines may look for stop strings before min_tokens or not.
    {"samples", "abort"},  # A caller may abort the samples together.
)
"""Pairs that engines treat in different ways."""


@dataclass(frozen=True)
class Models:
    """The models over eight tokens, with a tokenizer and adapters.

    Attributes:
        drafters: folders of draft models by name.
        adapted: folders of the adapters, and of the target merged with each.
    """

    drafters: Mapping[str, Path]
    adapted: Adapted

    @property
    def target(self) -> Path:
        """Folder of the target."""
        return self.adapted.merged[None]

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer of the target."""
        return load_tokenizer(self.target)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without special ones."""
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))


def save_models(folder: Path, tiny: Mapping[str, Path]) -> Models:
    """Write the small target and its draft models, all with one tokenizer, and two adapters below `folder`."""
    tokenizer = Tokenizer(models.WordLevel({word: token for token, word in enumerate(WORDS)}, unk_token=WORDS[EOS]))
    tokenizer.decoder = decoders.Fuse()
    saved = {}
    for name, model in tiny.items():  # Engines compare the tokenizers of a target and its draft model.
        saved[name] = Path(shutil.copytree(model, folder / name))
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=WORDS[EOS]).save_pretrained(saved[name])
    target = saved["target"]
    return Models({"itself": target, "another": saved["draft"]}, save_adapted(folder, target))


def features(prompt: tuple[int, ...], text: Sequence[int], seed: int, decode: Any) -> dict[str, dict[str, Any]]:
    """Return the fields of every feature; `text` is the target's own greedy continuation of the prompt.

    At least one token is allowed at every place, whatever two of them forbid.
    """
    late = max(set(text), key=list(text).index)
    absent = next(token for token in range(VOCAB) if token not in text)
    words = [word for word in dict.fromkeys(pairwise(text)) if not begins_in(prompt, word)]
    heat = {"temperature": 0.8, "seed": seed}
    return {
        "penalties": {"repetition_penalty": 1.4, "presence_penalty": 0.5, "frequency_penalty": 0.4},
        "bad words": {"bad_words": tuple(words[:3])},
        "min tokens": {"min_tokens": 8, "stop_token_ids": tuple(dict.fromkeys(text))[:1], "ignore_eos": False},
        "stop tokens": {"stop_token_ids": (late,)},
        "logit bias": {"logit_bias": {text[0]: -2.5, text[-1]: -2.5, (text[0] + 3) % VOCAB: 1.5}},
        "allowed ids": {"allowed_token_ids": tuple(token for token in range(VOCAB) if token not in text[1:3])},
        "grammar": {"grammar": residues(VOCAB)},
        "logprobs": {"logprobs": 2},
        "prompt logprobs": {"prompt_logprobs": 1},
        "samples": {**heat, "n": 2, "top_k": 1},
        "limits": {**heat, "top_k": 4, "top_p": 0.9},
        "min-p": {**heat, "min_p": 0.1},
        "seed": heat,
        "abort": {"abort_after": 11},
        "stop strings": {"stop": (ABSENT, decode(text[5:8])[1:4]), "stop_token_ids": (absent,)},
    }


Asked = tuple[str, GenerationRequest]
"""A request with its name in messages."""
ADAPTERS: dict[str, dict[str, Any]] = {"adapter": {"lora_adapter": 1}, "another adapter": {"lora_adapter": 0}}


def together(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the fields of two features; None if one field would need two values."""
    both = {**first, **second}
    for name in first.keys() & second.keys():
        if name == "stop_token_ids":
            both[name] = tuple(dict.fromkeys((*first[name], *second[name])))
        elif first[name] != second[name]:
            return None
    return both


def pairs_of(feature: str, models_: Models, seed: int, common: Mapping[str, Any]) -> Iterator[Asked]:
    """Yield requests with `feature` and one more each, among some that have one of the two alone.

    A feature goes with the half of the others that follow it in their circle, so that each pair comes once. `common`
    are fields of every request.
    """
    names = list(features(PROMPTS[0], greedy_text(models_.target, PROMPTS[0], LENGTH), 0, models_.decode))
    following = names
    if feature in names:
        place = names.index(feature) + 1
        following = (names * 2)[place : place + len(names) // 2]
    for n, other in enumerate(following):
        prompt = PROMPTS[(n + 2) % len(PROMPTS)]
        text = greedy_text(models_.target, prompt, LENGTH)
        table = features(prompt, text, seed % 2**31 + n, models_.decode) | ADAPTERS
        both = None if {feature, other} in APART else together(table[feature], table[other])
        alone = (feature, table[feature]) if n == 1 else (other, None if n % 3 else table[other])
        for name, own in (alone, (f"{feature} and {other}", both)):
            if own is not None:
                yield name, GenerationRequest(prompt, **{"max_tokens": LENGTH, "ignore_eos": True, **common, **own})


def taken(
    generator: Generator, asked: Sequence[Asked], feature: str
) -> list[tuple[str, GenerationRequest, GenerationResult]]:
    """Return names, requests and results of those pairs that the engine takes.

    Raises:
        UnsupportedCall: it refuses every request with `feature`.
    """
    try:
        results = generator.generate([request for _, request in asked])
    except UnsupportedCall:
        asked = list(_not_refused(generator, asked))
        if not any(name.startswith(feature) for name, _ in asked):
            raise
        results = generator.generate([request for _, request in asked])
    return [(name, request, result) for (name, request), result in zip(asked, results, strict=True)]


def _not_refused(generator: Generator, asked: Sequence[Asked]) -> Iterator[Asked]:
    for name, request in asked:
        try:
            generator.generate([request])
        except UnsupportedCall:
            continue
        yield name, request


def check_result(
    models_: Models,
    request: GenerationRequest,
    result: GenerationResult,
    mode: str,
    numbers: Mapping[str, Any],
    what: str,
) -> None:
    """Check a result for everything that its request asks for.

    Args:
        models_: the models.
        request: the request.
        result: its result.
        mode: one of `LOGPROBS_MODES`.
        numbers: proposer of `Definition`, where a counter-based RNG draws; else empty.
        what: name of the request in a message.
    """
    model = reference_model(models_.adapted.merged[request.lora_adapter])
    samples = (result, *result.samples)
    require(len(samples) == request.n, f"{what}: {len(samples)} samples, expected {request.n}")
    for sample in samples:
        check_text(models_, model, request, sample, what)
        told = 0 if request.logprobs is None else len(sample.token_ids)
        require(len(sample.logprobs) == told, f"{what}: {len(sample.logprobs)} log-probabilities, expected {told}")
        if told:
            check_entries(Text(what, model, request, sample.token_ids), sample.logprobs, mode)
    if mode == "raw":  # Engines differ on whether the other mode is one of prompts too.
        check_prompt_entries(model, request, result, what)
    limited = request.top_k or request.top_p < 1 or request.min_p
    if numbers and not request.greedy and not limited and result.steps:
        Definition(request, result.token_ids, model, **numbers).judge(result, what)


def check_text(
    models_: Models, model: ReferenceModel, request: GenerationRequest, result: GenerationResult, what: str
) -> None:
    """Check every token of a sample and its end: by a stop token, a stop string, an abort or max_tokens."""
    tokens = result.token_ids
    is_cut = result.finish_reason is FinishReason.ABORT
    if is_cut:
        require(
            request.abort_after is not None and len(tokens) >= request.abort_after,
            f"{what}: aborted after {len(tokens)} tokens, abort_after is {request.abort_after}",
        )
    if request.stop:
        stop = request.stop[-1]
        text, found, _ = models_.decode(tokens).partition(stop)
        require(result.text == text, f"{what} has the text {result.text!r}, expected {text!r} before {stop!r}")
        reason = result.finish_reason
        require(not found or reason is FinishReason.STOP, f"{what} finished by {reason} at {stop!r}, expected stop")
        is_cut |= bool(found)
    if is_cut and tokens:
        reason = FinishReason.STOP if tokens[-1] in stops_of(request) else FinishReason.LENGTH
        request, result = replace(request, max_tokens=len(tokens)), replace(result, finish_reason=reason)
    check_tokens(model, request, result, what)


def lookup_numbers(depth: int) -> dict[str, Any]:
    """Return the proposer of prompt lookup with its default limits, for `Definition`."""
    return {"most": depth, "known": lambda sequence: looked_up(sequence, 2, 4, depth)}
