"""Servers whose engine has one fault in verification: it acts where drafts are verified, or are accepted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from own_server import OwnServer

from verispec.engines.protocol.generation import LoadOptions
from verispec.reference.runners import verification
from verispec.reference.runners.cpu import CPURunner
from verispec.reference.runners.sampling import FlatSampling, sampling_tensors
from verispec.reference.runners.scheduler import Scheduled
from verispec.reference.sampler.flat import SamplingTensors
from verispec.reference.sampler.processors import TokenHistory, process_logits


class _Sampling(FlatSampling):
    """The sampling of a runner, with methods to change parameters, logits and tokens of a step."""

    def sample(self, logits: torch.Tensor, parts: Sequence[Scheduled]) -> torch.Tensor:
        requests = [part.request for part in parts]
        params = self.params(sampling_tensors(requests, logits), parts, logits)
        generators = [request.generator for request in requests]
        before = logits.clone()
        sampled = self._sampler.sample(logits, self._drafts(logits, parts), params, generators)
        return self.tokens(sampled, before, parts)

    def params(self, params: SamplingTensors, parts: Sequence[Scheduled], logits: torch.Tensor) -> SamplingTensors:
        return params

    def tokens(self, sampled: torch.Tensor, logits: torch.Tensor, parts: Sequence[Scheduled]) -> torch.Tensor:
        """Return the tokens [B, k + 1] of a step; `logits` are those before temperature and limits."""
        return sampled


class _Server(OwnServer):
    Sampling: type[_Sampling]

    def make_runner(self, options: LoadOptions) -> CPURunner:
        runner = super().make_runner(options)
        runner._sampling = self.Sampling(runner._upload, options, runner.device)
        return runner


def drafting(parts: Sequence[Scheduled]) -> torch.Tensor:
    return torch.tensor([part.num_drafts > 0 for part in parts])


class LimitsIgnoredWithDrafts(_Server):
    """top-k and top-p are ignored in steps with drafts."""

    class Sampling(_Sampling):
        def params(self, params: SamplingTensors, parts: Any, logits: torch.Tensor) -> SamplingTensors:
            return replace(params, top_k=None, top_p=None) if drafting(parts).any() else params


class TopPIgnoredWithDrafts(_Server):
    """top-p is ignored for requests with drafts."""

    class Sampling(_Sampling):
        def params(self, params: SamplingTensors, parts: Any, logits: torch.Tensor) -> SamplingTensors:
            if params.top_p is None:
                return params
            return replace(params, top_p=torch.where(drafting(parts), torch.ones(()), params.top_p))


class MinPIgnoredWithDrafts(_Server):
    """min-p is ignored for requests with drafts."""

    class Sampling(_Sampling):
        def params(self, params: SamplingTensors, parts: Any, logits: torch.Tensor) -> SamplingTensors:
            return replace(params, min_p=None) if drafting(parts).any() else params


class TemperatureIgnoredWithDrafts(_Server):
    """Requests with drafts have the temperature 1."""

    class Sampling(_Sampling):
        def params(self, params: SamplingTensors, parts: Any, logits: torch.Tensor) -> SamplingTensors:
            hot = drafting(parts) & (params.temperature > 0)
            return replace(params, temperature=torch.where(hot, torch.ones(()), params.temperature))


class TopPBeforeTemperature(_Server):
    """top-p is applied to the distribution of temperature 1."""

    class Sampling(_Sampling):
        def params(self, params: SamplingTensors, parts: Any, logits: torch.Tensor) -> SamplingTensors:
            if params.top_p is None:
                return params
            row = 0
            for part, top_p, temperature in zip(parts, params.top_p.tolist(), params.temperature.tolist(), strict=True):
                rows = logits[row : row + part.num_drafts + 1]
                row += part.num_drafts + 1
                if top_p < 1 and temperature > 0:
                    p, order = torch.softmax(rows, dim=-1).sort(dim=-1, descending=True)
                    out = (p.cumsum(-1) - p) >= top_p
                    rows.masked_fill_(torch.zeros_like(out).scatter(1, order, out), float("-inf"))
            return replace(params, top_p=None)


class BonusGreedy(_Server):
    """The token after drafts that were all accepted is the most likely one."""

    class Sampling(_Sampling):
        def tokens(self, sampled: torch.Tensor, logits: torch.Tensor, parts: Any) -> torch.Tensor:
            row = -1
            for place, part in enumerate(parts):
                row += part.num_drafts + 1
                if part.num_drafts and sampled[place, part.num_drafts] >= 0:
                    sampled[place, part.num_drafts] = logits[row].argmax()
            return sampled


class RecoveredGreedy(_Server):
    """The token at a rejected draft is the most likely one."""

    class Sampling(_Sampling):
        def tokens(self, sampled: torch.Tensor, logits: torch.Tensor, parts: Any) -> torch.Tensor:
            start = 0
            for place, part in enumerate(parts):
                count = int((sampled[place] >= 0).sum())
                if count <= part.num_drafts:
                    sampled[place, count - 1] = logits[start + count - 1].argmax()
                start += part.num_drafts + 1
            return sampled


class RecoveredFromTarget(_Server):
    """The token at a rejected draft is drawn from the target's own distribution, not from what is left of it."""

    class Sampling(_Sampling):
        def tokens(self, sampled: torch.Tensor, logits: torch.Tensor, parts: Any) -> torch.Tensor:
            start = 0
            for place, part in enumerate(parts):
                count, request = int((sampled[place] >= 0).sum()), part.request
                if count <= part.num_drafts and not request.params.greedy:
                    row = logits[start + count - 1] / request.params.temperature
                    drawn = torch.multinomial(row.softmax(-1), 1, generator=request.generator)
                    sampled[place, count - 1] = drawn[0]
                start += part.num_drafts + 1
            return sampled


class Typical(_Server):
    """A draft whose probability is above 0.2 is accepted."""

    class Sampling(_Sampling):
        def sample(self, logits: torch.Tensor, parts: Any) -> torch.Tensor:
            row = 0
            for part in parts:
                for token in part.draft_token_ids:
                    if not part.request.params.greedy and logits[row].softmax(-1)[token] > 0.2:
                        logits[row] = float("-inf")
                        logits[row, token] = 0
                    row += 1
                row += 1
            return super().sample(logits, parts)


class GreedyAcceptance(_Server):
    """A greedy request accepts a draft among the three most likely tokens."""

    class Sampling(_Sampling):
        def greedy(self, logits: torch.Tensor, parts: Any) -> torch.Tensor:
            row = 0
            for part in parts:
                for token in part.draft_token_ids:
                    if token in logits[row].topk(3).indices:
                        logits[row, token] = logits[row].max() + 1
                    row += 1
                row += 1
            return super().greedy(logits, parts)


class _Processed(OwnServer):
    """Base of servers that process logits otherwise, request by request."""

    @contextmanager
    def served(self) -> Iterator[str]:
        with patch.object(verification, "process_logits", self._all), super().served() as address:
            yield address

    def _all(self, logits: torch.Tensor, histories: Sequence[TokenHistory], drafts: Sequence[list[int]]) -> None:
        row = 0
        for history, proposed in zip(histories, drafts, strict=True):
            self.one(logits[row : row + len(proposed) + 1], history, proposed)
            row += len(proposed) + 1

    def one(self, rows: torch.Tensor, history: TokenHistory, drafts: list[int]) -> None:
        """Process the rows of a request, those of its drafts and the one after them."""
        raise NotImplementedError


class PenaltiesWithoutDrafts(_Processed):
    """Penalties do not count the drafts before a place."""

    def one(self, rows: torch.Tensor, history: TokenHistory, drafts: list[int]) -> None:
        for row in rows:
            process_logits(row[None], [history], [[]])


class PenaltiesOfAllDrafts(_Processed):
    """Penalties count all drafts of a step at each of its places."""

    def one(self, rows: torch.Tensor, history: TokenHistory, drafts: list[int]) -> None:
        counted = replace(history, output_token_ids=[*history.output_token_ids, *drafts])
        for row in rows:
            process_logits(row[None], [counted], [[]])


class PenaltiesOfPrompt(_Processed):
    """Presence and frequency penalties count the prompt."""

    def one(self, rows: torch.Tensor, history: TokenHistory, drafts: list[int]) -> None:
        text = [*history.params.prompt_token_ids, *history.output_token_ids]
        process_logits(rows, [replace(history, output_token_ids=text)], [drafts])


class PromptNotRepeated(_Processed):
    """The repetition penalty counts only the last token of the prompt."""

    def one(self, rows: torch.Tensor, history: TokenHistory, drafts: list[int]) -> None:
        params = replace(history.params, prompt_token_ids=history.params.prompt_token_ids[-1:])
        process_logits(rows, [replace(history, params=params)], [drafts])


class FrequencyIsPresence(_Processed):
    """A frequency penalty counts each token once."""

    def one(self, rows: torch.Tensor, history: TokenHistory, drafts: list[int]) -> None:
        output = list(history.output_token_ids)
        for place, row in enumerate(rows):
            once = list(dict.fromkeys([*output, *drafts[:place]]))
            process_logits(row[None], [replace(history, output_token_ids=once)], [[]])


class BiasAtBonusOnly(_Processed):
    """Biases and penalties change the row after all drafts alone."""

    def one(self, rows: torch.Tensor, history: TokenHistory, drafts: list[int]) -> None:
        process_logits(rows[-1:], [history], [[]])


class PenaltiesIgnoredWhenSampled(_Processed):
    """Penalties and biases change greedy requests alone."""

    def one(self, rows: torch.Tensor, history: TokenHistory, drafts: list[int]) -> None:
        if history.params.greedy:
            process_logits(rows, [history], [drafts])


class _OneStep(_Sampling):
    """Base of samplings that seed a request's numbers before each step."""

    def sample(self, logits: torch.Tensor, parts: Any) -> torch.Tensor:
        for n, part in enumerate(parts):
            part.request.generator.manual_seed(self.seed(n, part))
        return super().sample(logits, parts)

    def seed(self, place: int, part: Scheduled) -> int:
        raise NotImplementedError


class SameNumbersEachStep(_Server):
    """Each step draws the same random numbers anew."""

    class Sampling(_OneStep):
        def seed(self, place: int, part: Scheduled) -> int:
            return part.request.seed


class NumbersOfStep(_Server):
    """A request's numbers depend on its place in the batch after its first step."""

    class Sampling(_OneStep):
        def seed(self, place: int, part: Scheduled) -> int:
            return part.request.seed * 1000 + len(part.request.kinds) + (place if part.request.kinds else 0)


class LastOfBatchIsFirst(_Server):
    """In batches above eight the last request's tokens are those of the distribution of the first one's last row."""

    class Sampling(_Sampling):
        def greedy(self, logits: torch.Tensor, parts: Any) -> torch.Tensor:
            if len(parts) > 8:
                logits[-1] = logits[parts[0].num_drafts]
            return super().greedy(logits, parts)

        def sample(self, logits: torch.Tensor, parts: Any) -> torch.Tensor:
            if len(parts) > 8:
                logits[-1] = logits[parts[0].num_drafts]
            return super().sample(logits, parts)


class HotGreedyBesideSampled(_Server):
    """A greedy request with drafts beside a sampled one is drawn at temperature 0.7."""

    class Sampling(_Sampling):
        def params(self, params: SamplingTensors, parts: Any, logits: torch.Tensor) -> SamplingTensors:
            greedy = (params.temperature == 0) & drafting(parts)
            if not (params.temperature > 0).any():
                return params
            return replace(params, temperature=torch.where(greedy, torch.tensor(0.7), params.temperature))


class LongTextsDrift(OwnServer):
    """Positions beyond 96 stand still."""

    def make_runner(self, options: LoadOptions) -> CPURunner:
        runner = super().make_runner(options)
        prepare = runner._prepare

        def stand(scheduled: Any) -> Any:
            inputs = prepare(scheduled)
            inputs.position_ids.clamp_(max=96)
            return inputs

        runner._prepare = stand  # type: ignore[method-assign]
        return runner
