"""Sizes and schedules of the fixtures, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """A Llama model: width, MLP width, layers, attention heads, KV heads, head dimension."""

    hidden: int
    mlp: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Layers of a hybrid model in order; heads, state size and tokens per scan of its Mamba-2 layers."""

    layers: tuple[str, ...]
    heads: int
    state: int
    chunk: int


@dataclass(frozen=True, slots=True)
class Stage:
    """Training of one model: `steps` optimizer steps, fewer if they would not fit in `minutes`."""

    steps: int
    minutes: float
    batch: int
    length: int
    learning_rate: float
    weight_decay: float


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides what comes out, but the text."""

    seed: int = 7
    vocab_size: int = 2048
    draft_vocab_size: int = 1536
    max_positions: int = 1024
    files: int = 0
    """Number of source files to read; 0 means all."""

    target: Shape = Shape(hidden=256, mlp=512, layers=10, heads=4, kv_heads=2, head_dim=64)
    draft: Shape = Shape(hidden=128, mlp=512, layers=2, heads=2, kv_heads=1, head_dim=64)
    aux_layers: tuple[int, int, int] = (2, 5, 7)
    unrolled: int = 5
    """Training-time test: number of steps that a drafter runs on its own drafts."""

    unroll_decay: float = 0.8
    """Weight of each such step's loss against the step before."""

    hybrid: Shape = Shape(hidden=128, mlp=128, layers=4, heads=2, kv_heads=1, head_dim=64)
    recurrence: Recurrence = Recurrence(
        ("linear_attention", "linear_attention", "full_attention", "linear_attention"), heads=4, state=32, chunk=32
    )
    train_hybrid: Stage = Stage(900, 11.0, batch=8, length=128, learning_rate=4e-3, weight_decay=0.01)

    train_target: Stage = Stage(650, 1.5, batch=48, length=1024, learning_rate=2e-3, weight_decay=0.1)
    train_draft: Stage = Stage(4000, 1.6, batch=64, length=512, learning_rate=3e-3, weight_decay=0.01)
    train_eagle3: Stage = Stage(3000, 1.8, batch=64, length=256, learning_rate=2e-3, weight_decay=0.01)

    train_parallel: Stage = Stage(3000, 2.2, batch=64, length=192, learning_rate=1.5e-3, weight_decay=0.01)
    train_mtp: Stage = Stage(3000, 2.0, batch=64, length=256, learning_rate=2e-3, weight_decay=0.01)
    written: int = 24576
    """Texts that the target writes for its drafters to learn from, half greedy and half sampled.

    Many short prompts avoid text that the target has memorised, on which it is more certain than elsewhere.
    """

    written_prompt: int = 32
    written_length: int = 256
    prompts: int = 64
    measured_prompt: int = 64
    measured_length: int = 192
    num_drafts: int = 3
    """K of the measured acceptance."""


TINY = Recipe(
    vocab_size=320,
    draft_vocab_size=256,
    max_positions=256,
    files=40,
    target=Shape(hidden=64, mlp=96, layers=8, heads=2, kv_heads=1, head_dim=32),
    draft=Shape(hidden=32, mlp=48, layers=1, heads=1, kv_heads=1, head_dim=32),
    aux_layers=(2, 4, 5),
    unrolled=3,
    train_target=Stage(60, 1.0, batch=8, length=64, learning_rate=5e-3, weight_decay=0.1),
    train_draft=Stage(60, 1.0, batch=8, length=64, learning_rate=5e-3, weight_decay=0.01),
    train_eagle3=Stage(60, 1.0, batch=8, length=64, learning_rate=5e-3, weight_decay=0.01),
    train_parallel=Stage(60, 1.0, batch=8, length=64, learning_rate=5e-3, weight_decay=0.01),
    train_mtp=Stage(60, 1.0, batch=8, length=64, learning_rate=5e-3, weight_decay=0.01),
    written=16,
    written_prompt=16,
    written_length=64,
    prompts=8,
    measured_prompt=16,
    measured_length=24,
)
"""Small sizes for a CPU: one minute, enough to test the script."""
