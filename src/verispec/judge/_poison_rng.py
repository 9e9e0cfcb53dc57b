"""The random generator of memory beside tensors and of outputs before a call.

Every tensor draws new numbers, so that an engine cannot recognise them. The generator starts anew with every case: the
memory of a case does not depend on the cases before it, and a repeated case meets the same memory.
"""

from __future__ import annotations

import numpy as np

poison_rng = np.random.default_rng(0)


def seed_poison_rng(seed: int) -> None:
    """Start anew with a seed of at least 0."""
    poison_rng.bit_generator.state = np.random.default_rng(seed).bit_generator.state
