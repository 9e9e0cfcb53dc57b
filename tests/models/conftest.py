"""Small random models, and checkpoint folders made of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from train_fixtures.build import eagle3_head, llama
from train_fixtures.corpus import train_tokenizer
from train_fixtures.export import save_eagle3, save_model
from train_fixtures.recipe import TINY
from train_fixtures.training import round_to_bfloat16
from transformers import LlamaForCausalLM

from verispec.reference.models import Eagle3Head


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """These models are so small that threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def target() -> LlamaForCausalLM:
    """An untrained target in float32, rounded as a checkpoint rounds it; every run has the same weights."""
    torch.manual_seed(3)
    made = llama(TINY.target, TINY)
    round_to_bfloat16(made)
    return made.eval().requires_grad_(False)


@pytest.fixture
def head(target: LlamaForCausalLM) -> Eagle3Head:
    """An untrained head for `target` whose draft vocabulary leaves out every fifth token."""
    torch.manual_seed(4)
    kept = torch.tensor([token for token in range(TINY.vocab_size) if token % 5])
    made = eagle3_head(target, kept, TINY)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
    round_to_bfloat16(made)
    return made.eval().requires_grad_(False)


@pytest.fixture
def checkpoints(tmp_path: Path, target: LlamaForCausalLM, head: Eagle3Head) -> Path:
    """A folder with the checkpoints ``target``, ``eagle3`` and ``eagle3_speculators``."""
    save_eagle3(tmp_path / "eagle3", head, TINY)
    tokenizer = train_tokenizer(["spec decode"], TINY.vocab_size)
    save_model(tmp_path / "target", target, tokenizer, TINY)
    return tmp_path
