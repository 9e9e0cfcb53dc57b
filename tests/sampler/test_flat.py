"""The flat sampler: exact distributions by its own draws, and independence of the batch."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from scipy.stats import chi2

from verispec.engines.protocol.sampling import SamplerBatch
from verispec.reference.sampler import drafting, flat, whole
from verispec.reference.sampler.drafting import sample_drafts
from verispec.reference.sampler.flat import DraftBatch, FlatSampler, SamplingTensors
from verispec.reference.sampler.whole import WholeFlatSampler

VOCAB = 6
FALSE_ALARM = 1e-6


def batch(seeds: list[int | None], temperature: list[float], drafts: list[list[int]], **fields: object) -> SamplerBatch:
    rows = len(seeds) + sum(map(len, drafts))
    logits = 2 * torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(3))
    return SamplerBatch(logits, drafts, torch.tensor(temperature), seeds=seeds, **fields)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_has_more_than_24_bits(dtype: torch.dtype) -> None:
    """24 bits have a floor of 2^-24 (vllm#43150), and 16,384 numbers where the smallest thousandth lies.

    Among 4,096 of these about 470 would be equal to another one.
    """
    noise = drafting.fill_with_noise(torch.empty(1, 1 << 22, dtype=dtype), [torch.Generator().manual_seed(7)])[0]
    smallest = noise.sort().values[:4096]
    assert smallest[0] > 0
    assert smallest[-1] < 1.2e-3
    assert len(smallest.unique()) > 4090
    assert abs(noise.mean() - 1) < 0.005, "ten standard deviations"


def test_float64_noise_decides_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code path of CUDA, on the CPU: bonus, recovered and draft tokens keep a probability of 1e-9."""
    for module in (drafting, flat, whole):
        monkeypatch.setattr(module, "noise_dtype", lambda device: torch.float64)
    step = batch([1, 2, None], [0.8, 1.0, 1.0], [[1, 2], [], [3]])
    torch.manual_seed(5)
    trace = WholeFlatSampler().trace(step)
    assert [draws.noise.dtype for draws in trace.draws if draws] == [torch.float64] * 2
    generator = torch.Generator().manual_seed(3)
    ids, _probs = sample_drafts(torch.zeros(1, VOCAB), [1.0], [generator])
    noise = drafting.exponential_noise(VOCAB, torch.Generator().manual_seed(3), torch.device("cpu"))
    assert noise.dtype == torch.float64
    assert int(ids[0]) == int(noise.argmin())


def test_unseeded_requests_follow_torchs_seed() -> None:
    """`verispec repro` sets torch's seed, so that unseeded requests repeat too; without it they differ."""
    step = batch([None] * 40, [1.0] * 40, [[1, 2]] * 40)
    answers = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        answers.append(WholeFlatSampler()(step))
    assert answers[0] == answers[1] != answers[2]


def chi_square_passes(seen: Counter[int], law: list[float], tests: int = 1) -> bool:
    total = sum(seen.values())
    cells = [(seen[token], total * p) for token, p in enumerate(law) if p > 0]
    assert set(seen) <= {token for token, p in enumerate(law) if p > 0}
    statistic = sum((count - mean) ** 2 / mean for count, mean in cells)
    return bool(chi2.sf(statistic, len(cells) - 1) > FALSE_ALARM / tests)


@pytest.mark.parametrize("with_probs", [True, False])
def test_the_first_token_has_the_targets_law(with_probs: bool) -> None:
    """Drafts drawn from q by the drafting sampler; the emitted token follows p, top-k and top-p included."""
    count, temperature = 20_000, 0.8
    random = torch.Generator().manual_seed(1)
    target = 2 * torch.randn(VOCAB, generator=random)
    draft = 2 * torch.randn(VOCAB, generator=random)
    generators = [torch.Generator().manual_seed(seed) for seed in range(count)]
    ids, probs = sample_drafts(draft.repeat(count, 1), [temperature] * count, generators)
    if not with_probs:
        ids = torch.full_like(ids, int(draft.argmax()))
    drafts = DraftBatch(
        [1] * count, ids.int(), torch.arange(1, count + 1, dtype=torch.int32), probs if with_probs else None
    )
    params = SamplingTensors(
        torch.full((count,), temperature),
        top_k=torch.full((count,), 5, dtype=torch.int32),
        top_p=torch.full((count,), 0.9),
    )
    tokens = FlatSampler().sample(target.repeat(2 * count, 1), drafts, params, generators)
    p = torch.softmax(target.double() / temperature, dim=-1)
    order = p.argsort(descending=True)[:5]
    top = p[order] / p[order].sum()
    kept = order[: int((top.cumsum(0) < 0.9).sum()) + 1]
    law = torch.zeros(VOCAB, dtype=torch.float64)
    law[kept] = p[kept] / p[kept].sum()
    assert 1 < len(kept) < 5, "both filters must cut"
    assert chi_square_passes(Counter(tokens[:, 0].tolist()), law.tolist(), tests=2)
    accepted = int((tokens[:, 1] >= 0).sum())
    q = torch.softmax(draft.double() / temperature, dim=-1)
    rate = float(torch.minimum(law, q).sum()) if with_probs else float(law[int(draft.argmax())])
    # Six standard deviations of a binomial count.
    assert abs(accepted - count * rate) < 6 * math.sqrt(count * rate * (1 - rate)) + 1


def test_min_p_keeps_a_fraction_of_the_best() -> None:
    logits = torch.log(torch.tensor([0.5, 0.3, 0.11, 0.09])).repeat(2000, 1)
    drafts = DraftBatch([0] * 2000, torch.empty(0, dtype=torch.int32), torch.zeros(2000, dtype=torch.int32))
    params = SamplingTensors(torch.ones(2000), min_p=torch.full((2000,), 0.2))
    generators = [torch.Generator().manual_seed(seed) for seed in range(2000)]
    tokens = FlatSampler().sample(logits, drafts, params, generators)
    assert set(tokens[:, 0].tolist()) == {0, 1, 2}


def test_a_greedy_request_keeps_its_tokens_beside_sampled_ones() -> None:
    """Two logits that round to one probability: the choice is the larger logit's, in every batch."""
    row = torch.full((2, VOCAB), -20.0)
    row[:, 4], row[:, 2] = 0.1, torch.nextafter(torch.tensor(0.1), torch.tensor(0.0))
    assert torch.softmax(row, dim=-1)[0, 2] == torch.softmax(row, dim=-1)[0, 4], (
        "the case must be a tie of probabilities"
    )
    sampled = torch.randn(1, VOCAB)
    mixed = SamplerBatch(torch.cat((row, sampled)), [[4], []], torch.tensor([0.0, 1.0]), seeds=[None, 1])
    alone = DraftBatch([1], torch.tensor([4], dtype=torch.int32), torch.tensor([1], dtype=torch.int32))
    assert WholeFlatSampler()(mixed)[0] == FlatSampler().greedy(row, alone).tolist()[0] == [4, 4]


def test_a_request_draws_the_same_whatever_stands_beside_it() -> None:
    drafts = [[1, 2], [], [3], [0, 4, 5]]
    seeds: list[int | None] = [11, 12, 13, 14]
    whole = batch(seeds, [0.7, 1.0, 0.0, 2.0], drafts)
    together = WholeFlatSampler()(whole)
    start = 0
    for row, ids in enumerate(drafts):
        logits = whole.logits[start : start + len(ids) + 1]
        single = SamplerBatch(logits, [ids], whole.temperature[row : row + 1], seeds=[seeds[row]])
        assert WholeFlatSampler()(single) == [together[row]]
        start += len(ids) + 1


def test_padding_tokens_are_rejected() -> None:
    for temperature in (0.0, 1.0):
        tokens = WholeFlatSampler()(batch([1], [temperature], [[-1, 2]]))[0]
        assert len(tokens) == 1 and 0 <= tokens[0] < VOCAB


@pytest.mark.parametrize("seed", range(20))
def test_the_trace_explains_the_tokens(seed: int) -> None:
    """Acceptance and recovery follow from the draws that the sampler reports."""
    q = torch.softmax(torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(seed)), dim=-1)
    drafts = [[1, 2, 3]]
    one = batch([seed], [1.3], drafts, draft_probs=q)
    trace = WholeFlatSampler().trace(one)
    draws = trace.draws[0]
    assert draws is not None
    p = torch.softmax(one.logits / 1.3, dim=-1)
    expected: list[int] = []
    for position, draft in enumerate(drafts[0]):
        if p[position, draft] / q[position, draft] >= draws.uniform[position]:
            expected.append(draft)
            continue
        expected.append(int(((p[position] - q[position]).clamp(min=0) / draws.noise).argmax()))
        break
    else:
        expected.append(draws.bonus)
    assert trace.tokens[0] == expected


def test_synthetic_rates_decide_alone() -> None:
    always = WholeFlatSampler()(batch([1, 2], [0.0, 1.0], [[1, 2], [3, 4]], synthetic_rates=[1.0, 1.0]))
    assert [row[:2] for row in always] == [[1, 2], [3, 4]]
    never = WholeFlatSampler()(batch([1, 2], [0.0, 1.0], [[1, 2], [3, 4]], synthetic_rates=[0.0, 0.0]))
    assert [len(row) for row in never] == [1, 1]
