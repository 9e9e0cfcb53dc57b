"""Two Markov chains, a target and a draft model, spoken by the request-state sampler with its own drafting.

Run as a program it prints tokens drawn in Triton's interpreter, which needs a process of its own.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

import torch

from verispec.reference.sampler.drafting import sample_drafts_by_seed
from verispec.reference.sampler.request_state import RequestRows, RequestStates, RequestStateSampler


@dataclass(frozen=True)
class Chains:
    """Logits of the next token by the last one, [V, V] each; every sequence follows token 0."""

    target: torch.Tensor
    draft: torch.Tensor

    @classmethod
    def random(cls, vocab: int, seed: int) -> Chains:
        generator = torch.Generator().manual_seed(seed)
        target = 2 * torch.randn(vocab, vocab, generator=generator)
        return cls(target, target + 1.5 * torch.randn(vocab, vocab, generator=generator))


def speak(
    chains: Chains,
    seeds: list[int],
    length: int,
    *,
    temperature: float = 0.8,
    drafts: int = 2,
    block: bool = False,
    one_hot: bool = False,
    device: str = "cpu",
) -> tuple[list[list[int]], float]:
    """At least `length` tokens of one request a seed, and how many drafts were accepted a verification on average.

    States are the places of the requests in reverse. With `one_hot` a draft is the draft model's most likely token.
    """
    place, count = torch.device(device), len(seeds)
    owners = list(range(count))[::-1]
    idx_mapping = torch.tensor(owners, dtype=torch.int32, device=place)
    vocab = chains.target.shape[0]
    cache = torch.zeros(count, drafts, vocab, device=place)
    states = RequestStates(
        torch.full((count,), temperature, device=place),
        torch.tensor(seeds, dtype=torch.int64).flip(0).to(place),
        draft_logits=None if one_hot else cache,
    )
    sampler = RequestStateSampler(block_verification=block)
    target, draft = chains.target.to(place), chains.draft.to(place)
    sequences: list[list[int]] = [[0] for _ in seeds]
    accepted = verified = 0
    while min(map(len, sequences)) <= length:
        inputs = [torch.tensor([tokens[-1] for tokens in sequences], device=place)]
        starts = [len(tokens) - 1 for tokens in sequences]
        for step in range(drafts):
            logits = draft[inputs[-1]]
            if one_hot:
                inputs.append(logits.argmax(dim=1))
                continue
            pos = torch.tensor(starts, device=place) + step
            drawn = sample_drafts_by_seed(
                logits,
                idx_mapping=idx_mapping,
                temperature=states.temperature,
                seed=states.seed,
                pos=pos,
                step=step,
                draft_logits=cache,
            )
            inputs.append(drawn)
        rows = RequestRows.of(torch.stack(inputs, dim=1).tolist(), starts, owners, place)
        sampled = sampler.sample(target[rows.draft_sampled.long()], rows, states)
        counts = sampled.counts.tolist()
        for tokens, row, emitted in zip(sequences, sampled.token_ids.tolist(), counts, strict=True):
            tokens.extend(row[:emitted])
        accepted += sum(counts) - count
        verified += count
    return [tokens[1:] for tokens in sequences], accepted / verified


def some_tokens(device: str = "cpu") -> dict[str, list[list[int]]]:
    """Tokens of a few requests by every rule."""
    chains, seeds = Chains.random(37, seed=5), [11, -3, 2**62, 40, 50, 60, 70, 80]
    return {
        "standard": speak(chains, seeds, 8, device=device)[0],
        "block": speak(chains, seeds, 8, device=device, block=True)[0],
        "one-hot": speak(chains, seeds, 8, device=device, one_hot=True)[0],
        "greedy": speak(chains, seeds, 8, device=device, temperature=0.0)[0],
    }


if __name__ == "__main__":
    assert os.environ["TRITON_INTERPRET"] == "1"
    print(json.dumps(some_tokens()))
