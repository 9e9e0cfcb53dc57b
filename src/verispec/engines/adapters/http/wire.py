"""Requests and answers of the completions API as JSON, in the dialects of the servers that were tried.

A server ignores fields that it does not know. A parameter is therefore sent only if the dialect has it. Any
other is refused here, so that no server fails by a feature that it does not offer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verispec.engines import UnsupportedCall
from verispec.engines.adapters.http.client import ServerFault
from verispec.engines.protocol.generation import GenerationRequest, TokenLogprobs
from verispec.engines.protocol.serving import Answer, Choice

Json = Mapping[str, Any]

COMMON = {
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "stop": "stop",
    "n": "n",
    "logprobs": "logprobs",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "logit_bias": "logit_bias",
}
"""Fields of a request by their name in the API itself."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The parameters of one kind of server.

    Attributes:
        fields: names in a body by field of `GenerationRequest`.
        always: sent with every request.
        explicit: fields that are sent even at their default, because the server's own default is another.
        token_prompts: True if a prompt may be a list of token ids.
        refusals: reasons for fields that the server has with another meaning.
        most_logprobs: most likely tokens that it reports at most; 0 for none.
        logprobs_mode: one of `LOGPROBS_MODES`, as the server's documentation says; empty without one.
    """

    fields: Mapping[str, str]
    always: Json = field(default_factory=dict)
    explicit: tuple[str, ...] = ("temperature",)
    token_prompts: bool = True
    refusals: Mapping[str, str] = field(default_factory=dict)
    most_logprobs: int = 5
    logprobs_mode: str = ""


_VLLM = ("top_k", "min_p", "stop_token_ids", "ignore_eos", "min_tokens", "repetition_penalty", "allowed_token_ids")

DIALECTS: Mapping[str, Dialect] = {
    "openai": Dialect(COMMON),
    "vllm": Dialect(
        COMMON | {name: name for name in (*_VLLM, "prompt_logprobs")},
        {"return_token_ids": True, "return_tokens_as_token_ids": True},
        # A checkpoint's generation_config may set defaults of its own.
        explicit=("temperature", "top_k", "top_p", "min_p", "repetition_penalty"),
        most_logprobs=20,
        logprobs_mode="raw",
    ),
    "llama.cpp": Dialect(
        {name: name for name in COMMON if not name.endswith("penalty")}
        | {"top_k": "top_k", "min_p": "min_p", "repetition_penalty": "repeat_penalty"},
        {
            "logprobs": 1,  # Token ids come with log-probabilities alone.
            "cache_prompt": False,
            "repeat_last_n": 65536,  # Some versions refuse -1, the whole text.
            "samplers": ["penalties", "temperature", "min_p", "top_k", "top_p"],
        },
        explicit=("temperature", "top_k", "top_p", "min_p", "repetition_penalty"),
        refusals=dict.fromkeys(("presence_penalty", "frequency_penalty"), "llama.cpp counts the prompt's tokens too")
        | {"ignore_eos": "llama.cpp's ignore_eos forbids the end token, so that another token takes its place"},
        most_logprobs=20,
        logprobs_mode="raw",
    ),
    "transformers": Dialect(
        {name: name for name in ("temperature", "top_p", "seed", "stop")},
        token_prompts=False,
        most_logprobs=0,
    ),
}
"""By the name in an address; the keys are `address.DIALECTS`."""


def dialect_of(models: Json) -> str:
    """Return the dialect of a server.

    Args:
        models: the server's answer to ``/v1/models``, whose ``owned_by`` names the kind of server.

    Returns:
        A key of `DIALECTS`; "openai" when the answer shows none.
    """
    owners = {str(entry.get("owned_by", "")).lower() for entry in models.get("data", ()) if isinstance(entry, dict)}
    return next((name for owner, name in _OWNERS.items() if owner in owners), "openai")


_OWNERS = {"vllm": "vllm", "llamacpp": "llama.cpp"}


def body_of(
    request: GenerationRequest, dialect: Dialect, model: str, decode: Callable[[Sequence[int]], str]
) -> dict[str, Any]:
    """Return the body of a request.

    Args:
        request: request to send.
        dialect: the server's.
        model: its name for the model.
        decode: function from token ids to text, for a server that takes no token ids.

    Raises:
        UnsupportedCall: the dialect has no such parameter.
    """
    prompt = list(request.prompt_token_ids) if dialect.token_prompts else decode(request.prompt_token_ids)
    body: dict[str, Any] = {"model": model, "prompt": prompt, "max_tokens": request.max_tokens, **dialect.always}
    for name in GenerationRequest.__dataclass_fields__:
        if name in ("prompt_token_ids", "max_tokens", "abort_after"):
            continue
        value = getattr(request, name)
        if value != _DEFAULTS[name] or name in dialect.explicit:
            if name not in dialect.fields:
                raise UnsupportedCall(dialect.refusals.get(name, f"the server's API has no {name}"))
            body[dialect.fields[name]] = _json(value)
    if least := dialect.always.get("logprobs"):
        body["logprobs"] = max(least, body["logprobs"])
    return body


_DEFAULTS = {name: getattr(GenerationRequest((0,)), name) for name in GenerationRequest.__dataclass_fields__}


def _json(value: Any) -> Any:
    """Token ids are the keys of a bias; JSON has text alone there."""
    if isinstance(value, Mapping):
        return {str(key): entry for key, entry in value.items()}
    return list(value) if isinstance(value, tuple) else value


def answer_of(text: str, request: GenerationRequest, names: Mapping[str, int] | None = None) -> Answer:
    """Return an answer that came in one piece.

    Args:
        text: body of the answer, as JSON.
        request: the request that it answers.
        names: ids by the text of a token, for a server that writes no ids.

    Raises:
        ServerFault: V-HTTP-ANSWER, the body does not follow the API.
    """
    parts = _Parts(request, names or {})
    parts.add(_object(text))
    return parts.answer(ended=True)


def streamed_answer(
    lines: Iterable[bytes], request: GenerationRequest, names: Mapping[str, int] | None = None
) -> Answer:
    """Return a streamed answer; stop reading after `request.abort_after` pieces.

    Args:
        lines: lines of the answer, as server-sent events.
        request: the request that they answer.
        names: ids by the text of a token, for a server that writes no ids.

    Raises:
        ServerFault: V-HTTP-ANSWER, an event does not follow the API.
    """
    parts, ended = _Parts(request, names or {}), False
    for data in _events(lines):
        if data == "[DONE]":
            ended = True
            continue
        if ended:
            raise _malformed("an event came after [DONE]", data)
        parts.add(_object(data))
        if request.abort_after is not None and parts.most_tokens() >= request.abort_after:
            break
    return parts.answer(ended=ended)


def _events(lines: Iterable[bytes]) -> Iterator[str]:
    """Yield the data of server-sent events; comments and other fields are skipped."""
    data: list[str] = []
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            yield "\n".join(data)
            data = []
    if data:
        yield "\n".join(data)


class _Parts:
    """An answer while its parts arrive."""

    def __init__(self, request: GenerationRequest, names: Mapping[str, int]) -> None:
        self._names = names
        self._top = request.logprobs
        self._request = request
        self._texts: dict[int, list[str]] = {}
        self._tokens: dict[int, list[int]] = {}
        self._logprobs: dict[int, list[TokenLogprobs]] = {}
        self._reasons: dict[int, str] = {}
        self._untold: set[int] = set()
        self._late: set[int] = set()
        self._usage: Json = {}
        self._prompt: tuple[TokenLogprobs | None, ...] = ()

    def add(self, part: Json) -> None:
        """Add one JSON object. Raises ServerFault V-HTTP-ANSWER."""
        if part.get("error"):
            raise _malformed("an error came in the middle of an answer", json.dumps(part["error"]))
        try:
            for choice in part.get("choices") or ():
                self._add_choice(choice)
            self._usage = part.get("usage") or self._usage
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _malformed(f"{type(error).__name__} {error}", json.dumps(part)) from error

    def _add_choice(self, choice: Json) -> None:
        index = int(choice.get("index", 0))
        if index in self._reasons and (choice.get("text") or choice.get("token_ids")):
            self._late.add(index)
        self._texts.setdefault(index, []).append(choice.get("text") or "")
        if reason := choice.get("finish_reason"):
            self._reasons[index] = str(reason)
        told = choice.get("logprobs")
        entries = list(_entries(told, self._top, self._names)) if told else []
        ids = choice.get("token_ids")
        if ids is None and entries and all(token is not None for token, _ in entries):
            ids = [token for token, _ in entries]
        if ids is None and choice.get("text"):
            self._untold.add(index)  # Such as accepted drafts in a stream: the ids that came are not all of them.
        if ids is not None:
            self._tokens.setdefault(index, []).extend(int(token) for token in ids)
        if self._top is not None:
            self._logprobs.setdefault(index, []).extend(entry for _, entry in entries)
        if rows := choice.get("prompt_logprobs"):
            tokens = zip(self._request.prompt_token_ids, rows, strict=True)
            self._prompt = tuple(row and _of_row(token, row, self._request.prompt_logprobs) for token, row in tokens)

    def most_tokens(self) -> int:
        """Return how many tokens, or pieces where no tokens are reported, the longest sample has."""
        longest = [len(self._tokens.get(index, pieces)) for index, pieces in self._texts.items()]
        return max(longest, default=0)

    def answer(self, *, ended: bool) -> Answer:
        """Return the added text."""
        if not self._texts:
            raise _malformed("an answer has no choices", "")
        choices = tuple(
            Choice(
                "".join(self._texts[index]),
                tuple(self._tokens[index]) if index in self._tokens.keys() - self._untold else None,
                self._reasons.get(index, ""),
                tuple(self._logprobs.get(index, ())),
                tuple(self._texts[index]),
                index in self._late,
            )
            for index in sorted(self._texts)
        )
        usage = self._usage
        return Answer(
            choices,
            usage.get("prompt_tokens"),
            usage.get("completion_tokens"),
            usage.get("total_tokens"),
            ended=ended,
            prompt_logprobs=self._prompt,
        )


def _entries(told: Json, top: int | None, names: Mapping[str, int]) -> Iterator[tuple[int | None, TokenLogprobs]]:
    """Yield the token and the log-probabilities of each place, in either of the two forms that servers use."""
    if "content" in told:
        for entry in told["content"] or ():
            ranked = [(int(other.get("id", -1)), float(other["logprob"])) for other in entry["top_logprobs"]]
            yield entry.get("id"), _ranked(float(entry["logprob"]), ranked, top)
        return
    tops = told.get("top_logprobs") or [{}] * len(told["tokens"])
    for token, value, row in zip(told["tokens"], told["token_logprobs"], tops, strict=True):
        ranked = [(_id(name, names), float(logprob)) for name, logprob in (row or {}).items()]
        known = _id(token, names)
        yield None if known < 0 else known, _ranked(float(value), ranked, top)


def _id(name: str, names: Mapping[str, int]) -> int:
    """Return the id in ``token_id:123``, or that of a token written as text; -1 for an unknown one."""
    head, colon, number = str(name).rpartition(":")
    return int(number) if head == "token_id" and colon and number.isdigit() else names.get(name, -1)


def _ranked(own: float, ranked: list[tuple[int, float]], top: int | None) -> TokenLogprobs:
    """Return one entry; a server adds the sampled token where it is not among the most likely ones."""
    ranked.sort(key=lambda entry: -entry[1])
    return TokenLogprobs(own, tuple(ranked[: top or 0]))


def _of_row(token: int, row: Json, top: int | None) -> TokenLogprobs:
    ranked = [(int(other), float(entry["logprob"])) for other, entry in row.items()]
    return _ranked(float(row[str(token)]["logprob"]), ranked, top)


def _object(text: str) -> Json:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise _malformed("it is not JSON", text) from error
    if not isinstance(found, dict):
        raise _malformed("it is no JSON object", text)
    return found


def _malformed(reason: str, text: str) -> ServerFault:
    return ServerFault("V-HTTP-ANSWER", f"the server's answer cannot be read: {reason}", cause=text[:300])
