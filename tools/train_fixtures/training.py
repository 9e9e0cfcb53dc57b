"""The training loop of all three models."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from .recipe import Stage

TIMED_STEPS = 40
"""Steps to time before estimating how many fit in the allowed minutes."""

EVALUATIONS = 25
"""Number of validations per stage."""

Loss = Callable[[torch.Tensor], torch.Tensor]


def mixed(device: torch.device) -> AbstractContextManager[Any]:
    """Compute in bfloat16 on a GPU, in float32 on a CPU."""
    return torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda")


def batches(stream: torch.Tensor, stage: Stage, seed: int) -> Iterator[torch.Tensor]:
    """Yield windows of a stream of ids without end, [batch, length], each at a random place."""
    generator = torch.Generator().manual_seed(seed)
    offsets = torch.arange(stage.length)
    while True:
        starts = torch.randint(len(stream) - stage.length, (stage.batch, 1), generator=generator)
        yield stream[(starts + offsets).to(stream.device)]


def train(
    name: str, model: nn.Module, loss_of: Loss, stage: Stage, *, data: Iterator[torch.Tensor], validation: torch.Tensor
) -> dict[str, Any]:
    """Train `model` in place, leave it with its best weights, and return the record of the training.

    The learning rate rises linearly over the first steps and falls along a cosine to a tenth. `validation` is a batch
    of windows; the weights with the lowest loss on it win.
    """
    device = validation.device
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": stage.weight_decay},
            {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
        ],
        lr=stage.learning_rate,
        betas=(0.9, 0.95),
    )
    start = time.monotonic()
    steps, best = stage.steps, math.inf
    weights: dict[str, torch.Tensor] = {}
    history: list[tuple[int, float]] = []
    timed_from = start
    step = 0
    while step < steps:
        rate = _rate(step, steps)
        for group in optimizer.param_groups:
            group["lr"] = rate * stage.learning_rate
        with mixed(device):
            loss = loss_of(next(data))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        step += 1
        if step == TIMED_STEPS // 2:
            loss.item()
            timed_from = time.monotonic()
        if step == TIMED_STEPS:
            loss.item()
            now = time.monotonic()
            seconds = (now - timed_from) / (TIMED_STEPS - TIMED_STEPS // 2)
            steps = min(steps, step + max(1, int((stage.minutes * 60 - (now - start)) / seconds)))
            print(f"{name}: {seconds * 1000:.1f} ms a step, {steps} steps", flush=True)
        if step % max(1, steps // EVALUATIONS) == 0 or step == steps:
            with torch.no_grad(), mixed(device):
                value = loss_of(validation).item()
            history.append((step, round(value, 4)))
            print(f"{name}: step {step} loss {loss.item():.3f} validation {value:.3f}", flush=True)
            if value < best:
                best = value
                weights = {key: tensor.detach().clone() for key, tensor in model.state_dict().items()}
    model.load_state_dict(weights)
    return {
        "steps": steps,
        "seconds": round(time.monotonic() - start, 1),
        "best_validation_loss": round(best, 4),
        "validation_losses": history,
        "parameters": sum(parameter.numel() for parameter in parameters),
    }


def _rate(step: int, steps: int) -> float:
    """Return the learning rate as a share of its peak; the warm-up lasts as long as the timing of steps."""
    if step < TIMED_STEPS:
        return (step + 1) / TIMED_STEPS
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - TIMED_STEPS) / max(1, steps - TIMED_STEPS)))


def round_to_bfloat16(model: nn.Module) -> None:
    """Round every weight to the checkpoint's dtype, so that the measured weights are the shipped ones."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16())
