"""An engine adapter from nothing: one op and an end-to-end sampler in plain PyTorch; everything else is unsupported."""

import torch
from torch.nn.functional import one_hot

from verispec.engines import Description, Draws, SamplerBatch, Trace, Unsupported, UnsupportedCall


def expand_batch_to_tokens(output_ptr, input_ptr, cu_num_tokens_ptr, replace_from, replace_to, MAX_NUM_TOKENS):
    """Repeat value b for the tokens of request b and write the result in place."""
    counts = torch.diff(cu_num_tokens_ptr, prepend=cu_num_tokens_ptr.new_zeros(1))
    values = torch.where(input_ptr == replace_from, torch.full_like(input_ptr, replace_to), input_ptr)
    output_ptr[: int(counts.sum())] = values.repeat_interleave(counts)


class Sampler:
    """Rejection sampling, one request after the other."""

    def __call__(self, batch: SamplerBatch) -> list[list[int]]:
        return self.trace(batch).tokens

    def trace(self, batch: SamplerBatch) -> Trace:
        """Report the random samples too (optional), so that clause WS-9 checks the tokens exactly."""
        if any(value is not None for value in (batch.top_k, batch.top_p, batch.min_p, batch.synthetic_rates)):
            raise UnsupportedCall("only temperature is implemented")
        logits = batch.logits.split([count + 1 for count in batch.counts])
        trace = Trace([], [])
        first = 0
        for b, ids in enumerate(batch.draft_token_ids):
            q = None if batch.draft_probs is None else batch.draft_probs[first : first + len(ids)]
            seed = None if batch.seeds is None else batch.seeds[b]
            tokens, draws = verify(logits[b].double(), ids, q, float(batch.temperature[b]), seed)
            trace.tokens.append(tokens)
            trace.draws.append(draws)
            first += len(ids)
        return trace


def verify(logits, ids, q, temperature, seed):
    """Return the tokens of one request and the random samples that decided them."""
    greedy = temperature == 0
    p = (logits / (temperature or 1.0)).softmax(dim=1)
    if greedy:
        p = one_hot(p.argmax(dim=1), p.shape[1]).double()
    generator = torch.Generator()
    generator.seed() if seed is None else generator.manual_seed(seed)
    uniform = torch.rand(len(ids), dtype=torch.float64, generator=generator)
    noise, bonus_noise = torch.empty(2, p.shape[1], dtype=torch.float64).exponential_(generator=generator)
    draws = Draws(uniform, noise) if ids and not greedy else None
    for j, draft in enumerate(ids):
        certain = one_hot(torch.tensor(max(draft, 0)), p.shape[1]) * (draft >= 0)
        proposal = certain.double() if q is None or greedy else q[j].double()
        if draft >= 0 and proposal[draft] > 0 and p[j, draft] >= uniform[j] * proposal[draft] and p[j, draft] > 0:
            continue
        residual = (p[j] - proposal).clamp(min=0) if draft >= 0 else p[j]
        return [*ids[:j], int((residual / noise).argmax())], draws
    return [*ids, int((p[-1] / bonus_noise).argmax())], draws


class Engine:
    """The engine protocol; a missing part returns `Unsupported`."""

    def describe(self):
        return Description("my-engine", "1.0", platform="cpu")

    def op(self, name):
        return expand_batch_to_tokens if name == "expand_batch_to_tokens" else Unsupported("not written yet")

    def sampler(self, family="flat"):
        return Sampler() if family == "flat" else Unsupported("not written yet")

    def load(self, target, **options):
        return Unsupported("this engine does not generate")

    def definitions(self):
        return Unsupported("not written yet")

    def close(self):
        """Release nothing: the engine holds no resources."""
