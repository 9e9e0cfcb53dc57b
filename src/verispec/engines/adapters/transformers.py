"""Engine ``transformers``: its own generation, one request after the other, as an oracle of generation.

It has no kernels and no end-to-end sampler of flat batches; it generates with the methods none, ngram (prompt lookup)
and draft_model (assisted generation).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
import transformers

from verispec.engines import Description, Engine, Unsupported, UnsupportedCall
from verispec.engines.adapters.admission import Admission, OneByOne, Turn
from verispec.engines.adapters.offers import Offers
from verispec.engines.adapters.partial import PartialEngine
from verispec.engines.protocol.generation import (
    DTYPES,
    LOGPROBS_MODES,
    GenerationRequest,
    GenerationResult,
    LoadOptions,
    TokenLogprobs,
)
from verispec.engines.protocol.grammar import TokenGrammar, state_after
from verispec.reference.models import load_target

OFFERS = Offers(
    "transformers",
    ("none", "ngram", "draft_model"),
    options={
        "dtype": DTYPES,
        "logprobs_mode": LOGPROBS_MODES,
        "ngram_min": range(LoadOptions().ngram_min + 1),
        "ngram_max": range(1 << 20),
    },
    parameters=(
        *("top_k", "top_p", "min_p", "min_tokens", "repetition_penalty"),
        *("bad_words", "allowed_token_ids", "logit_bias", "grammar", "logprobs"),
    ),
    words={"n": "seeded samples of one prompt"},
)


class Transformers(PartialEngine):
    """The transformers installed here, as an engine."""

    lacks: ClassVar = {
        "op": "transformers has no kernels of speculative decoding",
        "sampler": "transformers has no sampler that takes a batch of drafts",
        "definitions": "transformers has no kernels of speculative decoding",
    }

    def __init__(self, device: str) -> None:
        self._device = device

    def describe(self) -> Description:
        """Return the identity of the installed transformers."""
        details = {"torch": torch.__version__}
        return Description("transformers", transformers.__version__, self._device, self._device, details)

    def load(self, target: Path, **options: Any) -> Any | Unsupported:
        """Return a generator over the checkpoint folder `target`; see `Engine.load`."""
        wanted = LoadOptions(**options)
        return OFFERS.lacks_option(wanted) or TransformersGenerator(target, wanted, self._device)


class TransformersGenerator(OneByOne):
    """`model.generate` behind the `Generator` protocol; batch size one, no paged cache, no preemption.

    Raises UnsupportedCall for drafts to a model whose recurrent states transformers cannot roll back.
    """

    def __init__(self, target: Path, options: LoadOptions, device: str) -> None:
        super().__init__(Admission(OFFERS, options, target))
        dtype: torch.dtype = getattr(torch, options.dtype)
        self._options = options
        self._model = load_target(target, dtype, device)
        if options.method != "none" and self._model._is_stateful:
            raise UnsupportedCall(
                f"transformers does not draft for recurrent models, such as {type(self._model).__name__}"
            )
        self._assistant = load_target(options.draft, dtype, device) if options.draft else None
        if self._assistant is not None:
            sizes = [model.config.get_text_config().vocab_size for model in (self._model, self._assistant)]
            if sizes[0] != sizes[1]:  # its `generate` refuses them before it draws a token
                raise UnsupportedCall(
                    f"a draft model with a vocabulary of {sizes[1]} tokens; the target has {sizes[0]}"
                )
            self._assistant.generation_config.num_assistant_tokens = options.max_drafts
            self._assistant.generation_config.num_assistant_tokens_schedule = "constant"
            self._assistant.generation_config.assistant_confidence_threshold = 0.0

    def lacks(self, request: GenerationRequest) -> Iterable[tuple[object, str]]:
        """Return parameters that transformers does not have together, or applies in another order.

        Raises:
            UnsupportedCall: a bias of an unknown token, in the words of transformers' own check.
        """
        if request.logit_bias:
            try:
                row = torch.zeros(1, self.admission.vocab_size)
                transformers.SequenceBiasLogitsProcessor(_biases(request))(torch.zeros(1, 1, dtype=torch.long), row)
            except ValueError as refusal:
                raise UnsupportedCall(f"logit_bias: {refusal}") from refusal
        # They become a function that transformers calls; ids that it returns are not checked.
        unknown = [token for token in request.allowed_token_ids or () if token >= self.admission.vocab_size]
        return (
            (unknown, f"tokens {unknown} of allowed_token_ids"),
            (request.grammar is not None and request.allowed_token_ids, "grammar beside allowed token ids"),
            (request.min_p and request.top_p < 1, "min-p before top-p: it applies top-p first"),
        )

    def run(self, turn: Turn) -> GenerationResult:
        """Return the text of `model.generate`."""
        request, mode = turn.request, self._options.logprobs_mode
        torch.manual_seed(turn.seed)
        with torch.inference_mode():
            output = self._model.generate(
                torch.tensor([request.prompt_token_ids], device=self._model.device),
                return_dict_in_generate=True,
                output_logits=request.logprobs is not None and mode == "raw",
                output_scores=request.logprobs is not None and mode == "processed",
                max_new_tokens=turn.most,
                eos_token_id=sorted(turn.stops) or None,
                pad_token_id=0,
                **self._speculation(),
                **_sampling(request),
            )
        token_ids = output.sequences[0, len(request.prompt_token_ids) :].tolist()
        logits = output.logits if output.logits is not None else output.scores
        return turn.result(token_ids, _logprobs(logits, token_ids, request.logprobs))

    def _speculation(self) -> dict[str, Any]:
        if self._options.method == "ngram":
            return {
                "prompt_lookup_num_tokens": self._options.max_drafts,
                "max_matching_ngram_size": self._options.ngram_max,
            }
        return {} if self._assistant is None else {"assistant_model": self._assistant}


def _sampling(request: GenerationRequest) -> dict[str, Any]:
    """Return a request's parameters under transformers' names, without parameters that it does not use."""
    wanted: dict[str, Any] = {"do_sample": not request.greedy}
    if not request.greedy:
        wanted |= {"temperature": request.temperature, "top_k": request.top_k, "top_p": request.top_p}
        wanted |= {"min_p": request.min_p} if request.min_p else {}
    if request.repetition_penalty != 1:
        wanted["repetition_penalty"] = request.repetition_penalty
    if request.bad_words:
        wanted["bad_words_ids"] = [list(word) for word in request.bad_words]
    if request.allowed_token_ids:
        allowed = list(request.allowed_token_ids)
        wanted["prefix_allowed_tokens_fn"] = lambda batch, ids: allowed
    if request.grammar is not None:
        wanted["prefix_allowed_tokens_fn"] = _followed(request.grammar, len(request.prompt_token_ids))
    if request.logit_bias:
        wanted["sequence_bias"] = _biases(request)
    if request.min_tokens:
        wanted["min_new_tokens"] = request.min_tokens
    return wanted


def _biases(request: GenerationRequest) -> list[list[Any]]:
    """Return biases in the form of transformers: of a sequence of one token each."""
    return [[[token], bias] for token, bias in request.logit_bias.items()]


def _followed(grammar: TokenGrammar, prompt_length: int) -> Callable[[int, torch.Tensor], list[int]]:
    """Return transformers' function of the tokens that may follow.

    A row behind a draft outside of the grammar is never used; it gets the tokens of the first state.
    """

    def following(batch: int, ids: torch.Tensor) -> list[int]:
        state = state_after(grammar, ids[prompt_length:].tolist())
        return list(grammar.allowed(grammar.start() if state is None else state))

    return following


def _logprobs(
    logits: Sequence[torch.Tensor] | None, token_ids: Sequence[int], top: int | None
) -> tuple[TokenLogprobs, ...]:
    if logits is None or top is None:
        return ()
    rows = []
    for row, token in zip(logits, token_ids, strict=True):
        logprobs = torch.log_softmax(row[0].float(), dim=-1)
        values, ids = logprobs.topk(min(top, len(logprobs)))
        rows.append(TokenLogprobs(float(logprobs[token]), tuple(zip(ids.tolist(), values.tolist(), strict=True))))
    return tuple(rows)


def create(device: str | None = None) -> Engine:
    """Return the installed transformers on `device` ("cpu" if None)."""
    return Transformers(device or "cpu")
