"""LMDeploy 0.18.0 ignores top-k, top-p and min-p where it verifies drafts: frequencies of 20,000 equal requests.

    pip install --no-deps lmdeploy==0.18.0
    pip install torch transformers mmengine-lite psutil pillow pybase64 pyzmq xgrammar
    python lmdeploy_0_18_0.py

Seen on 2026-11-24 on Linux without a GPU: the lines in the comments. Each request has one draft, the most likely token.
Both positions have the same logits, so that their frequencies must be equal.
"""

import asyncio

import torch
from lmdeploy.pytorch.backends.default.multinomial_sampling import DefaultMultinomialSamplingImpl
from lmdeploy.pytorch.backends.default.rejection_sampling import DefaultRejectionSamplingImpl
from lmdeploy.pytorch.engine.logits_process import FusedLogitsProcessor, SamplingInputs
from lmdeploy.pytorch.nn import multinomial_sampling
from lmdeploy.pytorch.spec_decode import reject_sampler

REQUESTS = 20_000
P = torch.tensor([0.5, 0.3, 0.1, 0.06, 0.04])


class Backend:
    """LMDeploy's portable ops: without a GPU it chooses those of CUDA, which do not run."""

    def build_op(self, spec: object) -> object:
        """Return the op in PyTorch."""
        rejection = isinstance(spec, reject_sampler.RejectionSamplingBuildSpec)
        return DefaultRejectionSamplingImpl() if rejection else DefaultMultinomialSamplingImpl()


for module in (multinomial_sampling, reject_sampler):
    module.get_backend = lambda backend_type=None: Backend()


def frequencies(tokens: torch.Tensor) -> list[float]:
    """Return the frequencies of the tokens that were emitted."""
    counts = torch.bincount(tokens[tokens >= 0], minlength=len(P))
    return [round(value, 3) for value in (counts / counts.sum()).tolist()]


async def step(**limits: float) -> None:
    """Verify one draft per request as LMDeploy's agent does, and print the frequencies at both positions."""
    rows = 2 * REQUESTS
    tensors = {name: torch.full((rows,), value) for name, value in limits.items()}
    others = {"batch_size": rows, "max_num_logprobs": 0, "logits_processors": []}
    inputs = SamplingInputs(max_top_k=limits.get("top_k", 0), **others, **tensors)
    logits, _ = await FusedLogitsProcessor(inputs)(P.log().repeat(rows, 1))
    drafts = torch.zeros((REQUESTS, 1), dtype=torch.int64)
    tokens, _, _ = reject_sampler.RejectionSampler()(logits.view(REQUESTS, 2, -1), drafts, inputs)
    print(limits, "at the draft", frequencies(tokens[:, 0]), "at the bonus token", frequencies(tokens[:, 1]))


torch.manual_seed(0)
asyncio.run(step())  # draft .501 .303 .100 .059 .037, bonus token .493 .307 .099 .059 .042
asyncio.run(step(top_p=0.7))  # draft .503 .293 .101 .062 .042, bonus token .630 .370 0 0 0
asyncio.run(step(top_k=2))  # draft .496 .303 .104 .058 .039, bonus token .630 .370 0 0 0
asyncio.run(step(min_p=0.3))  # draft .499 .301 .100 .061 .039, bonus token .623 .377 0 0 0
