"""Servers whose streams have one fault each; their answers in one piece are right."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from own_server import OwnServer

from verispec.engines.protocol.generation import GenerationRequest, GenerationResult

Pieces = list[dict[str, Any]]


class TokenLostAtTheBorder(OwnServer):
    """A piece of several tokens lacks its last token and that token's text."""

    def make_pieces(self, choice: Mapping[str, Any], sample: GenerationResult) -> Pieces:
        pieces = super().make_pieces(choice, sample)
        for piece in pieces:
            if len(ids := piece["token_ids"]) > 1:
                lost = self.decode(ids[-1:])
                piece |= {"token_ids": ids[:-1], "text": piece["text"].removesuffix(lost)}
        return pieces


class PieceTwice(OwnServer):
    """The first piece of several tokens is sent twice."""

    def make_pieces(self, choice: Mapping[str, Any], sample: GenerationResult) -> Pieces:
        pieces = super().make_pieces(choice, sample)
        place = next((n for n, piece in enumerate(pieces[:-1]) if len(piece["token_ids"]) > 1), None)
        return pieces if place is None else [*pieces[:place], pieces[place], *pieces[place:]]


class BytesCut(OwnServer):
    """Each piece is decoded alone, so that a character of several tokens falls apart."""

    def make_pieces(self, choice: Mapping[str, Any], sample: GenerationResult) -> Pieces:
        pieces = super().make_pieces(choice, sample)
        return [piece | {"text": self.decode(piece["token_ids"])} for piece in pieces] if not sample.text else pieces


class NoReasonInStreams(OwnServer):
    """No piece has a finish reason."""

    def make_pieces(self, choice: Mapping[str, Any], sample: GenerationResult) -> Pieces:
        return [piece | {"finish_reason": None} for piece in super().make_pieces(choice, sample)]


class ReasonTooEarly(OwnServer):
    """The finish reason comes one piece before the last text."""

    def make_pieces(self, choice: Mapping[str, Any], sample: GenerationResult) -> Pieces:
        pieces = super().make_pieces(choice, sample)
        if len(pieces) > 1:
            pieces[-2]["finish_reason"] = pieces[-1]["finish_reason"]
            pieces[-1]["finish_reason"] = None
        return pieces


class FirstLogprobOfPiece(OwnServer):
    """Only the first token of each piece has its log-probability; the others repeat it."""

    def make_pieces(self, choice: Mapping[str, Any], sample: GenerationResult) -> Pieces:
        pieces = super().make_pieces(choice, sample)
        for piece in pieces:
            if told := piece["logprobs"]:
                piece["logprobs"] = {name: column[:1] * len(column) for name, column in told.items()}
        return pieces


class PiecesCounted(OwnServer):
    """The usage of a stream counts pieces."""

    def make_events(self, pieces: Pieces, usage: Mapping[str, int]) -> list[str]:
        return super().make_events(pieces, {**usage, "completion_tokens": len(pieces)})


class NoEndMark(OwnServer):
    """A stream closes without its mark."""

    def make_events(self, pieces: Pieces, usage: Mapping[str, int]) -> list[str]:
        return super().make_events(pieces, usage)[:-1]


class SamplesSwapped(OwnServer):
    """The pieces of several samples alternate, and the second piece of each has the other's index."""

    def make_events(self, pieces: Pieces, usage: Mapping[str, int]) -> list[str]:
        count = 1 + max(piece["index"] for piece in pieces)
        by_index = [[piece for piece in pieces if piece["index"] == index] for index in range(count)]
        for index, own in enumerate(by_index):
            if len(own) > 2:
                own[1] = own[1] | {"index": (index + 1) % count}
        return super().make_events([piece for own in by_index for piece in own], usage)


class StopBegun(OwnServer):
    """A stream sends the beginning of its stop string, which another piece completes."""

    def make_pieces(self, choice: Mapping[str, Any], sample: GenerationResult) -> Pieces:
        pieces = super().make_pieces(choice, sample)
        if sample.text and choice["finish_reason"] == "stop":
            whole = self.decode(sample.token_ids)
            pieces[-1]["text"] += whole[len(sample.text) : len(sample.text) + 1]
        return pieces


class LastPieceLost(OwnServer):
    """A stream that ends by its length lacks the text of its last piece if that has several tokens."""

    def make_pieces(self, choice: Mapping[str, Any], sample: GenerationResult) -> Pieces:
        pieces = super().make_pieces(choice, sample)
        if choice["finish_reason"] == "length" and len(pieces[-1]["token_ids"]) > 1:
            pieces[-1] |= {"text": "", "token_ids": []}
        return pieces


class StreamsDrawAnew(OwnServer):
    """A streamed request ignores its seed."""

    def make_request(self, body: Mapping[str, Any]) -> GenerationRequest:
        return super().make_request({**body, "seed": None} if body.get("stream") else body)


class StreamsLogprobsLate(OwnServer):
    """The log-probabilities of a stream are those of the token before."""

    def make_events(self, pieces: Pieces, usage: Mapping[str, int]) -> list[str]:
        told = [piece["logprobs"] for piece in pieces if piece["logprobs"]]
        values = [value for one in told for value in one["token_logprobs"]]
        values = values[:1] + values[:-1]
        for one in told:
            one["token_logprobs"] = [values.pop(0) for _ in one["token_logprobs"]]
        return super().make_events(pieces, usage)


class ErrorInStream(OwnServer):
    """A stream longer than 16 tokens ends with an error event."""

    def make_events(self, pieces: Pieces, usage: Mapping[str, int]) -> list[str]:
        events = super().make_events(pieces, usage)
        if usage["completion_tokens"] <= 16:
            return events
        return [*events[:-2], json.dumps({"error": {"message": "engine is dead"}}), *events[-2:]]


class StreamsAbove16(OwnServer):
    """Of 16 streams in flight and more, two exchange their texts."""

    def make_results(self, requests: Any, results: list[GenerationResult]) -> list[GenerationResult]:
        if len(results) >= 16:
            first, second = results[2], results[4]
            results[2] = replace(second, finish_reason=first.finish_reason)
            results[4] = replace(first, finish_reason=second.finish_reason)
        return results


class LastLetterHeld(OwnServer):
    """A stream with stop strings holds its last letter back for ever if it ends by its length."""

    def make_pieces(self, choice: Mapping[str, Any], sample: GenerationResult) -> Pieces:
        pieces = super().make_pieces(choice, sample)
        if sample.text and choice["finish_reason"] == "length":
            pieces[-1]["text"] = pieces[-1]["text"][:-1]
        return pieces
