"""The request-state sampler: exact distributions of whole sequences, one answer on every platform, special requests."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from markov_chains import Chains, some_tokens, speak

from verispec.cases.sampling import greedy_tokens, random_sampler_batch
from verispec.engines.protocol.generation import GenerationRequest
from verispec.judge.statistics import assert_distribution
from verispec.reference.oracle.philox import Draw, gumbel
from verispec.reference.sampler import ops
from verispec.reference.sampler.drafting import sample_drafts_by_seed
from verispec.reference.sampler.logprobs import gather_logprobs, row_logprobs
from verispec.reference.sampler.processors import TokenHistory, process_logits
from verispec.reference.sampler.request_state import (
    RequestRows,
    RequestStates,
    RequestStateSampler,
    Sampled,
    constrain,
)
from verispec.reference.sampler.whole import WholeFlatSampler
from verispec.reference.sampler.whole_request_state import WholeRequestStateSampler

CPU = torch.device("cpu")
RULES: dict[str, dict[str, Any]] = {"standard": {}, "block": {"block": True}, "one-hot": {"one_hot": True}}


def one_state(count: int, temperature: float = 1.0, **fields: Any) -> RequestStates:
    """`count` sampled requests with seeds of their own."""
    return RequestStates(torch.full((count,), temperature), torch.arange(count, dtype=torch.int64), **fields)


# Distributions


@pytest.mark.parametrize("rule", RULES)
def test_whole_sequences_have_the_targets_law(rule: str) -> None:
    """All 64 sequences of three tokens, by enumeration.

    Three tokens take one to three verifications. Numbers that repeat between positions, steps, requests, or a draft and
    its verification therefore show in the joint distribution.
    """
    chains, count = Chains.random(4, seed=1), 20_000
    sequences, _ = speak(chains, list(range(count)), 3, **RULES[rule])
    p = torch.softmax(chains.target.double() / 0.8, dim=1)
    law = torch.einsum("a,ab,bc->abc", p[0], p, p).flatten()
    seen = Counter(16 * a + 4 * b + c for a, b, c, *_ in sequences)
    assert_distribution([seen[cell] for cell in range(64)], law.numpy(), f"sequences by the {rule} rule")


def test_blocks_are_accepted_longer() -> None:
    """More drafts on average than tokens one by one (Sun et al. 2024, theorem 3); 20,000 blocks tell 1 % apart."""
    chains, seeds = Chains.random(4, seed=1), list(range(20_000))
    by_token, by_block = (speak(chains, seeds, 3, block=block)[1] for block in (False, True))
    assert by_block > 1.01 * by_token


def test_a_first_draft_is_accepted_at_the_overlap() -> None:
    chains, count = Chains.random(6, seed=2), 20_000
    _, accepted = speak(chains, list(range(count)), 1, drafts=1)
    p, q = (torch.softmax(table[0].double() / 0.8, dim=0) for table in (chains.target, chains.draft))
    overlap = float(torch.minimum(p, q).sum())
    # Six standard deviations of a binomial count.
    assert abs(accepted - overlap) < 6 * (overlap * (1 - overlap) / count) ** 0.5


@pytest.mark.parametrize("kept", ["draft logits", "one-hot"])
def test_after_a_placeholder_the_token_is_drawn_from_the_target(kept: str) -> None:
    """The state still holds draft logits that are certain of the likeliest token: a residual would never emit it."""
    count, p = 5000, np.array([0.6, 0.3, 0.1])
    rows = RequestRows.of([[0, -1]] * count, [4] * count, list(range(count)), CPU)
    certain = torch.tensor([50.0, 0.0, 0.0]).expand(count, 1, 3).contiguous()
    states = one_state(count, draft_logits=certain if kept == "draft logits" else None)
    logits = torch.log(torch.from_numpy(p)).float().repeat(2 * count, 1)
    sampled = RequestStateSampler().sample(logits, rows, states)
    assert sampled.counts.tolist() == [1] * count
    assert_distribution(np.bincount(sampled.token_ids[:, 0], minlength=3).tolist(), p, "tokens at a placeholder")


@pytest.mark.parametrize(("rates", "accepted"), [([1.0, 0.0], 1), ([0.0, 1.0], 0), ([1.0, 1.0], 2)])
def test_synthetic_rates_are_conditional_and_decide_alone(rates: list[float], accepted: int) -> None:
    """One sampled and two greedy requests; the tokens of the greedy ones are known."""
    rows = RequestRows.of([[0, 3, 4], [0, 5, 2], [0, -1, 2]], [0, 0, 0], [2, 0, 1], CPU)
    states = RequestStates(torch.tensor([0.0, 0.0, 1.0]), torch.tensor([7, 8, 9]))
    logits = torch.randn(9, 6, generator=torch.Generator().manual_seed(0))
    best = logits.argmax(dim=1).tolist()
    sampled = RequestStateSampler(synthetic_rates=torch.tensor(rates)).sample(logits, rows, states)
    assert sampled.counts.tolist() == [1 + accepted, 1 + accepted, 1]
    assert sampled.token_ids[0, :accepted].tolist() == [3, 4][:accepted]
    assert sampled.token_ids[1].tolist() == [*[5, 2][:accepted], best[3 + accepted], *[-1] * (2 - accepted)]
    assert sampled.token_ids[2].tolist() == [best[6], -1, -1], "a placeholder is rejected whatever its rate"


def test_synthetic_tokens_keep_the_targets_law_and_every_request_its_own_numbers() -> None:
    count, p = 5000, np.array([0.5, 0.3, 0.2])
    rows = RequestRows.of([[0, 1]] * count, [0] * count, list(range(count)), CPU)
    logits = 0.5 * torch.log(torch.from_numpy(p)).float().repeat(2 * count, 1)
    sampler = RequestStateSampler(synthetic_rates=torch.tensor([0.4]))
    sampled = sampler.sample(logits, rows, one_state(count, temperature=0.5))
    accepted = sampled.counts == 2
    assert set(sampled.token_ids[accepted, 0].tolist()) == {1}
    assert_distribution([int(accepted.sum()), int((~accepted).sum())], [0.4, 0.6], "accepted by rate")
    for emitted, what in ((sampled.token_ids[~accepted, 0], "recovered"), (sampled.token_ids[accepted, 1], "bonus")):
        assert_distribution(np.bincount(emitted, minlength=3).tolist(), p, f"{what} tokens")


# One answer


def test_a_seed_gives_the_same_tokens_in_cpp_and_in_triton() -> None:
    """The same logits to the last bit; a float32 near-tie in a few hundred draws has a chance of some 2^-16 each."""
    child = subprocess.run(
        [sys.executable, Path(__file__).with_name("markov_chains.py")],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert child.returncode == 0, child.stderr[-3000:]
    assert json.loads(child.stdout) == some_tokens()


@pytest.mark.gpu
def test_a_seed_gives_the_same_tokens_on_a_gpu() -> None:
    assert some_tokens("cuda") == some_tokens()


@pytest.mark.gpu
@pytest.mark.parametrize("rule", ["standard", "block", "synthetic"])
def test_a_step_is_captured_as_a_graph(rule: str) -> None:
    """A wait for the device would end the capture; the replay reads the seeds of its own time."""
    cuda = torch.device("cuda")
    rates = torch.tensor([0.5, 0.5], device=cuda) if rule == "synthetic" else None
    sampler = RequestStateSampler(block_verification=rule == "block", synthetic_rates=rates)
    rows, states, logits = padded_step(cuda)
    sampler.sample(logits.clone(), rows, states)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    given = logits.clone()
    with torch.cuda.graph(graph):
        captured = sampler.sample(given, rows, states)
    for seed in range(20):
        states.seed.fill_(seed)
        given.copy_(logits)
        graph.replay()
        on_cpu = padded_step(CPU)[1:]
        on_cpu[0].seed.fill_(seed)
        plain = RequestStateSampler(
            block_verification=rule == "block", synthetic_rates=None if rates is None else rates.cpu()
        ).sample(on_cpu[1], padded_step(CPU)[0], on_cpu[0])
        assert captured.token_ids.tolist() == plain.token_ids.tolist()


def padded_step(device: torch.device, padding: int = 2) -> tuple[RequestRows, RequestStates, torch.Tensor]:
    """Requests of 2, 0 and 1 drafts, and `padding` requests and rows of a captured batch that is not full."""
    inputs, starts, owners = [[1, 2, 3], [4], [5, 6]], [10, 0, 7], [4, 0, 2]
    full = RequestRows.of(inputs, starts, owners, device)

    def pad(values: torch.Tensor, value: int) -> torch.Tensor:
        return torch.nn.functional.pad(values, (0, padding), value=value)

    rows = RequestRows(
        pad(full.draft_sampled, 0),
        pad(full.cu_num_logits, 6),
        pad(full.pos, 0),
        pad(full.idx_mapping, -1),
        pad(full.expanded_idx_mapping, -1),
        pad(full.expanded_local_pos, 0),
        full.max_rows,
    )
    random = torch.Generator().manual_seed(8)
    states = RequestStates(
        torch.tensor([0.9, 1.0, 0.7, 1.0, 1.2], device=device),
        torch.arange(5, device=device) * 1000,
        top_k=torch.tensor([9, 1, 7, 1, 9], dtype=torch.int32, device=device),
        top_p=torch.tensor([1.0, 0.1, 0.9, 0.1, 0.8], device=device),
        min_p=torch.tensor([0.0, 0.9, 0.1, 0.9, 0.05], device=device),
        draft_logits=(2 * torch.randn(5, 2, 9, generator=random)).to(device),
    )
    return rows, states, (2 * torch.randn(6 + padding, 9, generator=random)).to(device)


@pytest.mark.parametrize("block", [False, True])
def test_padding_changes_nothing_and_emits_nothing(block: bool) -> None:
    sampler = RequestStateSampler(block_verification=block)
    rows, states, logits = padded_step(CPU)
    full = padded_step(CPU, padding=0)[0]
    padded = sampler.sample(logits.clone(), rows, states)
    plain = sampler.sample(logits[:6].clone(), full, states)
    assert padded.counts.tolist() == [*plain.counts.tolist(), 0, 0]
    assert padded.token_ids.tolist() == [*plain.token_ids.tolist(), [-1] * 3, [-1] * 3]


def test_every_row_is_shaped_by_its_own_state() -> None:
    rows, _, logits = padded_step(CPU, padding=0)
    states = RequestStates(
        torch.tensor([0.0, 9.0, 0.5, 9.0, 2.0]),
        torch.zeros(5, dtype=torch.int64),
        top_k=torch.tensor([9, 1, 2, 1, 9], dtype=torch.int32),
        min_p=torch.tensor([0.0, 1.0, 0.0, 1.0, 0.3]),
    )
    given = logits.clone()
    constrain(logits, rows, states)
    warm = given[:3] / 2
    likely = warm >= warm.amax(dim=1, keepdim=True) + math.log(0.3)
    assert torch.equal(logits[:3], warm.masked_fill(~likely, float("-inf")))
    assert torch.equal(logits[3], given[3]), "a greedy request keeps its logits"
    assert ((logits[4:] > float("-inf")).sum(dim=1) == 2).all()
    assert torch.equal(logits[4:].amax(dim=1), given[4:].amax(dim=1) / 0.5)
    by_mass = replace(states, top_k=None, min_p=None, top_p=torch.tensor([1.0, 0.1, 1e-6, 0.1, 1.0]))
    constrain(given, rows, by_mass)
    assert (given > float("-inf")).sum(dim=1).tolist() == [9, 9, 9, 9, 1, 1]


def test_what_a_verification_leaves_behind_is_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Block verification may write drafts behind the ones that it accepts (BLK-8)."""
    run = ops.run

    def scribbling(name: str, device: torch.device, **arguments: Any) -> None:
        if name == "block_verification":
            arguments["sampled"].fill_(5)
        run(name, device, **arguments)

    rows, states, logits = padded_step(CPU)
    clean = RequestStateSampler(block_verification=True).sample(logits.clone(), rows, states)
    monkeypatch.setattr(ops, "run", scribbling)
    sampled = RequestStateSampler(block_verification=True).sample(logits, rows, states)
    assert sampled.token_ids.tolist() == clean.token_ids.tolist()


def test_positions_and_seeds_choose_the_numbers() -> None:
    """One request without drafts is the Gumbel-max of its own seed and position, by the oracle's numbers."""
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(1))
    for seed in (0, -5, 2**63 - 1):
        for pos in (0, 1, 2**33):
            rows = RequestRows.of([[3]], [pos], [0], CPU)
            states = RequestStates(torch.tensor([2.0]), torch.tensor([seed]))
            token = int(RequestStateSampler().sample(logits.clone(), rows, states).token_ids)
            assert token == int((logits[0].double().numpy() / 2 + gumbel(seed, pos, 0, Draw.TARGET, 50)).argmax())


def test_a_draft_has_numbers_of_its_own_and_leaves_its_logits() -> None:
    logits = torch.randn(2, 50, generator=torch.Generator().manual_seed(1))
    cache = torch.full((3, 2, 50), -9.0)
    ids = sample_drafts_by_seed(
        logits,
        idx_mapping=torch.tensor([2, -1], dtype=torch.int32),
        temperature=torch.tensor([1.0, 1.0, 2.0]),
        seed=torch.tensor([1, 2, 3]),
        pos=torch.tensor([5, 5]),
        step=1,
        draft_logits=cache,
    )
    assert ids.tolist() == [int((logits[0].double().numpy() / 2 + gumbel(3, 5, 1, Draw.DRAFT, 50)).argmax()), 0]
    assert torch.equal(cache[2, 1], logits[0])
    assert (cache == -9).sum() == 5 * 50


def test_every_request_has_a_bonus_row_of_its_own() -> None:
    """Fewer drafts than the states can hold: the row behind the last draft is the bonus row."""
    inputs = [[0, 1, 2, 3], [0, 1], [0], [0, 1, 2]]
    rows = RequestRows.of(inputs, [0] * 4, [3, 1, 0, 2], CPU)
    logits = torch.zeros(10, 9)
    expected = [[1, 2, 3, 7], [1, 6], [5], [1, 2, 4]]
    for row, token in enumerate(token for tokens in expected for token in tokens):
        logits[row, token] = 90.0
    states = one_state(4, draft_logits=torch.zeros(4, 3, 9))
    sampled = RequestStateSampler().sample(logits, rows, states)
    assert sampled.counts.tolist() == [4, 2, 1, 3]
    assert [[token for token in row if token >= 0] for row in sampled.token_ids.tolist()] == expected


# What requests ask for


def test_greedy_requests_agree_with_the_flat_sampler() -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        temperature = rng.choice([0.0, 0.9], 5)
        batch = random_sampler_batch(rng, (3, 0, 2, 5, 1), temperature=temperature, top_k=7, top_p=0.8)
        by_family = WholeRequestStateSampler()(batch), WholeFlatSampler()(batch)
        for b in np.flatnonzero(temperature == 0):
            assert [tokens[b] for tokens in by_family] == [greedy_tokens(batch, b)] * 2


def test_min_p_keeps_a_fraction_of_the_best() -> None:
    logits = torch.log(torch.tensor([0.5, 0.3, 0.11, 0.09])).repeat(2000, 1)
    rows = RequestRows.of([[0]] * 2000, [0] * 2000, list(range(2000)), CPU)
    sampled = RequestStateSampler().sample(logits, rows, one_state(2000, min_p=torch.full((2000,), 0.2)))
    assert set(sampled.token_ids[:, 0].tolist()) == {0, 1, 2}


@pytest.mark.parametrize(
    ("fields", "forbidden"),
    [
        ({"allowed_token_ids": (1, 4, 6)}, [{0, 2, 3, 5, 7}] * 3),
        ({"bad_words": ((1, 2), (3,))}, [{3}, {2, 3}, {3}]),
        ({"min_tokens": 2, "stop_token_ids": (6, 7)}, [{6, 7}, {6, 7}, set()]),
        ({"logit_bias": {0: -1e9}}, [{0}] * 3),
        ({"presence_penalty": 1e9}, [set(), {1}, {1, 4}]),
        ({"frequency_penalty": 1e9}, [set(), {1}, {1, 4}]),
    ],
)
def test_processors_count_the_drafts(fields: dict[str, Any], forbidden: list[set[int]]) -> None:
    """In synthetic mode every draft is accepted or none, and the target's own token obeys at each of its rows."""
    count, proposed = 300, [1, 4]
    stop = fields.get("stop_token_ids", ())
    history = TokenHistory(GenerationRequest((3,), **fields), [], stop)
    for row, never in enumerate(forbidden):
        logits = torch.zeros(3 * count, 8)
        process_logits(logits, [history] * count, [proposed] * count)
        rows = RequestRows.of([[0, *proposed]] * count, [0] * count, list(range(count)), CPU)
        rates = torch.tensor([1.0] * row + [0.0] * (2 - row))
        sampled = RequestStateSampler(synthetic_rates=rates).sample(logits, rows, one_state(count))
        assert set(sampled.token_ids[:, row].tolist()) == set(range(8)) - never


def test_a_repetition_penalty_reaches_prompt_and_drafts() -> None:
    logits = torch.zeros(2, 8)
    logits[:, [3, 5]] = torch.tensor([2.0, 1.5])
    history = TokenHistory(GenerationRequest((3,), repetition_penalty=4.0), [], ())
    process_logits(logits, [history], [[5]])
    rows = RequestRows.of([[3, 5]], [0], [0], CPU)
    sampled = RequestStateSampler().sample(logits, rows, RequestStates(torch.zeros(1), torch.zeros(1).long()))
    assert sampled.token_ids.tolist() == [[5, 3]], "3 is worth 0.5 in both rows, 5 is worth 1.5 and then 0.375"


def flatten(sampled: Sampled, rows: RequestRows) -> torch.Tensor:
    """Return the emitted tokens in the order of the target's rows, [L] int64; 0 in a row without an emitted token."""
    device = sampled.token_ids.device
    flat = torch.zeros(rows.draft_sampled.shape[0], dtype=torch.int64, device=device)
    ops.run(
        "flatten_sampled",
        device,
        flat_sampled=flat,
        sampled=sampled.token_ids,
        num_sampled=sampled.counts,
        cu_num_logits=rows.cu_num_logits,
    )
    return flat


def test_log_probabilities_of_emitted_tokens_without_reading_them() -> None:
    rows, states, logits = padded_step(CPU)
    sampled = RequestStateSampler().sample(logits.clone(), rows, states)
    own, ids, values = row_logprobs(logits, flatten(sampled, rows), 3)
    emitted = [row[:count] for row, count in zip(sampled.token_ids.tolist(), sampled.counts.tolist(), strict=True)]
    expected = gather_logprobs(logits, emitted[:3], [2, 0, 1], [3, 3, 3])
    assert float(own[3]) == pytest.approx(
        float(torch.softmax(logits[3].double(), dim=0)[emitted[1][0]].log()), rel=1e-5
    )
    for first, tokens in zip((0, 3, 4), expected, strict=True):
        for row, token in enumerate(tokens, start=first):
            assert float(own[row]) == token.sampled
            assert tuple(zip(ids[row].tolist(), values[row].tolist(), strict=True)) == token.top
