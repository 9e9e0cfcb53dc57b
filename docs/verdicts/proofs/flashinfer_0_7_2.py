"""FlashInfer 0.7.2.post1: calls share random numbers, a count is wrong, and tokens of probability 0 are emitted.

FlashInfer 0.7.4 has only the last two of these six.

pip install flashinfer-python==0.7.2.post1
python flashinfer_0_7_2.py
"""

import itertools

import torch
from flashinfer.sampling import chain_speculative_sampling, min_p_sampling_from_probs, top_p_renorm_probs

torch.manual_seed(0)
STEPS, MANY = 2000, 2**20


def on_gpu(rows: list[list[float]], count: int = 1) -> torch.Tensor:
    """Return the probabilities of `count` equal requests."""
    return torch.tensor([rows]).cuda().expand(count, -1, -1).contiguous()


def step(drafts: int) -> list[int]:
    """Verify drafts 0, the first of which has the probability 1/2; then 1 and 2 are equally likely."""
    sure = [[1.0, 0.0, 0.0]] * drafts
    target = on_gpu([[0.5, 0.25, 0.25], *sure[1:], [0.0, 0.5, 0.5]])
    ids = torch.zeros(1, drafts, dtype=torch.int32).cuda()
    return [token for token in chain_speculative_sampling(on_gpu(sure), ids, target)[0][0].tolist() if token >= 0]


# 1. One request: a step that rejected its first draft shares a number with the next step.
for drafts in range(1, 9):
    pairs = [(a, b) for a, b in itertools.pairwise(step(drafts) for _ in range(STEPS)) if a[0] != 0]
    shares = []
    for end in (1, 2):
        first = [b[0] == 0 for a, b in pairs if a[-1] == end]
        shares.append(f"{sum(first) / len(first):.3f} after {end}")
    print(f"{drafts} drafts, the first is kept in: {', '.join(shares)}")

# 2. The same generator in torch: its next number is the first that the call has used.
same = 0
for _ in range(STEPS):
    kept = len(step(1)) == 2
    same += kept == bool(torch.rand(1, device="cuda") < 0.5)
print(f"a draft of probability 1/2 is kept if the next torch.rand is below 1/2: {same} of {STEPS}")

# 3. One draft per request: what is counted as accepted must be what is emitted.
ids = torch.zeros(MANY, 1, dtype=torch.int32).cuda()
_, accepted, emitted = chain_speculative_sampling(
    on_gpu([[1.0, 0.0]], MANY), ids, on_gpu([[0.5, 0.5], [0.5, 0.5]], MANY)
)
print(f"one draft, p/q = 1/2: accepted {accepted.float().mean():.3f}, emitted {emitted.float().mean():.3f}")

# 4. Draft and target of row r are certain of token r % 8: no other token may be emitted.
own = torch.arange(MANY).cuda() % 8
target = torch.eye(8).cuda()[own][:, None].expand(MANY, 9, 8).contiguous()
ids = own.int()[:, None].expand(MANY, 8).contiguous()
wrong = 0
for _ in range(64):
    tokens = chain_speculative_sampling(target[:, 1:].contiguous(), ids, target)[0]
    wrong += int(((tokens != own[:, None]) & (tokens != -1)).sum())
print(f"certain rows, {64 * MANY * 8:,} drafts: {wrong} tokens of probability 0")

# 5. Four equal tokens, four of probability 0, and a min-p of 0 as of a request without one.
probs = torch.tensor([0.25] * 4 + [0.0] * 4).cuda().expand(4 * MANY, 8).contiguous()
none = torch.zeros(4 * MANY).cuda()
wrong = sum(int((min_p_sampling_from_probs(probs, none) >= 4).sum()) for _ in range(64))
print(f"min-p of 0, {256 * MANY:,} tokens: {wrong} of probability 0")

# 6. A top-p of 1, as of a request without one: a likely token, some less likely ones and a flat rest.
for size in (2047, 2048, 32_000, 151_936):
    weights = torch.rand(1024, size, device="cuda") + 0.5
    weights *= 0.5 / weights.sum(-1, keepdim=True)
    weights[:, 0] = torch.linspace(0.1, 0.5, 1024)
    weights[:, 1:11] = 0.5 * torch.rand(1024, 10, device="cuda") / 10
    probs = weights / weights.sum(-1, keepdim=True)
    for fixed in (False, True):
        kept = top_p_renorm_probs(probs, torch.ones(1024, device="cuda"), is_deterministic=fixed)
        lost = (probs.double() * (kept == 0)).sum(-1)
        count = f"{int((lost > 0).sum())} of 1024 rows lose tokens, up to {lost.max():.4f} of the probability"
        print(f"top-p of 1, V={size}, is_deterministic={fixed}: {count}")
