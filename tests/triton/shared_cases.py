"""Cases of the ops that both families share: random numbers, sampling, top-k and top-p."""

from __future__ import annotations

from typing import Any

import numpy as np
from case_parts import POISON, Size, maker, random_logits

_KNOWN_COUNTERS = [(0, 0, 0, 0), (0xFFFFFFFF,) * 4, (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)]
_KNOWN_KEYS = [(0, 0), (0xFFFFFFFF,) * 2, (0xA4093822, 0x299F31D0)]


@maker("random", "known")
def philox(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    if variant == "known":
        counter, key = np.array(_KNOWN_COUNTERS, np.int64), np.array(_KNOWN_KEYS, np.int64)
        return {"words": np.zeros((3, 4), np.int64), "counter": counter, "key": key}
    words = size.vocabulary
    return {
        "words": np.full((words, 4), POISON, np.int64),
        "counter": rng.integers(0, 2**32, (words, 4)),
        "key": rng.integers(0, 2**32, (words, 2)),
    }


@maker("target", "draft", "cached", "nan")
def gumbel_sample(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    rows, states = size.requests, size.requests + 2
    logits = random_logits(rng, rows, size.vocabulary)
    if variant == "nan":
        logits[0, ::2] = np.nan
        logits[-1] = np.nan
    mapping = rng.permutation(states)[:rows].astype(np.int32)
    if rows > 2:
        mapping[1] = -1
    cache = np.full((states, size.drafts, size.vocabulary + 5), POISON, np.float32)
    return {
        "sampled": np.full(rows, POISON, np.int64),
        "logits": logits,
        "expanded_idx_mapping": mapping,
        "temperature": rng.choice([0.0, 0.5, 1.0, 1.7], states).astype(np.float32),
        "seed": rng.integers(-(2**63), 2**63 - 1, states),
        "pos": rng.integers(0, 2**40, rows),
        "apply_temperature": variant != "nan",
        "is_drafting": variant != "target",
        "logits_cache": cache if variant == "cached" else None,
        "logits_cache_col": rng.integers(0, size.drafts, rows).astype(np.int32) if variant == "cached" else None,
    }


_TOP_K_TOP_P = (
    *("both", "k", "p", "inplace", "ties", "masked", "few", "nan", "none", "peaked", "flat", "extreme", "grid"),
    *("outliers", "zero_p", "unsampled"),
)


@maker(*_TOP_K_TOP_P)
def apply_top_k_top_p(rng: np.random.Generator, size: Size, variant: str) -> dict[str, Any]:
    rows, vocabulary = max(size.requests, 2), size.vocabulary
    logits = random_logits(rng, rows, vocabulary)
    k = rng.integers(1, max(vocabulary // 10, 2), rows).astype(np.int32)
    p = rng.uniform(0.05, 0.98, rows).astype(np.float32)
    k[-1], p[0] = vocabulary + 3, 1.0
    if variant == "ties":
        logits = np.round(logits)
        logits[0] = 0.0
        logits[0, ::2] = -0.0
    elif variant == "grid":
        logits = np.round(logits * 8) / 8
    elif variant == "masked":
        logits[:, vocabulary // 20 :] = -np.inf
        logits[-1] = -np.inf
    elif variant == "few":
        # Fewer tokens than k, and top-p over them.
        logits[:, 3:] = -np.inf
        k[:] = vocabulary - 1
    elif variant == "flat":
        # The answer has much on both sides of it.
        logits *= np.float32(0.1)
        p[:] = np.linspace(0.3, 0.9, rows)
    elif variant == "outliers":
        logits[:, ::7] = -1e30
        k[-1] = vocabulary - 1
    elif variant == "zero_p":
        # The first token alone, though others have its logit.
        logits = np.round(logits)
        p[:] = 0.0
    elif variant == "unsampled":
        # A kernel that looks at every other run of 32 tokens learns nothing of the answer.
        logits[:, np.arange(vocabulary) // 32 % 2 == 1] += np.float32(9.0)
    elif variant == "nan":
        logits[:, 1::3] = np.nan
        p[-1] = np.nan
    elif variant == "peaked":
        logits[:, vocabulary // 2] = 60.0
    elif variant == "extreme":
        k[: rows // 2] = 1
        p[rows // 2 :] = 0.0
        k[0], logits[1, 0] = 0, np.inf
    return {
        "output": np.full((rows, vocabulary), POISON, np.float32),
        "logits": logits,
        "k": None if variant in {"p", "flat", "none", "zero_p"} else k,
        "p": None if variant in {"k", "none"} else p,
    }
