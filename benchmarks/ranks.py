"""Time per token of one rank and of two, on the fixture's target: ``python benchmarks/ranks.py [--device cuda]``."""

from __future__ import annotations

import argparse
import time

from verispec import fixtures
from verispec.engines import GenerationRequest
from verispec.engines.registry import resolve

TOKENS = 64
DRAFTERS = (
    ("none", None),
    ("ngram", None),
    ("draft_model", fixtures.model("draft")),
    ("eagle3", fixtures.model("eagle3")),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    device = parser.parse_args().device
    engine = resolve("reference:triton" if device == "cuda" else "reference", device)
    asked = [
        GenerationRequest((5 + n, 9, 5 + n, 9), max_tokens=TOKENS, ignore_eos=True, seed=n, temperature=0.5 * (n % 2))
        for n in range(8)
    ]
    texts = {}
    for method, draft in DRAFTERS:
        for ranks in (1, 2):
            generator = engine.load(
                fixtures.model("target"), method=method, draft=draft, dtype="float32", tensor_parallel_size=ranks
            )
            generator.generate(asked[:1])
            began = time.perf_counter()
            texts[ranks] = [result.token_ids for result in generator.generate(asked)]
            seconds = time.perf_counter() - began
            generator.close()
            tokens = sum(map(len, texts[ranks]))
            print(f"{method}, ranks {ranks}: {1e3 * seconds / TOKENS:.2f} ms per step of 8 requests, {tokens} tokens")
        same = sum(one == two for one, two in zip(texts[1], texts[2], strict=True))
        print(f"{method}: {same} of {len(asked)} texts equal in float32")


if __name__ == "__main__":
    main()
