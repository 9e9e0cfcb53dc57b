"""Engine vllm over the installed vLLM: what 0.32.0 on the CPU is known to do, reached as its callers reach it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from verispec import exits
from verispec.engines import Unsupported, UnsupportedCall
from verispec.engines.protocol.sampling import SamplerBatch
from verispec.engines.registry import resolve
from verispec.reference import contracts

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    made = resolve("vllm")
    yield made
    made.close()


def mixed(**changed: Any) -> SamplerBatch:
    """A greedy request, one without drafts and a sampled one, all seeded."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(8, 11, generator=generator) * 2
    fields: dict[str, Any] = {
        "logits": logits,
        "draft_token_ids": [[3, 4], [], [1, 2, 5]],
        "temperature": torch.tensor([0.0, 0.7, 0.9]),
        "seeds": [1, 2, 3],
    }
    return SamplerBatch(**{**fields, **changed})


def test_every_flat_op_is_live(engine: Any) -> None:
    flat = [name for name in contracts.names() if contracts.load(name).family == "flat"]
    assert [name for name in flat if isinstance(engine.op(name), Unsupported)] == []
    assert all(live.runs for live in engine.definitions().values())


def test_the_expand_fallback_loses_its_write(engine: Any) -> None:
    out = torch.full((5,), -7.0)
    engine.op("expand_batch_to_tokens")(
        output_ptr=out,
        input_ptr=torch.tensor([0.7, 0.0, 1.5]),
        cu_num_tokens_ptr=torch.tensor([2, 3, 5], dtype=torch.int32),
        replace_from=0,
        replace_to=1,
        MAX_NUM_TOKENS=2,
    )
    assert out.tolist() == [-7.0] * 5


def test_a_greedy_request_alone_is_right_and_in_a_mixed_batch_is_not(engine: Any) -> None:
    sampler = engine.sampler()
    greedy = mixed(temperature=torch.zeros(3))
    best = int(greedy.logits[0].argmax())
    assert sampler(greedy)[0][0] == best
    assert sampler(mixed())[0][0] != best


def test_the_same_seeds_give_the_same_tokens_and_draws(engine: Any) -> None:
    sampler = engine.sampler()
    traced = sampler.trace(mixed())
    assert traced.tokens == sampler(mixed())
    again = sampler.trace(mixed())
    assert traced.draws[1] is None
    for first, second in zip(traced.draws, again.draws, strict=True):
        assert (first is None) == (second is None)
        assert first is None or torch.equal(first.noise, second.noise)


def test_synthetic_acceptance_is_a_declared_gap(engine: Any) -> None:
    with pytest.raises(UnsupportedCall, match="Synthetic"):
        engine.sampler()(mixed(synthetic_rates=[0.5, 0.3, 0.1]))


def test_the_transplant_names_the_expand_fallback() -> None:
    case = "sampler/whole_sampler:WS-1:batch=mixed;draft=present"
    command = [sys.executable, "-m", "verispec", "transplant", "--engine", "vllm", "--case", case]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("culprit: expand_batch_to_tokens"), done.stderr
    assert done.returncode == exits.BAD
