"""Print the needle table: which rare tokens a sampler still draws on a GPU, and how often the best score is shared.

    python tools/gpu/needles.py                      the reference's sampler
    python tools/gpu/needles.py --vllm               also vLLM's default sampler, if it is installed
    python tools/gpu/needles.py --device cpu --draws 20000

One likely token stands beside V - 1 of probability e each. A sampler whose noise has a floor of 2^-24 draws none of
them below e = 1e-8. Prints one JSON object per source and e: expected and seen rare tokens and the deviation in
standard deviations; then the noise itself: smallest value, grid, repeated values; then ties on a flat row.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import asdict

import torch

from verispec.judge.statistics.noise import measure, needles
from verispec.reference.sampler.drafting import exponential_noise, noise_dtype, sample_drafts_by_seed

PROBABILITIES = (1e-6, 1e-7, 3e-8, 1e-8, 3e-9, 1e-9)
VOCABULARY = 151_936
BATCH = 1024

Sampler = Callable[[torch.Tensor], torch.Tensor]
"""Logits [B, V] to tokens [B]."""


def flat(device: torch.device) -> Sampler:
    """Return the flat sampler's draw: softmax over the generator's exponential noise."""
    generator = torch.Generator(device).manual_seed(1)

    def sample(logits: torch.Tensor) -> torch.Tensor:
        probs = torch.softmax(logits, dim=-1)
        tokens = [(row / exponential_noise(len(row), generator, device)).argmax() for row in probs]
        return torch.stack(tokens)

    return sample


def float32_noise(device: torch.device) -> Sampler:
    """Return the draw with float32 noise of the device, for comparison."""
    generator = torch.Generator(device).manual_seed(1)

    def sample(logits: torch.Tensor) -> torch.Tensor:
        noise = torch.empty_like(logits).exponential_(generator=generator).clamp_(min=torch.finfo(torch.float32).tiny)
        return (torch.softmax(logits, dim=-1) / noise).argmax(dim=-1)

    return sample


def request_state(device: torch.device) -> Sampler:
    """Return the request-state sampler's draw: Gumbel-max of counter-based numbers."""
    calls = 0

    def sample(logits: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        count = logits.shape[0]
        states = torch.arange(count, dtype=torch.int32, device=device)
        first = calls * count
        calls += 1
        return sample_drafts_by_seed(
            logits,
            idx_mapping=states,
            temperature=torch.ones(count, device=device),
            seed=torch.arange(first, first + count, device=device),
            pos=torch.zeros(count, dtype=torch.int64, device=device),
            step=0,
            draft_logits=torch.zeros(count, 1, logits.shape[1], device=device),
        )

    return sample


def vllm_default(device: torch.device) -> Sampler:
    """Return vLLM's default draw of sampled requests."""
    from vllm.v1.sample.ops.topk_topp_sampler import random_sample

    del device
    return lambda logits: random_sample(torch.softmax(logits, dim=-1), {})


def table(name: str, sample: Sampler, draws: int, device: torch.device) -> None:
    """Print the needles of one source."""
    batch = min(BATCH, draws)
    for probability in PROBABILITIES:
        row = torch.from_numpy(needles(VOCABULARY, probability)).to(device)
        seen = total = 0
        while total < draws:
            seen += int((sample(row.repeat(batch, 1)) != 0).sum())
            total += batch
        expected = total * probability * (VOCABULARY - 1)
        deviation = (seen - expected) / math.sqrt(expected)
        result = {"source": name, "probability": probability, "draws": total}
        print(
            json.dumps({**result, "expected": round(expected, 1), "seen": seen, "sigma": round(deviation, 1)}),
            flush=True,
        )


def noise_of(device: torch.device) -> None:
    """Print the bits of the generator's noise, in the type that the reference draws and in float32, and its ties."""
    for dtype in (noise_dtype(device), torch.float32):
        generator = torch.Generator(device).manual_seed(2)
        values = torch.empty(1 << 24, dtype=dtype, device=device).exponential_(generator=generator)
        report = measure(values.cpu().numpy())
        best = shared = 0
        for _ in range(8):
            noise = torch.empty(256, VOCABULARY, dtype=dtype, device=device).exponential_(generator=generator)
            shared += int(((noise == noise.min(dim=-1, keepdim=True)[0]).sum(-1) > 1).sum())
            best += 256
        found = asdict(report) if report else {}
        print(json.dumps({"noise": str(dtype), **found, "ties_on_a_flat_row": shared / best}), flush=True)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--draws", type=int, default=393_216)
    parser.add_argument("--vllm", action="store_true")
    options = parser.parse_args()
    device = torch.device(options.device)
    sources = {"flat": flat, "request_state": request_state, "float32 noise": float32_noise}
    if options.vllm:
        sources["vllm default"] = vllm_default
    for name, make in sources.items():
        table(name, make(device), options.draws, device)
    noise_of(device)


if __name__ == "__main__":
    main()
