"""Random numbers for memory beside tensors and for outputs before a call.

Every tensor draws new ones, so that an engine cannot recognise them. They begin anew with every case: the memory of a
case does not depend on the cases before it, and a case that is run again meets the same.
"""

from __future__ import annotations

import numpy as np

draws = np.random.default_rng(0)


def draw_from(seed: int) -> None:
    """Begin anew with a seed of at least 0."""
    draws.bit_generator.state = np.random.default_rng(seed).bit_generator.state
